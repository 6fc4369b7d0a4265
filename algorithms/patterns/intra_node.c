/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns for the ranks of one node, in four protocols. "direct" and the composer use them.
 * Copies of SHARED and IMM alternate, and no pattern waits at its end until others have read. Where
 * every rank awaits every other this is safe, because no rank ends before all ranks of its node
 * have started. When a rank reuses a copy, all ranks have started a later instance, and hence are
 * done with the earlier one. A rank that writes to SHARED of a peer has also been signalled that
 * the peer has started this instance, and hence is done with what it had there. The verifier checks
 * all three conditions.
 *
 * Patterns in which data flow one way only (broadcast, reduce to a root) are eager. A rank that
 * only contributes ends when it has contributed, and no rank awaits those that only receive. A rank
 * may then be ahead of others by as many instances as there are copies. The executor
 * (lib/engine/request_queue.c) and the verifier hold it back when it is about to reuse a copy that
 * a peer may still use. Contributors that share a core are thus switched only once in many calls.
 *
 * STAGED allreduces return the result of a shard in the cache lines in which its contributions
 * arrived. The owner stores it into SHARED of all ranks, and each rank copies it from its own
 * SHARED. Only two ranks share such a line, and each reads it before writing it, so it already owns
 * the line. This takes one transfer between cores each way per contribution. In the owner's SHARED,
 * a result would take two more, because both kinds of lines are fetched back to be written again.
 *
 * Loads and stores of memory per rank, n bytes among L ranks, m = n(L-1)/L:
 *
 *   STAGED allreduce       m + n/L loaded of SRC, n stored to DST; m stored to SHARED, m loaded as
 *                          contributions, m stored as results, m loaded; 2m/64 lines come in
 *   STAGED reduce-scatter  n loaded of SRC, n/L stored to DST; m stored and m loaded; m/64 lines
 *   STAGED allgather       n/L loaded of SRC, n stored to DST; n/L stored and m loaded; m/64 lines
 *   FLAT allreduce         n loaded twice of SRC (the second time from the cache), n stored to DST;
 *                          n stored and (L-1)n loaded; (L-1)n/64 lines
 *
 * Operands are always reduced by rank, so that all protocols give the same bits. */
#include "algorithms/patterns/intra_node.h"

void twill_emit_node_barrier(struct twill_emitter *e, uint32_t ordinal)
{
    struct twill_group g = twill_group_node(e);
    twill_emit_signal(e);
    twill_emit_await(e, &g, ordinal, 0);
}

/* Return the first block of shard s, counted from the first shard. */
static uint32_t block_of(struct twill_shards shards, uint32_t s)
{
    return (shards.first + s) * shards.each;
}

/* Copy blocks from one space to another, except those of shards that this rank reduces. */
static void copy_others(struct twill_emitter *e, const struct twill_group *g,
                        struct twill_shards shards, enum twill_space to, enum twill_space from)
{
    uint32_t first = 0;
    for (uint32_t s = 0; s <= shards.count; s++) {
        if (s < shards.count && s % g->size != g->me)
            continue;
        if (s > first)
            twill_emit_copy(e, data_at(to, block_of(shards, first)),
                            data_at(from, block_of(shards, first)), 0, (s - first) * shards.each,
                            0);
        first = s + 1;
    }
}

enum twill_space twill_node_final_space(enum twill_protocol protocol, uint32_t ranks)
{
    if (ranks <= TWILL_STEP_PEERS)
        return TWILL_DST;
    return protocol == TWILL_PROTOCOL_STAGED ? TWILL_SHARED : TWILL_TMP;
}

void twill_emit_node_reduce_scatter(struct twill_emitter *e, enum twill_protocol protocol,
                                    struct twill_shards shards, enum twill_space to, unsigned flags)
{
    struct twill_group g = twill_group_node(e);
    bool mapped = protocol == TWILL_PROTOCOL_MAPPED;
    unsigned source = (mapped ? TWILL_SRC : TWILL_SHARED) | TWILL_PEER;
    if (mapped)
        e->uses_peer_src = true;
    else
        copy_others(e, &g, shards, TWILL_SHARED, TWILL_SRC);
    twill_emit_node_barrier(e, 1);
    for (uint32_t s = g.me; s < shards.count; s += g.size)
        twill_emit_reduce(e, &g, data_at(to, block_of(shards, s)),
                          data_at(source, block_of(shards, s)), shards.each,
                          flags | (mapped ? 0 : TWILL_STEP_OWN_SRC));
}

