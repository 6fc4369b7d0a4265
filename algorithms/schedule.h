/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule: what one rank does in one collective, as plain data. No pointer into buffers, no byte
 * count, no transport. One executor runs it, one verifier checks it, one printer shows it.
 *
 * Buffers are divided into `blocks` parts; steps speak of parts. The spaces:
 *   SRC, DST   the caller's buffers (the same memory when in place)
 *   TMP        private scratch of this rank, `tmp_blocks` parts; its block i is as large as block
 *              i % blocks of DST and lies at (i / blocks) slices + the place of that block
 *   SHARED     scratch of this rank that ranks of the same node may read and write, laid out
 *              likewise. Instances alternate between copies of it (see TWILL_SHARED_COPIES)
 *   IMM        48 bytes that travel in the cache line of their flag; one per lane, alternating too
 * With the PEER bit an operand is that of peer[0] (REDUCE: of peer[i]), a rank of the same node.
 *
 * Order: a lane issues its steps in order; lanes are independent. SEND, RECV and RECV_REDUCE are
 * posted and may touch their blocks until the lane's next WAIT; messages of one (from, to, lane)
 * match in order. Everything else is complete when the next step issues. A schedule ends when all
 * lanes end; a lane ends with nothing posted. */
#ifndef TWILL_SCHEDULE_H
#define TWILL_SCHEDULE_H

#include "algorithms/world.h"
#include "lib/base.h"

enum twill_step_op {
    TWILL_STEP_SEND,        /* src -> peer[0] */
    TWILL_STEP_RECV,        /* dst <- peer[0] */
    TWILL_STEP_RECV_REDUCE, /* dst = src op message; with FIRST: message op src */
    TWILL_STEP_REDUCE,      /* dst = fold of nsrc operands src@peer[0..nsrc-1], in that order;
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
    TWILL_STEP_IMM = 16     /* AWAIT: for IMM lines instead of signals */
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

#define TWILL_IMM_BYTES      48
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
    uint32_t blocks;        /* C: parts of SRC and DST */
    uint32_t tmp_blocks;    /* parts of TMP: 0, or a multiple of `blocks` */
    uint32_t shared_blocks; /* parts of SHARED: 0, or a multiple of `blocks` */
    uint32_t most_posted;   /* largest number of messages posted in a lane between WAITs */
    bool uses_imm;          /* good for payloads of at most TWILL_IMM_BYTES only; blocks == 1 */
    bool uses_peer_src;     /* needs the peers' SRC mapped */
    bool uses_peer_dst;     /* needs the peers' DST mapped */
};

void twill_schedule_destroy(struct twill_schedule *schedule);

/* Copies of SHARED (and of IMM lines) when `window` instances are in flight: instance e uses copy
 * e % copies. An instance may begin when the one `window` before it is complete on this rank. */
#define TWILL_SHARED_COPIES(window) (2u * (window))

/* Block i of `blocks` parts of count elements: [*first, *first + *length). Boundaries are multiples
 * of 64 bytes whenever count is large enough for every part to have some. */
void twill_block_range(size_t count, size_t element, uint32_t blocks, uint32_t i, size_t *first,
                       size_t *length);

#endif
