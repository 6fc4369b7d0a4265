/* SPDX-License-Identifier: Apache-2.0 */
/* Node memory: cache lines in which the ranks of a node publish flags, immediates (small payloads
 * with their epoch), calls, failures and doorbells. And SHARED, the scratch memory of schedules.
 * Each rank has one area per communicator. It is at the start of the rank's region, or of a part of
 * the room in the region of the communicator that this one was made out of (node_room.h). Only its
 * owner writes to it, except for doorbells, and for immediates and SHARED where two ranks alternate
 * them.
 *
 * Instance e of a communicator (its epoch) uses slot e % TWILL_WINDOW, copy e % TWILL_COPIES of
 * SHARED and copy e % TWILL_LINES of immediates. Its physical lanes are slot * TWILL_SCHEDULE_LANES
 * + lane. Flags only grow, and nothing is ever reset.
 *
 * Ranks may be ahead of each other (see eager in algorithms/schedule/schedule.h), with small
 * messages by many instances. Small and medium SHARED therefore have many copies. If it fits an
 * immediate and each rank signals once, it is the immediate's payload, which is then the signal as
 * well. */
#ifndef TWILL_NODE_MEMORY_H
#define TWILL_NODE_MEMORY_H

#include "fabric/entry_times.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

struct twill_oob;
struct twill_oob_batch;
struct twill_room;       /* fabric/shm/node_room.h */
struct twill_room_place; /* fabric/shm/node_room.h */
struct twill_shm_region;
struct twill_shm_region_placer;

#define TWILL_COPIES       (2 * TWILL_WINDOW) /* copies of SHARED */
#define TWILL_LINES        64u                /* copies of immediates */
#define TWILL_SMALLS       32u                /* copies of small SHARED */
#define TWILL_SMALL_BYTES  ((size_t)4096)     /* SHARED up to this size is small */
#define TWILL_MEDIUMS      16u                /* copies of medium SHARED */
#define TWILL_MEDIUM_BYTES ((size_t)16384)    /* SHARED that is not small, up to this size */
#define TWILL_REACHED      16u                /* instances between stores to a reached line */
#define TWILL_SLOT_LANES   4u                 /* lanes of a slot */
#define TWILL_NODE_LANES   (TWILL_WINDOW * TWILL_SLOT_LANES) /* physical lanes */
#define TWILL_POINT_LANE   TWILL_NODE_LANES                  /* lane of point-to-point messages */
#define TWILL_LANES        (TWILL_NODE_LANES + 1)            /* lanes of messages */
#define TWILL_LINE_PAYLOAD 48
#define TWILL_NODE_PAYLOAD (TWILL_LINE_PAYLOAD + 5 * 64) /* payload of an immediate */
#define TWILL_ABORT_TEXT   320
/* Which copies of SHARED a call uses. IMM: the payload of its immediates. */
enum twill_shared_size {
    TWILL_SHARED_LARGE,
    TWILL_SHARED_MEDIUM,
    TWILL_SHARED_SMALL,
    TWILL_SHARED_IMM,
};

/* A small payload with its epoch, one cache line of shared memory. Also the head of a shm slot. */
struct twill_line {
    _Atomic uint64_t epoch; /* written last */
    uint32_t signature;     /* call hash, by which ranks find that their calls differ */
    uint32_t bytes;
    unsigned char payload[TWILL_LINE_PAYLOAD];
} TWILL_ALIGNED(64);
_Static_assert(sizeof(struct twill_line) == 64, "one cache line");

/* An immediate: a small payload with its epoch, in several cache lines of shared memory. */
struct twill_immediate {
    _Atomic uint64_t epoch; /* written last */
    uint32_t signature;     /* call hash */
    uint32_t bytes;
    unsigned char payload[TWILL_NODE_PAYLOAD];
} TWILL_ALIGNED(128); /* caches fetch pairs of lines */
_Static_assert(sizeof(struct twill_immediate) == 384, "pairs of lines, no power of two apart");

