/* SPDX-License-Identifier: Apache-2.0 */
/* Ring allreduce: reduce-scatter, then allgather, around a ring (Patarasuk and Yuan 2009).
 *
 * The buffer has one part per rank. In round k of the first half a rank sends part (me - k) to its
 * right and folds part (me - k - 1), which comes from its left, with its own; after P-1 rounds it
 * holds part (me + 1) complete. In the second half the complete parts travel round once more.
 * Rounds 2(P-1), bytes sent 2n(P-1)/P, the least there is; only the two neighbours are talked to.
 * The order is node by node, so a ring crosses between nodes once per node.
 *
 *     0 -> 1 -> 2 -> 3      part 0 starts at rank 0 as {0}, is {01} on 1, {012} on 2,
 *     ^______________|      complete on 3, and goes from 3 to 0, 1 and 2
 *
 * The first send of a part reads `from`; what was folded is in DST. So nothing is copied out of
 * place, and the same steps are right in place. */
#include "algorithms/emit.h"

bool twill_emit_ring(struct twill_emitter *e, const struct twill_group *g, enum twill_space from)
{
    uint32_t n = g->size, each = g->blocks / n;
    if (n == 1) {
        twill_emit_copy(e, twill_operand_make(TWILL_DST, g->first),
                        twill_operand_make(from, g->first), 0, g->blocks, 0);
        return false;
    }
    uint32_t right = g->rank[(g->me + 1) % n], left = g->rank[(g->me + n - 1) % n];
    for (uint32_t k = 0; k < 2 * (n - 1); k++) {
        /* part sent; the one received is left of it */
        uint32_t out = g->first + (g->me + 2 * n - k) % n * each;
        uint32_t in = g->first + (g->me + 2 * n - k - 1) % n * each;
        twill_operand dst = twill_operand_make(TWILL_DST, in);
        twill_emit_send(e, right, twill_operand_make(k == 0 ? from : TWILL_DST, out), each, 0);
        if (k < n - 1)
            twill_emit_recv_reduce(e, left, dst, twill_operand_make(from, in), each,
                                   TWILL_STEP_FIRST | (k == n - 2 ? TWILL_STEP_FINAL : 0));
        else
            twill_emit_recv(e, left, dst, each, 0);
        if (k + 1 < 2 * (n - 1))
            twill_emit_wait(e);
    }
    return true;
}

static twill_status emit(struct twill_schedule *schedule, const struct twill_world *world,
                         uint32_t rank, const struct twill_shape *shape, struct twill_error *error)
{
    (void)shape;
    struct twill_emitter e;
    twill_emitter_begin(&e, world, rank, world->size);
    struct twill_group g = twill_group_world(&e, world->size);
    if (twill_emit_ring(&e, &g, TWILL_SRC))
        twill_emit_wait(&e);
    return twill_emitter_finish(&e, schedule, error);
}

const struct twill_algorithm twill_algorithm_ring = {
    .name = "ring",
    .help = "reduce-scatter and allgather round a ring: 2(P-1) rounds, 2n(P-1)/P bytes, two peers "
            "(Patarasuk and Yuan 2009)",
    .collectives = 1u << TWILL_ALLREDUCE,
    .applies = twill_applies_everywhere,
    .emit = emit,
};
