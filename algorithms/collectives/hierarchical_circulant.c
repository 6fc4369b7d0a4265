/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks on a circulant graph between nodes (see circulant.c), and memory within each. One rank of
 * each node is its head, the root on its node and the lowest rank on the others. In a broadcast,
 * the other ranks copy a block when their head has it, while the next one arrives. In a reduce,
 * each node first reduces to its head. It takes B - 1 + ceil(lg G) rounds for B blocks and G nodes,
 * and n bytes leave a node.
 *
 *     node 0:  0   1 (root)      broadcast  1 -> 2 -> 4 in blocks; 0 copies from 1, and 3 from 2
 *     node 1:  2   3             reduce     0 -> 1, 3 -> 2; then 4 -> 2 -> 1 in blocks
 *     node 2:  4
 *
 * With STAGED a head receives into its SHARED, from which it sends on, and all ranks of its node
 * copy. With MAPPED they copy from its SRC or DST, and it waits until they have. */
#include "algorithms/patterns/block_schedule.h"
#include "algorithms/patterns/intra_node.h"

#include <stdlib.h>

enum { HEADS_BLOCKS = 16, HEADS_MOST_BLOCKS = 4096 };

/* Return the number of blocks between nodes, as requested or HEADS_BLOCKS. */
static uint32_t blocks_of(const struct twill_shape *shape)
{
    return shape->parameter[0] == 0 ? HEADS_BLOCKS : shape->parameter[0];
}

/* Return whether there are several nodes, of which one has several ranks, and the number of blocks
 * and the order suit. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    return world->nodes > 1 && twill_world_widest(world) > 1 &&
           blocks_of(shape) <= HEADS_MOST_BLOCKS && shape->order == TWILL_ORDER_ANY;
}

/* A broadcast as a head sees it. A local variable of emit_broadcast(). */
struct head {
    bool root, alone; /* it is the root of the broadcast; its node has no other rank */
    bool mapped;
};

/* Let the ranks of the node copy blocks that their head has. With STAGED they copy from SHARED,
 * where all heads but the root have them already. With MAPPED the root has said so before. */
static void publish_blocks(struct twill_emitter *e, uint32_t block, uint32_t count, void *user)
{
    const struct head *h = user;
    twill_operand src = data_at(TWILL_SRC, block), dst = data_at(TWILL_DST, block),
                  shared = data_at(TWILL_SHARED, block);
    bool staged = !h->mapped && !h->alone;
    if (staged && h->root)
        twill_emit_copy(e, shared, src, 0, count, 0);
    if (staged || (!h->alone && !h->root))
        twill_emit_signal(e);
    if (staged && !h->root)
        twill_emit_copy(e, dst, shared, 0, count, 0);
    else if (h->root && !staged)
        twill_emit_copy(e, dst, src, 0, count, 0);
}

/* Append the steps of a rank that is not a head. It copies the blocks in the order in which its
 * head gets them. */
static void copy_from_head(struct twill_emitter *e, const struct twill_block_flow *f, bool mapped)
{
    const struct twill_group *g = f->group;
    uint32_t position = (g->me + g->size - f->root) % g->size, ordinal = 0;
    unsigned space = !mapped ? TWILL_SHARED : position == 0 ? TWILL_SRC : TWILL_DST;
    struct twill_block_schedule s = twill_block_schedule_of(g->size, position);
    for (uint32_t i = 0; i < twill_block_rounds(&s, f->blocks); i++) {
        struct twill_block_message m = {.block = i};
        if (position == 0 ? i >= f->blocks : !twill_block_at(&s, position, f->blocks, i, false, &m))
            continue;
        if (!mapped || position != 0 || ordinal == 0)
            twill_emit_await_one(e, g->rank[g->me], ++ordinal, 0);
        twill_emit_copy(e, data_at(TWILL_DST, m.block), data_at(space | TWILL_PEER, m.block),
                        g->rank[g->me], 1, 0);
    }
    if (mapped)
        twill_emit_signal(e);
}

