/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives of "direct" except broadcast and barrier (direct.c). First come the reductions,
 * then gather and allgather, scatter and alltoall, and all of them with FETCHED. */
#include "algorithms/collectives/direct.h"
#include "algorithms/patterns/intra_node.h"

/* In "direct" reductions the ranks of one node reduce the data of each other in place.
 *
 * In an allreduce with IMM or FLAT, each rank publishes its data and reduces the data of all ranks.
 * This takes one synchronisation, and (L-1)n bytes are read. With STAGED and MAPPED, rank i reduces
 * shard i of all ranks, then all ranks get all shards. This takes two synchronisations, and
 * 2n(L-1)/L bytes are read or written. In a reduce only the root reduces (IMM, FLAT) or gets the
 * shards, which it fetches (STAGED) or the others store (MAPPED). A reduce-scatter is the first
 * half of an allreduce.
 *
 *     rank   0 1 2 3   shard 0 of all four is reduced by 0, shard 1 by 1, ...; then each shard
 *     shard  0 1 2 3   goes to all (allreduce), to the root (reduce), or stays (reduce-scatter)
 *
 * The table has the elements that a rank loads and stores with MAPPED, per element of the message,
 * with L ranks. It follows the executor, which stores to all destinations of a reduction in one
 * pass. No byte is copied in between, so counters.bytes_copied and bytes_sent do not change
 * (tests/unit/lib/job/test_lib_mapped.c).
 *
 *                                        loads             stores          sum, L = 2
 *     allreduce, in place or not         L * 1/L = 1       L * 1/L = 1     2
 *     reduce_scatter                     L * 1/L = 1       1/L             1.5
 *     reduce, the root                   1                 1/L             1.5
 *     reduce, others (TMP and its DST)   1                 2/L             2
 *
 * In place, what is stored has just been loaded, so every line moves once. Out of place, the lines
 * of DST are loaded before they are written, L * 1/L more, except with streaming stores. With more
 * than 8 ranks a reduction takes ceil(L/8) passes with intermediate values in TMP, 2/L more. */

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

/* Reduce each shard on its owner and bring it to the root. With STAGED owners leave the results in
 * their SHARED, from which the root copies them. With MAPPED they reduce into their TMP, and store
 * the result into DST of the root. With up to TWILL_STEP_PEERS ranks the root reduces into its
 * DST. */
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

/* A "direct" allgather or gather brings the shard of every rank to all ranks, or to the root.
 *
 * With IMM and STAGED, each rank publishes its shard in its IMM line or in SHARED, and when all
 * have done so, the receivers copy. This takes one synchronisation and two copies. A gather is
 * eager, so a rank that only contributes does not wait. With MAPPED, there is one copy from SRC to
 * DST, between two synchronisations. In an allgather each rank reads the shards that it lacks. In a
 * gather each rank writes its shard into DST of the root, so all ranks copy at once.
 *
 *     allgather  0 <- 1 2 3   1 <- 2 3 0   2 <- 3 0 1   3 <- 0 1 2     gather  1 2 3 -> 0
 *
 * In a MAPPED allgather a rank loads and stores 1 element each per element of all shards out of
 * place, and (L-1)/L in place, where its own shard is already there. If owners stored their shards
 * to all others instead, a rank would load only 1/L (out of place, a quarter less time from 1 MiB
 * up), but results would be in the caches of others. A broadcast moves the same bytes in place. */

/* Copy the shard of this rank from SRC to where the other ranks of the node read it. With IMM that
 * is its IMM line, which needs no SIGNAL. Otherwise it is its SHARED, and a SIGNAL follows. */
static void publish_own(struct twill_emitter *e, enum twill_protocol protocol)
{
    if (protocol == TWILL_PROTOCOL_IMM) {
        twill_emit_put_imm(e, data_at(TWILL_SRC, e->rank), 0);
        return;
    }
    twill_emit_copy(e, data_at(TWILL_SHARED, e->rank), data_at(TWILL_SRC, e->rank), 0, 1, 0);
    twill_emit_signal(e);
}

/* Copy the shards of all ranks into DST, its own from SRC, and those of others once they are
 * published. */
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

/* In a "direct" scatter or alltoall, the root, or every rank, has a shard for each rank.
 *
 * With STAGED, a rank with shards for others copies these into SHARED. When all have done so, each
 * rank copies its own from there. This takes one synchronisation and two copies. A scatter is
 * eager. With MAPPED, each rank reads its shards from SRC of the others, between two
 * synchronisations, in one copy.
 *
 *     scatter  0 -> 1 2 3     alltoall  0 <- 1 2 3   1 <- 2 3 0   2 <- 3 0 1   3 <- 0 1 2 */

/* Copy the shards for other ranks from SRC to SHARED. */
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

/* In "direct" with FETCHED, a system call reads SRC or DST of a peer, and no rank writes there. A
 * synchronisation before the reads ensures that the data are there, one after them that no rank
 * changes data that are still being read. Each rank reads what it lacks once.
 *
 * Allgather, alltoall, scatter and broadcast read from SRC, (P-1)/P n by each rank, without an
 * intermediate copy. In a gather the root reads. In a reduce-scatter rank i reduces shard i of SRC
 * of all ranks, read in short ranges. An allreduce does the same and then reads the shards from DST
 * of their owners, with two more synchronisations, so that 2n(P-1)/P are read. There is no reduce,
 * which would need a DST that only the root has.
 *
 *     rank  0 1 2 3   0 reduces shard 0 of 0 1 2 3, ...; then 0 reads shard 1 from 1, 2 from 2, ...
 *
 * KNEM and LiMIC introduced such single-copy collectives (Ma, Bosilca, Bouteiller, Goglin, Squyres
 * and Dongarra 2011). Linux has process_vm_readv since 3.2. */

/* Reduce the shard of this rank from SRC of all ranks into its DST, between two barriers of the
 * node. */
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

/* Emit an allreduce with FETCHED. Each rank reduces its shard in its DST, from where the other
 * ranks then read it. A barrier follows. */
static void emit_allreduce(struct twill_emitter *e)
{
    reduce_own(e);
    e->uses_peer_dst = true;
    twill_emit_copy_from_others(e, TWILL_DST, TWILL_OF_OWNER);
    twill_emit_node_barrier(e, 3);
}

/* Let every rank read one block from SRC of each other rank into its DST, with FETCHED. It is block
 * number `block`, or with TWILL_OF_OWNER the block whose number is the rank that is read. Barriers
 * precede and follow the reads. */
static void emit_exchange(struct twill_emitter *e, uint32_t block)
{
    e->uses_peer_src = true;
    twill_emit_node_barrier(e, 1);
    twill_emit_copy_own(e);
    twill_emit_copy_from_others(e, TWILL_SRC, block);
    twill_emit_node_barrier(e, 2);
}

/* Emit a broadcast or scatter with FETCHED. After a barrier, each other rank reads SRC of the root,
 * all of it or its shard, and signals. The root copies its own part and awaits them. */
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

/* Emit a gather with FETCHED. After a barrier, the root copies its shard and reads those of the
 * other ranks from their SRC. Then it signals, for which they wait. */
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
