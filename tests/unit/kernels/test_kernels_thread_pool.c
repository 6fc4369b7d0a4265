/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of threads does every part once. It has several callers, sleeps and wakes, and survives
 * fork() and close. */
#include "lib/base/rest.h"
#include "lib/base/times.h"
#include "tests/support/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_THREADS 9u

/* Work that counts how often each part was called. */
struct tally {
    atomic_uint calls[MOST_THREADS];
    unsigned parts;
    bool naps; /* part 0 takes long */
};

static void count_part(void *job, unsigned part, unsigned parts)
{
    struct tally *tally = job;
    assert_true(part < parts && parts == tally->parts);
    if (tally->naps && part == 0)
        twill_nap(TWILL_MS(1));
    atomic_fetch_add(&tally->calls[part], 1);
}

/* Run work of `parts` parts. Returns whether the pool was free. Then each part was called once,
 * otherwise none. */
static bool run_counted(struct twill_thread_pool *pool, unsigned parts, bool naps)
{
    struct tally tally = {.parts = parts, .naps = naps};
    bool ran = twill_pool_run(pool, parts, count_part, &tally);
    for (unsigned p = 0; p < parts; p++)
        assert_int_equal(atomic_load(&tally.calls[p]), ran ? 1 : 0);
    return ran;
}

/* Wait until the pool's threads sleep. */
static void await_sleep(const struct twill_thread_pool *pool)
{
    for (uint64_t end = twill_now() + TWILL_TEST_PATIENCE; !twill_pool_sleeps(pool);) {
        assert_true(twill_now() < end);
        twill_nap(TWILL_US(100));
    }
}

TWILL_TEST(each_part_is_called_once)
{
    for (unsigned threads = 2; threads <= MOST_THREADS; threads++) {
        struct twill_thread_pool *pool = twill_test_pool(threads, 1);
        assert_int_equal(twill_thread_pool_size(pool), threads);
        for (unsigned i = 0; i < 2000; i++)
            assert_true(run_counted(pool, 2 + i % (threads - 1), false));
        twill_thread_pool_close(pool);
    }
}

TWILL_TEST(one_thread_has_no_pool)
{
    struct twill_thread_pool *pool = twill_test_pool(1, 1);
    assert_null(pool);
    assert_int_equal(twill_thread_pool_size(pool), 1);
    assert_int_equal(twill_pool_threads(pool, 1 << 30, 1 << 30), 1);
    assert_int_equal(twill_thread_pool_rates(pool)->steps, 0);
    assert_false(run_counted(pool, 2, false));
    assert_false(twill_pool_sleeps(pool));
    twill_thread_pool_close(pool);
}

TWILL_TEST(too_many_threads_are_refused)
{
    const struct twill_thread_pool_options options = {.threads = TWILL_THREADS_MOST + 1};
    struct twill_thread_pool *pool;
    struct twill_error error = {.status = TWILL_OK};
    assert_int_equal(twill_thread_pool_open(&pool, &options, &error), TWILL_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "1023 threads are more than the maximum, 1022"));
    assert_null(pool);
}

TWILL_TEST(threads_sleep_and_wake)
{
    struct twill_thread_pool *pool = twill_test_pool(4, 1);
    for (int i = 0; i < 50; i++) {
        await_sleep(pool);
        assert_true(run_counted(pool, 4, false));
    }
    twill_thread_pool_close(pool);
}

TWILL_TEST(close_wakes_threads)
{
    for (int i = 0; i < 20; i++) {
        struct twill_thread_pool *pool = twill_test_pool(5, 1);
        if (i % 2 == 0)
            await_sleep(pool);
        if (i % 3 == 0)
            assert_true(run_counted(pool, 5, false));
        twill_thread_pool_close(pool);
    }
}

static void *call_often(void *pool)
{
    size_t ran = 0;
    for (int i = 0; i < 500; i++)
        ran += run_counted(pool, 3, i % 100 == 0);
    return (void *)ran;
}

TWILL_TEST(a_busy_pool_is_left_to_its_caller)
{
    struct twill_thread_pool *pool = twill_test_pool(3, 1);
    pthread_t callers[3];
    size_t all = 0;
    for (size_t c = 0; c < TWILL_ARRAY_LENGTH(callers); c++)
        assert_int_equal(pthread_create(&callers[c], NULL, call_often, pool), 0);
    for (size_t c = 0; c < TWILL_ARRAY_LENGTH(callers); c++) {
        void *ran = NULL;
        assert_int_equal(pthread_join(callers[c], &ran), 0);
        all += (size_t)ran;
    }
    assert_true(all >= 1); /* the first caller found it free */
    twill_thread_pool_close(pool);
}

