/* SPDX-License-Identifier: Apache-2.0 */
/* A message in progress, and the frame that precedes its contents. */
#ifndef TWILL_TORCH_MESSAGE_H
#define TWILL_TORCH_MESSAGE_H

#include "calls.h"

namespace twill_torch
{

using Clock = std::chrono::steady_clock;

struct Frame {
    uint64_t group; /* number of the group */
    uint64_t bytes;
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

    int sourceRank() const override
    {
        return source;
    }

    /* Return whether a frame that has come from a rank of the job begins this message. */
    bool fits(const Frame &came, int from) const
    {
        return frame.group == came.group && frame.tag == came.tag &&
               std::find(in_job.begin(), in_job.end(), from) != in_job.end();
    }

    /* Return its name in error messages. */
    std::string name() const
    {
        if (purpose != nullptr)
            return purpose;
        std::string peer = ranks.size() == 1 ? "rank " + std::to_string(ranks[0]) : "any rank";
        return "rank " + std::to_string(rank_) + (sends ? ": send to " : ": recv from ") + peer +
               " (tag " + std::to_string(frame.tag) + ")";
    }

    std::weak_ptr<Messages> messages;
    std::function<void()> after;               /* copies what was received to where it is wanted */
    c10::optional<at::ThreadLocalState> state; /* for `after` */
    std::vector<int> ranks;                    /* of the group: where it goes, or may come from */
    std::vector<int> in_job;                   /* the same as ranks of the job */
    uint8_t *memory = nullptr;                 /* frame.bytes of them */
    Frame frame = {};
    twill_request *requests[2] = {nullptr, nullptr};
    Clock::time_point deadline;
    double seconds = 0;            /* until then */
    const char *purpose = nullptr; /* if it is not one of the program's */
    int source = -1;               /* rank of the group that it came from */
    bool sends = false;
    bool late = false; /* it has failed, but its memory is in use */

  protected:
    void block(Milliseconds timeout) override;
};

using MessageRef = c10::intrusive_ptr<Message>;

inline std::exception_ptr late_failure(const Message &message, const char *what)
{
    std::ostringstream sentence;
    sentence << "twill: " << message.name() << ": Timed out: " << what << " within "
             << message.seconds << " s";
    return failure(sentence.str());
}

} // namespace twill_torch
#endif
