/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks on circulant graphs between the heads of nodes. A gate of a group sends up to 2n bytes.
 * With K lanes of n/K bytes, each with other gates, it sends n (K + 1)/K.
 *
 *     groups 0 1 2, 3 4 5 (nodes of one rank), 2 lanes, root 1
 *     lane 0   1 -> 0 2, then 0 -> 3 -> 4 5      lane 1   1 -> 0 2, then 2 -> 5 -> 3 4
 *
 * With STAGED a head receives into its SHARED, from which it sends on, and all ranks of its node
 * copy. With MAPPED they copy from its SRC or DST, and it waits until they have. */
#include "algorithms/patterns/head_blocks.h"
#include "algorithms/patterns/block_schedule.h"
#include "algorithms/patterns/intra_node.h"

#include <stdlib.h>
#include <string.h>

#define LANE_BLOCKS 4u /* a lane has at least so many, as gates send some blocks twice */

/* The groups of nodes, one for all nodes or those of the world, and the two circulant graphs of one
 * lane as a rank sees them. A local variable of twill_emit_head_blocks(). */
struct tiers {
    const struct twill_world *world;
    const uint32_t *group;          /* of each rank, or NULL for one */
    uint32_t *gates, *heads, *seen; /* [nodes] members of `outer` and `inner`, scratch */
    uint32_t *nodes;                /* [groups] number of nodes */
    uint32_t groups, most;          /* number of groups, and the largest number of nodes in one */
    uint32_t root, lanes;
    enum twill_protocol protocol;
    uint32_t gate_at; /* index in heads[] of the gate of this rank's group */
    /* Between the gates, and between the heads of the group of this rank. */
    struct twill_block_flow outer, inner;
    struct twill_group outer_group, inner_group;
    /* This rank is the head of its node; a gate; and the data pass between gates later than in its
     * group (in a reduction, earlier). */
    bool head, gate, late;
};

/* Return the number of the group of a node. */
static uint32_t group_of(const struct tiers *t, uint32_t node)
{
    return t->group == NULL ? 0 : t->group[twill_world_member(t->world, node, 0)];
}

/* Allocate the arrays of `t`, and count nodes. Returns false if out of memory. */
static bool count_nodes(struct tiers *t)
{
    uint32_t nodes = t->world->nodes;
    t->gates = malloc(nodes * sizeof(*t->gates));
    t->heads = malloc(nodes * sizeof(*t->heads));
    t->seen = malloc(nodes * sizeof(*t->seen));
    t->nodes = calloc(nodes, sizeof(*t->nodes));
    if (t->gates == NULL || t->heads == NULL || t->seen == NULL || t->nodes == NULL)
        return false;
    for (uint32_t n = 0; n < nodes; n++) {
        uint32_t g = group_of(t, n);
        t->groups = (uint32_t)twill_max(t->groups, g + 1);
        t->most = (uint32_t)twill_max(t->most, ++t->nodes[g]);
    }
    return true;
}

/* Free the arrays of `t`. */
static void release_tiers(struct tiers *t)
{
    free(t->gates);
    free(t->heads);
    free(t->seen);
    free(t->nodes);
}

/* Find the members of both graphs in a lane. Its gates are as far as possible from those of other
 * lanes, the first and the last node of a group with two. With one lane the root is a gate. */
