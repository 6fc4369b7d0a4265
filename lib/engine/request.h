/* SPDX-License-Identifier: Apache-2.0 */
/* Requests. Every call is one. Collectives are queued in the order of their start, and the executor
 * works on the first of them. A run is one execution of a plan over the caller's buffers, and part
 * of its request. A large message is cut into segments, each of which is one instance of the
 * schedule. Up to TWILL_WINDOW instances, of one call or of consecutive calls, are in flight. Each
 * has its own cursors, physical lanes, scratch and copy of SHARED. */
#ifndef TWILL_REQUEST_H
#define TWILL_REQUEST_H

#include "algorithms/algorithms.h"
#include "algorithms/schedule/schedule.h"
#include "fabric/shm/node_memory.h"
#include "fabric/transport.h"

#include <stdatomic.h>

struct twill_account; /* lib/report/metrics.c */
struct twill_engine;
struct twill_operation; /* lib/job/operation.h */
struct twill_plan;      /* lib/engine/plan.h */
struct twill_region;
struct twill_request;
/* Element counts and offsets of a vector call, by rank. If `offset` is NULL, shards are adjacent.
 * The arrays belong to whoever filled in the struct. */
struct twill_counts {
    const size_t *count, *offset;
};

/* The arguments of a collective call. It does not own the buffers and arrays. */
struct twill_call {
    enum twill_collective collective;
    const void *src;
    void *dst;
    size_t count; /* elements of a shard, or of this rank's shard in a vector call */
    twill_type type;
    twill_op op;
    uint32_t root; /* 0 if the collective has none */
    bool vector;
    struct twill_counts src_counts, dst_counts; /* vector: on the side with all shards */
    size_t pitch; /* elements between shards of the caller's buffer, or 0 for `count` */
    bool joins;   /* in a summary: no rank can end the call before it has data of all others */
};

/* The layout of SRC or DST of a call in memory. Counts and offsets are in elements. */
struct twill_side {
    unsigned char *base;  /* NULL if this rank has no such buffer */
    const size_t *count;  /* [shards], or NULL if each has `even` */
    const size_t *offset; /* [shards], or NULL if shards are `pitch` apart */
    size_t even, pitch;   /* elements of a shard, and between the starts of two */
    size_t bytes;         /* from base to the end of the last shard */
    bool has;             /* this rank has this buffer */
    bool own;             /* it holds this rank's shard only */
    bool bounced;         /* each segment is copied through scratch */
    /* The caller's buffer while `base` is where the heap has it (twill_promote()), else NULL. The
     * first `head` and last `tail` bytes are copied between both. */
    unsigned char *given;
    size_t head, tail;
};
enum { TWILL_SIDES = 2 }; /* TWILL_SRC, TWILL_DST */

/* A posted message of an instance, and what to do with it. It lies in a slot, until its WAIT. */
struct twill_posted {
    struct twill_transfer request;
    struct twill_request *run;
    const unsigned char *src; /* RECV_REDUCE: dst = src op message */
    unsigned char *dst;
    uint8_t flags; /* flags of the step */
    bool late;     /* reduce only once the whole message has arrived */
};

/* A segment in flight. It lies in the slot of its epoch. If `active` is false, the slot is free. */
struct twill_instance {
    bool active;
    uint64_t epoch;
    struct twill_request *run;
    size_t skip;                       /* elements of each shard before the segment */
    size_t length;                     /* elements of the segment in the largest shard */
    unsigned char *base[TWILL_SIDES];  /* first byte of the segment in SRC and DST */
    unsigned lanes_left;               /* lanes that have not ended */
    unsigned staging;                  /* enum twill_staging_kind, if it is streamed or measured */
    bool streams, is_measured;         /* about copies into SHARED (lib/engine/staging.c) */
    uint32_t at[TWILL_SCHEDULE_LANES]; /* next step, or UINT32_MAX once the lane has ended */
    uint32_t posted[TWILL_SCHEDULE_LANES];    /* messages posted since the last WAIT */
    uint32_t signalled[TWILL_SCHEDULE_LANES]; /* SIGNALs so far */
};

/* A place for instances. Instance e uses slot e % TWILL_WINDOW. The engine keeps its memory. */
struct twill_slot {
    struct twill_instance instance;
    unsigned char *scratch; /* TMP, bounced messages, bounced sides, fetched chunks */
    size_t scratch_bytes;
    struct twill_posted *posted; /* [lane][plan->most_posted] */
    size_t posted_count;         /* number of entries of posted[] */
};

