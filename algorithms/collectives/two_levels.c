/* SPDX-License-Identifier: Apache-2.0 */
/* Two levels, the ranks of a node and the nodes. See hierarchical.c. */
#include "algorithms/compose/compose.h"
#include "algorithms/patterns/intra_node.h"

#include <stdlib.h>

/* Emit the allreduce among the leaders, the first rank of each node, by the method `how`. The
 * result is FINAL in DST of each leader, with nothing posted. They contribute partials in TMP, or
 * their SRC if every node has one rank. A leader alone on its node makes its partial first.
 * `blocks` is 0 in a barrier. */
static void emit_between_leaders(struct twill_emitter *e, enum twill_how how, uint32_t blocks)
{
    const struct twill_world *w = e->world;
    uint32_t node = w->node[e->rank];
    uint32_t *leaders = malloc(w->nodes * sizeof(*leaders));
    if (leaders == NULL) {
        e->no_memory = true;
        return;
    }
    bool partials = twill_world_widest(w) > 1;
    if (partials && w->node_size[node] == 1 && blocks > 0)
        twill_emit_widen(e, data_at(TWILL_TMP, 0), data_at(TWILL_SRC, 0), blocks);
    for (uint32_t n = 0; n < w->nodes; n++)
        leaders[n] = twill_world_member(w, n, 0);
    struct twill_group g = {.rank = leaders, .size = w->nodes, .me = node, .blocks = blocks};
    enum twill_space from = partials ? TWILL_TMP : TWILL_SRC;
    if (w->local[e->rank] == 0 && twill_compose_allreduce(how)(e, &g, from))
        twill_emit_wait(e);
    free(leaders);
}

/* Emit a barrier, in which the leaders of the nodes synchronise by `how`. */
static void levels_barrier(struct twill_emitter *e, enum twill_how how)
{
    bool alone = e->world->node_size[e->world->node[e->rank]] == 1;
    if (!alone)
        twill_emit_node_gather_signals(e);
    emit_between_leaders(e, how, 0);
    if (!alone)
        twill_emit_node_release(e);
}

/* Emit an allreduce, in which a leader per node reduces for its node and returns the result. */
static void emit_leaders(struct twill_emitter *e, enum twill_protocol protocol, enum twill_how how)
{
    bool alone = e->world->node_size[e->world->node[e->rank]] == 1;
    e->tmp_blocks = twill_compose_copies(how, e->world->nodes) * e->blocks;
    if (twill_world_widest(e->world) > 1 && protocol == TWILL_PROTOCOL_FLAT)
        e->shared_blocks = e->blocks;
    if (!alone)
        twill_emit_node_reduce_leader(e, protocol);
    emit_between_leaders(e, how, e->blocks);
    if (!alone)
        twill_emit_node_return_result(e, protocol);
}

void twill_emit_two_levels(struct twill_emitter *e, const struct twill_shape *shape,
                           enum twill_how how)
{
    const struct twill_level_choice choice[] = {{TWILL_LEVEL_NODE, TWILL_BY_DIRECT},
                                                {TWILL_LEVEL_ALL, (uint8_t)how}};
    bool barrier = shape->collective == TWILL_BARRIER;
    if (!barrier && twill_protocol_is_sharded(shape->protocol)) {
        twill_compose(e, shape, choice, 2);
        return;
    }
    e->blocks = twill_how_divides(how) ? e->world->nodes : 1;
    if (barrier)
        levels_barrier(e, how);
    else
        emit_leaders(e, shape->protocol, how);
}
