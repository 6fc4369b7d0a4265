/* SPDX-License-Identifier: Apache-2.0 */
/* K-nomial trees. Broadcast and scatter go down. A rank that has the data forwards them, so that
 * `radix` times as many have them after each turn. Reduce and gather go up. With k = radix there
 * are ceil(log_k P) turns of up to k-1 messages each. The root of a broadcast sends n (k-1) log_k P
 * bytes, every rank except the root of a reduce sends n, and a gather or scatter sends the shards
 * of each subtree once per turn. Binomial trees (k = 2) have the fewest rounds for small messages.
 * More children per turn pay where starting a message is cheap compared with its latency. (For k =
 * 2 see Thakur, Rabenseifner and Gropp 2005, for more Wilkins et al. 2023.)
 *
 *     0 -> 4, 0 -> 2, 0 -> 1      k = 2. Numbers count from the root; the parent of a number is the
 *          4 -> 6, 2 -> 3         number with its lowest non-zero digit (to the base k) set to 0.
 *               4 -> 5, 6 -> 7    The largest subtree goes first on the way down
 *
 * A subtree has consecutive numbers, which keeps a reduction in order, and shards together. */
#include "algorithms/collectives/cores.h"
#include "algorithms/patterns/knomial.h"

/* Append the receive into DST of what the parent sends, and a WAIT for it. Append nothing if this
 * rank is the root. */
static void tree_receive(struct twill_emitter *e, const struct twill_tree *t)
{
    const struct twill_group *g = t->group;
    uint32_t me = twill_tree_me(t);
    if (me == 0)
        return;
    twill_emit_recv(e, twill_tree_rank(t, twill_tree_parent(t, me)), data_at(TWILL_DST, g->first),
                    g->blocks, 0);
    twill_emit_wait(e);
}

/* Post the sends to the children, from the space `from`. Returns whether a WAIT is due. */
static bool tree_send(struct twill_emitter *e, const struct twill_tree *t, enum twill_space from)
{
    const struct twill_group *g = t->group;
    uint32_t me = twill_tree_me(t), children = twill_tree_children(t, me);
    for (uint32_t i = 0; i < children; i++) {
        if (i > 0 && i % twill_tree_window(t) == 0)
            twill_emit_wait(e);
        uint32_t child = twill_tree_child(t, me, children - 1 - i);
        twill_emit_send(e, twill_tree_rank(t, child), data_at(from, g->first), g->blocks, 0);
    }
    return children > 0;
}

void twill_emit_tree_receive(struct twill_emitter *e, const struct twill_group *g, uint32_t root)
{
    tree_receive(e, &(struct twill_tree){.group = g, .root = root, .radix = 2});
}

bool twill_emit_tree_send(struct twill_emitter *e, const struct twill_group *g, uint32_t root,
                          enum twill_space from)
{
    return tree_send(e, &(struct twill_tree){.group = g, .root = root, .radix = 2}, from);
}

/* Emit a broadcast down the tree. */
static void tree_broadcast(struct twill_emitter *e, const struct twill_tree *t)
{
    bool root = twill_tree_me(t) == 0;
    tree_receive(e, t);
    if (tree_send(e, t, root ? TWILL_SRC : TWILL_DST))
        twill_emit_wait(e);
    if (root)
        twill_emit_copy(e, data_at(TWILL_DST, t->group->first), data_at(TWILL_SRC, t->group->first),
                        0, t->group->blocks, 0);
}

void twill_tree_emit(struct twill_emitter *e, const struct twill_shape *shape, uint32_t radix,
                     uint32_t credit)
{
    const struct twill_world *world = e->world;
    const struct twill_collective_facts *facts = twill_collective_facts(shape->collective);
    e->blocks = e->shards = facts->sharded ? world->size : 1;
    bool up = facts->dst == TWILL_HOLDS_ROOT;
    bool by_rank = facts->sharded || (facts->reduces && shape->order != TWILL_ORDER_ANY);
    struct twill_group g =
        by_rank ? twill_group_ranks(e, e->blocks) : twill_group_world(e, e->blocks);
    uint32_t last = by_rank ? shape->root : world->position[shape->root];
    struct twill_tree t = {.group = &g,
                           .root = facts->reduces && by_rank ? 0 : last,
                           .radix = radix,
                           .credit = credit};
    if (facts->reduces ? world->size > 1 : facts->sharded && radix < world->size)
        e->tmp_blocks = e->blocks;
    twill_emit_tree_enter(e, &t, up, last);
    if (shape->collective == TWILL_BROADCAST)
        tree_broadcast(e, &t);
    else if (shape->collective == TWILL_REDUCE)
        twill_emit_tree_reduce(e, &t, TWILL_SRC, last);
    else if (shape->collective == TWILL_GATHER)
        twill_emit_tree_gather(e, &t, TWILL_SRC);
    else if (twill_emit_tree_scatter(e, &t))
        twill_emit_wait(e);
    twill_emit_tree_leave(e, &t, up, last);
}

/* Return the radix of the tree, as requested or 2. */
static uint32_t radix_of(const struct twill_shape *shape)
{
    return shape->parameter[0] == 0 ? 2 : shape->parameter[0];
}

/* Return whether the radix is from 2 to 64, shards have one size and the order suits. Reducing in
 * TWILL_ORDER_LEFT is possible only where one rank receives from all others. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    uint32_t radix = radix_of(shape);
    bool reduces = twill_collective_facts(shape->collective)->reduces;
    return radix >= 2 && radix <= 64 && !shape->vector &&
           !(reduces && shape->order == TWILL_ORDER_LEFT && radix < world->size);
}

/* Append the steps of a k-nomial tree for the collective of the shape. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    twill_tree_emit(e, shape, radix_of(shape), 0);
}

const struct twill_algorithm twill_algorithm_tree = {
    .name = "tree",
    .help =
        "k-nomial tree, =k from 2 to 64 (2): log_k P turns of up to k-1 messages; the root of "
        "a broadcast sends n (k-1) log_k P bytes, every rank in a reduce n (Wilkins et al. 2023)",
    .collectives =
        1u << TWILL_BROADCAST | 1u << TWILL_REDUCE | 1u << TWILL_GATHER | 1u << TWILL_SCATTER,
    .parameters = 1,
    .applies = applies,
    .emit = emit,
};
