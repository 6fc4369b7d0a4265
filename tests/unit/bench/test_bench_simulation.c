/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated parameter server against what is known exactly: times of updates within 2 %,
 * staleness, contention, error floors and the border of stability. The seeds are fixed, so the
 * results do not vary. CMake links bench/tools/simulate/. */
#include "bench/tools/simulate/simulation.h"
#include "tests/support/unit.h"

static void parse(struct law *law, const char *text)
{
    const char *wrong;
    if (!law_parse(law, text, &wrong))
        fail_msg("%s: %s", text, wrong);
}

/* Return a setup without network, with nothing to learn. */
static struct simulation_setup setup_of(const char *mode, uint32_t workers, const char *compute)
{
    const char *wrong;
    struct simulation_setup setup = {.workers = workers,
                                     .shards = 1,
                                     .endpoints = 1,
                                     .credits = UINT32_MAX,
                                     .slow_factor = 1,
                                     .server_link = 1e9,
                                     .worker_link = 1e9,
                                     .updates = 20000,
                                     .skipped = 2000,
                                     .seed = 1,
                                     .problem = {.condition = 1, .distance_most = 1}};
    parse(&setup.compute, compute);
    if (!simulation_parse_choice(&setup.choice, mode, &wrong))
        fail_msg("%s: %s", mode, wrong);
    return setup;
}

static struct simulation_result run(const struct simulation_setup *setup)
{
    struct simulation_result result;
    assert_true(simulation_run(&result, setup));
    return result;
}

static double time_of_update(const struct simulation_setup *setup)
{
    struct simulation_result result = run(setup);
    return result.elapsed / (double)result.updates;
}

static void assert_within(double value, double expected, double part)
{
    if (!(fabs(value - expected) <= part * fabs(expected)))
        fail_msg("%g is not %g within %g %%", value, expected, 100 * part);
}

/* Compare a mode's simulated time, and what the tool says is exact, with a closed form. */
static void check_time(const char *mode, uint32_t workers, const char *compute, double expected)
{
    struct simulation_setup setup = setup_of(mode, workers, compute);
    if (setup.choice.mode == SIMULATION_ASYNC || setup.choice.parameter == 1)
        setup.updates = 80000; /* each is one gradient */
    assert_within(time_of_update(&setup), expected, 0.02);
    assert_within(simulation_closed_form(&setup), expected, 1e-4);
}

static double harmonic(uint32_t n)
{
    return harmonic_difference(n, n);
}

TWILL_TEST(test_order_statistics)
{
    static const uint32_t workers[] = {2, 4, 8, 20};
    static const double over_async[] = {3.0, 8.33, 21.74, 71.95};
    char all[32];
    for (int i = 0; i < 4; i++) { /* sync takes P * H_P times as long as async */
        struct simulation_setup sync = setup_of("sync", workers[i], "exp:0.5");
        struct simulation_setup async = setup_of("async", workers[i], "exp:0.5");
        async.updates = 80000;
        assert_within(time_of_update(&sync) / time_of_update(&async), over_async[i], 0.02);
        assert_within(workers[i] * harmonic(workers[i]), over_async[i], 1e-3);
        snprintf(all, sizeof(all), "k-sync:%u", workers[i]); /* K = P is sync, to the bit */
        struct simulation_setup k = setup_of(all, workers[i], "exp:0.5");
        assert_true(time_of_update(&k) == time_of_update(&sync));
    }
    check_time("k-sync:1", 8, "exp:1", 0.125); /* (H_P - H_(P-K)) / mu */
    check_time("k-sync:4", 8, "exp:1", 0.6345);
    check_time("k-sync:8", 8, "exp:1", 2.7179);
    check_time("k-sync:4", 8, "shifted:2,1", 2.6345);
    check_time("k-sync:4", 8, "uniform:1,3", 1 + 2 * 4 / 9.0);
    check_time("k-sync:4", 8, "const:3", 3);
    /* a Pareto law of shape 2: the product of i / (i - 1/2) for i = 5 to 8 */
    check_time("k-sync:4", 8, "pareto:1,2", 5 / 4.5 * 6 / 5.5 * 7 / 6.5 * 8 / 7.5);
}

