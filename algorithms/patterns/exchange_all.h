/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges of every member of a group with every other. Internal to algorithms/. */
#ifndef TWILL_EXCHANGE_ALL_H
#define TWILL_EXCHANGE_ALL_H

#include "algorithms/schedule/emit.h"

/* Exchange shards with all other members. From SRC, this rank sends to every other member the shard
 * of that member. From DST, it sends its own shard, which must be there, to all others. What it
 * receives goes to the sender's shard of DST. Its own shard is not copied. Ends with nothing
 * posted. */
void twill_emit_exchange(struct twill_emitter *e, const struct twill_group *g,
                         enum twill_space from);

#define TWILL_EXCHANGE_WINDOW 4 /* turns that are posted at once */

/* The arguments of twill_emit_intake(), a plain value of its caller. They say which blocks of SRC
 * of all members of a group this rank reduces. */
struct twill_intake {
    uint32_t first, blocks; /* the range of blocks to reduce, whose FINAL result goes to DST */
    /* True to reduce operands in the order of the group. Otherwise this rank's own operand is the
     * first, then come those of the members on its left, the nearest first. */
    bool by_rank;
    enum {
        TWILL_INTAKE_NOTHING, /* nothing, as the others send by steps that are emitted elsewhere */
        TWILL_INTAKE_SHARD,   /* the shard of the member to which it is sent */
        TWILL_INTAKE_ALL      /* all blocks of the group */
    } sends;                  /* the part of its SRC that this rank sends to each other member */
    /* Offset in TMP of the scratch, TWILL_INTAKE_COPIES copies of the blocks, `stride` apart. */
    uint32_t tmp, stride;
};
#define TWILL_INTAKE_COPIES (2u * TWILL_EXCHANGE_WINDOW + 1)
/* Send a part of SRC to each other member, as `in` says. Receive in->blocks blocks from each,
 * reduce them with this rank's blocks in SRC, and store the result in DST. */
void twill_emit_intake(struct twill_emitter *e, const struct twill_group *g,
                       const struct twill_intake *in);

#endif
