/* SPDX-License-Identifier: Apache-2.0 */
/* send, recv, recvAnysource and monitoredBarrier. */
#ifndef TWILL_TORCH_POINT_TO_POINT_H
#define TWILL_TORCH_POINT_TO_POINT_H

#include "tensor_calls.h"

namespace twill_torch
{

constexpr uint64_t BARRIER_GROUP = UINT64_C(0x6d6f6e69746f7264); /* to combine with group numbers */

inline c10::intrusive_ptr<Message> Backend::message(const char *what, const at::Tensor &tensor,
                                                    int tag, uint64_t group, Milliseconds timeout)
{
    auto made = c10::make_intrusive<Message>(rank_, c10d::OpType::UNKNOWN, what, ++messages_made_,
                                             Tensors{tensor});
    made->seconds = limit(timeout);
    made->frame.group = group;
    made->frame.tag = tag;
    made->frame.bytes = static_cast<uint64_t>(tensor.nbytes());
    return made;
}

/* Start to send the only tensor of a list to a rank, and return the Work. Throws for this rank. */
inline WorkRef Backend::send_within(Tensors &tensors, int to, int tag, Milliseconds timeout)
{
    at::Tensor &tensor = only("send", tensors);
    if (to < 0 || to >= size_ || to == rank_)
        refuse("send", "invalid destination rank: " + std::to_string(to));
    Flat flat(tensor, true);
    auto made = message("send", tensor, tag, calls_->group().number, timeout);
    made->sends = true;
    made->memory = flat.data();
    made->results = {flat.flat()};
    made->ranks = {to};
    made->in_job = {calls_->group().in_job[static_cast<size_t>(to)]};
    messages_->submit(made);
    return note(made);
}

inline WorkRef Backend::receive(Tensors &tensors, int tag, std::vector<int> ranks,
                                const char *title, Milliseconds timeout)
{
    at::Tensor &tensor = only("recv", tensors);
    Flat flat(tensor, false);
    auto made = message(title, tensor, tag, calls_->group().number, timeout);
    made->memory = flat.data();
    made->after = stored(flat);
    if (made->after)
        made->state = at::ThreadLocalState();
    made->results = {tensor};
    for (int rank : ranks)
        made->in_job.push_back(calls_->group().in_job[static_cast<size_t>(rank)]);
    made->ranks = std::move(ranks);
    messages_->submit(made);
    return note(made);
}

/* Start to receive the only tensor of a list from a rank, and return the Work. Throws for this
 * rank. */
inline WorkRef Backend::recv_within(Tensors &tensors, int from, int tag, Milliseconds timeout)
{
    if (from < 0 || from >= size_ || from == rank_)
        refuse("recv", "invalid source rank: " + std::to_string(from));
    return receive(tensors, tag, {from}, "recv", timeout);
}

/* Start to receive the only tensor of a list from any other rank, which the Work then names. */
inline WorkRef Backend::recvAnysource(Tensors &tensors, int tag)
{
    std::vector<int> others;
    for (int r = 0; r < size_; r++)
        if (r != rank_)
            others.push_back(r);
    return receive(tensors, tag, others, "recvAnySource", Milliseconds(0));
}

/* Start an empty message of the monitored barrier, to or from a rank, and return its work. */
inline WorkRef Backend::signal(int peer, bool sends, Milliseconds timeout)
{
    at::Tensor empty = at::empty({0}, at::TensorOptions().dtype(at::kByte));
    auto made =
        message("monitored_barrier", empty, 0, calls_->group().number ^ BARRIER_GROUP, timeout);
    made->sends = sends;
    made->ranks = {peer};
    made->in_job = {calls_->group().in_job[static_cast<size_t>(peer)]};
    made->purpose = "monitored barrier";
    messages_->submit(made);
    return made;
}

/* Wait for all ranks. Rank 0 waits for a message from each, and then answers all. It throws the
 * first rank that does not come, or all if `wait_all_ranks`. Other ranks throw without an answer. A
 * timeout of 0 fails at once on rank 0. */
inline void Backend::monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks)
{
    if (rank_ == 0 && opts.timeout.count() == 0)
        fail("[Rank 0]: Rank 0 timed out in monitoredBarrier after 0 ms");
    Milliseconds timeout = opts.timeout.count() > 0 ? opts.timeout : timeout_.load();
    if (rank_ != 0) {
        WorkRef there = signal(0, true, timeout), answer = signal(0, false, timeout);
        try {
            there->wait();
            answer->wait();
        } catch (const std::exception &e) {
            fail("Rank " + std::to_string(rank_) +
                 " successfully reached monitoredBarrier, but received errors while waiting for "
                 "send/recv from rank 0. Please check rank 0 logs for faulty rank.\n Original "
                 "exception: \n" +
                 e.what());
        }
        return;
    }
    std::vector<WorkRef> arrivals;
    for (int r = 1; r < size_; r++)
        arrivals.push_back(signal(r, false, timeout));
    std::string missing;
    int count = 0;
    for (int r = 1; r < size_ && (count == 0 || wait_all_ranks); r++) {
        try {
            arrivals[static_cast<size_t>(r - 1)]->wait();
        } catch (const std::exception &) {
            missing += (count++ > 0 ? ", " : "") + std::to_string(r);
        }
    }
    if (count > 0)
        fail("[Rank 0]: Rank" + std::string(count > 1 || wait_all_ranks ? "s " : " ") + missing +
             " failed to pass monitoredBarrier in " + std::to_string(timeout.count()) + " ms");
    for (int r = 1; r < size_; r++)
        signal(r, true, timeout)->wait();
}

} // namespace twill_torch
#endif
