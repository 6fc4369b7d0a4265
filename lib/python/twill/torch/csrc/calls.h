/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of a group in progress. They run one at a time in the order in which they were
 * submitted. A call that its caller waits for runs in the caller's thread if no call is before it,
 * which needs no hand-over. Other calls run in a thread of the group, or in one that waits. The
 * thread exists from the first such call on, and ends after some seconds without calls.
 *
 * Callbacks that a program has added to a future run after the call in the thread that ran it. They
 * may wait for later calls of the group, which another thread then runs. */
#ifndef TWILL_TORCH_CALLS_H
#define TWILL_TORCH_CALLS_H

#include "pending.h"

#include <ATen/ThreadLocalState.h>

#include <cmath>
#include <condition_variable>
#include <deque>
#include <map>
#include <thread>

namespace twill_torch
{

class CallQueue;

constexpr char SHUT_DOWN[] = "twill: the group has been shut down or destroyed";

/* A collective. `run` makes its twill calls. `after` copies results to where they are wanted. */
class Call : public Pending
{
  public:
    using Pending::Pending;

    std::function<twill_status(twill_comm *)> run;
    std::function<void()> after;
    c10::optional<at::ThreadLocalState> state; /* for `after`: inference mode and similar state */
    double seconds = 0;                        /* time limit */
    std::weak_ptr<CallQueue> queue;            /* not set if it ran at once */

  protected:
    /* Wait until the call is complete. Throws if it is not within `timeout`, which kNoTimeout makes
     * unlimited. */
    void block(Milliseconds timeout) override
    {
        block_in(queue, this, timeout);
    }
};

using CallRef = c10::intrusive_ptr<Call>;

/* The calls of one group, its communicator and its threads. mutex_ protects it. */
class CallQueue : public std::enable_shared_from_this<CallQueue>
{
  public:
    explicit CallQueue(Membership group) : group_(std::move(group))
    {
    }

    /* Stop the queue as stop() does, unless that was called before. Calls that are not complete are
     * aborted at once. Waits for them and for the threads. */
    ~CallQueue()
    {
        stop(Milliseconds(0));
    }

    /* Submit a call. Run it now in this thread if `waits` (its caller waits at once) and no call is
     * before it. Otherwise queue it for a thread. After stop(), it completes with an error. Throws
     * in a forked child. */
    void submit(const CallRef &call, bool waits);

    /* Run a blocking call and then `after`, without a Work. Returns true when both are complete, or
     * throws their error. If other calls are before it, does nothing and returns false. */
    template <class Run, class After>
    bool run_unseen(double seconds, Run &&run, const After &after);

    /* Wait until a submitted call is complete, without throwing its error. With kNoTimeout, this
     * thread runs the calls that are next, this one included, unless another thread runs one.
     * Otherwise it only waits, and throws after `timeout`. The call then continues. */
    void finish(Call *call, Milliseconds timeout);

    /* Revoke the group's communicator, so that its calls in progress and all later ones fail on all
     * ranks. Any thread may call this at any time. */
    void abort()
    {
        twill_comm *comm = group_.comm;
        if (comm != nullptr)
            (void)twill_comm_revoke(comm);
    }

    /* Wait for calls to end, abort them on all ranks after `patience`, and leave the communicator.
     * Calls that are submitted later fail. A callback of a future may call this in a thread of the
     * group. Does nothing in a forked child, or if it was called before. */
    void stop(Milliseconds patience);

    /* Wait until all submitted calls are complete, then run a function with the communicator. Calls
     * submitted meanwhile wait for the function. If stop() has been called, throws instead. */
    template <class Function> void between(Function &&function)
    {
        group_.job->check_forked();
        std::unique_lock<std::mutex> lock(mutex_);
        waiters_++;
        changed_.wait(lock, [this] { return calls_.empty() && !running_; });
        waiters_--;
        if (stopped_)
            fail(SHUT_DOWN);
        function(group_.comm);
    }

