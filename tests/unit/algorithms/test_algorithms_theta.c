/* SPDX-License-Identifier: Apache-2.0 */
/* Verify every algorithm with as many ranks as Theta has nodes, 4,392, in each of its collectives:
 * messages, signals and starts whole, values and races in some columns of blocks. Then alter steps
 * and expect that the verifier notices. TEST_WHOLE takes every case (minutes, and some GB of
 * memory); otherwise only those with few steps, and the report names the others. */
#include "algorithms/schedule/step_table.h"
#include "algorithms/verify/verify.h"
#include "tests/support/mutants.h"
#include "tests/support/unit.h"

#define THETA_RANKS   4392u
#define THETA_COLUMNS 16u
#define THETA_MUTANTS 40u

/* A mutant of a case: a step of one rank is altered. rank THETA_RANKS: none. */
struct theta_mutant {
    enum test_mutation kind;
    uint32_t rank, at, variant;
};

struct theta_source {
    const struct test_case *test;
    struct theta_mutant mutant;
};

/* Cases that are done, one for each algorithm and collective. */
struct theta {
    bool done[TEST_ALGORITHMS][TWILL_COLLECTIVE_COUNT];
    uint32_t large[TEST_ALGORITHMS][TWILL_COLLECTIVE_COUNT]; /* nodes of a world too large */
    uint32_t verified[TEST_ALGORITHMS];
    uint64_t random, limit;
    unsigned failed, mutants;
};

static twill_status emit_mutant(struct twill_schedule *schedule, uint32_t rank, void *user,
                                struct twill_error *error)
{
    struct theta_source *source = user;
    const struct test_case *test = source->test;
    const struct theta_mutant *mutant = &source->mutant;
    TWILL_TRY(error, twill_schedule_emit(schedule, test->algorithm, test->world, rank, &test->shape,
                                         error));
    if (rank != mutant->rank)
        return TWILL_OK;
    struct twill_step *steps =
        realloc(schedule->steps, (schedule->count + 1) * sizeof(*schedule->steps));
    assert_non_null(steps);
    schedule->steps = steps;
    test_mutate(schedule, test->world, mutant->at, mutant->kind, mutant->variant);
    twill_schedule_derive(schedule);
    return TWILL_OK;
}

/* Verify in some columns, or in all where blocks change their positions. */
static twill_status verify_mutant(const struct test_case *test, struct theta_mutant mutant,
                                  uint64_t seed, bool in_place, struct twill_error *error)
{
    struct theta_source user = {.test = test, .mutant = mutant};
    struct twill_schedule_source source = {.emit = emit_mutant, .user = &user};
    struct twill_verify_sample sample = {
        .columns = THETA_COLUMNS, .seed = seed, .steps = 32u << 20};
    twill_status status =
        twill_schedule_verify_sampled(&source, &sample, test->world, &test->shape, in_place, error);
    if (status != TWILL_ERR_UNSUPPORTED)
        return status;
    sample.columns = 0;
    return twill_schedule_verify_sampled(&source, &sample, test->world, &test->shape, in_place,
                                         error);
}

/* Return the steps of a rank, and the blocks that it moves if all columns are followed. */
static uint64_t count_steps(const struct test_case *test, uint32_t rank)
{
    struct twill_schedule one;
    struct twill_error error = {.status = TWILL_OK};
    if (twill_schedule_emit(&one, test->algorithm, test->world, rank, &test->shape, &error) !=
        TWILL_OK)
        fail_msg("%s: %s", test->name, error.message);
    uint64_t cost = one.count + (one.shards > 1 ? one.blocks : 0);
    twill_schedule_destroy(&one);
    return cost;
}

/* Estimate the steps of all ranks from those of the first, the root, and some of another node, of
 * which the first is its leader. */