/* A COPY to this rank's DST, or a source of a REDUCE to there, with offsets and length in bytes,
 * and the space that it reads, of local rank `local`. */
struct twill_fast_copy {
    size_t at, to;
    uint32_t local;
    uint16_t bytes; /* at most TWILL_MEDIUM_BYTES */
    uint8_t space;  /* TWILL_SRC, TWILL_SHARED or TWILL_IMM */
};
#define TWILL_FAST_COPIES 4u

/* The first steps of a run that can be done before any bookkeeping, and the others if a blocking
 * call may issue them at once, outside the queue. Set by twill_run_lay_out(). */
struct twill_fast_path {
    enum {
        TWILL_FAST_NONE,
        TWILL_FAST_IMM16, /* PUT_IMM of 8 to 16 bytes */
        TWILL_FAST_IMM,   /* PUT_IMM of another length */
        TWILL_FAST_COPY,  /* COPY to SHARED, then SIGNAL */
        TWILL_FAST_SIGNAL /* SIGNAL alone */
    } kind;
    uint8_t steps, signals; /* number of steps covered, and of SIGNALs among them */
    /* The steps after these can be issued outside the queue in a blocking call that is entered
     * within less than so many ticks after another one. 0 if never, UINT64_MAX if always. */
    uint64_t at_once;
    uint8_t copies;   /* they are AWAITs and these COPYs; 0 if they are others */
    uint16_t reduced; /* elements of a REDUCE, if the copies are its sources, else 0 */
    struct twill_fast_copy copy[TWILL_FAST_COPIES];
    uint8_t side;         /* source: TWILL_SRC or TWILL_DST */
    size_t at, to, bytes; /* offsets in that side and in the copy of SHARED, and length */
    size_t fetches;    /* bytes of its immediates, if it publishes any and may be ahead of others */
    bool fetches_copy; /* of SHARED, to write it in a later instance */
    const unsigned char *from; /* base of that side + at */
};

enum twill_exchange_state {
    TWILL_EXCHANGE_IDLE,      /* not begun */
    TWILL_EXCHANGE_UNNEEDED,  /* no plan of this call could use addresses */
    TWILL_EXCHANGE_PUBLISHED, /* this rank's are published, and not all others are read */
    TWILL_EXCHANGE_COLLECTED, /* over, as all are known or this rank's buffers allow no access */
};

/* The part of a call in a trial of lib/engine/staging.c, in the exchange of its addresses. */
struct twill_fetch_try {
    struct twill_fetch_trial *trial; /* of the engine, or NULL if this call takes no part */
    uint32_t worst[2]; /* highest costs of all ranks, staged and fetched, or 0 if unknown */
    bool pays;         /* the call is made by FETCHED instead of STAGED */
    bool is_measured;  /* the ticks of this call are measured */
    uint64_t ticks;    /* twill_ticks() spent copying, if so */
};

/* The exchange of buffer addresses among the ranks of a node, in the request of their call. */
struct twill_address_exchange {
    enum twill_exchange_state state;
    unsigned access;  /* set of enum twill_access that is exchanged for */
    unsigned allowed; /* those of them that all buffers so far allow */
    bool arrived; /* all ranks of the node are in this call, so its entry barrier may be skipped */
    bool fenced;  /* the addresses are from after a fence of the heap */
    bool all_publish; /* each rank of the node publishes addresses, as peers access its buffers */
    bool keeps;       /* `known` and buffers.peer are those of the last exchange of the same call */
    const unsigned char *known[2];   /* this rank's SRC and DST in that exchange */
    uint32_t next_address;           /* local rank to collect from next */
    const struct twill_plan *before; /* plan of the same call with other buffers, or NULL, */
    unsigned allowed_before;         /* and what those buffers allowed */
    struct twill_fetch_try fetch;
};
/* Return whether the exchange is complete or was not needed. */
static inline bool twill_exchange_is_over(const struct twill_address_exchange *exchange)
{
    return exchange->state == TWILL_EXCHANGE_UNNEEDED ||
           exchange->state == TWILL_EXCHANGE_COLLECTED;
}

/* Where everything of a run lies, in its request. Set by twill_run_describe() and
 * twill_run_lay_out(), and constant while it runs. Sizes are in bytes unless they say elements. */