static void find_members(struct tiers *t, uint32_t rank, uint32_t lane)
{
    const struct twill_world *w = t->world;
    uint32_t own = group_of(t, w->node[rank]), root_group = group_of(t, w->node[t->root]);
    memset(t->seen, 0, w->nodes * sizeof(*t->seen));
    for (uint32_t n = 0; n < w->nodes; n++) {
        uint32_t head = n == w->node[t->root] ? t->root : twill_world_member(w, n, 0);
        uint32_t g = group_of(t, n), i = t->seen[g]++;
        bool gate = t->lanes > 1 ? i == lane * (t->nodes[g] - 1) / (t->lanes - 1)
                                 : (g == root_group ? head == t->root : i == 0);
        if (gate)
            t->gates[g] = head;
        if (g != own)
            continue;
        t->heads[i] = head;
        if (n == w->node[rank])
            t->inner_group.me = i;
        if (gate)
            t->gate_at = i;
        if (g == root_group ? head == t->root : gate)
            t->inner.root = i;
    }
    t->head = t->heads[t->inner_group.me] == rank;
    t->gate = t->gates[own] == rank;
    t->late = own == root_group && t->gates[own] != t->root;
    t->inner_group.rank = t->heads;
    t->inner_group.size = t->nodes[own];
    t->outer_group.rank = t->gates;
    t->outer_group.size = t->groups;
    t->outer_group.me = own;
    t->outer.root = root_group;
}

/* A broadcast as a head sees it. A local variable of broadcast_lane(). */
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
 * head publishes them, all at once from SRC of the root. */
static void copy_from_head(struct twill_emitter *e, const struct twill_block_flow *f, bool mapped,
                           bool root)
{
    const struct twill_group *g = f->group;
    uint32_t position = (g->me + g->size - f->root) % g->size, ordinal = 0;
    unsigned space = !mapped ? TWILL_SHARED : root ? TWILL_SRC : TWILL_DST;
    struct twill_block_schedule s = twill_block_schedule_of(g->size, position);
    for (uint32_t i = 0; i < twill_block_rounds(&s, f->blocks); i++) {
        struct twill_block_message m = {.block = i};
        if (position == 0 ? i >= f->blocks : !twill_block_at(&s, position, f->blocks, i, false, &m))
            continue;
        if (!mapped || !root || ordinal == 0)
            twill_emit_await_one(e, g->rank[g->me], ++ordinal, 0);
        twill_emit_copy(e, data_at(TWILL_DST, g->first + m.block),
                        data_at(space | TWILL_PEER, g->first + m.block), g->rank[g->me], 1, 0);
    }
    if (mapped)
        twill_emit_signal(e);
}

/* Emit a lane of a broadcast between the gates, between the heads of each group, and from each head
 * to its node, which gets the blocks of the last graph that the head is in. */
static void broadcast_lane(struct twill_emitter *e, struct tiers *t)
{
    const struct twill_group node = twill_group_node(e);
    uint32_t head = t->heads[t->inner_group.me], first = t->inner_group.first;
    bool mapped = t->protocol == TWILL_PROTOCOL_MAPPED, only_gate = t->inner_group.size == 1;
    struct head h = {.root = head == t->root, .alone = node.size == 1, .mapped = mapped};
    bool staged = !mapped && !h.alone;
    enum twill_space to = staged ? TWILL_SHARED : TWILL_DST;
    t->inner.from = t->outer.from = h.root ? TWILL_SRC : to;
    e->eager = !h.alone;
    if (mapped && !h.alone)
        *(h.root ? &e->uses_peer_src : &e->uses_peer_dst) = true;
    if (!t->head) {
        copy_from_head(e, only_gate ? &t->outer : &t->inner, mapped, h.root);
        return;
    }
    if (mapped && h.root && !h.alone)
        twill_emit_signal(e);
    if (t->gate && !t->late)
        twill_emit_block_broadcast(e, &t->outer, to, only_gate ? publish_blocks : NULL, &h);
    twill_emit_block_broadcast(e, &t->inner, to, publish_blocks, &h);
    if (t->gate && t->late)
        twill_emit_block_broadcast(e, &t->outer, to, NULL, &h);
    if (staged && h.root)
        twill_emit_copy(e, data_at(TWILL_DST, first), data_at(TWILL_SRC, first), 0,
                        t->inner_group.blocks, 0);
    if (mapped && !h.alone)
        twill_emit_await(e, &node, 1, 0);
}

