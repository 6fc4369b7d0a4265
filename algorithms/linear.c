/* SPDX-License-Identifier: Apache-2.0 */
/* Linear: everybody talks to the one whose data they are, without a way round. With a root, that is
 * a tree of one level: P-1 messages at the root, n bytes each (a broadcast) or a part each. An
 * alltoall is P-1 messages of every rank, n(P-1)/P bytes, the least there is. Behind its own rank
 * everybody begins, so that no rank is everybody's first; a few messages are under way at a time.
 * (The "basic linear" of MPI libraries; posted in this order: Bruck et al. 1997.)
 *
 *     0 1 2 3      round 1: 0->1 1->2 2->3 3->0
 *                  round 2: 0->2 1->3 2->0 3->1
 *                  round 3: 0->3 1->0 2->1 3->2
 *
 * Every message is one of the sender's parts and one of the receiver's, so parts may have any
 * sizes. Only then SRC is sent as it lies: even parts may be in place, where messages overwrite
 * SRC, so these go by way of TMP. */
#include "algorithms/tree.h"

static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    return shape->root < world->size;
}

static void emit_alltoall(struct twill_emitter *e, bool vector)
{
    uint32_t size = e->world->size, me = e->rank;
    enum twill_space from = vector ? TWILL_SRC : TWILL_TMP;
    if (!vector && size > 1) {
        e->tmp_blocks = size;
        for (uint32_t half = 0; half < 2; half++) { /* all but the own part */
            uint32_t first = half ? me + 1 : 0, blocks = half ? size - first : me;
            if (blocks > 0)
                twill_emit_copy(e, twill_operand_make(TWILL_TMP, first),
                                twill_operand_make(TWILL_SRC, first), 0, blocks, 0);
        }
    }
    for (uint32_t k = 1; k < size; k++) {
        uint32_t to = (me + k) % size, source = (me + size - k) % size;
        twill_emit_send(e, to, twill_operand_make(from, to), 1, 0);
        twill_emit_recv(e, source, twill_operand_make(TWILL_DST, source), 1, 0);
        if (k % TWILL_TREE_WINDOW == 0 && k + 1 < size)
            twill_emit_wait(e);
    }
    twill_emit_copy(e, twill_operand_make(TWILL_DST, me), twill_operand_make(TWILL_SRC, me), 0, 1,
                    0);
    if (size > 1)
        twill_emit_wait(e);
}

static twill_status emit(struct twill_schedule *schedule, const struct twill_world *world,
                         uint32_t rank, const struct twill_shape *shape, struct twill_error *error)
{
    if (shape->collective != TWILL_ALLTOALL)
        return twill_tree_emit(schedule, world, rank, shape, (uint32_t)twill_max(world->size, 2),
                               error);
    struct twill_emitter e;
    twill_emitter_begin(&e, world, rank, world->size);
    e.parts = world->size;
    emit_alltoall(&e, shape->vector);
    return twill_emitter_finish(&e, schedule, error);
}

const struct twill_algorithm twill_algorithm_linear = {
    .name = "linear",
    .help = "everybody directly, a few at a time: P-1 messages at the root, or each way in an "
            "alltoall, n(P-1)/P bytes",
    .collectives = 1u << TWILL_BROADCAST | 1u << TWILL_REDUCE | 1u << TWILL_GATHER |
                   1u << TWILL_SCATTER | 1u << TWILL_ALLTOALL,
    .applies = applies,
    .emit = emit,
};