/* Copy the shards of this rank, while in the cache, from the space `from` to the space `to` of all
 * other ranks of the node. Copy them also to its own DST, unless that is `from`. */
static void distribute_result(struct twill_emitter *e, const struct twill_group *g,
                              struct twill_shards shards, enum twill_space to,
                              enum twill_space from)
{
    for (uint32_t i = from == TWILL_DST; i < g->size; i++)
        for (uint32_t s = g->me; s < shards.count; s += g->size)
            twill_emit_copy(
                e, data_at(i == 0 ? TWILL_DST : (unsigned)to | TWILL_PEER, block_of(shards, s)),
                data_at(from, block_of(shards, s)), g->rank[(g->me + i) % g->size], shards.each, 0);
}

void twill_emit_node_allgather(struct twill_emitter *e, enum twill_protocol protocol,
                               struct twill_shards shards, enum twill_space from)
{
    struct twill_group g = twill_group_node(e);
    bool mapped = protocol == TWILL_PROTOCOL_MAPPED;
    e->uses_peer_dst = e->uses_peer_dst || mapped;
    distribute_result(e, &g, shards, mapped ? TWILL_DST : TWILL_SHARED, from);
    twill_emit_node_barrier(e, 2);
    if (!mapped)
        copy_others(e, &g, shards, TWILL_DST, TWILL_SHARED);
}

/* Copy the data in `space` of this rank to where the other ranks of the node read them. With IMM
 * that is the IMM line, for one block. With FLAT it is SHARED, for all blocks, and a SIGNAL
 * follows. */
static void publish_space(struct twill_emitter *e, enum twill_protocol protocol, unsigned space)
{
    if (protocol == TWILL_PROTOCOL_IMM) {
        twill_emit_put_imm(e, data_at(space, 0), 0);
        return;
    }
    twill_emit_copy(e, data_at(TWILL_SHARED, 0), data_at(space, 0), 0, e->blocks, 0);
    twill_emit_signal(e);
}

/* Return the space from which ranks read what a peer has published by this protocol, which is
 * IMM|PEER with IMM, else SHARED|PEER. */
static unsigned published_space(enum twill_protocol protocol)
{
    return (protocol == TWILL_PROTOCOL_IMM ? TWILL_IMM : TWILL_SHARED) | TWILL_PEER;
}

/* Return the flags of an AWAIT of published data, which are TWILL_STEP_IMM with IMM, else 0. */
static unsigned await_flags(enum twill_protocol protocol)
{
    return protocol == TWILL_PROTOCOL_IMM ? TWILL_STEP_IMM : 0;
}

/* Return the ordinal of an AWAIT of what a peer has published first. It is 1, for the first SIGNAL
 * of the peer. With IMM it is 0, because IMM lines are not counted. */
static uint32_t first_ordinal(enum twill_protocol protocol)
{
    return protocol == TWILL_PROTOCOL_IMM ? 0 : 1;
}

/* Wait until a peer has published its data and copy them into DST. */
static void fetch_result(struct twill_emitter *e, enum twill_protocol protocol, uint32_t peer)
{
    twill_emit_await_one(e, peer, first_ordinal(protocol), await_flags(protocol));
    twill_emit_copy(e, data_at(TWILL_DST, 0), data_at(published_space(protocol), 0), peer,
                    e->blocks, 0);
}

void twill_emit_node_reduce_all(struct twill_emitter *e, enum twill_protocol protocol)
{
    struct twill_group g = twill_group_node(e);
    publish_space(e, protocol, TWILL_SRC);
    twill_emit_await(e, &g, first_ordinal(protocol), await_flags(protocol));
    /* Peers may still be fetching what this rank has published, so it reads its SRC. */
    twill_emit_reduce_complete(e, &g, data_at(TWILL_DST, 0), data_at(TWILL_TMP, 0),
                               data_at(published_space(protocol), 0), e->blocks,
                               TWILL_STEP_OWN_SRC);
}

void twill_emit_node_reduce_root(struct twill_emitter *e, enum twill_protocol protocol,
                                 uint32_t root, unsigned flags)
{
    struct twill_group g = twill_group_node(e);
    e->eager = true;
    if (e->rank != root) {
        publish_space(e, protocol, TWILL_SRC);
        return;
    }
    twill_emit_await(e, &g, first_ordinal(protocol), await_flags(protocol));
    twill_operand published = data_at(published_space(protocol), 0), tmp = data_at(TWILL_TMP, 0);
    if ((flags & TWILL_STEP_FINAL) != 0)
        twill_emit_reduce_complete(e, &g, data_at(TWILL_DST, 0), tmp, published, e->blocks,
                                   TWILL_STEP_OWN_SRC);
    else
        twill_emit_reduce(e, &g, tmp, published, e->blocks, TWILL_STEP_OWN_SRC);
}

