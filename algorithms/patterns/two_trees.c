/* SPDX-License-Identifier: Apache-2.0 */
/* The parents and children of two binary trees over one group. double_tree.c explains their use. */
#include "algorithms/patterns/pipeline.h"

/* Return the number of the tree's node to which a position belongs, as in struct twill_two_shape.
 * Positions are those of ranks in the group, counted from that of the root. */
static uint32_t node_at(const struct twill_two_shape *t, uint32_t position)
{
    if (position == 0 || t->kind == TWILL_TWO_PLAIN)
        return position;
    if (t->kind == TWILL_TWO_MIRRORED)
        return t->size - position;
    return position == 1 ? t->size - 1 : position - 1;
}

/* Return the position of the rank that is at this node of the tree. Positions are those of ranks in
 * the group, counted from that of the root. */
static uint32_t position_of(const struct twill_two_shape *t, uint32_t node)
{
    if (node == 0 || t->kind == TWILL_TWO_PLAIN)
        return node;
    return t->kind == TWILL_TWO_MIRRORED ? t->size - node : node % (t->size - 1) + 1;
}

/* Return the number of the tree's node that is the parent of `node`, which must not be 0, the
 * root. */
static uint32_t parent_of(const struct twill_two_shape *t, uint32_t node)
{
    uint32_t bit = node & -node, up = (node ^ bit) | bit << 1;
    return up < t->size ? up : node ^ bit;
}

/* Store the children of a node in child[] and return their number, at most 2. */
static uint32_t children_of(const struct twill_two_shape *t, uint32_t node, uint32_t child[2])
{
    uint32_t bit = node & -node, count = 0;
    if (node == 0) {
        for (bit = 1; bit * 2 < t->size; bit *= 2)
            ;
        child[0] = bit;
        return t->size > 1;
    }
    if (bit > 1)
        child[count++] = node - bit / 2;
    for (bit /= 2; bit > 0 && node + bit >= t->size; bit /= 2)
        ;
    if (bit > 0)
        child[count++] = node + bit;
    return count;
}

struct twill_pipe_tree twill_two_place(const struct twill_two_shape *t, const struct twill_group *g,
                                       uint32_t root)
{
    uint32_t position = (g->me + g->size - root) % g->size, child[2];
    uint32_t node = node_at(t, position);
    struct twill_pipe_tree tree = {.children = children_of(t, node, child)};
    while ((1u << tree.height) < t->size)
        tree.height++;
    for (uint32_t up = node; up != 0; up = parent_of(t, up))
        tree.depth++;
    if (node != 0)
        tree.parent = g->rank[(position_of(t, parent_of(t, node)) + root) % g->size];
    for (uint32_t i = 0; i < tree.children; i++) {
        uint32_t at = position_of(t, child[i]);
        tree.child[i].rank = g->rank[(at + root) % g->size];
        tree.child[i].first = at < position;
        tree.child[i].partial = child[i] % 2 == 0;
    }
    return tree;
}

struct twill_two_trees twill_two_trees_of(const struct twill_world *w,
                                          const struct twill_shape *shape)
{
    bool up = shape->collective != TWILL_BROADCAST;
    struct twill_two_trees t = {.world = w,
                                .ordered = up && shape->order != TWILL_ORDER_ANY,
                                .up = up,
                                .down = shape->collective != TWILL_REDUCE};
    t.tree[0] = (struct twill_two_shape){.size = w->size, .kind = TWILL_TWO_PLAIN};
    t.tree[1] = (struct twill_two_shape){
        .size = w->size,
        .kind = w->size % 2 == 0 && !t.ordered ? TWILL_TWO_SHIFTED : TWILL_TWO_MIRRORED};
    return t;
}

uint32_t twill_two_position(const struct twill_two_trees *t, uint32_t rank)
{
    const struct twill_world *w = t->world;
    uint32_t at = t->ordered ? rank : w->position[rank];
    return (at + w->size - t->root) % w->size;
}

bool twill_two_knows(const void *user, uint32_t rank, uint32_t other)
{
    const struct twill_two_trees *t = user;
    uint32_t above = twill_two_position(t, t->up ? rank : other);
    uint32_t below = twill_two_position(t, t->up ? other : rank);
    for (unsigned i = 0; i < 2; i++) {
        const struct twill_two_shape *tree = &t->tree[i];
        uint32_t node = node_at(tree, below);
        while (node != 0 && node != node_at(tree, above))
            node = parent_of(tree, node);
        if (node == node_at(tree, above))
            return true;
    }
    return false;
}
