/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between ranks of a node, through slots in shared memory.
 *
 * Each (from, to, lane) has a ring of slots with one producer and one consumer. A slot is a line
 * with its epoch (slot number + 1, never reset) and a chunk of data. Up to 48 bytes travel in the
 * line itself, with one cache miss per message. Longer messages stream through several slots, of
 * which sender and receiver use different ones. A receiver reduces directly from the slot.
 *
 * Slots lie in the sender's region, and the count of consumed slots in the receiver's. So only its
 * owner writes to a region, pages are first touched by the rank that fills them, and a dead
 * receiver cannot have overwritten what others send. 8 slots of 16 KiB stay in an L2 cache and were
 * the best measured: 4 KiB lose a third at 1 MiB, and more than 16 KiB gains nothing.
 *
 * Messages of TWILL_SHM_FETCH_LEAST bytes or more are offered to be read in place.
 *
 * With TWILL_CHECKSUM=all the line carries the CRC32C of the chunk, computed from the caller's
 * buffer. A receiver that finds a different one reads the slot again, as the damage may have
 * happened on the way to it, and then fails. */
#include "fabric/shm/mapping.h"
#include "fabric/shm/node_memory.h"
#include "fabric/shm/shared_region.h"
#include "fabric/shm/single_copy.h"
#include "fabric/transports.h"
#include "lib/base/plural.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS      8
#define SLOT_BYTES 16384
/* Bits of line->bytes. STREAMED: the data is in the slot, and the message's size in the payload.
 * OFFERED: the payload is the message's size and address. */
#define STREAMED 0x80000000u
#define OFFERED  0x40000000u
/* Bytes read at once to be reduced. They fit an L2 cache. */
#define FETCH_REDUCED ((size_t)128 << 10)

_Static_assert((SLOTS & (SLOTS - 1)) == 0, "slot numbers wrap by masking");
_Static_assert(SLOT_BYTES % TWILL_CACHE_LINE == 0, "chunks keep element boundaries and lines");

/* With checksums, the end of a line's payload. */
#define LINE_SUM   (TWILL_LINE_PAYLOAD - sizeof(uint32_t))
#define READ_AGAIN 3 /* reads of a slot whose checksum is wrong */

/* A receiver's report to the sender of a channel, in the receiver's region. `consumed` counts
 * slots. `refused` is 1 + the number of the last slot whose message could not be read in place, or
 * 0. `fetched` counts bytes read so far of an offered message. */
struct shm_credit {
    _Atomic uint64_t consumed, refused, fetched;
} TWILL_ALIGNED(64);

/* One direction of a lane with one peer, by a ring of slots in shared memory. In shm->channel[]. */
struct shm_channel {
    struct twill_transfer_queue queue;
    struct twill_line *line; /* [SLOTS] */
    unsigned char *data;     /* [SLOTS][SLOT_BYTES] */
    struct shm_credit *credit;
    struct twill_single_copy *single_copy; /* reads the peer's memory, NULL if nothing is offered */
    unsigned char *bounce;                 /* FETCH_REDUCED bytes, for reductions */
    const struct twill_node *node;         /* of a receiver */
    uint64_t offered; /* of a sender: 1 + number of the slot that offers the first message, or 0 */
    uint64_t index;   /* slots produced or consumed by this rank */
    uint64_t seen;    /* of a sender: credit->consumed when last read */
    uint64_t to_discard; /* of a receiver: bytes left of a message that did not match */
    uint32_t local;      /* the peer's local rank */
    uint32_t active;     /* 1 + position in shm->active, 0 if not in it */
    bool sends;
    bool damaged; /* of a receiver: the slot's checksum is wrong */
    uint32_t (*crc32c)(uint32_t crc, const void *data, size_t bytes); /* NULL without checksums */
};

/* Count a slot as consumed, so that the sender may fill it again. */
static inline void return_slot(struct shm_channel *channel)
{
    channel->index++;
    atomic_store_explicit(&channel->credit->consumed, channel->index, memory_order_release);
}

/* The shm transport of a communicator, made by shm_open() and freed by shm_close(). */
struct shm {
    struct twill_transport base;
    const struct twill_world *world;
    const uint32_t *job; /* see twill_rank_text() */
    struct twill_node *node;
    struct shm_channel *channel; /* [2][size][TWILL_LANES], sending and receiving */
    struct shm_channel **active; /* channels with requests */
    uint32_t active_count;
    unsigned char *bounce; /* of all channels */
    char text[128];
};