TWILL_TEST(test_renewals)
{
    check_time("k-batch-sync:4", 8, "exp:0.5", 4 * 0.5 / 8); /* K / (P mu) */
    check_time("k-batch-async:4", 8, "exp:0.5", 4 * 0.5 / 8);
    check_time("k-batch-async:4", 8, "uniform:1,3", 4 * 2 / 8.0); /* K E[X] / P */
    check_time("k-batch-async:4", 8, "pareto:1,3", 4 * 1.5 / 8);
    check_time("k-batch-async:4", 8, "shifted:1,1", 4 * 2 / 8.0);
    check_time("k-batch-async:4", 8, "const:2", 4 * 2 / 8.0);
    check_time("softsync:2", 8, "uniform:1,3", 4 * 2 / 8.0);
    check_time("softsync:1", 8, "uniform:1,3", 8 * 2 / 8.0);
    check_time("async", 8, "uniform:1,3", 2 / 8.0);
    check_time("k-async:1", 8, "uniform:1,3", 2 / 8.0);
    check_time("k-async:4", 8, "exp:1", 0.6345);
    check_time("k-async:8", 8, "exp:1", 2.7179);
    check_time("groups:4", 16, "exp:1", harmonic(4) / 4); /* each has the last of 4 */
    check_time("bounded:0", 8, "exp:1", harmonic(8) / 8);
}

/* The same numbers are drawn, so that modes which are one are equal to the bit. Under sanitizers
 * with one law by TEST_SEED. */
TWILL_TEST(test_equal_modes)
{
    static const char *const equal[][2] = {
        {"k-sync:8", "sync"},   {"k-async:8", "sync"},        {"groups:1", "sync"},
        {"k-async:1", "async"}, {"k-batch-async:1", "async"}, {"softsync:8", "async"},
        {"groups:8", "async"},  {"bounded:1000000", "async"}};
    static const char *const laws[] = {"exp:1", "uniform:0,2", "pareto:1,1.5"};
    for (size_t i = 0; i < sizeof(equal) / sizeof(equal[0]); i++) {
        for (uint64_t law = TEST_FEWER ? (i + test_seed()) % 3 : 0; law < 3;
             law += TEST_FEWER ? 3 : 1) {
            struct simulation_setup a = setup_of(equal[i][0], 8, laws[law]);
            struct simulation_setup b = setup_of(equal[i][1], 8, laws[law]);
            if (time_of_update(&a) != time_of_update(&b))
                fail_msg("%s is not %s", equal[i][0], equal[i][1]);
        }
    }
}

/* K-async takes at most as long as K-sync where a worker that has computed for a while has less
 * left than a new one (Dutta et al. 2018, theorem 5); a heavy tail is the opposite. */
TWILL_TEST(test_k_async_is_faster)
{
    static const char *const laws[] = {"exp:1", "shifted:1,1", "uniform:0,2", "pareto:1,1.5"};
    for (int law = 0; law < 4; law++) {
        struct simulation_setup sync = setup_of("k-sync:4", 8, laws[law]);
        struct simulation_setup async = setup_of("k-async:4", 8, laws[law]);
        double ratio = time_of_update(&async) / time_of_update(&sync);
        assert_true(law == 0 ? fabs(ratio - 1) < 0.02 : law == 3 ? ratio > 1 : ratio < 0.98);
    }
}

TWILL_TEST(test_measured_list)
{
    char path[] = "/tmp/twill-list-XXXXXX", text[64];
    int file = mkstemp(path);
    assert_true(file >= 0 && write(file, "1 2\n6\n", 6) == 6);
    close(file);
    snprintf(text, sizeof(text), "list:%s", path);
    struct simulation_setup setup = setup_of("k-batch-async:4", 8, text);
    unlink(path);
    assert_within(simulation_closed_form(&setup), 1.5, 1e-9);
    assert_within(time_of_update(&setup), 1.5, 0.02);
    law_free(&setup.compute);
}

