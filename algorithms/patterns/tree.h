/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of k-nomial trees, and what can be done along them. Internal to this room.
 *
 * Members are numbered from the root: number 0 is the root, number v its group's member
 * (root + v) % size. Written to the base `radix`, a number's parent is the number with its lowest
 * digit that is not 0 made 0. So what is below v, and v, are consecutive numbers. */
#ifndef TWILL_TREE_H
#define TWILL_TREE_H

#include "algorithms/schedule/emit.h"

struct twill_tree {
    const struct twill_group *group; /* parts of its blocks go by position: no `part` */
    uint32_t root;                   /* position in the group */
    uint32_t radix;                  /* from 2; the group's size and more: all are the root's own */
    uint32_t
        credit; /* so many of a rank's children send at once, who else waits to be told; 0: all */
};

/* So many messages of children, or to them, are under way at a time. */
uint32_t twill_tree_window(const struct twill_tree *t);
/* On the way up: tell the children from the i-th on that they may send, up to a window's end; wait
 * to be told oneself. A message without bytes, which a receiver that is short of room or whose link
 * is short of queues (incast) saves more than it costs. */
void twill_emit_tree_credit(struct twill_emitter *e, const struct twill_tree *t, uint32_t i,
                            uint32_t count);
void twill_emit_tree_await_credit(struct twill_emitter *e, const struct twill_tree *t);

/* Messages posted before a WAIT: enough to overlap, few enough not to flood anyone. */
#define TWILL_TREE_WINDOW 16

/* This rank's number; the rank of a number. */
uint32_t twill_tree_me(const struct twill_tree *t);
uint32_t twill_tree_rank(const struct twill_tree *t, uint32_t v);
/* v and how many are below it. */
uint32_t twill_subtree_size(const struct twill_tree *t, uint32_t v);
uint32_t twill_tree_parent(const struct twill_tree *t, uint32_t v);
/* How many children v has; the i-th, in ascending order. */
uint32_t twill_tree_children(const struct twill_tree *t, uint32_t v);
uint32_t twill_tree_child(const struct twill_tree *t, uint32_t v, uint32_t i);

/* Nobody leaves a node before all of it have come, where messages along the tree do not show it:
 * down from the root they tell of who is above, up to it of who is below. `last`: position of one
 * who hears of everybody in the end (the root, where there is nobody else). */
void twill_emit_tree_enter(struct twill_emitter *e, const struct twill_tree *t, bool up,
                           uint32_t last);
void twill_emit_tree_leave(struct twill_emitter *e, const struct twill_tree *t, bool up,
                           uint32_t last);

/* Fold everybody's `from` (SRC, or a partial in TMP) in the order of the numbers, into DST of the
 * member at position `last`, which need not be the root. Needs TMP for group->blocks; ends with
 * nothing posted. */
void twill_emit_tree_reduce(struct twill_emitter *e, const struct twill_tree *t,
                            enum twill_space from, uint32_t last);
/* Every member's blocks, which are in `own` (SRC or TMP), into DST on the root. Those of several
 * members meet in TMP. The root's own, if in TMP, are in DST already. */
void twill_emit_tree_gather(struct twill_emitter *e, const struct twill_tree *t,
                            enum twill_space own);
/* The root's SRC: every member's blocks into its DST. Those of several members pass through TMP.
 * True: sends are still under way. */
bool twill_emit_tree_scatter(struct twill_emitter *e, const struct twill_tree *t);

/* The four collectives, whole; for trees of any radix, also one that makes all the root's own. */
twill_status twill_tree_emit(struct twill_schedule *schedule, const struct twill_world *world,
                             uint32_t rank, const struct twill_shape *shape, uint32_t radix,
                             uint32_t credit, struct twill_error *error);

#endif
