/* SPDX-License-Identifier: Apache-2.0 */
/* Sending: header and payload in one system call, from the user's buffer. Receiving reads only what
 * a posted RECV asks for, so that headers are compared first, and TCP throttles an early sender. */
#include "fabric/tcp/tcp.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

/* Send the header and payload from byte channel->out.gone on, with one call. Returns 1 if the
 * kernel has all of it then, 0 if bytes are left, or -1 with errno. Adds the bytes sent to *moved
 * and out.gone, which becomes 0 at the end. */
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
            return 0; /* the other direction is next */
    }
    /* Records that the kernel has not taken would stay here if this rank made no other call. */
    if (TWILL_UNLIKELY(channel->records != NULL && twill_tcp_records_unsent(channel->records)))
        return 0;
    channel->out.gone = 0;
    twill_counter_add(&t->base.counters.header_bytes, head);
    return 1;
}

/* Receive what the peer sent before it closed, messages into their RECVs, until a refusal of the
 * current SEND sets out.refused. Returns TWILL_OK also if there is none, or the error of
 * receiving. */
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

/* Send the first SEND in the queue. Returns 1 if it ended, with TWILL_ERR_MISMATCH if the peer has
 * refused it. Returns 0 if bytes are left to send, or a negative status. Adds the bytes sent to
 * *moved. */
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

/* Send the refusal of a message, and add the bytes sent to *moved. Returns 1 if it is all sent, 0
 * if bytes are left, or a negative status. */
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

#define HEADER sizeof(struct twill_tcp_header)
enum { EMPTY = TWILL_TCP_EMPTY, SHORT = TWILL_TCP_SHORT };
enum { FULL = TWILL_TCP_FULL, FAILED = TWILL_TCP_FAILED };

/* Read up to `bytes` and set *got to their number. Returns EMPTY (none), SHORT (some), FULL (all),
 * or FAILED with the errno in reader->why, 0 if the connection has ended. */
static int read_bytes(struct twill_tcp_channel *channel, struct twill_tcp_reader *reader, void *to,
                      size_t bytes, size_t *got)
{
    ssize_t n = TWILL_LIKELY(channel->records == NULL)
                    ? recv(channel->fd, to, bytes, MSG_DONTWAIT)
                    : twill_tcp_records_read(channel->records, to, bytes, reader->error);
    *got = n > 0 ? (size_t)n : 0;
    if (n > 0)
        return (size_t)n == bytes ? FULL : SHORT;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        channel->readable = channel->readable && errno == EINTR; /* EINTR causes no new edge */
        return EMPTY;
    }
    reader->why = n == 0 ? 0 : errno;
    return FAILED;
}

int twill_tcp_read_failed(struct twill_tcp *t, struct twill_tcp_channel *channel, int why,
                          struct twill_error *error)
{
    if (why == EBADMSG)
        return TWILL_ERR_FABRIC;
    if (!channel->out.refused)
        return twill_tcp_lost(channel, why, error);
    TWILL_TRY(error, twill_tcp_send_lost(t, channel, why, error)); /* it closed after its refusal */
    return SHORT;
}

/* Read as read_bytes() does, but handle a failure. Returns EMPTY, SHORT, FULL or a negative status.
 * If the connection has ended after the peer refused the current SEND, ends that SEND and returns
 * SHORT with *got 0. */
static int read_some(struct twill_tcp *t, struct twill_tcp_channel *channel, void *to, size_t bytes,
                     size_t *got, struct twill_error *error)
{
    struct twill_tcp_reader reader = {.error = error};
    int answer = read_bytes(channel, &reader, to, bytes, got);
    return answer == FAILED ? twill_tcp_read_failed(t, channel, reader.why, error) : answer;
}

/* Return how many bytes in the receive buffer are not processed. */
static size_t buffered(const struct twill_tcp_channel *channel)
{
    return channel->in.end - channel->in.begin;
}

/* Count bytes of the receive buffer as processed. */
static void consume(struct twill_tcp_channel *channel, size_t bytes)
{
    channel->in.begin += bytes;
    if (channel->in.begin == channel->in.end)
        channel->in.begin = channel->in.end = 0;
}