/* A caller that is to be cancelled, and what it still did. */
struct cancelled {
    struct twill_thread_pool *pool;
    atomic_bool begun, sent; /* it is in a part, and pthread_cancel() was called */
    atomic_uint parts;
};

static void await_cancel(void *job, unsigned part, unsigned parts)
{
    struct cancelled *c = job;
    (void)part, (void)parts;
    atomic_store(&c->begun, true);
    while (!atomic_load(&c->sent))
        twill_nap(TWILL_US(100)); /* each nap would be a point at which a thread is cancelled */
    pthread_testcancel();
    atomic_fetch_add(&c->parts, 1);
}

static void *call_until_cancelled(void *argument)
{
    struct cancelled *c = argument;
    assert_true(twill_pool_run(c->pool, 3, await_cancel, c));
    pthread_testcancel();
    return NULL;
}

TWILL_TEST(a_cancelled_caller_ends_its_work_first)
{
    struct cancelled c = {.pool = twill_test_pool(3, 1)};
    pthread_t caller;
    void *result = NULL;
    assert_int_equal(pthread_create(&caller, NULL, call_until_cancelled, &c), 0);
    while (!atomic_load(&c.begun))
        twill_nap(TWILL_US(100));
    assert_int_equal(pthread_cancel(caller), 0);
    atomic_store(&c.sent, true);
    assert_int_equal(pthread_join(caller, &result), 0);
    assert_true(result == PTHREAD_CANCELED);
    assert_int_equal(atomic_load(&c.parts), 3);
    assert_true(run_counted(c.pool, 3, false)); /* the pool is free */
    twill_thread_pool_close(c.pool);
}