static uint64_t estimate(const struct test_case *test)
{
    const struct twill_world *world = test->world;
    uint32_t node = world->nodes / 2, size = world->node_size[node];
    uint64_t leader = count_steps(test, twill_world_member(world, node, 0));
    uint64_t others = 0;
    for (uint32_t i = 1; i <= 2 && size > 1; i++) {
        uint64_t steps = count_steps(test, twill_world_member(world, node, i * (size - 1) / 2));
        others = steps > others ? steps : others;
    }
    return count_steps(test, 0) + count_steps(test, test->shape.root) + leader * world->nodes +
           others * (world->size - world->nodes);
}

/* Return whether the case is the first one of its algorithm and collective, and within the limit.
 */
static bool is_next(struct theta *theta, const struct test_case *test)
{
    size_t row = test_algorithm_index(test->algorithm);
    enum twill_collective collective = test->shape.collective;
    uint32_t *large = &theta->large[row][collective];
    if (theta->done[row][collective] || test->shape.parameter[0] != 0 ||
        *large == test->world->nodes)
        return false;
    if (estimate(test) > theta->limit) {
        *large = test->world->nodes;
        return false;
    }
    return theta->done[row][collective] = true;
}

static double cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static void verify_theta(const struct test_case *test, void *user)
{
    struct theta *theta = user;
    size_t row = test_algorithm_index(test->algorithm);
    if (!is_next(theta, test))
        return;
    double begin = cpu_seconds();
    struct twill_error error = {.status = TWILL_OK};
    bool in_place = test_draw(&theta->random, 2) == 0;
    struct theta_mutant none = {.rank = THETA_RANKS};
    if (verify_mutant(test, none, theta->random, in_place, &error) != TWILL_OK) {
        theta->failed++;
        print_error("%s, in place %d: %s\n", test->name, in_place, error.message);
    }
    theta->verified[row]++;
    print_message("%-90s %9.1f M steps %8.2f s\n", test->name, (double)estimate(test) / 1e6,
                  cpu_seconds() - begin);
}

static void each_world(test_case_fn fn, void *user)
{
    if (TEST_SLOW)
        return;
    static const uint32_t ranks_per_node[] = {1, 2, 8, THETA_RANKS / 12, THETA_RANKS};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(ranks_per_node); i++) {
        struct twill_world world;
        uint32_t *label = calloc(THETA_RANKS, sizeof(*label));
        assert_non_null(label);
        for (uint32_t r = 0; r < THETA_RANKS; r++)
            label[r] = r / ranks_per_node[i];
        assert_int_equal(twill_world_create(&world, THETA_RANKS, label, NULL), TWILL_OK);
        free(label);
        test_each_case(&world, 2, fn, user);
        twill_world_destroy(&world);
    }
}

TWILL_TEST(test_all_algorithms)
{
    struct theta *theta = *state;
    theta->limit = test_whole() ? UINT64_MAX : 1500000;
    each_world(verify_theta, theta);
    bool halving_doubling = false;
    unsigned algorithms = 0, verified = 0;
    for (size_t a = 0; twill_algorithm_at(a) != NULL; a++, algorithms++) {
        const char *name = twill_algorithm_at(a)->name;
        verified += theta->verified[a] > 0;
        halving_doubling |= strcmp(name, "halving_doubling") == 0 && theta->verified[a] > 0;
        for (unsigned c = 0; c < TWILL_COLLECTIVE_COUNT; c++)
            if (theta->large[a][c] != 0 && !theta->done[a][c])
                print_message("%s %s: left to TEST_WHOLE\n", name,
                              twill_collective_name((enum twill_collective)c));
    }
    print_message("%u of %u algorithms verified with %u ranks\n", verified, algorithms,
                  THETA_RANKS);
    assert_int_equal(theta->failed, 0);
    if (getenv("TEST_ALGORITHM") == NULL && !TEST_SLOW) {
        assert_true(halving_doubling);
        assert_true(verified == algorithms || (!test_whole() && verified * 3 > algorithms));
    }
}

