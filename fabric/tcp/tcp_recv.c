/* SPDX-License-Identifier: Apache-2.0 */
/* Receiving: reads no more than a posted RECV asks for, so that nothing is stored before the
 * headers are compared, and TCP throttles a sender that is early. */
#include "fabric/tcp/tcp.h"

#include <errno.h>
#include <string.h>

#define HEADER sizeof(struct twill_tcp_header)
/* Most reads of one lane before the next lane's turn. */
#define RECV_TURNS 8

/* Results of a read besides errors. SHORT: the socket is empty now. */
enum { EMPTY = 0, SHORT = 1, FULL = 2 };

/* Read up to `bytes`; *got counts them. */
static int read_some(struct twill_tcp *t, struct twill_tcp_lane *lane, void *to, size_t bytes,
                     size_t *got, struct twill_error *error)
{
    ssize_t n = TWILL_LIKELY(lane->records == NULL)
                    ? recv(lane->fd, to, bytes, MSG_DONTWAIT)
                    : twill_tcp_protected_read(lane, to, bytes, error);
    *got = n > 0 ? (size_t)n : 0;
    if (n > 0)
        return (size_t)n == bytes ? FULL : SHORT;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        lane->readable = lane->readable && errno == EINTR; /* EINTR causes no new edge */
        return EMPTY;
    }
    if (n < 0 && errno == EBADMSG)
        return TWILL_ERR_FABRIC;
    int why = n == 0 ? 0 : errno;
    if (!lane->out.refused)
        return twill_tcp_lost(lane, why, error);
    TWILL_TRY(error, twill_tcp_send_lost(t, lane, why, error)); /* it closed after its refusal */
    return SHORT;
}

static size_t buffered(const struct twill_tcp_lane *lane)
{
    return lane->in.end - lane->in.begin;
}

static void consume(struct twill_tcp_lane *lane, size_t bytes)
{
    lane->in.begin += bytes;
    if (lane->in.begin == lane->in.end)
        lane->in.begin = lane->in.end = 0;
}

/* Read a header into the receive buffer; for a small message, also its payload and more. */
static int read_header(struct twill_tcp *t, struct twill_tcp_lane *lane, struct twill_error *error)
{
    size_t got, needed = HEADER - buffered(lane);
    const struct twill_transfer *next = lane->in.queue.head;
    if (lane->in.begin > 0) {
        memmove(lane->in.bytes, lane->in.bytes + lane->in.begin, buffered(lane));
        lane->in.end -= lane->in.begin;
        lane->in.begin = 0;
    }
    if (next != NULL && next->bytes <= TWILL_TCP_RX_BYTES)
        needed = HEADER + TWILL_TCP_RX_BYTES - lane->in.end;
    int answer = read_some(t, lane, lane->in.bytes + lane->in.end, needed, &got, error);
    lane->in.end += got;
    return answer;
}

/* Refuse the message whose header was read: it does not match the first RECV. */
static void refuse_message(struct twill_tcp_lane *lane, const struct twill_tcp_header *header)
{
    struct twill_transfer *request = lane->in.queue.head;
    lane->in.skip = header->bytes;
    if (!lane->out.refusing) {
        lane->out.refuses = true;
        lane->out.refusal = (struct twill_tcp_header){.signature = request->signature,
                                                      .sequence = header->sequence,
                                                      .bytes = request->bytes,
                                                      .kind = TWILL_TCP_REFUSED,
                                                      .call = request->call};
    }
    request->peer_call = header->call;
    twill_transfer_pop(&lane->in.queue, TWILL_ERR_MISMATCH);
}

static void refusal_read(struct twill_tcp_lane *lane, const struct twill_tcp_header *header)
{
    struct twill_transfer *first = lane->out.queue.head;
    if (first == NULL || lane->out.gone == 0 || header->sequence != lane->out.sent)
        return; /* that message was sent completely */
    first->peer_signature = header->signature;
    first->peer_bytes = header->bytes;
    first->peer_call = header->call;
    lane->out.refused = true;
}