TWILL_TEST(test_bad_laws)
{
    static const char *const bad[] = {
        "",           "exp",     "exp:",    "exp:-1", "exp:1,2",  "uniform:2,1",  "uniform:1",
        "pareto:1,0", "gauss:1", "exp:nan", "list:/", "const:1x", "list:/nowhere"};
    static const char *const no_modes[] = {"",       "k-sync",    "k-sync:", "k-sync:x",
                                           "sync:1", "k-sync:-1", "asynch"};
    struct law law;
    struct simulation_choice choice;
    struct simulation_rules rules;
    const char *wrong;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (law_parse(&law, bad[i], &wrong))
            fail_msg("'%s' is a law", bad[i]);
        law_free(&law);
    }
    for (size_t i = 0; i < sizeof(no_modes) / sizeof(no_modes[0]); i++)
        assert_false(simulation_parse_choice(&choice, no_modes[i], &wrong));
    choice = (struct simulation_choice){SIMULATION_K_SYNC, 9};
    assert_false(simulation_rules_of(&rules, choice, 8, &wrong));
    choice = (struct simulation_choice){SIMULATION_GROUPS, 3};
    assert_false(simulation_rules_of(&rules, choice, 8, &wrong));
}

/* n-softsync of 30 workers, whose times differ by half of their mean at most. */
TWILL_TEST(test_softsync_staleness)
{
    static const uint32_t n[] = {1, 2, 3, 6, 15, 30};
    char mode[32];
    for (int i = 0; i < 6; i++) {
        snprintf(mode, sizeof(mode), "softsync:%u", n[i]);
        struct simulation_setup setup = setup_of(mode, 30, "uniform:0.5,1.5");
        struct simulation_result result = run(&setup);
        assert_within(result.staleness_sum / (double)result.used, n[i], 0.05);
        assert_int_equal(result.updates, result.used / (30 / n[i])); /* #updates = #gradients / c */
        assert_int_equal(result.used % (30 / n[i]), 0);
        uint64_t above = 0;
        for (uint32_t staleness = 2 * n[i] + 1; staleness < SIMULATION_STALENESS; staleness++)
            above += result.staleness[staleness];
        assert_true((double)above < 1e-4 * (double)result.used);
    }
}

TWILL_TEST(test_bounded)
{
    for (uint32_t bound = 0; bound < 6; bound += 2) {
        char mode[32];
        snprintf(mode, sizeof(mode), "bounded:%u", bound);
        struct simulation_setup setup = setup_of(mode, 16, "exp:1");
        setup.slow_workers = 1;
        setup.slow_factor = 3;
        struct simulation_result result = run(&setup);
        assert_int_equal(result.furthest_ahead, bound + 1); /* then it waits */
    }
}

/* Late gradients that the server drops instead: a slow worker's are all in vain. */
TWILL_TEST(test_late)
{
    struct simulation_setup setup = setup_of("k-sync:7", 8, "const:1");
    setup.slow_workers = 1;
    setup.slow_factor = 1.5;
    setup.late_pushes = true;
    struct simulation_result result = run(&setup);
    assert_within(result.elapsed / (double)result.updates, 1, 1e-9);
    assert_within((double)result.dropped, (double)result.updates / 1.5, 0.001);
    assert_int_equal(result.used, 7 * result.updates);
}

