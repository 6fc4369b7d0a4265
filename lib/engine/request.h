/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: every call is one. Collectives are queued in the order they were started; the executor
 * works on the first of them. A blocking call uses a request that is part of the engine.
 *
 * A run is one execution of a plan over the caller's buffers, a part of its request. A large
 * message is cut into segments; segment n covers the same range of elements of every shard, and is
 * one instance of the schedule. Up to TWILL_WINDOW instances, of one call or of consecutive ones,
 * are in flight; each has its own cursors, physical lanes, scratch and copy of SHARED. */
#ifndef TWILL_REQUEST_H
#define TWILL_REQUEST_H

#include "algorithms/collective_list.h"
#include "algorithms/schedule/schedule.h"
#include "fabric/transport.h"

#include <stdatomic.h>

struct twill_account; /* lib/report/metrics.c */
struct twill_engine;
struct twill_operation; /* lib/job/operation.h */
struct twill_plan;      /* lib/engine/plan.h */
struct twill_region;
struct twill_request;

/* Element counts and offsets of the shards of a vector call. offset NULL: one after the other. */
struct twill_counts {
    const size_t *count, *offset;
};

/* The arguments of a collective call. */
struct twill_call {
    enum twill_collective collective;
    const void *src;
    void *dst;
    size_t count; /* elements of a shard; vector: of this rank's shard, on the side that has one */
    twill_type type;
    twill_op op;
    uint32_t root;
    bool vector;
    struct twill_counts src_counts, dst_counts; /* vector: on the side that has all shards */
};

/* The layout of SRC or DST in memory. Counts, offsets and strides are in elements. */
struct twill_side {
    unsigned char *base;  /* NULL: this rank has no such buffer */
    const size_t *count;  /* [shards]; NULL: `even` each */
    const size_t *offset; /* [shards]; NULL: shards are `stride` apart */
    size_t even, stride;
    size_t bytes; /* from base to the end of the last shard */
    bool has;     /* this rank has this buffer */
    bool own;     /* it holds this rank's shard only */
    bool bounced; /* each segment is copied through scratch */
};
enum { TWILL_SIDES = 2 }; /* TWILL_SRC, TWILL_DST */

/* A posted message and what to do with it. */
struct twill_posted {
    struct twill_transfer request;
    struct twill_request *run;
    const unsigned char *src; /* RECV_REDUCE: dst = src op message */
    unsigned char *dst;
    uint8_t flags; /* of the step */
    bool late;     /* reduce when the whole message has arrived */
};

/* A segment in flight. */
struct twill_instance {
    bool active;
    uint64_t epoch;
    struct twill_request *run;
    size_t skip;                      /* elements of each shard before the segment */
    size_t length;                    /* elements of the segment in the largest shard */
    unsigned char *base[TWILL_SIDES]; /* the segment's first byte */
    unsigned lanes_left;
    unsigned staging;                         /* its kind, if it is streamed or measured */
    bool streams, is_measured;                /* copies into SHARED: lib/engine/staging.c */
    uint32_t at[TWILL_SCHEDULE_LANES];        /* next step; UINT32_MAX: the lane has ended */
    uint32_t posted[TWILL_SCHEDULE_LANES];    /* messages since the last WAIT */
    uint32_t signalled[TWILL_SCHEDULE_LANES]; /* SIGNALs so far */
};

/* A place in the window: instance e uses slot e % TWILL_WINDOW. Memory is kept between calls. */
struct twill_slot {
    struct twill_instance instance;
    unsigned char *scratch; /* TMP, then bounces, then fetched chunks */
    size_t scratch_bytes;
    struct twill_posted *posted; /* [lane][plan->most_posted] */
    size_t posted_count;
};

/* The first steps of a run that the fast path may post: lib/engine/fast_path.c. */
struct twill_fast_path {
    enum {
        TWILL_FAST_NONE,
        TWILL_FAST_IMM16, /* an immediate of 8 to 16 bytes */
        TWILL_FAST_IMM,
        TWILL_FAST_COPY, /* COPY to SHARED, SIGNAL */
        TWILL_FAST_SIGNAL
    } kind;
    uint8_t steps, signals;    /* steps covered, and SIGNALs among them */
    uint8_t side;              /* source: TWILL_SRC or TWILL_DST */
    size_t at, to, bytes;      /* offsets in that side and in the copy of SHARED; length */
    const unsigned char *from; /* the side's base + at */
};

