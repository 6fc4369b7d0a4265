/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of sparse tensors, as gradients of embeddings are: all ranks gather all entries, and add
 * those of one place. */
#ifndef TWILL_TORCH_SPARSE_H
#define TWILL_TORCH_SPARSE_H

#include "tensor_calls.h"

namespace twill_torch
{

/* The entries of this rank, and of all ranks one after the other. */
struct SparseSum {
    at::Tensor indices, values; /* each entry's: rows */
    at::Tensor all_indices, all_values;
    int size;

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