/* Emit a lane of a reduce of each node into TMP of its head, of the heads of each group into TMP of
 * its gate, and of the gates into DST of the root. If the root is no gate, its group is last, and
 * the gate there has a partial. Otherwise operands are partials if nodes or groups are reduced. */
static void reduce_lane(struct twill_emitter *e, struct tiers *t)
{
    const struct twill_group *inner = &t->inner_group;
    struct twill_shards shards = {.count = inner->blocks, .each = 1, .first = inner->first};
    bool nodes = twill_world_widest(t->world) > 1, any = nodes || t->most > 1;
    if (e->world->node_size[e->world->node[e->rank]] > 1)
        twill_emit_node_reduce(e, t->protocol, shards, t->heads[inner->me]);
    else if (nodes || (any && inner->size == 1))
        twill_emit_widen(e, data_at(TWILL_TMP, inner->first), data_at(TWILL_SRC, inner->first),
                         inner->blocks);
    if (!t->head)
        return;
    t->inner.partials.first = nodes ? 0 : t->gate_at;
    t->inner.partials.length = nodes ? inner->size : t->late;
    t->inner.from = nodes || (t->gate && t->late) ? TWILL_TMP : TWILL_SRC;
    t->inner.unfinished = t->groups > 1 && !t->late;
    t->outer.partials.length = any ? t->groups : 0;
    t->outer.from = nodes || (any && !t->late) ? TWILL_TMP : TWILL_SRC;
    t->outer.unfinished = t->late;
    if (t->gate && t->late)
        twill_emit_block_reduce(e, &t->outer, TWILL_TMP);
    twill_emit_block_reduce(e, &t->inner, t->inner.unfinished ? TWILL_TMP : TWILL_DST);
    if (t->gate && !t->late)
        twill_emit_block_reduce(e, &t->outer, TWILL_DST);
}

/* Append the steps of one lane, which has `count` of the blocks between nodes from number `first`
 * on. Each of them is `each` blocks of the message. */
static void emit_lane(struct twill_emitter *e, struct tiers *t, bool reduces, uint32_t first,
                      uint32_t count, uint32_t each)
{
    const struct twill_group blocks = {.first = first * each, .blocks = count * each};
    t->inner_group = t->outer_group = blocks;
    t->inner = (struct twill_block_flow){.group = &t->inner_group, .blocks = count};
    t->outer = (struct twill_block_flow){.group = &t->outer_group, .blocks = count};
    find_members(t, e->rank, e->lane);
    if (reduces)
        reduce_lane(e, t);
    else
        broadcast_lane(e, t);
}

void twill_emit_head_blocks(struct twill_emitter *e, const struct twill_shape *shape,
                            uint32_t blocks, const uint32_t *group)
{
    const uint32_t widest = twill_world_widest(e->world);
    const bool reduces = shape->collective == TWILL_REDUCE;
    struct tiers t = {
        .world = e->world, .group = group, .root = shape->root, .protocol = shape->protocol};
    if (!count_nodes(&t)) {
        e->no_memory = true;
        release_tiers(&t);
        return;
    }
    t.lanes = (uint32_t)twill_min(twill_min(t.most, blocks / LANE_BLOCKS), TWILL_SCHEDULE_LANES);
    if (group == NULL || t.lanes == 0)
        t.lanes = 1;
    /* In a reduce each rank of a node has at least one block of a lane to reduce. */
    uint32_t least = blocks / t.lanes, each = reduces ? (widest + least - 1) / least : 1;
    bool shares = widest > 1 && (reduces || shape->protocol != TWILL_PROTOCOL_MAPPED);
    e->blocks = blocks * each;
    e->tmp_blocks = reduces ? e->blocks : 0;
    e->shared_blocks = shares ? e->blocks : 0;
    for (e->lane = 0; e->lane < t.lanes; e->lane++) {
        uint32_t first = e->lane * blocks / t.lanes, end = (e->lane + 1) * blocks / t.lanes;
        emit_lane(e, &t, reduces, first, end - first, each);
    }
    release_tiers(&t);
}
