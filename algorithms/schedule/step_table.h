/* SPDX-License-Identifier: Apache-2.0 */
/* What each step operation is made of: one table for the checker, the printer and the parser.
 * Internal to this room. */
#ifndef TWILL_STEP_TABLE_H
#define TWILL_STEP_TABLE_H

#include "algorithms/schedule/schedule.h"

struct twill_step_shape {
    const char *name;
    const char *peers;           /* the word before them, NULL: names none */
    uint16_t dst, src;           /* bit per enum twill_space it may name; 0: has none */
    uint16_t dst_peer, src_peer; /* likewise with the PEER bit */
    uint8_t flags;               /* that it may carry */
    bool posts;
};

/* op < TWILL_STEP_OP_COUNT */
const struct twill_step_shape *twill_step_shape(unsigned op);
const char *twill_space_name(unsigned space);
/* Ranks that a step names. */
unsigned twill_step_peers(const struct twill_step *step);
/* Bytes of so many blocks from the operand's on, of `count` elements, all parts (of one size)
 * together. */
uint64_t twill_step_bytes(const struct twill_schedule *schedule, twill_operand operand,
                          uint32_t blocks, size_t count, size_t element);
/* Recompute most_posted and uses_imm. */
void twill_schedule_derive(struct twill_schedule *schedule);

#endif