struct twill_run_layout {
    const struct twill_operation *created; /* created operation, or NULL for a built-in one */
    twill_type type;                       /* as the kernels see it */
    twill_op op;
    size_t element, partial; /* width of an element, and of a partial result */
    bool narrow;             /* partial results are elements, rounded in every step */
    const float *after;      /* factor for the final result, or NULL */
    size_t given;            /* width of an element in the caller's buffers, as `type` may differ */
    const size_t *known;   /* [shards] elements of each; NULL if equal, or not known to all ranks */
    size_t most;           /* elements of the largest shard */
    bool parallel;         /* each shard is at the same place in SRC and in DST */
    uint32_t shard_blocks; /* blocks of a shard */
    /* Where shards are adjacent, so that a step handles several at once. If it is in scratch only,
     * all messages of several shards are sent from there and received there. */
    enum { TWILL_JOINED_NOWHERE, TWILL_JOINED_IN_SCRATCH, TWILL_JOINED } joined;
    enum twill_shared_size place; /* which copies SHARED is one of */
    /* A copy of SHARED has `turns` places of `bytes` bytes. After every `round` instances the next
     * one is used. If `mirrored`, local rank 1 has its two shards in reverse order. If `single`,
     * it has place for one of the two only: plan->shares_one. */
    struct {
        uint32_t round, turns;
        size_t bytes;
        bool mirrored, single;
    } shared;
    uint32_t max_ahead;    /* instances that this rank may be ahead of others on the node */
    bool late;             /* as a chunk may end within an element, reduce whole messages only */
    size_t segments;       /* number of instances */
    size_t segment_length; /* elements of a full segment in a shard */
    size_t partial_at;     /* offset of the partial results in a copy that follow its elements */
    size_t copy_bytes;     /* of one copy of the message in TMP or SHARED */
    size_t scratch_bytes, bounced_at; /* of a slot, and offset of the bounced sides in it */
    size_t fetched_at;                /* offset in a slot's scratch of chunks fetched to reduce */
    struct twill_account *account;    /* the observer's (struct twill_observer), or NULL */
    unsigned store_flags; /* TWILL_KERNEL_STREAM if stores to the caller's DST bypass the caches */
};

/* The buffers of a rank of the node, which may be this one, in one run. They lie in its request.
 * at[] is NULL for a side that is not accessed. region[] is NULL if this rank has not attached the
 * side, such as for its own memory and for heaps. */
struct twill_peer_buffers {
    unsigned char *at[TWILL_SIDES]; /* address here or, if plan->fetches, in the peer's process */
    uint64_t address[TWILL_SIDES];  /* in the peer's process, as published */
    uint64_t offset[TWILL_SIDES];   /* in its heap, as published, or TWILL_HEAP_NOWHERE */
    struct twill_region *region[TWILL_SIDES]; /* attached memory, or NULL */
};

/* Host memory in which a call on device memory runs (lib/engine/device_call.c). It lies in the
 * call's request, which keeps `bounce` for later calls and frees it when it is freed. */
struct twill_device_buffers {
    unsigned char *bounce; /* memory of twill_context_take_shared() */
    size_t bounce_bytes;
    unsigned char uses;       /* calls that used this memory, up to 2; the second pins it */
    bool has_moved_sides;     /* the latest call pointed buffers.side to bounce memory */
    const void *readable[2];  /* src and dst of the last call if CUDA does not know them, or NULL */
    unsigned char *copied[2]; /* host copies of src and dst of a point-to-point call, or NULL */
    void *place;              /* where the result goes on the device, or NULL */
    unsigned char *result;    /* where it is in the host's memory */
    size_t result_bytes;
};

/* How a vector call whose counts are known to the two ranks of a message only (gather, scatter,
 * alltoall) moves short shards. They travel in slots of one size, each with the count of its shard
 * first, by a call of its own, the carrier. Longer shards are messages of the call itself. Made by
 * twill_slots_take(), and freed with the request of the call, whose buffers.slots it is. */
struct twill_slots {
    struct twill_request *carried, *carrier; /* buffers.slots of both is this */
    unsigned char *memory;                   /* slots of SRC of all shards, then of DST */
    size_t memory_bytes;
    size_t bytes; /* of a slot, or 0 if the present call of `carried` has no carrier */
};
#define TWILL_SLOT_HEADER sizeof(uint64_t)

