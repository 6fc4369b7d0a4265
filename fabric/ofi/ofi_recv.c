/* SPDX-License-Identifier: Apache-2.0 */
/* Receiving: one header per message, in order, then the chunks of a large message, in order. */
#include "fabric/ofi/ofi.h"

#include <string.h>

#define PROVIDER_EAGER 16384u /* bytes that most providers send without a rendezvous */
#define EARLY_PEERS    32u    /* most ranks of a communicator of which all are looked at */

/* Return whether the payload is too large to be sent without a clear to send. */
static bool transfer_is_large(const struct twill_ofi *t, const struct twill_transfer *request)
{
    return request->bytes > t->endpoint->limits.split;
}

void twill_ofi_recv_add(struct twill_ofi *t, struct twill_ofi_channel *channel,
                        struct twill_transfer *request)
{
    twill_ofi_private(request)->sequence = channel->received;
    channel->received += twill_ofi_has_tail(t, request) ? 2 : 1;
    twill_transfer_push(&channel->in, request);
    if (transfer_is_large(t, request) && channel->next_large == NULL)
        channel->next_large = request;
}

/* Post header receives until the channel has posted `wanted` since it began, or no operation is
 * free. Returns 1 then, 0 if the provider is busy, or a negative status. */
static int post_headers(struct twill_ofi *t, struct twill_ofi_channel *channel, uint32_t wanted,
                        struct twill_error *error)
{
    void *desc = channel->peer->mr == NULL ? NULL : fi_mr_desc(channel->peer->mr);
    size_t most = sizeof(struct twill_ofi_header) + t->endpoint->limits.eager;
    while ((int32_t)(wanted - channel->awaited) > 0) {
        struct twill_ofi_op *op = &channel->header_in[channel->awaited % TWILL_OFI_HEADERS];
        if (op->posted || op->done)
            return 1;
        int done = twill_ofi_recv(t, op, op->buffer, most, desc, error);
        if (done != 1)
            return done;
        channel->awaited++;
    }
    return 1;
}

/* Return where the provider writes the data of a RECV, which is its bounce or buffer. */
static unsigned char *landing(const struct twill_transfer *request)
{
    return request->reduce != NULL ? request->bounce : request->buffer;
}

/* Return the bytes of the chunks of a RECV. Most providers do a rendezvous above some 16 KiB, so a
 * few smaller chunks are faster than one (32 KiB over tcp;ofi_rxm in 28 us, not 39). */
static size_t chunk_of(const struct twill_ofi *t, const struct twill_transfer *request)
{
    size_t most = t->endpoint->limits.max_message;
    if (t->endpoint->limits.slot != 0)
        return t->endpoint->limits.slot;
    if (request->bytes <= 3 * PROVIDER_EAGER && !t->endpoint->limits.preposts)
        return twill_min(most, PROVIDER_EAGER);
    return request->reduce == NULL
               ? most
               : twill_ofi_reduced_chunk(most, t->endpoint->params.piece, request->bytes);
}

/* Post receives for the next chunks of a RECV, until all are posted or TWILL_OFI_CHUNKS are in
 * flight. Registers the memory, if needed, before the first one. Returns 1 then, 0 if the provider
 * is busy, or a negative status. */
static int recv_post_chunks(struct twill_ofi *t, struct twill_ofi_channel *channel,
                            struct twill_transfer *request, struct twill_error *error)
{
    struct twill_ofi_private *private = twill_ofi_private(request);
    if (private->chunk == 0) {
        private->chunk = chunk_of(t, request);
        if (t->endpoint->limits.slot == 0)
            TWILL_TRY(error,
                      twill_ofi_hold(t, landing(request), request->bytes, &private->memory, error));
    }
    while (private->posted < request->bytes &&
           channel->chunks_posted - channel->chunks_taken < TWILL_OFI_CHUNKS) {
        struct twill_ofi_op *op = &channel->chunk_in[channel->chunks_posted % TWILL_OFI_CHUNKS];
        size_t bytes = twill_ofi_chunk_bytes(request->bytes, private->posted, private->chunk);
        int done = t->endpoint->limits.slot != 0
                       ? twill_ofi_expect(t, op, bytes, error)
                       : twill_ofi_recv(t, op, landing(request) + private->posted, bytes,
                                        twill_ofi_desc(private->memory), error);
        if (done != 1)
            return done;
        op->request = request;
        private->posted += bytes;
        channel->chunks_posted++;
    }
    return 1;
}

