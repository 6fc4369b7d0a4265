/* SPDX-License-Identifier: Apache-2.0 */
/* Sending: headers as credits allow, large payload after the receiver's clear to send. */
#include "fabric/ofi/ofi.h"

#include <string.h>

/* Send the header of `request` with its payload if that is small, and with the credit that its peer
 * lacks. Sets *gone if no completion will follow. Returns 1 if sent, 0 if busy, or a negative
 * status. */
static int send_header(struct twill_ofi *t, struct twill_ofi_channel *channel,
                       struct twill_transfer *request, bool *gone, struct twill_error *error)
{
    bool large = request->bytes > t->endpoint->limits.split;
    uint32_t credit = twill_min(channel->consumed - channel->told.by_header, UINT8_MAX);
    struct twill_ofi_header header = {.signature = request->signature,
                                      .sequence = channel->sent,
                                      .bytes = request->bytes,
                                      .kind = large ? TWILL_OFI_LARGE : TWILL_OFI_EAGER_DATA,
                                      .credit = credit,
                                      .call = request->call};
    twill_entry_pack(&request->last, &t->start, &header.entry);
    int done = twill_ofi_send_small(t, channel, &header, large ? NULL : request, TWILL_OFI_HEADER,
                                    gone, error);
    if (done != 1)
        return done;
    channel->told.by_header += credit;
    if ((int32_t)(channel->told.by_header - channel->told.consumed) > 0)
        channel->told.consumed = channel->told.by_header;
    twill_ofi_private(request)->sequence = channel->sent;
    twill_ofi_private(request)->unsaid = twill_ofi_has_tail(t, request) ? 2 : 0;
    twill_counter_add(&t->base.counters.messages, 1);
    twill_counter_add(&t->base.counters.bytes, request->bytes);
    return 1;
}

/* Send the next message of a channel's first queued SEND, which is its header or, after that, its
 * tail. Adds 1 to *finished if that completed the SEND. Returns 1 if sent, 0 if busy, or a negative
 * status. */
static int send_next(struct twill_ofi *t, struct twill_ofi_channel *channel, int *finished,
                     struct twill_error *error)
{
    struct twill_transfer *request = channel->headers_out.head;
    bool large = request->bytes > t->endpoint->limits.split, gone = false;
    bool begun = twill_ofi_private(request)->unsaid > 0;
    int done = begun
                   ? twill_ofi_send_small(t, channel, NULL, request, TWILL_OFI_HEADER, &gone, error)
                   : send_header(t, channel, request, &gone, error);
    if (done != 1)
        return done;
    channel->sent++;
    gone = gone && twill_ofi_left(request);
    if (!begun && twill_ofi_has_tail(t, request))
        return 1;
    twill_ofi_pop(&channel->headers_out);
    if (large) {
        twill_transfer_push(&channel->payload_out, request);
    } else if (gone) {
        twill_transfer_finish(request, TWILL_OK);
        ++*finished;
    }
    return 1;
}

/* Return the clear to send for this message, or NULL. Drop those for earlier messages, which
 * answered small SENDs. That is a mismatch, which the receiver finds in the header. */
static struct twill_ofi_clear *find_clear(struct twill_ofi_channel *channel, uint32_t sequence)
{
    struct twill_ofi_clear *found = NULL;
    for (uint32_t i = 0; i < TWILL_OFI_CLEAR; i++) {
        struct twill_ofi_clear *clear = &channel->clear[i];
        if (clear->used && (int32_t)(clear->header.sequence - sequence) < 0)
            clear->used = false;
        if (clear->used && clear->header.sequence == sequence)
            found = clear;
    }
    return found;
}

struct twill_ofi_op *twill_ofi_idle_chunk(struct twill_ofi_channel *channel)
{
    for (uint32_t i = 0; i < TWILL_OFI_CHUNKS; i++)
        if (!channel->chunk_out[i].posted && !channel->chunk_out[i].done)
            return &channel->chunk_out[i];
    return NULL;
}

/* Post chunks of `chunk` bytes of a SEND, whose memory is registered, if needed, before the first.
 * Returns 1 if the provider has all of them, 0 if some remain, for a completion or a retry to post,
 * or a negative status. */
