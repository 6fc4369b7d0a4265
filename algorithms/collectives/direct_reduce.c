/* SPDX-License-Identifier: Apache-2.0 */
/* "direct" reductions: the ranks of one node reduce each other's data in place.
 *
 * Allreduce, IMM and FLAT: each rank publishes its data and reduces all ranks' data; one
 * synchronisation, (L-1)n read. STAGED and MAPPED: rank i reduces shard i of all ranks, then all
 * ranks get all shards: two synchronisations, 2n(L-1)/L read or written. In a reduce only the root
 * reduces (IMM, FLAT) or gets the shards (STAGED: it fetches them, MAPPED: the others store them).
 * Reduce-scatter is the first half of an allreduce.
 *
 *     rank   0 1 2 3   shard 0 of all four is reduced by 0, shard 1 by 1, ...; then each shard
 *     shard  0 1 2 3   goes to all (allreduce), to the root (reduce), or stays (reduce-scatter)
 *
 * Traffic, MAPPED: elements loaded and stored by a rank per element of the n of the message, L
 * ranks, as the executor does it (a reduction stores to all its destinations in one pass). No byte
 * is copied in between, so counters.bytes_copied and bytes_sent do not change
 * (tests/unit/lib/job/test_lib_mapped.c).
 *
 *                                        loads             stores          sum, L = 2
 *     allreduce, in place or not         L * 1/L = 1       L * 1/L = 1     2
 *     reduce_scatter                     L * 1/L = 1       1/L             1.5
 *     reduce, the root                   1                 1/L             1.5
 *     reduce, others (TMP and its DST)   1                 2/L             2
 *
 * In place, what is stored has just been loaded, so every line moves once. Out of place, the lines
 * of DST are loaded for ownership before they are written, L * 1/L more, except with streaming
 * stores. With more than 8 ranks a reduction takes ceil(L/8) passes and keeps intermediate values
 * in TMP: 2/L more per further pass, and the result is stored to 8 destinations at a time. */
#include "algorithms/collectives/direct.h"
#include "algorithms/patterns/intra_node.h"

void twill_emit_direct_allreduce(struct twill_emitter *e, const struct twill_shape *shape)
{
    if (!twill_protocol_is_sharded(shape->protocol)) {
        twill_emit_node_reduce_all(e, shape->protocol);
        return;
    }
    struct twill_shards shards = {.count = e->world->size, .each = 1};
    enum twill_space final = twill_node_final_space(shape->protocol, shards.count);
    twill_emit_node_reduce_scatter(e, shape->protocol, shards, final, TWILL_STEP_FINAL);
    twill_emit_node_allgather(e, shape->protocol, shards, final);
}

void twill_emit_direct_reduce_scatter(struct twill_emitter *e, const struct twill_shape *shape)
{
    struct twill_group g = twill_group_node(e);
    struct twill_shards shards = {.count = g.size, .each = 1};
    enum twill_space final = twill_node_final_space(shape->protocol, g.size);
    twill_emit_node_reduce_scatter(e, shape->protocol, shards, final, TWILL_STEP_FINAL);
    if (final != TWILL_DST)
        twill_emit_copy(e, data_at(TWILL_DST, g.me), data_at(final, g.me), 0, 1, 0);
    if (shape->protocol == TWILL_PROTOCOL_MAPPED)
        twill_emit_node_barrier(e, 2);
}

/* Reduce shards and bring them to the root. They are reduced where the root fetches them from, or
 * before they are stored into the root's DST: the other ranks have no DST. */
static void emit_reduce_shards(struct twill_emitter *e, const struct twill_shape *shape)
{
    struct twill_group g = twill_group_node(e);
    struct twill_shards shards = {.count = g.size, .each = 1};
    bool mapped = shape->protocol == TWILL_PROTOCOL_MAPPED, root = e->rank == shape->root;
    enum twill_space final = mapped ? TWILL_TMP : TWILL_SHARED;
    if (root && g.size <= TWILL_STEP_PEERS)
        final = TWILL_DST;
    twill_emit_node_reduce_scatter(e, shape->protocol, shards, final, TWILL_STEP_FINAL);
    if (mapped && !root) {
        e->uses_peer_dst = true;
        twill_emit_copy(e, data_at(TWILL_DST | TWILL_PEER, g.me), data_at(TWILL_TMP, g.me),
                        shape->root, 1, 0);
    }
    if (root && final != TWILL_DST)
        twill_emit_copy(e, data_at(TWILL_DST, g.me), data_at(final, g.me), 0, 1, 0);
    if (!root || mapped)
        twill_emit_signal(e);
    if (root || mapped) /* MAPPED: peers read SRC until then */
        twill_emit_await(e, &g, 2, 0);
    for (uint32_t i = 1; i < g.size && root && !mapped; i++) {
        uint32_t peer = (g.me + i) % g.size;
        twill_emit_copy(e, data_at(TWILL_DST, peer), data_at(TWILL_SHARED | TWILL_PEER, peer), peer,
                        1, 0);
    }
}

void twill_emit_direct_reduce(struct twill_emitter *e, const struct twill_shape *shape)
{
    if (twill_protocol_is_sharded(shape->protocol))
        emit_reduce_shards(e, shape);
    else
        twill_emit_node_reduce_root(e, shape->protocol, shape->root, TWILL_STEP_FINAL);
}
