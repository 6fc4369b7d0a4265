/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks pipelined along trees, and two binary trees with different leaves. Internal. */
#ifndef TWILL_PIPELINE_H
#define TWILL_PIPELINE_H

#include "algorithms/schedule/emit.h"

/* The position of a rank in a tree along which blocks are pipelined. A plain value. */
struct twill_pipe_tree {
    uint32_t depth, height; /* of this rank (0 for the root), and of the deepest rank */
    uint32_t parent;        /* its rank, unset if depth is 0 */
    uint32_t children;
    struct {
        uint32_t rank;
        bool first;   /* its operand precedes that of this rank */
        bool partial; /* it has children itself */
    } child[2];
};
/* Pipeline `blocks` blocks from `first` on. They are reduced up a tree, then broadcast down a tree,
 * and either tree may be NULL. The root of `up`, which has at most one child, leaves the FINAL
 * value in `result`. The root of `down` sends `result`, and all others receive into DST. Uses one
 * copy of the blocks in TMP, or two where a rank has two children. Ends with nothing posted. */
void twill_emit_pipeline(struct twill_emitter *e, const struct twill_pipe_tree *up,
                         const struct twill_pipe_tree *down, uint32_t first, uint32_t blocks,
                         enum twill_space result);

/* A binary tree over the `size` positions of a group, counted from that of the root. Node 0 is the
 * root. Its child, the highest power of two below `size`, is the root of an in-order binary tree in
 * which odd nodes are leaves. `kind` says at which node a position p is. It is node p with PLAIN
 * and node `size` - p with MIRRORED. With SHIFTED it is node p - 1, but position 1 is at the last
 * node. Position 0 is always at node 0. A plain value. */
struct twill_two_shape {
    uint32_t size;
    enum { TWILL_TWO_PLAIN, TWILL_TWO_SHIFTED, TWILL_TWO_MIRRORED } kind;
};

/* Two trees over the world, and whether data go up, down or both. A plain value. */
struct twill_two_trees {
    struct twill_two_shape tree[2];
    const struct twill_world *world;
    uint32_t root; /* position in the order of the world, or the rank if `ordered` by rank */
    bool ordered, up, down;
};

/* Return the trees for the collective and the order. The caller sets `root`. */
struct twill_two_trees twill_two_trees_of(const struct twill_world *w,
                                          const struct twill_shape *shape);
/* Return the position of a rank, counted from that of the root. */
uint32_t twill_two_position(const struct twill_two_trees *t, uint32_t rank);
/* Return the place of the emitting rank in the tree `t`, whose root is the member at position
 * `root` of the group. Every member has a place. A leaf has 0 children. */
struct twill_pipe_tree twill_two_place(const struct twill_two_shape *t, const struct twill_group *g,
                                       uint32_t root);
/* Return whether messages of either tree of `user`, a struct twill_two_trees, prove to `rank` that
 * `other` has started. */
bool twill_two_knows(const void *user, uint32_t rank, uint32_t other);

#endif
