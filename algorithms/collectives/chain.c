/* SPDX-License-Identifier: Apache-2.0 */
/* A pipelined chain. Blocks go from rank to rank, one after the other (the pipelined linear array
 * of van de Geijn, "On global combine operations", 1994). A reduction goes up the ranks, ((0 op 1)
 * op 2) op ..., and is complete at the last one. An allreduce sends the result back down the chain,
 * a reduce sends it to the root in one step. A broadcast goes from the root to the right, node by
 * node, first on its node and in its group. A reduce in any order goes the same way back. It takes
 * B + P - 2 rounds for B blocks (a reduce in order up to B + P - 1, an allreduce B + 2P - 3) and at
 * most 2n bytes per rank. It is good for many blocks on few ranks.
 *
 *     0 -> 1 -> 2 -> 3 ,
 *     0 <- 1 <- 2 <- 3 ' */
#include "algorithms/patterns/pipeline.h"

#include <stdlib.h>

enum { CHAIN_BLOCKS = 16, CHAIN_MOST_BLOCKS = 4096 };
/* Return the number of blocks, as requested or CHAIN_BLOCKS. */
static uint32_t chain_blocks(const struct twill_shape *shape)
{
    return shape->parameter[0] == 0 ? CHAIN_BLOCKS : shape->parameter[0];
}

/* Return whether the chain may divide the message into as many blocks as the shape asks for, at
 * most CHAIN_MOST_BLOCKS. It supports every order of operands. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    (void)world;
    return chain_blocks(shape) <= CHAIN_MOST_BLOCKS;
}

/* The chain as chain_delivers() must know it, a local variable of emit(). */
struct chain {
    const struct twill_world *world;
    uint32_t root;
    bool reduces; /* it is a reduce, else a broadcast */
    /* [size] the ranks from the root to the right, and the position of each, or NULL if data go up
     * the ranks, to the last one and then to the root */
    uint32_t *rank, *position;
};

/* Order the ranks from the root to the right. Those of its node come first, then those of its group
 * and then all others, so that the chain enters no group twice. Returns false if out of memory. */
static bool order_ranks(struct chain *c)
{
    const struct twill_world *w = c->world;
    const uint32_t *group = w->unit[TWILL_LEVEL_GROUP];
    uint32_t used = 0;
    c->rank = malloc(w->size * sizeof(*c->rank));
    c->position = malloc(w->size * sizeof(*c->position));
    for (unsigned near = 3; near-- > 0 && c->rank != NULL && c->position != NULL;)
        for (uint32_t i = 0; i < w->size; i++) {
            uint32_t rank = w->order[(w->position[c->root] + i) % w->size];
            bool grouped = group == NULL || group[rank] == group[c->root];
            if ((w->node[rank] == w->node[c->root] ? 2u : grouped) != near)
                continue;
            c->position[rank] = used;
            c->rank[used++] = rank;
        }
    return used == w->size;
}

/* Return the place of this rank in a chain of all members of a group, from the first to the last
 * or, with `left`, from the last to the first. */
static struct twill_pipe_tree chain_place(const struct twill_group *g, bool left)
{
    uint32_t depth = left ? g->size - 1 - g->me : g->me;
    uint32_t step = left ? g->size - 1 : 1; /* step to the child */
    struct twill_pipe_tree tree = {.depth = depth,
                                   .height = g->size - 1,
                                   .parent = g->rank[(g->me + g->size - step) % g->size],
                                   .children = depth + 1 < g->size};
    tree.child[0].rank = g->rank[(g->me + step) % g->size];
    tree.child[0].first = left;
    tree.child[0].partial = depth + 2 < g->size;
    return tree;
}

/* Return the place of `rank` in a tree of two ranks, in which rank `last` sends to rank `root`. It
 * is of use only if `rank` is one of these two. */
static struct twill_pipe_tree straight(uint32_t rank, uint32_t last, uint32_t root)
{
    struct twill_pipe_tree tree = {
        .depth = rank != last, .height = 1, .parent = last, .children = rank == last};
    tree.child[0].rank = root;
    return tree;
}

/* Emit a reduce up the chain, and from its end to the root. */
static void emit_reduce(struct twill_emitter *e, const struct twill_group *g, uint32_t root)
{
    uint32_t last = g->size - 1;
    struct twill_pipe_tree up = chain_place(g, true), down = straight(e->rank, last, root);
    bool on = root != last && (e->rank == root || e->rank == last);
    enum twill_space result = root == last ? TWILL_DST : TWILL_TMP;
    twill_emit_pipeline(e, &up, on ? &down : NULL, 0, e->blocks, result);
}

/* Emit a broadcast along the chain from the root, or a reduce along the same chain to it. */
static void emit_around(struct twill_emitter *e, const struct chain *c)
{
    struct twill_group g = {
        .rank = c->rank, .size = e->world->size, .me = c->position[e->rank], .blocks = e->blocks};
    struct twill_pipe_tree tree = chain_place(&g, false);
    if (!c->reduces && e->rank == c->root)
        twill_emit_alone(e, &g, TWILL_SRC);
    twill_emit_pipeline(e, c->reduces ? &tree : NULL, c->reduces ? NULL : &tree, 0, e->blocks,
                        c->reduces ? TWILL_DST : TWILL_SRC);
}

/* Return whether messages prove to `rank` that `other` has started. `user` is a struct chain. */
static bool chain_delivers(const void *user, uint32_t rank, uint32_t other)
{
    const struct chain *c = user;
    if (c->position == NULL)
        return other <= rank || rank == c->root;
    return c->position[c->reduces ? rank : other] < c->position[c->reduces ? other : rank];
}

/* Append the steps of the chain for the collective of the shape. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    const struct twill_world *world = e->world;
    bool joins = twill_collective_facts(shape->collective)->joins;
    e->blocks = chain_blocks(shape);
    struct twill_group g = twill_group_ranks(e, e->blocks);
    struct twill_pipe_tree tree = chain_place(&g, true);
    struct chain chain = {
        .world = world, .root = shape->root, .reduces = shape->collective == TWILL_REDUCE};
    bool around = !joins && (!chain.reduces || shape->order == TWILL_ORDER_ANY);
    e->no_memory = around && !order_ranks(&chain);
    if (shape->collective != TWILL_BROADCAST)
        e->tmp_blocks = world->size > 2 || (!joins && world->size > 1) ? e->blocks : 0;
    if (!joins && !e->no_memory)
        twill_emit_join(e, chain_delivers, &chain);
    if (world->size == 1)
        twill_emit_alone(e, &g, TWILL_SRC);
    else if (joins)
        twill_emit_pipeline(e, &tree, &tree, 0, e->blocks, TWILL_DST);
    else if (!around)
        emit_reduce(e, &g, shape->root);
    else if (!e->no_memory)
        emit_around(e, &chain);
    if (!joins && !e->no_memory)
        twill_emit_await_join(e, chain_delivers, &chain);
    free(chain.rank);
    free(chain.position);
}

const struct twill_algorithm twill_algorithm_chain = {
    .name = "chain",
    .help = "=blocks: from rank to rank and back in blocks (16), reducing from the left: B + 2P "
            "rounds, up to 2n bytes (van de Geijn 1994)",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_REDUCE | 1u << TWILL_BROADCAST,
    .parameters = 1,
    .applies = applies,
    .emit = emit,
};
