/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule: what one rank does in one collective, as plain data. No pointer into buffers, no byte
 * count, no transport. One executor runs it, one verifier checks it, one printer shows it.
 *
 * The message is divided into `parts` (1, or one per rank), each part into blocks / parts blocks:
 * block b is piece b % (blocks / parts) of part b / (blocks / parts). Steps speak of blocks. What a
 * part is, and who has which, is the collective's business:
 *
 *   collective                    parts  SRC holds          DST holds
 *   allreduce, reduce, broadcast  1      everything         everything (reduce: on the root only,
 *                                        (broadcast: root)  elsewhere there may be no DST)
 *   allgather                     P      part `rank`        all parts
 *   reduce_scatter                P      all parts          part `rank`
 *   gather                        P      part `rank`        root: all parts; else nothing
 *   scatter                       P      root: all; else    part `rank`
 *                                        nothing
 *   alltoall                      P      part d: for rank d part s: from rank s
 *   barrier                       1      nothing            nothing
 *
 * In place SRC and DST are the same memory, block by block, where a rank has both. Parts may be of
 * different sizes (`vector` in the shape); blocks of one place in different parts then differ too.
 *
 * The spaces:
 *   SRC, DST   the caller's buffers
 *   TMP        private scratch of this rank, `tmp_blocks` blocks: its block i is as large as block
 *              i % blocks of the message. Declared, not derived: the same on all ranks
 *   SHARED     scratch of this rank that ranks of the same node may read and write, likewise.
 *              Instances alternate between copies of it (see TWILL_SHARED_COPIES)
 *   IMM        up to 368 bytes that begin in the cache line of their flag; one block, one per lane,
 *              alternating too
 * With the PEER bit an operand is that of peer[0] (REDUCE: of peer[i]), a rank of the same node.
 *
 * Contents are raw (somebody's input), partial (a fold that is not FINAL), or final. Partials may
 * be kept wider than elements (8- and 16-bit floats: f32), so they live in TMP, SHARED and IMM
 * only, never in SRC or DST, and every step that takes one says so: PARTIAL, PARTIAL_OWN.
 *
 * Order: a lane issues its steps in order; lanes are independent. SEND, RECV and RECV_REDUCE are
 * posted and may touch their blocks until the lane's next WAIT; messages of one (from, to, lane)
 * match in order. Everything else is complete when the next step issues. A schedule ends when all
 * lanes end; a lane ends with nothing posted. No rank ends before all ranks of its node have begun,
 * unless the schedule is eager: then who only gives is done when it has given.
 *
 * Copies of SHARED and IMM are reused when all ranks of the node are done with them: no rank begins
 * an instance before all of its node have begun the one that is TWILL_SHARED_COPIES - window before
 * it, hence have ended the one whose copy it takes. Where schedules are not eager that is so by
 * itself: who has ended the instance `window` before knows that all have begun it. After eager ones
 * the executor sees to it. */
#ifndef TWILL_SCHEDULE_H
#define TWILL_SCHEDULE_H

#include "algorithms/world/world.h"
#include "lib/base.h"

enum twill_step_op {
    TWILL_STEP_SEND,        /* src -> peer[0] */
    TWILL_STEP_RECV,        /* dst <- peer[0] */
    TWILL_STEP_RECV_REDUCE, /* dst = src op message; with FIRST: message op src */
    TWILL_STEP_REDUCE,      /* dst = ((src@peer[0] op src@peer[1]) op ...), nsrc of them;
                               with ACC: dst op those (then at most 7); OWN_SRC: see flags.
                               Without the PEER bit nsrc is 1 */
    TWILL_STEP_COPY,        /* dst = src; either may have the PEER bit (of peer[0]) */
    TWILL_STEP_PUT_IMM,     /* own IMM of this lane = src, and say so: payload and flag in a line */
    TWILL_STEP_WAIT,        /* until all posted in this lane is done */
    TWILL_STEP_SIGNAL,      /* bump this lane's flag of this rank, seen by all ranks of the node */
    TWILL_STEP_AWAIT,       /* until the flag of peer[0..nsrc-1] on this lane has been bumped
                               `ordinal` times in this run; with IMM: until their IMM is there */
    TWILL_STEP_OP_COUNT
};

enum twill_step_flags {
    TWILL_STEP_FINAL = 1,   /* REDUCE, RECV_REDUCE: the result is complete; AVG divides here */
    TWILL_STEP_ACC = 2,     /* REDUCE: dst is the first operand */
    TWILL_STEP_FIRST = 4,   /* RECV_REDUCE: the message is the first operand.
                               REDUCE with ACC: dst is the last operand instead of the first */
    TWILL_STEP_OWN_SRC = 8, /* REDUCE from SHARED|PEER or IMM|PEER: where peer[i] is this rank, take
                               SRC of the block instead, so that it need not be copied in */
    TWILL_STEP_IMM = 16,    /* AWAIT: for IMM lines instead of signals */
    TWILL_STEP_PARTIAL = 32, /* SEND, RECV: the message is a partial. RECV_REDUCE: likewise. COPY,
                                PUT_IMM, REDUCE: what src names is (with OWN_SRC the own SRC is raw
                                all the same) */
    TWILL_STEP_PARTIAL_OWN = 64 /* RECV_REDUCE: what src names is a partial. REDUCE with ACC: dst is
                                   one already, not raw */
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

/* Operand: space and first block. */
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

struct twill_step {
    uint8_t op;    /* enum twill_step_op */
    uint8_t lane;  /* 0 .. lanes-1 */
    uint8_t nsrc;  /* REDUCE: operands; AWAIT: peers; both 1..8 */
    uint8_t flags; /* enum twill_step_flags */
    uint16_t
        blocks; /* consecutive blocks from each operand's first; 0: no data, only the message */
    uint16_t ordinal; /* AWAIT: how many SIGNALs, from 1; with IMM 0 */
    twill_operand dst;
    twill_operand src;
    uint16_t peer[TWILL_STEP_PEERS]; /* ranks */
};
_Static_assert(sizeof(struct twill_step) == 32, "two steps to a cache line");

struct twill_schedule {
    struct twill_step *steps; /* lane by lane: all of lane 0, then all of lane 1, ... */
    uint32_t lane_first[TWILL_SCHEDULE_LANES + 1]; /* index of a lane's first step */
    uint32_t lanes;
    uint32_t count;         /* steps */
    uint32_t shards;        /* of the message: 1, or one per rank */
    uint32_t blocks;        /* of SRC and DST: a multiple of parts */
    uint32_t tmp_blocks;    /* of TMP: 0, or a multiple of `blocks` */
    uint32_t shared_blocks; /* of SHARED: 0, or a multiple of `blocks` */
    uint32_t most_posted;   /* largest number of messages posted in a lane between WAITs */
    bool uses_imm;          /* good for blocks of at most TWILL_IMM_BYTES only */
    bool uses_peer_src;     /* needs to reach the peers' SRC */
    bool uses_peer_dst;     /* needs to reach the peers' DST */
    bool eager; /* ranks may end before others of their node have begun; alike on a node */
};

void twill_schedule_destroy(struct twill_schedule *schedule);

/* Where all ranks of a world of one node begin with a meeting, SIGNAL and AWAIT of everybody else,
 * and meet once more later: the steps of lane 0 that the first meeting takes; else 0. Who knows by
 * other means that everybody has come may begin behind them. The second meeting then tells that all
 * have known it, so that those means may be used again. `rank` is whose schedule it is. */
uint32_t twill_schedule_entry_steps(const struct twill_schedule *schedule, uint32_t rank,
                                    uint32_t size);

/* Copies of SHARED (and of IMM lines) when `window` instances are in flight: instance e uses copy
 * e % copies. An instance may begin when the one `window` before it is complete on this rank. */
#define TWILL_SHARED_COPIES(window) (2u * (window))

/* Piece i of `blocks` of a part of count elements: [*first, *first + *length). Boundaries are
 * multiples of 64 bytes whenever count is large enough for every part to have some. */
void twill_block_range(size_t count, size_t element, uint32_t blocks, uint32_t i, size_t *first,
                       size_t *length);

#endif
