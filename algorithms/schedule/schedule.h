/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule: what one rank does in one collective, as plain data. No pointer into buffers, no byte
 * count, no transport. One executor runs it, one verifier checks it, one model prices it.
 *
 * The message is divided into `shards` (1, or one per rank), each shard into blocks / shards
 * blocks: block b is number b % (blocks / shards) of shard b / (blocks / shards). Steps address
 * blocks. The collective determines what a shard is and which rank holds which:
 *
 *   collective                    shards  SRC holds          DST holds
 *   allreduce, reduce, broadcast  1       everything         everything (reduce: on the root only,
 *                                         (broadcast: root)  other ranks may have no DST)
 *   allgather                     P       shard `rank`       all shards
 *   reduce_scatter                P       all shards         shard `rank`
 *   gather                        P       shard `rank`       root: all shards; others: nothing
 *   scatter                       P       root: all shards;  shard `rank`
 *                                         others: nothing
 *   alltoall                      P       shard d: for       shard s: from
 *                                         rank d             rank s
 *   barrier                       1       nothing            nothing
 *
 * In place, SRC and DST are the same memory, block by block, where a rank has both. With `vector`
 * in the shape, shards may differ in size; so do, then, blocks of one number in different shards.
 *
 * The spaces:
 *
 *   SRC, DST   the caller's buffers
 *   TMP        private scratch of this rank, `tmp_blocks` blocks; its block i is as large as block
 *              i % blocks of the message. Declared, not derived: the same on all ranks
 *   SHARED     scratch of this rank that ranks of its node may read and write; sized like TMP.
 *              There are several copies, which instances use in turn
 *   IMM        up to TWILL_IMM_BYTES that begin in the cache line of their flag; one block, one
 *              per lane, several copies, too
 *
 * With the PEER bit an operand is that of peer[0] (REDUCE: of peer[i]), a rank of the same node.
 *
 * Contents are raw (a rank's input), partial (a reduction that is not FINAL), or final. Partials
 * may be kept wider than elements (8- and 16-bit floats: f32, but for narrow sums), so they are in
 * TMP, SHARED and IMM only, never in SRC or DST, and every step that reads one says so: PARTIAL,
 * PARTIAL_OWN.
 *
 * Order: a lane issues its steps in order; lanes are independent. SEND, RECV and RECV_REDUCE are
 * posted and may access their blocks until the lane's next WAIT; messages of one (from, to, lane)
 * match in order. All other steps are complete when the next one issues. A lane ends with nothing
 * posted; a schedule ends when all lanes end. No rank ends before all ranks of its node have
 * started, unless the schedule is eager: then a rank that only contributes data ends when it has
 * contributed.
 *
 * A schedule may rely on TWILL_SHARED_COPIES(window) copies of SHARED and IMM, which is what the
 * verifier assumes; fabric/shm/node_memory.h has more of IMM and of small SHARED. A copy is reused
 * when all ranks of the node are done with it: no rank starts
 * an instance before all ranks of its node have started the instance TWILL_SHARED_COPIES - window
 * before it, and hence have ended the one whose copy it uses. Schedules that are not eager ensure
 * that themselves: a rank that has ended the instance `window` before knows that all ranks have
 * started it. After eager schedules the executor ensures it. */
#ifndef TWILL_SCHEDULE_H
#define TWILL_SCHEDULE_H

#include "algorithms/world/world.h"
#include "lib/base/base.h"

enum twill_step_op {
    TWILL_STEP_SEND,        /* send src to peer[0] */
    TWILL_STEP_RECV,        /* receive dst from peer[0] */
    TWILL_STEP_RECV_REDUCE, /* dst = src op message; with FIRST: message op src */
    TWILL_STEP_REDUCE,      /* dst = ((src@peer[0] op src@peer[1]) op ...), nsrc of them;
                               with ACC: dst op those (then at most 7); OWN_SRC: see flags.
                               Without the PEER bit nsrc is 1 */
    TWILL_STEP_COPY,        /* dst = src; either may have the PEER bit (of peer[0]) */
    TWILL_STEP_PUT_IMM,     /* own IMM of this lane = src: payload, from the flag's cache line on */
    TWILL_STEP_WAIT,        /* until all that is posted in this lane is complete */
    TWILL_STEP_SIGNAL,      /* increment this lane's flag, which all ranks of the node see */
    TWILL_STEP_AWAIT,       /* until the flags of peer[0..nsrc-1] on this lane have been incremented
                               `ordinal` times in this run; with IMM: until their IMM has arrived */
    TWILL_STEP_OP_COUNT
};

enum twill_step_flags {
    TWILL_STEP_FINAL = 1,   /* REDUCE, RECV_REDUCE: the result is complete; AVG divides here */
    TWILL_STEP_ACC = 2,     /* REDUCE: dst is the first operand */
    TWILL_STEP_FIRST = 4,   /* RECV_REDUCE: the message is the first operand.
                               REDUCE with ACC: dst is the last operand instead of the first */
    TWILL_STEP_OWN_SRC = 8, /* REDUCE from SHARED|PEER or IMM|PEER: where peer[i] is this rank, read
                               the block of its SRC instead, so that it need not be copied in */
    TWILL_STEP_IMM = 16,    /* AWAIT: for IMM lines instead of signals */
    /* SEND, RECV, RECV_REDUCE: the message is a partial. COPY, PUT_IMM, REDUCE: src is a partial
     * (with OWN_SRC the own SRC is raw nevertheless) */
    TWILL_STEP_PARTIAL = 32,
    /* RECV_REDUCE: src is a partial. REDUCE with ACC: dst is already a partial, not raw */
    TWILL_STEP_PARTIAL_OWN = 64
};

enum twill_space {
    TWILL_SRC,
    TWILL_DST,
    TWILL_TMP,
    TWILL_SHARED,
    TWILL_IMM,
    TWILL_SPACE_COUNT,
    TWILL_PEER = 0x80 /* bit */
};

#define TWILL_IMM_BYTES      368
#define TWILL_STEP_PEERS     8
#define TWILL_SCHEDULE_LANES 4 /* most lanes of one schedule */
#define TWILL_BLOCK_BITS     24

/* An operand: a space with its PEER bit, and the first block. */
typedef uint32_t twill_operand;

static inline twill_operand twill_operand_make(unsigned space, uint32_t block)
{
    return (uint32_t)space << TWILL_BLOCK_BITS | block;
}
static inline unsigned twill_operand_space(twill_operand o)
{
    return o >> TWILL_BLOCK_BITS & ~(unsigned)TWILL_PEER;
}
static inline bool twill_operand_is_peer(twill_operand o)
{
    return (o >> TWILL_BLOCK_BITS & TWILL_PEER) != 0;
}
static inline uint32_t twill_operand_block(twill_operand o)
{
    return o & ((1u << TWILL_BLOCK_BITS) - 1);
}

/* One step. Zero where its operation does not use a field. */
struct twill_step {
    uint8_t op;       /* enum twill_step_op */
    uint8_t lane;     /* 0 .. lanes-1 */
    uint8_t nsrc;     /* REDUCE: operands; AWAIT: peers; both 1..8 */
    uint8_t flags;    /* enum twill_step_flags */
    uint16_t blocks;  /* from each operand's first block on; 0: a message without data */
    uint16_t ordinal; /* AWAIT: number of SIGNALs, from 1; 0 with IMM */
    twill_operand dst;
    twill_operand src;
    uint16_t peer[TWILL_STEP_PEERS]; /* ranks */
};
_Static_assert(sizeof(struct twill_step) == 32, "two steps to a cache line");

/* The schedule of one rank. Emitted by twill_schedule_emit(), released by
 * twill_schedule_destroy(); constant in between. */
struct twill_schedule {
    struct twill_step *steps; /* lane by lane: all of lane 0, then all of lane 1, ... */
    uint32_t lane_first[TWILL_SCHEDULE_LANES + 1]; /* index of a lane's first step */
    uint32_t lanes;
    uint32_t count;         /* steps */
    uint32_t shards;        /* shards of the message: 1, or one per rank */
    uint32_t blocks;        /* blocks of SRC and DST: a multiple of `shards` */
    uint32_t tmp_blocks;    /* 0, or a multiple of `blocks` */
    uint32_t shared_blocks; /* 0, or a multiple of `blocks` */
    uint32_t most_posted;   /* largest number of messages posted in a lane between WAITs */
    bool uses_imm;          /* blocks may have at most TWILL_IMM_BYTES */
    bool uses_peer_src;     /* accesses the peers' SRC */
    bool uses_peer_dst;     /* accesses the peers' DST */
    bool eager; /* ranks may end before others of their node have started; equal on all ranks of a
                   node */
};

void twill_schedule_destroy(struct twill_schedule *schedule);

/* Return the number of steps of lane 0 that the entry takes: an initial SIGNAL and AWAIT of all
 * other ranks, in a world of one node, if the schedule synchronises all ranks once more later; else
 * 0. A rank that knows otherwise that all ranks have started may skip these steps; the second
 * synchronisation proves that all ranks have known it, so that the same means may be used again.
 * `rank` is the schedule's rank. */
uint32_t twill_schedule_entry_steps(const struct twill_schedule *schedule, uint32_t rank,
                                    uint32_t size);

/* Least copies of SHARED and IMM with `window` instances in flight: instance e uses copy e %
 * copies. An instance may start when the one `window` before it is complete on this rank. */
#define TWILL_SHARED_COPIES(window) (2u * (window))

/* Compute the elements of block i of the `blocks` of a shard of `count` elements: [*first, *first +
 * *length). Boundaries are multiples of 64 bytes if count is large enough for every block to have
 * some. */
void twill_block_range(size_t count, size_t element, uint32_t blocks, uint32_t i, size_t *first,
                       size_t *length);

#endif
