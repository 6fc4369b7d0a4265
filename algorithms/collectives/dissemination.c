/* SPDX-License-Identifier: Apache-2.0 */
/* Dissemination barrier (Hensgen, Finkel and Manber 1988). In round k a rank notifies the rank 2^k
 * to the right that it, and all ranks that have notified it so far, have arrived. After ceil(lg P)
 * rounds of one empty message each, every rank knows that all have arrived. P need not be a power
 * of two. Where the last round does not depend on the preceding one, the two are merged.
 *
 *     0 1 2 3 4    distances 1, 2, 4: 0 is notified by 4; then by 3 of 3 and 2; then by 1 of 1 */
#include "algorithms/schedule/emit.h"

/* Append the steps of the dissemination barrier. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    (void)shape;
    struct twill_group g = twill_group_world(e, 0);
    for (uint32_t bit = 1; bit < g.size; bit *= 2) {
        twill_emit_send(e, g.rank[(g.me + bit) % g.size], 0, 0, 0);
        twill_emit_recv(e, g.rank[(g.me + g.size - bit) % g.size], 0, 0, 0);
        if (!(2 * bit < g.size && g.size <= 3 * bit))
            twill_emit_wait(e);
    }
}

const struct twill_algorithm twill_algorithm_dissemination = {
    .name = "dissemination",
    .help = "an empty message to the rank 1, 2, 4, ... further on: ceil(lg P) rounds (Hensgen, "
            "Finkel and Manber 1988)",
    .collectives = 1u << TWILL_BARRIER,
    .applies = twill_applies_everywhere,
    .emit = emit,
};
