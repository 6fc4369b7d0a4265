/* SPDX-License-Identifier: Apache-2.0 */
/* Messages with tags, from a given rank or from any. They are matched here, and the job's
 * communicator carries them. Each begins with a frame of 256 bytes, which describes it and holds
 * small contents. Larger contents follow. A receiver that wants a message of a rank receives frames
 * from it until the wanted one arrives. It keeps the contents of other messages until they are
 * wanted.
 *
 * Threads that wait make progress. So does a separate thread while any message is in progress. */
#ifndef TWILL_TORCH_MESSAGES_H
#define TWILL_TORCH_MESSAGES_H

#include "calls.h"

#include <list>

namespace twill_torch
{

using Clock = std::chrono::steady_clock;

/* The first 256 bytes of a message as they are sent, which describe it. */
struct Frame {
    uint64_t group; /* number of the group */
    uint64_t bytes; /* of all contents */
    int64_t tag;
    uint8_t contents[232];
};
static_assert(sizeof(Frame) == 256, "a frame has the same length on all ranks");

class Messages;

/* A message that is sent or awaited. The mutex of Messages protects it until it is complete. */
class Message : public Pending
{
  public:
    using Pending::Pending;

    /* Return the rank in the group that a received message came from. It is -1 before the message
     * is complete, and for a sent one. */
    int sourceRank() const override
    {
        return source;
    }

    /* Return whether a frame that has arrived from a rank of the job begins this message. */
    bool fits(const Frame &came, int from) const
    {
        return frame.group == came.group && frame.tag == came.tag &&
               std::find(in_job.begin(), in_job.end(), from) != in_job.end();
    }

    /* Return the name of the message for errors. */
    std::string name() const
    {
        if (purpose != nullptr)
            return purpose;
        std::string peer = ranks.size() == 1 ? "rank " + std::to_string(ranks[0]) : "any rank";
        return "rank " + std::to_string(rank_) + (sends ? ": send to " : ": recv from ") + peer +
               " (tag " + std::to_string(frame.tag) + ")";
    }

    std::weak_ptr<Messages> messages;
    std::function<void()> after;               /* copies received data to where it is wanted */
    c10::optional<at::ThreadLocalState> state; /* for `after` */
    std::vector<int> ranks;    /* ranks of the group that it goes to or may come from */
    std::vector<int> in_job;   /* the same as ranks of the job */
    uint8_t *memory = nullptr; /* frame.bytes of contents */
    Frame frame = {};
    twill_request *requests[2] = {nullptr, nullptr}; /* sends of frame and of large contents */
    Clock::time_point deadline;
    double seconds = 0;            /* time until the deadline */
    const char *purpose = nullptr; /* set if it is not a message of the program */
    int source = -1;               /* rank of the group that it came from */
    bool sends = false;
    bool late = false; /* it has failed, but its memory is in use */

  protected:
    /* Wait until the message is complete. Throws if it is not within `timeout`, which kNoTimeout
     * makes unlimited. */
    void block(Milliseconds timeout) override
    {
        block_in(messages, this, timeout);
    }
};

using MessageRef = c10::intrusive_ptr<Message>;

/* Return the exception of a message whose time is over. `what` says what is missing. */
inline std::exception_ptr late_failure(const Message &message, const char *what)
{
    std::ostringstream sentence;
    sentence << "twill: " << message.name() << ": Timed out: " << what << " within "
             << message.seconds << " s";
    return failure(sentence.str());
}

/* The messages of one job. Its groups share it, and a mutex protects it. */
class Messages : public std::enable_shared_from_this<Messages>
{
  public:
    explicit Messages(std::shared_ptr<Job> job)
        : job_(std::move(job)), peers_(static_cast<size_t>(job_->size))
    {
    }

    /* Fail all messages and end the thread, which may itself be the last owner, after callbacks. */
    ~Messages()
    {
        {
            Hold hold(*this);
            stopped_ = true;
            end_all(failure("twill: message: its group has ended"));
            changed_.notify_all();
        }
        if (!thread_.joinable())
            return;
        if (thread_.get_id() == std::this_thread::get_id())
            thread_.detach();
        else
            thread_.join();
    }

    /* Return whether this is a forked child of the process that made the job. */
    bool forked() const
    {
        return job_->forked();
    }