/* Send the control message *header with the current credit, which this fills in. Returns 1 if it
 * was sent, 0 if the provider is busy, or a negative status. */
static int send_control(struct twill_ofi *t, struct twill_ofi_channel *channel,
                        struct twill_ofi_header *header, struct twill_error *error)
{
    bool finished;
    header->consumed = channel->consumed;
    header->emptied = t->endpoint->limits.slot != 0 ? channel->chunks_taken : 0;
    header->key = twill_ofi_window_key(channel);
    int done = twill_ofi_send_small(t, channel, header, NULL, TWILL_OFI_CONTROL, &finished, error);
    if (done != 1)
        return done;
    channel->told.consumed = header->consumed;
    channel->told.chunks = header->emptied;
    return done;
}

/* Send a clear to send for a RECV. Returns 1 if it was sent, 0 if busy, or a negative status. */
static int send_clear(struct twill_ofi *t, struct twill_ofi_channel *channel,
                      struct twill_transfer *request, struct twill_error *error)
{
    struct twill_ofi_private *private = twill_ofi_private(request);
    struct twill_ofi_header header = {.signature = request->signature,
                                      .sequence = private->sequence,
                                      .bytes = request->bytes,
                                      .chunk = (uint32_t) private->chunk,
                                      .kind = TWILL_OFI_CLEAR_TO_SEND};
    int done = send_control(t, channel, &header, error);
    if (done == 1) {
        private->cleared = true;
        channel->cleared++;
    }
    return done;
}

/* Post the chunks of large RECVs, in order. Send a clear to send for each once its first chunk is
 * posted, to at most TWILL_OFI_CLEAR at a time. Returns 0 if the provider is busy, else 1 or a
 * negative status. */
static int clear_large(struct twill_ofi *t, struct twill_ofi_channel *channel,
                       struct twill_error *error)
{
    struct twill_transfer *request;
    while ((request = channel->next_large) != NULL) {
        struct twill_ofi_private *private = twill_ofi_private(request);
        if (!private->cleared && channel->cleared == TWILL_OFI_CLEAR)
            return 1;
        int done = recv_post_chunks(t, channel, request, error);
        if (done < 0)
            return done;
        if (!private->cleared && private->posted > 0) {
            int sent = send_clear(t, channel, request, error);
            if (sent != 1)
                return sent;
        }
        if (private->posted < request->bytes)
            return done;
        do
            request = request->next;
        while (request != NULL && !transfer_is_large(t, request));
        channel->next_large = request;
    }
    return 1;
}

/* Compare a header, which arrived in a message of `bytes`, with its RECV. Returns 1 if signature
 * and bytes match. If not, sets request->peer_signature and peer_bytes and returns 0. Returns
 * TWILL_ERR_FABRIC if the provider broke the order or the content. */
static int compare_header(struct twill_ofi *t, struct twill_ofi_channel *channel,
                          struct twill_transfer *request, const struct twill_ofi_header *header,
                          size_t bytes, struct twill_error *error)
{
    const struct twill_ofi_limits *limits = &t->endpoint->limits;
    bool large = header->kind == TWILL_OFI_LARGE;
    size_t follows = large ? 0 : twill_min((size_t)header->bytes, limits->eager);
    if (bytes < sizeof(*header) || header->sequence != twill_ofi_private(request)->sequence ||
        bytes - sizeof(*header) != follows || large != (header->bytes > limits->split))
        return TWILL_FAIL_RANK(error, TWILL_ERR_FABRIC, channel->peer->rank,
                               "ofi: message %u of %s, lane %u: a header of %zu bytes, kind %u, "
                               "number %u came: the provider broke order or content",
                               twill_ofi_private(request)->sequence, channel->peer->name,
                               channel->lane, bytes, header->kind, header->sequence);
    return twill_transfer_matches(request, header->signature, header->bytes);
}