/* A flag of a rank for one lane, in shared memory. The SIGNAL steps of that rank raise it. */
struct twill_flag {
    _Atomic uint64_t value;     /* epoch << 16 | number of the SIGNAL step */
    _Atomic uint32_t signature; /* call hash */
} TWILL_ALIGNED(64);

/* The call a rank is in, which it alone writes. Others read it only to explain a failure. Its
 * collective, type and operation are in struct twill_past. */
struct twill_call_line {
    _Atomic uint64_t sequence;  /* number of the call, from 1, 0 while it is being written */
    _Atomic uint64_t entered;   /* twill_ticks() at entry */
    _Atomic uint64_t left;      /* sequence of the last call that ended */
    _Atomic uint32_t waits_for; /* 1 + the rank it has long been waiting for, or 0 */
    /* struct twill_elsewhere: */
    _Atomic uint32_t elsewhere, elsewhere_what, elsewhere_root;
    _Atomic uint64_t elsewhere_sequence, elsewhere_count, elsewhere_at;
} TWILL_ALIGNED(64);

/* The instances a rank has started, and for the last TWILL_LINES of them the call hash. */
struct twill_started_line {
    _Atomic uint64_t epoch; /* of the last one, written last */
    _Atomic uint32_t signature[TWILL_LINES];
} TWILL_ALIGNED(64);

/* The last instance of a rank whose epoch is a multiple of TWILL_REACHED. A rank that is ahead
 * reads this line, which changes rarely, so that neither waits for a cache line in every instance.
 */
struct twill_reached_line {
    _Atomic uint64_t epoch;
} TWILL_ALIGNED(128);

#define TWILL_PAST 64u
/* One of a rank's last TWILL_PAST calls, including the current one. Its owner alone writes it. */
struct twill_past {
    _Atomic uint64_t sequence, count; /* call number, 0 while being written; elements */
    _Atomic uint32_t what, root;      /* twill_call_what() of the call; root rank */
};

/* The last entry that a rank knows of into one of its last TWILL_PAST calls. This is its own when
 * it starts the call, then later ones by ranks of other nodes. */
struct twill_entry {
    _Atomic uint64_t sequence; /* of the call, written last, 0 while it is being written */
    _Atomic uint64_t ticks;    /* twill_ticks() at entry */
    _Atomic uint32_t rank;
} TWILL_ALIGNED(32);

/* Addresses of a rank's buffers in a call: in its heap region and, for single copy, its process. */
struct twill_address_line {
    _Atomic uint64_t sequence;       /* of the call, written last */
    _Atomic uint64_t src, dst;       /* offset in the heap region, UINT64_MAX if outside */
    _Atomic uint64_t src_at, dst_at; /* address, 0 if not needed, UINT64_MAX if not accessible */
    _Atomic uint32_t signature;      /* call hash */
    _Atomic uint32_t cost[2]; /* of calls like this, staged and fetched (lib/engine/staging.c) */
} TWILL_ALIGNED(64);

/* The doorbell on which a rank sleeps. It sets `sleeping`. The first peer that clears that again
 * adds to `rings` and wakes it, so that the others need no system call. */
struct twill_doorbell_line {
    _Atomic uint32_t rings;    /* futex word */
    _Atomic uint32_t sleeping; /* owner sleeps, or is about to */
} TWILL_ALIGNED(64);

/* Ticks that copying 64 KiB through SHARED takes its rank, 0 if unknown (lib/engine/staging.c). */
struct twill_staging_line {
    _Atomic uint32_t cost[2][2]; /* of segments and of exchanges, each cached and streamed */
} TWILL_ALIGNED(64);

