/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of a group in progress. They run in the order in which they were submitted, one at a
 * time, by whoever is there: a call that its caller waits for runs in the caller's thread when
 * nothing is before it, which costs no hand-over. Others are run by the group's thread, which
 * exists from the first such call on and ends after some seconds without one, or by a thread that
 * waits. */
#ifndef TWILL_TORCH_CALLS_H
#define TWILL_TORCH_CALLS_H

#include "job.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/core/jit_type.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>

namespace twill_torch
{

using Milliseconds = std::chrono::milliseconds;

/* A call or message in progress, and its result. */
class Pending : public c10d::Work
{
  public:
    Pending(int rank, c10d::OpType type, const char *title, uint64_t number)
        : c10d::Work(rank, type, title), number_(number)
    {
    }

    bool isCompleted() override
    {
        return done_.load(std::memory_order_acquire);
    }

    bool isSuccess() const override
    {
        return done_.load(std::memory_order_acquire) && error_ == nullptr;
    }

    std::exception_ptr exception() const override
    {
        return done_.load(std::memory_order_acquire) ? error_ : nullptr;
    }

    void synchronize() override
    {
    }

    Tensors result() override
    {
        return results;
    }

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        std::lock_guard<std::mutex> lock(future_mutex_);
        if (!future_) {
            future_ = c10::make_intrusive<c10::ivalue::Future>(
                c10::ListType::create(c10::TensorType::get()));
            if (isCompleted())
                mark(*future_);
        }
        return future_;
    }

    bool wait(Milliseconds timeout = kNoTimeout) override
    {
        if (!isCompleted())
            block(timeout);
        if (error_)
            std::rethrow_exception(error_);
        return true;
    }

#if TWILL_TORCH_HAS_BACKEND
    uint64_t getSequencenumber() const override
    {
        return number_;
    }
#endif

    /* Complete it; error is nullptr on success. Called once. */
    void complete(std::exception_ptr error)
    {
        error_ = std::move(error);
        if (recordFunctionEndCallback_) {
            recordFunctionEndCallback_();
            recordFunctionEndCallback_ = nullptr;
        }
        c10::intrusive_ptr<c10::ivalue::Future> future;
        {
            std::lock_guard<std::mutex> lock(future_mutex_);
            done_.store(true, std::memory_order_release);
            future = future_;
        }
        if (future)
            mark(*future);
    }

    Tensors results;

  protected:
    /* Return when it is complete, or throw after the timeout, unless that is kNoTimeout. */
    virtual void block(Milliseconds timeout) = 0;

  private:
    void mark(c10::ivalue::Future &future)
    {
        if (error_)
            future.setError(error_);
        else
            future.markCompleted(c10::IValue(results));
    }

    std::atomic<bool> done_{false};
    std::exception_ptr error_;
    std::mutex future_mutex_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    const uint64_t number_;
};

class CallQueue;

/* A collective. `run` makes its twill calls, `after` copies results to where the caller wants them.
 */
class Call : public Pending
{
  public:
    using Pending::Pending;

    std::function<twill_status(twill_comm *)> run;
    std::function<void()> after;
    c10::optional<at::ThreadLocalState> state; /* for `after`: inference mode and the like */
    double seconds = 0;                        /* time limit */
    std::weak_ptr<CallQueue> queue;            /* not set if it ran at once */

  protected:
    void block(Milliseconds timeout) override;
};

using CallRef = c10::intrusive_ptr<Call>;

class CallQueue : public std::enable_shared_from_this<CallQueue>
{
  public:
    explicit CallQueue(Membership group) : group_(std::move(group))
    {
    }

    ~CallQueue()
    {
        stop(Milliseconds(0));
    }

