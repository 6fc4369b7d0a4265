/* SPDX-License-Identifier: Apache-2.0 */
/* Gather up a k-nomial tree and scatter down one. A subtree's shards are consecutive, so they are
 * one message, or two where they pass the last position. Shards that are not at their destination
 * yet are in TMP. */
#include "algorithms/patterns/tree.h"

/* Send or receive the blocks of v's subtree, as one message or two. */
static void exchange_blocks(struct twill_emitter *e, const struct twill_tree *t, uint32_t v,
                            uint32_t peer, bool sends, enum twill_space space)
{
    const struct twill_group *g = t->group;
    uint32_t each = g->blocks / g->size, first = (v + t->root) % g->size;
    struct twill_range range[2];
    uint32_t ranges = twill_ring_ranges(range, g->size, first, twill_subtree_size(t, v));
    for (uint32_t i = ranges; i-- > 0;) { /* on the way up, what arrived last goes first */
        twill_operand at = twill_operand_make(space, g->first + range[i].first * each);
        if (sends)
            twill_emit_send(e, twill_tree_rank(t, peer), at, range[i].length * each, 0);
        else
            twill_emit_recv(e, twill_tree_rank(t, peer), at, range[i].length * each, 0);
    }
}

static void copy_own(struct twill_emitter *e, const struct twill_group *g, enum twill_space to,
                     enum twill_space from)
{
    uint32_t each = g->blocks / g->size, at = g->first + g->me * each;
    if (to != from)
        twill_emit_copy(e, twill_operand_make(to, at), twill_operand_make(from, at), 0, each, 0);
}

void twill_emit_tree_gather(struct twill_emitter *e, const struct twill_tree *t,
                            enum twill_space own)
{
    uint32_t me = twill_tree_me(t), children = twill_tree_children(t, me);
    enum twill_space to = me == 0 ? TWILL_DST : children > 0 ? TWILL_TMP : own;
    for (uint32_t i = 0; i < children; i++) {
        if (i > 0 && i % twill_tree_window(t) == 0) {
            twill_emit_wait(e);
            twill_emit_tree_credit(e, t, i, twill_tree_window(t));
        }
        uint32_t child = twill_tree_child(t, me, i);
        exchange_blocks(e, t, child, child, false, to);
    }
    if (me > 0 || own == TWILL_SRC)
        copy_own(e, t->group, to, own);
    if (children > 0)
        twill_emit_wait(e);
    if (me > 0) {
        twill_emit_tree_await_credit(e, t);
        exchange_blocks(e, t, me, twill_tree_parent(t, me), true, to);
        twill_emit_wait(e);
    }
}

bool twill_emit_tree_scatter(struct twill_emitter *e, const struct twill_tree *t)
{
    uint32_t me = twill_tree_me(t), children = twill_tree_children(t, me);
    enum twill_space from = me == 0 ? TWILL_SRC : children > 0 ? TWILL_TMP : TWILL_DST;
    if (me > 0) {
        exchange_blocks(e, t, me, twill_tree_parent(t, me), false, from);
        twill_emit_wait(e);
    }
    for (uint32_t i = 0; i < children; i++) {
        if (i > 0 && i % twill_tree_window(t) == 0)
            twill_emit_wait(e);
        uint32_t child = twill_tree_child(t, me, children - 1 - i);
        exchange_blocks(e, t, child, child, true, from);
    }
    copy_own(e, t->group, TWILL_DST, from);
    return children > 0;
}
