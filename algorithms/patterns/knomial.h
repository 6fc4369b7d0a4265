/* SPDX-License-Identifier: Apache-2.0 */
/* K-nomial trees and the patterns that use them. Internal to algorithms/. Members are numbered from
 * the root. Number 0 is the root, and number v is member (root + v) % size of the group. The parent
 * of a number is the number with its lowest non-zero digit, to the base `radix`, set to 0. The
 * subtree of v therefore consists of consecutive numbers from v on. */
#ifndef TWILL_KNOMIAL_H
#define TWILL_KNOMIAL_H

#include "algorithms/schedule/emit.h"

/* A tree over a group, whose `me` is the emitting rank. A plain value of the emitting function. */
struct twill_tree {
    const struct twill_group *group; /* its shards are by position, as `shard` is NULL */
    uint32_t root;                   /* position in the group */
    uint32_t radix; /* at least 2; if it is the size or more, all others are children of the root */
    uint32_t credit; /* children that may send at once while others wait, or 0 for all */
};

/* Return the number of messages with children that a broadcast, gather or scatter posts at a time.
 * It is `credit`, or TWILL_TREE_WINDOW if that is 0. */
uint32_t twill_tree_window(const struct twill_tree *t);
/* Messages posted before a WAIT, enough to overlap and few enough not to overrun a receiver. */
#define TWILL_TREE_WINDOW 16

/* Return the number of the emitting rank in the tree, where the root has number 0. */
uint32_t twill_tree_me(const struct twill_tree *t);
/* Return the rank that has number v in the tree. */
uint32_t twill_tree_rank(const struct twill_tree *t, uint32_t v);
/* Return the number of the parent of number v, which is not 0. */
uint32_t twill_tree_parent(const struct twill_tree *t, uint32_t v);
/* Return how many children number v has. */
uint32_t twill_tree_children(const struct twill_tree *t, uint32_t v);
/* Return the number of the i-th child of number v, in ascending order. It need not exist. */
uint32_t twill_tree_child(const struct twill_tree *t, uint32_t v, uint32_t i);

/* Append a SIGNAL if some rank of the node cannot conclude from the messages of the tree that this
 * rank has started. Messages that go `up` prove it to the ancestors of this rank and to the member
 * at position `last`, which receives the result. Those that go down prove it to its descendants,
 * and `last` is ignored. Call it before the messages, and twill_emit_tree_leave() after them. */
void twill_emit_tree_enter(struct twill_emitter *e, const struct twill_tree *t, bool up,
                           uint32_t last);
/* Append, after the messages of the tree, AWAITs of those ranks of the node that the messages do
 * not prove to have started. `up` and `last` are those of twill_emit_tree_enter(). With both
 * functions, no rank ends before all ranks of its node have started. */
void twill_emit_tree_leave(struct twill_emitter *e, const struct twill_tree *t, bool up,
                           uint32_t last);

/* Reduce `from` of all members (SRC, or a partial in TMP) into DST of the member at position
 * `last`. Operands are reduced in the order of their numbers in the tree, so that of the root is
 * first. If `last` is not the root, the root sends it the result. Uses TMP. Ends with nothing
 * posted. */
void twill_emit_tree_reduce(struct twill_emitter *e, const struct twill_tree *t,
                            enum twill_space from, uint32_t last);
/* Gather the blocks of every member, which are in `own` (SRC or TMP), into DST of the root. Those
 * of several members are collected in TMP. If `own` is TMP, the root has its own in DST already. */
void twill_emit_tree_gather(struct twill_emitter *e, const struct twill_tree *t,
                            enum twill_space own);
/* Scatter SRC of the root. The blocks of every member go into its DST, through TMP at ranks that
 * forward blocks. Returns whether sends are still posted. */
bool twill_emit_tree_scatter(struct twill_emitter *e, const struct twill_tree *t);

#endif
