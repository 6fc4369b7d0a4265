/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in terms of twill: types, operations, contiguous memory. */
#ifndef TWILL_TORCH_TENSORS_H
#define TWILL_TORCH_TENSORS_H

#include "job.h"

#include <ATen/MemoryOverlap.h>

#include <functional>

namespace twill_torch
{

/* Type and count of a tensor's elements for reductions, as elements_of() returns them. A complex
 * number counts as two numbers. */
struct Elements {
    twill_type type;
    size_t count;
};

/* Set *type to twill's type for the numbers of a PyTorch type. Returns false if there is none. */
inline bool find_type(at::ScalarType scalar, twill_type *type)
{
    static constexpr std::pair<at::ScalarType, twill_type> TYPES[] = {
        {at::kFloat, TWILL_F32},
        {at::kComplexFloat, TWILL_F32},
        {at::kDouble, TWILL_F64},
        {at::kComplexDouble, TWILL_F64},
        {at::kHalf, TWILL_F16},
        {at::ScalarType::ComplexHalf, TWILL_F16},
        {at::kBFloat16, TWILL_BF16},
        {at::kChar, TWILL_I8},
        {at::kByte, TWILL_U8},
        {at::kBool, TWILL_U8},
        {at::kShort, TWILL_I16},
        {at::kInt, TWILL_I32},
        {at::kLong, TWILL_I64},
#if TWILL_TORCH_VERSION >= 203
        {at::ScalarType::UInt16, TWILL_U16},
        {at::ScalarType::UInt32, TWILL_U32},
        {at::ScalarType::UInt64, TWILL_U64},
        {at::ScalarType::Float8_e4m3fn, TWILL_F8E4M3},
        {at::ScalarType::Float8_e5m2, TWILL_F8E5M2},
#endif
    };
    for (const auto &[from, to] : TYPES)
        if (from == scalar) {
            *type = to;
            return true;
        }
    return false;
}

/* Return type and count of a tensor's elements. Throws for types that twill does not reduce. */
inline Elements elements_of(const char *call, const at::Tensor &tensor)
{
    twill_type type;
    if (!find_type(tensor.scalar_type(), &type))
        refuse(call, std::string("Invalid scalar type: reductions have none for ") +
                         at::toString(tensor.scalar_type()));
    return {type, static_cast<size_t>(tensor.numel()) * (tensor.is_complex() ? 2 : 1)};
}

/* The operation of a call. For PREMUL_SUM it is made for the call and destroyed after it. */
class Operation
{
  public:
    /* Find the operation for a tensor. Throws for one that has no meaning for its type. */
    Operation(const char *call, const c10d::ReduceOp &op, const at::Tensor &tensor);

    /* Call function(op), where `op` is the twill operation for this object. For PREMUL_SUM it is
     * created here for elements of `type`, and destroyed afterwards. Returns the function's status,
     * or why the operation could not be created. */
    template <class Function>
    twill_status with(twill_comm *comm, twill_type type, Function &&function) const
    {
        if (!factor_.defined())
            return function(op_);
        twill_op made;
        twill_context *context = twill_comm_context(comm);
        twill_status status = twill_op_create_scaled(context, &made, type, factor_.data_ptr());
        if (status != TWILL_OK)
            return status;
        status = function(made);
        (void)twill_op_destroy(context, made);
        return status;
    }

  private:
    /* Return twill's operation on bools, or throw an error that names `call` if bools have none. */
    static twill_op of_bool(const char *call, c10d::ReduceOp::RedOpType which);

    /* Return the operation on numbers, or refuse one that the tensor's type does not have. */
    static twill_op of_numbers(const char *call, c10d::ReduceOp::RedOpType which,
                               const at::Tensor &tensor);

    /* Return the factor of PREMUL_SUM as a tensor of one element. It is a float for 8- and 16-bit
     * floats, else of the tensor's type. Throws for a call without one, or for complex numbers. */
    static at::Tensor factor_of(const char *call, const c10d::ReduceOp &op,
                                const at::Tensor &tensor);