/* Return whether the step moves data in a column that is followed, and the mutation leaves out or
 * adds a message, or moves other data. The order of operands matters only where the shape asks for
 * one: in any other, a shard that one rank reduces for all is as good (ORDER_FREE of mutants.h). */
static bool matters(const struct test_case *test, const struct twill_columns *columns,
                    const struct twill_step *step, const struct theta_mutant *mutant)
{
    const enum test_mutation kind = mutant->kind;
    bool order = kind == ALTER_FLAG && 1u << mutant->variant == TWILL_STEP_FIRST;
    bool message = step->op == TWILL_STEP_SEND || step->op == TWILL_STEP_RECV ||
                   step->op == TWILL_STEP_RECV_REDUCE;
    bool data =
        step->blocks > 0 && step->op != TWILL_STEP_PUT_IMM &&
        twill_columns_before(columns, (size_t)twill_operand_block(step->dst) + step->blocks) >
            twill_columns_before(columns, twill_operand_block(step->dst));
    return (message &&
            (kind == DROP || kind == TWICE || kind == ALTER_PEER || kind == ALTER_LENGTH)) ||
           (data && step->op == TWILL_STEP_RECV_REDUCE &&
            (kind == ALTER_DST_SPACE || kind == ALTER_SRC_SPACE ||
             (kind == ALTER_FLAG && (!order || test->shape.order != TWILL_ORDER_ANY)))) ||
           (data && kind == DROP);
}

/* Draw a mutant of a rank's schedule that must be noticed. Returns false if none was found. */
static bool draw_mutant(const struct test_case *test, uint64_t seed, uint64_t *random,
                        struct theta_mutant *mutant)
{
    struct twill_schedule schedule;
    struct twill_columns columns;
    mutant->rank = test_draw(random, THETA_RANKS);
    assert_int_equal(twill_schedule_emit(&schedule, test->algorithm, test->world, mutant->rank,
                                         &test->shape, NULL),
                     TWILL_OK);
    assert_true(twill_columns_open(&columns, schedule.blocks, THETA_COLUMNS, seed));
    struct twill_step *steps = malloc((schedule.count + 1) * sizeof(*steps));
    assert_non_null(steps);
    bool found = false;
    for (unsigned i = 0; i < 100 && !found && schedule.count > 0; i++) {
        struct twill_schedule altered = schedule;
        altered.steps = steps;
        memcpy(steps, schedule.steps, schedule.count * sizeof(*steps));
        mutant->at = test_draw(random, schedule.count);
        mutant->kind = (enum test_mutation)test_draw(random, TEST_MUTATIONS);
        mutant->variant = test_draw(random, 16);
        found = matters(test, &columns, &schedule.steps[mutant->at], mutant) &&
                test_mutate(&altered, test->world, mutant->at, mutant->kind, mutant->variant) &&
                (altered.count != schedule.count ||
                 memcmp(steps, schedule.steps, schedule.count * sizeof(*steps)) != 0);
    }
    free(steps);
    twill_columns_close(&columns);
    twill_schedule_destroy(&schedule);
    return found;
}

static void mutate_theta(const struct test_case *test, void *user)
{
    struct theta *theta = user;
    bool allreduces = (test->algorithm->collectives >> TWILL_ALLREDUCE & 1) != 0;
    if ((allreduces && test->shape.collective != TWILL_ALLREDUCE) || !is_next(theta, test))
        return;
    for (unsigned i = 0; i < (test_whole() ? THETA_MUTANTS : 2); i++) {
        uint64_t seed = theta->random;
        struct theta_mutant mutant;
        struct twill_error error = {.status = TWILL_OK};
        if (!draw_mutant(test, seed, &theta->random, &mutant))
            continue;
        theta->mutants++;
        if (verify_mutant(test, mutant, seed, false, &error) == TWILL_OK) {
            theta->failed++;
            print_error("%s, rank %u, step %u: \"%s\" %u survives\n", test->name, mutant.rank,
                        mutant.at, test_mutation_name(mutant.kind), mutant.variant);
        }
    }
}

