/* SPDX-License-Identifier: Apache-2.0 */
/* A run: one execution of a plan over the caller's buffers. Each part of the message is cut into
 * slices; the n-th slice of all parts is an instance of the schedule. Up to TWILL_WINDOW instances
 * are in flight, of one call or of consecutive ones, each with cursors, physical lanes, scratch and
 * a copy of SHARED of its own. */
#ifndef TWILL_RUN_H
#define TWILL_RUN_H

#include "fabric/transport.h"
#include "lib/api/operation.h"
#include "lib/exec/plan.h"

struct twill_comm;
struct twill_run;

/* Elements of each part, and where it begins; NULL: even, or one after the other. */
struct twill_counts {
    const size_t *count, *offset;
};

/* What the caller asked for. */
struct twill_call {
    enum twill_collective collective;
    const void *src;
    void *dst;
    size_t count; /* elements of a part; vector: of this rank's part, where it has but one */
    twill_type type;
    twill_op op;
    uint32_t root;
    bool vector;
    struct twill_counts src_counts, dst_counts; /* vector: of the side that has all parts */
};

/* SRC or DST as it lies in memory, in elements. */
struct twill_side {
    unsigned char *base;  /* NULL: this rank has none */
    const size_t *count;  /* [parts]; NULL: all have `even` */
    const size_t *offset; /* [parts]; NULL: they begin `stride` apart */
    size_t even, stride;
    size_t bytes; /* from base to its end */
    bool has;     /* this rank has one */
    bool own;     /* holds the part of this rank's number only */
    bool bounced; /* in scratch, slice by slice */
};
enum { TWILL_SIDES = 2 }; /* TWILL_SRC, TWILL_DST */

/* A posted message and what to do with it. */
struct twill_posted {
    struct twill_transfer request;
    struct twill_run *run;
    const unsigned char *src; /* fold: dst = src op message */
    unsigned char *dst;
    uint8_t flags; /* of the step */
    bool late;     /* to be folded when it is complete */
};

struct twill_instance {
    bool active;
    uint64_t epoch;
    struct twill_run *run;
    size_t skip;                      /* elements of each part before the slice */
    size_t length;                    /* of the slice in the largest part */
    unsigned char *base[TWILL_SIDES]; /* of the slice */
    unsigned lanes_left;
    uint32_t at[TWILL_SCHEDULE_LANES];     /* next step */
    uint32_t posted[TWILL_SCHEDULE_LANES]; /* since the last WAIT */
    uint32_t signalled[TWILL_SCHEDULE_LANES];
};

/* A place in the window: instance e is in place e % TWILL_WINDOW. */
struct twill_slot {
    struct twill_instance instance;
    unsigned char *scratch; /* TMP, then bounces, then what is staged */
    size_t scratch_bytes;
    struct twill_posted *posted; /* [lane][most posted] */
    size_t posted_count;
};

/* The first steps of a run of one slice, if they show a piece of the caller's buffer, or only that
 * this rank has come: found when the run is laid out, so that they can go out first. */
struct twill_fast_path {
    enum {
        TWILL_FAST_NONE,
        TWILL_FAST_IMM16, /* an immediate of 8 to 16 bytes */
        TWILL_FAST_IMM,
        TWILL_FAST_COPY,
        TWILL_FAST_SIGNAL
    } kind;
    uint8_t steps, signals, side;
    size_t at, to, bytes;      /* in the side; in the copy of SHARED */
    const unsigned char *from; /* the side's base + at */
};