/* Read a header, or as much as fits if the first RECV is small, into the receive buffer. Returns
 * EMPTY, SHORT or FULL, by how much was read, or a negative status. */
static int read_header(struct twill_tcp *t, struct twill_tcp_channel *channel,
                       struct twill_error *error)
{
    size_t got, needed = HEADER - buffered(channel);
    const struct twill_transfer *next = channel->in.queue.head;
    if (channel->in.begin > 0) {
        memmove(channel->in.bytes, channel->in.bytes + channel->in.begin, buffered(channel));
        channel->in.end -= channel->in.begin;
        channel->in.begin = 0;
    }
    if (next != NULL && next->bytes <= TWILL_TCP_RX_BYTES)
        needed = HEADER + TWILL_TCP_RX_BYTES - channel->in.end;
    int answer = read_some(t, channel, channel->in.bytes + channel->in.end, needed, &got, error);
    channel->in.end += got;
    return answer;
}

/* Refuse the message whose header was read, as it does not match the first RECV. This completes the
 * RECV with TWILL_ERR_MISMATCH, and lets the payload be discarded and a refusal be sent. */
static void refuse_message(struct twill_tcp_channel *channel, const struct twill_tcp_header *header)
{
    struct twill_transfer *request = channel->in.queue.head;
    channel->in.skip = header->bytes;
    if (!channel->out.refusing) {
        channel->out.refuses = true;
        channel->out.refusal = (struct twill_tcp_header){.signature = request->signature,
                                                         .sequence = header->sequence,
                                                         .bytes = request->bytes,
                                                         .kind = TWILL_TCP_REFUSED,
                                                         .call = request->call};
    }
    request->peer_call = header->call;
    twill_transfer_pop(&channel->in.queue, TWILL_ERR_MISMATCH);
}

/* Record that the peer has refused the SEND that is under way. Do nothing if the refused message
 * was sent to its end before, as its SEND is then over. */
static void refusal_read(struct twill_tcp_channel *channel, const struct twill_tcp_header *header)
{
    struct twill_transfer *first = channel->out.queue.head;
    if (first == NULL || channel->out.gone == 0 || header->sequence != channel->out.sent)
        return; /* that message was sent completely */
    first->peer_signature = header->signature;
    first->peer_bytes = header->bytes;
    first->peer_call = header->call;
    channel->out.refused = true;
}

/* Process the header in the receive buffer. Returns 1 if it was a refusal or the header of a
 * message, which is then taken or, if it does not match, refused and counted in *finished. Returns
 * 0 if it waits for a RECV to be posted, or a negative status. */
static int channel_take_header(const struct twill_tcp *t, struct twill_tcp_channel *channel,
                               int *finished, struct twill_error *error)
{
    struct twill_tcp_header header;
    memcpy(&header, channel->in.bytes + channel->in.begin, sizeof(header));
    if (header.kind == TWILL_TCP_REFUSED) {
        consume(channel, HEADER);
        refusal_read(channel, &header);
        return 1;
    }
    if (header.kind != TWILL_TCP_MESSAGE || header.sequence != channel->in.received)
        return TWILL_FAIL_RANK(error, TWILL_ERR_FABRIC, channel->peer->rank,
                               "tcp: %s sent something that is not a message (lane %u, number %u, "
                               "kind %u)",
                               channel->peer->name, channel->number, header.sequence,
                               (unsigned)header.kind);
    if (channel->in.queue.head == NULL)
        return 0;
    consume(channel, HEADER);
    channel->in.received++;
    if (twill_transfer_matches(channel->in.queue.head, header.signature, header.bytes)) {
        channel->in.taking = true;
        channel->in.queue.head->last =
            twill_entry_unpack(&header.entry, &t->start, &channel->peer->clock);
        return 1;
    }
    refuse_message(channel, &header);
    ++*finished;
    return 1;
}

/* Discard payload of a refused message. Returns EMPTY if nothing was read, SHORT if the socket was
 * emptied, FULL if it may have more, or a negative status. */
static int skip_payload(struct twill_tcp *t, struct twill_tcp_channel *channel,
                        struct twill_error *error)
{
    size_t got = twill_min(channel->in.skip, buffered(channel));
    int answer = FULL;
    consume(channel, got);
    channel->in.skip -= got;
    if (channel->in.skip == 0)
        return FULL;
    answer = read_some(t, channel, t->scratch, twill_min(channel->in.skip, t->scratch_bytes), &got,
                       error);
    channel->in.skip -= got;
    return answer;
}