    const Membership &group() const
    {
        return group_;
    }

    /* Return whether this is a forked child of the process that made the job. */
    bool forked() const
    {
        return group_.job->forked();
    }

    /* Return whether a call has failed in twill. */
    bool failed() const
    {
        return failed_.load();
    }

  private:
    static constexpr Milliseconds KEEP_THREAD{2000}; /* time without calls before the end */
    static constexpr Milliseconds END_THREADS{5000}; /* time for callbacks of futures */

    /* Run a function that makes twill calls, each limited to `seconds` by twill, and `after` if it
     * succeeds. Returns the exception of a failed or late call, or one that either function throws,
     * or nullptr. */
    template <class Run, class After>
    std::exception_ptr attempt(double seconds, Run &&run, After &&after);

    /* Run a call, then `after`, and drop both. Returns the exception, or nullptr. */
    std::exception_ptr execute(Call &call);

    /* Mark the queue as free, and wake the threads that wait for that. */
    void release_queue()
    {
        running_ = false;
        if (waiters_ > 0 || stopped_ || !calls_.empty())
            changed_.notify_all();
    }

    /* Return the message of a failed call. Timeouts begin like Gloo's message. */
    std::string sentence_of(twill_status status, double seconds) const
    {
        std::string late =
            "Timed out waiting " + std::to_string(std::lround(seconds * 1e3)) + "ms: ";
        return std::string("twill: ") + (status == TWILL_ERR_TIMEOUT ? late : "") +
               twill_comm_message(group_.comm) + " (" + twill_strerror(status) + ")";
    }

    /* Run a call and mark it as complete, without the lock, which is held again at the return.
     * Returns the call's future, whose callbacks the caller must then run with resolve(). If the
     * program has asked for no future, returns nullptr. */
    FutureRef run(std::unique_lock<std::mutex> &lock, const CallRef &call);

    /* Run and complete a call in this thread, which releases the lock meanwhile. */
    void run_here(std::unique_lock<std::mutex> &lock, const CallRef &call);

    /* Provide a thread that runs calls, a spare or a new one, unless there is one. */
    void ensure_thread();

    /* Join the threads that have ended. */
    void reap();

    /* Wait for the threads to end, for up to END_THREADS. The caller has set stopped_ and woken
     * them. A thread that has not ended by then is detached, and so is the calling thread if it is
     * one of them. Such a thread keeps the queue alive until it ends. */
    void end_threads(std::unique_lock<std::mutex> &lock);

    /* The main function of a thread, which alternates between waiting as a spare and serving. */
    void thread_main();

    /* Run a call in the thread that serves. Returns false if another took over during callbacks. */
    bool run_aside(std::unique_lock<std::mutex> &lock, CallRef call);

    /* Run calls until there are none for some time. Returns false then. Returns true if another
     * thread has taken over while this one ran callbacks of a future. */
    bool serve(std::unique_lock<std::mutex> &lock);

