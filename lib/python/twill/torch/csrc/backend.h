/* SPDX-License-Identifier: Apache-2.0 */
/* The backend of a group, with the methods that c10d calls. Collectives are in tensor_calls.h and
 * list_calls.h, messages and barriers in point_to_point.h, and recovery in group_recovery.h. */
#ifndef TWILL_TORCH_BACKEND_H
#define TWILL_TORCH_BACKEND_H

#include "promotion.h"
#include "sentences.h"
#include "tensors.h"

namespace twill_torch
{

/* The backend of one group. PyTorch owns it by a reference count. */
class Backend : public Base
{
  public:
    /* Make the backend of a group that has been joined. `timeout` is the limit of its calls. */
    Backend(StoreRef store, Membership group, int rank, int size, Milliseconds timeout);
    /* End the group as close() does. Calls in progress have one second, then they are aborted. */
    ~Backend() override;

    const std::string getBackendName() const override
    {
        return "twill";
    }

    WorkRef broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
    WorkRef allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkRef allreduce_coalesced(Tensors &tensors,
                                const c10d::AllreduceCoalescedOptions &opts) override;
    WorkRef reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkRef allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                      const c10d::AllgatherOptions &opts) override;
    WorkRef _allgather_base(at::Tensor &output, at::Tensor &input,
                            const c10d::AllgatherOptions &opts) override;
    WorkRef allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &opts) override;
    WorkRef gather(std::vector<Tensors> &outputs, Tensors &inputs,
                   const c10d::GatherOptions &opts) override;
    WorkRef scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                    const c10d::ScatterOptions &opts) override;
    WorkRef reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                           const c10d::ReduceScatterOptions &opts) override;
    WorkRef _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &opts) override;
    WorkRef alltoall_base(at::Tensor &output, at::Tensor &input,
                          std::vector<int64_t> &output_splits, std::vector<int64_t> &input_splits,
                          const c10d::AllToAllOptions &opts) override;
    WorkRef alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override;
    WorkRef barrier(const c10d::BarrierOptions &opts) override;
    void monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks) override;
    WorkRef send(Tensors &tensors, int to, int tag) override
    {
        return send_within(tensors, to, tag, Milliseconds(0));
    }
    WorkRef recv(Tensors &tensors, int from, int tag) override
    {
        return recv_within(tensors, from, tag, Milliseconds(0));
    }
    WorkRef recvAnysource(Tensors &tensors, int tag) override;

    /* Do nothing, because each rank counts its own calls from the first on. */
    void setSequenceNumberForGroup() override
    {
    }

    /* Return what twill_comm_stop_requested() stores for the group, when all its calls that were
     * submitted are complete. */
    uint64_t stop_requested();
    bool promote(const at::Tensor &tensor)
    {
        return promote_storage(job(), tensor);
    }
    bool demote(const at::Tensor &tensor)
    {
        return demote_storage(job(), tensor);
    }

    uint64_t getSequenceNumberForGroup() override
    {
        return number_;
    }

#if TWILL_TORCH_VERSION >= 201
    WorkRef allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &opts) override;
    WorkRef reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &opts) override;
    void startCoalescing() override;
    WorkRef endCoalescing() override;
#endif
#if TWILL_TORCH_VERSION >= 207
    bool supportsCoalescing() const override
    {
        return true;
    }
    std::shared_ptr<c10::Allocator> getMemAllocator() override;
    at::Tensor allocateTensor(long size, at::TensorOptions options) override
    {
        return allocate_tensor(job(), size, options);
    }
    /* Return true, as allocateTensor() works for every device index. */
    bool supportsTensorAlloc(c10::DeviceIndex) override
    {
        return true;
    }
    /* Make calls in progress and all later ones of the group fail on all ranks. Does not wait. */
    void abort() override
    {
        end_calls();
    }
    /* End the group on this rank. Messages fail, except for receives whose contents are arriving.
     * Transfers that have begun continue. Collectives in progress have five seconds, then they are
     * aborted on all ranks. Waits for that. Later calls fail. */
    void shutdown() override
    {
        close(Milliseconds(5000));
    }