/* Store payload in the first RECV's buffer. Results are those of twill_tcp_read_payload(). */
static int store_payload(struct twill_tcp_channel *channel, struct twill_tcp_reader *reader)
{
    struct twill_transfer *request = channel->in.queue.head;
    unsigned char *to = request->buffer;
    size_t got = twill_min(request->bytes - request->moved, buffered(channel));
    if (got > 0) {
        memcpy(to + request->moved, channel->in.bytes + channel->in.begin, got);
        consume(channel, got);
        request->moved += got;
        reader->copied += got;
    }
    if (request->moved == request->bytes)
        return FULL;
    size_t most = twill_min(request->bytes - request->moved, reader->once);
    int answer = read_bytes(channel, reader, to + request->moved, most, &got);
    request->moved += got;
    return answer;
}

/* Reduce `data` into the request's buffer, behind what was reduced before. Until the data reaches
 * the end of the message, only multiples of TWILL_TCP_GRAIN bytes are used. Returns the bytes
 * used. */
static size_t reduce_buffered(struct twill_transfer *request, const unsigned char *data,
                              size_t bytes)
{
    size_t left = request->bytes - request->moved;
    size_t now = bytes >= left ? left : bytes & ~(size_t)(TWILL_TCP_GRAIN - 1);
    if (now > 0)
        request->reduce(request, request->moved, data, now);
    request->moved += now;
    return now;
}

/* Move the unread bytes of the receive buffer to its start, unless they begin at a multiple of
 * TWILL_TCP_ALIGNED bytes. A preceding message may have an odd length, and reduce() needs aligned
 * operands. */
static void align_rx(struct twill_tcp_channel *channel)
{
    size_t have = buffered(channel);
    if (TWILL_LIKELY(channel->in.begin % TWILL_TCP_ALIGNED == 0))
        return;
    memmove(channel->in.bytes, channel->in.bytes + channel->in.begin, have);
    channel->in.begin = 0;
    channel->in.end = have;
}

/* Reduce payload from the receive buffer, then read more into scratch and reduce that. Leave less
 * than TWILL_TCP_GRAIN bytes in the receive buffer. Results are those of
 * twill_tcp_read_payload(). */
static int reduce_payload(struct twill_tcp_channel *channel, struct twill_tcp_reader *reader)
{
    struct twill_transfer *request = channel->in.queue.head;
    align_rx(channel);
    consume(channel,
            reduce_buffered(request, channel->in.bytes + channel->in.begin, buffered(channel)));
    if (request->moved == request->bytes)
        return FULL;
    size_t have = buffered(channel), got, left = request->bytes - request->moved;
    size_t most = twill_min(left, reader->scratch_bytes);
    memcpy(reader->scratch, channel->in.bytes + channel->in.begin, have);
    int answer = read_bytes(channel, reader, reader->scratch + have, most - have, &got);
    if (got == 0)
        return answer;
    size_t reduced = reduce_buffered(request, reader->scratch, have + got);
    reader->copied += have;
    channel->in.begin = 0;
    channel->in.end = have + got - reduced;
    memcpy(channel->in.bytes, reader->scratch + reduced, channel->in.end);
    return answer;
}

int twill_tcp_read_payload(struct twill_tcp_channel *channel, struct twill_tcp_reader *reader)
{
    return channel->in.queue.head->reduce != NULL ? reduce_payload(channel, reader)
                                                  : store_payload(channel, reader);
}

/* Read payload of the first RECV into its buffer, or reduce it. Returns as twill_tcp_read_payload()
 * does, or a negative status. */
static int take_payload(struct twill_tcp *t, struct twill_tcp_channel *channel,
                        struct twill_error *error)
{
    struct twill_tcp_reader reader = {t->scratch, t->scratch_bytes, t->once, .error = error};
    int answer = twill_tcp_read_payload(channel, &reader);
    twill_counter_add(&t->base.counters.copied, reader.copied);
    return answer == FAILED ? twill_tcp_read_failed(t, channel, reader.why, error) : answer;
}

