/* SPDX-License-Identifier: Apache-2.0 */
/* Pairwise. Every rank exchanges a shard with every other rank (Thakur, Rabenseifner and Gropp
 * 2005). In turn k of an alltoall or allgather a rank sends to the k-th rank on the right and
 * receives from the k-th on the left. In a reduce-scatter all ranks send shard r, raw, to rank r,
 * which reduces it. An allreduce adds an allgather. Several turns are posted at once. A rank sends
 * P-1 messages (allreduce 2(P-1)) and n(P-1)/P bytes (2n(P-1)/P), and all ranks are its peers.
 *
 *     turn 0: 0->1 1->2 2->3 3->0     turn 1: 0->2 1->3 2->0 3->1     turn 2: 0->3 1->0 2->1 3->2
 *
 * Where the order matters the peers are taken by rank, starting from the left, x and y at time x +
 * y. This takes twice the time, but the reduction is ((0 op 1) op 2) op ... on all ranks. */
#include "algorithms/patterns/exchange_all.h"

/* Emit a reduce-scatter in which each rank sends every other rank its shard of SRC, and reduces
 * what it receives into DST. Received operands are kept in TMP, one block each. These blocks are
 * adjacent if all shards have one size. Else, or in an allreduce, each is in another copy of the
 * message there, at the number of this rank's block. */
static void emit_reduce_scatter(struct twill_emitter *e, const struct twill_group *g,
                                const struct twill_shape *shape)
{
    bool uniform = e->shards > 1 && !shape->vector;
    struct twill_intake in = {.first = twill_group_block(g, g->me),
                              .blocks = 1,
                              .by_rank = shape->order != TWILL_ORDER_ANY,
                              .sends = TWILL_INTAKE_SHARD,
                              .tmp = uniform ? 0 : twill_group_block(g, g->me),
                              .stride = uniform ? 1 : e->blocks};
    if (g->size > 2)
        e->tmp_blocks = !uniform ? TWILL_INTAKE_COPIES * e->blocks
                                 : (TWILL_INTAKE_COPIES + e->blocks - 1) / e->blocks * e->blocks;
    twill_emit_intake(e, g, &in);
}

/* Append the steps of exchanges of all pairs of ranks for the collective of the shape. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    const struct twill_world *world = e->world;
    const struct twill_collective_facts *facts = twill_collective_facts(shape->collective);
    e->blocks = world->size;
    e->shards = facts->sharded ? world->size : 1;
    struct twill_group g = twill_group_ranks(e, e->blocks);
    if (!facts->reduces || world->size == 1)
        twill_emit_copy(e, data_at(TWILL_DST, e->rank), data_at(TWILL_SRC, e->rank), 0, 1, 0);
    else
        emit_reduce_scatter(e, &g, shape);
    if (facts->dst == TWILL_HOLDS_ALL)
        twill_emit_exchange(e, &g, shape->collective == TWILL_ALLTOALL ? TWILL_SRC : TWILL_DST);
}

const struct twill_algorithm twill_algorithm_pairwise = {
    .name = "pairwise",
    .help = "every rank with every other one, a shard each: P-1 messages (allreduce: 2(P-1)), "
            "n(P-1)/P bytes (2n(P-1)/P) (Thakur, Rabenseifner and Gropp 2005)",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_REDUCE_SCATTER | 1u << TWILL_ALLGATHER |
                   1u << TWILL_ALLTOALL,
    .exchanges = 1u << TWILL_ALLGATHER | 1u << TWILL_ALLTOALL,
    .applies = twill_applies_everywhere,
    .emit = emit,
};