/* Process the header in the receive buffer. Returns 0 if no RECV is posted for it, else 1. */
static int lane_take_header(const struct twill_tcp *t, struct twill_tcp_lane *lane, int *finished,
                            struct twill_error *error)
{
    struct twill_tcp_header header;
    memcpy(&header, lane->in.bytes + lane->in.begin, sizeof(header));
    if (header.kind == TWILL_TCP_REFUSED) {
        consume(lane, HEADER);
        refusal_read(lane, &header);
        return 1;
    }
    if (header.kind != TWILL_TCP_MESSAGE || header.sequence != lane->in.received)
        return TWILL_FAIL_RANK(error, TWILL_ERR_FABRIC, lane->peer->rank,
                               "tcp: %s sent something that is not a message (lane %u, number %u, "
                               "kind %u)",
                               lane->peer->name, lane->number, header.sequence,
                               (unsigned)header.kind);
    if (lane->in.queue.head == NULL)
        return 0;
    consume(lane, HEADER);
    lane->in.received++;
    if (twill_transfer_matches(lane->in.queue.head, header.signature, header.bytes)) {
        lane->in.taking = true;
        lane->in.queue.head->last =
            twill_entry_unpack(&header.entry, &t->start, &lane->peer->clock);
        return 1;
    }
    refuse_message(lane, &header);
    ++*finished;
    return 1;
}

static int skip_payload(struct twill_tcp *t, struct twill_tcp_lane *lane, struct twill_error *error)
{
    size_t got = twill_min(lane->in.skip, buffered(lane));
    int answer = FULL;
    consume(lane, got);
    lane->in.skip -= got;
    if (lane->in.skip == 0)
        return FULL;
    answer =
        read_some(t, lane, t->scratch, twill_min(lane->in.skip, TWILL_TCP_SCRATCH), &got, error);
    lane->in.skip -= got;
    return answer;
}

/* Store payload in the RECV's buffer. */
static int store_payload(struct twill_tcp *t, struct twill_tcp_lane *lane,
                         struct twill_error *error)
{
    struct twill_transfer *request = lane->in.queue.head;
    unsigned char *to = request->buffer;
    size_t got = twill_min(request->bytes - request->moved, buffered(lane));
    if (got > 0) {
        memcpy(to + request->moved, lane->in.bytes + lane->in.begin, got);
        consume(lane, got);
        request->moved += got;
        twill_counter_add(&t->base.counters.copied, got);
    }
    if (request->moved == request->bytes)
        return FULL;
    size_t most = twill_min(request->bytes - request->moved, t->once);
    int answer = read_some(t, lane, to + request->moved, most, &got, error);
    request->moved += got;
    return answer;
}

/* Reduce whole grains of `data`, or all of it at the end of the message. Returns the bytes used. */
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

/* Align the receive buffer for reading operands: a preceding message may have had an odd length. */
static void align_rx(struct twill_tcp_lane *lane)
{
    size_t have = buffered(lane);
    if (TWILL_LIKELY(lane->in.begin % TWILL_TCP_ALIGNED == 0))
        return;
    memmove(lane->in.bytes, lane->in.bytes + lane->in.begin, have);
    lane->in.begin = 0;
    lane->in.end = have;
}

/* Reduce payload from the receive buffer, then through the scratch buffer; a remainder smaller than
 * a grain stays in the receive buffer. */
static int reduce_payload(struct twill_tcp *t, struct twill_tcp_lane *lane,
                          struct twill_error *error)
{
    struct twill_transfer *request = lane->in.queue.head;
    align_rx(lane);
    consume(lane, reduce_buffered(request, lane->in.bytes + lane->in.begin, buffered(lane)));
    if (request->moved == request->bytes)
        return FULL;
    size_t have = buffered(lane), got, left = request->bytes - request->moved;
    size_t most = twill_min(left, TWILL_TCP_SCRATCH);
    memcpy(t->scratch, lane->in.bytes + lane->in.begin, have);
    int answer = read_some(t, lane, t->scratch + have, most - have, &got, error);
    if (got == 0)
        return answer;
    size_t reduced = reduce_buffered(request, t->scratch, have + got);
    twill_counter_add(&t->base.counters.copied, have);
    lane->in.begin = 0;
    lane->in.end = have + got - reduced;
    memcpy(lane->in.bytes, t->scratch + reduced, lane->in.end);
    return answer;
}

