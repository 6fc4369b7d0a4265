/* SPDX-License-Identifier: Apache-2.0 */
/* Broadcast as a scatter and an allgather (van de Geijn; Barnett et al. 1994), for large messages.
 * The root scatters blocks, one per rank, down a binomial tree, and they go around a ring until all
 * ranks have all of them. It takes ceil(lg P) + P-1 rounds. The root sends 2n(P-1)/P bytes and no
 * rank sends more, while the root of a tree would send n lg P. A rank receives again what it has
 * forwarded down the tree.
 *
 *     0: 0 1 2 3  ->  0: 0   1: 1   2: 2   3: 3  ->  all ranks 0 1 2 3
 *     (2 forwards 3)             round a ring, as in ring.c
 *
 * If the groups of nodes have equally many ranks, the root's group scatters, columns of one rank of
 * each group broadcast, and each group gathers. Then n bytes enter each group but one, the least.
 *
 * The mirror image for reduce is reduce_scatter_gather. */
#include "algorithms/collectives/cores.h"
#include "algorithms/patterns/block_schedule.h"
#include "algorithms/patterns/knomial.h"

#include <stdlib.h>

/* Return whether this algorithm may be used, which is unless there are two ranks. Then the other
 * rank would only send back to the root the half of the message that it has received. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    (void)shape;
    return world->size != 2;
}

/* Append the steps by rows, which are groups of nodes, and columns. The root is at this position.
 */
static void emit_rows(struct twill_emitter *e, const struct twill_rows *rows, uint32_t root)
{
    const struct twill_tree t = {.group = &rows->row, .root = root % rows->row.size, .radix = 2};
    const struct twill_block_flow flow = {.group = &rows->column,
                                          .root = root / rows->row.size,
                                          .blocks = TWILL_ROW_BLOCKS,
                                          .from = TWILL_DST};
    if (rows->column.me == flow.root && twill_emit_tree_scatter(e, &t))
        twill_emit_wait(e);
    twill_emit_block_broadcast(e, &flow, TWILL_DST, NULL, NULL);
    twill_emit_circulant_allgather(e, &rows->row);
}

/* Append the steps of a broadcast by a scatter and an allgather. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    const struct twill_world *world = e->world;
    struct twill_rows rows;
    struct twill_group g = twill_group_world(e, TWILL_ROW_BLOCKS * world->size);
    struct twill_tree t = {.group = &g, .root = world->position[shape->root], .radix = 2};
    bool by_rows = twill_rows_open(&rows, e, &g, true);
    e->blocks = g.blocks = by_rows ? g.blocks : world->size;
    e->tmp_blocks = world->size > 2 ? e->blocks : 0;
    if (by_rows) {
        emit_rows(e, &rows, t.root);
        free(rows.ranks);
        return;
    }
    bool due = twill_emit_tree_scatter(e, &t);
    if (due && e->rank == shape->root) /* in place, the ring overwrites what is being sent */
        twill_emit_wait(e);
    if (twill_emit_ring_allgather(e, &g, TWILL_DST))
        twill_emit_wait(e);
}

const struct twill_algorithm twill_algorithm_scatter_allgather = {
    .name = "scatter_allgather",
    .help = "scatter down a tree, allgather round a ring: ceil(lg P) + P-1 rounds, 2n(P-1)/P bytes "
            "(Barnett et al. 1994); between equal groups of nodes by rows and columns",
    .collectives = 1u << TWILL_BROADCAST,
    .applies = applies,
    .emit = emit,
};
