/* SPDX-License-Identifier: Apache-2.0 */
/* Trees between nodes. A binomial tree connects the heads of the nodes. The head is the root on its
 * node and the lowest rank on the others. In a broadcast, the tree comes first, then each head
 * sends to its node. In a reduce, each node first reduces to its head, then the tree follows. It
 * takes lg G rounds, and at most n lg G (broadcast) or n (reduce) bytes leave a node.
 *
 *     node 0:  0   1 (root)      broadcast  1 -> 2, 1 -> 4; then 1 -> 0, 2 -> 3
 *     node 1:  2   3             reduce     0 -> 1, 3 -> 2; then 2 -> 1, 4 -> 1
 *     node 2:  4
 *
 * With STAGED and MAPPED each rank of a node reduces its own blocks, and the head collects them. */
#include "algorithms/collectives/cores.h"
#include "algorithms/patterns/intra_node.h"
#include "algorithms/patterns/knomial.h"

#include <stdlib.h>

/* Emit a broadcast between the heads of the nodes, then on nodes. The root also copies its SRC to
 * its DST. Ends with nothing posted. */
static void heads_broadcast(struct twill_emitter *e, const struct twill_tree *t,
                            const struct twill_shape *shape)
{
    const struct twill_world *w = e->world;
    const struct twill_group *g = t->group;
    enum twill_space from = g->me == t->root ? TWILL_SRC : TWILL_DST;
    bool posted = false;
    if (e->rank == shape->root)
        twill_emit_copy(e, data_at(TWILL_DST, 0), data_at(TWILL_SRC, 0), 0, 1, 0);
    if (e->rank == g->rank[g->me]) {
        twill_emit_tree_receive(e, g, t->root);
        posted = twill_emit_tree_send(e, g, t->root, from);
    }
    twill_emit_node_broadcast(e, shape->protocol, w->local[g->rank[g->me]], from);
    if (posted)
        twill_emit_wait(e);
}

/* Reduce the data of each node into a partial on its head, the one rank of it that is in the tree.
 * Then reduce those by the tree into DST of the root. If every node has one rank, there is no
 * partial, and the heads contribute their SRC. */
static void heads_reduce(struct twill_emitter *e, const struct twill_tree *t,
                         const struct twill_shape *shape)
{
    const struct twill_world *w = e->world;
    const struct twill_group *g = t->group;
    struct twill_shards shards = {.count = e->blocks, .each = 1};
    bool partials = twill_world_widest(w) > 1;
    if (w->node_size[g->me] > 1)
        twill_emit_node_reduce(e, shape->protocol, shards, g->rank[g->me]);
    else if (partials)
        twill_emit_widen(e, data_at(TWILL_TMP, 0), data_at(TWILL_SRC, 0), e->blocks);
    if (e->rank == g->rank[g->me])
        twill_emit_tree_reduce(e, t, partials ? TWILL_TMP : TWILL_SRC, t->root);
}

/* Return whether there are several nodes, and the protocol and order suit. A broadcast cannot use
 * FLAT. A reduce takes TWILL_ORDER_ANY. It takes TWILL_ORDER_RANKS only if each node has
 * consecutive ranks and the root is on the first node. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    bool reduces = shape->collective == TWILL_REDUCE;
    if (world->nodes < 2 || (!reduces && shape->protocol == TWILL_PROTOCOL_FLAT))
        return false;
    /* The reduction starts at the node of the root and continues node by node. */
    bool by_rank = shape->order != TWILL_ORDER_LEFT && world->node[shape->root] == 0;
    for (uint32_t r = 1; r < world->size && by_rank && shape->order != TWILL_ORDER_ANY; r++)
        by_rank = world->node[r] >= world->node[r - 1];
    return !reduces || shape->order == TWILL_ORDER_ANY || by_rank;
}

/* Append the steps of a tree between nodes, for a broadcast or reduce. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    const struct twill_world *world = e->world;
    uint32_t root_node = world->node[shape->root], widest = twill_world_widest(world);
    bool reduces = shape->collective == TWILL_REDUCE;
    bool sharded = reduces && twill_protocol_is_sharded(shape->protocol);
    uint32_t *heads = malloc(world->nodes * sizeof(*heads));
    if (heads == NULL) {
        e->no_memory = true;
        return;
    }
    for (uint32_t n = 0; n < world->nodes; n++)
        heads[n] = n == root_node ? shape->root : twill_world_member(world, n, 0);
    e->blocks = sharded ? widest : 1;
    if (widest > 1 && shape->protocol != TWILL_PROTOCOL_IMM &&
        (reduces || shape->protocol != TWILL_PROTOCOL_MAPPED))
        e->shared_blocks = e->blocks;
    e->tmp_blocks = reduces ? e->blocks : 0;
    struct twill_group g = {
        .rank = heads, .size = world->nodes, .me = world->node[e->rank], .blocks = e->blocks};
    struct twill_tree t = {.group = &g, .root = root_node, .radix = 2};
    if (reduces)
        heads_reduce(e, &t, shape);
    else
        heads_broadcast(e, &t, shape);
    free(heads);
}

const struct twill_algorithm twill_algorithm_hierarchical_tree = {
    .name = "hierarchical:tree",
    .help = "a binomial tree between the nodes, and memory within each: lg G rounds",
    .collectives = 1u << TWILL_BROADCAST | 1u << TWILL_REDUCE,
    .protocols = 1u << TWILL_PROTOCOL_IMM | 1u << TWILL_PROTOCOL_FLAT |
                 1u << TWILL_PROTOCOL_STAGED | 1u << TWILL_PROTOCOL_MAPPED,
    .applies = applies,
    .emit = emit,
};