/* The buffers of a run, the caller's and those of the ranks of its node, in its request. */
struct twill_run_buffers {
    struct twill_side side[TWILL_SIDES]; /* the caller's SRC and DST */
    struct twill_peer_buffers *peer;     /* [local_size] */
    struct twill_device_buffers device;
    struct twill_slots *slots; /* or NULL */
    size_t *counts;            /* [4][size], vector call: counts and offsets of SRC and DST */
    bool looks;                /* for a NaN or infinity in SRC (TWILL_FIRST_NAN) */
    const struct twill_nan_watch *watch; /* of those in the operands of REDUCE, or NULL */
};

enum twill_request_state {
    TWILL_REQUEST_IDLE,   /* initialised, or waited for */
    TWILL_REQUEST_ACTIVE, /* in use by the thread that holds the communicator */
    TWILL_REQUEST_COMPLETE
};

/* Indices of a point-to-point call's two messages in struct twill_request. */
enum { TWILL_OUT, TWILL_IN };

/* A point-to-point call, which is a send, a receive, or both, in its request. */
struct twill_point {
    const void *src;
    void *dst;
    size_t src_count, dst_count; /* elements */
    twill_type type;
    int to, from; /* ranks */
    bool sends, receives;
    bool writes;                /* it sends by a WRITE, to `remote` */
    struct twill_remote remote; /* where in memory of rank `to` */
};

/* The handle of a request, set by twill_request_take() and ended by twill_request_give(). Part of
 * the request, whose memory later requests use. The counts tell old handles from the present
 * one. */
struct twill_request_handle {
    twill_request *given; /* the caller's handle, or NULL if not in use */
    uint32_t generation;  /* number of handles to this memory that have ended */
    uint32_t born;        /* `generation` when the engine got the memory from the context's pool */
};

/* A call. It belongs to a communicator. While it is active, only that one's holder uses it, but any
 * thread may poll its state. Its memory is reused for later requests and stays readable. */
struct twill_request {
    _Atomic int state;   /* enum twill_request_state */
    twill_status status; /* result, once complete */
    bool is_point, persistent;
    bool refused_alike; /* a collective that all ranks refused, as all gave the same bad argument */
    bool pends;         /* counted in engine->pending: other threads may advance it */
    bool has_messages;  /* may have messages: counted in issue.messaging */
    struct twill_request *next, *recorded; /* next in the queue or free list, and in a group */
    uint64_t ticks;                        /* twill_ticks() at the start */
    uint64_t ended;                        /* twill_ticks() at the end of a collective */
    uint64_t timeout_ns;                   /* limit of waits for it, or 0 for the communicator's */

    /* The run, with its call and the execution of a plan over the buffers. */
    struct twill_engine *engine;
    const struct twill_plan *plan; /* NULL until it is selected */
    struct twill_call call;
    struct twill_call summary; /* what ranks compare, with the kind of a created operation and a
                                  hash of the counts that all know */
    uint64_t call_hash;        /* hash of the summary */
    size_t bytes;              /* of the larger side */
    uint64_t sequence;         /* number of the call on its communicator, from 1 */
    uint32_t signature;        /* of call_hash and all calls before */
    struct twill_address_exchange exchange;
    struct twill_run_layout layout;
    struct twill_run_buffers buffers;
    size_t started, finished;     /* instances begun and done */
    struct twill_last_entry last; /* latest entry of a rank into the call that is known */
    struct twill_fast_path fast_path;

    struct twill_point point;
    struct twill_transfer transfer[2]; /* TWILL_OUT, TWILL_IN */
    struct twill_request_handle handle;
} TWILL_ALIGNED(TWILL_CACHE_LINE);

#define TWILL_SLAB_REQUESTS 8u
#define TWILL_GENERATIONS   2048u
/* Requests that a communicator maps at once, in four pages, and gives back at its end. Each is
 * aligned to TWILL_GENERATIONS, so a handle's low bits have room for a generation below that. */
struct twill_request_slab {
    unsigned char
        storage[(TWILL_SLAB_REQUESTS - 1) * TWILL_GENERATIONS + sizeof(struct twill_request)];
    struct twill_request_slab *next; /* of the same communicator */
};
_Static_assert(sizeof(struct twill_request) <= TWILL_GENERATIONS, "requests overlap");

/* Return request `i` of a slab, below TWILL_SLAB_REQUESTS. */
static inline struct twill_request *twill_slab_request(struct twill_request_slab *slab, unsigned i)
{
    return (struct twill_request *)(void *)(slab->storage + (size_t)i * TWILL_GENERATIONS);
}
/* Return the request of a handle, which must not be NULL. Returns NULL if the request has been
 * waited for, freed, or destroyed with its communicator. A handle is the request's address with the
 * low bits of its generation. The memory stays readable in each case. */
