/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce-scatter and allgather over nodes: on each node in memory, between the nodes round a ring.
 *
 * The part of the l-th rank of a node is driven on every other node by the rank l % L there, so a
 * part crosses between nodes once for each node, and all ranks drive their share. Reduce-scatter:
 * on each node the driver folds what the node has of the part; the partial starts at the node after
 * the part's own and goes round to it. Allgather: the part goes from its node round to the last
 * one, then every driver gives the node all it drove.
 *
 *     node 0:  0  1      parts 0, 2 and 4 go round 0, 2 and 4, parts 1 and 3 round 1, 3 and 4
 *     node 1:  2  3      (a node of one rank drives both)
 *     node 2:  4
 *
 * Rounds G-1 and two synchronisations, off-node bytes per rank n (G-1)/(G L). */
#include "algorithms/hierarchical.h"

static twill_operand at(unsigned space, uint32_t block)
{
    return twill_operand_make(space, block);
}

/* Who drives a part on a node. */
static uint32_t driver(const struct twill_world *w, uint32_t part, uint32_t node)
{
    return twill_world_member(w, node, w->local[part] % w->node_size[node]);
}

/* The node `hops` further round than the one of the part. */
static uint32_t node_after(const struct twill_world *w, uint32_t part, uint32_t hops)
{
    return (w->node[part] + hops) % w->nodes;
}

/* Round the nodes, from `first` hops after a part's own node, one hop a round: sends what lies in
 * `from` for the first hop, then in `via`. Folds, if `to` is given, what this rank has itself in
 * TMP, at last into DST. */
static void go_round(struct twill_emitter *e, uint32_t first, bool folds)
{
    const struct twill_world *w = e->world;
    uint32_t node = w->node[e->rank];
    unsigned space = folds ? TWILL_TMP : TWILL_DST, partial = folds ? TWILL_STEP_PARTIAL : 0;
    for (uint32_t hop = 0; hop + 1 < w->nodes; hop++) {
        bool last = folds && hop + 2 == w->nodes;
        unsigned flags = TWILL_STEP_FIRST | TWILL_STEP_PARTIAL | TWILL_STEP_PARTIAL_OWN |
                         (last ? TWILL_STEP_FINAL : 0);
        bool any = false;
        for (uint32_t part = 0; part < w->size; part++) {
            uint32_t from = node_after(w, part, first + hop),
                     to = node_after(w, part, first + hop + 1);
            if (from == node && driver(w, part, node) == e->rank)
                twill_emit_send(e, driver(w, part, to), at(space, part), 1, partial);
            else if (to != node || driver(w, part, node) != e->rank)
                continue;
            else if (folds)
                twill_emit_recv_reduce(e, driver(w, part, from),
                                       at(last ? TWILL_DST : TWILL_TMP, part), at(TWILL_TMP, part),
                                       1, flags);
            else
                twill_emit_recv(e, driver(w, part, from), at(TWILL_DST, part), 1, 0);
            any = true;
        }
        if (any)
            twill_emit_wait(e);
    }
}

/* SRC into SHARED, but for what this rank drives. */
static void stage(struct twill_emitter *e)
{
    const struct twill_world *w = e->world;
    uint32_t node = w->node[e->rank], from = 0;
    for (uint32_t part = 0; part <= w->size; part++) {
        if (part < w->size && driver(w, part, node) != e->rank)
            continue;
        if (part > from)
            twill_emit_copy(e, at(TWILL_SHARED, from), at(TWILL_SRC, from), 0, part - from, 0);
        from = part + 1;
    }
}

void twill_emit_nodes_reduce_scatter(struct twill_emitter *e, enum twill_flavour flavour)
{
    const struct twill_world *w = e->world;
    struct twill_group g = twill_group_node(e);
    uint32_t node = w->node[e->rank];
    bool mapped = flavour == TWILL_FLAVOUR_MAPPED;
    unsigned space = (mapped ? TWILL_SRC : TWILL_SHARED) | TWILL_PEER;
    if (g.size == 1) {
        twill_emit_widen(e, at(TWILL_TMP, 0), at(TWILL_SRC, 0), e->blocks);
    } else {
        e->uses_peer_src = mapped;
        if (!mapped)
            stage(e);
        twill_emit_node_meet(e, 1);
    }
    for (uint32_t part = 0; part < w->size && g.size > 1; part++)
        if (driver(w, part, node) == e->rank)
            twill_emit_fold(e, &g, at(TWILL_TMP, part), at(space, part), 1,
                            mapped ? 0 : TWILL_STEP_OWN_SRC);
    if (mapped && g.size > 1)
        twill_emit_signal(e);
    go_round(e, 1, true);
    if (mapped)
        twill_emit_await(e, &g, 2, 0);
}

/* Parts that a driver of this node drove, to or from the others. */
static void share_out(struct twill_emitter *e, uint32_t drives, unsigned to, unsigned from,
                      uint32_t peer)
{
    for (uint32_t part = 0; part < e->world->size; part++)
        if (driver(e->world, part, e->world->node[e->rank]) == drives)
            twill_emit_copy(e, at(to, part), at(from, part), peer, 1, 0);
}

void twill_emit_nodes_allgather(struct twill_emitter *e, enum twill_flavour flavour)
{
    struct twill_group g = twill_group_node(e);
    bool mapped = flavour == TWILL_FLAVOUR_MAPPED;
    e->uses_peer_dst = mapped && g.size > 1;
    if (mapped)
        twill_emit_enter(e);
    twill_emit_copy(e, at(TWILL_DST, e->rank), at(TWILL_SRC, e->rank), 0, 1, 0);
    go_round(e, 0, false);
    if (g.size == 1)
        return;
    if (mapped)
        twill_emit_await(e, &g, 1, 0);
    else
        share_out(e, e->rank, TWILL_SHARED, TWILL_DST, e->rank);
    if (!mapped)
        twill_emit_node_meet(e, 1);
    for (uint32_t i = 1; i < g.size; i++) {
        uint32_t peer = g.rank[(g.me + i) % g.size];
        if (mapped)
            share_out(e, e->rank, TWILL_DST | TWILL_PEER, TWILL_DST, peer);
        else
            share_out(e, peer, TWILL_DST, TWILL_SHARED | TWILL_PEER, peer);
    }
    if (mapped)
        twill_emit_node_meet(e, 2);
}
