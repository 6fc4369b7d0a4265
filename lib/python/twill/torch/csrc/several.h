/* SPDX-License-Identifier: Apache-2.0 */
/* Several tensors of one rank in one call, which c10d allows: they are combined before the call,
 * and each gets the result after it. */
#ifndef TWILL_TORCH_SEVERAL_H
#define TWILL_TORCH_SEVERAL_H

#include "tensors.h"

#include <functional>

namespace twill_torch
{

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

/* Return what copies the result of a call to all tensors of a list; nothing to do as a rule. */
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