/* The failure of a communicator, as one rank reports it. Valid once `set` is 1. */
struct twill_abort_line {
    _Atomic uint32_t set;
    _Atomic uint32_t excluded;    /* set by other ranks, which continue without the owner */
    struct twill_news_words news; /* of the node's first rank, set by all */
    int32_t status;
    uint32_t from;     /* rank that reported the failure first, TWILL_NO_RANK: the area's owner */
    uint64_t sequence; /* of the failed call (earlier ones may still succeed), 0 for any call */
    char message[TWILL_ABORT_TEXT];
} TWILL_ALIGNED(64);

/* How often a rank has suspended the communicator, and whether it has made a call since. And what
 * private memory its calls have, for readers outside the job. */
struct twill_suspend_line {
    _Atomic uint64_t steps; /* two for each time: its calls are over; its memory is given back */
    _Atomic uint32_t suspended;
    _Atomic uint64_t private_bytes;
} TWILL_ALIGNED(64);

/* The layout of the region, so that different builds of twill cannot misread each other. */
struct twill_layout_line {
    uint64_t magic; /* TWILL_NODE_MAGIC, the version of the layout */
    uint64_t area_bytes, shared_bytes, pair_bytes;
    uint64_t room_at, room_bytes; /* of a region with room (node_room.h), else 0 */
} TWILL_ALIGNED(64);
#define TWILL_NODE_MAGIC   UINT64_C(0x7477696c6c000015)
#define TWILL_PROGRAM_TEXT 64
/* The owner of an area, for readers outside the job. Set when the communicator is made. */
struct twill_node_owner {
    uint64_t job;                /* the same on all ranks of the job */
    uint64_t ticks, ns;          /* twill_ticks() and twill_now() of one moment */
    uint32_t number;             /* of the communicator */
    uint32_t rank, size;         /* in the communicator */
    uint32_t root;               /* rank in the job of the communicator's rank 0 */
    uint32_t job_rank, job_size; /* in the job */
    char program[TWILL_PROGRAM_TEXT];
} TWILL_ALIGNED(64);

/* One rank's records in one communicator, in shared memory at the start of its region. Those before
 * imm[] stay while the communicator is suspended. */
struct twill_node_area {
    struct twill_layout_line layout;
    struct twill_node_owner owner;
    struct twill_call_line call;
    struct twill_started_line started;
    struct twill_reached_line reached;
    struct twill_past past[TWILL_PAST];     /* by sequence % TWILL_PAST */
    struct twill_entry entry[TWILL_PAST];   /* by sequence % TWILL_PAST */
    struct twill_address_line addresses[2]; /* by parity of the sequence */
    struct twill_doorbell_line doorbell;
    struct twill_staging_line staging;
    struct twill_abort_line abort;
    struct twill_suspend_line suspend;
    struct twill_flag flag[TWILL_NODE_LANES];
    struct twill_immediate imm[TWILL_SLOT_LANES][TWILL_LINES]; /* of all slots */
};

/* This rank's view of the node memory of a communicator. Arrays are indexed by local rank. Created
 * by twill_node_offer(), freed by twill_node_close(). On a node of two ranks `alternate` is 1. Each
 * then writes to the other's area in every second round, as twill_node_area_index() explains. */
struct twill_node {
    struct twill_shm_region *region;  /* its own, or the one in whose room it is */
    struct twill_room *room;          /* the room that it has or is in, or NULL */
    struct twill_room_place *place;   /* [size] with room, the parts of its ranks */
    uint32_t *in_region;              /* [size] rank in the region */
    uint32_t me;                      /* own local rank */
    uint32_t size;                    /* ranks on this node */
    uint32_t alternate;               /* 1 or 0 */
    struct twill_node_area **area;    /* [size] */
    unsigned char **shared;           /* [size] first copy of SHARED */
    size_t shared_bytes;              /* bytes of one copy */
    unsigned char **small;            /* [size] first copy of small SHARED */
    size_t medium_at;                 /* distance from there to the first copy of medium SHARED */
    unsigned char **sends;            /* [size] own memory that only this rank and rank l map */
    unsigned char **receives;         /* [size] memory of rank l that only l and this rank map */
    size_t pair_bytes;                /* of each sends[l] or receives[l], for the shm transport */
    size_t trace_at;                  /* offset of the memory for events in a region */
    uint32_t *rank;                   /* [size] rank in the communicator, ascending */
    struct twill_layout_line *layout; /* [ranks + 1] of all ranks, own; NULL after conclude() */
    size_t room_bytes;                /* as reserved */
    struct twill_shm_region_placer *placer; /* of a part of a room, once it is used */
    bool placed;                            /* result of its place() */
};

