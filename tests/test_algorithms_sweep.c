/* SPDX-License-Identifier: Apache-2.0 */
/* Every algorithm of the registry, in every collective, flavour, shape of world and root, verified.
 * A new algorithm is covered as it stands. */
#include "tests/support/schedules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct sweep {
    uint32_t window;
    unsigned verified;
};

static void verify_case(const struct test_case *test, void *user)
{
    struct sweep *sweep = user;
    struct twill_schedule *schedules = test_emit(test);
    for (int in_place = 0; in_place < 2; in_place++) {
        struct twill_error error = {.status = TWILL_OK};
        twill_status status = twill_schedule_verify_window(schedules, test->world, &test->shape,
                                                           in_place != 0, sweep->window, &error);
        if (status != TWILL_OK)
            fail_msg("%s, in place %d: %s", test->name, in_place, error.message);
        sweep->verified++;
    }
    test_schedules_destroy(schedules, test->world->size);
}

static void sweep_sizes(uint32_t from, uint32_t to, uint32_t step, uint32_t window, uint32_t roots)
{
    struct sweep sweep = {.window = window};
    for (uint32_t size = from; size <= to; size += step) {
        for (unsigned placement = 0; placement < TEST_PLACEMENT_COUNT; placement++) {
            struct twill_world world;
            if (!test_world(&world, size, placement, size))
                continue;
            test_each_case(&world, roots, verify_case, &sweep);
            twill_world_destroy(&world);
        }
    }
    print_message("%u to %u ranks, window %u: %u verified\n", from, to, window, sweep.verified);
    assert_true(sweep.verified > 0);
}

static void test_small_worlds_all_roots(void **state)
{
    (void)state;
    sweep_sizes(1, 12, 1, 1, 0);
}

static void test_larger_worlds(void **state)
{
    (void)state;
    sweep_sizes(13, 64, TEST_SLOW ? 17 : 1, 1, 3);
}

static void test_two_in_flight(void **state)
{
    (void)state;
    sweep_sizes(1, TEST_SLOW ? 8 : 18, 1, 2, 2);
}

/* Nodes of one world may use different flavours of a kind. */
static void verify_mixed(const struct test_case *test, void *user)
{
    struct sweep *sweep = user;
    enum twill_flavour kinds[2][2] = {{TWILL_FLAVOUR_IMM, TWILL_FLAVOUR_FLAT},
                                      {TWILL_FLAVOUR_STAGED, TWILL_FLAVOUR_MAPPED}};
    const enum twill_flavour *kind = kinds[test->shape.flavour >= TWILL_FLAVOUR_STAGED];
    uint32_t size = test->world->size;
    struct test_case other[2] = {*test, *test};
    for (int k = 0; k < 2; k++) {
        other[k].shape.flavour = kind[k];
        if (test->algorithm->flavours == 0 ||
            !twill_algorithm_applies(test->algorithm, test->world, &other[k].shape))
            return;
    }
    struct twill_schedule *a = test_emit(&other[0]), *b = test_emit(&other[1]);
    for (uint32_t r = 0; r < size; r++) {
        if (test->world->node[r] % 2 == 0)
            continue;
        struct twill_schedule swap = a[r];
        a[r] = b[r];
        b[r] = swap;
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        struct twill_error error = {.status = TWILL_OK};
        if (twill_schedule_verify(a, test->world, &test->shape, in_place != 0, &error) != TWILL_OK)
            fail_msg("mixed %s: %s", test->name, error.message);
        sweep->verified++;
    }
    test_schedules_destroy(a, size);
    test_schedules_destroy(b, size);
}

static void test_mixed_flavours(void **state)
{
    (void)state;
    struct sweep sweep = {.window = 1};
    for (uint32_t size = 2; size <= 20; size += 3) {
        for (unsigned placement = 0; placement < TEST_PLACEMENT_COUNT; placement++) {
            struct twill_world world;
            if (!test_world(&world, size, placement, 1))
                continue;
            test_each_case(&world, 2, verify_mixed, &sweep);
            twill_world_destroy(&world);
        }
    }
    assert_true(sweep.verified > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_worlds_all_roots),
        cmocka_unit_test(test_larger_worlds),
        cmocka_unit_test(test_two_in_flight),
        cmocka_unit_test(test_mixed_flavours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