    /* Submit a call; run it now if the caller waits at once and nothing is before it. */
    void submit(const CallRef &call, bool waits)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        if (stopped_) {
            lock.unlock();
            call->complete(failure("twill: the group has been shut down or destroyed"));
            return;
        }
        if (waits && !running_ && calls_.empty()) {
            run(lock, call);
            return;
        }
        call->queue = shared_from_this();
        calls_.push_back(call);
        ensure_thread();
        if (!running_)
            changed_.notify_all();
    }

    /* Wait until a call is complete, running what is before it. */
    void finish(Call *call, Milliseconds timeout)
    {
        bool limited = timeout != kNoTimeout;
        auto deadline = std::chrono::steady_clock::now() + timeout;
        std::unique_lock<std::mutex> lock(mutex_);
        while (!call->isCompleted()) {
            if (!limited && !running_ && !calls_.empty()) {
                CallRef next = calls_.front();
                calls_.pop_front();
                run(lock, next);
            } else if (!limited) {
                changed_.wait(lock);
            } else if (changed_.wait_until(lock, deadline) == std::cv_status::timeout &&
                       !call->isCompleted()) {
                fail("twill: Operation timed out! It is not complete after " +
                     std::to_string(timeout.count()) + " ms, and goes on");
            }
        }
    }

    /* End all calls of this rank and of the others. Any thread may call it at any time. */
    void abort()
    {
        twill_comm *comm = group_.comm;
        if (comm != nullptr)
            (void)twill_comm_revoke(comm);
    }

    /* Let calls end for some time, then abort them; leave the communicator. */
    void stop(Milliseconds patience)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        bool first = !stopped_;
        stopped_ = true;
        changed_.notify_all();
        auto idle = [this] { return calls_.empty() && !running_; };
        if (first && !changed_.wait_for(lock, patience, idle)) {
            abort();
            changed_.wait(lock, idle);
        }
        lock.unlock();
        if (first && thread_.joinable()) /* this is never that thread: it owns no queue */
            thread_.join();
        if (first) {
            std::lock_guard<Mutex> creation(creation_mutex());
            twill_comm_leave(group_.comm);
            group_.comm = nullptr;
        }
    }

    /* Run a function with the communicator while no call uses it. */
    template <class Function> void between(Function &&function)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return calls_.empty() && !running_; });
        if (stopped_)
            fail("twill: the group has been shut down or destroyed");
        function(group_.comm);
    }

    const Membership &group() const
    {
        return group_;
    }

    bool failed() const
    {
        return failed_.load();
    }

    int threads()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return has_thread_ ? 1 : 0;
    }

  private:
    static constexpr Milliseconds KEEP_THREAD{2000}; /* without a call, before it ends */

    /* Run a call without the lock. */
    void run(std::unique_lock<std::mutex> &lock, const CallRef &call)
    {
        running_ = true;
        lock.unlock();
        std::exception_ptr error;
        try {
            if (call->seconds != seconds_) {
                (void)twill_comm_set_timeout(group_.comm, call->seconds);
                seconds_ = call->seconds;
            }
            twill_status status = call->run(group_.comm);
            if (status != TWILL_OK) {
                failed_ = true;
                error = failure(std::string("twill: ") + twill_comm_message(group_.comm) + " (" +
                                twill_strerror(status) + ")");
            } else if (call->after) {
                if (call->state) {
                    at::ThreadLocalStateGuard guard(*call->state);
                    call->after();
                } else {
                    call->after();
                }
            }
        } catch (...) {
            error = std::current_exception();
        }
        call->run = nullptr;
        call->after = nullptr;
        call->complete(std::move(error));
        lock.lock();
        running_ = false;
        changed_.notify_all();
    }

    void ensure_thread()
    {
        if (has_thread_)
            return;
        if (thread_.joinable())
            thread_.join();
        has_thread_ = true;
        thread_ = std::thread([this] { thread_main(); });
    }

    void thread_main()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            auto ready = [this] { return (!calls_.empty() && !running_) || stopped_; };
            bool woken = changed_.wait_for(lock, KEEP_THREAD, ready);
            if (calls_.empty() && (stopped_ || !woken))
                break;
            if (calls_.empty() || running_)
                continue;
            CallRef next = calls_.front();
            calls_.pop_front();
            run(lock, next);
        }
        has_thread_ = false;
    }

    Membership group_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<CallRef> calls_;
    std::thread thread_;
    bool running_ = false, stopped_ = false, has_thread_ = false;
    double seconds_ = 0;
    std::atomic<bool> failed_{false};
};

inline void Call::block(Milliseconds timeout)
{
    std::shared_ptr<CallQueue> owner = queue.lock();
    if (owner)
        owner->finish(this, timeout);
    while (!isCompleted())
        std::this_thread::yield();
}

/* What startCoalescing() and endCoalescing() have gathered, as one. */
class Joined : public Pending
{
  public:
    Joined(int rank, std::vector<WorkRef> works)
        : Pending(rank, c10d::OpType::UNKNOWN, nullptr, 0), works_(std::move(works)),
          left_(works_.size())
    {
    }

    /* Complete it when all are; called once, by its maker. */
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
    void block(Milliseconds timeout) override
    {
        for (const WorkRef &work : works_)
            work->wait(timeout);
        while (!isCompleted())
            std::this_thread::yield();
    }

  private:
    const std::vector<WorkRef> works_;
    std::atomic<size_t> left_;
    std::atomic<bool> failed_{false};
    std::exception_ptr first_;
};

} // namespace twill_torch
#endif