static int send_chunks(struct twill_ofi *t, struct twill_ofi_channel *channel,
                       struct twill_transfer *request, size_t chunk, struct twill_error *error)
{
    struct twill_ofi_private *private = twill_ofi_private(request);
    TWILL_TRY(error, twill_ofi_hold_buffer(t, request, error));
    while (private->posted < request->bytes) {
        struct twill_ofi_op *op = twill_ofi_idle_chunk(channel);
        if (op == NULL)
            return 0;
        const unsigned char *from = (const unsigned char *)request->buffer + private->posted;
        size_t bytes = twill_ofi_chunk_bytes(request->bytes, private->posted, chunk);
        int done = t->endpoint->limits.slot != 0
                       ? twill_ofi_write(t, op, request, from, bytes, error)
                       : twill_ofi_send(t, op, from, bytes, twill_ofi_desc(private->memory), error);
        if (done == 0)
            twill_ofi_stuck(t, channel);
        if (done != 1)
            return done;
        op->request = request;
        private->posted += bytes;
    }
    return 1;
}

/* Post the payload of the large SENDs for which a clear to send has come. A SEND whose signature or
 * bytes differ from the receiver's completes with TWILL_ERR_MISMATCH. Returns the number of SENDs
 * that completed in this way, or a negative status. */
static int send_payload(struct twill_ofi *t, struct twill_ofi_channel *channel,
                        struct twill_error *error)
{
    int finished = 0;
    struct twill_transfer *request;
    while ((request = channel->payload_out.head) != NULL) {
        struct twill_ofi_clear *clear = find_clear(channel, twill_ofi_private(request)->sequence);
        if (clear == NULL)
            break;
        const struct twill_ofi_header *theirs = &clear->header;
        if (!twill_transfer_matches(request, theirs->signature, theirs->bytes)) {
            clear->used = false;
            twill_transfer_pop(&channel->payload_out, TWILL_ERR_MISMATCH);
            finished++;
            continue;
        }
        int done = send_chunks(t, channel, request, (size_t)theirs->chunk, error);
        if (done < 0)
            return done;
        if (done == 0)
            break;
        clear->used = false;
        twill_ofi_pop(&channel->payload_out);
    }
    return finished;
}

/* Handle chunks and notes that have left, and complete and release SENDs and WRITEs. Returns how
 * many completed. */
static int finish_chunks(struct twill_ofi *t, struct twill_ofi_channel *channel)
{
    int finished = 0;
    for (uint32_t i = 0; i < TWILL_OFI_OUT; i++) {
        struct twill_ofi_op *op = &channel->chunk_out[i];
        struct twill_transfer *request = op->request;
        if (!op->done)
            continue;
        op->done = false;
        op->request = NULL;
        channel->slots.writing -= request->kind == TWILL_TRANSFER_WRITE ? 1 : 0;
        if (i < TWILL_OFI_CHUNKS)
            request->moved += op->bytes;
        else
            twill_ofi_private(request)->unsaid--;
        if (request->moved < request->bytes || twill_ofi_private(request)->unsaid > 0)
            continue;
        twill_ofi_release(t, &twill_ofi_private(request)->memory);
        twill_transfer_finish(request, TWILL_OK);
        finished++;
    }
    return finished;
}

/* Return whether the first queued request of a channel, if any, may be posted now. A SEND waits for
 * credit, and for the WRITEs before it if it could overtake them. */
static bool is_due(const struct twill_ofi *t, const struct twill_ofi_channel *channel)
{
    const struct twill_transfer *request = channel->headers_out.head;
    const struct twill_ofi_limits *limits = &t->endpoint->limits;
    if (request == NULL || request->kind == TWILL_TRANSFER_WRITE)
        return request != NULL;
    return channel->sent - channel->acked < limits->credits &&
           (channel->slots.writing == 0 || limits->writes == TWILL_OFI_WRITES_IN_ORDER);
}

int twill_ofi_send_advance(struct twill_ofi *t, struct twill_ofi_channel *channel,
                           struct twill_error *error)
{
    int finished = finish_chunks(t, channel);
    int noted = twill_ofi_send_notes(t, channel, error);
    if (noted < 0)
        return noted;
    while (is_due(t, channel)) {
        int done = channel->headers_out.head->kind == TWILL_TRANSFER_WRITE
                       ? twill_ofi_write_next(t, channel, error)
                       : send_next(t, channel, &finished, error);
        if (done < 0)
            return done;
        if (done == 0) {
            twill_ofi_stuck(t, channel);
            break;
        }
    }
    int more = send_payload(t, channel, error);
    return more < 0 ? more : finished + more;
}

