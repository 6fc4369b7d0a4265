/* SPDX-License-Identifier: Apache-2.0 */
/* K-nomial trees. This file has their shape, reducing and gathering up, and scattering down. */
#include "algorithms/patterns/knomial.h"

uint32_t twill_tree_me(const struct twill_tree *t)
{
    return (t->group->me + t->group->size - t->root) % t->group->size;
}

uint32_t twill_tree_rank(const struct twill_tree *t, uint32_t v)
{
    return t->group->rank[(v + t->root) % t->group->size];
}

/* Return the place value of the lowest non-zero digit of v, with digits to the base t->radix. It is
 * the power of the radix by which that digit counts. For v = 0 return the lowest power that is not
 * below the number of members. */
static uint32_t weight(const struct twill_tree *t, uint32_t v)
{
    uint32_t w = 1;
    while (v == 0 ? w < t->group->size : v / w % t->radix == 0)
        w *= t->radix;
    return w;
}

/* Return the number of members in the subtree of number v, v included. */
static uint32_t subtree_size(const struct twill_tree *t, uint32_t v)
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
    uint32_t end = v + subtree_size(t, v), n = 0;
    while (twill_tree_child(t, v, n) < end)
        n++;
    return n;
}

/* Return whether the messages of the tree prove to number a, when it ends, that number b has
 * started. Messages that go `up` prove it to the ancestors of b and to the member at position
 * `last`, which receives the result. Those that go down prove it to the descendants of b. */
