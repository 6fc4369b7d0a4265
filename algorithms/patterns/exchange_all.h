/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges of every member of a group with every other. Internal to algorithms/. */
#ifndef TWILL_EXCHANGE_ALL_H
#define TWILL_EXCHANGE_ALL_H

#include "algorithms/schedule/emit.h"

/* A total exchange: the turns of a rank, each with a member to send to and one to receive from, in
 * windows that are posted at once. By rank: with members 0, 1, 2, ...; x and y exchange in window
 * (x + y) / TWILL_EXCHANGE_WINDOW, so that windows agree on all ranks. Otherwise turn k - 1 sends k
 * positions to the right and receives from k to the left. */
#define TWILL_EXCHANGE_WINDOW 4
struct twill_turn {
    uint32_t to, from; /* positions in the group */
    uint32_t operand;  /* number of the received operand, where the own one is number `me` (by rank)
                          or 0 */
    bool last;         /* the last turn of its window */
};
struct twill_turn twill_turn_at(const struct twill_group *g, bool by_rank, uint32_t k);
/* Exchange shards. From SRC: each member's shard to that member. From DST: the own shard to all
 * members. Received into the sender's shard of DST; the own one must be there already. Ends with
 * nothing posted. */
void twill_emit_exchange(struct twill_emitter *e, const struct twill_group *g,
                         enum twill_space from);

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