/* Emit a broadcast between the heads, and from each to its node. */
static void emit_broadcast(struct twill_emitter *e, const struct twill_block_flow *f, bool mapped)
{
    const struct twill_group *g = f->group, node = twill_group_node(e);
    struct head h = {.root = g->me == f->root, .alone = node.size == 1, .mapped = mapped};
    bool staged = !mapped && !h.alone;
    e->eager = !h.alone;
    if (mapped && !h.alone)
        *(h.root ? &e->uses_peer_src : &e->uses_peer_dst) = true;
    if (e->rank != g->rank[g->me]) {
        copy_from_head(e, f, mapped);
        return;
    }
    if (mapped && h.root && !h.alone)
        twill_emit_signal(e);
    twill_emit_block_broadcast(e, f, staged ? TWILL_SHARED : TWILL_DST, publish_blocks, &h);
    if (staged && h.root)
        twill_emit_copy(e, data_at(TWILL_DST, 0), data_at(TWILL_SRC, 0), 0, e->blocks, 0);
    if (mapped && !h.alone)
        twill_emit_await(e, &node, 1, 0);
}

/* Emit a reduce of each node into TMP of its head, and of the heads into DST of the root. */
static void emit_reduce(struct twill_emitter *e, const struct twill_block_flow *f,
                        enum twill_protocol protocol)
{
    const struct twill_group *g = f->group;
    struct twill_shards shards = {.count = e->blocks, .each = 1};
    if (e->world->node_size[g->me] > 1)
        twill_emit_node_reduce(e, protocol, shards, g->rank[g->me]);
    else
        twill_emit_widen(e, data_at(TWILL_TMP, 0), data_at(TWILL_SRC, 0), e->blocks);
    if (e->rank == g->rank[g->me])
        twill_emit_block_reduce(e, f, TWILL_DST);
}

/* Append the steps of a broadcast or a reduce. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    const struct twill_world *w = e->world;
    uint32_t blocks = blocks_of(shape), root = w->node[shape->root];
    bool reduces = shape->collective == TWILL_REDUCE;
    bool mapped = shape->protocol == TWILL_PROTOCOL_MAPPED;
    uint32_t *heads = malloc(w->nodes * sizeof(*heads));
    if (heads == NULL) {
        e->no_memory = true;
        return;
    }
    for (uint32_t n = 0; n < w->nodes; n++)
        heads[n] = n == root ? shape->root : twill_world_member(w, n, 0);
    /* In a reduce each rank of a node has at least one block to reduce. */
    e->blocks = blocks * (reduces ? (twill_world_widest(w) + blocks - 1) / blocks : 1);
    e->tmp_blocks = reduces ? e->blocks : 0;
    e->shared_blocks = reduces || !mapped ? e->blocks : 0;
    struct twill_group g = {
        .rank = heads, .size = w->nodes, .me = w->node[e->rank], .blocks = e->blocks};
    struct twill_block_flow flow = {
        .group = &g, .root = root, .blocks = blocks, .from = reduces ? TWILL_TMP : TWILL_SRC};
    if (reduces)
        emit_reduce(e, &flow, shape->protocol);
    else
        emit_broadcast(e, &flow, mapped);
    free(heads);
}

const struct twill_algorithm twill_algorithm_hierarchical_circulant = {
    .name = "hierarchical:circulant",
    .help = "=blocks: blocks (16) on a circulant graph between the nodes, and memory within each: "
            "B - 1 + ceil(lg G) rounds",
    .collectives = 1u << TWILL_BROADCAST | 1u << TWILL_REDUCE,
    .protocols = 1u << TWILL_PROTOCOL_STAGED | 1u << TWILL_PROTOCOL_MAPPED,
    .parameters = 1,
    .applies = applies,
    .emit = emit,
};
