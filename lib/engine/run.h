/* SPDX-License-Identifier: Apache-2.0 */
/* A run: one execution of a plan over the caller's buffers. A large message is cut into segments;
 * segment n covers the same range of elements of every shard, and is one instance of the schedule.
 * Up to TWILL_WINDOW instances, of one call or of consecutive ones, are in flight; each has its own
 * cursors, physical lanes, scratch and copy of SHARED. */
#ifndef TWILL_RUN_H
#define TWILL_RUN_H

#include "fabric/transport.h"
#include "lib/engine/plan.h"
#include "lib/engine/staging.h"
#include "lib/engine/time_split.h"
#include "lib/job/operation.h"

struct twill_account; /* lib/report/metrics.c */
struct twill_comm;
struct twill_run;

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
    struct twill_run *run;
    const unsigned char *src; /* RECV_REDUCE: dst = src op message */
    unsigned char *dst;
    uint8_t flags; /* of the step */
    bool late;     /* reduce when the whole message has arrived */
};

/* A segment in flight. */
struct twill_instance {
    bool active;
    uint64_t epoch;
    struct twill_run *run;
    size_t skip;                      /* elements of each shard before the segment */
    size_t length;                    /* elements of the segment in the largest shard */
    unsigned char *base[TWILL_SIDES]; /* the segment's first byte */
    unsigned lanes_left;
    enum twill_staging_kind staging;          /* if it is streamed or measured */
    bool streams, is_measured;                /* copies into SHARED: lib/engine/staging.h */
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
    size_t segment_length;   /* elements of a full segment in a shard */
    size_t partial_at;       /* from raw contents to partials in a copy of TMP or SHARED */
    size_t copy_bytes;       /* `blocks` blocks of TMP or SHARED */
    size_t scratch_bytes, bounced_at; /* of a slot; offset of the bounced sides in it */
    size_t fetched_at;    /* offset in a slot's scratch of chunks fetched for a reduction */
    unsigned store_flags; /* TWILL_KERNEL_STREAM: stores to the caller's DST bypass the caches */
};

/* The buffers of a run: the caller's, and those of the ranks of its node. Arrays are allocated with
 * the request. peer_src and peer_dst are mapped here, or, if plan->fetches, addresses in the peers'
 * processes. */
struct twill_run_buffers {
    struct twill_side side[TWILL_SIDES];
    const unsigned char **peer_src; /* [local_size] */
    unsigned char **peer_dst;       /* [local_size] */
    uint64_t *address;              /* [local_size][TWILL_SIDES] addresses as published */
    struct twill_region **region;   /* [local_size][TWILL_SIDES] attached regions, or NULL */
};

/* Belongs to a request; used by the thread that holds the communicator. */
struct twill_run {
    struct twill_comm *comm;
    const struct twill_plan *plan; /* NULL: not selected yet */
    struct twill_call call;
    struct twill_call summary; /* what ranks compare: has the kind of a created operation, and a
                                  hash of the counts that all ranks know */
    uint64_t call_hash;        /* of the summary */
    uint32_t what;             /* twill_call_what() of the summary */
    size_t bytes;              /* of the larger side */
    uint64_t sequence;         /* number of the call on its communicator, from 1 */
    uint32_t signature;        /* call_hash and the hashes of all calls before */
    struct twill_address_exchange exchange;
    struct twill_run_layout layout;
    struct twill_run_buffers buffers;
    size_t segments, started, finished; /* instances in all, begun and done */
    struct twill_last_entry last;       /* as received with messages */
    struct twill_fast_path fast_path;
    struct twill_account *account; /* the observer's: struct twill_observer; NULL: none */
};

/* --- lib/engine/layout.c: where everything is --- */

/* Set element widths and the two sides from run->call. Arguments may still be invalid. */
void twill_run_describe(struct twill_run *run);
/* Use other buffers for the same call. */
static inline void twill_run_move(struct twill_run *run, const void *src, void *dst)
{
    struct twill_side *side = run->buffers.side;
    run->call.src = src;
    run->call.dst = dst;
    side[TWILL_SRC].base = side[TWILL_SRC].has ? (unsigned char *)(uintptr_t)src : NULL;
    side[TWILL_DST].base = side[TWILL_DST].has ? dst : NULL;
    run->fast_path.from = side[run->fast_path.side].base + run->fast_path.at;
}
/* Apply the selected plan to the call: segments, scratch, fast path. */
twill_status twill_run_lay_out(struct twill_run *run);

/* Decide whether stores bypass the caches; depends on where the buffers are. */
void twill_run_choose_stores(struct twill_run *run);

/* Consecutive elements. */
struct twill_elements {
    unsigned char *start;
    size_t count;
};
/* `blocks` blocks of an operand, from its block `at` on. */
struct twill_operand_place {
    twill_operand operand;
    uint32_t at, blocks;
    uint32_t peer; /* used with the PEER bit only */
    uint8_t lane;
    bool partial;
};
/* Return where these blocks are. They must be adjacent: see twill_run_together(). For SRC and DST
 * of a peer whose memory is fetched, the address is one in the peer's process. */
struct twill_elements twill_run_locate(const struct twill_run *run,
                                       const struct twill_instance *instance,
                                       const struct twill_operand_place *where);