/* Reduce or copy the next bytes of a RECV, and add them to request->moved. */
static void deliver_payload(struct twill_transfer *request, const unsigned char *data, size_t bytes)
{
    if (request->reduce != NULL)
        request->reduce(request, request->moved, data, bytes);
    else
        memcpy((unsigned char *)request->buffer + request->moved, data, bytes);
    request->moved += bytes;
}

/* Complete the channel's first RECV, `request`, with a status, and release its registration. */
static void finish_recv(struct twill_ofi *t, struct twill_ofi_channel *channel,
                        struct twill_transfer *request, twill_status status)
{
    twill_ofi_release(t, &twill_ofi_private(request)->memory);
    twill_transfer_pop(&channel->in, status);
}

/* Complete the channel's first RECV with TWILL_ERR_MISMATCH, and let the channel receive no more.
 * The receives of its chunks, which get no data, are cancelled. Its memory then stays registered
 * (channel->orphan). */
static void abandon_recv(struct twill_ofi *t, struct twill_ofi_channel *channel,
                         struct twill_transfer *request)
{
    channel->broken = true;
    channel->next_large = NULL;
    for (uint32_t i = 0; i < TWILL_OFI_CHUNKS; i++) {
        struct twill_ofi_op *op = &channel->chunk_in[i];
        if (op->request != request)
            continue;
        if (op->posted)
            fi_cancel(&t->endpoint->fi.ep->fid, &op->context);
        op->request = NULL;
        channel->orphan = twill_ofi_private(request)->memory;
    }
    if (channel->orphan != NULL)
        twill_ofi_private(request)->memory = NULL;
    finish_recv(t, channel, request, TWILL_ERR_MISMATCH);
}

/* Take the credit in a header, which is the next of its channel. Fails with TWILL_ERR_FABRIC if it
 * is for more than this rank has sent. */
static twill_status take_credit(struct twill_ofi *t, struct twill_ofi_channel *channel,
                                const struct twill_ofi_header *header, struct twill_error *error)
{
    channel->heard += (uint32_t)header->credit;
    TWILL_TRY(error, twill_ofi_acknowledge(channel, channel->heard, error));
    if (channel->headers_out.head != NULL)
        twill_ofi_stuck(t, channel);
    return TWILL_OK;
}

/* Deliver the next `bytes` of the payload of the channel's first RECV. Completes it and returns 1
 * if these are the last ones, else returns 0. */
static int take_eager(struct twill_ofi *t, struct twill_ofi_channel *channel,
                      struct twill_transfer *request, const unsigned char *data, size_t bytes)
{
    if (bytes > 0) {
        deliver_payload(request, data, bytes);
        twill_counter_add(&t->base.counters.copied, bytes);
    }
    if (request->moved < request->bytes)
        return 0;
    finish_recv(t, channel, request, TWILL_OK);
    return 1;
}

/* If the header for the channel's first RECV, `request`, has arrived, take it and set *moved. That
 * of a large RECV is taken only after its clear to send. If bytes and signature match, deliver its
 * payload. If not, complete the RECV with TWILL_ERR_MISMATCH. Returns 1 if the RECV is complete,
 * even so, 0 if not, or a negative status. */