/* Do the next step of receiving on a lane. */
static int take_lane(struct twill_tcp *t, struct twill_tcp_lane *lane, int *finished,
                     struct twill_error *error)
{
    int answer = FULL;
    if (lane->in.skip > 0)
        return skip_payload(t, lane, error);
    if (!lane->in.taking) {
        if (buffered(lane) < HEADER)
            answer = read_header(t, lane, error);
        if (answer < 0 || buffered(lane) < HEADER)
            return answer;
        TWILL_TRY(error, lane_take_header(t, lane, finished, error));
        if (!lane->in.taking)
            return FULL;
    }
    struct twill_transfer *request = lane->in.queue.head;
    if (request->moved < request->bytes) {
        bool there = buffered(lane) >= twill_min(request->bytes - request->moved, TWILL_TCP_GRAIN);
        if (answer != SHORT || there) { /* else the socket is empty */
            int more = request->reduce != NULL ? reduce_payload(t, lane, error)
                                               : store_payload(t, lane, error);
            answer = more < answer ? more : answer;
        }
    }
    if (request->moved == request->bytes) {
        lane->in.taking = false;
        twill_transfer_pop(&lane->in.queue, TWILL_OK);
        ++*finished;
        return buffered(lane) >= HEADER ? FULL : answer;
    }
    return answer;
}

int twill_tcp_recv(struct twill_tcp *t, struct twill_tcp_lane *lane, struct twill_error *error)
{
    int finished = 0, moved = 0;
    bool refused = lane->out.refused;
    for (int turn = 0; turn < RECV_TURNS && twill_tcp_receives(lane); turn++) {
        int answer = take_lane(t, lane, &finished, error);
        if (answer < 0)
            return answer;
        moved |= answer != EMPTY;
        if (answer != FULL || lane->out.refused != refused) /* the refused SEND goes first */
            break;
    }
    return finished + moved;
}

int twill_tcp_recv_refusal(struct twill_tcp *t, struct twill_tcp_lane *lane,
                           struct twill_error *error)
{
    int finished = 0;
    if (lane->in.taking || lane->in.queue.head != NULL || lane->in.skip > 0)
        return 0; /* twill_tcp_recv() will find it */
    if (buffered(lane) < HEADER) {
        int answer = read_header(t, lane, error);
        if (answer < 0 || buffered(lane) < HEADER)
            return answer < 0 ? answer : t->cut_off;
    }
    return lane_take_header(t, lane, &finished, error);
}

/* Visit the message at the head of a lane, if no RECV waits for it. An error of the connection is
 * left to the next request on it. */
static void visit_early(struct twill_tcp *t, struct twill_tcp_lane *lane, twill_early_fn visit,
                        void *user)
{
    struct twill_tcp_header header;
    if (lane->state != TWILL_TCP_OPEN || lane->in.taking || twill_tcp_receives(lane))
        return;
    if (buffered(lane) < HEADER && !twill_tcp_sends(lane)) /* else sending looks for refusals */
        (void)read_header(t, lane, NULL);
    if (buffered(lane) < HEADER)
        return;
    memcpy(&header, lane->in.bytes + lane->in.begin, sizeof(header));
    if (header.kind == TWILL_TCP_MESSAGE && header.sequence == lane->in.received)
        visit(user, lane->peer->rank, &header.call);
}

void twill_tcp_early(struct twill_transport *transport, bool all, twill_early_fn visit, void *user)
{
    struct twill_tcp *t = (struct twill_tcp *)transport;
    (void)all;
    if (t->failed != TWILL_OK || twill_tcp_common_adopt(t, NULL) < 0)
        return;
    for (uint32_t r = 0; r < t->size; r++)
        for (unsigned l = 0; t->peers[r] != NULL && l < TWILL_LANES; l++)
            visit_early(t, &t->peers[r]->lanes[l], visit, user);
}
