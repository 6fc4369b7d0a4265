/* SPDX-License-Identifier: Apache-2.0 */
/* Test that the verifier notices wrong schedules: steps of every schedule are removed and altered
 * in turn, all of them with TEST_WHOLE, else some by TEST_SEED. A mutant that it does not notice
 * must give right values in the simulation, and must not be one without a step that moves data. */
#include "algorithms/schedule/step_table.h"
#include "tests/support/mutants.h"
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

struct scores {
    unsigned mutants[TEST_MUTATIONS], killed[TEST_MUTATIONS];
    unsigned simulated, noticed; /* dropped steps that the simulation ran, and noticed */
    struct test_seen seen;
    uint64_t random;
    uint32_t keep; /* approximate number of mutants to try per case */
    unsigned complaints, shown[TEST_MUTATIONS];
};

static const char *simulate(const struct test_case *test, const struct twill_schedule *schedules,
                            uint32_t seeds)
{
    const char *why = NULL;
    for (uint32_t seed = 0; seed < seeds && why == NULL; seed++)
        why = test_simulate(schedules, test->world, &test->shape, seed % 2 != 0, seed);
    return why;
}

/* Print a step as text, without the newline. */
static void print_step(char *text, size_t capacity, const struct twill_schedule *schedule,
                       uint32_t at)
{
    char whole[512];
    struct twill_schedule one = {.lanes = 1, .count = 1, .blocks = 1, .shards = 1};
    snprintf(text, capacity, "(gone)");
    if (at >= schedule->count)
        return;
    one.steps = &schedule->steps[at];
    one.lane_first[1] = 1;
    test_schedule_print(&one, whole, sizeof(whole));
    char *step = strstr(whole, "lane\n") + strlen("lane\n");
    snprintf(text, capacity, "%.*s", (int)strcspn(step, "\n"), step);
}

static void complain_mutant(struct scores *scores, const struct test_case *test,
                            const struct twill_schedule *was, const struct twill_schedule *now,
                            uint32_t rank, uint32_t at, enum test_mutation kind, const char *why)
{
    char before[200], after[200];
    scores->complaints++;
    if (scores->shown[kind]++ >= 8)
        return;
    print_step(before, sizeof(before), was, at);
    print_step(after, sizeof(after), now, at);
    print_error("%s, rank %u, step %u: \"%s\" %s: %s -> %s\n", test->name, rank, at,
                test_mutation_name(kind), why, before, after);
}

/* Return whether a mutant is noticed: by the verifier, or because an exchange of buffer addresses
 * could no longer replace the initial synchronisation (twill_schedule_entry_steps()), which the
 * verifier does not check. */
static bool is_killed(const struct test_case *test, const struct twill_schedule *schedules)
{
    struct twill_error error = {.status = TWILL_OK};
    for (int in_place = 0; in_place < 2; in_place++)
        if (twill_schedule_verify(schedules, test->world, &test->shape, in_place != 0, &error) !=
            TWILL_OK)
            return true;
    return !test_enters_alike(test, schedules);
}

static void judge_mutant(const struct test_case *test, struct twill_schedule *schedules,
                         uint32_t rank, uint32_t at, enum test_mutation kind, struct scores *scores,
                         const struct twill_schedule *whole)
{
    bool killed = is_killed(test, schedules);
    scores->mutants[kind]++;
    scores->killed[kind] += killed;
    if (killed && kind == DROP && at % 4 == 0) {
        scores->simulated++;
        scores->noticed += twill_schedule_check(&schedules[rank], test->world, rank, &test->shape,
                                                NULL) != TWILL_OK ||
                           simulate(test, schedules, 8) != NULL;
    }
    if (killed)
        return;
    const enum twill_step_op op = (enum twill_step_op)whole->steps[at].op;
    const bool waits = op == TWILL_STEP_WAIT || op == TWILL_STEP_SIGNAL || op == TWILL_STEP_AWAIT;
    const char *why =
        kind == DROP && !waits ? "the step is needless" : simulate(test, schedules, 16);
    if (why != NULL)
        complain_mutant(scores, test, whole, &schedules[rank], rank, at, kind, why);
}

static bool differs(const struct twill_schedule *a, const struct twill_schedule *b)
{
    return a->count != b->count ||
           memcmp(a->lane_first, b->lane_first, sizeof(a->lane_first)) != 0 ||
           memcmp(a->steps, b->steps, a->count * sizeof(*a->steps)) != 0;
}

