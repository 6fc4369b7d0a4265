/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of lists of tensors, which are copied into and out of a block in shared memory. */
#ifndef TWILL_TORCH_LIST_CALLS_H
#define TWILL_TORCH_LIST_CALLS_H

#include "tensor_calls.h"

namespace twill_torch
{

/* Return the beginning of a list that lies in one block, as chunks of a tensor do, or nullptr. */
inline uint8_t *block_of(const Tensors &list)
{
    uint8_t *at = list.empty() ? nullptr : bytes_of(list[0]);
    uint8_t *begin = at;
    for (const at::Tensor &tensor : list) {
        if (!tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg() ||
            bytes_of(tensor) != at)
            return nullptr;
        at += tensor.nbytes();
    }
    return begin;
}

/* A list of tensors as one block of memory, for reading or for writing in one call. */
struct Block {
    at::Tensor memory;       /* scratch, unless the list is a block */
    uint8_t *data = nullptr; /* of `memory`, or of the list's own block */
    Tensors list;

    /* Return a function that copies the block to the list, or nullptr if none is needed. */
    std::function<void()> stored() const
    {
        if (!memory.defined())
            return nullptr;
        for (const at::Tensor &tensor : list)
            Flat(tensor, false).check_written();
        Block self = *this;
        return [self] { unpack(self.memory, self.list); };
    }
};

/* Return a list as a block, with its values if `read`. scratch(bytes) gives memory if needed. */
template <class Scratch> Block block_for(const Tensors &list, bool read, Scratch &&scratch)
{
    Block block;
    block.list = list;
    block.data = block_of(list);
    if (block.data == nullptr) {
        block.memory = scratch(sum_of(sizes_of(list)));
        block.data = bytes_of(block.memory);
        if (read)
            pack(list, block.memory);
    }
    return block;
}

inline void Backend::check_gathered(const char *call, const Tensors &list,
                                    const Tensors &inputs) const
{
    size_t ranks = static_cast<size_t>(size_), each = inputs.size();
    if (list.size() != ranks * each)
        refuse(call, "invalid output tensor list: " + std::to_string(list.size()) +
                         " tensors for " + std::to_string(ranks * each) + " inputs of " +
                         std::to_string(ranks) + " ranks");
    for (const at::Tensor &tensor : list)
        check_alike(call, tensor, inputs[0]);
    for (size_t i = 0; i < each; i++)
        if (list[static_cast<size_t>(rank_) * each + i].numel() != inputs[i].numel())
            refuse(call, "invalid tensor size: this rank's output differs from its input");
}

/* Copy the inputs of all ranks to each list of outputs, in rank order. There is a list for each
 * input of this rank, with a tensor for each input of all ranks. Returns the Work, or nullptr
 * (submit()). */
inline WorkRef Backend::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                                  const c10d::AllgatherOptions &opts)
{
    static const char call[] = "allgather";
    if (inputs.empty())
        refuse(call, "requires non-empty input tensor list");
    if (outputs.size() != inputs.size())
        refuse(call, "requires input/output tensor lists to have the same length");
    check_same(call, inputs);
    for (const Tensors &list : outputs) {
        check_gathered(call, list, inputs);
        for (size_t i = 0; i < list.size(); i++)
            if (list[i].numel() != outputs[0][i].numel())
                refuse(call, "invalid tensor size: output lists differ in the sizes of a tensor");
    }
    std::vector<size_t> sizes(static_cast<size_t>(size_));
    for (size_t i = 0; i < outputs[0].size(); i++)
        sizes[i / inputs.size()] += static_cast<size_t>(outputs[0][i].nbytes());
    auto memory = [&](size_t bytes) { return scratch(bytes); };
    Block from = block_for(inputs, true, memory), to = block_for(outputs[0], false, memory);
    bool equal = std::all_of(sizes.begin(), sizes.end(), [&](size_t s) { return s == sizes[0]; });
    std::function<void()> after = to.stored();
    if (outputs.size() > 1)
        after = [first = after, outputs] {
            if (first)
                first();
            for (size_t i = 1; i < outputs.size(); i++)
                copy_each(outputs[0], outputs[i]);
        };
    return submit(
        c10d::OpType::ALLGATHER, "all_gather", opts, inputs, outputs,
        [from, to, sizes, equal](twill_comm *comm) {
            if (equal)
                return twill_allgather(comm, from.data, to.data, sizes[0], TWILL_U8);
            return twill_allgatherv(comm, from.data, to.data, sizes.data(), nullptr, TWILL_U8);
        },
        after);
}

