/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of a group in progress. They run in the order in which they were submitted, one at a
 * time, by whoever is there: a call that its caller waits for runs in the caller's thread when
 * nothing is before it, which costs no hand-over. Others are run by a thread of the group, which
 * exists from the first such call on and ends after some seconds without one, or by a thread that
 * waits.
 *
 * What a program has added to a future runs in the thread that has run the call, after it, and may
 * wait for later calls of the group: another thread runs these meanwhile. */
#ifndef TWILL_TORCH_CALLS_H
#define TWILL_TORCH_CALLS_H

#include "job.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/core/jit_type.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <thread>

namespace twill_torch
{

using Milliseconds = std::chrono::milliseconds;
using FutureRef = c10::intrusive_ptr<c10::ivalue::Future>;

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

    FutureRef getFuture() override
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
        resolve(seal(std::move(error)));
    }

    /* The first half of complete(), which runs nothing of the program's. Returns the future, if
     * there is one, for the second half. */
    FutureRef seal(std::exception_ptr error)
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

    /* The second half: complete the future, which runs what the program has added to it. */
    void resolve(const FutureRef &future)
    {
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
    FutureRef future_;
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
            run_here(lock, call);
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
                run_here(lock, next);
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

    /* Let calls end for some time, then abort them; leave the communicator. A thread of the group
     * may call it, from what was added to a future. */
    void stop(Milliseconds patience)
    {
        if (group_.job->forked())
            return;
        std::unique_lock<std::mutex> lock(mutex_);
        if (stopped_)
            return;
        stopped_ = true;
        changed_.notify_all();
        spare_.notify_all();
        auto idle = [this] { return calls_.empty() && !running_; };
        if (!changed_.wait_for(lock, patience, idle)) {
            abort();
            changed_.wait(lock, idle);
        }
        end_threads(lock);
        lock.unlock();
        std::lock_guard<Mutex> creation(creation_mutex());
        twill_comm_leave(group_.comm);
        group_.comm = nullptr;
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

  private:
    static constexpr Milliseconds KEEP_THREAD{2000}; /* without a call, before it ends */
    static constexpr Milliseconds END_THREADS{5000}; /* for what was added to futures */

    /* Make the calls of a call. Returns its exception, or nullptr. */
    std::exception_ptr execute(Call &call)
    {
        std::exception_ptr error;
        try {
            if (call.seconds != seconds_) {
                (void)twill_comm_set_timeout(group_.comm, call.seconds);
                seconds_ = call.seconds;
            }
            twill_status status = call.run(group_.comm);
            if (status != TWILL_OK) {
                failed_ = true;
                error = failure(std::string("twill: ") + twill_comm_message(group_.comm) + " (" +
                                twill_strerror(status) + ")");
            } else if (call.after) {
                if (call.state) {
                    at::ThreadLocalStateGuard guard(*call.state);
                    call.after();
                } else {
                    call.after();
                }
            }
        } catch (...) {
            error = std::current_exception();
        }
        call.run = nullptr;
        call.after = nullptr;
        return error;
    }

    /* Run a call without the lock. The caller resolves the future that is returned. */
    FutureRef run(std::unique_lock<std::mutex> &lock, const CallRef &call)
    {
        running_ = true;
        lock.unlock();
        FutureRef future = call->seal(execute(*call));
        lock.lock();
        running_ = false;
        changed_.notify_all();
        return future;
    }

    void run_here(std::unique_lock<std::mutex> &lock, const CallRef &call)
    {
        FutureRef future = run(lock, call);
        if (!future)
            return;
        lock.unlock();
        call->resolve(future);
        lock.lock();
    }

    /* Have a thread that serves: a spare one, or a new one, unless there is one. */
    void ensure_thread()
    {
        if (serves_)
            return;
        if (spares_ > 0) {
            spare_.notify_one();
            return;
        }
        reap();
        std::thread made([self = shared_from_this()] { self->thread_main(); });
        spares_++;
        std::thread::id id = made.get_id();
        threads_.emplace(id, std::move(made));
    }

    /* Join the threads that have ended. */
    void reap()
    {
        for (std::thread::id id : ended_) {
            threads_[id].join();
            threads_.erase(id);
        }
        ended_.clear();
    }

    /* Wait for the threads to end. They own the queue: one that does not end in time is left. */
    void end_threads(std::unique_lock<std::mutex> &lock)
    {
        auto self = threads_.find(std::this_thread::get_id());
        if (self != threads_.end()) {
            self->second.detach();
            threads_.erase(self);
        }
        changed_.wait_for(lock, END_THREADS, [this] { return ended_.size() == threads_.size(); });
        reap();
        for (auto &left : threads_)
            left.second.detach();
        threads_.clear();
    }

    /* A spare thread until it is needed, then the one that serves, and so on. */
    void thread_main()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            auto needed = [this] { return !serves_ || stopped_; };
            (void)spare_.wait_for(lock, KEEP_THREAD, needed);
            spares_--;
            if (serves_ || !serve(lock))
                break;
            spares_++;
        }
        if (threads_.count(std::this_thread::get_id()) > 0)
            ended_.push_back(std::this_thread::get_id());
        changed_.notify_all();
    }

    /* Run a call in the thread that serves. While that completes a future, any other thread may
     * take its place: returns whether none has. */
    bool run_aside(std::unique_lock<std::mutex> &lock, CallRef call)
    {
        FutureRef future = run(lock, call);
        if (!future)
            return true;
        serves_ = false;
        if (!calls_.empty())
            ensure_thread();
        lock.unlock();
        call->resolve(future);
        call.reset(); /* with what it holds, before the lock is taken */
        future.reset();
        lock.lock();
        if (serves_)
            return false;
        serves_ = true;
        return true;
    }

    /* Run calls until there are none for some time, or until another thread serves, which has come
     * while this one was in what was added to a future. Returns whether another one serves. */
    bool serve(std::unique_lock<std::mutex> &lock)
    {
        serves_ = true;
        for (;;) {
            auto ready = [this] { return (!calls_.empty() && !running_) || stopped_; };
            bool woken = changed_.wait_for(lock, KEEP_THREAD, ready);
            if (calls_.empty() && (stopped_ || !woken))
                break;
            if (calls_.empty())
                continue;
            if (running_) {
                changed_.wait(lock);
                continue;
            }
            CallRef next = calls_.front();
            calls_.pop_front();
            if (!run_aside(lock, std::move(next)))
                return true;
        }
        serves_ = false;
        return false;
    }

    Membership group_;
    std::mutex mutex_;
    std::condition_variable changed_, spare_;
    std::deque<CallRef> calls_;
    std::map<std::thread::id, std::thread> threads_;
    std::vector<std::thread::id> ended_; /* of threads_ */
    int spares_ = 0;                     /* threads that wait to be needed, or are about to */
    bool running_ = false, stopped_ = false;
    bool serves_ = false; /* a thread takes calls */
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
