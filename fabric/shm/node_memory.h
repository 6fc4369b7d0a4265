/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks of one node show each other, in cache lines: flags, immediates, the call they are in,
 * failures, doorbells; and the staging memory (SHARED). One area per rank and communicator, at the
 * head of its segment; only its owner writes it, except doorbells, and immediates and SHARED where
 * two ranks swap them.
 *
 * Epochs: instance e of a communicator uses slot e % TWILL_WINDOW, copy e % TWILL_COPIES of the
 * staging memory and copy e % TWILL_LINES of immediates; a physical lane is slot *
 * TWILL_SCHEDULE_LANES + lane. Flags only grow, nothing is ever reset.
 *
 * Ranks may be ahead of each other (see eager in algorithms/schedule/schedule.h), small messages by
 * many instances: so their staging memory has as many copies as there are immediates. */
#ifndef TWILL_NODE_MEMORY_H
#define TWILL_NODE_MEMORY_H

#include "fabric/shm/shared_region.h"

#include <stdatomic.h>
#include <string.h>

#define TWILL_WINDOW       2                  /* instances in flight */
#define TWILL_COPIES       (2 * TWILL_WINDOW) /* of SHARED */
#define TWILL_LINES        32u                /* copies of IMM, and of SHARED where it is small */
#define TWILL_SMALL_BYTES  ((size_t)4096)     /* so large a SHARED is small */
#define TWILL_NODE_LANES   (TWILL_WINDOW * 4) /* physical lanes */
#define TWILL_POINT_LANE   TWILL_NODE_LANES   /* of messages: point to point */
#define TWILL_LANES        (TWILL_NODE_LANES + 1) /* of messages */
#define TWILL_LINE_PAYLOAD 48
#define TWILL_NODE_PAYLOAD (TWILL_LINE_PAYLOAD + 5 * 64) /* of an immediate */
#define TWILL_ABORT_TEXT   320

/* Payload beside its epoch: one line, one transfer. The head of a slot in a channel. */
struct twill_line {
    _Atomic uint64_t epoch; /* written last */
    uint32_t signature;     /* of the call: ranks that disagree notice at the first line */
    uint32_t bytes;
    unsigned char payload[TWILL_LINE_PAYLOAD];
} TWILL_ALIGNED(64);
_Static_assert(sizeof(struct twill_line) == 64, "a line is a line");

/* An immediate: the same, and lines of payload behind it. */
struct twill_immediate {
    _Atomic uint64_t epoch; /* written last */
    uint32_t signature;
    uint32_t bytes;
    unsigned char payload[TWILL_NODE_PAYLOAD];
} TWILL_ALIGNED(128); /* caches fetch pairs of lines */
_Static_assert(sizeof(struct twill_immediate) == 384, "pairs of lines, no power of two apart");

struct twill_flag {
    _Atomic uint64_t value; /* epoch << 16 | ordinal */
    _Atomic uint32_t signature;
} TWILL_ALIGNED(64);

/* The call a rank is in: read by others only to explain a failure. Which call that is stands with
 * those before it, in struct twill_past. */
struct twill_call_line {
    _Atomic uint64_t sequence;  /* number of the call, from 1; 0 while it is being written */
    _Atomic uint64_t entered;   /* twill_ticks() at entry */
    _Atomic uint64_t left;      /* sequence of the last call that ended here */
    _Atomic uint32_t waits_for; /* 1 + the rank it has been waiting for so long, or 0 */
} TWILL_ALIGNED(64);

/* The instances that a rank has begun; and of the last ones in which calls that was. */
struct twill_started_line {
    _Atomic uint64_t epoch; /* the last one, written last */
    _Atomic uint32_t signature[TWILL_LINES];
} TWILL_ALIGNED(64);

/* One of the last calls, the present one among them. */
#define TWILL_PAST 32u
struct twill_past {
    _Atomic uint64_t sequence, count; /* sequence: 0 while it is being written */
    _Atomic uint32_t what, root;      /* what: twill_call_what() */
};

/* Where the caller's buffers are: in the owner's heap segment, for zero-copy, and in its process,
 * for who can reach that. */
struct twill_address_line {
    _Atomic uint64_t sequence;       /* of the call, written last */
    _Atomic uint64_t src, dst;       /* offset in the heap, or UINT64_MAX: not there */
    _Atomic uint64_t src_at, dst_at; /* address; 0: not needed, UINT64_MAX: not to be reached */
    _Atomic uint32_t signature;
} TWILL_ALIGNED(64);

