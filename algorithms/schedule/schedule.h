/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule says what one rank does in one collective, as plain data. It has no pointers into
 * buffers, no byte counts and no transport. One executor runs it, one verifier checks it, and one
 * model prices it.
 *
 * The message is divided into `shards` (1, or one per rank), and each shard into blocks / shards
 * blocks. Block b is number b % (blocks / shards) of shard b / (blocks / shards). Steps address
 * blocks. The collective determines what a shard is and which rank holds which shards:
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
 * in the shape, shards may differ in size, and so may blocks with the same number in different
 * shards.
 *
 * The spaces:
 *
 *   SRC, DST   the buffers of the caller
 *   TMP        private scratch of this rank, `tmp_blocks` blocks. Its block i is as large as block
 *              i % blocks of the message. Its size is declared, not derived, so that it is the same
 *              on all ranks
 *   SHARED     scratch of this rank that ranks of its node may read and write, sized like TMP.
 *              Consecutive instances use several copies of it, one after the other
 *   IMM        up to TWILL_IMM_BYTES that begin in the cache line of their flag. Each lane has one
 *              block, also in several copies
 *
 * An operand with the PEER bit is in the memory of peer[0] (in REDUCE, of peer[i]), a rank of the
 * same node.
 *
 * Contents are raw (the input of a rank), partial (a reduction that is not FINAL), or final.
 * Partials may be wider than elements (8- and 16-bit floats are kept in f32 unless sums are
 * narrow). They are therefore in TMP, SHARED and IMM only, never in SRC or DST. Every step that
 * reads one has the flag PARTIAL or PARTIAL_OWN.
 *
 * A lane issues its steps in order, and lanes are independent of each other. SEND, RECV and
 * RECV_REDUCE are posted, and may access their blocks until the next WAIT of the lane. Messages
 * with the same sender, receiver and lane match in order. All other steps are complete when the
 * next one is issued. A lane ends with nothing posted, and a schedule ends when all its lanes have
 * ended. No rank ends before all ranks of its node have started, unless the schedule is eager. In
 * an eager schedule, a rank that only contributes data ends when it has contributed.
 *
 * A schedule may rely on TWILL_SHARED_COPIES(window) copies of SHARED and IMM, which the verifier
 * assumes. fabric/shm/node_memory.h provides more copies of IMM and of small SHARED. A copy is
 * reused when all ranks of the node are done with it. No rank starts an instance before all ranks
 * of its node have started the instance TWILL_SHARED_COPIES - window before it, and hence have
 * ended the one whose copy it uses. Schedules that are not eager ensure this themselves, because a
 * rank that has ended the instance `window` before knows that all ranks have started it. After
 * eager schedules the executor ensures it. */
#ifndef TWILL_SCHEDULE_H
#define TWILL_SCHEDULE_H

#include "algorithms/world/world.h"
#include "lib/base/base.h"

enum twill_step_op {
    TWILL_STEP_SEND,        /* send src to peer[0] */
    TWILL_STEP_RECV,        /* receive dst from peer[0] */
    TWILL_STEP_RECV_REDUCE, /* dst = src op message, or with FIRST, message op src */
    TWILL_STEP_REDUCE,      /* dst = ((src@peer[0] op src@peer[1]) op ...) of nsrc operands. With
                               ACC, dst op those, then at most 7. nsrc is 1 without the PEER bit */
    TWILL_STEP_COPY,        /* dst = src, of which either may have the PEER bit (for peer[0]) */
    TWILL_STEP_PUT_IMM,     /* IMM of this rank and lane = src */
    TWILL_STEP_WAIT,        /* wait until everything posted in this lane is complete */
    TWILL_STEP_SIGNAL,      /* increment the flag of this lane, which all ranks of the node see */
    /* wait until the flags of peer[0..nsrc-1] in this lane have been incremented `ordinal` times in
     * this run, or with IMM, until their IMM has arrived */
    TWILL_STEP_AWAIT,
    TWILL_STEP_OP_COUNT
};

enum twill_step_flags {
    TWILL_STEP_FINAL = 1, /* REDUCE, RECV_REDUCE: the result is complete (AVG divides here) */
    TWILL_STEP_ACC = 2,   /* REDUCE: dst is the first operand */
    TWILL_STEP_FIRST = 4, /* RECV_REDUCE: the message is first. REDUCE with ACC: dst is last */
    /* REDUCE from SHARED|PEER or IMM|PEER: read SRC, without a copy, where peer[i] is this rank */
    TWILL_STEP_OWN_SRC = 8,
    TWILL_STEP_IMM = 16, /* AWAIT: wait for IMM lines instead of signals */
    /* In SEND, RECV and RECV_REDUCE the message is a partial. In COPY, PUT_IMM and REDUCE src is a
     * partial (with OWN_SRC the SRC of this rank is raw nevertheless) */
    TWILL_STEP_PARTIAL = 32,
    /* In RECV_REDUCE src is a partial. In REDUCE with ACC dst is already a partial, not raw */
    TWILL_STEP_PARTIAL_OWN = 64
};

