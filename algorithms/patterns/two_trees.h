/* SPDX-License-Identifier: Apache-2.0 */
/* Two binary trees over one group, in which others are the leaves. Internal to this room. */
#ifndef TWILL_TWO_TREES_H
#define TWILL_TWO_TREES_H

#include "algorithms/schedule/emit.h"

/* A tree over all positions counted from the root's. In it, a rank has a node: 0 is the root, its
 * child the highest power of two, below which a binary tree goes on in order; odd nodes are leaves.
 */
struct twill_two_shape {
    uint32_t size;
    enum { TWILL_TWO_PLAIN, TWILL_TWO_SHIFTED, TWILL_TWO_MIRRORED } kind;
};

/* Both trees, over a group from its position `root`. */
struct twill_two_trees {
    struct twill_two_shape tree[2];
    const struct twill_world *world;
    uint32_t root;
    bool ordered, up, down;
};

/* As the collective and the order want them; the root is to be filled in. */
struct twill_two_trees twill_two_trees_of(const struct twill_world *w,
                                          const struct twill_shape *shape);
/* Position of a rank, counted from the root's. */
uint32_t twill_two_position(const struct twill_two_trees *t, uint32_t rank);
/* The place of the group's own member in a tree from position `root`. */
struct twill_pipe_tree twill_two_place(const struct twill_two_shape *t, const struct twill_group *g,
                                       uint32_t root);
/* A twill_emit_knows_fn: by the messages of either tree. */
bool twill_two_knows(const void *user, uint32_t rank, uint32_t other);

#endif