struct twill_doorbell_line {
    _Atomic uint32_t rings;    /* futex word */
    _Atomic uint32_t sleeping; /* owner is, or is about to be */
} TWILL_ALIGNED(64);

struct twill_abort_line {
    _Atomic uint32_t set;
    int32_t status;
    uint32_t from;
    uint64_t sequence; /* of the call that failed: earlier calls may still end well */
    char message[TWILL_ABORT_TEXT];
} TWILL_ALIGNED(64);

/* How the segment is laid out, so that different builds of twill cannot misread each other. */
struct twill_layout_line {
    uint64_t magic; /* TWILL_NODE_MAGIC; together with the sizes the version of the layout */
    uint64_t area_bytes, shared_bytes, channel_bytes;
} TWILL_ALIGNED(64);
#define TWILL_NODE_MAGIC UINT64_C(0x7477696c6c000004)

struct twill_node_area {
    struct twill_layout_line layout;
    struct twill_call_line call;
    struct twill_started_line started;
    struct twill_past past[TWILL_PAST];     /* by sequence */
    struct twill_address_line addresses[2]; /* by parity of the sequence */
    struct twill_doorbell_line doorbell;
    struct twill_abort_line abort;
    struct twill_flag flag[TWILL_NODE_LANES];
    struct twill_immediate imm[TWILL_NODE_LANES][TWILL_LINES];
};

/* This rank's view of the areas of a communicator. Indexed by local rank. */
struct twill_node {
    struct twill_shm_region *region;
    uint32_t me;                   /* own local rank */
    uint32_t size;                 /* ranks on this node */
    uint32_t alternate;            /* 1 where they are two, else 0: see twill_node_area_index() */
    struct twill_node_area **area; /* [size] */
    unsigned char **shared;        /* [size] first byte of the staging memory */
    size_t shared_bytes;           /* of one copy */
    unsigned char **small;         /* [size] first byte of the copies for small messages */
    unsigned char **channels;      /* [size] first byte of the region the shm transport lays out */
    size_t channel_bytes;
    uint32_t *rank; /* [size] ranks, ascending */
};

/* Collective over boot. May split nodes that cannot share memory: see twill_shm_region_share().
 * channel_bytes: room for the shm transport's channels. placer: of this rank's area and what is
 * behind it, or NULL. */
twill_status twill_node_open(struct twill_node **node, struct twill_oob *oob, uint32_t *label,
                             size_t shared_bytes, size_t channel_bytes,
                             const struct twill_shm_region_placer *placer, const char **why,
                             struct twill_error *error);
void twill_node_close(struct twill_node *node);

/* Wake local rank l if it sleeps. Cheap when it does not. Call after the store it waits for. No
 * fence: a sleeper never sleeps longer than a millisecond or so, so a lost wake costs little. */
void twill_node_wake(struct twill_node *node, uint32_t l);
static inline void twill_node_ring_doorbell(struct twill_node *node, uint32_t l)
{
    if (TWILL_UNLIKELY(
            atomic_load_explicit(&node->area[l]->doorbell.sleeping, memory_order_relaxed) != 0))
        twill_node_wake(node, l);
}
static inline void twill_node_ring_doorbells(struct twill_node *node)
{
    for (uint32_t l = 0; l < node->size; l++)
        if (l != node->me)
            twill_node_ring_doorbell(node, l);
}
/* Sleep until rung, at most timeout_ns. The caller sets bell.sleeping, polls once more, sleeps,
 * clears it: twill_node_sleep_begin() returns the word to compare. */
uint32_t twill_node_sleep_begin(struct twill_node *node);
void twill_node_sleep(struct twill_node *node, uint32_t word, uint64_t timeout_ns);
void twill_node_sleep_end(struct twill_node *node);

/* Flags grow by epoch, and within one by SIGNAL. */
static inline uint64_t twill_node_flag_value(uint64_t epoch, uint32_t ordinal)
{
    return epoch << 16 | ordinal;
}

static inline void twill_node_signal(struct twill_node *node, uint32_t lane, uint64_t value,
                                     uint32_t signature)
{
    struct twill_flag *flag = &node->area[node->me]->flag[lane];
    atomic_store_explicit(&flag->signature, signature, memory_order_relaxed);
    atomic_store_explicit(&flag->value, value, memory_order_release);
    twill_node_ring_doorbells(node);
}