/* Create *node, in three steps with an exchange of `batch` after each of the first two, as for a
 * region (shared_region.h). This first step adds to `batch` where this rank can be reached. Fails
 * with TWILL_ERR_MEMORY. After a failure of any step the caller still calls twill_node_close(). */
twill_status twill_node_offer(struct twill_node **node, struct twill_oob *oob,
                              struct twill_oob_batch *batch, struct twill_error *error);
/* Create this rank's memory and map that of the ranks with its node number label[rank], for which
 * it waits. Adds the result to `batch`. shared_bytes is the size of one copy of SHARED, pair_bytes
 * that of the shm transport's memory with each rank. `placer` places the memory and may be NULL. */
twill_status twill_node_attach(struct twill_node *node, const struct twill_oob *oob,
                               const uint32_t *label, size_t shared_bytes, size_t pair_bytes,
                               const struct twill_shm_region_placer *placer,
                               struct twill_oob_batch *batch, struct twill_error *error);
/* Before twill_node_attach(), have room of `bytes` for twill_node_share(). */
void twill_node_reserve(struct twill_node *node, size_t bytes);
/* Agree who shares memory. If ranks cannot, change label[] and set *why to the reason, else to
 * NULL. Fails with TWILL_ERR_MISMATCH if their layouts differ, _TIMEOUT, _MEMORY or _INTERNAL. */
twill_status twill_node_conclude(struct twill_node *node, const struct twill_oob *oob,
                                 uint32_t *label, const char **why, struct twill_error *error);
/* Return the bytes of a part of a room for a communicator with `ranks` ranks on this node. */
size_t twill_node_part_bytes(size_t shared_bytes, size_t pair_bytes, uint32_t ranks);
/* Make *node for a communicator that is made out of that of `of`. It has `size` ranks here, and
 * this one is number `me` of them. Returns TWILL_OK, or TWILL_ERR_MEMORY with *node unchanged. */
twill_status twill_node_share(struct twill_node **node, const struct twill_node *of, uint32_t size,
                              uint32_t me, size_t shared_bytes, struct twill_error *error);
/* Then, for each local rank l, say which rank of the communicator and of the region of `of` it is,
 * and which part of its room it has for this. From the first call on, `node` is one of the users of
 * the room. The memory is zero until twill_node_use(). */
void twill_node_find(struct twill_node *node, const struct twill_node *of, uint32_t l,
                     uint32_t rank, uint32_t in_region, const struct twill_room_place *place);
/* Begin to use this rank's part of the room, which *placer places until twill_node_close(). Writes
 * *owner as twill_node_introduce() does. The peers need not have begun. */
void twill_node_use(struct twill_node *node, const struct twill_shm_region_placer *placer,
                    const struct twill_node_owner *owner);
/* Instead of twill_node_share(), tell the other ranks, which may have the new communicator, that
 * this one has failed with `status`. *place, its part of the room of `of`, is given back. */
void twill_node_refuse(const struct twill_node *of, const struct twill_room_place *place,
                       twill_status status, const char *message);
/* Give this rank's memory for calls back to the kernel: immediates, SHARED and events, but not the
 * records and what messages use. No rank of the node may be in a call, and none may begin one until
 * all have done this. The memory is zeros at its next use. */