static inline struct twill_request *twill_request_find(twill_request *handle)
{
    uintptr_t word = (uintptr_t)handle;
    struct twill_request *request = (struct twill_request *)(word - word % TWILL_GENERATIONS);
    return TWILL_LIKELY(request->handle.given == handle) ? request : NULL;
}
/* Return collective, vector flag, type and operation packed into the word that ranks compare. */
static inline uint32_t twill_call_what(const struct twill_call *call)
{
    return (uint32_t)call->collective | (uint32_t)call->vector << 7 | (uint32_t)call->type << 8 |
           (uint32_t)call->op << 16;
}
/* Return a call with the collective, vector flag, type and operation that twill_call_what() has
 * packed into `what`, and with `count` and `root`. Its buffers are NULL and other members 0. */
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
/* lib/engine/engine.c. Write a call and its number `sequence` to text[bytes], such as "allreduce #4
 * (count 8, f32 sum)". The library's own calls appear as the functions that make them, such as
 * "twill_comm_dup or twill_comm_split #4". */
void twill_call_describe(const struct twill_call *call, uint64_t sequence, char *text,
                         size_t bytes);

/* Constant functions to call for each collective, if an engine has any (lib/report/metrics.c). */
struct twill_observer {
    /* Set layout.account of a run that is laid out, or leave it. Returns TWILL_OK or the error. */
    twill_status (*planned)(struct twill_request *run);
    /* Record the end of a collective whose run has an account. */
    void (*ended)(struct twill_request *request);
};

/* --- lib/engine/request_queue.c --- */
/* Return an unused request with a new handle, or NULL, with engine->error, if out of memory. */
struct twill_request *twill_request_take(struct twill_engine *engine);
/* Release a request and what it attached of peers' memory. This invalidates its handle. */
void twill_request_give(struct twill_request *request);
/* Return the engine to which an ended request belonged, by its handle, whose memory stays readable.
 * Returns NULL if that engine has closed, even if another engine now uses the memory. */
struct twill_engine *twill_request_past_engine(const twill_request *handle);
/* Return whether a struct twill_request is complete or idle. A wait calls this. */
bool twill_request_done(const void *request);
/* lib/engine/trace_calls.c. Log the start of a request. Call it only if engine->traced. */
void twill_log_begin(const struct twill_request *request);

/* --- before a call begins, and its beginning --- */
/* lib/engine/choose_plan.c. Decide whether a vector call that has been checked has a carrier
 * (struct twill_slots), which all ranks decide alike, and have memory for its slots. If it has, set
 * *call to the call of the carrier, which the caller prepares. Returns TWILL_OK or the error. */
twill_status twill_slots_take(struct twill_request *request, struct twill_call *call);
/* lib/engine/layout.c. Set element widths and both sides from run->call, even if it is invalid. */
void twill_run_describe(struct twill_request *run);
/* lib/engine/engine.c. Return whether to look for NaN and infinities in what the run adds. */
bool twill_run_looks(const struct twill_request *run);
/* lib/engine/engine.c. Look for one in elements `skip` to skip + length - 1 of each shard of
 * `src`, a SRC of the run as call number `sequence`. The first of a communicator is logged or, if
 * TWILL_FIRST_NAN is "fail", an error. Returns TWILL_OK or that error. */
twill_status twill_run_find_nan(struct twill_request *run, const unsigned char *src, size_t skip,
                                size_t length, uint64_t sequence);
/* lib/engine/engine.c. From now on look for one in SRC of all ranks where a REDUCE of this rank
 * reads it, and notify `watch`. Returns false, and does not look, unless each element of every
 * rank's SRC is read by a REDUCE of some rank, and by no other step. If a later plan of the run
 * reads it otherwise, each rank looks at its own SRC before others get it. */
bool twill_run_watch(struct twill_request *run, const struct twill_nan_watch *watch);
/* Use other buffers for the same call, whose counts and layout stay. */
static inline void twill_run_move(struct twill_request *run, const void *src, void *dst)
{
    struct twill_side *side = run->buffers.side;
    run->call.src = src;
    run->call.dst = dst;
    side[TWILL_SRC].base = side[TWILL_SRC].has ? (unsigned char *)(uintptr_t)src : NULL;
    side[TWILL_DST].base = side[TWILL_DST].has ? dst : NULL;
    run->fast_path.from = side[run->fast_path.side].base + run->fast_path.at;
}
/* lib/engine/layout.c. Before a call, map the pages of DST if it is large, without gaps, not a part
 * of SRC, and was never touched. If several threads store, leave that to them, so that pages are
 * near their first writers. */
