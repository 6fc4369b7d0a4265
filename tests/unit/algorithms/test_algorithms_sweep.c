/* SPDX-License-Identifier: Apache-2.0 */
/* Verify every algorithm of the registry, in every collective, protocol, shape of world and root. A
 * new algorithm is covered without a change here. TEST_WHOLE verifies all cases, TEST_RANKS=n
 * worlds of at most n ranks. */
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

/* A row of the report: one algorithm, summed over all tests. */
struct sweep_row {
    unsigned collectives, worlds, covered, verified, failed;
    uint32_t largest;
    uint64_t steps;
};

static struct sweep_report {
    struct sweep_row row[TEST_ALGORITHMS];
} * report_of(void **state)
{
    return *state;
}

struct sweep {
    struct sweep_report *report;
    uint64_t random;
    uint32_t one_in; /* verify one in this many cases */
    uint32_t window;
    unsigned verified;
    struct test_seen seen;
};

static struct sweep_row *row_of(struct sweep *sweep, const struct twill_algorithm *algorithm)
{
    return &sweep->report->row[test_algorithm_index(algorithm)];
}

static void complain_row(struct sweep_row *row, const struct test_case *test, const char *why)
{
    /* Report only the first few failures of an algorithm. */
    if (row->failed++ < 3)
        print_error("%s: %s\n", test->name, why);
}

static void verify_case(const struct test_case *test, void *user)
{
    struct sweep *sweep = user;
    struct twill_error error = {.status = TWILL_OK};
    struct sweep_row *row = row_of(sweep, test->algorithm);
    /* Explicit parameters are many, and similar. */
    bool given = test->shape.parameter[0] != 0;
    bool all = test->world->size <= 10 ? test_whole() : !given;
    if (test_draw(&sweep->random, all ? sweep->one_in : 5 * sweep->one_in) != 0)
        return;
    struct twill_schedule *schedules = test_try_emit(test, &error);
    row->collectives |= 1u << test->shape.collective;
    row->covered++;
    if (test->world->size > row->largest)
        row->largest = test->world->size;
    if (schedules == NULL) {
        complain_row(row, test, error.message);
        return;
    }
    if (!test_enters_alike(test, schedules))
        complain_row(row, test, "the ranks differ in their initial synchronisation");
    bool covered = test_is_covered(&sweep->seen, test, schedules);
    int ways = test->shape.collective == TWILL_ALLTOALL ? 1 : 2;
    for (int in_place = 0; in_place < ways && !covered; in_place++) {
        twill_status status = twill_schedule_verify_window(schedules, test->world, &test->shape,
                                                           in_place != 0, sweep->window, &error);
        if (status != TWILL_OK) {
            complain_row(row, test, error.message);
            break;
        }
        sweep->verified++;
        row->verified++;
        for (uint32_t r = 0; r < test->world->size; r++)
            row->steps += schedules[r].count;
    }
    test_schedules_destroy(schedules, test->world->size);
}

static unsigned failures(const struct sweep_report *report)
{
    unsigned failed = 0;
    for (size_t a = 0; a < TEST_ALGORITHMS; a++)
        failed += report->row[a].failed;
    return failed;
}

/* Costs grow with the square of the ranks: for larger worlds fewer cases are drawn, and of a whole
 * sweep over the largest some placements are left out in turn. */
static void sweep_sizes(struct sweep_report *report, uint32_t from, uint32_t to, uint32_t window,
                        uint32_t roots)
{
    struct sweep sweep = {.report = report, .window = window, .random = test_seed()};
    unsigned failed = failures(report);
    const char *most = getenv("TEST_RANKS");
    to = most == NULL ? to : (uint32_t)twill_min(to, strtoul(most, NULL, 10));
    for (uint32_t size = from; size <= to; size++) {
        sweep.one_in = test_whole() ? 1 : 1 + size * size * (TEST_SLOW ? 20 : 1) / 50;
        for (unsigned placement = 0; placement < TEST_PLACEMENT_COUNT; placement++) {
            struct twill_world world;
            if (size > 32 && placement > TEST_ALL_NODES && placement % 4 != size % 4)
                continue;
            if (!test_world(&world, size, placement, size))
                continue;
            test_each_case(&world, roots, verify_case, &sweep);
            twill_world_destroy(&world);
        }
    }
    print_message("%u to %u ranks, window %u: %u verified\n", from, to, window, sweep.verified);
    assert_true(sweep.verified > 0 || from > to);
    assert_int_equal(failures(report), failed);
}

TWILL_TEST(test_small_worlds_all_roots)
{
    sweep_sizes(report_of(state), 1, 10, 1, 0);
}

TWILL_TEST(test_larger_worlds)
{
    sweep_sizes(report_of(state), 11, 130, 1, 3);
}

TWILL_TEST(test_two_in_flight)
{
    sweep_sizes(report_of(state), 1, 18, 2, 2);
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
        complain_row(row_of(sweep, test->algorithm), &other[0], error.message);
    if (a != NULL)
        test_schedules_destroy(a, size);
    if (b != NULL)
        test_schedules_destroy(b, size);
}

TWILL_TEST(test_mixed_protocols)
{
    struct sweep sweep = {.report = report_of(state),
                          .window = 1,
                          .random = test_seed(),
                          .one_in = test_whole() ? 1 : 8};
    unsigned failed = failures(sweep.report);
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
    assert_int_equal(failures(sweep.report), failed);
}

static int begin_report(void **state)
{
    *state = calloc(1, sizeof(struct sweep_report));
    return *state == NULL;
}

/* Print what was verified, as a table. */
static int end_report(void **state)
{
    struct sweep_report *report = report_of(state);
    print_message("%-32s %8s %9s %9s %12s %7s  %s\n", "algorithm", "largest", "shapes", "verified",
                  "steps", "failed", "collectives");
    for (size_t a = 0; twill_algorithm_at(a) != NULL; a++) {
        const struct sweep_row *row = &report->row[a];
        print_message("%-32s %8u %9u %9u %12llu %7u ", twill_algorithm_at(a)->name, row->largest,
                      row->covered, row->verified, (unsigned long long)row->steps, row->failed);
        for (unsigned c = 0; c < TWILL_COLLECTIVE_COUNT; c++)
            if ((row->collectives >> c & 1) != 0)
                print_message(" %s", twill_collective_name((enum twill_collective)c));
        print_message("\n");
    }
    free(report);
    return 0;
}

TWILL_TEST_GROUP(begin_report, end_report)