/* In a child of fork() the caller does all parts, as the threads do not exist there. */
TWILL_TEST(a_child_of_fork_works_alone)
{
    struct twill_thread_pool *pool = twill_test_pool(3, 1);
    assert_true(run_counted(pool, 3, false));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool good = run_counted(pool, 3, false) && run_counted(pool, 2, false);
        twill_thread_pool_close(pool);
        _exit(good ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(run_counted(pool, 3, false));
    twill_thread_pool_close(pool);
}

static void note_cpu(void *job, unsigned part, unsigned parts)
{
    (void)parts;
    ((int *)job)[part] = sched_getcpu();
}

/* Bound threads work where they are bound, and the caller takes the part of its own core. */
TWILL_TEST(parts_go_to_their_cores)
{
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    int cpus[2], found = 0;
    uint16_t position[CPU_SETSIZE];
    memset(position, 0xff, sizeof(position));
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
        if (CPU_ISSET((size_t)cpu, &before)) {
            position[cpu] = (uint16_t)found;
            cpus[found++] = cpu;
        }
    if (found < 2)
        skip();
    const struct twill_thread_pool_options options = {
        .threads = 2, .cpus = cpus, .position = position, .cpu_count = CPU_SETSIZE};
    struct twill_thread_pool *pool;
    assert_int_equal(twill_thread_pool_open(&pool, &options, NULL), TWILL_OK);
    for (int mine = 0; mine < 2; mine++) {
        int where[2] = {-1, -1};
        CPU_ZERO(&one);
        CPU_SET((size_t)cpus[mine], &one);
        assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
        for (int i = 0; i < 100; i++) {
            assert_true(twill_pool_run(pool, 2, note_cpu, where));
            assert_int_equal(where[mine], cpus[mine]);
            assert_true(where[1 - mine] == cpus[1 - mine] || where[1 - mine] == cpus[mine]);
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    twill_thread_pool_close(pool);
}

/* Figures of 1, 2 and 4 threads. Two pay from some 14 KB, four from some 130 KB. */
static const struct twill_thread_rates example = {
    .steps = 3,
    .near_bytes = 1 << 20,
    .step = {{1, 0, 0, {10000, 5000}, {8000, 4000}},
             {2, 700, 20000, {20000, 9000}, {16000, 8000}},
             {4, 4000, 50000, {40000, 9500}, {32000, 9000}}}};

TWILL_TEST(figures_choose_the_number_of_threads)
{
    struct twill_thread_pool *pool = twill_test_pool(4, 0);
    assert_true(twill_thread_rates_valid(&example));
    assert_int_equal(twill_pool_threads(pool, 256 << 10, 0), 1); /* without figures */
    assert_int_equal(twill_pool_threads(pool, 512 << 10, 0), 2);
    twill_thread_pool_use(pool, TWILL_TEAM_OWN, &example);
    assert_memory_equal(twill_thread_pool_rates(pool), &example, sizeof(example));
    twill_thread_pool_close(pool);
    assert_int_equal(twill_thread_step(&example, 4, 13000, 13000, false), 0);
    assert_int_equal(twill_thread_step(&example, 4, 15000, 15000, false), 1);
    assert_int_equal(twill_thread_step(&example, 4, 120000, 120000, false), 1);
    assert_int_equal(twill_thread_step(&example, 4, 140000, 140000, false), 2);
    assert_int_equal(twill_thread_step(&example, 2, 140000, 140000, false), 1);
    assert_int_equal(twill_thread_step(&example, 1, 140000, 140000, false), 0);
    assert_int_equal(twill_thread_step(&example, 4, 300000, 300000, true), 0);
    assert_int_equal(twill_thread_step(&example, 4, 1000000, 1000000, true), 1);
    size_t from = twill_thread_pays_from(&example, 4);
    assert_true(from > 13000 && from < 16000);
    assert_int_equal(twill_thread_pays_from(&example, 1), SIZE_MAX);
    assert_int_equal(twill_thread_last_step(&example, 1), 0);
    assert_int_equal(twill_thread_last_step(&example, 3), 1);
    assert_int_equal(twill_thread_last_step(&example, 64), 2);
}

TWILL_TEST(times_follow_the_figures)
{
    /* A copy, a reduction of two and of three sources, a read, and the part beyond near_bytes. */
    assert_true(twill_thread_ns(&example, 0, 8000, 8000, false) == 800);
    assert_true(twill_thread_ns(&example, 0, 8000, 16000, false) == 1000);
    assert_true(twill_thread_ns(&example, 0, 8000, 24000, false) == 1200);
    assert_true(twill_thread_ns(&example, 0, 0, 8000, false) == 800);
    assert_true(twill_thread_ns(&example, 1, 8000, 8000, false) == 1100);
    assert_true(twill_thread_ns(&example, 1, 8000, 8000, true) == 20400);
    double near = twill_thread_ns(&example, 0, 1 << 20, 1 << 20, false);
    double far = twill_thread_ns(&example, 0, 2 << 20, 2 << 20, false);
    assert_true(far > 2.99 * near && far < 3.01 * near);
}

/* Do nothing, in any number of parts. */
static void do_nothing(void *job, unsigned part, unsigned parts)
{
    (void)job;
    assert_true(part < parts);
}

/* Share a job in a part of another one, which must then do all of it. */
static void share_inside(void *pool, unsigned part, unsigned parts)
{
    (void)part, (void)parts;
    struct tally tally = {.parts = 1};
    twill_pool_share(pool, 1 << 20, 1 << 20, 4, count_part, &tally);
    assert_int_equal(atomic_load(&tally.calls[0]), 1);
}

/* Run work of two parts, with a pool that is free. */
static void run_inside(void *pool, unsigned part, unsigned parts)
{
    assert_true(part == 0 && parts == 1);
    assert_true(run_counted(pool, 2, false));
}

/* Share a job of 300,000 bytes in a pool of four threads that sleep. By the figures it takes 30 us
 * alone, 50 if the threads must be woken, and 13 or less if they are awake. Returns whether several
 * threads had parts. */
static bool share_asleep(struct twill_thread_pool *pool)
{
    struct tally tally = {.parts = 1};
    uint64_t forks = twill_pool_forks(pool);
    await_sleep(pool);
    twill_pool_share(pool, 300000, 300000, 1, count_part, &tally);
    assert_int_equal(atomic_load(&tally.calls[0]), 1);
    assert_int_equal(twill_pool_forks(pool), forks);
    twill_pool_share(pool, 300000, 300000, 4, do_nothing, &tally);
    return twill_pool_forks(pool) > forks;
}

/* A stream of jobs, each of which gains less than waking costs, wakes the threads all the same. */
TWILL_TEST(small_gains_add_up_to_a_waking)
{
    struct twill_thread_pool *pool = twill_test_pool(4, 0);
    twill_thread_pool_use(pool, TWILL_TEAM_OWN, &example);
    assert_int_equal(twill_thread_step(&example, 4, 300000, 300000, true), 0);
    assert_false(share_asleep(pool));
    unsigned jobs = 1;
    while (!share_asleep(pool))
        assert_true(++jobs < 10);
    twill_thread_pool_close(pool);
}

/* Share a job that one thread does alone, in which another thread finds the pool free. */
TWILL_TEST(a_job_of_one_thread_leaves_the_pool_free)
{
    struct twill_thread_pool *pool = twill_test_pool(4, 0);
    uint64_t forks = twill_pool_forks(pool);
    twill_pool_share(pool, 1 << 20, 1 << 20, 1, run_inside, pool);
    assert_int_equal(twill_pool_forks(pool), forks + 1);
    twill_thread_pool_close(pool);
}

TWILL_TEST(a_pool_in_use_shares_nothing)
{
    struct twill_thread_pool *pool = twill_test_pool(4, 1);
    assert_true(twill_pool_run(pool, 2, share_inside, pool));
    twill_pool_share(NULL, 1 << 20, 1 << 20, 4, share_inside, NULL);
    twill_thread_pool_close(pool);
}

TWILL_TEST(insane_figures_are_found)
{
    struct twill_thread_rates rates = example;
    rates.step[0].threads = 2;
    assert_false(twill_thread_rates_valid(&rates));
    rates = example;
    rates.step[2].threads = 2;
    assert_false(twill_thread_rates_valid(&rates));
    rates = example;
    rates.step[1].copy_mbs[1] = 0;
    assert_false(twill_thread_rates_valid(&rates));
    rates.steps = TWILL_THREAD_STEPS + 1;
    assert_false(twill_thread_rates_valid(&rates));
    rates.steps = 0;
    assert_true(twill_thread_rates_valid(&rates));
}

/* --- trials, which find out whether jobs are faster in one thread or shared, whatever was expected
 */

#define ALONE_NS 1000.0

/* Do `jobs` jobs that take so many ticks, and every 100th 1000 times as many if `interrupted`.
 * Returns how many were done alone. */
static unsigned do_jobs(struct twill_thread_trial *trial, unsigned jobs, uint64_t alone,
                        uint64_t shared, double shared_ns, bool interrupted)
{
    unsigned count = 0;
    for (unsigned i = 0; i < jobs; i++) {
        bool is_alone = twill_thread_trial_begin(trial, ALONE_NS, shared_ns);
        uint64_t ticks = (is_alone ? alone : shared) * (interrupted && i % 100 == 99 ? 1000 : 1);
        twill_thread_trial_end(trial, is_alone, ticks, ALONE_NS);
        count += is_alone;
    }
    return count;
}

TWILL_TEST(a_way_that_pays_is_kept)
{
    struct twill_thread_trial trial = {0};
    assert_true(do_jobs(&trial, 100000, 4000, 2000, ALONE_NS / 2, false) < 1000);
    assert_false(trial.alone);
}

TWILL_TEST(a_wrong_expectation_is_corrected)
{
    struct twill_thread_trial trial = {0};
    (void)do_jobs(&trial, 200, 4000, 8000, ALONE_NS / 2, false);
    assert_true(trial.alone);
    assert_true(do_jobs(&trial, 100000, 4000, 8000, ALONE_NS / 2, false) > 99000);
}

TWILL_TEST(a_change_is_noticed)
{
    struct twill_thread_trial trial = {0};
    (void)do_jobs(&trial, 100000, 4000, 8000, ALONE_NS / 2, false);
    (void)do_jobs(&trial, 20000, 4000, 1000, ALONE_NS / 2, false);
    assert_false(trial.alone);
    (void)do_jobs(&trial, 20000, 4000, 8000, ALONE_NS / 2, false);
    assert_true(trial.alone);
}

/* Long after the last trial, another program takes the core of a thread. */
TWILL_TEST(a_slower_way_is_left_soon)
{
    struct twill_thread_trial trial = {0};
    (void)do_jobs(&trial, 100000, 4000, 2000, ALONE_NS / 2, false);
    assert_false(trial.alone);
    assert_true(do_jobs(&trial, 100, 4000, 8000, ALONE_NS / 2, false) > 80);
    assert_true(trial.alone);
}

TWILL_TEST(a_small_difference_changes_nothing)
{
    struct twill_thread_trial trial = {0};
    (void)do_jobs(&trial, 100000, 4000, 4100, ALONE_NS / 2, false);
    assert_false(trial.alone);
}

TWILL_TEST(an_interrupted_job_hardly_counts)
{
    struct twill_thread_trial trial = {0};
    assert_true(do_jobs(&trial, 100000, 8000, 2000, ALONE_NS / 2, true) < 1000);
}

/* If sharing is expected to take a tenth of the time, a trial costs more, so it comes later. */
TWILL_TEST(a_trial_that_costs_more_comes_later)
{
    struct twill_thread_trial slight = {0}, great = {0};
    assert_int_equal(do_jobs(&slight, 20, 4000, 2000, ALONE_NS / 1.1, false), 6);
    assert_int_equal(do_jobs(&great, 400, 4000, 400, ALONE_NS / 10, false), 0);
    assert_int_equal(do_jobs(&great, 100, 4000, 400, ALONE_NS / 10, false), 6);
}

TWILL_TEST_GROUP(NULL, NULL)