    /* Start a message. A thread then makes progress until it is complete. If the communicator has
     * failed, the message ends with that error. Throws only in a forked child. */
    void submit(const MessageRef &message);
    /* Wait until a message is complete, and make progress meanwhile. Does not throw its error.
     * After the timeout throws another one, and the message continues. */
    void finish(Message *message, Milliseconds timeout);
    /* Fail the messages of a group that ends, and free the contents kept for it. Sends that have
     * begun continue. Receives whose contents are arriving also continue, and do not fail. */
    void cancel(uint64_t group);

  private:
    /* Times of the thread. Waking it takes longer than many messages. So it looks for new ones for
     * a while before it sleeps until it is woken. */
    static constexpr std::chrono::microseconds LONGEST_NAP{500}, IDLE_NAP{200}, STAYS_AWAKE{20000},
        SLEEP{60000000};

    /* Contents that arrived before a message asked for them, or whose length is not that of the
     * message. An entry of kept_, under the mutex of Messages. */
    struct Kept {
        Frame frame;
        int from; /* rank of the job */
        std::vector<uint8_t> contents;
        MessageRef wanted; /* message that gets them, known while they arrive */
        bool complete;     /* all contents have arrived */
    };

    /* The message that is arriving from a rank of the job. Under the mutex of Messages. */
    struct Peer {
        Frame frame = {};
        twill_request *request = nullptr;
        enum { IDLE, FRAME, CONTENTS } state = IDLE;
        MessageRef message;   /* whose contents follow, or */
        Kept *kept = nullptr; /* where they are kept */
    };

    /* Return about how many messages are in progress. If 0, the thread has nothing to do. */
    size_t in_progress() const
    {
        bool receives = false;
        for (const Peer &peer : peers_)
            receives = receives || peer.state == Peer::CONTENTS;
        return broken_ ? 0 : sent_.size() + wanted_.size() + (receives ? 1 : 0);
    }

    /* Start to send frame and contents. Returns TWILL_OK or the first failure. */
    twill_status start_send(Message &message);
    /* Start to receive the next frame of a rank of the job, or return the failure. */
    twill_status start_frame(int from);
    twill_status begin_contents(int from);
    twill_status advance_peer(int from);
    /* End the messages whose sends are complete, without waiting. Returns TWILL_OK, or the failure
     * of a send, at which it stops. The caller then fails all messages (fail_all()). */
    twill_status advance_sends();
    bool take_kept(const MessageRef &message);
    void deliver(const MessageRef &message, const Frame &frame, int from, const uint8_t *contents);
    void fail_all(twill_status status);
    void end_all(const std::exception_ptr &error);
    void expire();
    /* Advance all messages and fail late ones, or all if twill has failed. */
    void progress();
    /* Make progress for as long as there are messages, then sleep, until the end. */
    void thread_main();

    /* Holds the mutex of Messages in a scope. At the end of the scope, or in release(), unlocks it
     * and completes the messages in ended_, which have ended meanwhile. That may run callbacks,
     * which may do anything. */
    struct Hold {
        /* Lock the mutex of `messages`. */
        explicit Hold(Messages &messages) : of(&messages), lock(messages.mutex_)
        {
        }
        /* Do what release() does. thread_main() sets `of` to nullptr if Messages has ended. */
        ~Hold()
        {
            if (of != nullptr)
                release();
        }
        /* Release the mutex, and complete the messages that have ended. */
        void release()
        {
            std::vector<std::pair<MessageRef, std::exception_ptr>> ended;
            ended.swap(of->ended_);
            if (lock.owns_lock())
                lock.unlock();
            std::vector<FutureRef> futures;
            for (auto &[message, error] : ended)
                futures.push_back(message->seal(error));
            for (size_t i = 0; i < ended.size(); i++)
                ended[i].first->resolve(futures[i]);
        }
        Messages *of;
        std::unique_lock<std::mutex> lock;
    };

    /* Note that a message has ended, with an error or nullptr. Hold completes it. */
    void end(const MessageRef &message, std::exception_ptr error)
    {
        ended_.emplace_back(message, std::move(error));
    }

