/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/schedule/emit.h"
#include "lib/base/plural.h"

#include <string.h>

#define ALGORITHM_ENTRY(noun) &twill_algorithm_##noun,
static const struct twill_algorithm *const algorithms[] = {TWILL_ALGORITHMS(ALGORITHM_ENTRY)};

const struct twill_algorithm *twill_algorithm_at(size_t index)
{
    return index < TWILL_ARRAY_LENGTH(algorithms) ? algorithms[index] : NULL;
}

const struct twill_collective_facts *twill_collective_facts(enum twill_collective collective)
{
#define FACTS(NOUN, noun, reads, writes, ...)                                                      \
    [TWILL_##NOUN] = {                                                                             \
        .name = #noun, .src = TWILL_HOLDS_##reads, .dst = TWILL_HOLDS_##writes, __VA_ARGS__},
    static const struct twill_collective_facts facts[] = {TWILL_COLLECTIVES(FACTS)};
    return &facts[collective];
}

const char *twill_collective_name(enum twill_collective collective)
{
    return (unsigned)collective < TWILL_COLLECTIVE_COUNT ? twill_collective_facts(collective)->name
                                                         : "?";
}

/* Return whether the ranks that hold shards as `holder` says include this rank for this shard. */
static bool holder_covers(enum twill_holder holder, const struct twill_shape *shape, uint32_t rank,
                          uint32_t shard)
{
    switch (holder) {
    case TWILL_HOLDS_ALL:
        return true;
    case TWILL_HOLDS_OWN:
        return shard == rank;
    case TWILL_HOLDS_ROOT:
        return rank == shape->root;
    default:
        return false;
    }
}

bool twill_shape_holds_src(const struct twill_shape *shape, uint32_t rank, uint32_t shard)
{
    return holder_covers(twill_collective_facts(shape->collective)->src, shape, rank, shard);
}

bool twill_shape_holds_dst(const struct twill_shape *shape, uint32_t rank, uint32_t shard)
{
    return holder_covers(twill_collective_facts(shape->collective)->dst, shape, rank, shard);
}

bool twill_shape_knows_all(const struct twill_shape *shape)
{
    return !shape->vector || shape->collective == TWILL_ALLGATHER ||
           shape->collective == TWILL_REDUCE_SCATTER;
}

const char *twill_protocol_name(enum twill_protocol protocol)
{
    static const char *const names[] = {"imm", "flat", "staged", "mapped", "fetched"};
    _Static_assert(TWILL_ARRAY_LENGTH(names) == TWILL_PROTOCOL_COUNT, "a name for each");
    return (unsigned)protocol < TWILL_PROTOCOL_COUNT ? names[protocol] : "?";
}

bool twill_algorithm_applies(const struct twill_algorithm *algorithm,
                             const struct twill_world *world, const struct twill_shape *shape)
{
    if ((algorithm->collectives >> shape->collective & 1) == 0 || shape->root >= world->size)
        return false;
    if (shape->collective != TWILL_BARRIER && algorithm->protocols != 0 &&
        (world->by_messages || (algorithm->protocols >> shape->protocol & 1) == 0))
        return false;
    return algorithm->applies(world, shape);
}

twill_status twill_schedule_emit(struct twill_schedule *schedule,
                                 const struct twill_algorithm *algorithm,
                                 const struct twill_world *world, uint32_t rank,
                                 const struct twill_shape *shape, struct twill_error *error)
{
    memset(schedule, 0, sizeof(*schedule));
    if (rank >= world->size || (unsigned)shape->collective >= TWILL_COLLECTIVE_COUNT ||
        (unsigned)shape->protocol >= TWILL_PROTOCOL_COUNT)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "schedule: rank %u of %u, collective %d, protocol %d: out of range", rank,
                          world->size, (int)shape->collective, (int)shape->protocol);
    if (!twill_algorithm_applies(algorithm, world, shape))
        return TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED,
                          "%s@%s does not support %s from root %u with %u rank%s on %u node%s",
                          algorithm->name, twill_protocol_name(shape->protocol),
                          twill_collective_name(shape->collective), shape->root, world->size,
                          TWILL_PLURAL(world->size), world->nodes, TWILL_PLURAL(world->nodes));
    TWILL_TRY(error, twill_schedule_emit_unchecked(schedule, algorithm, world, rank, shape, error));
    twill_status status = twill_schedule_check(schedule, world, rank, shape, error);
    if (status != TWILL_OK)
        twill_schedule_destroy(schedule);
    return status;
}