#endif
#if TWILL_TORCH_VERSION >= 209
    bool supportsSplitting() const override
    {
        return true;
    }
    c10::intrusive_ptr<c10d::Backend> split(const StoreRef &store, const std::vector<int> &ranks,
                                            const c10::intrusive_ptr<Options> &options) override;
    c10::intrusive_ptr<c10d::Backend> merge(const StoreRef &store,
                                            const c10::intrusive_ptr<Options> &options,
                                            const int &rank, const int &size) override;
    c10::intrusive_ptr<Options> getBackendOptions() override;
    /* Return COMM_ERROR once a call of this group has failed in twill on this rank, else
     * SUCCESS. */
    c10d::ErrorType getError() override
    {
        return calls_->failed() ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
    }
    void setTimeout(Milliseconds timeout) override
    {
        set_timeout(timeout);
    }
#endif
#if TWILL_TORCH_VERSION >= 210
    bool supportsShrinking() const override
    {
        return true;
    }
    c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t> &excluded, int flags,
                                             const c10::intrusive_ptr<Options> &) override;
#endif

    /* Methods beyond c10d's interface, for Python and for versions of PyTorch that lack them. */

    /* Do send() and recv() with a time limit, which is the group's if it is 0. */
    WorkRef send_within(Tensors &tensors, int to, int tag, Milliseconds timeout);
    WorkRef recv_within(Tensors &tensors, int from, int tag, Milliseconds timeout);
    /* Set the limit of later calls that ask for none. */
    void set_timeout(Milliseconds timeout)
    {
        timeout_ = timeout;
    }
    /* Revoke the group's communicator, so that calls in progress and all later ones fail on all
     * ranks. Does not wait for that. */
    void end_calls()
    {
        calls_->abort();
    }
    /* Fail the group's messages, except for receives whose contents are arriving. Wait for its
     * collectives, which are aborted on all ranks after `patience`, and leave the communicator.
     * Later calls fail. A second call does nothing more. */
    void close(Milliseconds patience);
    c10::intrusive_ptr<Backend> without(const std::vector<int64_t> &excluded, bool aborts);
    /* Return the text of a new handle of this process for reconfigure(), or throw. */
    std::string make_handle();
    c10::intrusive_ptr<Backend> reconfigure(const std::vector<std::string> &handles, bool ordered,
                                            double seconds);
    WorkRef average_narrow(const at::Tensor &tensor);
    /* Return lines that say what twill found and chose. */
    std::vector<std::string> describe();
    /* Return the number of collectives that have completed. */
    uint64_t calls();
    /* Return an uninitialised tensor of `count` elements like those of `like`, in shared memory. */
    at::Tensor allocate(int64_t count, const at::Tensor &like)
    {
        return allocate_tensor(job(), count, like.options());
    }

  private:
    friend class Comm; /* of comms.h */
    friend class Window;

    const std::shared_ptr<Job> &job() const
    {
        return calls_->group().job;
    }

    /* Return the time limit of a call in seconds, 0.001 to 1e6, as it asks for or the group's. */
    double limit(Milliseconds asked) const
    {
        Milliseconds taken = asked.count() > 0 ? asked : timeout_.load();
        return std::min(std::max(static_cast<double>(taken.count()) * 1e-3, 0.001), 1e6);
    }

    /* Submit a collective. `title` is its name for PyTorch's profiler. `run` makes its twill calls.
     * `after`, which may be nullptr, then copies the results to where they are wanted. A call that
     * its caller waits for runs now, in this thread, if no call is before it. Others run later in a
     * thread of the group, or in one that waits for them. `results` is a list of tensors, or one
     * list for each tensor of this rank. Returns the Work, or nullptr for a blocking call that is
     * complete, if PyTorch accepts that. */
    template <class Options, class Results = at::TensorList, class Run>
    WorkRef submit(c10d::OpType type, const char *title, const Options &opts, at::TensorList inputs,
                   const Results &results, Run &&run, std::function<void()> after = nullptr)
    {
        uint64_t number = ++number_;
        double seconds = limit(opts.timeout);
        bool waits = waits_at_once(opts, 0);
        if (waits && takes_nothing() && !coalesces_ && !Pending::profiled(title) &&
            calls_->run_unseen(seconds, run, after))
            return WorkRef();
        auto call = c10::make_intrusive<Call>(rank_, type, title, number, inputs);
        call->seconds = seconds;
        call->set_results(results);
        call->run = std::forward<Run>(run);
        if (after) {
            call->after = std::move(after);
            call->state = at::ThreadLocalState();
        }
        calls_->submit(call, waits);
        return note(call);
    }

    /* Return a work, and keep it for endCoalescing() if it began after startCoalescing(). */
    WorkRef note(WorkRef work)
    {
        if (coalesces_)
            coalesced_.push_back(work);
        return work;
    }

    /* Return a root rank, or refuse it or the index of its tensor as out of range. */
    int root_of(const char *call, int64_t rank, int64_t tensor = 0, size_t tensors = 1) const
    {
        if (rank < 0 || rank >= size_)
            refuse(call, "invalid root rank: " + std::to_string(rank));
        if (tensor < 0 || static_cast<size_t>(tensor) >= tensors)
            refuse(call, "invalid root tensor: " + std::to_string(tensor));
        return static_cast<int>(rank);
    }

    /* Exchange equal parts of a tensor. Throws for one that cannot be divided by the ranks. */
    WorkRef alltoall_of_equal(at::Tensor &output, at::Tensor &input,
                              const c10d::AllToAllOptions &opts);
    /* Add up sparse tensors of all ranks. Throws for other operations than SUM. */
    WorkRef allreduce_of_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts);
    at::Tensor scratch(size_t bytes);
    /* Throw for a list without one tensor for each rank, of the type (and size) of `like`. */
    void check_list(const char *call, const Tensors &list, const at::Tensor &like,
                    bool same_sizes) const;
    /* Throw for a list of outputs that cannot take the inputs of all ranks. */
    void check_gathered(const char *call, const Tensors &list, const Tensors &inputs) const;
    /* Return a new message of a tensor, to be submitted. A timeout of 0 means the group's. */
    c10::intrusive_ptr<Message> message(const char *what, const at::Tensor &tensor, int tag,
                                        uint64_t group, Milliseconds timeout);
    /* Start to receive a tensor from any of `ranks` of the group, and return the work. */
    WorkRef receive(Tensors &tensors, int tag, std::vector<int> ranks, const char *what,
                    Milliseconds timeout);
    WorkRef signal(int peer, bool sends, Milliseconds timeout);

    StoreRef store_;
    std::shared_ptr<CallQueue> calls_;
    std::shared_ptr<Messages> messages_;
    std::shared_ptr<Returning> returning_;
    std::atomic<Milliseconds> timeout_;
    std::atomic<uint64_t> number_{0};        /* number of calls, the same on all ranks */
    std::atomic<uint64_t> messages_made_{0}; /* by this rank */
    std::mutex scratch_mutex_;
    std::vector<at::Tensor> scratch_; /* memory that scratch() gives again when no call has it */
    bool coalesces_ = false;          /* between startCoalescing() and endCoalescing() */
    std::vector<WorkRef> coalesced_;  /* works that began since startCoalescing() */
    twill_handle *handle_ = nullptr;  /* of make_handle(), until it is used */
    unsigned shrinks_ = 0;            /* calls of without() */
};