/* Keep a clear to send until its message is the channel's next. Fails with TWILL_ERR_FABRIC if its
 * chunk size is impossible, or TWILL_ERR_MISMATCH if this rank cannot have caused so many. */
static twill_status keep_clear(struct twill_ofi *t, struct twill_ofi_channel *channel,
                               const struct twill_ofi_header *header, struct twill_error *error)
{
    struct twill_transfer *first = channel->payload_out.head;
    const struct twill_ofi_limits *limits = &t->endpoint->limits;
    size_t most = twill_max(limits->max_message, limits->slot);
    if (header->chunk == 0 || header->chunk > most ||
        (limits->slot != 0 && header->chunk != limits->slot))
        return TWILL_FAIL_RANK(error, TWILL_ERR_FABRIC, channel->peer->rank,
                               "ofi: %s cleared chunks of %u bytes, the maximum is %zu",
                               channel->peer->name, header->chunk, most);
    find_clear(channel, first == NULL ? channel->sent : twill_ofi_private(first)->sequence);
    for (uint32_t i = 0; i < TWILL_OFI_CLEAR; i++) {
        if (channel->clear[i].used)
            continue;
        channel->clear[i] = (struct twill_ofi_clear){.header = *header, .used = true};
        return TWILL_OK;
    }
    return TWILL_FAIL(error, TWILL_ERR_MISMATCH,
                      "ofi: %s waits for large messages on lane %u that this rank does not send",
                      channel->peer->name, channel->lane);
}

twill_status twill_ofi_acknowledge(struct twill_ofi_channel *channel, uint32_t consumed,
                                   struct twill_error *error)
{
    if ((int32_t)(consumed - channel->sent) > 0)
        return TWILL_FAIL_RANK(error, TWILL_ERR_FABRIC, channel->peer->rank,
                               "ofi: %s returned credit for message %u on lane %u, of %u sent: its "
                               "memory is damaged, or it has another version of twill",
                               channel->peer->name, consumed, channel->lane, channel->sent);
    if ((int32_t)(consumed - channel->acked) > 0)
        channel->acked = consumed;
    return TWILL_OK;
}

twill_status twill_ofi_control(struct twill_ofi *t, const struct twill_ofi_op *op, uint32_t from,
                               size_t bytes, struct twill_error *error)
{
    struct twill_ofi_header header;
    struct twill_ofi_peer *peer;
    memcpy(&header, op->buffer, TWILL_OFI_CONTROL_BYTES);
    if (bytes != TWILL_OFI_CONTROL_BYTES || header.lane >= TWILL_OFI_LANES ||
        (header.kind != TWILL_OFI_CLEAR_TO_SEND && header.kind != TWILL_OFI_CREDIT))
        return TWILL_FAIL_RANK(error, TWILL_ERR_FABRIC, from,
                               "ofi: %s sent a control message of %zu bytes, kind %u, lane %u: not "
                               "one of ours",
                               TWILL_RANK_NAME(from < t->size ? t->job : NULL, from), bytes,
                               header.kind, header.lane);
    TWILL_TRY(error, twill_ofi_peer(t, from, &peer, error));
    struct twill_ofi_channel *channel = &peer->channels[header.lane];
    TWILL_TRY(error, twill_ofi_acknowledge(channel, header.consumed, error));
    if ((int32_t)(header.emptied - channel->slots.written) > 0)
        return TWILL_FAIL_RANK(error, TWILL_ERR_FABRIC, from,
                               "ofi: %s emptied slot %u on lane %u, of %u written: its memory is "
                               "damaged, or it has another version of twill",
                               peer->name, header.emptied, channel->lane, channel->slots.written);
    if ((int32_t)(header.emptied - channel->slots.emptied) > 0)
        channel->slots.emptied = header.emptied;
    channel->slots.key = header.key;
    twill_ofi_stuck(t, channel); /* its communicator's thread sends what this allows */
    return header.kind == TWILL_OFI_CREDIT ? TWILL_OK : keep_clear(t, channel, &header, error);
}
