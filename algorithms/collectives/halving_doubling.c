/* SPDX-License-Identifier: Apache-2.0 */
/* Halving and doubling for any number of ranks, on a circulant graph (Traeff, "Optimal,
 * Non-pipelined Reduce-scatter and Allreduce Algorithms", 2024). In the reduce-scatter each rank
 * has partials for the ranks up to s - 1 to its right, including itself. At first s = P, and in a
 * round s' = ceil(s/2). A rank sends its partials for the farther ones, s' to s-1 to the right, to
 * the rank s' to the right, and reduces what it receives for the nearer ones. After ceil(lg P)
 * rounds only its own shard is left, complete. The allgather is the reverse. Each half sends
 * n(P-1)/P bytes, the minimum, and has no extra rounds, which other algorithms need if P is not a
 * power of two. An allreduce takes 2 ceil(lg P) rounds and 2n(P-1)/P bytes. Shard numbers wrap
 * around, so some rounds have two messages.
 *
 * In an allreduce between groups of nodes, rows within one group come first, then columns, in which
 * each rank has 1/X of the bytes for rows of X ranks. With equal groups this is the least that
 * crosses between them, in up to two rounds more.
 *
 *     P = 5, rank 0:  round 0 (5 -> 3): shards 3 4 to rank 3; 0 1 from rank 2
 *                     round 1 (3 -> 2): shard  2   to rank 2; 0   from rank 3
 *                     round 2 (2 -> 1): shard  1   to rank 1; 0   from rank 4, complete */
#include "algorithms/collectives/cores.h"

/* Return whether shards have one size and operands may be reduced in any order. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    (void)world;
    return shape->order == TWILL_ORDER_ANY && !shape->vector;
}

/* Append the steps of halving and doubling for the collective of the shape. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    const struct twill_world *world = e->world;
    bool sharded = twill_collective_facts(shape->collective)->sharded;
    bool reduces = shape->collective != TWILL_ALLGATHER;
    e->blocks = world->size;
    /* Shards are by rank, so that they are consecutive. */
    struct twill_group g =
        sharded ? twill_group_ranks(e, e->blocks) : twill_group_world(e, e->blocks);
    e->shards = sharded ? world->size : 1;
    e->tmp_blocks = reduces && world->size > 2 ? e->blocks : 0;
    uint32_t mine = twill_group_block(&g, g.me);
    if (shape->collective == TWILL_ALLREDUCE) {
        twill_emit_circulant(e, &g, TWILL_SRC);
        return;
    }
    if (reduces && world->size > 1)
        twill_emit_circulant_reduce_scatter(e, &g, TWILL_SRC, TWILL_DST);
    else
        twill_emit_copy(e, data_at(TWILL_DST, mine), data_at(TWILL_SRC, mine), 0, 1, 0);
    if (shape->collective != TWILL_REDUCE_SCATTER)
        twill_emit_circulant_allgather(e, &g);
}

const struct twill_algorithm twill_algorithm_halving_doubling = {
    .name = "halving_doubling",
    .help = "halve what is left round by round, then double it: 2 ceil(lg P) rounds, 2n(P-1)/P "
            "bytes for any P (Traeff 2024)",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_REDUCE_SCATTER | 1u << TWILL_ALLGATHER,
    .applies = applies,
    .emit = emit,
};
