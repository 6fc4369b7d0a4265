/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of single tensors, dense and sparse. */
#ifndef TWILL_TORCH_TENSOR_CALLS_H
#define TWILL_TORCH_TENSOR_CALLS_H

#include "backend.h"

namespace twill_torch
{

/* Return a function that copies a result back from a tensor's copy, or nullptr without a copy.
 * Throws for a tensor that cannot take a result. */
inline std::function<void()> stored(const Flat &flat)
{
    if (!flat.copied())
        return nullptr;
    flat.check_written();
    return [flat] { flat.store(); };
}

/* Copy one tensor of the root, number opts.rootTensor, to all tensors of every rank. Returns the
 * Work, or nullptr (submit()). */
inline WorkRef Backend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
{
    static const char call[] = "broadcast";
    int root = root_of(call, opts.rootRank, opts.rootTensor, tensors.size());
    check_same(call, tensors);
    at::Tensor &tensor = tensors[root == rank_ ? static_cast<size_t>(opts.rootTensor) : 0];
    Flat flat(tensor, root == rank_);
    size_t bytes = static_cast<size_t>(tensor.nbytes());
    return submit(c10d::OpType::BROADCAST, "broadcast", opts, tensors, tensors,
                  noting(returning_, flat.flat(), flat.flat(),
                         [flat, bytes, root](twill_comm *comm) {
                             return twill_broadcast(comm, flat.data(), flat.data(), bytes, TWILL_U8,
                                                    root);
                         }),
                  root == rank_ && tensors.size() == 1 ? nullptr : stored_in_all(flat, tensors));
}

/* Reduce the tensors of all ranks, which all get the result. Several tensors of a rank are combined
 * first. Sparse tensors are only added. Returns the Work, or nullptr (submit()). */
inline WorkRef Backend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    static const char call[] = "allreduce";
    if (tensors.empty())
        refuse(call, "requires non-empty tensor list");
    if (tensors[0].defined() && tensors[0].is_sparse())
        return allreduce_of_sparse(tensors, opts);
    check_same(call, tensors);
    at::Tensor tensor = combined(call, tensors, opts.reduceOp);
    Elements elements = elements_of(call, tensor);
    Operation operation(call, opts.reduceOp, tensor);
    Flat flat(tensor, true);
    return submit(c10d::OpType::ALLREDUCE, "all_reduce", opts, tensors, tensors,
                  noting(returning_, flat.flat(), flat.flat(),
                         [flat, elements, operation](twill_comm *comm) {
                             return operation.with(comm, elements.type, [&](twill_op op) {
                                 return twill_allreduce(comm, flat.data(), flat.data(),
                                                        elements.count, elements.type, op);
                             });
                         }),
                  stored_in_all(flat, tensors));
}

/* Average 16-bit floats of all ranks in place. Partial sums between nodes also have 16 bits. */
inline WorkRef Backend::average_narrow(const at::Tensor &tensor)
{
    static const char call[] = "average_narrow";
    check_tensor(call, tensor);
    Elements elements = elements_of(call, tensor);
    if (elements.type != TWILL_F16 && elements.type != TWILL_BF16)
        refuse(call, "a tensor of float16 or bfloat16 is needed");
    Flat flat(tensor, true);
    float share = 1.0F / static_cast<float>(size_);
    return submit(
        c10d::OpType::ALLREDUCE, "all_reduce", c10d::AllreduceOptions(), {tensor}, {tensor},
        [flat, elements, share](twill_comm *comm) {
            twill_op average;
            twill_context *context = twill_comm_context(comm);
            twill_status status =
                twill_op_create_narrow(context, &average, elements.type, &share, nullptr);
            if (status != TWILL_OK)
                return status;
            status = twill_allreduce(comm, flat.data(), flat.data(), elements.count, elements.type,
                                     average);
            (void)twill_op_destroy(context, average);
            return status;
        },
        stored(flat));
}

/* Reduce each tensor of the list. Except for PREMUL_SUM, the calls are a group of twill, which
 * fuses small ones of one type. */