/* Return on how many channels a rank sends to the ranks of a node of `node_size` ranks, counting
 * one for itself. It receives on the same number of other channels. */
static size_t channels_of(uint32_t node_size)
{
    return (size_t)node_size * TWILL_LANES;
}

/* The memory of a pair: credits of all lanes, then their lines, and from DATA_AT on the data. */
#define LINES_AT (TWILL_LANES * sizeof(struct shm_credit))
#define DATA_AT  8192
_Static_assert(LINES_AT + TWILL_LANES * SLOTS * sizeof(struct twill_line) <= DATA_AT,
               "credits and lines lie before the data");

size_t twill_shm_pair_bytes(void)
{
    return DATA_AT + (size_t)TWILL_LANES * SLOTS * SLOT_BYTES;
}

/* Where single-copy access works, a message of TWILL_SHM_FETCH_LEAST bytes or more is not streamed
 * through slots but offered. The line carries its address, the receiver reads it from there, and
 * then counts the slot as consumed. So the message is copied once, and ranks that share a core need
 * not take turns for each ring of data. A sender that gives up clears the line's epoch first, so
 * that a receiver does not complete a message that may have changed while it was read. A receiver
 * that cannot read a message (device memory) refuses it, and what it has not read is streamed. */

#define FETCH_ONCE ((size_t)1 << 20) /* most bytes read before other messages are handled */

/* Offer the first message, as a whole, to be read from the caller's buffer. */
static void offer_message(struct shm_channel *channel, const struct twill_transfer *request)
{
    struct twill_line *line = &channel->line[channel->index % SLOTS];
    const uint64_t message[] = {request->bytes, (uint64_t)(uintptr_t)request->buffer};
    line->signature = request->signature;
    line->bytes = OFFERED;
    memcpy(line->payload, message, sizeof(message));
    channel->offered = ++channel->index;
    atomic_store_explicit(&line->epoch, channel->index, memory_order_release);
}

/* Withdraw the message that the receiver may read from the sender's buffer, without waiting. A
 * receiver that is reading it finds out afterwards and does not complete its request. */
static void withdraw_offer(struct shm_channel *channel)
{
    struct twill_line *line = &channel->line[(channel->offered - 1) % SLOTS];
    /* Not a store, which later stores of the caller could pass. */
    atomic_exchange_explicit(&line->epoch, 0, memory_order_seq_cst);
    channel->offered = 0;
}

/* Complete the offered message if it was read, and return true. If it was refused, let the rest be
 * streamed, offer no more messages on this channel, and return true. Returns false while it is
 * being read, with its progress in request->moved. */
static bool conclude_offer(struct shm_channel *channel, struct twill_transport_counters *counters)
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

/* Return whether the sender has withdrawn the message or its process has ended. Its memory may have
 * changed, and its pid may be another process's. Called after a read. */
static bool has_given_up(const struct shm_channel *channel, const struct twill_line *line)
{
    return atomic_load_explicit(&line->epoch, memory_order_acquire) != channel->index + 1 ||
           twill_node_owner_dead(channel->node, channel->local);
}

/* Refuse the offer, so that the sender streams what has not been read. */
static void refuse(struct shm_channel *channel)
{
    atomic_store_explicit(&channel->credit->refused, channel->index + 1, memory_order_relaxed);
    return_slot(channel);
}

/* Read the next bytes of an offered message, at address `from` of its sender. The last ones
 * complete the RECV. If they cannot be read, refuse it. Returns 0 if the sender has withdrawn the
 * message or has ended, else 1. */
static int fetch_some(struct shm_channel *channel, const struct twill_line *line, uint64_t from)
{
    struct twill_transfer *request = channel->queue.head;
    bool reduces = request->reduce != NULL;
    size_t now = twill_min(request->bytes - request->moved, reduces ? FETCH_REDUCED : FETCH_ONCE);
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
    return_slot(channel);
    twill_transfer_pop(&channel->queue, TWILL_OK);
    return 1;
}

/* Receive the next bytes of a message that a slot offers. Returns 1 if some were read or the
 * message was refused. If it does not match, ends the request with TWILL_ERR_MISMATCH and returns
 * 1. Returns 0 if the sender gave up or has ended, which the failure detector reports. Returns -1
 * if the slot is invalid. */