enum twill_exchange_state {
    TWILL_EXCHANGE_IDLE,      /* not begun */
    TWILL_EXCHANGE_UNNEEDED,  /* no plan of this call could use addresses */
    TWILL_EXCHANGE_PUBLISHED, /* this rank's addresses are; not all others' have been read */
    TWILL_EXCHANGE_COLLECTED, /* over: all are known, or this rank's buffers allow no access */
};

/* The exchange of buffer addresses among the ranks of a node: lib/engine/buffer_addresses.c. */
struct twill_address_exchange {
    enum twill_exchange_state state;
    unsigned access;       /* enum twill_access: what is exchanged for */
    unsigned allowed;      /* of these, what every buffer allows */
    bool arrived;          /* all ranks of the node are known to be in this call: the schedule's
                              entry barrier may be skipped */
    uint32_t next_address; /* local rank to collect from next */
    const struct twill_plan *before; /* plan of the same call with other buffers, or NULL ... */
    unsigned allowed_before;         /* ... and what its buffers allowed */
};

static inline bool twill_exchange_is_over(const struct twill_address_exchange *exchange)
{
    return exchange->state == TWILL_EXCHANGE_UNNEEDED ||
           exchange->state == TWILL_EXCHANGE_COLLECTED;
}

/* Where everything of a run lies: set by twill_run_describe() and twill_run_lay_out(), constant
 * while it runs. Sizes in bytes, unless they say elements. */
struct twill_run_layout {
    const struct twill_operation *created; /* or NULL: a built-in operation */
    twill_type type;                       /* as the kernels see it */
    twill_op op;
    size_t element, partial; /* width of an element, and of a partial result */
    bool narrow;             /* partial results are elements: rounded by every step */
    const float *after;      /* NULL, or the final result is multiplied by it */
    size_t given;            /* width of an element in the caller's buffers, which have any
                                alignment */
    const size_t *known;     /* [shards] elements, if all ranks know them; NULL: even, or unknown */
    size_t most;             /* elements of the largest shard */
    uint32_t shard_blocks;   /* blocks of a shard */
    bool joined;             /* consecutive shards are adjacent: a step handles them at once */
    bool small;              /* SHARED fits the copies for small messages */
    uint32_t max_ahead;      /* instances that this rank may be ahead of others on the node */
    bool mirrored;           /* local rank 1 has the two shards of SHARED in reverse order */
    bool late;               /* transports may cut elements: reduce complete messages only */
    size_t segments;         /* instances in all */
    size_t segment_length;   /* elements of a full segment in a shard */
    size_t partial_at;       /* from raw contents to partials in a copy of TMP or SHARED */
    size_t copy_bytes;       /* `blocks` blocks of TMP or SHARED */
    size_t scratch_bytes, bounced_at; /* of a slot; offset of the bounced sides in it */
    size_t fetched_at; /* offset in a slot's scratch of chunks fetched for a reduction */
    struct twill_account *account; /* the observer's: struct twill_observer; NULL: none */
    unsigned store_flags; /* TWILL_KERNEL_STREAM: stores to the caller's DST bypass the caches */
};

/* The buffers of a rank of the node. */
struct twill_peer_buffers {
    unsigned char *at[TWILL_SIDES]; /* mapped here, or, if plan->fetches, in the peer's process */
    uint64_t address[TWILL_SIDES];  /* as published */
    struct twill_region *region[TWILL_SIDES]; /* attached, or NULL */
};

/* Buffers of a call on a device: lib/engine/device_call.c. */
struct twill_device_buffers {
    unsigned char *bounce; /* memory of twill_context_take_shared() */
    size_t bounce_bytes;
    unsigned char uses;       /* of this memory: 0, 1, 2 or more */
    bool has_moved_sides;     /* buffers.side is in bounce memory, or was in the last call */
    const void *readable[2];  /* host memory of the last call, unknown to the driver */
    unsigned char *copied[2]; /* point to point: host copies of src and dst, or NULL */
    void *place;              /* final place of the result on the device, or NULL */
    unsigned char *result;
    size_t result_bytes;
};