inline WorkRef Backend::allreduce_coalesced(Tensors &tensors,
                                            const c10d::AllreduceCoalescedOptions &opts)
{
    static const char call[] = "allreduce_coalesced";
    if (tensors.empty())
        refuse(call, "requires non-empty tensor list");
    /* One tensor of the call, with its type and operation. */
    struct Item {
        Flat flat;         /* its memory as one block, or a copy */
        Elements elements; /* their type and number for twill */
        Operation operation;
    };
    auto items = std::make_shared<std::vector<Item>>();
    bool copied = false, scaled = opts.reduceOp == c10d::ReduceOp::PREMUL_SUM;
    for (at::Tensor &tensor : tensors) {
        check_tensor(call, tensor);
        items->push_back({Flat(tensor, true), elements_of(call, tensor),
                          Operation(call, opts.reduceOp, tensor)});
        items->back().flat.check_written();
        copied = copied || items->back().flat.copied();
    }
    auto run = [items, scaled](twill_comm *comm) {
        twill_status status = scaled ? TWILL_OK : twill_group_start(comm);
        for (size_t i = 0; i < items->size() && status == TWILL_OK; i++) {
            const Item &item = (*items)[i];
            status = item.operation.with(comm, item.elements.type, [&](twill_op op) {
                return twill_allreduce(comm, item.flat.data(), item.flat.data(),
                                       item.elements.count, item.elements.type, op);
            });
        }
        if (!scaled) {
            twill_status ended = twill_group_end(comm);
            status = status == TWILL_OK ? ended : status;
        }
        return status;
    };
    auto store = [items] {
        for (const Item &item : *items)
            item.flat.store();
    };
    return submit(c10d::OpType::ALLREDUCE_COALESCED, "all_reduce", opts, tensors, tensors, run,
                  copied ? std::function<void()>(store) : nullptr);
}

/* Reduce the one tensor of each rank to that of the root. On other ranks it stays as it is. Returns
 * the Work, or nullptr (submit()). */
inline WorkRef Backend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
    static const char call[] = "reduce";
    at::Tensor &tensor = only(call, tensors);
    int root = root_of(call, opts.rootRank, opts.rootTensor, tensors.size());
    Elements elements = elements_of(call, tensor);
    Operation operation(call, opts.reduceOp, tensor);
    Flat flat(tensor, true);
    void *result = root == rank_ ? flat.data() : nullptr;
    return submit(
        c10d::OpType::REDUCE, "reduce", opts, tensors, tensors,
        [flat, elements, operation, result, root](twill_comm *comm) {
            return operation.with(comm, elements.type, [&](twill_op op) {
                return twill_reduce(comm, flat.data(), result, elements.count, elements.type, op,
                                    root);
            });
        },
        root == rank_ ? stored(flat) : nullptr);
}

/* Copy the input of each rank, in rank order, to the output, which is as large as all inputs.
 * Throws for other sizes or types. Returns the Work, or nullptr (submit()). */
inline WorkRef Backend::_allgather_base(at::Tensor &output, at::Tensor &input,
                                        const c10d::AllgatherOptions &opts)
{
    static const char call[] = "allgather_into_tensor";
    check_tensor(call, input);
    check_alike(call, output, input);
    if (output.numel() != input.numel() * size_)
        refuse(call, "output tensor size must be equal to world_size times input tensor size, but "
                     "they have " +
                         std::to_string(output.numel()) + " and " + std::to_string(input.numel()) +
                         " elements");
    Flat from(input, true), to(output, false);
    size_t bytes = static_cast<size_t>(input.nbytes());
    return submit(c10d::OpType::_ALLGATHER_BASE, "_all_gather_base", opts, {input}, {output},
                  noting(returning_, from.flat(), to.flat(),
                         [from, to, bytes](twill_comm *comm) {
                             return twill_allgather(comm, from.data(), to.data(), bytes, TWILL_U8);
                         }),
                  stored(to));
}

/* Reduce the inputs of all ranks, of which each rank gets its equal part as output. Throws for
 * other sizes or types. Returns the Work, or nullptr (submit()). */