    std::shared_ptr<Job> job_;
    std::mutex mutex_;
    std::vector<std::pair<MessageRef, std::exception_ptr>> ended_; /* that Hold completes */
    std::condition_variable changed_;
    std::list<MessageRef> sent_, wanted_; /* sends in progress, receives without a frame yet */
    std::list<Kept> kept_;
    std::vector<Peer> peers_; /* by rank of the job */
    std::thread thread_;
    std::atomic<int> waiters_{0}; /* threads in finish() */
    bool has_thread_ = false, asleep_ = false, stopped_ = false;
    std::exception_ptr broken_; /* why all messages fail, once twill has failed */
};

inline twill_status Messages::start_send(Message &message)
{
    int to = message.in_job[0];
    bool fits_frame = message.frame.bytes <= sizeof(message.frame.contents);
    if (fits_frame && message.frame.bytes > 0)
        memcpy(message.frame.contents, message.memory, message.frame.bytes);
    twill_status status = twill_send_start(job_->world, &message.frame, sizeof(Frame), TWILL_U8, to,
                                           &message.requests[0]);
    if (status == TWILL_OK && !fits_frame)
        status = twill_send_start(job_->world, message.memory, message.frame.bytes, TWILL_U8, to,
                                  &message.requests[1]);
    return status;
}

inline twill_status Messages::start_frame(int from)
{
    Peer &peer = peers_[static_cast<size_t>(from)];
    peer.state = Peer::FRAME;
    return twill_recv_start(job_->world, &peer.frame, sizeof(Frame), TWILL_U8, from, &peer.request);
}

/* Give a message the contents that have arrived for it (in place if nullptr), call its `after`, and
 * end it. It fails if the contents have another length than it expects, or if `after` throws. */
inline void Messages::deliver(const MessageRef &message, const Frame &frame, int from,
                              const uint8_t *contents)
{
    auto at = std::find(message->in_job.begin(), message->in_job.end(), from);
    message->source = message->ranks[static_cast<size_t>(at - message->in_job.begin())];
    if (message->frame.bytes != frame.bytes) {
        end(message,
            failure("twill: " + message->name() + ": rank " + std::to_string(message->source) +
                    " sent " + std::to_string(frame.bytes) + " bytes, and " +
                    std::to_string(message->frame.bytes) + " are expected"));
        return;
    }
    if (contents != nullptr && frame.bytes > 0)
        memcpy(message->memory, contents, frame.bytes);
    std::exception_ptr error;
    if (message->after) {
        try {
            at::ThreadLocalStateGuard guard(*message->state);
            message->after();
        } catch (...) {
            error = std::current_exception();
        }
    }
    end(message, error);
}

/* Find the message that waits for the frame from rank `from` of the job. Give it the contents if
 * they are in the frame, otherwise start to receive them. Without such a message, or if their
 * length differs from its, they go to kept_. Returns TWILL_OK, or why that start failed. */
inline twill_status Messages::begin_contents(int from)
{
    Peer &peer = peers_[static_cast<size_t>(from)];
    auto found = std::find_if(wanted_.begin(), wanted_.end(),
                              [&](const MessageRef &m) { return m->fits(peer.frame, from); });
    bool small = peer.frame.bytes <= sizeof(peer.frame.contents);
    MessageRef message;
    if (found != wanted_.end()) {
        message = *found;
        wanted_.erase(found);
    }
    peer.state = Peer::IDLE;
    if (message && small) {
        deliver(message, peer.frame, from, peer.frame.contents);
        return TWILL_OK;
    }
    if (message && message->frame.bytes == peer.frame.bytes) {
        peer.message = message;
    } else {
        const uint8_t *contents = peer.frame.contents;
        kept_.push_back({peer.frame, from, std::vector<uint8_t>(peer.frame.bytes), message, small});
        if (small)
            std::copy(contents, contents + peer.frame.bytes, kept_.back().contents.begin());
        peer.kept = small ? nullptr : &kept_.back();
    }
    if (small)
        return TWILL_OK;
    peer.state = Peer::CONTENTS;
    return twill_recv_start(job_->world,
                            peer.message ? peer.message->memory : peer.kept->contents.data(),
                            peer.frame.bytes, TWILL_U8, from, &peer.request);
}

/* Give a message its contents if they were kept or are arriving. Returns whether that is so. */
inline bool Messages::take_kept(const MessageRef &message)
{
    for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
        if (kept->wanted || !message->fits(kept->frame, kept->from))
            continue;
        if (!kept->complete) {
            kept->wanted = message;
        } else {
            deliver(message, kept->frame, kept->from, kept->contents.data());
            kept_.erase(kept);
        }
        return true;
    }
    return false;
}

