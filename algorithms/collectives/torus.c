/* SPDX-License-Identifier: Apache-2.0 */
/* 2-D torus (Mikami et al., "Massively Distributed SGD: ImageNet/ResNet-50 Training in a Flash",
 * 2018). Ranks form a grid of Y rows of X, with a ring in every row and every column. It does a
 * reduce-scatter along the rows, an allreduce of the block of each rank along the columns, and an
 * allgather along the rows. It takes 2(X-1) + 2(Y-1) = 2(X+Y-2) rounds instead of 2(P-1) of the
 * ring, and as many bytes, 2n(P-1)/P. Ranks are numbered node by node, so that a row as long as a
 * node has ranks stays inside the node.
 *
 *     0 -> 1 -> 2 ->      3x2: the sums of third 0 of the rows end on 0 and 3, which allreduce
 *     |    |    |         them, and so on; then each row gathers its three thirds
 *     3 -> 4 -> 5 -> */
#include "algorithms/collectives/cores.h"

#include <stdlib.h>

/* Return the length X of a row, which is as requested, or fits the requested Y, or makes the grid
 * as square as possible with the shorter side in rows. Returns 0 if there is none. */
static uint32_t torus_columns(const struct twill_world *world, const struct twill_shape *shape)
{
    uint32_t x = shape->parameter[0], y = shape->parameter[1], size = world->size;
    if (x == 0 && y != 0)
        x = size / y;
    for (uint32_t i = 2; shape->parameter[0] == 0 && y == 0 && i * i <= size; i++)
        if (size % i == 0)
            x = i;
    bool fits = x > 1 && size % x == 0 && size / x > 1 && (y == 0 || y == size / x);
    return fits ? x : 0;
}

/* Return whether operands may be in any order, and the ranks form a grid as the parameters of the
 * shape ask for. It has at least two rows and two columns. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    return shape->order == TWILL_ORDER_ANY && torus_columns(world, shape) > 0;
}

/* Append the steps of the torus. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    const struct twill_world *world = e->world;
    uint32_t x = torus_columns(world, shape), y = world->size / x;
    uint32_t *column = malloc(y * sizeof(*column));
    if (column == NULL) {
        e->no_memory = true;
        return;
    }
    e->blocks = e->tmp_blocks = world->size;
    uint32_t at = twill_group_world(e, e->blocks).me;
    for (uint32_t i = 0; i < y; i++)
        column[i] = world->order[i * x + at % x];
    struct twill_group along = {
        .rank = world->order + at / x * x, .size = x, .me = at % x, .blocks = e->blocks};
    struct twill_group across = {
        .rank = column, .size = y, .me = at / x, .first = at % x * y, .blocks = y};
    twill_emit_ring_reduce_scatter(e, &along, TWILL_SRC, TWILL_TMP);
    twill_emit_wait(e);
    twill_emit_ring(e, &across, TWILL_TMP);
    twill_emit_wait(e);
    twill_emit_ring_allgather(e, &along, TWILL_DST);
    twill_emit_wait(e);
    free(column);
}

const struct twill_algorithm twill_algorithm_torus = {
    .name = "torus",
    .help = "=XxY: rings along rows of X and columns of Y ranks (as square as it gets): 2(X+Y-2) "
            "rounds, 2n(P-1)/P bytes (Mikami et al. 2018)",
    .collectives = 1u << TWILL_ALLREDUCE,
    .parameters = 2,
    .applies = applies,
    .emit = emit,
};
