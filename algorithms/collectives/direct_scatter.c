/* SPDX-License-Identifier: Apache-2.0 */
/* "direct" scatter and alltoall: the root, or every rank, has a shard for each rank.
 *
 * STAGED: a rank with shards for others copies them into SHARED, without its own; when all have,
 * each rank copies its own from there. One synchronisation, two copies. A scatter is eager. MAPPED:
 * each rank reads its shards from the others' SRC, between two synchronisations: one copy.
 *
 *     scatter  0 -> 1 2 3     alltoall  0 <- 1 2 3   1 <- 2 3 0   2 <- 3 0 1   3 <- 0 1 2 */
#include "algorithms/collectives/direct.h"
#include "algorithms/patterns/intra_node.h"

static void copy_others_to_shared(struct twill_emitter *e)
{
    uint32_t me = e->rank, behind = e->world->size - me - 1;
    if (me > 0)
        twill_emit_copy(e, data_at(TWILL_SHARED, 0), data_at(TWILL_SRC, 0), 0, me, 0);
    if (behind > 0)
        twill_emit_copy(e, data_at(TWILL_SHARED, me + 1), data_at(TWILL_SRC, me + 1), 0, behind, 0);
}

void twill_emit_direct_scatter(struct twill_emitter *e, const struct twill_shape *shape)
{
    struct twill_group g = twill_group_node(e);
    bool mapped = shape->protocol == TWILL_PROTOCOL_MAPPED, root = e->rank == shape->root;
    unsigned space = mapped ? TWILL_SRC : TWILL_SHARED;
    e->uses_peer_src = mapped;
    if (root && !mapped)
        copy_others_to_shared(e);
    e->eager = true;
    if (root)
        twill_emit_signal(e);
    else
        twill_emit_await_one(e, shape->root, 1, 0);
    if (root)
        twill_emit_copy_own(e);
    else
        twill_emit_copy(e, data_at(TWILL_DST, e->rank), data_at(space | TWILL_PEER, e->rank),
                        shape->root, 1, 0);
    if (mapped && root) /* they signal when they have their shards */
        twill_emit_await(e, &g, 1, 0);
    else if (mapped)
        twill_emit_signal(e);
}

void twill_emit_direct_alltoall(struct twill_emitter *e, const struct twill_shape *shape)
{
    bool mapped = shape->protocol == TWILL_PROTOCOL_MAPPED;
    unsigned space = mapped ? TWILL_SRC : TWILL_SHARED;
    e->uses_peer_src = mapped;
    struct twill_group g = twill_group_node(e);
    if (!mapped)
        copy_others_to_shared(e);
    twill_emit_signal(e);
    if (!mapped) /* while the others arrive */
        twill_emit_copy_own(e);
    twill_emit_await(e, &g, 1, 0);
    if (mapped)
        twill_emit_copy_own(e);
    twill_emit_copy_from_others(e, space, e->rank);
    if (mapped)
        twill_emit_node_barrier(e, 2);
}