/* Receive what has arrived from rank `from` of the job, without waiting. Starts a new frame only
 * while a message in wanted_ may come from that rank. Returns TWILL_OK or a failure of twill. */
inline twill_status Messages::advance_peer(int from)
{
    Peer &peer = peers_[static_cast<size_t>(from)];
    for (;;) {
        twill_status status = TWILL_OK;
        int done = 0;
        if (peer.state == Peer::IDLE) {
            bool wanted = false;
            for (const MessageRef &m : wanted_)
                wanted = wanted ||
                         std::find(m->in_job.begin(), m->in_job.end(), from) != m->in_job.end();
            if (!wanted)
                return TWILL_OK;
            status = start_frame(from);
        }
        if (status == TWILL_OK)
            status = twill_test(&peer.request, &done);
        if (status != TWILL_OK || !done)
            return status;
        if (peer.state == Peer::FRAME) {
            status = begin_contents(from);
            if (status != TWILL_OK)
                return status;
            continue;
        }
        peer.state = Peer::IDLE;
        if (peer.message) {
            MessageRef message = std::move(peer.message);
            if (!message->late)
                deliver(message, peer.frame, from, nullptr);
        } else {
            peer.kept->complete = true;
            MessageRef wanted = std::move(peer.kept->wanted);
            if (wanted) {
                deliver(wanted, peer.kept->frame, from, peer.kept->contents.data());
                kept_.remove_if([&](const Kept &kept) { return &kept == peer.kept; });
            }
            peer.kept = nullptr;
        }
    }
}

inline twill_status Messages::advance_sends()
{
    for (auto message = sent_.begin(); message != sent_.end();) {
        int done = 1;
        for (twill_request *&request : (*message)->requests) {
            twill_status status = done ? twill_test(&request, &done) : TWILL_OK;
            if (status != TWILL_OK)
                return status;
        }
        if (!done) {
            ++message;
            continue;
        }
        MessageRef ended = *message;
        message = sent_.erase(message);
        if (!ended->late)
            end(ended, nullptr);
    }
    return TWILL_OK;
}

/* Fail all messages in progress, and later ones, because the communicator has failed. */
inline void Messages::fail_all(twill_status status)
{
    const char *said = twill_comm_message(job_->world);
    broken_ = failure(std::string("twill: message: ") + said + " (" + twill_strerror(status) + ")");
    end_all(broken_);
}

/* Fail all messages in progress. Memory that is being received into is kept. */
inline void Messages::end_all(const std::exception_ptr &error)
{
    for (std::list<MessageRef> *list : {&sent_, &wanted_}) {
        for (const MessageRef &message : *list)
            if (!message->late)
                end(message, error);
        list->clear();
    }
    for (Peer &peer : peers_)
        if (peer.message && !peer.message->late) {
            peer.message->late = true;
            end(peer.message, error);
        }
    for (Kept &kept : kept_)
        if (kept.wanted)
            end(std::exchange(kept.wanted, MessageRef()), error);
    kept_.remove_if([](const Kept &kept) { return kept.complete; });
}

/* Fail all messages whose time is over, including those whose transfer has begun. The transfer
 * continues and keeps its memory. */
inline void Messages::expire()
{
    auto now = Clock::now();
    for (auto message = wanted_.begin(); message != wanted_.end();) {
        MessageRef late = *message;
        if (now < late->deadline) {
            ++message;
            continue;
        }
        message = wanted_.erase(message);
        end(late, late_failure(*late, "no such message"));
    }
    for (const MessageRef &message : sent_)
        if (now >= message->deadline && !message->late) {
            message->late = true;
            end(message, late_failure(*message, "not received"));
        }
    for (Peer &peer : peers_) {
        if (peer.message && now >= peer.message->deadline && !peer.message->late) {
            peer.message->late = true;
            end(peer.message, late_failure(*peer.message, "only a part of it came"));
        }
        if (peer.kept && peer.kept->wanted && now >= peer.kept->wanted->deadline) {
            MessageRef late = std::move(peer.kept->wanted);
            end(late, late_failure(*late, "only a part of it came"));
        }
    }
}