static bool number_delivers(const struct twill_tree *t, bool up, uint32_t last, uint32_t a,
                            uint32_t b)
{
    if (up && (a + t->root) % t->group->size == last)
        return true;
    uint32_t above = up ? a : b, below = up ? b : a;
    return below >= above && below - above < subtree_size(t, above);
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
    /* Start with the next rank, so that not all ranks of a node read the same line at once. */
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

/* Let `count` of the children from the i-th on send, by messages without data. The first `credit`
 * children need none, and without credit no child does. This pays on the way up where many senders
 * overflow the receiver's buffers or the queue of its link (incast). */
static void emit_credit(struct twill_emitter *e, const struct twill_tree *t, uint32_t children,
                        uint32_t i, uint32_t count)
{
    uint32_t me = twill_tree_me(t);
    for (; t->credit > 0 && count > 0 && i < children; i++, count--)
        if (i >= t->credit)
            twill_emit_send(e, twill_tree_rank(t, twill_tree_child(t, me, i)), 0, 0, 0);
}

/* Append the wait for the message with which the parent permits this rank to send. Append nothing
 * if it needs none, as there is no credit or it is one of the first `credit` children. */
static void await_credit(struct twill_emitter *e, const struct twill_tree *t)
{
    uint32_t me = twill_tree_me(t), parent = twill_tree_parent(t, me), i = 0;
    while (twill_tree_child(t, parent, i) != me)
        i++;
    if (t->credit == 0 || i < t->credit)
        return;
    twill_emit_recv(e, twill_tree_rank(t, parent), 0, 0, 0);
    twill_emit_wait(e);
}

/* A reduction goes up a k-nomial tree. A rank reduces the partials of its children into its own in
 * ascending order, so that the partial of number v covers v, v+1, ... Messages are reduced on
 * arrival, without being stored. If the order is by rank, the root of the tree is rank 0, which
 * then sends the final result, in its TMP, to the root of the collective. */

/* Return the flags of the message in which number v sends its operand to its parent. They are
 * PARTIAL if the operands of all members are partials (`from` is TMP) or v has children, whose
 * operands it has reduced. Else they are 0. */
static unsigned message_kind(const struct twill_tree *t, enum twill_space from, uint32_t v)
{
    return from == TWILL_TMP || subtree_size(t, v) > 1 ? TWILL_STEP_PARTIAL : 0;
}

/* Receive the operands of the children, and reduce them with that of this rank. The latter is in
 * the space `from`, which is SRC, or TMP if it is a partial. The root stores the final result in
 * the space `to`. Any other rank sends its partial to its parent. Ends with nothing posted. */
static void reduce_children(struct twill_emitter *e, const struct twill_tree *t,
                            enum twill_space from, enum twill_space to)
{
    const struct twill_group *g = t->group;
    uint32_t me = twill_tree_me(t), children = twill_tree_children(t, me);
    twill_operand own = data_at(from, g->first);
    twill_operand tmp = data_at(TWILL_TMP, g->first);
    for (uint32_t i = 0; i < children; i++) {
        uint32_t child = twill_tree_child(t, me, i);
        bool final = me == 0 && i + 1 == children;
        unsigned flags = message_kind(t, from, child) | (final ? TWILL_STEP_FINAL : 0);
        if (own == tmp)
            flags |= TWILL_STEP_PARTIAL_OWN;
        twill_emit_recv_reduce(e, twill_tree_rank(t, child), final ? data_at(to, g->first) : tmp,
                               own, g->blocks, flags);
        twill_emit_wait(e);
        emit_credit(e, t, children, i + t->credit, 1);
        own = tmp;
    }
    if (me > 0) {
        await_credit(e, t);
        twill_emit_send(e, twill_tree_rank(t, twill_tree_parent(t, me)), own, g->blocks,
                        message_kind(t, from, me));
        twill_emit_wait(e);
    } else if (children == 0) {
        twill_emit_copy(e, data_at(to, g->first), own, 0, g->blocks, 0);
    }
}

void twill_emit_tree_reduce(struct twill_emitter *e, const struct twill_tree *t,
                            enum twill_space from, uint32_t last)
{
    const struct twill_group *g = t->group;
    twill_operand tmp = data_at(TWILL_TMP, g->first);
    bool moves = t->root != last;
    reduce_children(e, t, from, moves ? TWILL_TMP : TWILL_DST);
    if (moves && g->me == t->root)
        twill_emit_send(e, g->rank[last], tmp, g->blocks, 0);
    if (moves && g->me == last)
        twill_emit_recv(e, g->rank[t->root], data_at(TWILL_DST, g->first), g->blocks, 0);
    if (moves && (g->me == t->root || g->me == last))
        twill_emit_wait(e);
}

/* Gathers go up a k-nomial tree and scatters go down. The shards of a subtree are consecutive, so
 * they are one message, or two where they wrap around. Shards on their way are in TMP. */

/* Send, or else receive, the blocks of all members in the subtree of number v. The other side is
 * number `peer`, and the blocks are in `space` of this rank. There is one message, or two if the
 * positions of the subtree wrap around the end of the group. */
static void exchange_blocks(struct twill_emitter *e, const struct twill_tree *t, uint32_t v,
                            uint32_t peer, bool sends, enum twill_space space)
{
    const struct twill_group *g = t->group;
    uint32_t each = g->blocks / g->size, first = (v + t->root) % g->size;
    struct twill_range range[2];
    uint32_t ranges = twill_ring_ranges(range, g->size, first, subtree_size(t, v));
    for (uint32_t i = ranges; i-- > 0;) { /* on the way up, what arrived last is sent first */
        twill_operand at = data_at(space, g->first + range[i].first * each);
        if (sends)
            twill_emit_send(e, twill_tree_rank(t, peer), at, range[i].length * each, 0);
        else
            twill_emit_recv(e, twill_tree_rank(t, peer), at, range[i].length * each, 0);
    }
}

/* Copy the blocks of this rank's position in the group from one space to the same place in another.
 * They are g->blocks / g->size of the group's blocks. Do nothing if the spaces are the same. */
static void copy_own(struct twill_emitter *e, const struct twill_group *g, enum twill_space to,
                     enum twill_space from)
{
    uint32_t each = g->blocks / g->size, at = g->first + g->me * each;
    if (to != from)
        twill_emit_copy(e, data_at(to, at), data_at(from, at), 0, each, 0);
}

void twill_emit_tree_gather(struct twill_emitter *e, const struct twill_tree *t,
                            enum twill_space own)
{
    uint32_t me = twill_tree_me(t), children = twill_tree_children(t, me);
    enum twill_space to = me == 0 ? TWILL_DST : children > 0 ? TWILL_TMP : own;
    for (uint32_t i = 0; i < children; i++) {
        if (i > 0 && i % twill_tree_window(t) == 0) {
            twill_emit_wait(e);
            emit_credit(e, t, children, i, twill_tree_window(t));
        }
        uint32_t child = twill_tree_child(t, me, i);
        exchange_blocks(e, t, child, child, false, to);
    }
    if (me > 0 || own == TWILL_SRC)
        copy_own(e, t->group, to, own);
    if (children > 0)
        twill_emit_wait(e);
    if (me > 0) {
        await_credit(e, t);
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