static int receive_offer(struct shm_channel *channel, const struct twill_line *line)
{
    uint64_t message[2]; /* size, address */
    memcpy(message, line->payload, sizeof(message));
    struct twill_transfer *request = channel->queue.head;
    if (channel->to_discard > 0 || channel->single_copy == NULL ||
        message[0] < TWILL_SHM_FETCH_LEAST)
        return -1;
    if (request->moved > 0 || twill_transfer_matches(request, line->signature, message[0]))
        return fetch_some(channel, line, message[1]);
    return_slot(channel);
    twill_transfer_pop(&channel->queue, TWILL_ERR_MISMATCH);
    return 1;
}

/* Return how many bytes of a message fit its line. */
static size_t line_payload(const struct shm_channel *channel)
{
    return channel->crc32c == NULL ? TWILL_LINE_PAYLOAD : LINE_SUM;
}

/* Fill the next slot with the next `chunk` bytes of a message, and publish it to the receiver. */
static void produce(struct shm_channel *channel, const struct twill_transfer *request, size_t chunk,
                    struct twill_transport_counters *counters)
{
    uint64_t slot = channel->index % SLOTS;
    struct twill_line *line = &channel->line[slot];
    const unsigned char *from = (const unsigned char *)request->buffer + request->moved;
    line->signature = request->signature;
    if (TWILL_UNLIKELY(channel->crc32c != NULL)) {
        uint32_t sum = channel->crc32c(0, from, chunk);
        memcpy(line->payload + LINE_SUM, &sum, sizeof(sum));
    }
    if (request->bytes <= line_payload(channel)) {
        line->bytes = (uint32_t)chunk;
        if (chunk > 0)
            memcpy(line->payload, from, chunk);
        twill_counter_add(&counters->header_bytes, sizeof(*line) - TWILL_LINE_PAYLOAD);
    } else {
        uint64_t total = request->bytes;
        line->bytes = (uint32_t)chunk | STREAMED;
        memcpy(line->payload, &total, sizeof(total));
        memcpy(channel->data + slot * SLOT_BYTES, from, chunk);
        twill_counter_add(&counters->header_bytes, sizeof(*line));
        twill_counter_add(&counters->copied, chunk);
    }
    channel->index++;
    atomic_store_explicit(&line->epoch, channel->index, memory_order_release);
}

/* Send as much as fits into the ring. Returns 0 if nothing moved, or more if data was sent or
 * offered, or the receiver has read more of an offered message. */
static int push_channel(struct shm_channel *channel, struct twill_transport_counters *counters)
{
    int moved = 0;
    while (channel->queue.head != NULL) {
        struct twill_transfer *request = channel->queue.head;
        if (channel->offered != 0) {
            size_t before = request->moved;
            bool concluded = conclude_offer(channel, counters);
            moved += concluded || request->moved != before; /* the latter restarts deadlines */
            if (!concluded)
                break;
            continue;
        }
        if (channel->index - channel->seen == SLOTS) {
            channel->seen = atomic_load_explicit(&channel->credit->consumed, memory_order_acquire);
            if (channel->index - channel->seen == SLOTS) {
                twill_counter_add(&counters->again, 1);
                break;
            }
        }
        if (channel->single_copy != NULL && request->moved == 0 &&
            request->bytes >= TWILL_SHM_FETCH_LEAST) {
            offer_message(channel, request);
            moved++;
            continue;
        }
        size_t chunk = twill_min(request->bytes - request->moved, SLOT_BYTES);
        produce(channel, request, chunk, counters);
        moved++;
        request->moved += chunk;
        if (request->moved == request->bytes) {
            twill_counter_add(&counters->messages, 1);
            twill_counter_add(&counters->bytes, request->bytes);
            twill_transfer_pop(&channel->queue, TWILL_OK);
        }
    }
    return moved;
}

/* Copy or reduce a chunk of data into the request's buffer, behind the request->moved bytes that
 * have arrived before. The caller then adds the chunk to these. */
static void deliver_slot(struct twill_transfer *request, const void *data, size_t chunk)
{
    if (chunk == 0)
        return;
    if (request->reduce != NULL)
        request->reduce(request, request->moved, data, chunk);
    else
        memcpy((unsigned char *)request->buffer + request->moved, data, chunk);
}

/* Return whether a slot's chunk has the checksum in its line. If it differs, reads both again,
 * READ_AGAIN times in all, and then sets channel->damaged. Only called if messages have
 * checksums. */
