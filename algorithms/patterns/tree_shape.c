/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of k-nomial trees: parents and children, and which ranks' start messages prove. */
#include "algorithms/patterns/tree.h"

uint32_t twill_tree_me(const struct twill_tree *t)
{
    return (t->group->me + t->group->size - t->root) % t->group->size;
}

uint32_t twill_tree_rank(const struct twill_tree *t, uint32_t v)
{
    return t->group->rank[(v + t->root) % t->group->size];
}

/* Return the weight of v's lowest non-zero digit; for the root the first power that is not below
 * the size. */
static uint32_t weight(const struct twill_tree *t, uint32_t v)
{
    uint32_t w = 1;
    while (v == 0 ? w < t->group->size : v / w % t->radix == 0)
        w *= t->radix;
    return w;
}

uint32_t twill_subtree_size(const struct twill_tree *t, uint32_t v)
{
    return (uint32_t)twill_min(weight(t, v), t->group->size - v);
}

uint32_t twill_tree_parent(const struct twill_tree *t, uint32_t v)
{
    uint32_t w = weight(t, v);
    return v - v / w % t->radix * w;
}

uint32_t twill_tree_child(const struct twill_tree *t, uint32_t v, uint32_t i)
{
    uint32_t w = 1;
    for (; i >= t->radix - 1; i -= t->radix - 1)
        w *= t->radix;
    return v + (i + 1) * w;
}

uint32_t twill_tree_children(const struct twill_tree *t, uint32_t v)
{
    uint32_t end = v + twill_subtree_size(t, v), n = 0;
    while (twill_tree_child(t, v, n) < end)
        n++;
    return n;
}

/* Return whether the messages prove to number a, when it ends, that number b has started. */
static bool number_delivers(const struct twill_tree *t, bool up, uint32_t last, uint32_t a,
                            uint32_t b)
{
    if (up && (a + t->root) % t->group->size == last)
        return true;
    uint32_t above = up ? a : b, below = up ? b : a;
    return below >= above && below - above < twill_subtree_size(t, above);
}

void twill_emit_tree_enter(struct twill_emitter *e, const struct twill_tree *t, bool up,
                           uint32_t last)
{
    const struct twill_group *g = t->group;
    const uint32_t *node = e->world->node;
    uint32_t me = twill_tree_me(t);
    for (uint32_t v = 0; v < g->size; v++) {
        uint32_t rank = twill_tree_rank(t, v);
        if (node[rank] == node[e->rank] && !number_delivers(t, up, last, v, me)) {
            twill_emit_signal(e);
            return;
        }
    }
}

void twill_emit_tree_leave(struct twill_emitter *e, const struct twill_tree *t, bool up,
                           uint32_t last)
{
    const struct twill_group *g = t->group;
    const uint32_t *node = e->world->node;
    uint32_t me = twill_tree_me(t);
    uint32_t some[1 + TWILL_STEP_PEERS] = {e->rank}, n = 1;
    /* Start with the next rank: not all ranks of a node should read the same line at once. */
    for (uint32_t i = 1; i <= g->size; i++) {
        uint32_t v = (me + i) % g->size, rank = twill_tree_rank(t, v);
        if (v != me && node[rank] == node[e->rank] && !number_delivers(t, up, last, me, v))
            some[n++] = rank;
        if (n == TWILL_ARRAY_LENGTH(some) || (v == me && n > 1)) {
            twill_emit_await(e, &(struct twill_group){.rank = some, .size = n}, 1, 0);
            n = 1;
        }
    }
}

uint32_t twill_tree_window(const struct twill_tree *t)
{
    return t->credit > 0 ? t->credit : TWILL_TREE_WINDOW;
}

void twill_emit_tree_credit(struct twill_emitter *e, const struct twill_tree *t, uint32_t i,
                            uint32_t count)
{
    uint32_t me = twill_tree_me(t), children = twill_tree_children(t, me);
    for (; t->credit > 0 && count > 0 && i < children; i++, count--)
        if (i >= t->credit)
            twill_emit_send(e, twill_tree_rank(t, twill_tree_child(t, me, i)), 0, 0, 0);
}

void twill_emit_tree_await_credit(struct twill_emitter *e, const struct twill_tree *t)
{
    uint32_t me = twill_tree_me(t), parent = twill_tree_parent(t, me), i = 0;
    while (twill_tree_child(t, parent, i) != me)
        i++;
    if (t->credit == 0 || i < t->credit)
        return;
    twill_emit_recv(e, twill_tree_rank(t, parent), 0, 0, 0);
    twill_emit_wait(e);
}