enum twill_space {
    TWILL_SRC,
    TWILL_DST,
    TWILL_TMP,
    TWILL_SHARED,
    TWILL_IMM,
    TWILL_SPACE_COUNT,
    TWILL_PEER = 0x80 /* a bit, combined with a space */
};

#define TWILL_IMM_BYTES      368
#define TWILL_STEP_PEERS     8
#define TWILL_SCHEDULE_LANES 4 /* largest number of lanes of a schedule */
#define TWILL_BLOCK_BITS     24

/* An operand, which consists of a space with its PEER bit and of the first block. */
typedef uint32_t twill_operand;

/* Return the operand of a space, which may include the PEER bit, and its first block. */
static inline twill_operand twill_operand_make(unsigned space, uint32_t block)
{
    return (uint32_t)space << TWILL_BLOCK_BITS | block;
}
/* Return the space of an operand (enum twill_space) without the PEER bit. */
static inline unsigned twill_operand_space(twill_operand o)
{
    return o >> TWILL_BLOCK_BITS & ~(unsigned)TWILL_PEER;
}
/* Return whether an operand has the PEER bit, and so is in the memory of a peer. */
static inline bool twill_operand_is_peer(twill_operand o)
{
    return (o >> TWILL_BLOCK_BITS & TWILL_PEER) != 0;
}
/* Return the number of the first block of an operand. */
static inline uint32_t twill_operand_block(twill_operand o)
{
    return o & ((1u << TWILL_BLOCK_BITS) - 1);
}

/* One step of a schedule, which owns it. Fields that its operation does not use are zero. */
struct twill_step {
    uint8_t op;    /* enum twill_step_op */
    uint8_t lane;  /* 0 .. lanes-1 */
    uint8_t nsrc;  /* operands of REDUCE or peers of AWAIT, 1 to 8 */
    uint8_t flags; /* enum twill_step_flags */
    /* number of blocks from the first block of each operand, 0 in a message without data */
    uint16_t blocks;
    uint16_t ordinal; /* number of SIGNALs that an AWAIT waits for, from 1, or 0 with IMM */
    twill_operand dst;
    twill_operand src;
    uint16_t peer[TWILL_STEP_PEERS]; /* ranks */
};
_Static_assert(sizeof(struct twill_step) == 32, "two steps to a cache line");

/* The schedule of a rank, constant from twill_schedule_emit() to twill_schedule_destroy(). */
struct twill_schedule {
    struct twill_step *steps; /* all steps of lane 0, then all of lane 1, and so on */
    uint32_t lane_first[TWILL_SCHEDULE_LANES + 1]; /* index of a lane's first step; then `count` */
    uint32_t lanes;
    uint32_t count;         /* number of steps */
    uint32_t shards;        /* shards of the message, 1 or one per rank */
    uint32_t blocks;        /* blocks of SRC and DST, a multiple of `shards` */
    uint32_t tmp_blocks;    /* 0 or a multiple of `blocks` */
    uint32_t shared_blocks; /* 0 or a multiple of `blocks` */
    uint32_t most_posted;   /* largest number of messages posted in a lane between WAITs */
    bool uses_imm;          /* uses PUT_IMM or IMM, so a block has at most TWILL_IMM_BYTES */
    bool uses_peer_src;     /* accesses SRC of peers */
    bool uses_peer_dst;     /* accesses DST of peers */
    bool eager; /* ranks may end before others of their node have started; equal on a node */
};

/* Free the steps and set the schedule to zeros. */
void twill_schedule_destroy(struct twill_schedule *schedule);

/* Return the number of steps at the start of lane 0 that make up the entry, which is a SIGNAL and
 * an AWAIT of all other ranks. Return 0 unless the world is one node of `size` ranks, there is one
 * lane, and all ranks synchronise once more later. A rank that has other proof that all ranks have
 * started may skip the entry. The second synchronisation then shows that all ranks have had this
 * proof, so that it can be used again. `rank` is the rank of the schedule. */
uint32_t twill_schedule_entry_steps(const struct twill_schedule *schedule, uint32_t rank,
                                    uint32_t size);

/* The least number of copies of SHARED and IMM with `window` instances in flight. Instance e uses
 * copy e % copies. Instances may start when the one `window` before is complete on this rank. */
#define TWILL_SHARED_COPIES(window) (2u * (window))

/* Compute the elements [*first, *first + *length) of block i of a shard that has `count` elements
 * in `blocks` blocks. `element` is the size of an element in bytes. Boundaries are multiples of 64
 * bytes if `count` is large enough for every block to have some elements. */
void twill_block_range(size_t count, size_t element, uint32_t blocks, uint32_t i, size_t *first,
                       size_t *length);

#endif
