/* SPDX-License-Identifier: Apache-2.0 */
/* Verify every algorithm of the registry, in every collective, protocol, shape of world and root. A
 * new algorithm is covered without a change here. TEST_WHOLE verifies all cases, TEST_RANKS=n
 * worlds of at most n ranks. */
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

struct sweep {
    uint64_t random;
    uint32_t one_in; /* verify one in this many cases */
    uint32_t window;
    unsigned verified, failed;
    struct test_seen seen;
    struct {
        unsigned covered, failed; /* cases */
    } of[TEST_ALGORITHMS];
};

/* Print the first few failures of an algorithm. */
static void complain(struct sweep *sweep, const struct test_case *test, const char *why)
{
    sweep->failed++;
    if (sweep->of[test_algorithm_index(test->algorithm)].failed++ < 3)
        print_error("%s: %s\n", test->name, why);
}

static void verify_case(const struct test_case *test, void *user)
{
    struct sweep *sweep = user;
    struct twill_error error = {.status = TWILL_OK};
    /* Explicit parameters are many, and similar. */
    bool given = test->shape.parameter[0] != 0;
    bool all = test->world->size <= 10 ? test_whole() : !given;
    if (test_draw(&sweep->random, all ? sweep->one_in : 5 * sweep->one_in) != 0)
        return;
    struct twill_schedule *schedules = test_try_emit(test, &error);
    sweep->of[test_algorithm_index(test->algorithm)].covered++;
    if (schedules == NULL) {
        complain(sweep, test, error.message);
        return;
    }
    if (!test_enters_alike(test, schedules))
        complain(sweep, test, "the ranks differ in their initial synchronisation");
    bool covered = test_is_covered(&sweep->seen, test, schedules);
    int ways = test->shape.collective == TWILL_ALLTOALL ? 1 : 2;
    for (int in_place = 0; in_place < ways && !covered; in_place++) {
        twill_status status = twill_schedule_verify_window(schedules, test->world, &test->shape,
                                                           in_place != 0, sweep->window, &error);
        if (status != TWILL_OK) {
            complain(sweep, test, error.message);
            break;
        }
        sweep->verified++;
    }
    test_schedules_destroy(schedules, test->world->size);
}

/* Costs grow with the square of the ranks: for larger worlds fewer cases are drawn, and of a whole
 * sweep over the largest some placements are left out in turn. */
static void sweep_sizes(struct sweep *sweep, uint32_t from, uint32_t to, uint32_t roots)
{
    const char *most = getenv("TEST_RANKS");
    to = most == NULL ? to : (uint32_t)twill_min(to, strtoul(most, NULL, 10));
    sweep->random = test_seed();
    for (uint32_t size = from; size <= to; size++) {
        sweep->one_in = test_whole() ? 1 : 1 + size * size * (TEST_SLOW ? 20 : 1) / 50;
        for (unsigned placement = 0; placement < TEST_PLACEMENT_COUNT; placement++) {
            struct twill_world world;
            if (size > 32 && placement > TEST_ALL_NODES && placement % 4 != size % 4)
                continue;
            if (!test_world(&world, size, placement, size))
                continue;
            test_each_case(&world, roots, verify_case, sweep);
            twill_world_destroy(&world);
        }
    }
    print_message("%u to %u ranks: %u verified\n", from, to, sweep->verified);
    assert_true(sweep->verified > 0 || from > to);
    assert_int_equal(sweep->failed, 0);
}

TWILL_TEST(test_small_worlds_all_roots)
{
    struct sweep sweep = {.window = 1};
    sweep_sizes(&sweep, 1, 10, 0);
    for (size_t a = 0; twill_algorithm_at(a) != NULL; a++)
        if (sweep.of[a].covered == 0 && !TEST_SLOW && getenv("TEST_ALGORITHM") == NULL)
            fail_msg("%s was not verified", twill_algorithm_at(a)->name);
}

TWILL_TEST(test_larger_worlds)
{
    struct sweep sweep = {.window = 1};
    sweep_sizes(&sweep, 11, 130, 3);
}

TWILL_TEST(test_two_in_flight)
{
    struct sweep sweep = {.window = 2};
    sweep_sizes(&sweep, 1, 18, 2);
}

/* Nodes of one world may use different protocols of one kind. */
static void verify_mixed(const struct test_case *test, void *user)
{
    struct sweep *sweep = user;
    enum twill_protocol kinds[2][2] = {{TWILL_PROTOCOL_IMM, TWILL_PROTOCOL_FLAT},
                                       {TWILL_PROTOCOL_STAGED, TWILL_PROTOCOL_MAPPED}};
    const enum twill_protocol *kind = kinds[test->shape.protocol >= TWILL_PROTOCOL_STAGED];
    uint32_t size = test->world->size;
    struct test_case other[2] = {*test, *test};
    for (int k = 0; k < 2; k++) {
        other[k].shape.protocol = kind[k];
        if (test->algorithm->protocols == 0 || test_draw(&sweep->random, sweep->one_in) != 0 ||
            !twill_algorithm_applies(test->algorithm, test->world, &other[k].shape))
            return;
    }
    struct twill_error error = {.status = TWILL_OK};
    struct twill_schedule *a = test_try_emit(&other[0], &error);
    struct twill_schedule *b = a == NULL ? NULL : test_try_emit(&other[1], &error);
    for (uint32_t r = 0; r < size && b != NULL; r++) {
        if (test->world->node[r] % 2 == 0)
            continue;
        struct twill_schedule swap = a[r];
        a[r] = b[r];
        b[r] = swap;
    }
    int ways = test->shape.collective == TWILL_ALLTOALL ? 1 : 2;
    for (int in_place = 0; in_place < ways && error.status == TWILL_OK; in_place++)
        if (twill_schedule_verify(a, test->world, &test->shape, in_place != 0, &error) == TWILL_OK)
            sweep->verified++;
    if (error.status != TWILL_OK)
        complain(sweep, &other[0], error.message);
    if (a != NULL)
        test_schedules_destroy(a, size);
    if (b != NULL)
        test_schedules_destroy(b, size);
}

TWILL_TEST(test_mixed_protocols)
{
    struct sweep sweep = {.random = test_seed(), .one_in = test_whole() ? 1 : 8};
    for (uint32_t size = 2; size <= 20; size += 3)
        test_each_case_of(size, 1, 2, verify_mixed, &sweep);
    assert_true(sweep.verified > 0 || getenv("TEST_ALGORITHM") != NULL);
    assert_int_equal(sweep.failed, 0);
}