/* Do the next step of receiving on a channel, and add the RECVs that it completes to *finished.
 * Returns EMPTY if nothing was read, SHORT if the socket was emptied, FULL if it may have more, or
 * a negative status. */
static int take_channel(struct twill_tcp *t, struct twill_tcp_channel *channel, int *finished,
                        struct twill_error *error)
{
    int answer = FULL;
    bool takes = !channel->in.taking;
    if (channel->in.skip > 0)
        return skip_payload(t, channel, error);
    if (takes) {
        if (buffered(channel) < HEADER)
            answer = read_header(t, channel, error);
        if (answer < 0 || buffered(channel) < HEADER)
            return answer;
        TWILL_TRY(error, channel_take_header(t, channel, finished, error));
        if (!channel->in.taking)
            return FULL;
    }
    struct twill_transfer *request = channel->in.queue.head;
    if (TWILL_UNLIKELY(t->shares != NULL) && takes && request->bytes >= TWILL_TCP_SHARED)
        return SHORT; /* the next poll may share the payload */
    if (request->moved < request->bytes) {
        bool there =
            buffered(channel) >= twill_min(request->bytes - request->moved, TWILL_TCP_GRAIN);
        if (answer != SHORT || there) { /* else the socket is empty */
            int more = take_payload(t, channel, error);
            answer = more < answer ? more : answer;
        }
    }
    if (request->moved == request->bytes) {
        channel->in.taking = false;
        twill_transfer_pop(&channel->in.queue, TWILL_OK);
        ++*finished;
        return buffered(channel) >= HEADER ? FULL : answer;
    }
    return answer;
}

int twill_tcp_recv(struct twill_tcp *t, struct twill_tcp_channel *channel,
                   struct twill_error *error)
{
    int finished = 0, moved = 0;
    bool refused = channel->out.refused;
    for (int turn = 0; turn < TWILL_TCP_TURNS && twill_tcp_receives(channel); turn++) {
        int answer = take_channel(t, channel, &finished, error);
        if (answer < 0)
            return answer;
        moved |= answer != EMPTY;
        if (answer != FULL || channel->out.refused != refused) /* the refused SEND goes first */
            break;
    }
    return finished + moved;
}

int twill_tcp_recv_refusal(struct twill_tcp *t, struct twill_tcp_channel *channel,
                           struct twill_error *error)
{
    int finished = 0;
    if (channel->in.taking || channel->in.queue.head != NULL || channel->in.skip > 0)
        return 0; /* twill_tcp_recv() will find it */
    if (buffered(channel) < HEADER) {
        int answer = read_header(t, channel, error);
        if (answer < 0 || buffered(channel) < HEADER)
            return answer < 0 ? answer : t->cut_off;
    }
    return channel_take_header(t, channel, &finished, error);
}

/* Visit the message at the head of a channel, if no RECV waits for it. Leaves errors for later. */
static void visit_early(struct twill_tcp *t, struct twill_tcp_channel *channel,
                        twill_early_fn visit, void *user)
{
    struct twill_tcp_header header;
    if (channel->state != TWILL_TCP_OPEN || channel->in.taking || twill_tcp_receives(channel))
        return;
    if (buffered(channel) < HEADER && !twill_tcp_sends(channel)) /* else sending looks for it */
        (void)read_header(t, channel, NULL);
    if (buffered(channel) < HEADER)
        return;
    memcpy(&header, channel->in.bytes + channel->in.begin, sizeof(header));
    if (header.kind == TWILL_TCP_MESSAGE && header.sequence == channel->in.received)
        visit(user, channel->peer->rank, &header.call);
}

void twill_tcp_early(struct twill_transport *transport, bool all, twill_early_fn visit, void *user)
{
    struct twill_tcp *t = (struct twill_tcp *)transport;
    (void)all;
    if (t->failed != TWILL_OK || twill_tcp_common_adopt(t, NULL) < 0)
        return;
    for (uint32_t r = 0; r < t->size; r++)
        for (unsigned l = 0; t->peers[r] != NULL && l < TWILL_LANES; l++)
            visit_early(t, &t->peers[r]->channels[l], visit, user);
}
