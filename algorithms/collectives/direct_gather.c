/* SPDX-License-Identifier: Apache-2.0 */
/* "direct" allgather and gather: every rank's shard to all ranks, or to the root.
 *
 * IMM and STAGED: each rank publishes its shard, in its IMM line or in SHARED; when all have, the
 * receivers copy: one synchronisation, two copies. A gather is eager: a rank that only contributes
 * does not wait. MAPPED: one copy from SRC to DST, between two synchronisations. In an allgather
 * each rank reads the shards it lacks; in a gather each rank writes its shard into the root's DST:
 * all copy at once.
 *
 *     allgather  0 <- 1 2 3   1 <- 2 3 0   2 <- 3 0 1   3 <- 0 1 2     gather  1 2 3 -> 0
 *
 * Traffic of a MAPPED allgather: loads and stores of a rank per element of the n of all shards: 1
 * and 1 out of place, (L-1)/L and (L-1)/L in place, where its own shard is there. Owners could
 * store their shards to all others instead (loads 1/L; a quarter less time from 1 MiB up out of
 * place, measured); but then a rank's result would be in the others' caches instead of its own.
 * Broadcast (direct.c): the same in place, also on the root. */
#include "algorithms/collectives/direct.h"
#include "algorithms/patterns/intra_node.h"

static void publish_own(struct twill_emitter *e, enum twill_protocol protocol)
{
    if (protocol == TWILL_PROTOCOL_IMM) {
        twill_emit_put_imm(e, data_at(TWILL_SRC, e->rank), 0);
        return;
    }
    twill_emit_copy(e, data_at(TWILL_SHARED, e->rank), data_at(TWILL_SRC, e->rank), 0, 1, 0);
    twill_emit_signal(e);
}

static void await_and_copy(struct twill_emitter *e, enum twill_protocol protocol)
{
    struct twill_group g = twill_group_node(e);
    bool imm = protocol == TWILL_PROTOCOL_IMM;
    twill_emit_copy_own(e); /* while the others arrive */
    twill_emit_await(e, &g, !imm, imm ? TWILL_STEP_IMM : 0);
    twill_emit_copy_from_others(e, imm ? TWILL_IMM : TWILL_SHARED, imm ? 0 : TWILL_OF_OWNER);
}

void twill_emit_direct_allgather(struct twill_emitter *e, const struct twill_shape *shape)
{
    if (shape->protocol != TWILL_PROTOCOL_MAPPED) {
        publish_own(e, shape->protocol);
        await_and_copy(e, shape->protocol);
        return;
    }
    e->uses_peer_src = true;
    twill_emit_node_barrier(e, 1);
    twill_emit_copy_own(e);
    twill_emit_copy_from_others(e, TWILL_SRC, TWILL_OF_OWNER);
    twill_emit_node_barrier(e, 2);
}

void twill_emit_direct_gather(struct twill_emitter *e, const struct twill_shape *shape)
{
    struct twill_group g = twill_group_node(e);
    bool root = e->rank == shape->root;
    e->eager = true;
    if (shape->protocol != TWILL_PROTOCOL_MAPPED && root) {
        await_and_copy(e, shape->protocol);
        return;
    }
    if (shape->protocol != TWILL_PROTOCOL_MAPPED) {
        publish_own(e, shape->protocol);
        return;
    }
    e->uses_peer_dst = true;
    if (root)
        twill_emit_signal(e);
    else
        twill_emit_await_one(e, shape->root, 1, 0);
    twill_emit_copy(e, data_at(root ? TWILL_DST : TWILL_DST | TWILL_PEER, e->rank),
                    data_at(TWILL_SRC, e->rank), shape->root, 1, 0);
    if (root) /* they signal when they have stored their shards */
        twill_emit_await(e, &g, 1, 0);
    else
        twill_emit_signal(e);
}
