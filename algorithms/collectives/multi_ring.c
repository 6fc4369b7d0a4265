/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-ring. There are k rings at once, each with a fraction of the buffer. Patarasuk and Yuan
 * (2009) show that a ring uses a whole fabric. Several rings use all its links, as in NCCL. Each
 * ring has its own lane. All visit the ranks node by node, every other ring in the opposite
 * direction, and each enters a node at a different rank. The crossings between nodes are thus
 * spread over ranks (and the NICs near them) and over both directions of the links. It takes 2(P-1)
 * rounds and 2n(P-1)/P bytes, as one ring does. A rank has up to 2k peers.
 *
 *     two nodes of four, ring 0:  0 -> 1 -> 2 -> 3 -> 4 -> 5 -> 6 -> 7 -> 0
 *                        ring 1:  2 <- 3 <- 0 <- 1 <- 6 <- 7 <- 4 <- 5 <- 2 */
#include "algorithms/collectives/cores.h"

#include <stdlib.h>

/* Return the number of rings, as requested or 2. */
static uint32_t rings_of(const struct twill_shape *shape)
{
    return shape->parameter[0] == 0 ? 2 : shape->parameter[0];
}

/* Return whether there are lanes for the rings, and operands may be in any order. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    (void)world;
    return shape->order == TWILL_ORDER_ANY && rings_of(shape) <= TWILL_SCHEDULE_LANES;
}

/* Store the ranks in the order of ring number j of k. Returns the position of rank `me` in it. */
static uint32_t order_ring(uint32_t *ranks, const struct twill_world *w, uint32_t me, uint32_t j,
                           uint32_t k)
{
    uint32_t mine = 0;
    for (uint32_t at = 0; at < w->size;) {
        uint32_t first = at, size = w->node_size[w->node[w->order[at]]];
        uint32_t turn = (uint32_t)((uint64_t)j * size / k);
        for (uint32_t l = 0; l < size; l++, at++) {
            uint32_t rank = w->order[first + (l + turn) % size];
            uint32_t position = j % 2 == 0 ? at : w->size - 1 - at;
            ranks[position] = rank;
            if (rank == me)
                mine = position;
        }
    }
    return mine;
}

/* Append the steps of several rings, one in each lane. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    const struct twill_world *world = e->world;
    uint32_t rings = rings_of(shape), size = world->size;
    uint32_t *ranks = malloc(size * sizeof(*ranks));
    if (ranks == NULL) {
        e->no_memory = true;
        return;
    }
    e->blocks = size * rings;
    e->tmp_blocks = size < 3 ? 0 : e->blocks;
    if (size == 1) {
        struct twill_group g = twill_group_world(e, e->blocks);
        twill_emit_alone(e, &g, TWILL_SRC);
    }
    for (e->lane = 0; e->lane < rings && size > 1; e->lane++) {
        struct twill_group g = {
            .rank = ranks, .size = size, .first = e->lane * size, .blocks = size};
        g.me = order_ring(ranks, world, e->rank, e->lane, rings);
        if (twill_emit_ring(e, &g, TWILL_SRC))
            twill_emit_wait(e);
    }
    free(ranks);
}

const struct twill_algorithm twill_algorithm_multi_ring = {
    .name = "multi_ring",
    .help = "=k: k rings at once (2), in both directions, each with n/k: 2(P-1) rounds, 2n(P-1)/P "
            "bytes (Patarasuk and Yuan 2009)",
    .collectives = 1u << TWILL_ALLREDUCE,
    .parameters = 1,
    .applies = applies,
    .emit = emit,
};
