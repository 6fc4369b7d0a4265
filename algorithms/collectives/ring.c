/* SPDX-License-Identifier: Apache-2.0 */
/* Ring. A reduce-scatter, then an allgather, around a ring (Patarasuk and Yuan 2009). Each half is
 * also a collective by itself. The buffer has one shard per rank. In round k of the first half a
 * rank sends shard (me - 1 - k) to its right neighbour and reduces shard (me - 2 - k), received
 * from its left, with its own. After P-1 rounds it holds shard `me` complete. In the second half
 * the complete shards travel around once more. It takes 2(P-1) rounds and 2n(P-1)/P bytes sent, the
 * minimum, and the only peers are the two neighbours. The ring visits the ranks node by node, so it
 * leaves each node once.
 *
 *     0 -> 1 -> 2 -> 3      shard 3 starts at rank 0 as {0}, is {01} on 1, {012} on 2,
 *     ^______________|      complete on 3, and goes from 3 to 0, 1 and 2
 *
 * The first send of a shard reads the data of the rank itself. Partials are in TMP, and only the
 * last reduction writes DST. So nothing is copied, and the same steps are right in place. */
#include "algorithms/collectives/cores.h"

/* Emit the first half of a ring. With `final` the shard of this rank is FINAL in `to`, else a
 * partial in TMP. Returns whether a WAIT is due. */
static bool ring_reduce_scatter(struct twill_emitter *e, const struct twill_group *g,
                                enum twill_space from, enum twill_space to, bool final)
{
    uint32_t n = g->size, each = g->blocks / n;
    uint32_t right = g->rank[(g->me + 1) % n], left = g->rank[(g->me + n - 1) % n];
    unsigned own = from == TWILL_TMP ? TWILL_STEP_PARTIAL_OWN : 0;
    for (uint32_t k = 0; k + 1 < n; k++) {
        uint32_t out = twill_group_block(g, g->me + 2 * n - k - 1);
        uint32_t in = twill_group_block(g, g->me + 2 * n - k - 2);
        bool ends = k + 2 == n && final;
        /* What has been reduced once, here or on the left, is a partial. */
        unsigned moved = k > 0 || from == TWILL_TMP ? TWILL_STEP_PARTIAL : 0;
        twill_emit_send(e, right, data_at(k == 0 ? from : TWILL_TMP, out), each, moved);
        twill_emit_recv_reduce(e, left, data_at(ends ? to : TWILL_TMP, in), data_at(from, in), each,
                               TWILL_STEP_FIRST | moved | own | (ends ? TWILL_STEP_FINAL : 0));
        if (k + 2 < n)
            twill_emit_wait(e);
    }
    if (n == 1 && to == TWILL_DST)
        twill_emit_alone(e, g, from);
    return n > 1;
}

bool twill_emit_ring_reduce_scatter(struct twill_emitter *e, const struct twill_group *g,
                                    enum twill_space from, enum twill_space to)
{
    return ring_reduce_scatter(e, g, from, to, to == TWILL_DST);
}

bool twill_emit_ring_reduce_scatter_final(struct twill_emitter *e, const struct twill_group *g,
                                          enum twill_space from, enum twill_space to)
{
    return ring_reduce_scatter(e, g, from, to, true);
}

bool twill_emit_ring_allgather(struct twill_emitter *e, const struct twill_group *g,
                               enum twill_space from)
{
    uint32_t n = g->size, each = g->blocks / n, mine = twill_group_block(g, g->me);
    uint32_t right = g->rank[(g->me + 1) % n], left = g->rank[(g->me + n - 1) % n];
    if (from != TWILL_DST)
        twill_emit_copy(e, data_at(TWILL_DST, mine), data_at(from, mine), 0, each, 0);
    for (uint32_t k = 0; k + 1 < n; k++) {
        uint32_t out = twill_group_block(g, g->me + n - k);
        uint32_t in = twill_group_block(g, g->me + n - k - 1);
        twill_emit_send(e, right, data_at(k == 0 ? from : TWILL_DST, out), each, 0);
        twill_emit_recv(e, left, data_at(TWILL_DST, in), each, 0);
        if (k + 2 < n)
            twill_emit_wait(e);
    }
    return n > 1;
}

bool twill_emit_ring(struct twill_emitter *e, const struct twill_group *g, enum twill_space from)
{
    if (twill_emit_ring_reduce_scatter(e, g, from, TWILL_DST))
        twill_emit_wait(e);
    return twill_emit_ring_allgather(e, g, TWILL_DST);
}

/* Return whether the ring supports the shape, which needs operands in any order. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    (void)world;
    return shape->order == TWILL_ORDER_ANY;
}

/* Append the steps of the ring for the collective of the shape. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    const struct twill_world *world = e->world;
    e->blocks = world->size;
    struct twill_group g = twill_group_world(e, world->size);
    bool due;
    if (twill_collective_facts(shape->collective)->sharded) {
        e->shards = world->size;
        g.shard = g.rank;
    }
    e->tmp_blocks = shape->collective == TWILL_ALLGATHER || world->size < 3 ? 0 : e->blocks;
    if (shape->collective == TWILL_ALLGATHER)
        due = twill_emit_ring_allgather(e, &g, TWILL_SRC);
    else if (shape->collective == TWILL_REDUCE_SCATTER)
        due = twill_emit_ring_reduce_scatter(e, &g, TWILL_SRC, TWILL_DST);
    else
        due = twill_emit_ring(e, &g, TWILL_SRC);
    if (due)
        twill_emit_wait(e);
}

const struct twill_algorithm twill_algorithm_ring = {
    .name = "ring",
    .help = "reduce-scatter and allgather round a ring: 2(P-1) rounds, 2n(P-1)/P bytes, two peers "
            "(Patarasuk and Yuan 2009)",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_REDUCE_SCATTER | 1u << TWILL_ALLGATHER,
    .applies = applies,
    .emit = emit,
};