static bool is_intact(struct shm_channel *channel, const struct twill_line *line, const void *data,
                      size_t chunk)
{
    uint32_t sum;
    for (int i = 0; i < READ_AGAIN; i++) {
        memcpy(&sum, line->payload + LINE_SUM, sizeof(sum));
        if (channel->crc32c(0, data, chunk) == sum)
            return true;
        atomic_signal_fence(memory_order_seq_cst); /* the compiler reads memory again */
    }
    channel->damaged = true;
    return false;
}

/* Consume the next slot, which has arrived. Its data goes to the first request, or is discarded if
 * it belongs to a message that did not match. Returns false, with the slot not consumed, if its
 * sizes are impossible or its checksum is wrong. */
static bool receive_slot(struct shm_channel *channel)
{
    uint64_t slot = channel->index % SLOTS;
    const struct twill_line *line = &channel->line[slot];
    uint32_t header = line->bytes;
    size_t chunk = header & ~STREAMED;
    bool streamed = (header & STREAMED) != 0;
    uint64_t total = chunk;
    if (streamed)
        memcpy(&total, line->payload, sizeof(total));
    const void *data = streamed ? channel->data + slot * SLOT_BYTES : line->payload;
    if (chunk > (streamed ? SLOT_BYTES : line_payload(channel)) || chunk > total)
        return false;
    if (TWILL_UNLIKELY(channel->crc32c != NULL) && !is_intact(channel, line, data, chunk))
        return false;
    if (channel->to_discard > 0) {
        channel->to_discard -= twill_min(chunk, channel->to_discard);
        return_slot(channel);
        return true;
    }
    struct twill_transfer *request = channel->queue.head;
    if (request->moved == 0 && !twill_transfer_matches(request, line->signature, total)) {
        channel->to_discard = total - chunk;
        return_slot(channel);
        twill_transfer_pop(&channel->queue, TWILL_ERR_MISMATCH);
        return true;
    }
    if (chunk > request->bytes - request->moved)
        return false;
    deliver_slot(request, data, chunk);
    return_slot(channel);
    request->moved += chunk;
    if (request->moved == request->bytes)
        twill_transfer_pop(&channel->queue, TWILL_OK);
    return true;
}

/* Receive what has arrived for posted requests or is to be discarded. Returns how many slots that
 * took, or 0 if nothing has arrived. Returns -1 if the next slot is invalid, as its sizes are
 * impossible or its checksum is wrong. */
static int pull_channel(struct shm_channel *channel)
{
    int moved = 0;
    while (channel->queue.head != NULL || channel->to_discard > 0) {
        const struct twill_line *line = &channel->line[channel->index % SLOTS];
        if (atomic_load_explicit(&line->epoch, memory_order_acquire) != channel->index + 1)
            break;
        if ((line->bytes & OFFERED) != 0) {
            int more = receive_offer(channel, line);
            return more < 0 ? more : moved + more;
        }
        if (!receive_slot(channel))
            return -1;
        moved++;
    }
    return moved;
}

/* Return whether a channel has neither requests nor bytes to discard. */
static bool channel_is_idle(const struct shm_channel *channel)
{
    return channel->queue.head == NULL && channel->to_discard == 0;
}

/* Put a channel into shm->active, unless it is there. */
static void activate_channel(struct shm *shm, struct shm_channel *channel)
{
    if (channel->active != 0)
        return;
    shm->active[shm->active_count++] = channel;
    channel->active = shm->active_count;
}

/* Take a channel out of shm->active, if it is there, and move the last one into the gap. */
static void deactivate(struct shm *shm, struct shm_channel *channel)
{
    if (channel->active == 0)
        return;
    struct shm_channel *last = shm->active[--shm->active_count];
    shm->active[channel->active - 1] = last;
    last->active = channel->active;
    channel->active = 0;
}

/* Send or receive. If slots or messages moved, wake the peer and return how many. Returns 0 if none
 * did, or a negative status. */
static int advance_channel(struct shm *shm, struct shm_channel *channel, struct twill_error *error)
{
    int moved = channel->sends ? push_channel(channel, &shm->base.counters) : pull_channel(channel);
    if (moved < 0 && channel->damaged)
        return TWILL_FAIL_RANK(error, TWILL_ERR_FABRIC, shm->node->rank[channel->local],
                               "a message from %s is damaged, in the memory that the ranks of this "
                               "node share or on the way to it (TWILL_CHECKSUM)",
                               TWILL_RANK_NAME(shm->job, shm->node->rank[channel->local]));
    if (moved < 0)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL,
                          "shm: a message from %s is invalid at slot %llu",
                          TWILL_RANK_NAME(shm->job, shm->node->rank[channel->local]),
                          (unsigned long long)channel->index);
    if (moved > 0)
        twill_node_ring_doorbell(shm->node, channel->local);
    if (channel_is_idle(channel))
        deactivate(shm, channel);
    return moved;
}