void twill_node_suspend(struct twill_node *node);
/* After twill_node_suspend(), before the next call, make the memory of small messages again. */
void twill_node_resume(struct twill_node *node);
/* Return whether the owner of an area has suspended the communicator and made no call since. */
static inline bool twill_node_is_suspended(const struct twill_node_area *area)
{
    return atomic_load_explicit(&area->suspend.suspended, memory_order_acquire) != 0;
}
/* Return that of this rank. */
static inline bool twill_node_suspended_here(const struct twill_node *node)
{
    return twill_node_is_suspended(node->area[node->me]);
}
/* Give the whole pages in `bytes` bytes at `at`, of this rank's memory, back to the kernel. */
void twill_node_discard(const struct twill_node *node, void *at, size_t bytes);
/* Return how many bytes of this rank's memory exist. *most becomes how many there can be. */
size_t twill_node_resident(const struct twill_node *node, size_t *most);
/* Return how many descriptors it keeps, 0 if it is in the room of another. */
unsigned twill_node_descriptors(const struct twill_node *node);
/* Return whether local rank l has died, or has left the communicator, if that is known. */
bool twill_node_owner_dead(const struct twill_node *node, uint32_t l);
/* Free the node memory in any state. `node` may be NULL. */
void twill_node_close(struct twill_node *node);
/* Return how many bytes a process maps for the node memory of one communicator. The node has
 * `ranks` ranks, `threads` of which are threads of this process. The sizes are as in
 * twill_node_attach(). */
size_t twill_node_mapped_bytes(size_t shared_bytes, size_t pair_bytes, uint32_t ranks,
                               uint32_t threads);
/* Copy *owner, which says what process and communicator this rank's area belongs to, into the area,
 * for readers outside the job. Called between twill_node_attach() and twill_node_conclude(). `oob`
 * is that of the communicator and gives the number of this rank. */
void twill_node_introduce(struct twill_node *node, const struct twill_oob *oob,
                          const struct twill_node_owner *owner);
/* In a view of one rank's memory (node_view.h), `bytes` bytes of another process, set
 * node->trace_at from the layout that this process has written there. Returns false if another
 * build has laid it out, or if the memory for events does not fit `bytes`, else true. */
bool twill_node_find_trace(struct twill_node *node, const struct twill_layout_line *written,
                           size_t bytes);
/* At the end of the memory for events is the rank's part of the board (node_board.h). */
#define TWILL_NODE_BOARD_AT    ((size_t)164 << 10)
#define TWILL_NODE_TRACE_BYTES (TWILL_NODE_BOARD_AT + ((size_t)4 << 10))
/* Return the memory in which local rank l, this one or another of the node, records events
 * (lib/base/trace.h). It has TWILL_NODE_BOARD_AT bytes, which are zero at first. */
void *twill_node_trace(const struct twill_node *node, uint32_t l);
/* Ring the doorbell of local rank l, which wakes it, unless it is awake or another rank does so. */
void twill_node_wake(struct twill_node *node, uint32_t l);
/* Wake local rank l if it sleeps (cheap if not). Call it after the store that l waits for. There is
 * no fence: a sleeper wakes by itself after about a millisecond, so a lost wake costs little. */
static inline void twill_node_ring_doorbell(struct twill_node *node, uint32_t l)
{
    if (TWILL_UNLIKELY(
            atomic_load_explicit(&node->area[l]->doorbell.sleeping, memory_order_relaxed) != 0))
        twill_node_wake(node, l);
}
/* Wake all other ranks of this node that sleep. */
static inline void twill_node_ring_doorbells(struct twill_node *node)
{
    for (uint32_t l = 0; l < node->size; l++)
        if (l != node->me)
            twill_node_ring_doorbell(node, l);
}
/* Announce that this rank will sleep, and return how often its doorbell has rung so far. The caller
 * then polls once more before it passes that number to twill_node_sleep(). */
