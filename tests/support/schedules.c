/* SPDX-License-Identifier: Apache-2.0 */
/* Worlds of many shapes, and the schedules of all their ranks, for tests. */
#include "tests/support/schedules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static uint32_t label_of(uint32_t r, uint32_t size, unsigned placement, uint32_t *state)
{
    uint32_t side = 1;
    switch (placement) {
    case TEST_ALL_NODES:
        return r;
    case TEST_PAIRS:
        return r / 2;
    case TEST_HALVES:
        return r >= (size + 1) / 2;
    case TEST_SQUARE:
        while (side * side < size)
            side++;
        return r / side;
    case TEST_RAGGED:
        for (uint32_t node = 0, end = 0;; node++)
            if ((end += node + 1) > r)
                return node;
    case TEST_ROUND_ROBIN:
        return r % 3;
    case TEST_LONE_AND_MANY:
        return r > 0;
    case TEST_RANDOM:
        *state = *state * 1664525u + 1013904223u;
        return (*state >> 16) % (size / 2 + 1) * 1000003u;
    default:
        return 7;
    }
}

bool test_world(struct twill_world *world, uint32_t size, unsigned placement, uint32_t seed)
{
    static const uint32_t least[TEST_PLACEMENT_COUNT] = {1, 2, 3, 4, 9, 3, 4, 3, 4};
    if (size < least[placement])
        return false;
    uint32_t *label = calloc(size, sizeof(*label));
    assert_non_null(label);
    uint32_t state = seed * 2654435761u + size;
    for (uint32_t r = 0; r < size; r++)
        label[r] = label_of(r, size, placement, &state);
    assert_int_equal(twill_world_create(world, size, label, NULL), TWILL_OK);
    free(label);
    return true;
}

static void each_root(struct test_case *test, uint32_t roots, test_case_fn fn, void *user)
{
    uint32_t size = test->world->size;
    uint32_t count = test->shape.collective != TWILL_BROADCAST ? 1
                     : roots == 0 || roots > size              ? size
                                                               : roots;
    for (uint32_t i = 0; i < count; i++) {
        /* Spread, with both ends. */
        test->shape.root = count == 1 ? 0 : (uint32_t)((uint64_t)i * (size - 1) / (count - 1));
        const struct twill_shape *shape = &test->shape;
        if (!twill_algorithm_applies(test->algorithm, test->world, shape))
            continue;
        snprintf(test->name, sizeof(test->name), "%s@%s %s, %u ranks on %u nodes, root %u",
                 test->algorithm->name, twill_flavour_name(shape->flavour),
                 twill_collective_name(shape->collective), size, test->world->nodes, shape->root);
        fn(test, user);
    }
}

void test_each_case(struct twill_world *world, uint32_t roots, test_case_fn fn, void *user)
{
    struct test_case test = {.world = world};
    for (size_t a = 0; (test.algorithm = twill_algorithm_at(a)) != NULL; a++) {
        for (unsigned c = 0; c < TWILL_COLLECTIVE_COUNT; c++) {
            bool plain = test.algorithm->flavours == 0 || c == TWILL_BARRIER;
            for (unsigned f = 0; f < (plain ? 1u : (unsigned)TWILL_FLAVOUR_COUNT); f++) {
                test.shape.collective = (enum twill_collective)c;
                test.shape.flavour = (enum twill_flavour)f;
                each_root(&test, roots, fn, user);
            }
        }
    }
}

struct twill_schedule *test_emit(const struct test_case *test)
{
    uint32_t size = test->world->size;
    struct twill_schedule *schedules = calloc(size, sizeof(*schedules));
    assert_non_null(schedules);
    for (uint32_t r = 0; r < size; r++) {
        struct twill_error error = {.status = TWILL_OK};
        if (twill_schedule_emit(&schedules[r], test->algorithm, test->world, r, &test->shape,
                                &error) != TWILL_OK)
            fail_msg("%s: %s", test->name, error.message);
    }
    return schedules;
}

void test_schedules_destroy(struct twill_schedule *schedules, uint32_t size)
{
    for (uint32_t r = 0; r < size; r++)
        twill_schedule_destroy(&schedules[r]);
    free(schedules);
}
