/* SPDX-License-Identifier: Apache-2.0 */
/* Direct: all ranks share a node and read each other's data where they lie.
 *
 * IMM and FLAT: everybody shows its data and folds everybody's; one synchronisation, (L-1)n read.
 * STAGED and MAPPED: rank i folds part i of everybody (a reduce-scatter), then everybody gets all
 * parts (an allgather): two synchronisations, 2n(L-1)/L read or written. STAGED goes through the
 * staging memory, MAPPED copies nothing in between: it reads SRC and writes DST of the peers.
 * Broadcast: the root shows, the others copy. Barrier: signal, await all. */
#include "algorithms/emit.h"

static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    if (world->nodes != 1)
        return false;
    if (shape->collective == TWILL_BROADCAST)
        return shape->root < world->size && shape->flavour != TWILL_FLAVOUR_FLAT;
    return true;
}

static void emit_allreduce(struct twill_emitter *e, enum twill_flavour flavour)
{
    bool sliced = twill_flavour_is_sharded(flavour);
    uint32_t size = e->world->size;
    e->blocks = sliced ? size : 1;
    if (flavour == TWILL_FLAVOUR_STAGED || flavour == TWILL_FLAVOUR_FLAT)
        e->shared_blocks = e->blocks;
    if (flavour != TWILL_FLAVOUR_STAGED && size > TWILL_STEP_PEERS)
        e->tmp_blocks = e->blocks;
    if (!sliced) {
        twill_emit_node_fold_all(e, flavour);
        return;
    }
    struct twill_shards shards = {.count = size, .each = 1};
    enum twill_space final = twill_node_final_space(flavour, size);
    twill_emit_node_reduce_scatter(e, flavour, shards, final, TWILL_STEP_FINAL);
    twill_emit_node_allgather(e, flavour, shards, final);
}

static void emit_broadcast(struct twill_emitter *e, const struct twill_shape *shape)
{
    if (shape->flavour == TWILL_FLAVOUR_STAGED)
        e->shared_blocks = 1;
    if (e->rank == shape->root) /* before others read: in place it is the same memory */
        twill_emit_copy(e, twill_operand_make(TWILL_DST, 0), twill_operand_make(TWILL_SRC, 0), 0, 1,
                        0);
    twill_emit_node_broadcast(e, shape->flavour, e->world->local[shape->root], TWILL_SRC);
}

static twill_status emit(struct twill_schedule *schedule, const struct twill_world *world,
                         uint32_t rank, const struct twill_shape *shape, struct twill_error *error)
{
    struct twill_emitter e;
    twill_emitter_begin(&e, world, rank, 1);
    struct twill_group node = twill_group_node(&e);
    if (shape->collective == TWILL_BARRIER && world->size > 1) {
        twill_emit_signal(&e);
        twill_emit_await(&e, &node, 1, 0);
    } else if (world->size == 1 && shape->collective != TWILL_BARRIER) {
        twill_emit_copy(&e, twill_operand_make(TWILL_DST, 0), twill_operand_make(TWILL_SRC, 0), 0,
                        1, 0);
    } else if (shape->collective == TWILL_ALLREDUCE) {
        emit_allreduce(&e, shape->flavour);
    } else if (shape->collective == TWILL_BROADCAST) {
        emit_broadcast(&e, shape);
    }
    return twill_emitter_finish(&e, schedule, error);
}

const struct twill_algorithm twill_algorithm_direct = {
    .name = "direct",
    .help = "ranks of one node read each other's memory: one or two synchronisations, "
            "2n(P-1)/P bytes",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_BROADCAST | 1u << TWILL_BARRIER,
    .flavours = 1u << TWILL_FLAVOUR_IMM | 1u << TWILL_FLAVOUR_FLAT | 1u << TWILL_FLAVOUR_STAGED |
                1u << TWILL_FLAVOUR_MAPPED,
    .applies = applies,
    .emit = emit,
};