static int header_take(struct twill_ofi *t, struct twill_ofi_channel *channel,
                       struct twill_transfer *request, bool *moved, struct twill_error *error)
{
    struct twill_ofi_op *op = &channel->header_in[channel->consumed % TWILL_OFI_HEADERS];
    struct twill_ofi_header header = {0};
    if (!op->done || channel->consumed == channel->awaited)
        return 0;
    if (transfer_is_large(t, request) && !twill_ofi_private(request)->cleared)
        return 0; /* the sender must get the clear to send in any case */
    memcpy(&header, op->buffer, twill_min(op->bytes, sizeof(header)));
    int same = compare_header(t, channel, request, &header, op->bytes, error);
    if (same < 0)
        return same;
    TWILL_TRY(error, take_credit(t, channel, &header, error));
    *moved = true;
    op->done = false;
    channel->consumed++;
    twill_ofi_private(request)->verified = true;
    if (same == 0) {
        request->peer_call = header.call;
        abandon_recv(t, channel, request);
        return 1;
    }
    request->last = twill_entry_unpack(&header.entry, &t->start, &channel->peer->clock);
    if (transfer_is_large(t, request))
        return 0;
    return take_eager(t, channel, request, op->buffer + sizeof(header),
                      twill_min(request->bytes, t->endpoint->limits.eager));
}

/* If the tail of the channel's first RECV, `request`, whose header was taken, has arrived, deliver
 * it and set *moved. Returns 1 if so, which completes the RECV, 0 if not, or TWILL_ERR_FABRIC if it
 * has another size. */
static int tail_take(struct twill_ofi *t, struct twill_ofi_channel *channel,
                     struct twill_transfer *request, bool *moved, struct twill_error *error)
{
    struct twill_ofi_op *op = &channel->header_in[channel->consumed % TWILL_OFI_HEADERS];
    size_t bytes = request->bytes - request->moved;
    if (!op->done || channel->consumed == channel->awaited)
        return 0;
    if (op->bytes != bytes)
        return TWILL_FAIL_RANK(error, TWILL_ERR_FABRIC, channel->peer->rank,
                               "ofi: message %u of %s, lane %u: a tail of %zu bytes came, %zu "
                               "expected: the provider broke order or content",
                               twill_ofi_private(request)->sequence, channel->peer->name,
                               channel->lane, op->bytes, bytes);
    *moved = true;
    op->done = false;
    channel->consumed++;
    return take_eager(t, channel, request, op->buffer, bytes);
}

/* Deliver a chunk of a RECV from the slot that it was written into. */
static void take_slot(struct twill_ofi *t, struct twill_transfer *request,
                      const unsigned char *slot, size_t bytes)
{
    deliver_payload(request, slot, bytes);
    twill_counter_add(&t->base.counters.copied, bytes);
}

/* Take the header and chunks that have arrived for the channel's first RECV, and set *moved if any
 * have. Returns 1 if the RECV completed, 0 if not, or a negative status. */
static int take_recv(struct twill_ofi *t, struct twill_ofi_channel *channel, bool *moved,
                     struct twill_error *error)
{
    struct twill_transfer *request = channel->in.head;
    if (request == NULL)
        return 0;
    if (!twill_ofi_private(request)->verified) {
        int finished = header_take(t, channel, request, moved, error);
        if (finished != 0 || !twill_ofi_private(request)->verified)
            return finished;
    }
    if (twill_ofi_has_tail(t, request))
        return tail_take(t, channel, request, moved, error);
    struct twill_ofi_private *private = twill_ofi_private(request);
    while (channel->chunks_taken != channel->chunks_posted) {
        struct twill_ofi_op *op = &channel->chunk_in[channel->chunks_taken % TWILL_OFI_CHUNKS];
        if (!op->done || op->request != request)
            break;
        if (t->endpoint->limits.slot != 0)
            take_slot(t, request, twill_ofi_emptied(t, channel), op->bytes);
        private->arrived += op->bytes;
        op->done = false;
        op->request = NULL;
        channel->chunks_taken++;
        *moved = true;
    }
    size_t waits = private->arrived - request->moved, left = request->bytes - request->moved;
    if (request->reduce == NULL)
        request->moved = private->arrived;
    else if (waits > 0 && waits >= twill_min(left, twill_ofi_reduced_together(
                                                       t->endpoint->params.piece, request->bytes)))
        deliver_payload(request, landing(request) + request->moved, waits);
    if (request->moved < request->bytes)
        return 0;
    channel->cleared--;
    finish_recv(t, channel, request, TWILL_OK);
    return 1;
}

