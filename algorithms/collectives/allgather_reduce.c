/* SPDX-License-Identifier: Apache-2.0 */
/* Allgather, then reduce. Every rank sends its buffer to all others and reduces all buffers itself.
 * This is naive peer-to-peer averaging, the baseline for the other algorithms. Ranks x and y
 * exchange in window (x + y) / window length. Operands can thus be reduced by rank from the left in
 * little memory, one window while the next is posted. Each rank sends P-1 messages and n(P-1)
 * bytes. No rank waits for the reduction of another.
 *
 *     0 <-> 1     each of the P(P-1)/2 pairs exchanges whole buffers
 *     |  X  |
 *     2 <-> 3 */
#include "algorithms/patterns/exchange_all.h"

/* Append the steps of an allgather, after which each rank reduces all. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    (void)shape;
    struct twill_group g = twill_group_ranks(e, 1);
    struct twill_intake in = {.blocks = 1, .by_rank = true, .sends = TWILL_INTAKE_ALL, .stride = 1};
    e->tmp_blocks = g.size > 2 ? TWILL_INTAKE_COPIES : g.size - 1;
    if (g.size == 1)
        twill_emit_alone(e, &g, TWILL_SRC);
    else
        twill_emit_intake(e, &g, &in);
}

const struct twill_algorithm twill_algorithm_allgather_reduce = {
    .name = "allgather_reduce",
    .help =
        "every rank sends everything to all others and reduces from the left: P-1 messages, n(P-1) "
        "bytes; the baseline",
    .collectives = 1u << TWILL_ALLREDUCE,
    .applies = twill_applies_everywhere,
    .emit = emit,
};