static inline uint64_t twill_node_flag(const struct twill_node *node, uint32_t l, uint32_t lane)
{
    return atomic_load_explicit(&node->area[l]->flag[lane].value, memory_order_acquire);
}

/* Whose area holds what local rank l shows, the copies being gone round so many times. Two ranks
 * swap every time: a line is then written where it was read last, and need not be fetched for it
 * (PLATFORM: a fifth of the time of a line to and fro, half of that of a few KiB). Safe as reusing
 * a copy is: when an epoch begins anywhere, everything of the one that used the copy before is done
 * everywhere. */
static inline uint32_t twill_node_area_index(const struct twill_node *node, uint32_t l,
                                             uint64_t round)
{
    return l ^ ((uint32_t)round & node->alternate);
}

/* Local rank l's copy of SHARED in an epoch; `swaps`: two ranks swap it as above; `small`: among
 * the copies for small messages. Those are not a power of two apart: they would meet in the same
 * places of a cache. */
static inline unsigned char *twill_node_shared(const struct twill_node *node, uint32_t l,
                                               uint64_t epoch, bool alternates, bool small)
{
    uint64_t copies = small ? TWILL_LINES : TWILL_COPIES;
    uint32_t area = alternates ? twill_node_area_index(node, l, epoch / copies) : l;
    return small ? node->small[area] + epoch % copies * (TWILL_SMALL_BYTES + TWILL_CACHE_LINE)
                 : node->shared[area] + epoch % copies * node->shared_bytes;
}

static inline struct twill_immediate *twill_node_imm_at(const struct twill_node *node, uint32_t l,
                                                        uint32_t lane, uint64_t epoch)
{
    struct twill_node_area *area = node->area[twill_node_area_index(node, l, epoch / TWILL_LINES)];
    return &area->imm[lane][epoch % TWILL_LINES];
}

/* The payload is there: say so. */
static inline void twill_node_show_imm(struct twill_immediate *imm, uint64_t epoch,
                                       uint32_t signature, size_t bytes)
{
    imm->signature = signature;
    imm->bytes = (uint32_t)bytes;
    atomic_store_explicit(&imm->epoch, epoch, memory_order_release);
}

static inline void twill_node_put(struct twill_node *node, uint32_t lane, uint64_t epoch,
                                  uint32_t signature, const void *payload, size_t bytes)
{
    struct twill_immediate *imm = twill_node_imm_at(node, node->me, lane, epoch);
    memcpy(imm->payload, payload, bytes);
    twill_node_show_imm(imm, epoch, signature, bytes);
    twill_node_ring_doorbells(node);
}

/* The immediate of local rank l for this epoch, or NULL: not there yet. */
static inline const struct twill_immediate *
twill_node_imm(const struct twill_node *node, uint32_t l, uint32_t lane, uint64_t epoch)
{
    const struct twill_immediate *line = twill_node_imm_at(node, l, lane, epoch);
    return atomic_load_explicit(&line->epoch, memory_order_acquire) == epoch ? line : NULL;
}

/* Say that this rank begins an instance. */
static inline void twill_node_start(struct twill_node *node, uint64_t epoch, uint32_t signature)
{
    struct twill_started_line *started = &node->area[node->me]->started;
    atomic_store_explicit(&started->signature[epoch % TWILL_LINES], signature,
                          memory_order_relaxed);
    atomic_store_explicit(&started->epoch, epoch, memory_order_release);
}

/* The last instance that local rank l has begun. */
static inline uint64_t twill_node_started(const struct twill_node *node, uint32_t l)
{
    return atomic_load_explicit(&node->area[l]->started.epoch, memory_order_acquire);
}

/* The signature of one that it has begun and that is not too long ago: this rank is in it. */
static inline uint32_t twill_node_signature(const struct twill_node *node, uint32_t l,
                                            uint64_t epoch)
{
    return atomic_load_explicit(&node->area[l]->started.signature[epoch % TWILL_LINES],
                                memory_order_relaxed);
}

/* Say on this node that the communicator failed; the first one said by a rank stays. */
void twill_node_abort(struct twill_node *node, twill_status status, uint32_t from,
                      uint64_t sequence, const char *message);
/* The local rank that has said so of a call up to this one, or UINT32_MAX. */
uint32_t twill_node_aborted(const struct twill_node *node, uint64_t sequence);

#endif
