/* SPDX-License-Identifier: Apache-2.0 */
/* Double binary tree, pipelined (Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth
 * broadcast, reduction and scan", 2009). Half of the buffer is reduced up and broadcast down one
 * binary tree, and half another. Each half has its own lane and goes in blocks, one after the
 * other. The root is above both trees, and each other rank is a leaf in at least one of them. A
 * rank with two children in the other tree sends n/2 up, twice n/2 down and n/2 as a leaf, which is
 * at most 2n bytes. It takes B + 2 ceil(lg P) - 1 rounds for B blocks of each half.
 *
 *     P = 8, root 0:      0                     0
 *                         |                     |
 *                         4                     5
 *                       /   \                 /   \
 *                      2     6               3     7
 *                     / \   / \             / \   / \
 *                    1   3 5   7           2   4 6   1
 *
 * The first tree is in order. The second is the first with all ranks except the root shifted by one
 * (P even) or mirrored (P odd), so that its leaves are the other ranks. A mirrored tree is also in
 * order, so it is used where the order matters. The bytes are then up to 3n if P is even. */
#include "algorithms/patterns/pipeline.h"

#define TREE_BLOCKS      8
#define TREE_MOST_BLOCKS 4096

/* Return the number of blocks of each tree, as requested or TREE_BLOCKS. */
static uint32_t tree_blocks(const struct twill_shape *shape)
{
    return shape->parameter[0] == 0 ? TREE_BLOCKS : shape->parameter[0];
}

/* Return whether each tree may have as many blocks as requested, at most TREE_MOST_BLOCKS, and the
 * order suits. TWILL_ORDER_RANKS needs root 0, and TWILL_ORDER_LEFT is impossible. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    (void)world;
    bool ordered = shape->order == TWILL_ORDER_RANKS;
    return tree_blocks(shape) <= TREE_MOST_BLOCKS &&
           (shape->order == TWILL_ORDER_ANY || (ordered && shape->root == 0));
}

/* Append the steps of the double tree, for an allreduce, reduce or broadcast. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    uint32_t blocks = tree_blocks(shape), size = e->world->size;
    struct twill_two_trees t = twill_two_trees_of(e->world, shape);
    e->blocks = 2 * blocks;
    struct twill_group g =
        t.ordered ? twill_group_ranks(e, e->blocks) : twill_group_world(e, e->blocks);
    t.root = twill_two_position(&t, shape->root);
    e->tmp_blocks = !t.up || size < 3 ? 0 : size < 4 ? e->blocks : 2 * e->blocks;
    bool joins = twill_collective_facts(shape->collective)->joins;
    if (!joins)
        twill_emit_join(e, twill_two_knows, &t);
    if (size == 1 || (!t.up && e->rank == shape->root))
        twill_emit_alone(e, &g, TWILL_SRC);
    for (e->lane = 0; e->lane < 2 && size > 1; e->lane++) {
        struct twill_pipe_tree pipe = twill_two_place(&t.tree[e->lane], &g, t.root);
        twill_emit_pipeline(e, t.up ? &pipe : NULL, t.down ? &pipe : NULL, e->lane * blocks, blocks,
                            t.up ? TWILL_DST : TWILL_SRC);
    }
    e->lane = 0;
    if (!joins)
        twill_emit_await_join(e, twill_two_knows, &t);
}

const struct twill_algorithm twill_algorithm_double_tree = {
    .name = "double_tree",
    .help = "=blocks: two binary trees, each with half of the buffer in blocks (8): B + 2 lg P "
            "rounds, up to 2n bytes (Sanders, Speck and Traeff 2009)",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_REDUCE | 1u << TWILL_BROADCAST,
    .parameters = 1,
    .applies = applies,
    .emit = emit,
};