TWILL_TEST(test_mutants_are_noticed)
{
    struct theta *theta = *state;
    memset(theta->done, 0, sizeof(theta->done));
    memset(theta->large, 0, sizeof(theta->large));
    theta->failed = 0;
    theta->limit = test_whole() ? 2000000 : 450000;
    each_world(mutate_theta, theta);
    print_message("%u mutants, %u survive\n", theta->mutants, theta->failed);
    assert_true(theta->mutants > 0 || TEST_SLOW || getenv("TEST_ALGORITHM") != NULL);
    assert_int_equal(theta->failed, 0);
}

static twill_status emit_kept(struct twill_schedule *schedule, uint32_t rank, void *user,
                              struct twill_error *error)
{
    const struct twill_schedule *schedules = user;
    *schedule = schedules[rank];
    schedule->steps = malloc((schedule->count + 1) * sizeof(*schedule->steps));
    if (schedule->steps == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "no memory");
    memcpy(schedule->steps, schedules[rank].steps, schedule->count * sizeof(*schedule->steps));
    return TWILL_OK;
}

/* Compare with the verification of whole schedules: steps are emitted 16 at a time, and all
 * columns, or one, are followed. A mutant is noticed by both, or by neither, if all are followed.
 */
static void compare_small(const struct test_case *test, void *user)
{
    struct theta *theta = user;
    struct twill_error error = {.status = TWILL_OK};
    struct twill_schedule *schedules = test_emit(test);
    struct twill_schedule_source source = {.emit = emit_kept, .user = schedules};
    for (unsigned i = 0; i < 6; i++) {
        struct twill_schedule *one = &schedules[test_draw(&theta->random, test->world->size)];
        struct twill_schedule whole = *one;
        struct twill_verify_sample sample = {.columns = i == 1, .seed = theta->random};
        one->steps = malloc((whole.count + 1) * sizeof(*one->steps));
        assert_non_null(one->steps);
        memcpy(one->steps, whole.steps, whole.count * sizeof(*one->steps));
        if (i > 1 && one->count > 0)
            test_mutate(one, test->world, test_draw(&theta->random, one->count),
                        (enum test_mutation)test_draw(&theta->random, TEST_MUTATIONS),
                        test_draw(&theta->random, 4));
        twill_schedule_derive(one);
        twill_status is = twill_schedule_verify_sampled(&source, &sample, test->world, &test->shape,
                                                        false, &error);
        twill_status exact =
            twill_schedule_verify_fingerprint(schedules, test->world, &test->shape, false, &error);
        if (is != exact && !(i == 1 && is == TWILL_ERR_UNSUPPORTED))
            fail_msg("%s, %u: %d, but %d if the schedules are whole", test->name, i, is, exact);
        theta->mutants += is != TWILL_OK;
        free(one->steps);
        *one = whole;
    }
    test_schedules_destroy(schedules, test->world->size);
}

TWILL_TEST(test_small_worlds)
{
    struct theta *theta = *state;
    for (unsigned placement = 0; placement < TEST_PLACEMENT_COUNT; placement += 2) {
        struct twill_world world;
        assert_true(test_world(&world, 12, placement, 1));
        test_each_case(&world, 1, compare_small, theta);
        twill_world_destroy(&world);
    }
    print_message("%u noticed\n", theta->mutants);
    bool selected = getenv("TEST_COLLECTIVE") != NULL || getenv("TEST_PROTOCOL") != NULL;
    assert_true(theta->mutants > 0 || selected);
    theta->mutants = 0;
}

static int open_theta(void **state)
{
    struct theta *theta = calloc(1, sizeof(*theta));
    if (theta != NULL)
        theta->random = test_seed();
    *state = theta;
    return theta == NULL;
}

static int close_theta(void **state)
{
    free(*state);
    return 0;
}

TWILL_TEST_GROUP(open_theta, close_theta)