using BackendRef = c10::intrusive_ptr<Backend>;

inline void Backend::check_list(const char *call, const Tensors &list, const at::Tensor &like,
                                bool same_sizes) const
{
    if (list.size() != static_cast<size_t>(size_))
        refuse(call, "a list of " + std::to_string(list.size()) + " tensors for " +
                         std::to_string(size_) + " ranks");
    for (const at::Tensor &tensor : list) {
        check_alike(call, tensor, like);
        if (same_sizes && tensor.numel() != like.numel())
            refuse(call, "invalid tensor size: tensors must have the same size, not " +
                             std::to_string(tensor.numel()) + " and " +
                             std::to_string(like.numel()) + " elements");
    }
}

/* Return a tensor of at least `bytes` uninitialised bytes that ranks of the node share. It is given
 * to no other call while the caller holds the reference. Throws in a forked child. */
inline at::Tensor Backend::scratch(size_t bytes)
{
    job()->check_forked();
    std::lock_guard<std::mutex> lock(scratch_mutex_);
    for (at::Tensor &tensor : scratch_)
        if (tensor.use_count() == 1 && static_cast<size_t>(tensor.numel()) >= bytes)
            return tensor;
    size_t least = 4096;
    while (least < bytes)
        least *= 2;
    at::Tensor made =
        allocate_tensor(job(), static_cast<int64_t>(least), at::TensorOptions().dtype(at::kByte));
    constexpr size_t MOST_KEPT = 4;
    if (scratch_.size() < MOST_KEPT)
        scratch_.push_back(made);
    else
        for (at::Tensor &tensor : scratch_)
            if (tensor.use_count() == 1) {
                tensor = made;
                break;
            }
    return made;
}

} // namespace twill_torch
#endif