    twill_op op_;
    at::Tensor factor_;
};

inline Operation::Operation(const char *call, const c10d::ReduceOp &op, const at::Tensor &tensor)
{
    c10d::ReduceOp::RedOpType which = op;
    if (tensor.scalar_type() == at::kBool)
        op_ = of_bool(call, which);
    else
        op_ = of_numbers(call, which, tensor);
    if (which == c10d::ReduceOp::PREMUL_SUM)
        factor_ = factor_of(call, op, tensor);
}

inline twill_op Operation::of_bool(const char *call, c10d::ReduceOp::RedOpType which)
{
    switch (which) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR:
        return TWILL_LOR;
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND:
        return TWILL_LAND;
    case c10d::ReduceOp::BXOR:
        return TWILL_LXOR;
    default:
        refuse(call, "bool tensors have no average and no factor");
    }
}

inline twill_op Operation::of_numbers(const char *call, c10d::ReduceOp::RedOpType which,
                                      const at::Tensor &tensor)
{
    bool bitwise = which == c10d::ReduceOp::BAND || which == c10d::ReduceOp::BOR ||
                   which == c10d::ReduceOp::BXOR;
    if (bitwise && !at::isIntegralType(tensor.scalar_type(), true))
        refuse(call, std::string("Cannot use bitwise operations with the non-integral type ") +
                         at::toString(tensor.scalar_type()));
    if (tensor.is_complex() && which != c10d::ReduceOp::SUM && which != c10d::ReduceOp::AVG)
        refuse(call, "complex tensors have sum and average only");
    static constexpr std::pair<c10d::ReduceOp::RedOpType, twill_op> OPERATIONS[] = {
        {c10d::ReduceOp::SUM, TWILL_SUM},   {c10d::ReduceOp::PREMUL_SUM, TWILL_SUM},
        {c10d::ReduceOp::AVG, TWILL_AVG},   {c10d::ReduceOp::PRODUCT, TWILL_PROD},
        {c10d::ReduceOp::MIN, TWILL_MIN},   {c10d::ReduceOp::MAX, TWILL_MAX},
        {c10d::ReduceOp::BAND, TWILL_BAND}, {c10d::ReduceOp::BOR, TWILL_BOR},
        {c10d::ReduceOp::BXOR, TWILL_BXOR}};
    for (const auto &[from, to] : OPERATIONS)
        if (from == which)
            return to;
    refuse(call, "unknown reduction operation");
}

inline at::Tensor Operation::factor_of(const char *call, const c10d::ReduceOp &op,
                                       const at::Tensor &tensor)
{
    auto *supplement = dynamic_cast<c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
#if TWILL_TORCH_HAS_BACKEND
    at::Tensor given = supplement ? supplement->tensor_factor : at::Tensor();
#else
    at::Tensor given = supplement && !supplement->tensor_factors.empty()
                           ? supplement->tensor_factors[0]
                           : at::Tensor();
#endif
    if (supplement == nullptr || tensor.is_complex())
        refuse(call, "PREMUL_SUM without a factor, or of complex numbers");
    bool narrow = at::isFloatingType(tensor.scalar_type()) && tensor.element_size() < 4;
    auto options = at::TensorOptions().dtype(narrow ? at::kFloat : tensor.scalar_type());
    return given.defined() ? given.detach()
                                 .to(at::kCPU)
                                 .to(options.dtype())
                                 .reshape({1})
                                 .resolve_neg()
                                 .contiguous()
                           : at::full({1}, supplement->double_factor, options);
}