/* Messages on the server's link: its bytes take their time, whoever sends them. */
TWILL_TEST(test_contention)
{
    struct simulation_setup setup = setup_of("sync", 16, "const:0.5");
    setup.updates = 2000;
    setup.skipped = 200;
    setup.bytes = 1e7;
    assert_within(time_of_update(&setup), 0.5 + 2 * 16 * 0.01, 1e-6); /* there and back */
    setup.credits = 2;
    struct simulation_result few = run(&setup);
    /* Workers get their shards two by two, so all but the last two push while others compute. */
    assert_within(few.elapsed / (double)few.updates, 0.5 + 16 * 0.01 + 2 * 0.01, 1e-6);
    setup.credits = UINT32_MAX;
    struct simulation_result all = run(&setup);
    assert_within(all.push_mean, 16 * 0.01, 1e-6); /* all end together */
    assert_within(few.push_mean, 2 * 0.01, 1e-6);
    setup.endpoints = 4;
    assert_within(time_of_update(&setup), 0.5 + 2 * 16 * 0.01 / 4, 1e-6);
    setup.shards = 4;
    assert_within(time_of_update(&setup), 0.5 + 2 * 16 * 0.01 / 4, 1e-6);
    setup.endpoints = 16; /* then each worker's own link is the limit */
    setup.worker_link = 0.5e9;
    assert_within(time_of_update(&setup), 0.5 + 2 * 0.02, 1e-6);
    setup = setup_of("async", 64, "exp:0.1"); /* a link is busy nearly always */
    setup.bytes = 1e7;
    assert_within(time_of_update(&setup), 0.01, 0.05);
    setup.endpoints = 4;
    assert_within(time_of_update(&setup), 0.0025, 0.05);
    setup = setup_of("async", 64, "exp:0.1"); /* so is the server, if it is slower */
    parse(&setup.service, "const:0.02");
    assert_within(time_of_update(&setup), 0.02, 1e-3);
}

/* Messages of one length which join and leave: each has what max-min fairness gives it. */
TWILL_TEST(test_shared_link)
{
    struct shared_link link = {.capacity = 10, .most = 6, .length = 60, .credits = 2};
    assert_true(shared_link_create(&link, 4));
    assert_true(isinf(shared_link_next(&link)));
    shared_link_send(&link, 2, 0); /* at 6 */
    shared_link_send(&link, 0, 5); /* both at 5: 30 are left of the first */
    shared_link_send(&link, 1, 6); /* waits for a credit */
    shared_link_send(&link, 3, 6);
    assert_within(shared_link_next(&link), 11, 1e-12);
    shared_link_cancel(&link, 1, 7);
    assert_int_equal(shared_link_take(&link, 11), 2);
    assert_within(shared_link_next(&link), 17, 1e-12); /* of 60, 30 by then */
    shared_link_cancel(&link, 0, 12);                  /* the last one alone: 55 at 6 */
    assert_within(shared_link_next(&link), 12 + 55 / 6.0, 1e-12);
    assert_int_equal(shared_link_take(&link, 12 + 55 / 6.0), 3);
    assert_true(isinf(shared_link_next(&link)));
    shared_link_free(&link);
}

static struct simulation_setup learning_setup(const char *mode, uint32_t workers, double rate)
{
    struct simulation_setup setup = setup_of(mode, workers, "const:1");
    setup.problem.dimensions = 8;
    setup.problem.rate = rate;
    setup.problem.noise = 1;
    return setup;
}

/* What is left of the loss, by the variance of an autoregressive process. */
TWILL_TEST(test_error_floors)
{
    double a = 0.2, floor = 8 * 0.5 * a / (2 - a) / 4; /* 4 workers, 8 dimensions */
    struct simulation_setup setup = learning_setup("sync", 4, a);
    assert_within(run(&setup).floor, floor, 0.02);
    setup = learning_setup("groups:1", 4, a);
    assert_within(run(&setup).floor, floor, 0.02);
    /* Two workers in turn: w(t+1) = w(t) - a w(t-1) + noise. */
    setup = learning_setup("async", 2, a);
    setup.updates = 100000;
    assert_within(run(&setup).floor, 8 * 0.5 * a * (1 + a) / ((1 - a) * (2 + a)), 0.02);
    /* At one rate: async above sync, the K modes between. */
    double sync, async, between;
    setup = learning_setup("sync", 8, 0.1);
    parse(&setup.compute, "exp:1");
    sync = run(&setup).floor;
    setup.choice.mode = SIMULATION_ASYNC;
    async = run(&setup).floor;
    setup.choice = (struct simulation_choice){SIMULATION_K_SYNC, 4};
    between = run(&setup).floor;
    assert_true(1.5 * sync < between && 1.5 * between < async);
    setup.choice.mode = SIMULATION_K_ASYNC;
    assert_true(1.02 * between < run(&setup).floor && run(&setup).floor < async);
    setup.choice.mode = SIMULATION_K_BATCH_SYNC; /* as K-sync's for equal samples */
    assert_within(run(&setup).floor, between, 0.05);
}