/* The buffers of a run: the caller's, and those of the ranks of its node. */
struct twill_run_buffers {
    struct twill_side side[TWILL_SIDES];
    struct twill_peer_buffers *peer; /* [local_size] */
    struct twill_device_buffers device;
    size_t *counts; /* [4][size], vector call: counts and offsets of SRC and DST */
};

enum twill_request_state {
    TWILL_REQUEST_IDLE,   /* initialised, or waited for */
    TWILL_REQUEST_ACTIVE, /* belongs to the thread that holds the communicator */
    TWILL_REQUEST_COMPLETE
};

/* The two messages of a point-to-point call: in struct twill_request. */
enum { TWILL_OUT, TWILL_IN };

/* A point-to-point call: a send, a receive, or both. */
struct twill_point {
    const void *src;
    void *dst;
    size_t src_count, dst_count;
    twill_type type;
    int to, from;
    bool sends, receives;
};

/* How often the memory of a request has been used, and the handle of its use now. */
struct twill_request_handle {
    twill_request *given; /* the caller's; NULL: not in use */
    uint32_t generation;  /* how often this memory has been released */
    uint32_t born;        /* generation at which engine got it */
};

/* Belongs to a communicator, whose holder alone uses it while it is active; others may poll its
 * state. Its memory is reused for later requests and stays readable after them. */
struct twill_request {
    _Atomic int state;   /* enum twill_request_state */
    twill_status status; /* once complete */
    bool is_point, persistent;
    bool refused_alike; /* a collective, for what all ranks give alike: all have refused it */
    bool pends;         /* counted in engine->pending: other threads may advance it */
    bool has_messages;  /* or may have: counted in engine->messaging */
    struct twill_request *next, *recorded; /* in the queue or free list; in a group */
    uint64_t ticks;                        /* twill_ticks() at the start */
    uint64_t ended;                        /* twill_ticks() at the end of a collective */
    uint64_t timeout_ns;                   /* of waits for it; 0: the communicator's */

    /* The run: its call, and the execution of a plan over the buffers. */
    struct twill_engine *engine;
    const struct twill_plan *plan; /* NULL: not selected yet */
    struct twill_call call;
    struct twill_call summary; /* what ranks compare: has the kind of a created operation, and a
                                  hash of the counts that all ranks know */
    uint64_t call_hash;        /* of the summary */
    size_t bytes;              /* of the larger side */
    uint64_t sequence;         /* number of the call on its communicator, from 1 */
    uint32_t signature;        /* call_hash and the hashes of all calls before */
    struct twill_address_exchange exchange;
    struct twill_run_layout layout;
    struct twill_run_buffers buffers;
    size_t started, finished;     /* instances begun and done */
    struct twill_last_entry last; /* as received with messages */
    struct twill_fast_path fast_path;

    struct twill_point point;
    struct twill_transfer transfer[2]; /* TWILL_OUT, TWILL_IN */
    struct twill_request_handle handle;
} TWILL_ALIGNED(TWILL_CACHE_LINE);

/* Requests that a communicator maps at once: four pages. Each request is aligned to
 * TWILL_GENERATIONS, so that a handle has room for a generation below that in its low bits. */
#define TWILL_SLAB_REQUESTS 8u
#define TWILL_GENERATIONS   2048u
struct twill_request_slab {
    unsigned char
        storage[(TWILL_SLAB_REQUESTS - 1) * TWILL_GENERATIONS + sizeof(struct twill_request)];
    struct twill_request_slab *next;
};
_Static_assert(sizeof(struct twill_request) <= TWILL_GENERATIONS, "requests overlap");

static inline struct twill_request *twill_slab_request(struct twill_request_slab *slab, unsigned i)
{
    return (struct twill_request *)(void *)(slab->storage + (size_t)i * TWILL_GENERATIONS);
}

/* Return the request of a handle, which must not be NULL; NULL if the request has ended: waited
 * for, freed, or destroyed with its communicator. A handle is the request's address with the low
 * bits of its generation. The memory is readable in either case. */
static inline struct twill_request *twill_request_find(twill_request *handle)
{
    uintptr_t word = (uintptr_t)handle;
    struct twill_request *request = (struct twill_request *)(word - word % TWILL_GENERATIONS);
    return TWILL_LIKELY(request->handle.given == handle) ? request : NULL;
}

