/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks on circulant graphs (see circulant.c) between one node of each group, its gate, then
 * between the nodes of the group, and memory within each node. So n bytes enter each group but one
 * (in a reduce, leave it), the least possible. It takes 2 (B - 1) + ceil(lg A) + ceil(lg G) rounds
 * for B blocks, A groups and G nodes of a group, in up to 4 lanes with other gates. */
#include "algorithms/patterns/head_blocks.h"

enum { GROUPS_BLOCKS = 24, GROUPS_MOST_BLOCKS = 4096 };

/* Return the number of blocks, as requested or GROUPS_BLOCKS. */
static uint32_t blocks_of(const struct twill_shape *shape)
{
    return shape->parameter[0] == 0 ? GROUPS_BLOCKS : shape->parameter[0];
}

/* Return whether there are several groups, of which one has several nodes, and the number of blocks
 * and the order suit. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    const uint32_t *group = world->unit[TWILL_LEVEL_GROUP];
    uint32_t groups = 1;
    for (uint32_t r = 0; group != NULL && r < world->size; r++)
        groups = group[r] >= groups ? group[r] + 1 : groups;
    return groups > 1 && groups < world->nodes && blocks_of(shape) <= GROUPS_MOST_BLOCKS &&
           shape->order == TWILL_ORDER_ANY;
}

/* Append the steps of a broadcast or a reduce between groups and their nodes. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    twill_emit_head_blocks(e, shape, blocks_of(shape), e->world->unit[TWILL_LEVEL_GROUP]);
}

const struct twill_algorithm twill_algorithm_groups = {
    .name = "groups",
    .help =
        "=blocks: blocks (24) on circulant graphs between the groups, then between the nodes of "
        "each, and memory within each: least bytes between groups",
    .collectives = 1u << TWILL_BROADCAST | 1u << TWILL_REDUCE,
    .protocols = 1u << TWILL_PROTOCOL_STAGED | 1u << TWILL_PROTOCOL_MAPPED,
    .parameters = 1,
    .applies = applies,
    .emit = emit,
};