struct twill_run {
    struct twill_comm *comm;
    const struct twill_plan *plan; /* NULL: not chosen yet */
    struct twill_call call;
    struct twill_call summary; /* what ranks compare: with the kind of the operation, and a hash of
                                  counts that all ranks know */
    uint64_t call_hash;        /* of the summary */
    uint64_t sequence;         /* of the call */
    uint32_t signature;
    bool published, collected; /* lib/exec/buffer_addresses.c: this rank has said where its buffers
                            are; all have */
    unsigned access;           /* enum twill_access: what the votes are about */
    bool mapped, fetched;      /* to be had of all buffers */
    bool arrived; /* all ranks of the node have been seen in this call, by their votes: no other
                 meeting is needed to begin it */
    uint32_t next_address;
    const struct twill_plan *before; /* of the same call with other buffers, or NULL; and how those
                                        were to be had */
    bool were_mapped, were_fetched;
    const struct twill_operation *created; /* or NULL */
    twill_type type;                       /* as the kernels know it */
    twill_op op;
    size_t element, partial; /* bytes */
    size_t given, align;     /* bytes of an element, and its alignment, in the caller's buffers */
    struct twill_side side[TWILL_SIDES];
    const size_t *known;   /* [parts] sizes of the parts that all ranks know, or NULL: even */
    size_t most;           /* elements of the largest part */
    uint32_t shard_blocks; /* of a part */
    bool joined;           /* consecutive parts lie together: steps take them at once */
    bool small;            /* SHARED is among the copies for small messages */
    uint32_t max_ahead;    /* instances that it may be ahead of the node's other ranks */
    bool mirrored;         /* local rank 1 has the two parts of SHARED the other way round */
    bool late;             /* transports may cut elements: messages are folded when complete */
    size_t segment_length; /* elements of a full slice of a part */
    size_t partial_at;     /* bytes from raw contents to partials in a copy of TMP and SHARED */
    size_t copy_bytes;     /* of `blocks` blocks of TMP or SHARED */
    size_t scratch_bytes, bounced_at; /* of a slot; in it */
    size_t segments, started, finished;
    struct twill_fast_path fast_path;
    const unsigned char **peer_src; /* [local_size] mapped buffers, for MAPPED; for FETCHED */
    unsigned char **peer_dst;       /* addresses in the peers' processes */
    uint64_t *address;              /* [local_size][TWILL_SIDES] those, as the votes have them */
    struct twill_region **region;   /* [local_size][TWILL_SIDES] attached, or NULL */
    size_t fetched_at;    /* in a slot's scratch: strips of what is fetched to be folded */
    unsigned store_flags; /* TWILL_KERNEL_STREAM for big messages, of what goes to callers */
};

/* --- lib/exec/layout.c: where everything is
 * ------------------------------------------------------- */

/* From the call: widths of elements and the two sides. The arguments have not been checked. */
void twill_run_describe(struct twill_run *run);
/* The same call again, over other buffers. */
static inline void twill_run_move(struct twill_run *run, const void *src, void *dst)
{
    struct twill_side *side = run->side;
    run->call.src = src;
    run->call.dst = dst;
    side[TWILL_SRC].base = side[TWILL_SRC].has ? (unsigned char *)(uintptr_t)src : NULL;
    side[TWILL_DST].base = side[TWILL_DST].has ? dst : NULL;
    run->fast_path.from = side[run->fast_path.side].base + run->fast_path.at;
}
/* How the plan goes over the call: slices. */
twill_status twill_run_lay_out(struct twill_run *run);

/* What of it depends on where the buffers lie. */
void twill_run_choose_stores(struct twill_run *run);

/* Elements in a row. */
struct twill_elements {
    unsigned char *start;
    size_t count;
};
/* `blocks` blocks of an operand from its block number `at` on. */
struct twill_operand_place {
    twill_operand operand;
    uint32_t at, blocks;
    uint32_t peer; /* read with the PEER bit */
    uint8_t lane;
    bool partial;
};
struct twill_elements twill_run_locate(const struct twill_run *run,
                                       const struct twill_instance *instance,
                                       const struct twill_operand_place *where);
/* How many of the blocks of an operand from number `at` on lie together. */
static inline uint32_t twill_run_together(const struct twill_run *run, twill_operand operand,
                                          uint32_t at, uint32_t blocks)
{
    uint32_t left = blocks - at;
    if (run->joined)
        return left;
    uint32_t whole = run->shard_blocks - (twill_operand_block(operand) + at) % run->shard_blocks;
    return left < whole ? left : whole;
}
static inline size_t twill_run_width(const struct twill_run *run, bool partial)
{
    return partial ? run->partial : run->element;
}