/* Workers in turn have staleness P - 1; w(t+1) = w(t) - a w(t-T) is stable for a below
 * 2 sin(pi / (2 (2 T + 1))). What is beyond that is stable again at a rate of a / staleness, and
 * bounded at a rate by distance. */
TWILL_TEST(test_stability)
{
    static const uint32_t workers[] = {2, 4, 30};
    for (int i = 0; i < 3; i++) {
        double staleness = workers[i] - 1;
        double border = 2 * sin(M_PI / (2 * (2 * staleness + 1)));
        struct simulation_setup setup = learning_setup("async", workers[i], 0.95 * border);
        setup.updates = 40000;
        setup.problem.noise = 0;
        assert_int_equal(run(&setup).diverged, 0);
        assert_true(run(&setup).floor < 1e-9);
        setup.problem.rate = 1.05 * border;
        assert_true(run(&setup).diverged > 0);
    }
    struct simulation_setup setup = learning_setup("sync", 30, 0.9);
    assert_int_equal(run(&setup).diverged, 0);
    setup.choice.mode = SIMULATION_ASYNC;
    setup.skipped = 0;
    struct simulation_result result = run(&setup);
    assert_true(result.diverged > 0);
    assert_int_equal(result.largest_staleness, 29);
    setup.problem.rule = RATE_STALENESS;
    result = run(&setup);
    assert_int_equal(result.diverged, 0);
    assert_true(result.floor < 4); /* half the noise's square, of 8 dimensions */
    setup.problem.rule = RATE_DISTANCE;
    setup.problem.distance_c = 0.1;
    result = run(&setup);
    assert_int_equal(result.diverged, 0);
    assert_true(result.floor < 8);
}

TWILL_TEST(test_factors)
{
    struct simulation_problem problem = {.distance_c = 3, .distance_most = 2};
    assert_true(simulation_factor(&problem, 7, 100) == 1);
    problem.rule = RATE_STALENESS;
    assert_true(simulation_factor(&problem, 0, 100) == 1);
    assert_true(simulation_factor(&problem, 1, 100) == 1);
    assert_true(simulation_factor(&problem, 8, 100) == 0.125);
    problem.rule = RATE_DISTANCE;
    assert_true(simulation_factor(&problem, 8, 0) == 2);
    assert_true(simulation_factor(&problem, 8, 1.5) == 2);
    assert_true(simulation_factor(&problem, 8, 6) == 0.5);
}

/* Shards are updated in an order of the seed's: the same seed gives the same bits, another one
 * others. */
TWILL_TEST(test_shard_order)
{
    struct simulation_setup setup = learning_setup("async", 4, 0.05);
    setup.problem.noise = 0;
    setup.updates = 100;
    setup.skipped = 10;
    setup.shards = 4;
    struct simulation_result one = run(&setup), again = run(&setup);
    assert_memory_equal(&one.curve, &again.curve, sizeof(one.curve));
    setup.seed = 2;
    struct simulation_result other = run(&setup);
    assert_true(one.curve[50].loss != other.curve[50].loss);
    assert_within(one.curve[50].loss, other.curve[50].loss, 0.3);
}

TWILL_TEST(test_many_workers)
{
    struct simulation_setup setup = setup_of("k-batch-async:5000", 10000, "uniform:0.5,1.5");
    setup.updates = 30;
    setup.skipped = 4;
    assert_within(time_of_update(&setup), 0.5, 0.02);
    setup = setup_of("sync", 10000, "exp:1");
    setup.updates = 120;
    setup.skipped = 0;
    assert_within(time_of_update(&setup), harmonic(10000), 0.05);
}
