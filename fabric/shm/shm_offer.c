/* SPDX-License-Identifier: Apache-2.0 */
/* Long messages of the shm transport: read by the receiver in place.
 *
 * Where single-copy access works, a message of TWILL_SHM_FETCH_LEAST bytes or more is not streamed
 * through slots but offered: the line carries its address, the receiver reads it from there, and
 * the slot counts as consumed when it has. It is copied once, and ranks that share a core need not
 * take turns for each ring of data. A sender that gives up clears the line's epoch first, so that a
 * receiver does not complete a message that may have changed while it was read. A receiver that
 * cannot read a message, such as device memory, refuses it; what it has not read is streamed. */
#include "fabric/shm/shared_region.h"
#include "fabric/shm/shm_channel.h"

#include <string.h>

#define FETCH_ONCE ((size_t)1 << 20) /* most bytes read before other messages have their turn */

void twill_shm_offer(struct twill_shm_channel *channel, const struct twill_transfer *request)
{
    struct twill_line *line = &channel->line[channel->index % TWILL_SHM_SLOTS];
    const uint64_t message[] = {request->bytes, (uint64_t)(uintptr_t)request->buffer};
    line->signature = request->signature;
    line->bytes = TWILL_SHM_OFFERED;
    memcpy(line->payload, message, sizeof(message));
    channel->offered = ++channel->index;
    atomic_store_explicit(&line->epoch, channel->index, memory_order_release);
}

void twill_shm_withdraw(struct twill_shm_channel *channel)
{
    struct twill_line *line = &channel->line[(channel->offered - 1) % TWILL_SHM_SLOTS];
    /* Not a store, which later ones of the caller could pass. */
    atomic_exchange_explicit(&line->epoch, 0, memory_order_seq_cst);
    channel->offered = 0;
}

bool twill_shm_conclude_offer(struct twill_shm_channel *channel,
                              struct twill_transport_counters *counters)
{
    struct twill_transfer *request = channel->queue.head;
    channel->seen = atomic_load_explicit(&channel->credit->consumed, memory_order_acquire);
    uint64_t refused = atomic_load_explicit(&channel->credit->refused, memory_order_relaxed);
    uint64_t fetched = atomic_load_explicit(&channel->credit->fetched, memory_order_relaxed);
    request->moved = twill_min(fetched, request->bytes);
    if (channel->seen < channel->offered)
        return false;
    bool streams = refused == channel->offered;
    channel->offered = 0;
    twill_counter_add(&counters->header_bytes, sizeof(struct twill_line));
    if (streams) {
        channel->single_copy = NULL;
        return true;
    }
    twill_counter_add(&counters->messages, 1);
    twill_counter_add(&counters->bytes, request->bytes);
    twill_transfer_pop(&channel->queue, TWILL_OK);
    return true;
}

/* Return whether the sender has withdrawn the message, or its process has ended: its memory may
 * have changed, and its pid be another process's. Called after a read. */
static bool has_given_up(const struct twill_shm_channel *channel, const struct twill_line *line)
{
    return atomic_load_explicit(&line->epoch, memory_order_acquire) != channel->index + 1 ||
           twill_shm_region_owner_dead(channel->node->region, channel->node->rank[channel->local]);
}

/* Have the sender stream what has not been read. */
static void refuse(struct twill_shm_channel *channel)
{
    atomic_store_explicit(&channel->credit->refused, channel->index + 1, memory_order_relaxed);
    twill_shm_return_slot(channel);
}

/* Read the next bytes of an offered message. Returns 1 if some were read, or the message was
 * refused; 0 if its sender has ended or gave up: the failure detector reports that. */
static int fetch_some(struct twill_shm_channel *channel, const struct twill_line *line,
                      uint64_t from)
{
    struct twill_transfer *request = channel->queue.head;
    bool reduces = request->reduce != NULL;
    size_t now =
        twill_min(request->bytes - request->moved, reduces ? TWILL_SHM_FETCH_REDUCED : FETCH_ONCE);
    void *to = reduces ? channel->bounce : (unsigned char *)request->buffer + request->moved;
    int cause = twill_single_copy_fetch(channel->single_copy, channel->local, to,
                                        from + request->moved, now);
    if (cause == 0) {
        if (reduces && now > 0)
            request->reduce(request, request->moved, to, now);
        request->moved += now;
        if (request->moved < request->bytes) {
            atomic_store_explicit(&channel->credit->fetched, request->moved, memory_order_relaxed);
            return 1;
        }
    }
    if (has_given_up(channel, line))
        return 0;
    if (cause != 0) {
        refuse(channel);
        return 1;
    }
    atomic_store_explicit(&channel->credit->fetched, 0, memory_order_relaxed);
    twill_shm_return_slot(channel);
    twill_transfer_pop(&channel->queue, TWILL_OK);
    return 1;
}

int twill_shm_receive_offer(struct twill_shm_channel *channel, const struct twill_line *line)
{
    uint64_t message[2]; /* size, address */
    memcpy(message, line->payload, sizeof(message));
    struct twill_transfer *request = channel->queue.head;
    if (channel->to_discard > 0 || channel->single_copy == NULL ||
        message[0] < TWILL_SHM_FETCH_LEAST)
        return -1;
    if (request->moved > 0 || twill_transfer_matches(request, line->signature, message[0]))
        return fetch_some(channel, line, message[1]);
    twill_shm_return_slot(channel);
    twill_transfer_pop(&channel->queue, TWILL_ERR_MISMATCH);
    return 1;
}
