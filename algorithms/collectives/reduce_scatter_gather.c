/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce as a reduce-scatter and a gather (after Rabenseifner 2004), for large messages. Blocks,
 * one per rank, are reduced on their way around a ring, and the results are gathered up a binomial
 * tree at the root. It takes P-1 + ceil(lg P) rounds. Each rank sends n(P-1)/P bytes around the
 * ring and at most half of that up the tree, and reduces n(P-1)/P, while the root of a tree would
 * reduce n lg P.
 *
 *     all ranks 0 1 2 3  ->  0: 0   1: 1   2: 2   3: 3  ->  0: 0 1 2 3
 *                            round a ring, as in ring.c     (2 sends 3 with its own)
 *
 * If the groups of nodes have equally many ranks, each group reduce-scatters by halving, columns of
 * one rank of each group reduce, and the root's group gathers. Then n bytes leave each other group,
 * the least.
 *
 * Only the root has a DST, so the other ranks keep their final blocks in TMP. */
#include "algorithms/collectives/cores.h"
#include "algorithms/patterns/block_schedule.h"
#include "algorithms/patterns/knomial.h"

#include <stdlib.h>

/* Return whether operands may be reduced in any order. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    (void)world;
    return shape->order == TWILL_ORDER_ANY;
}

/* Append the steps by rows, which are groups of nodes, and columns. The root is at this position.
 */
static void emit_rows(struct twill_emitter *e, const struct twill_rows *rows, uint32_t root)
{
    const struct twill_tree t = {.group = &rows->row, .root = root % rows->row.size, .radix = 2};
    const struct twill_block_flow flow = {.group = &rows->column,
                                          .root = root / rows->row.size,
                                          .blocks = TWILL_ROW_BLOCKS,
                                          .from = TWILL_TMP,
                                          .partials = {.length = rows->column.size}};
    bool here = rows->column.me == flow.root;
    twill_emit_circulant_reduce_scatter(e, &rows->row, TWILL_SRC, TWILL_TMP);
    twill_emit_block_reduce(e, &flow, here && rows->row.me == t.root ? TWILL_DST : TWILL_TMP);
    if (here)
        twill_emit_tree_gather(e, &t, TWILL_TMP);
}

/* Append the steps of a reduce by a reduce-scatter and a gather. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    const struct twill_world *world = e->world;
    struct twill_rows rows;
    struct twill_group g = twill_group_world(e, TWILL_ROW_BLOCKS * world->size);
    struct twill_tree t = {.group = &g, .root = world->position[shape->root], .radix = 2};
    bool by_rows = twill_rows_open(&rows, e, &g, true);
    e->blocks = g.blocks = by_rows ? g.blocks : world->size;
    e->tmp_blocks = world->size > 1 ? e->blocks : 0;
    if (by_rows) {
        emit_rows(e, &rows, t.root);
        free(rows.ranks);
        return;
    }
    bool root = e->rank == shape->root;
    bool due = twill_emit_ring_reduce_scatter_final(e, &g, TWILL_SRC, root ? TWILL_DST : TWILL_TMP);
    /* The ring no longer uses what the root receives next, unless it is SRC, in place. */
    if (due && (!root || world->size == 2))
        twill_emit_wait(e);
    twill_emit_tree_gather(e, &t, TWILL_TMP);
}

const struct twill_algorithm twill_algorithm_reduce_scatter_gather = {
    .name = "reduce_scatter_gather",
    .help =
        "reduce-scatter round a ring, gather up a tree: P-1 + ceil(lg P) rounds, at most "
        "3n/2 bytes (after Rabenseifner 2004); between equal groups of nodes by rows and columns",
    .collectives = 1u << TWILL_REDUCE,
    .applies = applies,
    .emit = emit,
};
