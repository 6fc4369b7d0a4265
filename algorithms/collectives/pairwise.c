/* SPDX-License-Identifier: Apache-2.0 */
/* Pairwise: every rank exchanges with every other one, each with its own part (Thakur, Rabenseifner
 * and Gropp 2005).
 *
 * Alltoall and allgather: in turn k to the k-th rank on the right and from the k-th on the left.
 * Reduce-scatter: part r goes from everybody to rank r, raw, and is folded there; allreduce: then
 * an allgather. Some turns are under way at once. Messages P-1 (allreduce 2(P-1)), bytes n(P-1)/P
 * (2n(P-1)/P), all ranks are talked to.
 *
 *     turn 0: 0->1 1->2 2->3 3->0     turn 1: 0->2 1->3 2->0 3->1     turn 2: 0->3 1->0 2->1 3->2
 *
 * Where the order matters the peers are taken by rank, all from the left on, x and y at time x + y:
 * twice the time, but folded ((0 op 1) op 2) op ... everywhere. */
#include "algorithms/schedule/emit.h"

/* What comes has the place of the part it is folded into; or any part, if all are alike. */
static void emit_reduce_scatter(struct twill_emitter *e, const struct twill_group *g,
                                const struct twill_shape *shape)
{
    bool alike = e->shards > 1 && !shape->vector;
    struct twill_intake in = {.first = twill_group_block(g, g->me),
                              .blocks = 1,
                              .by_rank = shape->order != TWILL_ORDER_ANY,
                              .give = TWILL_GIVE_SHARD,
                              .tmp = alike ? 0 : twill_group_block(g, g->me),
                              .stride = alike ? 1 : e->blocks};
    if (g->size > 2)
        e->tmp_blocks = !alike ? TWILL_INTAKE_COPIES * e->blocks
                               : (TWILL_INTAKE_COPIES + e->blocks - 1) / e->blocks * e->blocks;
    twill_emit_intake(e, g, &in);
}

static twill_status emit(struct twill_schedule *schedule, const struct twill_world *world,
                         uint32_t rank, const struct twill_shape *shape, struct twill_error *error)
{
    const struct twill_collective_facts *facts = twill_collective_facts(shape->collective);
    struct twill_emitter e;
    twill_emitter_begin(&e, world, rank, world->size);
    e.shards = facts->sharded ? world->size : 1;
    struct twill_group g = twill_group_ranks(&e, e.blocks);
    if (!facts->reduces || world->size == 1)
        twill_emit_copy(&e, twill_operand_make(TWILL_DST, rank),
                        twill_operand_make(TWILL_SRC, rank), 0, 1, 0);
    else
        emit_reduce_scatter(&e, &g, shape);
    if (facts->dst == TWILL_HOLDS_ALL)
        twill_emit_exchange(&e, &g, shape->collective == TWILL_ALLTOALL ? TWILL_SRC : TWILL_DST);
    return twill_emitter_finish(&e, schedule, error);
}

const struct twill_algorithm twill_algorithm_pairwise = {
    .name = "pairwise",
    .help = "every rank with every other one, a part each: P-1 messages (allreduce: 2(P-1)), "
            "n(P-1)/P bytes (2n(P-1)/P) (Thakur, Rabenseifner and Gropp 2005)",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_REDUCE_SCATTER | 1u << TWILL_ALLGATHER |
                   1u << TWILL_ALLTOALL,
    .applies = twill_applies_everywhere,
    .emit = emit,
};