/* Throw for tensors that twill cannot access, such as sparse ones or those on other devices. */
inline void check_tensor(const char *call, const at::Tensor &tensor)
{
    if (!tensor.defined())
        refuse(call, "a tensor is undefined");
    if (tensor.layout() != at::kStrided)
        refuse(call, "invalid tensor layout: tensors must be dense");
    if (tensor.is_nested() || tensor.unsafeGetTensorImpl()->is_python_dispatch())
        refuse(call, "a nested tensor, or one of a class that computes its values, has no memory "
                     "with its values");
    if (tensor.is_quantized())
        refuse(call, "the memory of a quantised tensor has codes: pass its dequantize(), or its "
                     "int_repr()");
    if (!tensor.device().is_cpu())
        refuse(call, "tensors must be on the CPU, not on " + tensor.device().str());
}

/* Throw for a tensor that twill cannot access, or that has another type than `other`. */
inline void check_alike(const char *call, const at::Tensor &tensor, const at::Tensor &other)
{
    check_tensor(call, tensor);
    if (tensor.scalar_type() != other.scalar_type())
        refuse(call, std::string("invalid tensor type: tensors must have the same type, not ") +
                         at::toString(tensor.scalar_type()) + " and " +
                         at::toString(other.scalar_type()));
}

/* Throw for a list of tensors of which twill cannot access one, or that differ in type or in number
 * of elements. */
inline void check_same(const char *call, const Tensors &tensors)
{
    for (const at::Tensor &tensor : tensors) {
        check_alike(call, tensor, tensors[0]);
        if (tensor.numel() != tensors[0].numel())
            refuse(call, "invalid tensor size: all must have the same number of elements");
    }
}

/* Return the only tensor of a list (`list` in messages, or nullptr). Throws for other lists. */
inline at::Tensor &only(const char *call, Tensors &tensors, const char *list = nullptr)
{
    check_same(call, tensors);
    if (tensors.empty() && list == nullptr)
        refuse(call, "requires non-empty tensor list");
    if (tensors.size() != 1)
        refuse(call, std::string("requires a single-element ") +
                         (list != nullptr ? list : "tensor list") + ": one tensor a rank, not " +
                         std::to_string(tensors.size()));
    return tensors[0];
}

/* Return the address of a tensor's first element. */
inline uint8_t *bytes_of(const at::Tensor &tensor)
{
    return static_cast<uint8_t *>(tensor.data_ptr());
}

/* A tensor's memory as one block, which is its own or that of a copy that store() copies back.
 * Autograd records neither copy, just as it does not record collectives. */
class Flat
{
  public:
    /* Copy a tensor if it is not one block in order. The copy has its values only if `read`. */
    Flat(const at::Tensor &tensor, bool read) : tensor_(tensor)
    {
        bool lazy = tensor.is_conj() || tensor.is_neg() || tensor._is_zerotensor();
        if (tensor.is_contiguous() && !lazy)
            return;
        at::NoGradGuard no_gradients;
        if (lazy)
            copy_ = tensor.clone(at::MemoryFormat::Contiguous).resolve_conj().resolve_neg();
        else if (read)
            copy_ = tensor.contiguous();
        else
            copy_ = at::empty(tensor.sizes(), tensor.options());
    }

    /* Return the address of the block, which is a copy's if copied(). */
    uint8_t *data() const
    {
        return bytes_of(flat());
    }

    /* Return whether data() is a copy, because the tensor's own memory does not hold its values as
     * one block in order. */
    bool copied() const
    {
        return copy_.defined();
    }

    /* Throw for a tensor that cannot take a result, because elements share memory or have none. */
    void check_written() const
    {
        if (copied() &&
            (at::has_internal_overlap(tensor_) == at::MemOverlap::Yes || tensor_._is_zerotensor()))
            refuse("a result", "elements of the tensor that it goes to share memory (expand()), or "
                               "have none: pass its clone()");
    }

    /* Copy the copy, if there is one, back to the tensor. */
    void store() const
    {
        if (!copied())
            return;
        at::NoGradGuard no_gradients;
        at::Tensor(tensor_).copy_(copy_);
    }

    /* Return the copy, or the tensor if there is none. */
    const at::Tensor &flat() const
    {
        return copied() ? copy_ : tensor_;
    }

  private:
    at::Tensor tensor_, copy_; /* copy_ is undefined without a copy */
};

