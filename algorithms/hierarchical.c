/* SPDX-License-Identifier: Apache-2.0 */
/* The composer: an allreduce over levels is a reduce-scatter down the levels, an allreduce at the
 * top, and an allgather back. Two levels now: the ranks of a node, and the nodes.
 *
 * STAGED and MAPPED: the buffer is cut into as many shards as the fullest node has ranks. On a node
 * of L ranks, rank s % L reduces shard s within the node, drives its allreduce between the nodes,
 * and gives it back: with equal nodes every rank drives one shard, and the network sees all of them
 * at once. Ranks that drive several take them in ascending order on every node, so that the
 * lowest shard under way can always go on. IMM and FLAT: one shard, driven by the lowest rank.
 *
 *     node 0:  0   1          shard 0 goes round 0, 2 and 4; shard 1 round 1, 3 and 4
 *     node 1:  2   3          (a node of one rank drives both)
 *     node 2:  4
 *
 * The cut depends on the world and on whether there are shards, on nothing else: nodes may use
 * different flavours of the same kind. Rounds 2(G-1) (ring) or lg G, off-node bytes per rank
 * 2(n/L)(G-1)/G (ring). */
#include "algorithms/emit.h"

#include <stdlib.h>

/* Of TMP: the contribution is in the first, algorithms between the nodes may use all. */
#define TOP_COPIES 3u

/* The top level: the shards this rank drives, one after the other; the last messages of one may
 * still be under way when the next begins. Partials are exchanged unless every rank has a node of
 * its own: who is alone on one among larger ones makes a partial of its data first. */
static void emit_top(struct twill_emitter *e, twill_emit_allreduce_fn top,
                     struct twill_shards shards)
{
    const struct twill_world *w = e->world;
    uint32_t node = w->node[e->rank], ranks = w->node_size[node];
    uint32_t *drivers = malloc(w->nodes * sizeof(*drivers));
    if (drivers == NULL) {
        e->no_memory = true;
        return;
    }
    bool due = false, partials = twill_world_widest(w) > 1;
    if (partials && ranks == 1 && shards.each > 0)
        twill_emit_widen(e, twill_operand_make(TWILL_TMP, 0), twill_operand_make(TWILL_SRC, 0),
                         e->blocks);
    for (uint32_t s = w->local[e->rank]; s < shards.count; s += ranks) {
        for (uint32_t n = 0; n < w->nodes; n++)
            drivers[n] = twill_world_member(w, n, s % w->node_size[n]);
        struct twill_group g = {.rank = drivers,
                                .size = w->nodes,
                                .me = node,
                                .first = s * shards.each,
                                .blocks = shards.each};
        due = top(e, &g, partials ? TWILL_TMP : TWILL_SRC);
    }
    if (due)
        twill_emit_wait(e);
    free(drivers);
}

static void emit_allreduce(struct twill_emitter *e, const struct twill_shape *shape,
                           twill_emit_allreduce_fn top, struct twill_shards shards)
{
    uint32_t ranks = e->world->node_size[e->world->node[e->rank]];
    if (ranks == 1) {
        emit_top(e, top, shards);
    } else if (twill_flavour_is_sharded(shape->flavour)) {
        twill_emit_node_reduce_scatter(e, shape->flavour, shards, TWILL_TMP, 0);
        emit_top(e, top, shards);
        twill_emit_node_allgather(e, shape->flavour, shards, TWILL_DST);
    } else {
        twill_emit_node_fold_leader(e, shape->flavour);
        emit_top(e, top, shards);
        twill_emit_node_hand_back(e, shape->flavour);
    }
}

static void emit_barrier(struct twill_emitter *e)
{
    struct twill_shards nothing = {.count = 1, .each = 0};
    bool alone = e->world->node_size[e->world->node[e->rank]] == 1;
    if (!alone)
        twill_emit_node_gather_signals(e);
    emit_top(e, twill_emit_recursive_doubling, nothing);
    if (!alone)
        twill_emit_node_release(e);
}

/* each: parts that the top level cuts a shard into. */
static twill_status compose(struct twill_schedule *schedule, const struct twill_world *world,
                            uint32_t rank, const struct twill_shape *shape,
                            twill_emit_allreduce_fn top, uint32_t each, struct twill_error *error)
{
    uint32_t widest = twill_world_widest(world);
    struct twill_shards shards = {.count = twill_flavour_is_sharded(shape->flavour) ? widest : 1,
                                  .each = each};
    bool barrier = shape->collective == TWILL_BARRIER;
    if ((uint64_t)shards.count * each >> TWILL_BLOCK_BITS != 0)
        return TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED,
                          "%u nodes of up to %u ranks: more parts than a step can name",
                          world->nodes, widest);
    struct twill_emitter e;
    twill_emitter_begin(&e, world, rank, barrier ? 1 : shards.count * each);
    if (barrier) {
        emit_barrier(&e);
        return twill_emitter_finish(&e, schedule, error);
    }
    e.tmp_blocks = TOP_COPIES * e.blocks;
    if (widest > 1 && shape->flavour != TWILL_FLAVOUR_IMM && shape->flavour != TWILL_FLAVOUR_MAPPED)
        e.shared_blocks = e.blocks;
    emit_allreduce(&e, shape, top, shards);
    return twill_emitter_finish(&e, schedule, error);
}