/* Try all mutations of one step, or those that are drawn. */
static void mutate_step(const struct test_case *test, struct twill_schedule *schedules,
                        uint32_t rank, uint32_t at, uint32_t one_in, struct scores *scores)
{
    struct twill_schedule whole = schedules[rank];
    struct twill_step *steps = malloc((whole.count + 1) * sizeof(*steps));
    assert_non_null(steps);
    for (unsigned kind = 0; kind < TEST_MUTATIONS; kind++) {
        for (uint32_t v = 0; v < 16; v++) {
            if (test_draw(&scores->random, one_in) != 0)
                continue;
            schedules[rank] = whole;
            schedules[rank].steps = steps;
            memcpy(steps, whole.steps, whole.count * sizeof(*steps));
            if (!test_mutate(&schedules[rank], test->world, at, (enum test_mutation)kind, v) ||
                !differs(&schedules[rank], &whole))
                continue;
            twill_schedule_derive(&schedules[rank]);
            judge_mutant(test, schedules, rank, at, (enum test_mutation)kind, scores, &whole);
        }
    }
    free(steps);
    schedules[rank] = whole;
}

static void mutate_case(const struct test_case *test, void *user)
{
    struct scores *scores = user;
    uint32_t size = test->world->size, steps = 0;
    struct twill_error error = {.status = TWILL_OK};
    struct twill_schedule *schedules = test_try_emit(test, &error);
    /* Schedules that are wrong without a mutation are reported by the sweep. */
    if (schedules == NULL || test_is_covered(&scores->seen, test, schedules) ||
        is_killed(test, schedules)) {
        if (schedules != NULL)
            test_schedules_destroy(schedules, size);
        return;
    }
    for (uint32_t rank = 0; rank < size; rank++)
        steps += schedules[rank].count;
    /* A step has some 25 mutants. */
    uint32_t one_in = test_whole() ? 1 : 25 * steps / scores->keep + 1;
    for (uint32_t rank = 0; rank < size; rank++)
        for (uint32_t at = 0; at < schedules[rank].count; at++)
            mutate_step(test, schedules, rank, at, one_in, scores);
    test_schedules_destroy(schedules, size);
}

static void mutate_world(uint32_t size, unsigned placement, struct scores *scores)
{
    struct twill_world world;
    assert_true(test_world(&world, size, placement, size));
    test_each_case(&world, 1, mutate_case, scores);
    twill_world_destroy(&world);
}

TWILL_TEST(test_mutants)
{
    struct scores scores = {.random = test_seed(), .keep = TEST_FEWER ? 8 : 30};
    for (uint32_t size = 1; size <= (TEST_FEWER ? 4 : 6); size++)
        test_each_case_of(size, size, 2, mutate_case, &scores);
    if (!TEST_FEWER) {
        mutate_world(9, TEST_ONE_NODE, &scores);
        mutate_world(9, TEST_SQUARE, &scores);
        mutate_world(8, TEST_ROUND_ROBIN, &scores);
        mutate_world(10, TEST_LONE_AND_MANY, &scores);
    }
    for (unsigned kind = 0; kind < TEST_MUTATIONS; kind++) {
        print_message("%-16s %8u mutants %8u killed\n",
                      test_mutation_name((enum test_mutation)kind), scores.mutants[kind],
                      scores.killed[kind]);
        assert_true(scores.killed[kind] > 0 || getenv("TEST_ALGORITHM") != NULL);
    }
    assert_int_equal(scores.complaints, 0);
    assert_true(scores.noticed * 10 >= scores.simulated * 9);
}

/* Test the simulation itself: it finds every schedule right, at more sizes and seeds. */
struct opinion {
    unsigned count;
    uint64_t random;
};

static void simulate_case(const struct test_case *test, void *user)
{
    struct opinion *opinion = user;
    if (!test_whole() && test_draw(&opinion->random, 1 + test->world->size) != 0)
        return;
    struct twill_schedule *schedules = test_emit(test);
    const char *why = simulate(test, schedules, 4);
    if (why != NULL)
        fail_msg("%s: %s", test->name, why);
    opinion->count++;
    test_schedules_destroy(schedules, test->world->size);
}

TWILL_TEST(test_second_opinion)
{
    struct opinion opinion = {.random = test_seed()};
    for (uint32_t size = 1; size <= 33; size += size < 13 ? 1 : 10)
        test_each_case_of(size, 5, 2, simulate_case, &opinion);
    assert_true(opinion.count > (getenv("TEST_ALGORITHM") == NULL ? 500 : 0));
}