inline WorkRef Backend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                             const c10d::ReduceScatterOptions &opts)
{
    static const char call[] = "reduce_scatter_tensor";
    check_tensor(call, input);
    check_alike(call, output, input);
    if (input.numel() != output.numel() * size_)
        refuse(call, "input tensor must be the same size as output size times world size, but they "
                     "have " +
                         std::to_string(input.numel()) + " and " + std::to_string(output.numel()) +
                         " elements");
    Elements elements = elements_of(call, output);
    Operation operation(call, opts.reduceOp, output);
    Flat from(input, true), to(output, false);
    return submit(c10d::OpType::_REDUCE_SCATTER_BASE, "_reduce_scatter_base", opts, {input},
                  {output},
                  noting(returning_, from.flat(), to.flat(),
                         [from, to, elements, operation](twill_comm *comm) {
                             return operation.with(comm, elements.type, [&](twill_op op) {
                                 return twill_reduce_scatter(comm, from.data(), to.data(),
                                                             elements.count, elements.type, op);
                             });
                         }),
                  stored(to));
}

/* Return the size of a tensor's first dimension, or 1 if it has none. */
inline int64_t rows_of(const at::Tensor &tensor)
{
    return tensor.dim() > 0 ? tensor.size(0) : 1;
}

/* Throw for a tensor whose first dimension is not a multiple of `size`. */
inline void check_divides(const char *call, const at::Tensor &tensor, int size)
{
    if (rows_of(tensor) % size != 0)
        refuse(call, "Tensor's dim 0 does not divide equally across group size");
}

/* Return the bytes of each rank's part of a tensor that is split along its first dimension. Without
 * splits parts are equal. Throws for splits that do not fit. */
inline std::vector<size_t> parts_of(const char *call, const at::Tensor &tensor,
                                    const std::vector<int64_t> &splits, int size)
{
    std::vector<size_t> parts;
    parts.reserve(static_cast<size_t>(size));
    int64_t rows = rows_of(tensor), sum = 0;
    size_t row = rows > 0 ? static_cast<size_t>(tensor.nbytes()) / static_cast<size_t>(rows) : 0;
    if (splits.empty())
        check_divides(call, tensor, size);
    if (!splits.empty() && splits.size() != static_cast<size_t>(size))
        refuse(call, "Number of tensor splits not equal to group size");
    for (int r = 0; r < size; r++) {
        int64_t length = splits.empty() ? rows / size : splits[static_cast<size_t>(r)];
        if (length < 0)
            refuse(call, "a split is negative");
        sum += length;
        parts.push_back(static_cast<size_t>(length) * row);
    }
    if (sum != rows)
        refuse(call, "Split sizes doesn't match total dim 0 size");
    return parts;
}

inline WorkRef Backend::alltoall_of_equal(at::Tensor &output, at::Tensor &input,
                                          const c10d::AllToAllOptions &opts)
{
    static const char call[] = "alltoall_base";
    check_divides(call, input, size_);
    check_divides(call, output, size_);
    if (input.numel() != output.numel())
        refuse(call, "input and output have different sizes");
    Flat from(input, true), to(output, false);
    size_t each = static_cast<size_t>(input.nbytes()) / static_cast<size_t>(size_);
    return submit(c10d::OpType::ALLTOALL_BASE, "all_to_all", opts, {input}, {output},
                  noting(returning_, from.flat(), to.flat(),
                         [from, to, each](twill_comm *comm) {
                             return twill_alltoall(comm, from.data(), to.data(), each, TWILL_U8);
                         }),
                  stored(to));
}

/* Send each rank its part of the input, and receive a part of the output from each. Splits are
 * numbers of rows for each rank, and without any, all parts are equal. Returns the Work, or nullptr
 * (submit()). */
inline WorkRef Backend::alltoall_base(at::Tensor &output, at::Tensor &input,
                                      std::vector<int64_t> &output_splits,
                                      std::vector<int64_t> &input_splits,
                                      const c10d::AllToAllOptions &opts)
{
    static const char call[] = "alltoall_base";
    check_tensor(call, input);
    check_alike(call, output, input);
    if (input_splits.empty() && output_splits.empty())
        return alltoall_of_equal(output, input, opts);
    std::vector<size_t> sent = parts_of(call, input, input_splits, size_),
                        received = parts_of(call, output, output_splits, size_);
    Flat from(input, true), to(output, false);
    return submit(
        c10d::OpType::ALLTOALL_BASE, "all_to_all", opts, {input}, {output},
        [from, to, sent, received](twill_comm *comm) {
            return twill_alltoallv(comm, from.data(), sent.data(), nullptr, to.data(),
                                   received.data(), nullptr, TWILL_U8);
        },
        stored(to));
}