static bool applies_ring(const struct twill_world *world, const struct twill_shape *shape)
{
    return world->nodes > 1 && shape->flavour != TWILL_FLAVOUR_IMM;
}

static twill_status emit_ring(struct twill_schedule *schedule, const struct twill_world *world,
                              uint32_t rank, const struct twill_shape *shape,
                              struct twill_error *error)
{
    return compose(schedule, world, rank, shape, twill_emit_ring, world->nodes, error);
}

static bool applies_doubling(const struct twill_world *world, const struct twill_shape *shape)
{
    (void)shape;
    return world->nodes > 1;
}

static twill_status emit_doubling(struct twill_schedule *schedule, const struct twill_world *world,
                                  uint32_t rank, const struct twill_shape *shape,
                                  struct twill_error *error)
{
    return compose(schedule, world, rank, shape, twill_emit_recursive_doubling, 1, error);
}

static bool applies_tree(const struct twill_world *world, const struct twill_shape *shape)
{
    return world->nodes > 1 && shape->root < world->size && shape->flavour != TWILL_FLAVOUR_FLAT;
}

/* Broadcast: a tree over one rank per node (on the root's node the root), then on each node. */
static twill_status emit_tree(struct twill_schedule *schedule, const struct twill_world *world,
                              uint32_t rank, const struct twill_shape *shape,
                              struct twill_error *error)
{
    uint32_t node = world->node[rank], root_node = world->node[shape->root];
    uint32_t *givers = malloc(world->nodes * sizeof(*givers));
    if (givers == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rank %u: no memory for %u nodes", rank,
                          world->nodes);
    for (uint32_t n = 0; n < world->nodes; n++)
        givers[n] = n == root_node ? shape->root : twill_world_member(world, n, 0);
    struct twill_emitter e;
    twill_emitter_begin(&e, world, rank, 1);
    if (shape->flavour == TWILL_FLAVOUR_STAGED && twill_world_widest(world) > 1)
        e.shared_blocks = 1;
    struct twill_group g = {.rank = givers, .size = world->nodes, .me = node, .blocks = 1};
    enum twill_space from = node == root_node ? TWILL_SRC : TWILL_DST;
    bool posted = false;
    if (rank == shape->root)
        twill_emit_copy(&e, twill_operand_make(TWILL_DST, 0), twill_operand_make(TWILL_SRC, 0), 0,
                        1, 0);
    if (rank == givers[node]) {
        twill_emit_tree_receive(&e, &g, root_node);
        posted = twill_emit_tree_send(&e, &g, root_node, from);
    }
    twill_emit_node_broadcast(&e, shape->flavour, world->local[givers[node]], from);
    if (posted)
        twill_emit_wait(&e);
    free(givers);
    return twill_emitter_finish(&e, schedule, error);
}

#define SHARDED (1u << TWILL_FLAVOUR_STAGED | 1u << TWILL_FLAVOUR_MAPPED)

const struct twill_algorithm twill_algorithm_hierarchical_ring = {
    .name = "hierarchical:ring",
    .help = "within the nodes, and a ring between them per shard: 2(G-1) rounds, 2(n/L)(G-1)/G "
            "bytes off the node per rank",
    .collectives = 1u << TWILL_ALLREDUCE,
    .flavours = SHARDED | 1u << TWILL_FLAVOUR_FLAT,
    .applies = applies_ring,
    .emit = emit_ring,
};

const struct twill_algorithm twill_algorithm_hierarchical_recursive_doubling = {
    .name = "hierarchical:recursive_doubling",
    .help = "within the nodes, and recursive doubling between them per shard: lg G rounds, "
            "(n/L) lg G bytes off the node per rank",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_BARRIER,
    .flavours = SHARDED | 1u << TWILL_FLAVOUR_FLAT | 1u << TWILL_FLAVOUR_IMM,
    .applies = applies_doubling,
    .emit = emit_doubling,
};

const struct twill_algorithm twill_algorithm_hierarchical_tree = {
    .name = "hierarchical:tree",
    .help = "a tree between the nodes, then within each: lg G rounds",
    .collectives = 1u << TWILL_BROADCAST,
    .flavours = SHARDED | 1u << TWILL_FLAVOUR_IMM,
    .applies = applies_tree,
    .emit = emit_tree,
};