/* Copy the input of each rank to one output of the root, in rank order. `outputs` is empty on other
 * ranks. Returns the Work, or nullptr (submit()). */
inline WorkRef Backend::gather(std::vector<Tensors> &outputs, Tensors &inputs,
                               const c10d::GatherOptions &opts)
{
    static const char call[] = "gather";
    at::Tensor &input = only(call, inputs, "input tensor list");
    int root = root_of(call, opts.rootRank);
    size_t bytes = static_cast<size_t>(input.nbytes());
    Flat from(input, true);
    Block to;
    if (root == rank_) {
        if (outputs.size() != 1)
            refuse(call, "requires a single-element output list containing a list with " +
                             std::to_string(size_) + " tensors");
        if (outputs[0].size() != static_cast<size_t>(size_))
            refuse(call, "Incorrect output list size " + std::to_string(outputs[0].size()) +
                             ". Output list size should be " + std::to_string(size_) +
                             ", same as size of the process group.");
        check_list(call, outputs[0], input, true);
        to = block_for(outputs[0], false, [&](size_t size) { return scratch(size); });
    } else if (!outputs.empty()) {
        refuse(call, "requires empty output on non-root");
    }
    return submit(
        c10d::OpType::GATHER, "gather", opts, inputs, to.list,
        [from, to, bytes, root](twill_comm *comm) {
            return twill_gather(comm, from.data(), to.data, bytes, TWILL_U8, root);
        },
        to.stored());
}

/* Copy one input of the root to the output of each rank, in rank order. `inputs` is empty on other
 * ranks. Returns the Work, or nullptr (submit()). */
inline WorkRef Backend::scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                const c10d::ScatterOptions &opts)
{
    static const char call[] = "scatter";
    at::Tensor &output = only(call, outputs, "output tensor list");
    int root = root_of(call, opts.rootRank);
    size_t bytes = static_cast<size_t>(output.nbytes());
    Flat to(output, false);
    Block from;
    if (root == rank_) {
        if (inputs.size() != 1)
            refuse(call, "requires a single-element input list containing a list with " +
                             std::to_string(size_) + " tensors");
        if (inputs[0].size() != static_cast<size_t>(size_))
            refuse(call, "Incorrect input list size " + std::to_string(inputs[0].size()) +
                             ". Input list size should be " + std::to_string(size_) +
                             ", same as size of the process group.");
        check_list(call, inputs[0], output, true);
        from = block_for(inputs[0], true, [&](size_t size) { return scratch(size); });
    } else if (!inputs.empty()) {
        refuse(call, "requires empty input on non-root");
    }
    return submit(
        c10d::OpType::SCATTER, "scatter", opts, from.list, outputs,
        [from, to, bytes, root](twill_comm *comm) {
            return twill_scatter(comm, from.data, to.data(), bytes, TWILL_U8, root);
        },
        stored(to));
}

/* Reduce the list of inputs of all ranks, of which rank r gets tensor r as its output. Tensors may
 * differ in size. Returns the Work, or nullptr (submit()). */
inline WorkRef Backend::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                       const c10d::ReduceScatterOptions &opts)
{
    static const char call[] = "reduce_scatter";
    at::Tensor &output = only(call, outputs);
    if (inputs.size() != 1)
        refuse(call, "requires one list of input tensors");
    check_list(call, inputs[0], output, false);
    Elements elements = elements_of(call, output);
    std::vector<size_t> counts;
    bool equal = true;
    for (const at::Tensor &tensor : inputs[0]) {
        counts.push_back(elements_of(call, tensor).count);
        equal = equal && counts.back() == elements.count;
    }
    if (counts[static_cast<size_t>(rank_)] != elements.count)
        refuse(call, "this rank's input has another size than its output");
    Operation operation(call, opts.reduceOp, output);
    Block from = block_for(inputs[0], true, [&](size_t bytes) { return scratch(bytes); });
    Flat to(output, false);
    return submit(
        c10d::OpType::REDUCE_SCATTER, "reduce_scatter", opts, inputs[0], outputs,
        [from, to, counts, equal, elements, operation](twill_comm *comm) {
            return operation.with(comm, elements.type, [&](twill_op op) {
                if (equal)
                    return twill_reduce_scatter(comm, from.data, to.data(), elements.count,
                                                elements.type, op);
                return twill_reduce_scatterv(comm, from.data, to.data(), counts.data(),
                                             elements.type, op);
            });
        },
        stored(to));
}

