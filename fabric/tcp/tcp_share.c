/* SPDX-License-Identifier: Apache-2.0 */
/* Channels that have much to send or to receive, shared by the threads of a rank. One core copies
 * some 5 GB/s between kernel and user, so a fast network needs several. Each thread also reduces
 * what it receives, while that is in its cache. */
#include "fabric/tcp/tcp.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Least bytes that a channel has moved at once, and of a message that are left, for a thread to
 * serve it. It takes some 10 us to copy them. */
#define SHARE_LEAST (TWILL_TCP_SHARED / 2)
#define HEAD_BYTES  sizeof(struct twill_tcp_header)

/* What a thread serves of a channel, in a local variable of twill_tcp_share(). Only a channel with
 * records has both directions in one share, as its acknowledgements belong to both. */
struct channel_share {
    struct twill_tcp_channel *channel;
    bool sends, receives;
    struct twill_tcp_reader reader; /* if it receives */
    size_t sent, asked;             /* if it sends */
    int why;                        /* the same: errno if sending failed, or 0 */
    bool lost;                      /* receiving failed */
    bool moved;
};

struct shares {
    struct channel_share share[TWILL_TCP_SHARES];
    unsigned count;
    size_t once;
};

/* Return whether much was moved at the last attempt, as far as two polls show. `now` is how much of
 * the first message of a queue is moved. What flowed will flow again, so that the kernel need not
 * be asked how much there is. */
static bool flows(struct twill_tcp_flow *flow, size_t now)
{
    bool ended = now < flow->moved; /* that message, and another is the first */
    if (ended || now > 0)
        flow->much = ended || now - flow->moved >= SHARE_LEAST;
    flow->moved = now;
    return flow->much;
}

/* Return whether much of the first RECV's payload is likely to be there, and any thread may take
 * it. `direct` is as in step_channel(). */
static bool receives_much(struct twill_tcp_channel *channel, bool direct)
{
    const struct twill_transfer *first = channel->in.queue.head;
    return flows(&channel->in.flow, channel->in.taking ? first->moved : 0) && channel->in.taking &&
           (direct || channel->readable) && channel->in.skip == 0 && !first->alone &&
           !channel->out.refused && first->bytes - first->moved >= SHARE_LEAST;
}

/* Return whether the kernel is likely to take much more of the first SEND's payload. */
static bool sends_much(struct twill_tcp_channel *channel, bool direct)
{
    const struct twill_transfer *first = channel->out.queue.head;
    return flows(&channel->out.flow, channel->out.gone) && first != NULL &&
           (direct || channel->writable) && !channel->out.refuses && !channel->out.refused &&
           channel->out.gone >= HEAD_BYTES &&
           HEAD_BYTES + first->bytes - channel->out.gone >= SHARE_LEAST;
}

/* Add a share of a channel if there is room. */
static void add(const struct twill_tcp *t, struct shares *all, struct twill_tcp_channel *channel,
                bool sends, bool receives)
{
    if (all->count == TWILL_TCP_SHARES || !(sends || receives))
        return;
    unsigned char *scratch = t->shares + (size_t)all->count * TWILL_TCP_SCRATCH;
    all->share[all->count++] = (struct channel_share){
        .channel = channel,
        .sends = sends,
        .receives = receives,
        .reader = {.scratch = scratch, .scratch_bytes = TWILL_TCP_SCRATCH, .once = t->once}};
}

/* Read payload of a share's RECV until the socket is empty or the message ends, in a limited number
 * of reads. */
static void receive(struct channel_share *share)
{
    const struct twill_transfer *first = share->channel->in.queue.head;
    int answer = TWILL_TCP_FULL;
    for (int turn = 0;
         turn < TWILL_TCP_TURNS && answer == TWILL_TCP_FULL && first->moved < first->bytes;
         turn++) {
        answer = twill_tcp_read_payload(share->channel, &share->reader);
        share->moved |= answer > TWILL_TCP_EMPTY;
    }
    share->lost = answer == TWILL_TCP_FAILED;
}

