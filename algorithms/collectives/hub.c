/* SPDX-License-Identifier: Apache-2.0 */
/* Hub. One rank receives all buffers, reduces them and returns the result. This is a central
 * parameter server (Li et al., "Scaling Distributed Machine Learning with the Parameter Server",
 * 2014), a baseline for the other algorithms. The hub receives a few buffers at a time and reduces
 * by rank from the left, one window while the next is posted. Every other rank sends n and receives
 * n. The hub receives n(P-1) and sends n(P-1), so its link carries 2n(P-1) bytes. It takes 2(P-1)/4
 * rounds at the hub.
 *
 *     1   2   3   4
 *      \   \ /   /      all to the hub, ((((0 op 1) op 2) op 3) op 4), and back
 *       `-- 0 --' */
#include "algorithms/patterns/exchange_all.h"

/* Return whether messages prove to `rank`, when it ends, that rank `other` has started. They prove
 * it only to the hub, which receives from all ranks, so `other` does not matter. `root` points to
 * the hub's rank, a uint32_t. */
static bool hub_delivers(const void *root, uint32_t rank, uint32_t other)
{
    (void)other;
    return rank == *(const uint32_t *)root;
}

/* Send the data of this rank to the hub, and receive the result if it comes back. */
static void emit_spoke(struct twill_emitter *e, uint32_t hub, bool back)
{
    twill_emit_send(e, hub, data_at(TWILL_SRC, 0), 1, 0);
    twill_emit_wait(e); /* in place, the result overwrites the data being sent */
    if (!back)
        return;
    twill_emit_recv(e, hub, data_at(TWILL_DST, 0), 1, 0);
    twill_emit_wait(e);
}

/* Receive and reduce the data of all ranks, and send the result back to all if `back`. */
static void emit_hub(struct twill_emitter *e, const struct twill_group *g, bool back)
{
    struct twill_intake in = {
        .blocks = 1, .by_rank = true, .sends = TWILL_INTAKE_NOTHING, .stride = 1};
    twill_emit_intake(e, g, &in);
    for (uint32_t k = 0; back && k + 1 < g->size; k++) {
        size_t mark = twill_emit_mark(e);
        twill_emit_send(e, g->rank[k + (k >= g->me)], data_at(TWILL_DST, 0), 1, 0);
        twill_emit_insert_wait(e, mark);
    }
    if (back)
        twill_emit_wait(e);
}

/* Append the steps of an allreduce or reduce by one rank. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    const struct twill_world *world = e->world;
    bool back = shape->collective == TWILL_ALLREDUCE;
    struct twill_group g = twill_group_ranks(e, 1);
    e->tmp_blocks = world->size > 2 ? TWILL_INTAKE_COPIES : 0;
    if (!back)
        twill_emit_join(e, hub_delivers, &shape->root);
    if (world->size == 1)
        twill_emit_alone(e, &g, TWILL_SRC);
    else if (e->rank == shape->root)
        emit_hub(e, &g, back);
    else
        emit_spoke(e, shape->root, back);
    if (!back)
        twill_emit_await_join(e, hub_delivers, &shape->root);
}

const struct twill_algorithm twill_algorithm_hub = {
    .name = "hub",
    .help = "one rank receives all, reduces from the left and returns the result: 2n(P-1) bytes "
            "there (Li "
            "et al. 2014)",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_REDUCE,
    .applies = twill_applies_everywhere,
    .emit = emit,
};