uint32_t twill_node_sleep_begin(struct twill_node *node);
/* Sleep until the doorbell has rung more than `word` times, at most timeout_ns. May end early. */
void twill_node_sleep(struct twill_node *node, uint32_t word, uint64_t timeout_ns);
/* Withdraw what twill_node_sleep_begin() announced. */
void twill_node_sleep_end(struct twill_node *node);
/* Return the value of a flag after SIGNAL step `ordinal` of an instance, which grows with both. */
static inline uint64_t twill_node_flag_value(uint64_t epoch, uint32_t ordinal)
{
    return epoch << 16 | ordinal;
}

/* Raise this rank's flag of a lane to `value`, with a call hash, and wake the others. */
static inline void twill_node_signal(struct twill_node *node, uint32_t lane, uint64_t value,
                                     uint32_t signature)
{
    struct twill_flag *flag = &node->area[node->me]->flag[lane];
    /* Release, as readers also use hashes of earlier instances (twill_node_signature()). */
    atomic_store_explicit(&flag->signature, signature, memory_order_release);
    atomic_store_explicit(&flag->value, value, memory_order_release);
    twill_node_ring_doorbells(node);
}
/* Return the value of local rank l's flag of a lane. */
static inline uint64_t twill_node_flag(const struct twill_node *node, uint32_t l, uint32_t lane)
{
    return atomic_load_explicit(&node->area[l]->flag[lane].value, memory_order_acquire);
}
/* Return the call hash that came with the last value of a flag. */
static inline uint32_t twill_node_flag_signature(const struct twill_node *node, uint32_t l,
                                                 uint32_t lane)
{
    return atomic_load_explicit(&node->area[l]->flag[lane].signature, memory_order_acquire);
}
/* Return the local rank whose area holds what local rank l publishes, when the copies are used for
 * the `round`-th time. Two ranks alternate areas every round. A line is then written where it was
 * read last and need not be fetched first, which saves a fifth of a line's round trip, and half of
 * that of a few KiB (on the machine of docs/results/one-node.md). It is as safe as reusing a
 * copy: when an epoch begins anywhere, the previous user of its copy is complete everywhere. */
static inline uint32_t twill_node_area_index(const struct twill_node *node, uint32_t l,
                                             uint64_t round)
{
    return l ^ ((uint32_t)round & node->alternate);
}
/* Return the address of local rank l's copy of SHARED in an epoch, one of `copies` copies at
 * `first` of each area that are `stride` bytes apart. With `alternates` the two ranks of a node
 * swap areas each time all copies were used, as twill_node_area_index() says. */
static inline unsigned char *twill_node_copy(const struct twill_node *node,
                                             unsigned char *const *first, uint32_t l,
                                             uint64_t epoch, uint64_t copies, size_t stride,
                                             bool alternates)
{
    uint32_t area = alternates ? twill_node_area_index(node, l, epoch / copies) : l;
    return first[area] + epoch % copies * stride;
}
/* Return the same, one of the copies of `size`. Those of small and medium size lie no power of two
 * apart, as they would then compete for one set of a cache. */
static inline unsigned char *twill_node_shared(const struct twill_node *node, uint32_t l,
                                               uint64_t epoch, bool alternates,
                                               enum twill_shared_size size)
{
    if (size == TWILL_SHARED_SMALL)
        return twill_node_copy(node, node->small, l, epoch, TWILL_SMALLS,
                               TWILL_SMALL_BYTES + TWILL_CACHE_LINE, alternates);
    if (size == TWILL_SHARED_MEDIUM)
        return twill_node_copy(node, node->small, l, epoch, TWILL_MEDIUMS,
                               TWILL_MEDIUM_BYTES + TWILL_CACHE_LINE, alternates) +
               node->medium_at;
    return twill_node_copy(node, node->shared, l, epoch, TWILL_COPIES, node->shared_bytes,
                           alternates);
}