    Membership group_;
    std::mutex mutex_;
    std::condition_variable changed_, spare_; /* a call ended or came; a spare thread is needed */
    std::deque<CallRef> calls_;               /* that wait for their turn */
    std::map<std::thread::id, std::thread> threads_; /* those not yet joined or detached */
    std::vector<std::thread::id> ended_;             /* of threads_ */
    int spares_ = 0;                         /* threads that wait to be needed, or will soon */
    int waiters_ = 0;                        /* in finish() and between() */
    bool running_ = false, stopped_ = false; /* a call runs; stop() was called */
    bool serves_ = false;                    /* a thread takes calls */
    double seconds_ = 0;                     /* time limit that the communicator has now */
    std::atomic<bool> failed_{false};        /* a call has failed in twill */
};

inline void CallQueue::submit(const CallRef &call, bool waits)
{
    group_.job->check_forked();
    std::unique_lock<std::mutex> lock(mutex_);
    if (stopped_) {
        lock.unlock();
        call->complete(failure(SHUT_DOWN));
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

inline void CallQueue::finish(Call *call, Milliseconds timeout)
{
    bool limited = timeout != kNoTimeout;
    auto deadline = std::chrono::steady_clock::now() + timeout;
    std::unique_lock<std::mutex> lock(mutex_);
    while (!call->isCompleted()) {
        if (!limited && !running_ && !calls_.empty()) {
            CallRef next = calls_.front();
            calls_.pop_front();
            run_here(lock, next);
            continue;
        }
        waiters_++;
        bool over = false;
        if (limited)
            over = changed_.wait_until(lock, deadline) == std::cv_status::timeout;
        else
            changed_.wait(lock);
        waiters_--;
        if (over && !call->isCompleted())
            fail("twill: Operation timed out! It is not complete after " +
                 std::to_string(timeout.count()) + " ms, and goes on");
    }
}

inline void CallQueue::stop(Milliseconds patience)
{
    if (forked())
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

template <class Run, class After>
std::exception_ptr CallQueue::attempt(double seconds, Run &&run, After &&after)
{
    try {
        if (seconds != seconds_) {
            (void)twill_comm_set_timeout(group_.comm, seconds);
            seconds_ = seconds;
        }
        twill_status status = run(group_.comm);
        if (status != TWILL_OK) {
            failed_ = true;
            return failure(sentence_of(status, seconds));
        }
        after();
        return nullptr;
    } catch (...) {
        return std::current_exception();
    }
}

template <class Run, class After>
bool CallQueue::run_unseen(double seconds, Run &&run, const After &after)
{
    group_.job->check_forked();
    std::unique_lock<std::mutex> lock(mutex_);
    if (stopped_)
        fail(SHUT_DOWN);
    if (running_ || !calls_.empty())
        return false;
    running_ = true;
    lock.unlock();
    std::exception_ptr error = attempt(seconds, run, [&after] {
        if (after)
            after();
    });
    lock.lock();
    release_queue();
    lock.unlock();
    if (error)
        std::rethrow_exception(error);
    return true;
}

inline std::exception_ptr CallQueue::execute(Call &call)
{
    std::exception_ptr error = attempt(call.seconds, call.run, [&call] {
        if (!call.after)
            return;
        if (call.state) {
            at::ThreadLocalStateGuard guard(*call.state);
            call.after();
        } else {
            call.after();
        }
    });
    call.run = nullptr;
    call.after = nullptr;
    return error;
}

inline FutureRef CallQueue::run(std::unique_lock<std::mutex> &lock, const CallRef &call)
{
    running_ = true;
    lock.unlock();
    FutureRef future = call->seal(execute(*call));
    lock.lock();
    release_queue();
    return future;
}

inline void CallQueue::run_here(std::unique_lock<std::mutex> &lock, const CallRef &call)
{
    FutureRef future = run(lock, call);
    if (!future)
        return;
    lock.unlock();
    call->resolve(future);
    lock.lock();
}

inline void CallQueue::ensure_thread()
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

inline void CallQueue::reap()
{
    for (std::thread::id id : ended_) {
        threads_[id].join();
        threads_.erase(id);
    }
    ended_.clear();
}

inline void CallQueue::end_threads(std::unique_lock<std::mutex> &lock)
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

inline void CallQueue::thread_main()
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

inline bool CallQueue::run_aside(std::unique_lock<std::mutex> &lock, CallRef call)
{
    FutureRef future = run(lock, call);
    if (!future)
        return true;
    serves_ = false;
    if (!calls_.empty())
        ensure_thread();
    lock.unlock();
    call->resolve(future);
    call.reset(); /* and what it holds, before the lock is taken */
    future.reset();
    lock.lock();
    if (serves_)
        return false;
    serves_ = true;
    return true;
}

inline bool CallQueue::serve(std::unique_lock<std::mutex> &lock)
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

} // namespace twill_torch
#endif
