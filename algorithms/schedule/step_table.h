/* SPDX-License-Identifier: Apache-2.0 */
/* The table of what each operation of a step contains, for the checker and text. Internal. */
#ifndef TWILL_STEP_TABLE_H
#define TWILL_STEP_TABLE_H

#include "algorithms/schedule/schedule.h"

/* The fields that one operation of schedules uses. There is one constant for each operation. */
struct twill_step_shape {
    const char *name;
    const char *peers;           /* the word before the peers in text, or NULL if it has no peers */
    uint16_t dst, src;           /* bit per enum twill_space to access, 0 for no such operand */
    uint16_t dst_peer, src_peer; /* the same for operands with the PEER bit */
    uint8_t flags;               /* enum twill_step_flags that it may have */
    bool posts;                  /* its message remains posted until the next WAIT of the lane */
};

/* Return the constant that says which operands, peers and flags the steps of an operation (enum
 * twill_step_op) have. The operation must be below TWILL_STEP_OP_COUNT. */
const struct twill_step_shape *twill_step_shape(unsigned op);
/* Return a name such as "SHARED", or "?" if there is no such space. */
const char *twill_space_name(unsigned space);
/* Return the number of entries of peer[] that a step uses. */
unsigned twill_step_peers(const struct twill_step *step);
/* Return the number of bytes of `blocks` blocks from the first block of the operand. The message
 * has `count` elements of `element` bytes, in shards of one size. */
uint64_t twill_step_bytes(const struct twill_schedule *schedule, twill_operand operand,
                          uint32_t blocks, size_t count, size_t element);
/* Recompute most_posted and uses_imm from the steps. */
void twill_schedule_derive(struct twill_schedule *schedule);

#endif