/* Return how many of an operand's blocks, from block `at` on, are adjacent in memory. */
static inline uint32_t twill_run_together(const struct twill_run *run, twill_operand operand,
                                          uint32_t at, uint32_t blocks)
{
    uint32_t left = blocks - at;
    if (run->layout.joined)
        return left;
    uint32_t whole =
        run->layout.shard_blocks - (twill_operand_block(operand) + at) % run->layout.shard_blocks;
    return left < whole ? left : whole;
}
static inline size_t twill_run_width(const struct twill_run *run, bool partial)
{
    return partial ? run->layout.partial : run->layout.element;
}

/* --- lib/engine/untouched.c --- */

/* Map the pages of DST, before a call, if it is memory that was never touched. Left to the stores
 * where several threads make them, so that pages are near the thread that stores first. */
void twill_run_populate(const struct twill_run *run);
#define TWILL_POPULATE_FROM ((size_t)4 << 20) /* bytes; smaller memory is mostly used again */

/* --- lib/engine/executor.c --- */

/* Begin the next segment in the slot of its epoch, which must be free. */
twill_status twill_run_begin_segment(struct twill_run *run, struct twill_slot *slot,
                                     uint64_t epoch);
/* Grow the slot's memory to what an instance of this run needs. */
twill_status twill_run_reserve_more(struct twill_run *run, struct twill_slot *slot);
static inline twill_status twill_run_reserve(struct twill_run *run, struct twill_slot *slot)
{
    size_t posted = (size_t)TWILL_SCHEDULE_LANES * run->plan->most_posted;
    if (TWILL_LIKELY(run->layout.scratch_bytes <= slot->scratch_bytes &&
                     posted <= slot->posted_count))
        return TWILL_OK;
    return twill_run_reserve_more(run, slot);
}
/* Issue the steps of each lane up to the first that may wait. For calls without messages. */
void twill_run_advance_ready(struct twill_slot *slot);
/* Issue all steps that do not block. Returns their number, 0 if blocked, < 0 on error. */
int twill_run_advance(struct twill_slot *slot);
/* Store up to `most` ranks that the instance waits for, and what it waits for. Returns how many. */
unsigned twill_run_waits_for(const struct twill_slot *slot, uint32_t *ranks, unsigned most,
                             const char **step);
/* Return the error of a message of the instance that has failed behind one that is still under way.
 */
twill_status twill_run_check_posted(const struct twill_slot *slot);

/* Have both this rank and the peer, on this node, published their call of this run's number? A call
 * is published after its first stores, and not before earlier calls have ended. */
bool twill_run_is_written_down(const struct twill_run *run, uint32_t peer);
/* Handle a peer on this node that has another signature: return the error that says how its call
 * differs, or 0 while that is unknown. is_known: twill_run_is_written_down(), read before the
 * signature. */
int twill_run_differs(struct twill_run *run, uint32_t peer, bool is_known);

/* --- lib/engine/fast_path.c --- */

/* Set run->fast_path, for a run that is laid out. */
void twill_run_find_fast_path(struct twill_run *run);
/* Compute the signature of a call and number it: part of twill_request_begin(), for an exchange
 * that is numbered like a call. */
void twill_run_number(struct twill_run *run);

/* --- lib/engine/compute.c: the steps that compute --- */

/* Execute a REDUCE and the COPYs of its result that follow, in one pass. *copies: COPYs done. */
twill_status twill_run_reduce_and_copy(struct twill_run *run, const struct twill_instance *instance,
                                       const struct twill_step *step, const struct twill_step *end,
                                       uint32_t *copies);
twill_status twill_run_copy(struct twill_run *run, const struct twill_instance *instance,
                            const struct twill_step *step);
/* Reduce a chunk of a RECV_REDUCE message: `bytes` bytes at `offset` of it. Called by transports.
 */
void twill_run_reduce(struct twill_transfer *request, size_t offset, const void *data,
                      size_t bytes);

/* --- lib/engine/peer_buffers.c: buffers in peers' processes --- */

/* Bytes that a reduction fetches of each remote operand at a time. */
#define TWILL_FETCH_CHUNK ((size_t)128 << 10)

/* Make the peers' buffers accessible, once addresses are collected and the plan is selected. */
twill_status twill_run_attach_peers(struct twill_run *run);
/* Release what twill_run_attach_peers() attached. */
void twill_run_detach_peers(struct twill_run *run);
/* Copy `bytes` bytes from a peer's process; `from` is what twill_run_locate() returned. */
twill_status twill_run_fetch(struct twill_run *run, uint32_t peer, void *to, const void *from,
                             size_t bytes);
/* Must this operand be fetched from a peer's process? */
static inline bool twill_run_fetches(const struct twill_run *run, twill_operand operand)
{
    return TWILL_UNLIKELY(run->plan->fetches) && twill_operand_is_peer(operand) &&
           twill_operand_space(operand) <= TWILL_DST;
}

/* --- lib/engine/bounce.c: SRC and DST copied through scratch --- */

/* Copy a segment of SRC into scratch, scaling it if the operation does; and of DST back, rounding
 * narrow floats. */
void twill_run_bounce_in(struct twill_run *run, const struct twill_instance *instance);
void twill_run_bounce_out(struct twill_run *run, const struct twill_instance *instance);

#endif
