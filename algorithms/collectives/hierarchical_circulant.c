/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks on a circulant graph between nodes (see circulant.c), and memory within each. One rank of
 * each node is its head, the root on its node and the lowest rank on the others. In a broadcast,
 * the other ranks copy a block when their head has it, while the next one arrives. In a reduce,
 * each node first reduces to its head. It takes B - 1 + ceil(lg G) rounds for B blocks and G nodes,
 * and n bytes leave a node.
 *
 *     node 0:  0   1 (root)      broadcast  1 -> 2 -> 4 in blocks; 0 copies from 1, and 3 from 2
 *     node 1:  2   3             reduce     0 -> 1, 3 -> 2; then 4 -> 2 -> 1 in blocks
 *     node 2:  4 */
#include "algorithms/patterns/head_blocks.h"

enum { HEADS_BLOCKS = 16, HEADS_MOST_BLOCKS = 4096 };

/* Return the number of blocks between nodes, as requested or HEADS_BLOCKS. */
static uint32_t blocks_of(const struct twill_shape *shape)
{
    return shape->parameter[0] == 0 ? HEADS_BLOCKS : shape->parameter[0];
}

/* Return whether there are several nodes, of which one has several ranks, and the number of blocks
 * and the order suit. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    return world->nodes > 1 && twill_world_widest(world) > 1 &&
           blocks_of(shape) <= HEADS_MOST_BLOCKS && shape->order == TWILL_ORDER_ANY;
}

/* Append the steps of a broadcast or a reduce between nodes. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    twill_emit_head_blocks(e, shape, blocks_of(shape), NULL);
}

const struct twill_algorithm twill_algorithm_hierarchical_circulant = {
    .name = "hierarchical:circulant",
    .help = "=blocks: blocks (16) on a circulant graph between the nodes, and memory within each: "
            "B - 1 + ceil(lg G) rounds",
    .collectives = 1u << TWILL_BROADCAST | 1u << TWILL_REDUCE,
    .protocols = 1u << TWILL_PROTOCOL_STAGED | 1u << TWILL_PROTOCOL_MAPPED,
    .parameters = 1,
    .applies = applies,
    .emit = emit,
};
