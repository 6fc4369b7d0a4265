/* SPDX-License-Identifier: Apache-2.0 */
/* "direct" with FETCHED: a system call reads a peer's SRC or DST, and no rank writes there. A
 * synchronisation before the reads ensures that the data are there, one after them that no rank
 * changes data still being read. Each rank reads what it lacks, once.
 *
 * Allgather, alltoall, scatter and broadcast: from SRC, (P-1)/P n read by each rank, without an
 * intermediate copy. Gather: the root reads. Reduce-scatter: rank i reduces shard i of all ranks'
 * SRC, read in short ranges. Allreduce: the same, then the shards are read from their owners' DST,
 * with two more synchronisations: 2n(P-1)/P read. There is no reduce: it would need a DST that only
 * the root has.
 *
 *     rank  0 1 2 3   0 reduces shard 0 of 0 1 2 3, ...; then 0 reads shard 1 from 1, 2 from 2, ...
 *
 * Such single-copy collectives were introduced with KNEM and LiMIC (Ma, Bosilca, Bouteiller,
 * Goglin, Squyres and Dongarra 2011); process_vm_readv exists since Linux 3.2. */
#include "algorithms/collectives/direct.h"
#include "algorithms/patterns/intra_node.h"

/* Reduce the own shard of all ranks' SRC into DST. */
static void reduce_own(struct twill_emitter *e)
{
    struct twill_group g = twill_group_node(e);
    e->uses_peer_src = true;
    twill_emit_node_barrier(e, 1);
    twill_emit_reduce_complete(e, &g, data_at(TWILL_DST, e->rank),
                               data_at(g.size > TWILL_STEP_PEERS ? TWILL_TMP : TWILL_DST, e->rank),
                               data_at(TWILL_SRC | TWILL_PEER, e->rank), 1, 0);
    twill_emit_node_barrier(e, 2);
}

static void emit_allreduce(struct twill_emitter *e)
{
    reduce_own(e);
    e->uses_peer_dst = true;
    twill_emit_copy_from_others(e, TWILL_DST, TWILL_OF_OWNER);
    twill_emit_node_barrier(e, 3);
}

/* Every rank reads from all others' SRC. */
static void emit_exchange(struct twill_emitter *e, uint32_t block)
{
    e->uses_peer_src = true;
    twill_emit_node_barrier(e, 1);
    twill_emit_copy_own(e);
    twill_emit_copy_from_others(e, TWILL_SRC, block);
    twill_emit_node_barrier(e, 2);
}

/* The others read the root's SRC: all of it, or their shard, and signal the root when they are
 * done. */
static void emit_from_root(struct twill_emitter *e, const struct twill_shape *shape)
{
    struct twill_group g = twill_group_node(e);
    uint32_t block = shape->collective == TWILL_SCATTER ? e->rank : 0;
    e->uses_peer_src = true;
    twill_emit_node_barrier(e, 1);
    if (e->rank == shape->root) {
        twill_emit_copy(e, data_at(TWILL_DST, block), data_at(TWILL_SRC, block), 0, 1, 0);
        twill_emit_await(e, &g, 2, 0);
        return;
    }
    twill_emit_copy(e, data_at(TWILL_DST, block), data_at(TWILL_SRC | TWILL_PEER, block),
                    shape->root, 1, 0);
    twill_emit_signal(e);
}

static void emit_gather(struct twill_emitter *e, const struct twill_shape *shape)
{
    e->uses_peer_src = true;
    twill_emit_node_barrier(e, 1);
    if (e->rank != shape->root) {
        twill_emit_await_one(e, shape->root, 2, 0);
        return;
    }
    twill_emit_copy_own(e);
    twill_emit_copy_from_others(e, TWILL_SRC, TWILL_OF_OWNER);
    twill_emit_signal(e);
}

void twill_emit_direct_fetched(struct twill_emitter *e, const struct twill_shape *shape)
{
    switch (shape->collective) {
    case TWILL_ALLREDUCE:
        emit_allreduce(e);
        break;
    case TWILL_REDUCE_SCATTER:
        reduce_own(e);
        break;
    case TWILL_ALLGATHER:
        emit_exchange(e, TWILL_OF_OWNER);
        break;
    case TWILL_ALLTOALL:
        emit_exchange(e, e->rank);
        break;
    case TWILL_GATHER:
        emit_gather(e, shape);
        break;
    default: /* broadcast, scatter */
        emit_from_root(e, shape);
        break;
    }
}
