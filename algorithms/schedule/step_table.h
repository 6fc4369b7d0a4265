/* SPDX-License-Identifier: Apache-2.0 */
/* What each step operation contains: one table for the checker and for schedules as text. Internal
 * to algorithms/. */
#ifndef TWILL_STEP_TABLE_H
#define TWILL_STEP_TABLE_H

#include "algorithms/schedule/schedule.h"

/* The fields that one operation uses; constant. */
struct twill_step_shape {
    const char *name;
    const char *peers;           /* the word before them in text; NULL: has no peers */
    uint16_t dst, src;           /* bit per enum twill_space it may access; 0: no operand */
    uint16_t dst_peer, src_peer; /* the spaces allowed with the PEER bit */
    uint8_t flags;               /* flags that it may have */
    bool posts;
};

/* op < TWILL_STEP_OP_COUNT */
const struct twill_step_shape *twill_step_shape(unsigned op);
const char *twill_space_name(unsigned space);
/* Return the number of peers that a step names. */
unsigned twill_step_peers(const struct twill_step *step);
/* Return the bytes of `blocks` blocks from the operand's first on, of a message of `count` elements
 * with shards of one size. */
uint64_t twill_step_bytes(const struct twill_schedule *schedule, twill_operand operand,
                          uint32_t blocks, size_t count, size_t element);
/* Recompute most_posted and uses_imm. */
void twill_schedule_derive(struct twill_schedule *schedule);

#endif
