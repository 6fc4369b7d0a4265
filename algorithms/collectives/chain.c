/* SPDX-License-Identifier: Apache-2.0 */
/* A pipelined chain. Blocks go from rank to rank, one after the other (the pipelined linear array
 * of van de Geijn, "On global combine operations", 1994). A reduction goes up the ranks, ((0 op 1)
 * op 2) op ..., and is complete at the last one. An allreduce sends the result back down the chain,
 * a reduce sends it to the root in one step. A broadcast goes from the root to the right, node by
 * node. It takes B + P - 2 rounds for B blocks (a reduce up to B + P - 1, an allreduce B + 2P - 3)
 * and at most 2n bytes per rank. It is good for many blocks on few ranks.
 *
 *     0 -> 1 -> 2 -> 3 ,
 *     0 <- 1 <- 2 <- 3 ' */
#include "algorithms/patterns/pipeline.h"

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
};

/* Return the place of this rank in a chain of all members of a group. Without `left` the chain
 * starts at position `root` and goes around to the right. With `left` it starts at the last
 * position and goes to the left, and `root` is ignored. */
static struct twill_pipe_tree chain_place(const struct twill_group *g, uint32_t root, bool left)
{
    uint32_t depth = left ? g->size - 1 - g->me : (g->me + g->size - root) % g->size;
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
    struct twill_pipe_tree up = chain_place(g, 0, true), down = straight(e->rank, last, root);
    bool on = root != last && (e->rank == root || e->rank == last);
    enum twill_space result = root == last ? TWILL_DST : TWILL_TMP;
    twill_emit_pipeline(e, &up, on ? &down : NULL, 0, e->blocks, result);
}

/* Emit a broadcast along the chain. */
static void chain_broadcast(struct twill_emitter *e, uint32_t root_rank)
{
    struct twill_group g = twill_group_world(e, e->blocks);
    struct twill_pipe_tree down = chain_place(&g, e->world->position[root_rank], false);
    if (e->rank == root_rank)
        twill_emit_alone(e, &g, TWILL_SRC);
    twill_emit_pipeline(e, NULL, &down, 0, e->blocks, TWILL_SRC);
}

/* Return whether messages prove to `rank` that `other` has started. `user` is a struct chain. */
static bool chain_delivers(const void *user, uint32_t rank, uint32_t other)
{
    const struct chain *c = user;
    const struct twill_world *w = c->world;
    if (c->reduces)
        return other <= rank || rank == c->root;
    uint32_t before = w->size - w->position[c->root];
    return (w->position[other] + before) % w->size < (w->position[rank] + before) % w->size;
}

/* Append the steps of the chain for the collective of the shape. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    const struct twill_world *world = e->world;
    bool joins = twill_collective_facts(shape->collective)->joins;
    e->blocks = chain_blocks(shape);
    struct twill_group g = twill_group_ranks(e, e->blocks);
    struct twill_pipe_tree tree = chain_place(&g, 0, true);
    if (shape->collective != TWILL_BROADCAST)
        e->tmp_blocks = world->size > 2 || (!joins && world->size > 1) ? e->blocks : 0;
    struct chain chain = {
        .world = world, .root = shape->root, .reduces = shape->collective == TWILL_REDUCE};
    if (!joins)
        twill_emit_join(e, chain_delivers, &chain);
    if (world->size == 1)
        twill_emit_alone(e, &g, TWILL_SRC);
    else if (shape->collective == TWILL_BROADCAST)
        chain_broadcast(e, shape->root);
    else if (shape->collective == TWILL_REDUCE)
        emit_reduce(e, &g, shape->root);
    else
        twill_emit_pipeline(e, &tree, &tree, 0, e->blocks, TWILL_DST);
    if (!joins)
        twill_emit_await_join(e, chain_delivers, &chain);
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
