/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of a worker to a shard, and its answers, in memory that both map. No lock: the worker
 * alone writes a ring, in its memory, and the shard alone answers, in the server's. */
#ifndef TWILL_SERVER_ORDER_RING_H
#define TWILL_SERVER_ORDER_RING_H

#include "lib/base/base.h"

#include <stdatomic.h>

/* Kinds of orders; PUSH | PULL is one order. */
#define TWILL_ORDER_PUSH  1u
#define TWILL_ORDER_PULL  2u
#define TWILL_ORDER_LEAVE 4u

struct twill_server_order {
    uint32_t key, kind;
    uint64_t push, pull; /* their numbers, for the kinds that it has */
    uint64_t unused;
};
_Static_assert(sizeof(struct twill_server_order) == 32, "two in a cache line");

/* A worker has at most one push and one pull of a key under way, and a shard takes an order before
 * it answers it: two slots a key, and one to leave, never overrun. */
struct twill_order_ring {
    _Atomic uint64_t head; /* orders written, ever */
    unsigned char gap[TWILL_CACHE_LINE - sizeof(uint64_t)];
    struct twill_server_order order[];
};

/* The numbers of the last push and pull of a key of a worker that are complete on a shard, and the
 * version that the pull got: of the chunk that has the fewest updates. */
struct twill_answer {
    _Atomic uint64_t pushed, pulled;
    _Atomic uint64_t version;
    uint64_t unused;
};

static inline size_t twill_ring_slots(uint32_t keys)
{
    size_t slots = 4;
    while (slots < 2 * (size_t)keys + 2)
        slots *= 2;
    return slots;
}

static inline size_t twill_ring_bytes(uint32_t keys)
{
    return sizeof(struct twill_order_ring) +
           twill_ring_slots(keys) * sizeof(struct twill_server_order);
}

static inline void twill_ring_put(struct twill_order_ring *ring, uint32_t keys,
                                  struct twill_server_order order)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    ring->order[head & (twill_ring_slots(keys) - 1)] = order;
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

#endif