/* Give the kernel payload of a share's SEND, once, or put it into records. */
static void send_some(struct channel_share *share, size_t once)
{
    struct twill_tcp_channel *channel = share->channel;
    const struct twill_transfer *first = channel->out.queue.head;
    size_t from = channel->out.gone - HEAD_BYTES;
    share->asked = twill_min(first->bytes - from, once);
    struct iovec iov = {.iov_base = (unsigned char *)first->buffer + from, .iov_len = share->asked};
    ssize_t n = channel->records != NULL
                    ? twill_tcp_protected_write(channel, &iov, 1, share->asked)
                    : send(channel->fd, iov.iov_base, iov.iov_len, MSG_NOSIGNAL | MSG_DONTWAIT);
    share->sent = n > 0 ? (size_t)n : 0;
    share->moved |= n > 0;
    share->why = n < 0 ? errno : 0;
}

/* Serve every share whose number is `part` modulo `parts`. `job` is a struct shares. */
static void serve(void *job, unsigned part, unsigned parts)
{
    struct shares *all = job;
    for (unsigned i = part; i < all->count; i += parts) {
        if (all->share[i].receives)
            receive(&all->share[i]);
        if (all->share[i].sends)
            send_some(&all->share[i], all->once);
    }
}

/* Record what a thread has sent for a share. Returns TWILL_OK, or a negative status if sending
 * failed and the peer has not refused the message. */
static int end_sending(struct twill_tcp *t, struct channel_share *share, struct twill_error *error)
{
    struct twill_tcp_channel *channel = share->channel;
    bool later = share->why == EAGAIN || share->why == EINTR;
    twill_counter_add(&t->base.counters.again, later);
    if (share->why != 0 && !later)
        return twill_tcp_send_lost(t, channel, share->why, error);
    channel->out.gone += share->sent;
    if (channel->records == NULL)
        channel->writable = share->sent == share->asked || share->why == EINTR;
    channel->out.served = channel->out.gone < HEAD_BYTES + channel->out.queue.head->bytes;
    return TWILL_OK;
}

/* Record what a thread has received for a share. Returns TWILL_OK or a negative status. */
static int end_receiving(struct twill_tcp *t, struct channel_share *share,
                         struct twill_error *error)
{
    struct twill_tcp_channel *channel = share->channel;
    const struct twill_transfer *first = channel->in.queue.head;
    twill_counter_add(&t->base.counters.copied, share->reader.copied);
    channel->in.served = !share->lost && first->moved < first->bytes;
    if (!share->lost)
        return TWILL_OK;
    share->reader.error = error; /* a damaged record is reported again, with its message */
    if (share->reader.why == EBADMSG)
        (void)twill_tcp_read_payload(channel, &share->reader);
    TWILL_TRY(error, twill_tcp_read_failed(t, channel, share->reader.why, error));
    return TWILL_OK;
}

int twill_tcp_share(struct twill_tcp *t, bool direct, struct twill_error *error)
{
    struct shares all;
    int moved = 0;
    all.count = 0;
    all.once = t->once;
    for (size_t i = 0; i < t->busy_count; i++) {
        struct twill_tcp_channel *channel = t->busy[i];
        if (channel->state != TWILL_TCP_OPEN)
            continue;
        bool receives = receives_much(channel, direct), sends = sends_much(channel, direct);
        add(t, &all, channel, channel->records != NULL && sends, receives);
        add(t, &all, channel, channel->records == NULL && sends, false);
    }
    if (all.count < 2 || !t->params.pool_run(t->params.pool, all.count, serve, &all))
        return 0;
    for (unsigned i = 0; i < all.count; i++) {
        struct channel_share *share = &all.share[i];
        if (share->receives)
            TWILL_TRY(error, end_receiving(t, share, error));
        if (share->sends)
            TWILL_TRY(error, end_sending(t, share, error));
        moved |= share->moved;
    }
    return moved;
}
