/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges of every member of a group with every other. Internal to algorithms/. */
#ifndef TWILL_EXCHANGE_ALL_H
#define TWILL_EXCHANGE_ALL_H

#include "algorithms/schedule/emit.h"

/* Exchange shards. From SRC: each member's shard to that member. From DST: the own shard to all
 * members. Received into the sender's shard of DST; the own one must be there already. Ends with
 * nothing posted. */
void twill_emit_exchange(struct twill_emitter *e, const struct twill_group *g,
                         enum twill_space from);

#define TWILL_EXCHANGE_WINDOW 4 /* turns that are posted at once */

/* A reduction of what all members of a group contribute, received raw, operand by operand. */
struct twill_intake {
    uint32_t first, blocks; /* blocks to reduce; FINAL into DST */
    bool by_rank;           /* in the order of the group; else the own first, then leftwards */
    enum {
        TWILL_INTAKE_NOTHING,
        TWILL_INTAKE_SHARD,
        TWILL_INTAKE_ALL
    } sends; /* what each member sends of its SRC */
    /* Offset of the scratch in TMP: TWILL_INTAKE_COPIES times the blocks, `stride` blocks apart. */
    uint32_t tmp, stride;
};
#define TWILL_INTAKE_COPIES (2u * TWILL_EXCHANGE_WINDOW + 1)
void twill_emit_intake(struct twill_emitter *e, const struct twill_group *g,
                       const struct twill_intake *in);

#endif