/* Send input r to rank r, and receive output r from it. Tensors may differ in size. Returns the
 * Work, or nullptr (submit()). */
inline WorkRef Backend::alltoall(Tensors &outputs, Tensors &inputs,
                                 const c10d::AllToAllOptions &opts)
{
    static const char call[] = "alltoall";
    if (inputs.empty() || outputs.empty())
        refuse(call, "requires non-empty lists of tensors");
    check_tensor(call, inputs[0]);
    check_list(call, inputs, inputs[0], false);
    check_list(call, outputs, inputs[0], false);
    std::vector<size_t> sent = sizes_of(inputs), received = sizes_of(outputs);
    auto memory = [&](size_t bytes) { return scratch(bytes); };
    Block from = block_for(inputs, true, memory), to = block_for(outputs, false, memory);
    return submit(
        c10d::OpType::ALLTOALL, "all_to_all", opts, inputs, outputs,
        [from, to, sent, received](twill_comm *comm) {
            return twill_alltoallv(comm, from.data, sent.data(), nullptr, to.data, received.data(),
                                   nullptr, TWILL_U8);
        },
        to.stored());
}

/* Run a call for each pair of tensors of two lists, as one Work. */
template <class One>
WorkRef each(const char *call, int rank, Tensors &outputs, Tensors &inputs, One &&one)
{
    if (outputs.size() != inputs.size())
        refuse(call, "requires input and output tensor lists to have the same length");
    std::vector<WorkRef> works;
    for (size_t i = 0; i < inputs.size(); i++)
        if (WorkRef work = one(outputs[i], inputs[i]))
            works.push_back(work);
    auto joined = c10::make_intrusive<Joined>(rank, std::move(works));
    joined->watch();
    return joined;
}

/* Gather in outputs[r] the inputs of rank r. All of them are sent as one block. */
inline WorkRef Backend::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &opts)
{
    static const char call[] = "allgather_coalesced";
    if (outputs.size() != static_cast<size_t>(size_))
        refuse(call, "output lists should be equal to world size");
    Tensors all;
    std::vector<size_t> sizes;
    for (const Tensors &list : outputs) {
        if (list.size() != inputs.size())
            refuse(call, "invalid output size: expected a list of " +
                             std::to_string(inputs.size()) + " tensors");
        for (size_t i = 0; i < list.size(); i++) {
            check_tensor(call, list[i]);
            if (list[i].scalar_type() != inputs[i].scalar_type())
                refuse(call, "invalid tensor type at index " + std::to_string(i));
            if (list[i].numel() != inputs[i].numel())
                refuse(call, "invalid size of output tensor at index " + std::to_string(i));
        }
        sizes.push_back(sum_of(sizes_of(list)));
        all.insert(all.end(), list.begin(), list.end());
    }
    auto memory = [&](size_t bytes) { return scratch(bytes); };
    Block from = block_for(inputs, true, memory), to = block_for(all, false, memory);
    return submit(
        c10d::OpType::ALLGATHER, "all_gather", opts, inputs, all,
        [from, to, sizes](twill_comm *comm) {
            return twill_allgatherv(comm, from.data, to.data, sizes.data(), nullptr, TWILL_U8);
        },
        to.stored());
}

#if TWILL_TORCH_VERSION >= 201
/* Run _allgather_base() for each pair of output and input. Returns one Work for all. */
inline WorkRef Backend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                        const c10d::AllgatherOptions &opts)
{
    return each("allgather_into_tensor_coalesced", rank_, outputs, inputs,
                [&](at::Tensor &output, at::Tensor &input) {
                    return _allgather_base(output, input, opts);
                });
}

/* Run _reduce_scatter_base() for each pair of output and input. Returns one Work for all. */
inline WorkRef Backend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                        const c10d::ReduceScatterOptions &opts)
{
    return each("reduce_scatter_tensor_coalesced", rank_, outputs, inputs,
                [&](at::Tensor &output, at::Tensor &input) {
                    return _reduce_scatter_base(output, input, opts);
                });
}

/* Collect the works that begin from now on for endCoalescing(). Calls run as otherwise. */
inline void Backend::startCoalescing()
{
    coalesces_ = true;
}

/* Return a Work that is complete when all are that have begun since startCoalescing(). */
inline WorkRef Backend::endCoalescing()
{
    coalesces_ = false;
    auto joined = c10::make_intrusive<Joined>(rank_, std::move(coalesced_));
    coalesced_.clear();
    joined->watch();
    return joined;
}
#endif

} // namespace twill_torch
#endif