inline void Messages::progress()
{
    if (broken_)
        return;
    twill_status status = advance_sends();
    for (int from = 0; from < job_->size && status == TWILL_OK; from++)
        status = from == job_->rank ? TWILL_OK : advance_peer(from);
    if (status != TWILL_OK)
        fail_all(status);
    else
        expire();
}

inline void Messages::submit(const MessageRef &message)
{
    job_->check_forked();
    Hold hold(*this);
    message->messages = shared_from_this();
    message->deadline =
        Clock::now() + std::chrono::microseconds(static_cast<int64_t>(message->seconds * 1e6));
    if (broken_) {
        end(message, broken_);
        return;
    }
    twill_status status = TWILL_OK;
    if (message->sends) {
        sent_.push_back(message);
        status = start_send(*message);
    } else if (!take_kept(message)) {
        wanted_.push_back(message);
    }
    if (status != TWILL_OK)
        fail_all(status);
    progress();
    if (in_progress() == 0)
        return;
    if (!has_thread_) {
        has_thread_ = true;
        thread_ = std::thread([this] { thread_main(); });
    }
    if (asleep_)
        changed_.notify_all();
}

inline void Messages::finish(Message *message, Milliseconds timeout)
{
    auto start = Clock::now();
    waiters_++;
    for (unsigned turn = 1; !message->isCompleted(); turn++) {
        {
            Hold hold(*this);
            progress();
        }
        auto spent = Clock::now() - start;
        if (timeout != kNoTimeout && spent > timeout && !message->isCompleted()) {
            waiters_--;
            fail("twill: " + message->name() + ": Operation timed out! It is not complete after " +
                 std::to_string(timeout.count()) + " ms, and goes on");
        }
        if (spent > std::chrono::milliseconds(1))
            std::this_thread::sleep_for(
                std::chrono::microseconds(spent < std::chrono::milliseconds(100) ? 20 : 200));
        else if (turn % 32 == 0)
            std::this_thread::yield();
    }
    waiters_--;
}

inline void Messages::cancel(uint64_t group)
{
    Hold hold(*this);
    for (auto message = wanted_.begin(); message != wanted_.end();) {
        MessageRef ended = *message;
        if (ended->frame.group != group) {
            ++message;
            continue;
        }
        message = wanted_.erase(message);
        end(ended, failure("twill: " + ended->name() + ": the group has ended"));
    }
    for (const MessageRef &message : sent_)
        if (message->frame.group == group && !message->late) {
            message->late = true;
            end(message, failure("twill: " + message->name() + ": the group has ended"));
        }
    kept_.remove_if([&](const Kept &k) { return k.frame.group == group && k.complete; });
}

inline void Messages::thread_main()
{
    Hold hold(*this);
    std::chrono::microseconds nap(20);
    size_t before = 0;
    Clock::time_point idle_since;
    while (!stopped_) {
        size_t pending = in_progress();
        if (pending == 0) {
            asleep_ = Clock::now() - idle_since > STAYS_AWAKE;
            changed_.wait_for(hold.lock, asleep_ ? SLEEP : IDLE_NAP);
            asleep_ = false;
            nap = std::chrono::microseconds(20);
            continue;
        }
        idle_since = Clock::now();
        if (waiters_ == 0 || nap == LONGEST_NAP) /* a waiter may be in a callback of a future */
            progress();
        if (!ended_.empty()) {
            std::weak_ptr<Messages> there = weak_from_this();
            std::shared_ptr<Messages> self = there.lock();
            hold.release();
            self.reset();
            if (there.expired()) { /* its end waits for this thread, or happened in it */
                hold.of = nullptr;
                return;
            }
            hold.lock.lock();
        }
        if (waiters_ > 0) /* they make progress, and may need this core */
            nap = LONGEST_NAP;
        else
            nap =
                pending != before ? std::chrono::microseconds(20) : std::min(nap * 2, LONGEST_NAP);
        before = pending;
        changed_.wait_for(hold.lock, nap, [this] { return stopped_; });
    }
}

} // namespace twill_torch
#endif