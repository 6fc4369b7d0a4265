/* SPDX-License-Identifier: Apache-2.0 */
/* Two levels, the ranks of a node and the nodes, by name: the composer (compose.c) where ranks of a
 * node share the message out among themselves (STAGED, MAPPED), and a leader for each node, its
 * lowest rank, where the message is too small for that (IMM, FLAT):
 *
 *     node 0:  0 <- 1        0, 2 and 4 fold what their nodes have, allreduce it between them, and
 *     node 1:  2 <- 3        hand back the result
 *     node 2:  4
 *
 * With G nodes: rounds 2(G-1) (ring), 2 ceil(lg G) (halving and doubling), lg G (recursive
 * doubling) or ceil(lg G) (Bruck); bytes off the node per leader 2n(G-1)/G, 2n(G-1)/G, n lg G,
 * n(G-1). */
#include "algorithms/compose.h"

#include <stdlib.h>

/* Between the leaders. What they bring is a partial unless every rank has a node of its own: who is
 * alone on one among larger ones makes a partial of its data first. */
static void emit_between_leaders(struct twill_emitter *e, enum twill_how how, uint32_t blocks)
{
    const struct twill_world *w = e->world;
    uint32_t node = w->node[e->rank];
    uint32_t *leaders = malloc(w->nodes * sizeof(*leaders));
    if (leaders == NULL) {
        e->no_memory = true;
        return;
    }
    bool partials = twill_world_widest(w) > 1;
    if (partials && w->node_size[node] == 1 && blocks > 0)
        twill_emit_widen(e, twill_operand_make(TWILL_TMP, 0), twill_operand_make(TWILL_SRC, 0),
                         blocks);
    for (uint32_t n = 0; n < w->nodes; n++)
        leaders[n] = twill_world_member(w, n, 0);
    struct twill_group g = {.rank = leaders, .size = w->nodes, .me = node, .blocks = blocks};
    enum twill_space from = partials ? TWILL_TMP : TWILL_SRC;
    if (w->local[e->rank] == 0 && twill_compose_allreduce(how)(e, &g, from))
        twill_emit_wait(e);
    free(leaders);
}

static void emit_barrier(struct twill_emitter *e, enum twill_how how)
{
    bool alone = e->world->node_size[e->world->node[e->rank]] == 1;
    if (!alone)
        twill_emit_node_gather_signals(e);
    emit_between_leaders(e, how, 0);
    if (!alone)
        twill_emit_node_release(e);
}

static void emit_leaders(struct twill_emitter *e, enum twill_flavour flavour, enum twill_how how)
{
    bool alone = e->world->node_size[e->world->node[e->rank]] == 1;
    e->tmp_blocks = twill_compose_copies(how, e->world->nodes) * e->blocks;
    if (twill_world_widest(e->world) > 1 && flavour == TWILL_FLAVOUR_FLAT)
        e->shared_blocks = e->blocks;
    if (!alone)
        twill_emit_node_fold_leader(e, flavour);
    emit_between_leaders(e, how, e->blocks);
    if (!alone)
        twill_emit_node_hand_back(e, flavour);
}

static twill_status emit_two_levels(struct twill_schedule *schedule,
                                    const struct twill_world *world, uint32_t rank,
                                    const struct twill_shape *shape, enum twill_how how,
                                    struct twill_error *error)
{
    const struct twill_rung_choice choice[] = {{TWILL_LEVEL_NODE, TWILL_BY_DIRECT},
                                               {TWILL_LEVEL_ALL, (uint8_t)how}};
    bool barrier = shape->collective == TWILL_BARRIER;
    if (!barrier && twill_flavour_is_sharded(shape->flavour))
        return twill_compose(schedule, world, rank, shape, choice, 2, error);
    struct twill_emitter e;
    twill_emitter_begin(&e, world, rank, twill_how_divides(how) ? world->nodes : 1);
    if (barrier)
        emit_barrier(&e, how);
    else
        emit_leaders(&e, shape->flavour, how);
    return twill_emitter_finish(&e, schedule, error);
}