/* Wait until all ranks have called it. Returns the Work, or nullptr for a blocking call that is
 * complete (submit()). */
inline WorkRef Backend::barrier(const c10d::BarrierOptions &opts)
{
    return submit(c10d::OpType::BARRIER, "barrier", opts, {}, {},
                  [](twill_comm *comm) { return twill_barrier(comm); });
}

/* --- sparse tensors --------------------------------------------------------------------------- */

/* The entries of this rank's sparse tensor, and of all ranks', to be added up. Made for one call,
 * whose functions share and free it. */
struct SparseSum {
    at::Tensor indices, values; /* of this rank, a row for each entry */
    at::Tensor all_indices, all_values;
    int size;

    /* Gather `indices` and `values` of all ranks, in rank order, in new tensors all_indices and
     * all_values. Returns TWILL_OK or the first failure. */
    twill_status gather(twill_comm *comm)
    {
        int64_t mine = values.size(0);
        std::vector<int64_t> counts(static_cast<size_t>(size));
        twill_status status = twill_allgather(comm, &mine, counts.data(), 1, TWILL_I64);
        if (status != TWILL_OK)
            return status;
        int64_t total = 0;
        for (int64_t count : counts)
            total += count;
        status = gather_rows(comm, counts, total, indices, all_indices);
        return status == TWILL_OK ? gather_rows(comm, counts, total, values, all_values) : status;
    }

  private:
    /* Make `all` of the rows of all ranks, counts[r] from rank r. Returns the status of twill. */
    static twill_status gather_rows(twill_comm *comm, const std::vector<int64_t> &counts,
                                    int64_t total, const at::Tensor &mine, at::Tensor &all)
    {
        std::vector<int64_t> shape = mine.sizes().vec();
        shape[0] = 1;
        size_t row = static_cast<size_t>(c10::multiply_integers(shape)) * mine.element_size();
        shape[0] = total;
        all = at::empty(shape, mine.options());
        std::vector<size_t> bytes;
        for (int64_t count : counts)
            bytes.push_back(static_cast<size_t>(count) * row);
        return twill_allgatherv(comm, mine.data_ptr(), all.data_ptr(), bytes.data(), nullptr,
                                TWILL_U8);
    }
};

inline WorkRef Backend::allreduce_of_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    static const char call[] = "allreduce of a sparse tensor";
    for (const at::Tensor &tensor : tensors) {
        if (!tensor.defined() || tensor.layout() != at::kSparse)
            refuse(call, "invalid tensor layout: all must be sparse");
        if (tensor.scalar_type() != tensors[0].scalar_type())
            refuse(call, "invalid tensor type: all must have the same");
        if (tensor.sizes() != tensors[0].sizes())
            refuse(call, "invalid tensor size: all must have the same");
    }
    at::Tensor tensor = tensors[0];
    if (opts.reduceOp != c10d::ReduceOp::SUM)
        refuse(call, "unsupported reduction operation (allreduce of sparse tensors only works with "
                     "ReduceOp.SUM)");
    if (!tensor.device().is_cpu())
        refuse(call, "tensors must be on the CPU");
    at::Tensor added = tensor.detach();
    for (size_t i = 1; i < tensors.size(); i++)
        added = added + tensors[i].detach();
    at::Tensor coalesced = added.coalesce();
    auto sum = std::make_shared<SparseSum>();
    sum->indices = coalesced.indices().t().contiguous();
    sum->values = coalesced.values().resolve_conj().resolve_neg().contiguous();
    sum->size = size_;
    return submit(
        c10d::OpType::ALLREDUCE, "sparse_all_reduce", opts, tensors, tensors,
        [sum](twill_comm *comm) { return sum->gather(comm); },
        [sum, tensors] {
            at::NoGradGuard no_gradients;
            at::Tensor result = at::sparse_coo_tensor(sum->all_indices.t(), sum->all_values,
                                                      tensors[0].sizes(), tensors[0].options());
            result = result.coalesce();
            for (const at::Tensor &tensor : tensors)
                at::Tensor(tensor).copy_(result);
        });
}

} // namespace twill_torch
#endif