/* --- lib/exec/executor.c
 * ------------------------------------------------------------------------------ */

/* Begin the next slice in the place of its epoch, which is free. */
twill_status twill_run_begin_segment(struct twill_run *run, struct twill_slot *slot,
                                     uint64_t epoch);
/* Have the memory that a slice needs. */
twill_status twill_run_reserve_more(struct twill_run *run, struct twill_slot *slot);
static inline twill_status twill_run_reserve(struct twill_run *run, struct twill_slot *slot)
{
    size_t posted = (size_t)TWILL_SCHEDULE_LANES * run->plan->most_posted;
    if (TWILL_LIKELY(run->scratch_bytes <= slot->scratch_bytes && posted <= slot->posted_count))
        return TWILL_OK;
    return twill_run_reserve_more(run, slot);
}
/* Begin the first slice of a call without messages whose opening is done, nothing else being under
 * way, up to where it may have to wait: what the others wait for goes out before anything is
 * written down about it. */
void twill_run_fast_start(struct twill_run *run);
/* Do what can be done now: number of steps (0: blocked), or an error. */
int twill_run_advance(struct twill_slot *slot);
/* Ranks it waits for now, at most `most`, and the step's name. */
unsigned twill_run_waits_for(const struct twill_slot *slot, uint32_t *ranks, unsigned most,
                             const char **step);

/* Can it be read which call this is, here and at the peer? It is written down after what others
 * wait for is on its way, and when the calls before have ended. */
bool twill_run_is_written_down(const struct twill_run *run, uint32_t peer);
/* The peer, a rank of the node, has another signature: the error that says how its call differs, or
 * 0 as long as that is not known, which is to be read before the signature. */
int twill_run_differs(struct twill_run *run, uint32_t peer, bool is_known);

/* --- lib/exec/fast_path.c
 * --------------------------------------------------------------------------- */

void twill_run_find_fast_path(struct twill_run *run);
/* Do the opening, in the epoch that is next: nothing else is under way. */
void twill_run_fast_post(const struct twill_run *run);

/* --- lib/exec/compute.c: the steps that compute
 * --------------------------------------------------- */

/* REDUCE and the COPYs of its result that follow, in one pass. *copies: how many COPYs were done.
 */
twill_status twill_run_reduce_and_copy(struct twill_run *run, const struct twill_instance *instance,
                                       const struct twill_step *step, const struct twill_step *end,
                                       uint32_t *copies);
twill_status twill_run_copy(struct twill_run *run, const struct twill_instance *instance,
                            const struct twill_step *step);
/* Take a piece of a message of RECV_REDUCE. */
void twill_run_reduce(struct twill_transfer *request, size_t offset, const void *data,
                      size_t bytes);

/* --- lib/exec/peer_buffers.c: what lies in peers' processes
 * ------------------------------------------------- */

/* Bytes of a strip, of each of the operands that are fetched to be folded. */
#define TWILL_FETCH_CHUNK ((size_t)128 << 10)

/* The votes are in and the plan is made: have the peers' buffers ready for it. */
twill_status twill_run_attach_peers(struct twill_run *run);
/* Attachments of the last time may be given up. */
void twill_run_detach_peers(struct twill_run *run);
/* From an address that twill_run_locate() gave of a peer's SRC or DST. */
twill_status twill_run_fetch(struct twill_run *run, uint32_t peer, void *to, const void *from,
                             size_t bytes);
/* Is an operand with the PEER bit one that has to be fetched from others? */
static inline bool twill_run_fetches(const struct twill_run *run, twill_operand operand)
{
    return TWILL_UNLIKELY(run->plan->fetches) && twill_operand_is_peer(operand) &&
           twill_operand_space(operand) <= TWILL_DST;
}

/* --- lib/exec/bounce.c: slices of SRC and DST that are in scratch
 * ----------------------------------- */

void twill_run_bounce_in(struct twill_run *run, const struct twill_instance *instance);
void twill_run_bounce_out(struct twill_run *run, const struct twill_instance *instance);

#endif
