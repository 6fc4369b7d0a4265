/* SPDX-License-Identifier: Apache-2.0 */
/* Count what a schedule costs one rank, and what moves between ranks: see traffic.h. */
#include "algorithms/schedule/traffic.h"
#include "algorithms/schedule/step_table.h"
#include "lib/base/lists.h"

#include <string.h>

unsigned twill_partial_width(struct twill_element_kind elements)
{
    bool widens = twill_type_is_narrow(elements.type) && !elements.narrow;
    return widens ? (unsigned)(sizeof(float) / twill_type_size(elements.type)) : 1;
}

void twill_traffic_each(const struct twill_schedule *schedule, uint32_t rank, size_t count,
                        struct twill_element_kind elements, twill_traffic_fn fn, void *user)
{
    unsigned widen = twill_partial_width(elements);
    for (uint32_t i = 0; i < schedule->count; i++) {
        const struct twill_step *step = &schedule->steps[i];
        bool sends = step->op == TWILL_STEP_SEND;
        bool reads = twill_operand_is_peer(step->src), writes = twill_operand_is_peer(step->dst);
        if (!sends && !reads && !writes)
            continue;
        uint64_t bytes = twill_step_bytes(schedule, sends ? step->src : step->dst, step->blocks,
                                          count, twill_type_size(elements.type)) *
                         ((step->flags & TWILL_STEP_PARTIAL) != 0 ? widen : 1);
        for (unsigned p = 0; p < twill_step_peers(step); p++) {
            if (step->peer[p] == rank)
                continue;
            if (sends || writes)
                fn(user, rank, step->peer[p], bytes);
            if (reads)
                fn(user, step->peer[p], rank, bytes);
        }
    }
}

struct by_class {
    uint64_t *bytes;
    const struct twill_world *world;
};

static void add_to_class(void *user, uint32_t from, uint32_t to, uint64_t bytes)
{
    struct by_class *t = user;
    t->bytes[twill_link_between(t->world, from, to)] += bytes;
}

void twill_traffic_by_class(uint64_t bytes[TWILL_LINK_COUNT], const struct twill_schedule *schedule,
                            const struct twill_world *world, uint32_t rank, size_t count,
                            struct twill_element_kind elements)
{
    struct by_class t = {.bytes = bytes, .world = world};
    twill_traffic_each(schedule, rank, count, elements, add_to_class, &t);
}

struct by_link {
    uint64_t *bytes;
    uint32_t units;
    const uint32_t *unit;
};

static void add_to_link(void *user, uint32_t from, uint32_t to, uint64_t bytes)
{
    struct by_link *t = user;
    t->bytes[(size_t)t->unit[from] * t->units + t->unit[to]] += bytes;
}

void twill_traffic_by_link(uint64_t *bytes, uint32_t units, const uint32_t *unit,
                           const struct twill_schedule *schedule, uint32_t rank, size_t count,
                           struct twill_element_kind elements)
{
    struct by_link t = {.bytes = bytes, .units = units, .unit = unit};
    twill_traffic_each(schedule, rank, count, elements, add_to_link, &t);
}

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
