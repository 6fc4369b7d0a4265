/* SPDX-License-Identifier: Apache-2.0 */
/* Records that the ranks of a node publish: their current and last calls, the rank they wait for,
 * the addresses of their buffers, a failure. Each rank writes its own records and reads those of
 * all others. One thread of a rank at a time may call these functions. */
#ifndef TWILL_CALL_RECORDS_H
#define TWILL_CALL_RECORDS_H

#include "fabric/shm/node_memory.h"

/* A copy of one call of a communicator, owned by whoever holds it. */
struct twill_call_record {
    uint64_t sequence; /* number of the call in its communicator, from 1 */
    uint64_t count;
    uint32_t what, root; /* `what` packs collective, type and operation (twill_call_what()) */
};

/* Publish that this rank enters a call, at twill_ticks() `ticks`. Readers may see it late but never
 * mixed with another call, as each record is invalid (0) while it is written. */
static inline void twill_node_enter_call(struct twill_node *node,
                                         const struct twill_call_record *call, uint64_t ticks)
{
    struct twill_call_line *line = &node->area[node->me]->call;
    struct twill_past *past = &node->area[node->me]->past[call->sequence % TWILL_PAST];
    /* Release stores, as readers must see the 0 before the new contents. */
    atomic_store_explicit(&past->sequence, 0, memory_order_relaxed);
    atomic_store_explicit(&past->count, call->count, memory_order_release);
    atomic_store_explicit(&past->what, call->what, memory_order_release);
    atomic_store_explicit(&past->root, call->root, memory_order_release);
    atomic_store_explicit(&past->sequence, call->sequence, memory_order_release);
    atomic_store_explicit(&line->sequence, 0, memory_order_relaxed);
    atomic_store_explicit(&line->entered, ticks, memory_order_release);
    atomic_store_explicit(&line->waits_for, 0, memory_order_release);
    atomic_store_explicit(&line->sequence, call->sequence, memory_order_release);
}
/* Publish that this rank's call of this number has ended. */
static inline void twill_node_leave_call(struct twill_node *node, uint64_t sequence)
{
    atomic_store_explicit(&node->area[node->me]->call.left, sequence, memory_order_relaxed);
}
/* Return the number of the last call of local rank l that has ended, or 0 if none has. */
static inline uint64_t twill_node_left_call(const struct twill_node *node, uint32_t l)
{
    return atomic_load_explicit(&node->area[l]->call.left, memory_order_relaxed);
}

/* Copy call number `sequence` of local rank l to *call and return true. Returns false, with *call
 * undefined, if l has not made it or has made TWILL_PAST or more calls since. */
static inline bool twill_node_read_call(const struct twill_node *node, uint32_t l,
                                        uint64_t sequence, struct twill_call_record *call)
{
    const struct twill_past *past = &node->area[l]->past[sequence % TWILL_PAST];
    call->sequence = atomic_load_explicit(&past->sequence, memory_order_acquire);
    call->what = atomic_load_explicit(&past->what, memory_order_acquire);
    call->count = atomic_load_explicit(&past->count, memory_order_acquire);
    call->root = atomic_load_explicit(&past->root, memory_order_acquire);
    return call->sequence == sequence &&
           atomic_load_explicit(&past->sequence, memory_order_relaxed) == sequence;
}
/* Copy the last call that local rank l has entered to *call, and its time in ticks to *entered.
 * Returns false, with neither valid, if l has made no call or is just entering one. Else true. */
static inline bool twill_node_read_last_call(const struct twill_node *node, uint32_t l,
                                             struct twill_call_record *call, uint64_t *entered)
{
    const struct twill_call_line *line = &node->area[l]->call;
    uint64_t sequence = atomic_load_explicit(&line->sequence, memory_order_acquire);
    *entered = atomic_load_explicit(&line->entered, memory_order_acquire);
    return sequence != 0 && twill_node_read_call(node, l, sequence, call) &&
           atomic_load_explicit(&line->sequence, memory_order_relaxed) == sequence;
}

/* Publish which rank, as far as this one knows, entered call number `sequence` last, and when. */
static inline void twill_node_note_entry(struct twill_node *node, uint64_t sequence,
                                         struct twill_last_entry last)
{
    struct twill_entry *entry = &node->area[node->me]->entry[sequence % TWILL_PAST];
    atomic_store_explicit(&entry->sequence, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->ticks, last.ticks, memory_order_release);
    atomic_store_explicit(&entry->rank, last.rank, memory_order_release);
    atomic_store_explicit(&entry->sequence, sequence, memory_order_release);
}
/* Read what local rank l has published about the last entry into call number `sequence`. Returns
 * false if l has not entered that call, or is writing the record just now. Returns true with
 * last->ticks 0 if a later call has overwritten the record, else true with the entry in *last. */
static inline bool twill_node_last_entry(const struct twill_node *node, uint32_t l,
                                         uint64_t sequence, struct twill_last_entry *last)
{
    const struct twill_entry *entry = &node->area[l]->entry[sequence % TWILL_PAST];
    uint64_t found = atomic_load_explicit(&entry->sequence, memory_order_acquire);
    last->ticks = atomic_load_explicit(&entry->ticks, memory_order_acquire);
    last->rank = atomic_load_explicit(&entry->rank, memory_order_acquire);
    if (found > sequence)
        last->ticks = 0;
    return found > sequence ||
           (found == sequence &&
            atomic_load_explicit(&entry->sequence, memory_order_relaxed) == sequence);
}
/* Publish that this rank has long been waiting for `rank` of the communicator. That holds until it
 * enters its next call. */