static bool applies_ring(const struct twill_world *world, const struct twill_shape *shape)
{
    uint64_t blocks = (uint64_t)twill_world_widest(world) * world->nodes;
    if (world->nodes < 2 || shape->order != TWILL_ORDER_ANY)
        return false;
    if (twill_collective_facts(shape->collective)->parts)
        return shape->flavour == TWILL_FLAVOUR_STAGED ||
               (shape->flavour == TWILL_FLAVOUR_MAPPED && !shape->vector);
    return shape->flavour != TWILL_FLAVOUR_IMM && blocks >> TWILL_BLOCK_BITS == 0;
}

static twill_status emit_ring(struct twill_schedule *schedule, const struct twill_world *world,
                              uint32_t rank, const struct twill_shape *shape,
                              struct twill_error *error)
{
    return emit_two_levels(schedule, world, rank, shape, TWILL_BY_RING, error);
}

static bool applies_halving(const struct twill_world *world, const struct twill_shape *shape)
{
    uint64_t blocks = (uint64_t)twill_world_widest(world) * world->nodes;
    return world->nodes > 1 && shape->order == TWILL_ORDER_ANY && blocks >> TWILL_BLOCK_BITS == 0;
}

static twill_status emit_halving(struct twill_schedule *schedule, const struct twill_world *world,
                                 uint32_t rank, const struct twill_shape *shape,
                                 struct twill_error *error)
{
    return emit_two_levels(schedule, world, rank, shape, TWILL_BY_HALVING_DOUBLING, error);
}

/* Node by node is by rank if no node has ranks on both sides of another's. */
static bool applies_doubling(const struct twill_world *world, const struct twill_shape *shape)
{
    bool sorted = shape->order != TWILL_ORDER_LEFT;
    for (uint32_t r = 1; r < world->size && shape->order == TWILL_ORDER_RANKS; r++)
        sorted = sorted && world->node[r] >= world->node[r - 1];
    return world->nodes > 1 && (sorted || shape->collective == TWILL_BARRIER);
}

static twill_status emit_doubling(struct twill_schedule *schedule, const struct twill_world *world,
                                  uint32_t rank, const struct twill_shape *shape,
                                  struct twill_error *error)
{
    return emit_two_levels(schedule, world, rank, shape, TWILL_BY_RECURSIVE_DOUBLING, error);
}

#define SHARDED (1u << TWILL_FLAVOUR_STAGED | 1u << TWILL_FLAVOUR_MAPPED)

/* Above that all contributions are more bytes than two rounds more would take. */
#define BRUCK_MOST_NODES 64

static bool applies_bruck(const struct twill_world *world, const struct twill_shape *shape)
{
    return world->nodes > 2 && world->nodes <= BRUCK_MOST_NODES && applies_doubling(world, shape);
}

static twill_status emit_bruck(struct twill_schedule *schedule, const struct twill_world *world,
                               uint32_t rank, const struct twill_shape *shape,
                               struct twill_error *error)
{
    return emit_two_levels(schedule, world, rank, shape, TWILL_BY_BRUCK, error);
}

const struct twill_algorithm twill_algorithm_hierarchical_ring = {
    .name = "hierarchical:ring",
    .help = "within the nodes, and a ring between them per shard: 2(G-1) rounds, 2(n/L)(G-1)/G "
            "bytes off the node per rank",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_REDUCE_SCATTER | 1u << TWILL_ALLGATHER,
    .flavours = SHARDED | 1u << TWILL_FLAVOUR_FLAT,
    .applies = applies_ring,
    .emit = emit_ring,
};

const struct twill_algorithm twill_algorithm_hierarchical_halving_doubling = {
    .name = "hierarchical:halving_doubling",
    .help = "within the nodes, and halving and doubling between them per shard: 2 ceil(lg G) "
            "rounds, 2(n/L)(G-1)/G bytes off the node per rank",
    .collectives = 1u << TWILL_ALLREDUCE,
    .flavours = SHARDED,
    .applies = applies_halving,
    .emit = emit_halving,
};

const struct twill_algorithm twill_algorithm_hierarchical_bruck = {
    .name = "hierarchical:bruck",
    .help = "within the nodes, and between them an allgather by Bruck per shard that each reduces: "
            "ceil(lg G) rounds, (n/L)(G-1) bytes off the node per rank",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_BARRIER,
    .flavours = SHARDED | 1u << TWILL_FLAVOUR_FLAT | 1u << TWILL_FLAVOUR_IMM,
    .applies = applies_bruck,
    .emit = emit_bruck,
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
