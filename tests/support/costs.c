/* SPDX-License-Identifier: Apache-2.0 */
/* Costs of a collective, of all ranks together. */
#include "tests/support/costs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void add_costs(struct test_costs *costs, const struct twill_schedule_cost *one)
{
#define COSTS_ADD(field)                                                                           \
    do {                                                                                           \
        costs->sum.field += one->field;                                                            \
        if (one->field > costs->most.field)                                                        \
            costs->most.field = one->field;                                                        \
    } while (0)
    COSTS_ADD(messages);
    COSTS_ADD(rounds);
    COSTS_ADD(peers);
    COSTS_ADD(signals);
    COSTS_ADD(bytes_sent);
    COSTS_ADD(bytes_remote);
    COSTS_ADD(bytes_shared);
    COSTS_ADD(bytes_reduced);
    costs->crossing += one->bytes_remote > 0;
}

struct test_costs test_cost_of(const char *name, struct twill_world *world,
                               const struct twill_shape *shape, size_t count)
{
    struct test_case test = {
        .algorithm = twill_algorithm_find(name), .world = world, .shape = *shape};
    snprintf(test.name, sizeof(test.name), "%s", name);
    assert_non_null(test.algorithm);
    struct twill_schedule *schedules = test_emit(&test);
    struct test_costs costs;
    memset(&costs, 0, sizeof(costs));
    for (uint32_t r = 0; r < world->size; r++) {
        struct twill_schedule_cost one;
        twill_schedule_cost(&one, &schedules[r], world, r, count, 4);
        add_costs(&costs, &one);
    }
    test_schedules_destroy(schedules, world->size);
    return costs;
}

void test_grid(struct twill_world *world, uint32_t nodes, uint32_t ranks)
{
    uint32_t label[512];
    assert_true(nodes * ranks <= 512);
    for (uint32_t r = 0; r < nodes * ranks; r++)
        label[r] = r / ranks;
    assert_int_equal(twill_world_create(world, nodes * ranks, label, NULL), TWILL_OK);
}

uint32_t test_floor_log(uint32_t n)
{
    uint32_t log = 0;
    while (n >>= 1)
        log++;
    return log;
}

uint32_t test_ceil_log(uint32_t n)
{
    return test_floor_log(n) + ((n & (n - 1)) != 0);
}