static inline void twill_node_wait_for(struct twill_node *node, uint32_t rank)
{
    atomic_store_explicit(&node->area[node->me]->call.waits_for, rank + 1, memory_order_release);
}
/* Return the rank of the communicator that local rank l waits for, or UINT32_MAX if none. */
static inline uint32_t twill_node_waits_for(const struct twill_node *node, uint32_t l)
{
    return atomic_load_explicit(&node->area[l]->call.waits_for, memory_order_acquire) - 1;
}

/* Where a rank waits. Ranks that miss it in a collective of another communicator read this. */
struct twill_elsewhere {
    struct twill_call_record call; /* sequence 0 if it waits for a message of that communicator */
    uint64_t ticks;                /* twill_ticks() when it was published, 0 if it never was */
    uint32_t comm;                 /* number of that communicator */
};

/* Publish *at, the collective or message of communicator at->comm that this rank waits for. `node`
 * is the node memory of any communicator, whose ranks then can read it. Call this again with a new
 * at->ticks while the rank waits, as readers ignore records that are some seconds old. */
static inline void twill_node_be_elsewhere(struct twill_node *node,
                                           const struct twill_elsewhere *at)
{
    struct twill_call_line *line = &node->area[node->me]->call;
    atomic_store_explicit(&line->elsewhere, at->comm, memory_order_relaxed);
    atomic_store_explicit(&line->elsewhere_what, at->call.what, memory_order_relaxed);
    atomic_store_explicit(&line->elsewhere_root, at->call.root, memory_order_relaxed);
    atomic_store_explicit(&line->elsewhere_count, at->call.count, memory_order_relaxed);
    atomic_store_explicit(&line->elsewhere_sequence, at->call.sequence, memory_order_relaxed);
    atomic_store_explicit(&line->elsewhere_at, at->ticks, memory_order_release);
}

/* Return where local rank l last said that it waits, with `ticks` 0 if it never did. */
static inline struct twill_elsewhere twill_node_elsewhere(const struct twill_node *node, uint32_t l)
{
    const struct twill_call_line *line = &node->area[l]->call;
    struct twill_elsewhere at = {
        .ticks = atomic_load_explicit(&line->elsewhere_at, memory_order_acquire)};
    at.comm = atomic_load_explicit(&line->elsewhere, memory_order_relaxed);
    at.call.what = atomic_load_explicit(&line->elsewhere_what, memory_order_relaxed);
    at.call.root = atomic_load_explicit(&line->elsewhere_root, memory_order_relaxed);
    at.call.count = atomic_load_explicit(&line->elsewhere_count, memory_order_relaxed);
    at.call.sequence = atomic_load_explicit(&line->elsewhere_sequence, memory_order_relaxed);
    return at;
}

/* The addresses of a rank's buffers in one call. A copy of its struct twill_address_line, owned by
 * whoever holds it. */
struct twill_buffer_addresses {
    uint64_t src, dst;       /* offset in the rank's heap region, UINT64_MAX if outside */
    uint64_t src_at, dst_at; /* address, 0 if not needed, UINT64_MAX if not accessible */
    uint32_t signature;      /* call hash */
    uint32_t cost[2];        /* of calls like this, staged and fetched, 0 if unknown */
};

/* Publish this rank's addresses for call number `sequence`, and wake the node's other ranks. */
static inline void twill_node_put_addresses(struct twill_node *node, uint64_t sequence,
                                            const struct twill_buffer_addresses *addresses)
{
    struct twill_address_line *line = &node->area[node->me]->addresses[sequence % 2];
    atomic_store_explicit(&line->src, addresses->src, memory_order_relaxed);
    atomic_store_explicit(&line->dst, addresses->dst, memory_order_relaxed);
    atomic_store_explicit(&line->src_at, addresses->src_at, memory_order_relaxed);
    atomic_store_explicit(&line->dst_at, addresses->dst_at, memory_order_relaxed);
    atomic_store_explicit(&line->signature, addresses->signature, memory_order_relaxed);
    for (unsigned way = 0; way < 2; way++)
        atomic_store_explicit(&line->cost[way], addresses->cost[way], memory_order_relaxed);
    atomic_store_explicit(&line->sequence, sequence, memory_order_release);
    twill_node_ring_doorbells(node);
}
/* Copy local rank l's addresses for call `sequence`. Returns false if it has not published them. */
static inline bool twill_node_get_addresses(const struct twill_node *node, uint32_t l,
                                            uint64_t sequence,
                                            struct twill_buffer_addresses *addresses)
{
    const struct twill_address_line *line = &node->area[l]->addresses[sequence % 2];
    if (atomic_load_explicit(&line->sequence, memory_order_acquire) != sequence)
        return false;
    addresses->src = atomic_load_explicit(&line->src, memory_order_relaxed);
    addresses->dst = atomic_load_explicit(&line->dst, memory_order_relaxed);
    addresses->src_at = atomic_load_explicit(&line->src_at, memory_order_relaxed);
    addresses->dst_at = atomic_load_explicit(&line->dst_at, memory_order_relaxed);
    addresses->signature = atomic_load_explicit(&line->signature, memory_order_relaxed);
    for (unsigned way = 0; way < 2; way++)
        addresses->cost[way] = atomic_load_explicit(&line->cost[way], memory_order_relaxed);
    return true;
}
/* Return the failure that local rank l has published. Valid if twill_node_aborted() returned l. */
static inline const struct twill_abort_line *twill_node_failure(const struct twill_node *node,
                                                                uint32_t l)
{
    return &node->area[l]->abort;
}

#endif