/* Send the peer new credit if it has used half of it, or most slots. Returns 0 if that must be
 * tried again, as the provider is busy, else 1 or a negative status. */
static int send_credit(struct twill_ofi *t, struct twill_ofi_channel *channel,
                       struct twill_error *error)
{
    struct twill_ofi_header header = {.kind = TWILL_OFI_CREDIT};
    if (channel->consumed - channel->told.consumed < t->endpoint->limits.credits / 2 &&
        (t->endpoint->limits.slot == 0 ||
         channel->chunks_taken - channel->told.chunks <= TWILL_OFI_CHUNKS / 2))
        return 1;
    return send_control(t, channel, &header, error);
}

int twill_ofi_recv_advance(struct twill_ofi *t, struct twill_ofi_channel *channel,
                           struct twill_error *error)
{
    int total = 0;
    bool moved = true;
    while (moved && !channel->broken) {
        moved = false;
        /* One for each RECV, or always some if the endpoint preposts. */
        uint32_t wanted = t->endpoint->limits.preposts ? channel->consumed + TWILL_OFI_HEADERS
                                                       : channel->received;
        int headers = post_headers(t, channel, wanted, error);
        int clears = headers < 0 ? headers : clear_large(t, channel, error);
        if (clears < 0)
            return clears;
        if (headers == 0 || clears == 0)
            twill_ofi_stuck(t, channel);
        int finished = take_recv(t, channel, &moved, error);
        if (finished < 0)
            return finished;
        total += finished;
    }
    int credit = channel->broken ? 1 : send_credit(t, channel, error);
    if (credit < 0)
        return credit;
    if (credit == 0)
        twill_ofi_stuck(t, channel);
    return total;
}

/* Call visit() for the next message of a channel if it has arrived and no RECV waits for it. */
static void visit_early(const struct twill_ofi_channel *channel, twill_early_fn visit, void *user)
{
    const struct twill_ofi_op *op = &channel->header_in[channel->consumed % TWILL_OFI_HEADERS];
    struct twill_ofi_header header;
    if (channel->broken || channel->in.head != NULL || channel->consumed == channel->awaited ||
        !op->done || op->bytes < sizeof(header))
        return; /* behind a mismatch there may be a tail */
    memcpy(&header, op->buffer, sizeof(header));
    visit(user, channel->peer->rank, &header.call);
}

/* Call visit() for the first message of each collectives' lane of a peer that waits for a RECV.
 * Post receives where there are none, which may find more at the next look. Ignores errors. */
static void look_at_peer(struct twill_ofi *t, struct twill_ofi_peer *peer, twill_early_fn visit,
                         void *user)
{
    for (uint32_t l = 0; l < TWILL_NODE_LANES; l++)
        if (peer->channels[l].in.head == NULL && !peer->channels[l].broken)
            (void)post_headers(t, &peer->channels[l], peer->channels[l].consumed + 1, NULL);
    (void)twill_ofi_read(t->endpoint, NULL);
    for (uint32_t l = 0; l < TWILL_NODE_LANES; l++)
        visit_early(&peer->channels[l], visit, user);
}

void twill_ofi_early(struct twill_transport *transport, bool all, twill_early_fn visit, void *user)
{
    struct twill_ofi *t = (struct twill_ofi *)transport;
    pthread_mutex_lock(&t->endpoint->lock);
    all = all && t->size <= EARLY_PEERS;
    for (uint32_t r = 0; r < t->size && t->failed == TWILL_OK && !t->endpoint->closing; r++) {
        struct twill_ofi_peer *peer = t->peers[r];
        if (peer == NULL && all && r != t->rank && twill_ofi_peer(t, r, &peer, NULL) != TWILL_OK)
            peer = NULL;
        if (peer != NULL && t->endpoint->failed == TWILL_OK)
            look_at_peer(t, peer, visit, user);
    }
    pthread_mutex_unlock(&t->endpoint->lock);
}
