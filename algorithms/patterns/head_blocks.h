/* SPDX-License-Identifier: Apache-2.0 */
/* Broadcast and reduce of blocks on circulant graphs between nodes. Internal to algorithms/. */
#ifndef TWILL_HEAD_BLOCKS_H
#define TWILL_HEAD_BLOCKS_H

#include "algorithms/schedule/emit.h"

/* Append the steps of a broadcast or a reduce of `blocks` blocks with STAGED or MAPPED. One rank of
 * each node is its head, the root on its node and the lowest rank on the others. With group[size],
 * the group of each rank, which holds whole nodes, one head of each group is its gate. Blocks go
 * between gates, then between the heads of a group, then to the ranks of a node, or all the way
 * back. There are up to TWILL_SCHEDULE_LANES lanes with other gates. If `group` is NULL all nodes
 * are one group, in one lane. Operands may be reduced in any order. */
void twill_emit_head_blocks(struct twill_emitter *e, const struct twill_shape *shape,
                            uint32_t blocks, const uint32_t *group);

#endif