/* Advance all active channels. Returns how many slots or messages moved, or a negative status. */
static int shm_progress(struct twill_transport *transport, struct twill_error *error)
{
    struct shm *shm = (struct shm *)transport;
    int moved = 0;
    /* Downwards, as deactivate() moves a channel that was handled already into the gap. */
    for (uint32_t i = shm->active_count; i-- > 0;) {
        int rc = advance_channel(shm, shm->active[i], error);
        if (rc < 0)
            return rc;
        moved += rc;
    }
    return moved;
}

/* Queue a request. If it is the first of its channel and does not reduce, send or receive at once
 * what can be. Fails with TWILL_ERR_INTERNAL if no channel leads to its peer or sizes in a received
 * message are impossible. Fails with TWILL_ERR_FABRIC if a checksum is wrong. */
static twill_status shm_post(struct twill_transport *transport, struct twill_transfer *request,
                             struct twill_error *error)
{
    struct shm *shm = (struct shm *)transport;
    const struct twill_node *node = shm->node;
    uint32_t local = request->peer < shm->world->size ? shm->world->local[request->peer] : 0;
    if (local >= node->size || node->rank[local] != request->peer || local == node->me ||
        request->lane >= TWILL_LANES)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "shm: no channel to rank %u on lane %u",
                          request->peer, request->lane);
    size_t direction = request->kind == TWILL_TRANSFER_SEND ? 0 : channels_of(node->size);
    struct shm_channel *channel =
        &shm->channel[direction + local * (size_t)TWILL_LANES + request->lane];
    bool first = channel->queue.head == NULL;
    twill_transfer_push(&channel->queue, request);
    /* Most requests complete at once. reduce() may be called in progress only. */
    if (first && request->reduce == NULL) {
        int rc = advance_channel(shm, channel, error);
        if (rc < 0)
            return rc;
    }
    if (!channel_is_idle(channel))
        activate_channel(shm, channel);
    return TWILL_OK;
}

/* Drop all requests without completing them, and withdraw offers. */
static void shm_cancel(struct twill_transport *transport)
{
    struct shm *shm = (struct shm *)transport;
    while (shm->active_count > 0) {
        struct shm_channel *channel = shm->active[shm->active_count - 1];
        if (channel->offered != 0)
            withdraw_offer(channel);
        channel->queue.head = NULL;
        channel->to_discard = 0;
        deactivate(shm, channel);
    }
}

/* Return whether two ranks can exchange messages by shm, as they differ and are on one node. False
 * if this rank has no memory that a node shares. */
static bool shm_reaches(const struct twill_transport_params *params, uint32_t from, uint32_t to)
{
    return params->node != NULL && from != to &&
           params->world->node[from] == params->world->node[to];
}

/* Free the transport. The shared memory stays. */
static void shm_close(struct twill_transport *transport)
{
    struct shm *shm = (struct shm *)transport;
    free(shm->channel);
    free(shm->active);
    free(shm->bounce);
    free(shm);
}

/* Set where the channel of a lane lies in the memory that only its two ranks map. The part of the
 * receiver, at `receiver`, has its credit. That of the sender has its lines and data. */
static void place_channel(struct shm_channel *channel, uint32_t lane, unsigned char *sender,
                          unsigned char *receiver)
{
    channel->credit = (struct shm_credit *)receiver + lane;
    channel->line = (struct twill_line *)(sender + LINES_AT) + (size_t)lane * SLOTS;
    channel->data = sender + DATA_AT + (size_t)lane * SLOTS * SLOT_BYTES;
}

/* Return whether TWILL_CHECKSUM=all is set. */
static bool checks_all(const struct twill_transport_params *params)
{
    const char *sums = twill_transport_setting(params, "TWILL_CHECKSUM");
    return sums != NULL && strcmp(sums, "all") == 0;
}