/* Publish the ticks that copying 64 KiB through SHARED takes this rank, as cost[kind][way] of
 * struct twill_staging_line. `kind` is 0 for segments and 1 for exchanges, and `way` is 0 for
 * cached stores and 1 for streamed ones. */
static inline void twill_node_put_staging_cost(struct twill_node *node, unsigned kind, unsigned way,
                                               uint32_t cost)
{
    atomic_store_explicit(&node->area[node->me]->staging.cost[kind][way], cost,
                          memory_order_relaxed);
}
/* Return the ticks that local rank l has published for copying 64 KiB through SHARED, or 0 if none.
 * `kind` is 0 for segments and 1 for exchanges, and `way` is 0 for cached stores and 1 for streamed
 * ones. */
static inline uint32_t twill_node_staging_cost(const struct twill_node *node, uint32_t l,
                                               unsigned kind, unsigned way)
{
    return atomic_load_explicit(&node->area[l]->staging.cost[kind][way], memory_order_relaxed);
}
/* Return where local rank l publishes its immediate of this epoch. */
static inline struct twill_immediate *twill_node_imm_at(const struct twill_node *node, uint32_t l,
                                                        uint32_t lane, uint64_t epoch)
{
    struct twill_node_area *area = node->area[twill_node_area_index(node, l, epoch / TWILL_LINES)];
    /* Consecutive ones are in different pages. Else a processor's prefetcher takes the next one. */
    return &area->imm[lane % TWILL_SLOT_LANES][epoch * 37 % TWILL_LINES];
}
/* The lines of an immediate are fetched this many instances early, a multiple of TWILL_WINDOW. */
#define TWILL_FETCH_AHEAD 4u
/* Begin to fetch the lines for this rank's immediate of `bytes` bytes TWILL_FETCH_AHEAD instances
 * after `epoch`, to write there without delay. */
static inline void twill_node_fetch_own(const struct twill_node *node, uint32_t lane,
                                        uint64_t epoch, size_t bytes)
{
    twill_fetch_to_write(twill_node_imm_at(node, node->me, lane, epoch + TWILL_FETCH_AHEAD),
                         bytes + offsetof(struct twill_immediate, payload));
}
/* Begin to fetch `bytes` bytes that a peer has written, to read them later. */
static inline void twill_node_fetch(const void *from, size_t bytes)
{
    const unsigned char *at = from;
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(at + i);
    __asm__ volatile(""); /* gcc drops the calls of a function that only prefetches */
}
/* Begin to fetch local rank l's immediate TWILL_FETCH_AHEAD instances after `epoch`. It is there
 * already if that rank is ahead. */
static inline void twill_node_fetch_imm(const struct twill_node *node, uint32_t l, uint32_t lane,
                                        uint64_t epoch)
{
    size_t bytes = twill_node_imm_at(node, l, lane, epoch)->bytes;
    twill_node_fetch(twill_node_imm_at(node, l, lane, epoch + TWILL_FETCH_AHEAD),
                     bytes + offsetof(struct twill_immediate, payload));
}
/* Publish an immediate whose payload of `bytes` has been written. Rings no doorbells. */
static inline void twill_node_show_imm(struct twill_immediate *imm, uint64_t epoch,
                                       uint32_t signature, size_t bytes)
{
    imm->signature = signature;
    imm->bytes = (uint32_t)bytes;
    atomic_store_explicit(&imm->epoch, epoch, memory_order_release);
}
/* Publish an immediate of 8 to 16 bytes as two words, which may overlap. Rings no doorbells. */
static inline void twill_node_put_words(struct twill_node *node, uint32_t lane, uint64_t epoch,
                                        uint32_t signature, const unsigned char *payload,
                                        size_t bytes)
{
    struct twill_immediate *imm = twill_node_imm_at(node, node->me, lane, epoch);
    size_t last = bytes - sizeof(uint64_t);
    memcpy(imm->payload, payload, sizeof(uint64_t));
    memcpy(imm->payload + last, payload + last, sizeof(uint64_t));
    twill_node_show_imm(imm, epoch, signature, bytes);
}
/* Copy `payload` into this rank's immediate of a lane, publish it and wake the other ranks. */
static inline void twill_node_put(struct twill_node *node, uint32_t lane, uint64_t epoch,
                                  uint32_t signature, const void *payload, size_t bytes)
{
    struct twill_immediate *imm = twill_node_imm_at(node, node->me, lane, epoch);
    memcpy(imm->payload, payload, bytes);
    twill_node_show_imm(imm, epoch, signature, bytes);
    twill_node_ring_doorbells(node);
}