void twill_run_populate(const struct twill_request *run);
#define TWILL_POPULATE_FROM ((size_t)4 << 20) /* bytes; smaller memory is mostly used again */
/* lib/engine/fast_path.c. Set the signature of a call, and its number to the present value of
 * engine->issue.started, which stays. Add both to the chain hash. twill_request_begin() does all
 * that itself. Call this for a refused call or an exchange of buffer addresses, which take a number
 * but are not begun. */
void twill_run_number(struct twill_request *run);
/* lib/engine/layout.c. Use promoted buffers of a large call where the heap has them, until
 * twill_run_leave_promoted(). Copies their partial pages there. */
void twill_run_find_promoted(struct twill_request *run);
/* Do that at the start of a call, unless it is small. */
static inline void twill_run_begin_promoted(struct twill_request *run)
{
    if (run->bytes >= TWILL_MAPPED_BYTES)
        twill_run_find_promoted(run);
}
/* Before a persistent call starts, copy the partial pages of its promoted buffers. Returns
 * TWILL_OK, or TWILL_ERR_ARGUMENT if one was freed or demoted since twill_run_find_promoted(). */
twill_status twill_run_restart_promoted(struct twill_request *run);
/* Before a persistent call starts, see whether the heap was fenced since its addresses were
 * exchanged. Then use the caller's buffers, which are private now, and let the call exchange
 * addresses again. The ranks of the node have all fenced their heaps. */
void twill_run_follow_fence(struct twill_request *run);
/* Use the caller's buffers again, without copying. */
void twill_run_drop_promoted(struct twill_request *run);
/* Copy the result's partial pages to the caller's buffer, and use that again unless the call is
 * persistent. */
void twill_run_leave_promoted(struct twill_request *run);
/* Return whether a call uses promoted buffers. */
static inline bool twill_run_has_promoted(const struct twill_request *run)
{
    const struct twill_side *side = run->buffers.side;
    return run->bytes >= TWILL_MAPPED_BYTES &&
           TWILL_UNLIKELY(side[TWILL_SRC].given != NULL || side[TWILL_DST].given != NULL);
}
/* Start a prepared call. Compute its signature, post the fast path if possible, and number and
 * enqueue it. `entered` is twill_ticks() at the call's entry. If it is 0, the clock is read here,
 * on one node only after the fast path has sent what peers wait for. */
void twill_request_begin(struct twill_request *request, uint64_t entered);
/* lib/engine/choose_plan.c. Select run->plan and lay the run out, without waiting. Before that,
 * ranks of the node exchange buffer addresses if these matter. Returns 1 once all is done, 0 while
 * peers' buffer addresses are missing, and an error below 0. */
int twill_run_choose(struct twill_request *run);
/* lib/engine/choose_plan.c. Set *key and *choice as a call like run->call would choose, and the
 * segments of the layout, after twill_run_describe(). Addresses of buffers do not matter: all
 * ranks' are in their heaps if `in_heap`, else in none. `bytes` is the size of a vector call whose
 * counts all ranks know. Exchanges nothing. Returns TWILL_OK or the error. */
twill_status twill_run_foresee(struct twill_request *run, bool in_heap, size_t bytes,
                               struct twill_select_request *key, struct twill_choice *choice);
/* lib/engine/executor.c. Grow all free slots as this run needs. Returns TWILL_OK or the error. */
twill_status twill_run_reserve_slots(struct twill_request *run);
/* lib/engine/choose_plan.c. Forget the peers' buffers, to exchange addresses of other buffers in
 * the same call. The plan is kept aside, to be used again if these allow the same access. */
void twill_addresses_restart(struct twill_request *run);
/* lib/engine/choose_plan.c. Set *exchanges to whether the ranks of this node exchange buffer
 * addresses, and *any_exchanges to whether those of any node may, which is the same on all ranks.
 * Set exchange.access, and clear exchange.allowed. Returns TWILL_OK or the error. */
twill_status twill_addresses_needed(struct twill_request *run, bool *exchanges,
                                    bool *any_exchanges);
/* lib/engine/buffer_addresses.c. Release what was attached of peers' memory, if anything. */
void twill_run_detach_peers(struct twill_request *run);

#endif
