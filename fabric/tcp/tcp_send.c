/* SPDX-License-Identifier: Apache-2.0 */
/* Sending: header and payload in one system call, from the user's buffer. */
#include "fabric/tcp/tcp.h"

#include <errno.h>
#include <sys/uio.h>

/* Send the rest of header and payload. Returns 1: the kernel has all of it, 0: would block, -1: see
 * errno. */
static int write_channel(struct twill_tcp *t, struct twill_tcp_channel *channel,
                         const struct twill_tcp_header *header, void *payload, size_t bytes,
                         size_t *moved)
{
    struct iovec iov[2];
    struct msghdr message = {.msg_iov = iov};
    size_t head = sizeof(*header), all = head + bytes;
    while (channel->out.gone < all) {
        size_t gone = channel->out.gone, from = gone < head ? 0 : gone - head, asked = 0;
        message.msg_iovlen = 0;
        if (gone < head) {
            iov[message.msg_iovlen++] = (struct iovec){
                .iov_base = (unsigned char *)(uintptr_t)header + gone, .iov_len = head - gone};
            asked = head - gone;
        }
        if (bytes > from) {
            size_t now = twill_min(bytes - from, t->once);
            iov[message.msg_iovlen++] =
                (struct iovec){.iov_base = (unsigned char *)payload + from, .iov_len = now};
            asked += now;
        }
        ssize_t n = TWILL_LIKELY(channel->records == NULL)
                        ? sendmsg(channel->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
                        : twill_tcp_protected_write(channel, iov, message.msg_iovlen, asked);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -1;
        twill_counter_add(&t->base.counters.again, n < 0);
        *moved += n < 0 ? 0 : (size_t)n;
        channel->out.gone += n < 0 ? 0 : (size_t)n;
        if (TWILL_LIKELY(channel->records == NULL))
            channel->writable = n == (ssize_t)asked || (n < 0 && errno == EINTR);
        if (channel->out.gone < all)
            return 0; /* let the other direction have its turn */
    }
    /* Records that the kernel has not taken would stay here if this rank made no other call. */
    if (TWILL_UNLIKELY(channel->records != NULL && twill_tcp_records_unsent(channel->records)))
        return 0;
    channel->out.gone = 0;
    twill_counter_add(&t->base.counters.header_bytes, head);
    return 1;
}

/* Read what the peer sent before it closed, until a refusal of the current SEND is found. */
static twill_status find_refusal(struct twill_tcp *t, struct twill_tcp_channel *channel,
                                 struct twill_error *error)
{
    int answer = 1;
    while (answer > 0 && !channel->out.refused && twill_tcp_receives(channel)) /* behind messages */
        TWILL_TRY(error, answer = twill_tcp_recv(t, channel, error));
    if (!channel->out.refused)
        TWILL_TRY(error, twill_tcp_recv_refusal(t, channel, error));
    return TWILL_OK;
}

int twill_tcp_send_lost(struct twill_tcp *t, struct twill_tcp_channel *channel, int why,
                        struct twill_error *error)
{
    if (!channel->out.refused && channel->out.queue.head != NULL)
        TWILL_TRY(error, find_refusal(t, channel, error));
    if (!channel->out.refused)
        return twill_tcp_lost(channel, why, error);
    if (channel->records != NULL)
        twill_tcp_records_drop(channel->records);
    channel->out.gone = 0; /* a later SEND begins with its own header, and fails */
    channel->out.refused = false;
    t->cut_off = true;
    twill_transfer_pop(&channel->out.queue, TWILL_ERR_MISMATCH);
    return 1;
}

static int send_first(struct twill_tcp *t, struct twill_tcp_channel *channel, size_t *moved,
                      struct twill_error *error)
{
    struct twill_transfer *request = channel->out.queue.head;
    if (channel->out.gone == 0) {
        channel->out.header = (struct twill_tcp_header){.signature = request->signature,
                                                        .sequence = channel->out.sent,
                                                        .bytes = request->bytes,
                                                        .kind = TWILL_TCP_MESSAGE,
                                                        .call = request->call};
        twill_entry_pack(&request->last, &t->start, &channel->out.header.entry);
    }
    int done =
        write_channel(t, channel, &channel->out.header, request->buffer, request->bytes, moved);
    if (done < 0)
        return twill_tcp_send_lost(t, channel, errno, error);
    if (done == 0)
        return 0;
    channel->out.sent++;
    twill_counter_add(&t->base.counters.messages, 1);
    twill_counter_add(&t->base.counters.bytes, request->bytes);
    twill_transfer_pop(&channel->out.queue, channel->out.refused ? TWILL_ERR_MISMATCH : TWILL_OK);
    channel->out.refused = false;
    return 1;
}

static int send_refusal(struct twill_tcp *t, struct twill_tcp_channel *channel, size_t *moved,
                        struct twill_error *error)
{
    int done = write_channel(t, channel, &channel->out.refusal, NULL, 0, moved);
    if (done < 0)
        return twill_tcp_lost(channel, errno, error);
    channel->out.refusing = done == 0 && channel->out.gone > 0;
    channel->out.refuses = done == 0;
    return done;
}

int twill_tcp_send(struct twill_tcp *t, struct twill_tcp_channel *channel,
                   struct twill_error *error)
{
    int finished = 0;
    size_t moved = 0;
    while (channel->out.queue.head != NULL || channel->out.refuses) {
        bool refuses = channel->out.refusing || (channel->out.refuses && channel->out.gone == 0);
        int done = refuses ? send_refusal(t, channel, &moved, error)
                           : send_first(t, channel, &moved, error);
        if (done < 0)
            return done;
        if (done == 0)
            break;
        finished += !refuses;
        if (TWILL_UNLIKELY(t->cut_off))
            break;
    }
    return finished + (moved > 0);
}
