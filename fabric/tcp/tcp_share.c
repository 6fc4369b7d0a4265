/* SPDX-License-Identifier: Apache-2.0 */
/* Channels that have much to send or to receive, shared by the threads of a rank. One core copies
 * some 5 GB/s between kernel and user, so a fast network needs several. Each thread also reduces
 * what it receives, while that is in its cache. */
#include "fabric/tcp/tcp.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* Least bytes of a message that are left, and that the kernel has received, for a thread to serve
 * the channel. It takes some 10 us to copy them. */
#define SHARE_LEAST ((size_t)64 << 10)
#define HEAD_BYTES  sizeof(struct twill_tcp_header)

/* One direction of a channel that a thread serves, in a local variable of twill_tcp_share(). */
struct direction {
    struct twill_tcp_channel *channel;
    bool sends;
    struct twill_tcp_reader reader; /* of one that receives */
    size_t sent, asked;             /* of one that sends */
    int why;                        /* the same: errno if sending failed, or 0 */
    bool moved;
};

struct shares {
    struct direction share[TWILL_TCP_SHARES];
    unsigned count;
    size_t once;
};

/* Return whether much of the first RECV's payload has arrived, and any thread may take it. */
static bool receives_much(const struct twill_tcp_channel *channel)
{
    const struct twill_transfer *first = channel->in.queue.head;
    int there = 0;
    if (!channel->in.taking || channel->in.skip > 0 || first == NULL || first->alone ||
        channel->out.refused || first->bytes - first->moved < SHARE_LEAST)
        return false;
    return ioctl(channel->fd, SIOCINQ, &there) == 0 && (size_t)there >= SHARE_LEAST;
}

/* Return whether much of the first SEND's payload is left and the kernel has room for some. */
static bool sends_much(const struct twill_tcp_channel *channel)
{
    const struct twill_transfer *first = channel->out.queue.head;
    struct pollfd one = {.fd = channel->fd, .events = POLLOUT};
    if (first == NULL || channel->out.refuses || channel->out.refused ||
        channel->out.gone < HEAD_BYTES ||
        HEAD_BYTES + first->bytes - channel->out.gone < SHARE_LEAST)
        return false;
    return poll(&one, 1, 0) == 1 && one.revents == POLLOUT;
}

/* Add a direction of a channel to the shares if there is room. */
static void add(const struct twill_tcp *t, struct shares *all, struct twill_tcp_channel *channel,
                bool sends)
{
    if (all->count == TWILL_TCP_SHARES)
        return;
    unsigned char *scratch = t->shares + (size_t)all->count * TWILL_TCP_SCRATCH;
    all->share[all->count++] = (struct direction){
        .channel = channel,
        .sends = sends,
        .reader = {.scratch = scratch, .scratch_bytes = TWILL_TCP_SCRATCH, .once = t->once}};
}

/* Read payload of a share's RECV until the socket is empty or the message ends, in a limited number
 * of reads. */
static void receive(struct direction *share)
{
    const struct twill_transfer *first = share->channel->in.queue.head;
    int answer = TWILL_TCP_FULL;
    for (int turn = 0;
         turn < TWILL_TCP_TURNS && answer == TWILL_TCP_FULL && first->moved < first->bytes;
         turn++) {
        answer = twill_tcp_read_payload(share->channel, &share->reader);
        share->moved |= answer > TWILL_TCP_EMPTY;
    }
    share->why = answer == TWILL_TCP_FAILED;
}

/* Give the kernel payload of a share's SEND, once. */
static void send_some(struct direction *share, size_t once)
{
    const struct twill_tcp_channel *channel = share->channel;
    const struct twill_transfer *first = channel->out.queue.head;
    size_t from = channel->out.gone - HEAD_BYTES;
    share->asked = twill_min(first->bytes - from, once);
    ssize_t n = send(channel->fd, (const unsigned char *)first->buffer + from, share->asked,
                     MSG_NOSIGNAL | MSG_DONTWAIT);
    share->sent = n > 0 ? (size_t)n : 0;
    share->moved = n > 0;
    share->why = n < 0 ? errno : 0;
}

/* Serve every share whose number is `part` modulo `parts`. `job` is a struct shares. */
static void serve(void *job, unsigned part, unsigned parts)
{
    struct shares *all = job;
    for (unsigned i = part; i < all->count; i += parts)
        if (all->share[i].sends)
            send_some(&all->share[i], all->once);
        else
            receive(&all->share[i]);
}

/* Record what a thread has sent for a share. Returns TWILL_OK, or a negative status if sending
 * failed and the peer has not refused the message. */
static int end_sending(struct twill_tcp *t, struct direction *share, struct twill_error *error)
{
    struct twill_tcp_channel *channel = share->channel;
    bool later = share->why == EAGAIN || share->why == EINTR;
    twill_counter_add(&t->base.counters.again, later);
    if (share->why != 0 && !later)
        return twill_tcp_send_lost(t, channel, share->why, error);
    channel->out.gone += share->sent;
    channel->writable = share->sent == share->asked || share->why == EINTR;
    channel->out.served = channel->out.gone < HEAD_BYTES + channel->out.queue.head->bytes;
    return TWILL_OK;
}

/* Record what a thread has received for a share. Returns TWILL_OK or a negative status. */
static int end_receiving(struct twill_tcp *t, struct direction *share, struct twill_error *error)
{
    struct twill_tcp_channel *channel = share->channel;
    const struct twill_transfer *first = channel->in.queue.head;
    twill_counter_add(&t->base.counters.copied, share->reader.copied);
    channel->in.served = share->why == 0 && first->moved < first->bytes;
    if (share->why != 0)
        TWILL_TRY(error, twill_tcp_read_failed(t, channel, share->reader.why, error));
    return TWILL_OK;
}

int twill_tcp_share(struct twill_tcp *t, struct twill_error *error)
{
    struct shares all;
    int moved = 0;
    all.count = 0;
    all.once = t->once;
    for (size_t i = 0; i < t->busy_count; i++) {
        struct twill_tcp_channel *channel = t->busy[i];
        if (channel->state != TWILL_TCP_OPEN || channel->records != NULL)
            continue;
        if (receives_much(channel))
            add(t, &all, channel, false);
        if (sends_much(channel))
            add(t, &all, channel, true);
    }
    if (all.count < 2 || !t->params.pool_run(t->params.pool, all.count, serve, &all))
        return 0;
    for (unsigned i = 0; i < all.count; i++) {
        struct direction *share = &all.share[i];
        TWILL_TRY(error,
                  share->sends ? end_sending(t, share, error) : end_receiving(t, share, error));
        moved |= share->moved;
    }
    return moved;
}