/* Set the constant members of all channels: where they lie, their peer, checksums, single copy. */
static void place_all(struct shm *shm, const struct twill_transport_params *params)
{
    bool checks = checks_all(params);
    const struct twill_node *node = shm->node;
    for (uint32_t l = 0; l < node->size; l++) {
        for (uint32_t lane = 0; lane < TWILL_LANES && l != node->me; lane++) {
            struct shm_channel *to = &shm->channel[l * (size_t)TWILL_LANES + lane];
            struct shm_channel *from = to + channels_of(node->size);
            place_channel(to, lane, node->sends[l], node->receives[l]);
            place_channel(from, lane, node->receives[l], node->sends[l]);
            to->local = from->local = l;
            to->sends = true;
            to->crc32c = from->crc32c = checks ? params->crc32c : NULL;
            to->single_copy = from->single_copy = shm->bounce != NULL ? params->single_copy : NULL;
            from->bounce = shm->bounce;
            from->node = node;
        }
    }
}

/* Create *transport. Fails with TWILL_ERR_ARGUMENT if no rank shares memory with this one,
 * _INTERNAL if params->node->pair_bytes are too few for the channels of a pair, or _MEMORY.
 * *transport is then NULL. */
static twill_status shm_open(struct twill_transport **transport,
                             const struct twill_transport_params *params, struct twill_error *error)
{
    *transport = NULL;
    if (params->node == NULL)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "shm: no rank shares memory with this one");
    uint32_t size = params->node->size;
    if (params->node->pair_bytes < twill_shm_pair_bytes())
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL,
                          "shm: %zu bytes set aside for the channels of a pair, %zu needed",
                          params->node->pair_bytes, twill_shm_pair_bytes());
    bool offers = !checks_all(params) && twill_single_copy_fetches(params->single_copy);
    struct shm *shm = calloc(1, sizeof(*shm));
    if (shm != NULL) {
        shm->channel = calloc(2 * channels_of(size), sizeof(*shm->channel));
        shm->active = calloc(2 * channels_of(size), sizeof(*shm->active));
        if (offers)
            shm->bounce = aligned_alloc(4096, FETCH_REDUCED);
    }
    if (shm == NULL || shm->channel == NULL || shm->active == NULL ||
        (offers && shm->bounce == NULL)) {
        if (shm != NULL)
            shm_close(&shm->base);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "shm: no memory for the channels of %u ranks",
                          size);
    }
    shm->base.ops = &twill_shm_transport;
    shm->world = params->world;
    shm->job = params->job;
    shm->node = params->node;
    place_all(shm, params);
    snprintf(shm->text, sizeof(shm->text),
             "shm: %u rank%s, " TWILL_TEXT_OF(SLOTS) " slots of %u KiB per lane and direction%s%s",
             size, TWILL_PLURAL(size), SLOT_BYTES / 1024,
             offers ? "; from 512 KiB on read by cma" : "",
             shm->channel[0].crc32c != NULL ? "; checksums (CRC32C)" : "");
    *transport = &shm->base;
    return TWILL_OK;
}

/* Give back the slots of channels on which all that was sent has been received, and the bounce. */
static void shm_suspend(struct twill_transport *transport)
{
    struct shm *shm = (struct shm *)transport;
    for (size_t i = 0; i < channels_of(shm->node->size); i++) {
        struct shm_channel *channel = &shm->channel[i];
        if (channel->sends && channel->queue.head == NULL && channel->index > 0 &&
            atomic_load_explicit(&channel->credit->consumed, memory_order_acquire) ==
                channel->index)
            twill_node_discard(shm->node, channel->data, (size_t)SLOTS * SLOT_BYTES);
    }
    if (shm->bounce != NULL)
        twill_mapping_forget(shm->bounce, FETCH_REDUCED);
}

static void shm_hold(const struct twill_transport *transport, struct twill_transport_holding *sum)
{
    const struct shm *shm = (const struct shm *)transport;
    sum->bytes += sizeof(*shm) + 2 * channels_of(shm->node->size) *
                                     (sizeof(*shm->channel) + sizeof(struct shm_channel *));
    sum->bytes += shm->bounce != NULL ? FETCH_REDUCED : 0;
}

/* Return a text about the transport, which it owns. */
static const char *shm_describe(const struct twill_transport *transport)
{
    return ((const struct shm *)transport)->text;
}

const struct twill_transport_ops twill_shm_transport = {
    .name = "shm",
    .needs_bounce = false,
    .sleeps_on_doorbell = true,
    .reaches = shm_reaches,
    .open = shm_open,
    .close = shm_close,
    .connect = NULL,
    .post = shm_post,
    .progress = shm_progress,
    .cancel = shm_cancel,
    .suspend = shm_suspend,
    .hold = shm_hold,
    .describe = shm_describe,
};
