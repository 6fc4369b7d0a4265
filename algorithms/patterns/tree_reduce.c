/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce up a k-nomial tree: a rank reduces its children's partials into its own in ascending
 * order, so that number v's partial is that of v, v+1, ... Messages are reduced on arrival, without
 * being stored.
 *
 * If the order is by rank, the tree's root is rank 0, which then sends the final result, in its
 * TMP, to the collective's root. */
#include "algorithms/patterns/tree.h"

/* Return PARTIAL if number v sends a partial, 0 if it sends its own raw data. */
static unsigned message_kind(const struct twill_tree *t, enum twill_space from, uint32_t v)
{
    return from == TWILL_TMP || twill_subtree_size(t, v) > 1 ? TWILL_STEP_PARTIAL : 0;
}

/* Reduce the children's messages; the root's result is in `to`. */
static void reduce_children(struct twill_emitter *e, const struct twill_tree *t,
                            enum twill_space from, enum twill_space to)
{
    const struct twill_group *g = t->group;
    uint32_t me = twill_tree_me(t), children = twill_tree_children(t, me);
    twill_operand own = twill_operand_make(from, g->first);
    twill_operand tmp = twill_operand_make(TWILL_TMP, g->first);
    for (uint32_t i = 0; i < children; i++) {
        uint32_t child = twill_tree_child(t, me, i);
        bool final = me == 0 && i + 1 == children;
        unsigned flags = message_kind(t, from, child) | (final ? TWILL_STEP_FINAL : 0);
        if (own == tmp)
            flags |= TWILL_STEP_PARTIAL_OWN;
        twill_emit_recv_reduce(e, twill_tree_rank(t, child),
                               final ? twill_operand_make(to, g->first) : tmp, own, g->blocks,
                               flags);
        twill_emit_wait(e);
        twill_emit_tree_credit(e, t, i + t->credit, 1);
        own = tmp;
    }
    if (me > 0) {
        twill_emit_tree_await_credit(e, t);
        twill_emit_send(e, twill_tree_rank(t, twill_tree_parent(t, me)), own, g->blocks,
                        message_kind(t, from, me));
        twill_emit_wait(e);
    } else if (children == 0) {
        twill_emit_copy(e, twill_operand_make(to, g->first), own, 0, g->blocks, 0);
    }
}

void twill_emit_tree_reduce(struct twill_emitter *e, const struct twill_tree *t,
                            enum twill_space from, uint32_t last)
{
    const struct twill_group *g = t->group;
    twill_operand tmp = twill_operand_make(TWILL_TMP, g->first);
    bool moves = t->root != last;
    reduce_children(e, t, from, moves ? TWILL_TMP : TWILL_DST);
    if (moves && g->me == t->root)
        twill_emit_send(e, g->rank[last], tmp, g->blocks, 0);
    if (moves && g->me == last)
        twill_emit_recv(e, g->rank[t->root], twill_operand_make(TWILL_DST, g->first), g->blocks, 0);
    if (moves && (g->me == t->root || g->me == last))
        twill_emit_wait(e);
}
