/* SPDX-License-Identifier: Apache-2.0 */
/* Count what moves between ranks: see traffic.h. */
#include "algorithms/schedule/traffic.h"
#include "algorithms/schedule/step_table.h"
#include "lib/base/lists.h"

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