/* Pack collective, type and operation into the word that ranks compare. */
static inline uint32_t twill_call_what(const struct twill_call *call)
{
    return (uint32_t)call->collective | (uint32_t)call->vector << 7 | (uint32_t)call->type << 8 |
           (uint32_t)call->op << 16;
}
/* Rebuild a call from what ranks compare. */
static inline struct twill_call twill_call_of(uint32_t what, size_t count, uint32_t root)
{
    return (struct twill_call){
        .collective = (enum twill_collective)(what & 0x7f),
        .vector = (what >> 7 & 1) != 0,
        .type = (twill_type)(what >> 8 & 0xff),
        .op = (twill_op)(what >> 16),
        .count = count,
        .root = root,
    };
}
/* lib/engine/engine.c. Describe a call: "allreduce #4 (count 8, f32 sum)". */
void twill_call_describe(const struct twill_call *call, uint64_t sequence, char *text,
                         size_t bytes);

/* Who is told of calls: lib/report/metrics.c. One branch where nobody listens. */
struct twill_observer {
    /* A run has been laid out: set run->layout.account, or leave it NULL. */
    twill_status (*planned)(struct twill_request *run);
    /* A collective whose run has an account has ended. */
    void (*ended)(struct twill_request *request);
};

/* --- lib/engine/request_queue.c --- */

/* Return an unused request, or NULL and engine->error when out of memory. twill_request_give()
 * releases it, which invalidates its handle. */
struct twill_request *twill_request_take(struct twill_engine *engine);
void twill_request_give(struct twill_request *request);
/* Return the engine that an ended request belonged to; NULL if its memory has gone to another one,
 * or to none. */
struct twill_engine *twill_request_past_engine(const twill_request *handle);
/* Is the request not active? Of a struct twill_request, for a wait. */
bool twill_request_done(const void *request);
/* lib/engine/trace_calls.c. Log the start of a request at level debug. Called if engine->traced. */
void twill_log_begin(const struct twill_request *request);

/* --- what comes before a call is begun, and its begin --- */

/* lib/engine/layout.c. Set element widths and the two sides from run->call. Arguments may still be
 * invalid. */
void twill_run_describe(struct twill_request *run);
/* Use other buffers for the same call. */
static inline void twill_run_move(struct twill_request *run, const void *src, void *dst)
{
    struct twill_side *side = run->buffers.side;
    run->call.src = src;
    run->call.dst = dst;
    side[TWILL_SRC].base = side[TWILL_SRC].has ? (unsigned char *)(uintptr_t)src : NULL;
    side[TWILL_DST].base = side[TWILL_DST].has ? dst : NULL;
    run->fast_path.from = side[run->fast_path.side].base + run->fast_path.at;
}
/* lib/engine/layout.c. Map the pages of DST, before a call, if it is memory that was never
 * touched. Left to the stores where several threads make them, so that pages are near the thread
 * that stores first. */
void twill_run_populate(const struct twill_request *run);
#define TWILL_POPULATE_FROM ((size_t)4 << 20) /* bytes; smaller memory is mostly used again */
/* lib/engine/fast_path.c. Compute the signature of a call and number it: part of
 * twill_request_begin(), for an exchange that is numbered like a call. */
void twill_run_number(struct twill_request *run);
/* Start a prepared call: compute its signature, post the fast path if it may be taken, number and
 * enqueue it. entered: twill_ticks() at the call's entry; 0: now, read after the fast path has sent
 * what peers wait for. */
void twill_request_begin(struct twill_request *request, uint64_t entered);
/* lib/engine/choose_plan.c. Select the plan. Returns 1 when selected, 0 while peers' buffer
 * addresses are outstanding, < 0 on error. */
int twill_run_choose(struct twill_request *run);
/* lib/engine/executor.c. Grow the memory of all free slots, so that later calls of this shape
 * allocate nothing. */
twill_status twill_run_reserve_slots(struct twill_request *run);
/* Restart the address exchange for the same call with other buffers; keep the plan to compare. */
void twill_addresses_restart(struct twill_request *run);
/* Find out whether this node's ranks exchange addresses, and whether those of any node do, which is
 * the same on all ranks. */
twill_status twill_addresses_needed(struct twill_request *run, bool *exchanges,
                                    bool *any_exchanges);
/* lib/engine/buffer_addresses.c. Release what was attached of peers' memory. */
void twill_run_detach_peers(struct twill_request *run);

#endif
