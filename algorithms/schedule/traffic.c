/* SPDX-License-Identifier: Apache-2.0 */
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

/* The sums of add_to_class(), bytes[class of link], and the world that has the classes. A local
 * variable of twill_traffic_by_class(), whose caller owns both. */
struct by_class {
    uint64_t *bytes;
    const struct twill_world *world;
};

/* Add bytes to the class of their link in the struct by_class `user`. */
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
