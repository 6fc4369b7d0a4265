/* SPDX-License-Identifier: Apache-2.0 */
/* Count what a schedule costs one rank. */
#include "algorithms/algorithms.h"
#include "algorithms/schedule/step_table.h"

#include <string.h>

struct counting {
    struct twill_schedule_cost *cost;
    const struct twill_schedule *schedule;
    const struct twill_world *world;
    uint32_t rank;
    size_t count, element;
};

uint64_t twill_step_bytes(const struct twill_schedule *schedule, twill_operand operand,
                          uint32_t blocks, size_t count, size_t element)
{
    uint64_t bytes = 0;
    uint32_t shard_blocks = schedule->blocks / schedule->shards;
    for (uint32_t i = 0; i < blocks; i++) {
        size_t first, length;
        uint32_t block = (twill_operand_block(operand) + i) % shard_blocks;
        twill_block_range(count / schedule->shards, element, shard_blocks, block, &first, &length);
        bytes += (uint64_t)length * element;
    }
    return bytes;
}

static void count_step(const struct counting *c, const struct twill_step *step)
{
    struct twill_schedule_cost *cost = c->cost;
    twill_operand operand = step->op == TWILL_STEP_SEND ? step->src : step->dst;
    uint64_t bytes = twill_step_bytes(c->schedule, operand, step->blocks, c->count, c->element);
    uint64_t operands = 0;
    switch (step->op) {
    case TWILL_STEP_SEND:
        cost->messages++;
        cost->bytes_sent += bytes;
        if (c->world->node[step->peer[0]] != c->world->node[c->rank])
            cost->bytes_remote += bytes;
        break;
    case TWILL_STEP_RECV_REDUCE:
        cost->bytes_reduced += bytes;
        break;
    case TWILL_STEP_REDUCE:
        for (unsigned i = 0; i < twill_step_peers(step); i++)
            cost->bytes_shared += step->peer[i] == c->rank ? 0 : bytes;
        operands = step->nsrc + (uint64_t)((step->flags & TWILL_STEP_ACC) != 0);
        cost->bytes_reduced += (operands - 1) * bytes;
        break;
    case TWILL_STEP_COPY:
        cost->bytes_shared += twill_step_peers(step) > 0 ? bytes : 0;
        break;
    case TWILL_STEP_SIGNAL:
    case TWILL_STEP_PUT_IMM:
        cost->signals++;
        break;
    default:
        break;
    }
}

/* Return whether this is the first message with that peer. Quadratic in messages, but costs of
 * thousands of peers are not needed fast. */
static bool is_new_peer(const struct twill_schedule *schedule, uint32_t step)
{
    for (uint32_t i = 0; i < step; i++)
        if (twill_step_shape(schedule->steps[i].op)->posts &&
            schedule->steps[i].peer[0] == schedule->steps[step].peer[0])
            return false;
    return true;
}

void twill_schedule_cost(struct twill_schedule_cost *cost, const struct twill_schedule *schedule,
                         const struct twill_world *world, uint32_t rank, size_t count,
                         size_t element)
{
    struct counting c = {.cost = cost,
                         .schedule = schedule,
                         .world = world,
                         .rank = rank,
                         .count = count,
                         .element = element};
    memset(cost, 0, sizeof(*cost));
    for (uint32_t l = 0; l < schedule->lanes; l++) {
        bool posted = false;
        for (uint32_t i = schedule->lane_first[l]; i < schedule->lane_first[l + 1]; i++) {
            const struct twill_step *step = &schedule->steps[i];
            bool posts = twill_step_shape(step->op)->posts;
            count_step(&c, step);
            if (step->op == TWILL_STEP_WAIT && posted)
                cost->rounds++;
            posted = step->op != TWILL_STEP_WAIT && (posted || posts);
            cost->peers += posts && is_new_peer(schedule, i);
        }
    }
}
