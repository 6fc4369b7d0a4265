/* SPDX-License-Identifier: Apache-2.0 */
/* Two levels, the ranks of a node and the nodes. The composer (compose.c) emits them where the
 * ranks of a node divide the message among themselves (STAGED, MAPPED). Where the message is too
 * small for that (IMM, FLAT), each node has one leader, its lowest rank:
 *
 *     node 0:  0 <- 1        0, 2 and 4 reduce the contributions of their nodes, allreduce the
 *     node 1:  2 <- 3        results among themselves, and give the final result to their nodes
 *     node 2:  4
 *
 * With G nodes there are 2(G-1) rounds (ring), 2 ceil(lg G) (halving and doubling), floor(lg G),
 * and 2 more unless G is a power of two (recursive doubling), or ceil(lg G) (Bruck). A leader sends
 * 2n(G-1)/G, 2n(G-1)/G, n lg G or n(G-1) bytes off its node. */
#include "algorithms/compose/compose.h"

/* Return whether there are several nodes, TWILL_ORDER_ANY, and a protocol that the collective can
 * use. With one shard per rank these are STAGED, and MAPPED if shards have one size. An allreduce
 * excludes IMM, and one block per node and rank of the fullest must fit into TWILL_BLOCK_BITS. */
static bool applies_ring(const struct twill_world *world, const struct twill_shape *shape)
{
    uint64_t blocks = (uint64_t)twill_world_widest(world) * world->nodes;
    if (world->nodes < 2 || shape->order != TWILL_ORDER_ANY)
        return false;
    if (twill_collective_facts(shape->collective)->sharded)
        return shape->protocol == TWILL_PROTOCOL_STAGED ||
               (shape->protocol == TWILL_PROTOCOL_MAPPED && !shape->vector);
    return shape->protocol != TWILL_PROTOCOL_IMM && blocks >> TWILL_BLOCK_BITS == 0;
}

/* Append the steps of the shape's collective over two levels. Ranks of a node communicate through
 * memory, and nodes exchange messages by a ring. */
static void emit_ring(struct twill_emitter *e, const struct twill_shape *shape)
{
    twill_emit_two_levels(e, shape, TWILL_BY_RING);
}

/* Return whether halving and doubling between nodes is possible. It needs several nodes and
 * TWILL_ORDER_ANY. The number of blocks, which is that of nodes times the ranks of the fullest one,
 * must fit into TWILL_BLOCK_BITS. */
static bool applies_halving(const struct twill_world *world, const struct twill_shape *shape)
{
    uint64_t blocks = (uint64_t)twill_world_widest(world) * world->nodes;
    return world->nodes > 1 && shape->order == TWILL_ORDER_ANY && blocks >> TWILL_BLOCK_BITS == 0;
}

/* Append the steps for two levels, with halving and doubling between nodes. */
static void emit_halving(struct twill_emitter *e, const struct twill_shape *shape)
{
    twill_emit_two_levels(e, shape, TWILL_BY_HALVING_DOUBLING);
}

/* Return whether there are several nodes and recursive doubling between them keeps the order.
 * TWILL_ORDER_LEFT is possible in a barrier only. TWILL_ORDER_RANKS needs consecutive ranks on each
 * node, as it reduces node by node. */
static bool applies_doubling(const struct twill_world *world, const struct twill_shape *shape)
{
    bool sorted = shape->order != TWILL_ORDER_LEFT;
    for (uint32_t r = 1; r < world->size && shape->order == TWILL_ORDER_RANKS; r++)
        sorted = sorted && world->node[r] >= world->node[r - 1];
    return world->nodes > 1 && (sorted || shape->collective == TWILL_BARRIER);
}

/* Append the steps for two levels, with recursive doubling between nodes. */
static void emit_doubling(struct twill_emitter *e, const struct twill_shape *shape)
{
    twill_emit_two_levels(e, shape, TWILL_BY_RECURSIVE_DOUBLING);
}

#define SHARDED (1u << TWILL_PROTOCOL_STAGED | 1u << TWILL_PROTOCOL_MAPPED)

/* With more nodes the G-1 messages take longer than the round that they save. */
#define BRUCK_MOST_NODES 16

/* Return whether an allgather by Bruck between nodes is possible. It needs from 3 to
 * BRUCK_MOST_NODES nodes. With TWILL_ORDER_RANKS each node must have consecutive ranks. With
 * TWILL_ORDER_LEFT it is impossible. In a barrier the order does not matter. */
static bool applies_bruck(const struct twill_world *world, const struct twill_shape *shape)
{
    return world->nodes > 2 && world->nodes <= BRUCK_MOST_NODES && applies_doubling(world, shape);
}

/* Append the steps for two levels, with an allgather by Bruck between nodes. */
static void emit_bruck(struct twill_emitter *e, const struct twill_shape *shape)
{
    twill_emit_two_levels(e, shape, TWILL_BY_BRUCK);
}

const struct twill_algorithm twill_algorithm_hierarchical_ring = {
    .name = "hierarchical:ring",
    .help = "within the nodes, and a ring between them per shard: 2(G-1) rounds, 2(n/L)(G-1)/G "
            "bytes off the node per rank",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_REDUCE_SCATTER | 1u << TWILL_ALLGATHER,
    .protocols = SHARDED | 1u << TWILL_PROTOCOL_FLAT,
    .applies = applies_ring,
    .emit = emit_ring,
};

const struct twill_algorithm twill_algorithm_hierarchical_halving_doubling = {
    .name = "hierarchical:halving_doubling",
    .help = "within the nodes, and halving and doubling between them per shard: 2 ceil(lg G) "
            "rounds, 2(n/L)(G-1)/G bytes off the node per rank",
    .collectives = 1u << TWILL_ALLREDUCE,
    .protocols = SHARDED,
    .applies = applies_halving,
    .emit = emit_halving,
};

const struct twill_algorithm twill_algorithm_hierarchical_bruck = {
    .name = "hierarchical:bruck",
    .help = "within the nodes, and between them an allgather by Bruck per shard that each reduces: "
            "ceil(lg G) rounds, G-1 messages of n/L bytes off the node per rank",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_BARRIER,
    .protocols = SHARDED | 1u << TWILL_PROTOCOL_FLAT | 1u << TWILL_PROTOCOL_IMM,
    .applies = applies_bruck,
    .emit = emit_bruck,
};

const struct twill_algorithm twill_algorithm_hierarchical_recursive_doubling = {
    .name = "hierarchical:recursive_doubling",
    .help = "within the nodes, and recursive doubling between them per shard: lg G rounds, "
            "(n/L) lg G bytes off the node per rank",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_BARRIER,
    .protocols = SHARDED | 1u << TWILL_PROTOCOL_FLAT | 1u << TWILL_PROTOCOL_IMM,
    .applies = applies_doubling,
    .emit = emit_doubling,
};
