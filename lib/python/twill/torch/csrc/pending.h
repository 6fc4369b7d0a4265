/* SPDX-License-Identifier: Apache-2.0 */
/* Calls and messages in progress, as works and futures of torch.distributed. */
#ifndef TWILL_TORCH_PENDING_H
#define TWILL_TORCH_PENDING_H

#include "job.h"

#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace twill_torch
{

using Milliseconds = std::chrono::milliseconds;
using FutureRef = c10::intrusive_ptr<c10::ivalue::Future>;

/* A call or message in progress, and its result. */
class Pending : public c10d::Work
{
  public:
    /* `title` and `inputs` are name and tensors for PyTorch's profiler. `title` may be nullptr.
     * `number` is that of the collective among the group's, or of the message among this rank's in
     * the group, from 1. It is 0 for several joined works. */
    Pending(int rank, c10d::OpType type, const char *title, uint64_t number,
            at::TensorList inputs = {})
        : c10d::Work(rank, type, profiled(title) ? named(title).c_str() : nullptr,
                     profiled(title) ? c10::optional<Tensors>(inputs.vec()) : c10::nullopt),
          number_(number)
    {
    }

    bool isCompleted() override
    {
        return done_.load(std::memory_order_acquire);
    }

    /* Return whether this is complete and has not failed. */
    bool isSuccess() const override
    {
        return done_.load(std::memory_order_acquire) && error_ == nullptr;
    }

    /* Return the error if this is complete and has failed, otherwise nullptr. */
    std::exception_ptr exception() const override
    {
        return done_.load(std::memory_order_acquire) ? error_ : nullptr;
    }

    /* Do nothing, as on a CPU there is no stream to synchronise with. Does not wait. */
    void synchronize() override
    {
    }

    /* Return the tensors of the result at once. They have their values when this is complete. */
    Tensors result() override
    {
        return results;
    }

    /* Return the future of the results, made at its first use. Throws in a forked child. */
    FutureRef getFuture() override;

    /* Wait, and return true. Throws the error of the call, or another one after the timeout. */
    bool wait(Milliseconds timeout = kNoTimeout) override;

#if TWILL_TORCH_VERSION >= 201
    /* Return the number that the constructor got. */
    uint64_t getSequencenumber() const override
    {
        return number_;
    }
#endif

    /* Complete the call or message, with nullptr as the error on success. Called once. */
    void complete(std::exception_ptr error)
    {
        resolve(seal(std::move(error)));
    }

    /* Store the error, which is nullptr on success, end the profiler's record, and mark this as
     * complete. Returns the future, to be completed by resolve(), or nullptr if getFuture() has not
     * been called. */
    FutureRef seal(std::exception_ptr error);

    /* Do the second half of complete(), which runs the callbacks of the future. */
    void resolve(const FutureRef &future)
    {
        if (future)
            mark(*future);
    }

    /* Set the results, a list of tensors or several, before the call begins. */
    void set_results(at::TensorList list)
    {
        results = list.vec();
    }
    void set_results(const std::vector<Tensors> &lists)
    {
        for (const Tensors &list : lists)
            results.insert(results.end(), list.begin(), list.end());
        if (lists.size() > 1)
            lists_ = lists;
    }

    /* Return whether PyTorch's profiler shall see a call, because it is on in this thread and
     * `title` is not nullptr. */
    static bool profiled(const char *title)
    {
        return title != nullptr && at::hasCallbacks();
    }

    Tensors results;

  protected:
    /* Return when this is complete, or throw after the timeout. kNoTimeout means no limit. */
    virtual void block(Milliseconds timeout) = 0;

    /* Wait until this work (`self`) is complete. The object that runs it (`in`) waits by its
     * finish(), which throws after `timeout`. If that object is gone or not set, wait without a
     * limit. */
    template <class Owner, class Self>
    void block_in(const std::weak_ptr<Owner> &in, Self *self, Milliseconds timeout)
    {
        std::shared_ptr<Owner> owner = in.lock();
        if (owner)
            owner->finish(self, timeout);
        while (!isCompleted())
            std::this_thread::yield();
    }

  private:
    /* Return the name of a call, preceded by the name of the backend that the program uses. */
    static std::string named(const char *title)
    {
        const char *gloo = getenv("TORCH_TWILL_GLOO");
        bool answers = gloo != nullptr && *gloo != 0 && strcmp(gloo, "0") != 0;
        return std::string(answers ? "gloo:" : "twill:") + title;
    }

    /* Complete a future with the error or the results. */
    void mark(c10::ivalue::Future &future)
    {
        if (error_)
            future.setError(error_);
        else
            future.markCompleted(lists_.empty() ? c10::IValue(results) : c10::IValue(lists_));
    }

    /* Throw in a forked child, where no thread would complete it. */
    void check_process() const
    {
        if (fork_state().forks != forks_)
            fail_forked();
    }

    std::vector<Tensors> lists_; /* the results, if they are several lists */
    std::atomic<bool> done_{false};
    std::exception_ptr error_;
    std::mutex future_mutex_; /* protects future_ */
    FutureRef future_;        /* made by getFuture() */
    const uint64_t number_;
    const unsigned forks_ = fork_state().forks;
};

inline FutureRef Pending::getFuture()
{
    check_process();
    std::lock_guard<std::mutex> lock(future_mutex_);
    if (!future_) {
        c10::TypePtr type = c10::ListType::create(c10::TensorType::get());
        future_ = c10::make_intrusive<c10::ivalue::Future>(
            lists_.empty() ? type : c10::ListType::create(type));
        if (isCompleted())
            mark(*future_);
    }
    return future_;
}

inline bool Pending::wait(Milliseconds timeout)
{
    if (!isCompleted()) {
        check_process();
        block(timeout);
    }
    if (error_)
        std::rethrow_exception(error_);
    return true;
}

inline FutureRef Pending::seal(std::exception_ptr error)
{
    error_ = std::move(error);
    if (recordFunctionEndCallback_) {
        recordFunctionEndCallback_();
        recordFunctionEndCallback_ = nullptr;
    }
    std::lock_guard<std::mutex> lock(future_mutex_);
    done_.store(true, std::memory_order_release);
    return future_;
}

/* The works between startCoalescing() and endCoalescing(), as one. */
class Joined : public Pending
{
  public:
    /* Make a work that is complete when all of `works` are, once watch() has been called. */
    Joined(int rank, std::vector<WorkRef> works)
        : Pending(rank, c10d::OpType::UNKNOWN, nullptr, 0), works_(std::move(works)),
          left_(works_.size())
    {
    }

    /* Complete this work when all those that it joins are complete. Its maker calls this once. */
    void watch()
    {
        if (works_.empty())
            complete(nullptr);
        for (const WorkRef &work : works_) {
            auto self = c10::intrusive_ptr<Joined>::reclaim_copy(this);
            work->getFuture()->addCallback([self](c10::ivalue::Future &future) {
                if (future.hasError() && !self->failed_.exchange(true))
                    self->first_ = future.exception_ptr();
                if (--self->left_ == 0)
                    self->complete(self->first_);
            });
        }
    }

  protected:
    /* Wait for each of the joined works, in their order, for up to `timeout` each. Throws at once
     * the first error or timeout that it meets. Then wait until this work is complete, without a
     * limit. */
    void block(Milliseconds timeout) override
    {
        for (const WorkRef &work : works_)
            work->wait(timeout);
        while (!isCompleted())
            std::this_thread::yield();
    }

  private:
    const std::vector<WorkRef> works_;
    std::atomic<size_t> left_;        /* works that are not complete */
    std::atomic<bool> failed_{false}; /* a work has failed */
    std::exception_ptr first_;        /* its error */
};

} // namespace twill_torch
#endif
