/* SPDX-License-Identifier: Apache-2.0 */
/* K-nomial trees and the patterns that use them. Internal to algorithms/.
 *
 * Members are numbered from the root: number 0 is the root, number v is the group's member (root +
 * v) % size. A number's parent is the number with its lowest non-zero digit, to the base `radix`,
 * set to 0. So the subtree of v consists of consecutive numbers from v on. */
#ifndef TWILL_KNOMIAL_H
#define TWILL_KNOMIAL_H

#include "algorithms/schedule/emit.h"

/* A tree over a group; the emitting rank is the group's `me`. */
struct twill_tree {
    const struct twill_group *group; /* its shards are by position: `shard` is NULL */
    uint32_t root;                   /* position in the group */
    uint32_t radix; /* at least 2; from the group's size on all others are the root's children */
    uint32_t
        credit; /* children of a rank that may send at once, the others wait for credit; 0: all */
};

/* Return the number of messages with children that are posted at a time. */
uint32_t twill_tree_window(const struct twill_tree *t);
/* Messages posted before a WAIT: enough to overlap, few enough not to overrun a receiver. */
#define TWILL_TREE_WINDOW 16

/* Return this rank's number; the rank of number v. */
uint32_t twill_tree_me(const struct twill_tree *t);
uint32_t twill_tree_rank(const struct twill_tree *t, uint32_t v);
uint32_t twill_tree_parent(const struct twill_tree *t, uint32_t v);
/* Return the number of children of v; the i-th child, in ascending order. */
uint32_t twill_tree_children(const struct twill_tree *t, uint32_t v);
uint32_t twill_tree_child(const struct twill_tree *t, uint32_t v, uint32_t i);

/* Ensure that no rank ends before all ranks of its node have started, where the tree's messages do
 * not prove it: on the way down they prove that ancestors have started, on the way up that
 * descendants have. `last`: position of a member that receives from all in the end, beside the
 * root. */
void twill_emit_tree_enter(struct twill_emitter *e, const struct twill_tree *t, bool up,
                           uint32_t last);
void twill_emit_tree_leave(struct twill_emitter *e, const struct twill_tree *t, bool up,
                           uint32_t last);

/* Reduce all members' `from` (SRC, or a partial in TMP), in the order of the numbers, into DST of
 * the member at position `last`, which need not be the root. Uses TMP for group->blocks; ends with
 * nothing posted. */
void twill_emit_tree_reduce(struct twill_emitter *e, const struct twill_tree *t,
                            enum twill_space from, uint32_t last);
/* Gather every member's blocks, which are in `own` (SRC or TMP), into DST of the root. Those of
 * several members are collected in TMP. The root's own blocks, if in TMP, must be in DST already.
 */
void twill_emit_tree_gather(struct twill_emitter *e, const struct twill_tree *t,
                            enum twill_space own);
/* Scatter the root's SRC: every member's blocks into its DST, through TMP where they are of several
 * members. Returns whether sends are still posted. */
bool twill_emit_tree_scatter(struct twill_emitter *e, const struct twill_tree *t);

#endif