/* Return the bytes of each tensor of a list. */
inline std::vector<size_t> sizes_of(const Tensors &tensors)
{
    std::vector<size_t> sizes;
    for (const at::Tensor &tensor : tensors)
        sizes.push_back(static_cast<size_t>(tensor.nbytes()));
    return sizes;
}

inline size_t sum_of(const std::vector<size_t> &sizes)
{
    size_t sum = 0;
    for (size_t size : sizes)
        sum += size;
    return sum;
}

/* Copy tensors into one block, one after the other. */
inline void pack(const Tensors &tensors, const at::Tensor &block)
{
    uint8_t *at = bytes_of(block);
    for (const at::Tensor &tensor : tensors) {
        Flat flat(tensor, true);
        size_t bytes = static_cast<size_t>(tensor.nbytes());
        if (bytes > 0)
            memcpy(at, flat.data(), bytes);
        at += bytes;
    }
}

/* Copy a block, which has the tensors one after the other, to the tensors. */
inline void unpack(const at::Tensor &block, const Tensors &tensors)
{
    const uint8_t *at = bytes_of(block);
    for (const at::Tensor &tensor : tensors) {
        Flat flat(tensor, false);
        size_t bytes = static_cast<size_t>(tensor.nbytes());
        if (bytes > 0)
            memcpy(flat.data(), at, bytes);
        flat.store();
        at += bytes;
    }
}

/* Combine another tensor of this rank into `sum`, or refuse an average. c10d allows several tensors
 * of one rank in one call. They are combined before the call, and each gets the result after it. */
inline void combine(const char *call, at::Tensor &sum, const at::Tensor &other,
                    c10d::ReduceOp::RedOpType which)
{
    switch (which) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:
        sum.add_(other);
        return;
    case c10d::ReduceOp::PRODUCT:
        sum.mul_(other);
        return;
    case c10d::ReduceOp::MIN:
        sum.copy_(at::minimum(sum, other));
        return;
    case c10d::ReduceOp::MAX:
        sum.copy_(at::maximum(sum, other));
        return;
    case c10d::ReduceOp::BAND:
        sum.bitwise_and_(other);
        return;
    case c10d::ReduceOp::BOR:
        sum.bitwise_or_(other);
        return;
    case c10d::ReduceOp::BXOR:
        sum.bitwise_xor_(other);
        return;
    default:
        refuse(call, "several tensors of one rank have no average");
    }
}

/* Return the one tensor of a list, or its tensors combined in new memory. */
inline at::Tensor combined(const char *call, const Tensors &tensors, const c10d::ReduceOp &op)
{
    if (tensors.size() == 1)
        return tensors[0];
    at::NoGradGuard no_gradients;
    at::Tensor sum = tensors[0].clone(at::MemoryFormat::Contiguous);
    for (size_t i = 1; i < tensors.size(); i++)
        combine(call, sum, tensors[i].reshape(sum.sizes()), op);
    return sum;
}

/* Copy tensors to those of another list, one by one. */
inline void copy_each(const Tensors &from, const Tensors &to)
{
    at::NoGradGuard no_gradients;
    for (size_t i = 0; i < to.size(); i++)
        at::Tensor(to[i]).copy_(from[i].reshape(to[i].sizes()));
}

/* Return a function that copies the result of a call, in `flat`, to all of `tensors`. Returns
 * nullptr if there is only one tensor, and `flat` is its own memory. Throws for a tensor that
 * cannot take a result. */
inline std::function<void()> stored_in_all(const Flat &flat, const Tensors &tensors)
{
    for (size_t i = 0; tensors.size() > 1 && i < tensors.size(); i++)
        Flat(tensors[i], false).check_written();
    if (tensors.size() > 1)
        return [flat, tensors] { copy_each(Tensors(tensors.size(), flat.flat()), tensors); };
    if (!flat.copied())
        return nullptr;
    flat.check_written();
    return [flat] { flat.store(); };
}

} // namespace twill_torch
#endif