/* Return the immediate of local rank l for this epoch, or NULL if it has not arrived. */
static inline const struct twill_immediate *
twill_node_imm(const struct twill_node *node, uint32_t l, uint32_t lane, uint64_t epoch)
{
    const struct twill_immediate *line = twill_node_imm_at(node, l, lane, epoch);
    return atomic_load_explicit(&line->epoch, memory_order_acquire) == epoch ? line : NULL;
}
/* Publish that this rank starts instance `epoch` of a call with the hash `signature`. */
static inline void twill_node_start(struct twill_node *node, uint64_t epoch, uint32_t signature)
{
    struct twill_started_line *started = &node->area[node->me]->started;
    atomic_store_explicit(&started->signature[epoch % TWILL_LINES], signature,
                          memory_order_relaxed);
    atomic_store_explicit(&started->epoch, epoch, memory_order_release);
    if (epoch % TWILL_REACHED == 0)
        atomic_store_explicit(&node->area[node->me]->reached.epoch, epoch, memory_order_release);
}
/* Return an epoch that local rank l has started, which is at most TWILL_REACHED - 1 instances
 * before its last one, or 0. */
static inline uint64_t twill_node_reached(const struct twill_node *node, uint32_t l)
{
    return atomic_load_explicit(&node->area[l]->reached.epoch, memory_order_acquire);
}
/* Return the epoch of the last instance that local rank l has started, or 0 if it started none. */
static inline uint64_t twill_node_started(const struct twill_node *node, uint32_t l)
{
    return atomic_load_explicit(&node->area[l]->started.epoch, memory_order_acquire);
}
/* Return the call hash of one of the last TWILL_LINES instances that local rank l has started. */
static inline uint32_t twill_node_signature(const struct twill_node *node, uint32_t l,
                                            uint64_t epoch)
{
    return atomic_load_explicit(&node->area[l]->started.signature[epoch % TWILL_LINES],
                                memory_order_relaxed);
}
/* Publish on this node, and wake its ranks, that the communicator failed in call `sequence` with
 * `status`, as its rank `from` reports it. Does nothing after the first failure of this rank. */
void twill_node_abort(struct twill_node *node, twill_status status, uint32_t from,
                      uint64_t sequence, const char *message);
/* Return a local rank that has published a failure of a call up to this one, or UINT32_MAX. */
uint32_t twill_node_aborted(const struct twill_node *node, uint64_t sequence);
/* Mark local rank l, which is silent, as shut out. The others continue without it. If l lives after
 * all, it finds that by twill_node_is_excluded(). Unlike twill_node_abort() this publishes no
 * failure and wakes no rank. */
void twill_node_exclude(struct twill_node *node, uint32_t l);
/* Return whether a rank has called twill_node_exclude() for local rank l, which was silent, so that
 * the other ranks continue without it. */
bool twill_node_is_excluded(const struct twill_node *node, uint32_t l);
/* Return the news of the ranks of this node, and those that messages have brought. */
static inline struct twill_news_words *twill_node_news(const struct twill_node *node)
{
    return &node->area[0]->abort.news;
}

#endif