void twill_emit_node_reduce(struct twill_emitter *e, enum twill_protocol protocol,
                            struct twill_shards shards, uint32_t root)
{
    struct twill_group g = twill_group_node(e);
    bool mapped = protocol == TWILL_PROTOCOL_MAPPED, gets = e->rank == root;
    if (!twill_protocol_is_sharded(protocol)) {
        twill_emit_node_reduce_root(e, protocol, root, 0);
        return;
    }
    twill_emit_node_reduce_scatter(e, protocol, shards, gets ? TWILL_TMP : TWILL_SHARED, 0);
    if (!gets || mapped)
        twill_emit_signal(e);
    if (gets || mapped) /* MAPPED: peers read SRC until then */
        twill_emit_await(e, &g, 2, 0);
    for (uint32_t i = 1; i < g.size && gets; i++) {
        uint32_t peer = (g.me + i) % g.size;
        for (uint32_t s = peer; s < shards.count; s += g.size)
            twill_emit_copy(e, data_at(TWILL_TMP, block_of(shards, s)),
                            data_at(TWILL_SHARED | TWILL_PEER, block_of(shards, s)), g.rank[peer],
                            shards.each, TWILL_STEP_PARTIAL);
    }
}

void twill_emit_node_reduce_leader(struct twill_emitter *e, enum twill_protocol protocol)
{
    struct twill_group g = twill_group_node(e);
    if (g.me != 0) {
        publish_space(e, protocol, TWILL_SRC);
        return;
    }
    twill_emit_await(e, &g, first_ordinal(protocol), await_flags(protocol));
    twill_emit_reduce(e, &g, data_at(TWILL_TMP, 0), data_at(published_space(protocol), 0),
                      e->blocks, TWILL_STEP_OWN_SRC);
}

void twill_emit_node_return_result(struct twill_emitter *e, enum twill_protocol protocol)
{
    struct twill_group g = twill_group_node(e);
    if (g.me == 0)
        publish_space(e, protocol, TWILL_DST);
    else
        fetch_result(e, protocol, g.rank[0]);
}

void twill_emit_node_gather_signals(struct twill_emitter *e)
{
    struct twill_group g = twill_group_node(e);
    if (g.me == 0)
        twill_emit_await(e, &g, 1, 0);
    else
        twill_emit_signal(e);
}

void twill_emit_node_release(struct twill_emitter *e)
{
    struct twill_group g = twill_group_node(e);
    if (g.me == 0)
        twill_emit_signal(e);
    else
        twill_emit_await_one(e, g.rank[0], 1, 0);
}

/* Publish the blocks in `from` of this rank to its node in a broadcast. STAGED copies them to
 * SHARED and IMM to the IMM line. With MAPPED peers read `from` itself, and this rank waits until
 * all have read it. */
static void publish_group(struct twill_emitter *e, const struct twill_group *g,
                          enum twill_protocol protocol, enum twill_space from)
{
    if (protocol == TWILL_PROTOCOL_STAGED)
        twill_emit_copy(e, data_at(TWILL_SHARED, 0), data_at(from, 0), 0, e->blocks, 0);
    if (protocol == TWILL_PROTOCOL_IMM)
        twill_emit_put_imm(e, data_at(from, 0), 0);
    else
        twill_emit_signal(e);
    if (protocol == TWILL_PROTOCOL_MAPPED)
        twill_emit_await(e, g, 1, 0);
}

void twill_emit_node_broadcast(struct twill_emitter *e, enum twill_protocol protocol,
                               uint32_t from_local, enum twill_space from)
{
    struct twill_group g = twill_group_node(e);
    bool mapped = protocol == TWILL_PROTOCOL_MAPPED;
    if (g.size == 1)
        return;
    e->eager = true;
    if (mapped && from == TWILL_SRC)
        e->uses_peer_src = true;
    else if (mapped)
        e->uses_peer_dst = true;
    if (g.me == from_local) {
        publish_group(e, &g, protocol, from);
        return;
    }
    uint32_t source = g.rank[from_local];
    if (!mapped) {
        fetch_result(e, protocol, source);
        return;
    }
    twill_emit_await_one(e, source, 1, 0);
    twill_emit_copy(e, data_at(TWILL_DST, 0), data_at((unsigned)from | TWILL_PEER, 0), source,
                    e->blocks, 0);
    twill_emit_signal(e);
}
