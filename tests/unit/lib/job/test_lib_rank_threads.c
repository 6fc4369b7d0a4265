/* SPDX-License-Identifier: Apache-2.0 */
/* How a job decides on the threads of its ranks, and that all ranks have the same figures. */
#include "kernels/thread_pool.h"
#include "lib/comm/comm.h"
#include "lib/job/rank_threads.h"
#include "lib/job/thread_cache.h"
#include "numa/topology.h"
#include "tests/support/no_threads.h"
#include "tests/support/unit.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static char home[] = "/tmp/twill-threads-XXXXXX";

static int set_home(void **state)
{
    (void)state;
    unsetenv("OMP_NUM_THREADS");
    unsetenv("SLURM_CPUS_PER_TASK");
    unsetenv("ALPS_APP_DEPTH");
    unsetenv("OMP_WAIT_POLICY");
    unsetenv("KMP_BLOCKTIME");
    return mkdtemp(home) != NULL && setenv("HOME", home, 1) == 0 ? 0 : -1;
}

static int remove_home(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof(command), "rm -r %s", home);
    return system(command);
}

/* Figures of the last job by rank, and the pieces of its ranks. */
static struct {
    struct twill_thread_rates rates;
    size_t piece;
    unsigned threads;
} seen[3];

/* Rank r of three asks for 1 + r threads, and rank 0 for two. */
static void run_measured(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    (void)size, (void)user;
    twill_comm *comm;
    TWILL_CHECK(twill_test_open(&comm, bootstrap, "",
                                twill_test_text("TWILL_THREADS=%d", rank == 0 ? 2 : 1 + rank),
                                TWILL_TEST_PATIENT));
    const struct twill_context *context = twill_comm_context(comm);
    seen[rank].rates = context->machine.threads->rates;
    seen[rank].piece = context->job.piece;
    seen[rank].threads = twill_thread_pool_size(context->machine.pool);
    float x = 1, y = 0;
    TWILL_CHECK(twill_allreduce(comm, &x, &y, 1, TWILL_F32, TWILL_SUM) == TWILL_OK && y == 3);
    TWILL_CHECK(context->machine.pool == comm->tuning.pool);
    twill_test_close(comm);
}

TWILL_TEST(all_ranks_have_the_figures_of_one)
{
    twill_test_run_ranks(3, run_measured, NULL);
    assert_true(seen[0].rates.steps >= 2);
    assert_true(twill_thread_rates_valid(&seen[0].rates));
    for (int r = 0; r < 3; r++) {
        assert_memory_equal(&seen[r].rates, &seen[0].rates, sizeof(seen[0].rates));
        assert_int_equal(seen[r].piece, seen[0].piece);
        assert_int_equal(seen[r].threads, r == 0 ? 2 : 1 + r);
    }
}

/* Ranks 0 and 1 ask for as many threads as there are cores, of which they may get none. */
static void run_without_pool(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    (void)size, (void)user;
    twill_comm *comm;
    TWILL_CHECK(twill_test_open(&comm, bootstrap, "",
                                rank == 2 ? "TWILL_THREADS=2" : "TWILL_LOG=warn",
                                TWILL_TEST_PATIENT));
    const struct twill_context *context = twill_comm_context(comm);
    TWILL_CHECK(context->machine.threads->rates.steps >= 2);
    TWILL_CHECK(rank != 2 || twill_thread_pool_size(context->machine.pool) == 2);
    TWILL_CHECK(context->job.rank_threads > 1 || context->job.piece == 0);
    twill_test_close(comm);
}

TWILL_TEST(the_rank_that_measures_has_a_pool)
{
    assert_int_equal(setenv("SLURM_CPUS_PER_TASK", "1024", 1), 0);
    twill_test_run_ranks(3, run_without_pool, NULL);
    unsetenv("SLURM_CPUS_PER_TASK");
}

/* With thread_bytes nothing is measured, and pieces follow from it. */
static void run_fixed(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    (void)size, (void)user;
    twill_comm *comm;
    TWILL_CHECK(twill_test_open(&comm, bootstrap, "", "TWILL_THREADS=3",
                                "TWILL_TUNE=thread_bytes=8K", TWILL_TEST_PATIENT));
    const struct twill_context *context = twill_comm_context(comm);
    TWILL_CHECK(context->machine.threads->rates.steps == 0 && context->job.piece == 24 << 10);
    TWILL_CHECK(twill_pool_threads(context->machine.pool, 16 << 10, 16 << 10) == 2);
    TWILL_CHECK(rank >= 0);
    twill_test_close(comm);
}

TWILL_TEST(thread_bytes_replaces_the_figures)
{
    twill_test_run_ranks(2, run_fixed, NULL);
}

/* Open a context of one rank with a setting. Returns its number of threads. */
static unsigned threads_with(const char *setting)
{
    const char *settings[] = {"TWILL_LAUNCHER=none", setting, NULL};
    twill_context *context = NULL;
    assert_int_equal(twill_context_create(&context, NULL, settings), TWILL_OK);
    unsigned threads = twill_thread_pool_size(context->machine.pool);
    twill_context_destroy(context);
    return threads;
}

/* Only what the environment says of a launcher asks for threads without TWILL_THREADS. */
TWILL_TEST(a_launcher_asks_for_threads)
{
    cpu_set_t cpus;
    assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
    unsigned most = (unsigned)CPU_COUNT(&cpus);
    if (most < 2)
        skip();
    unsigned all = threads_with("TWILL_THREADS=auto");
    assert_in_range(all, 1, most);
    assert_int_equal(setenv("SLURM_CPUS_PER_TASK", "1024", 1), 0);
    assert_int_equal(threads_with(NULL), all);
    assert_int_equal(threads_with("TWILL_THREADS=1"), 1);
    assert_int_equal(setenv("OMP_NUM_THREADS", "1,4", 1), 0);
    assert_int_equal(threads_with(NULL), 1);
    assert_int_equal(threads_with("TWILL_THREADS=3"), 3);
    unsetenv("SLURM_CPUS_PER_TASK");
    unsetenv("OMP_NUM_THREADS");
}

/* Threads that only a binding asks for may be missing. Those that are asked for may not. */
TWILL_TEST(threads_that_cannot_be_started)
{
    const char *settings[] = {"TWILL_LAUNCHER=none", "TWILL_THREADS=2", NULL};
    twill_context *context = NULL;
    assert_int_equal(setenv("SLURM_CPUS_PER_TASK", "1024", 1), 0);
    no_threads = true;
    unsigned implied = threads_with(NULL);
    twill_status status = twill_context_create(&context, NULL, settings);
    no_threads = false;
    unsetenv("SLURM_CPUS_PER_TASK");
    assert_int_equal(implied, 1);
    assert_int_equal(status, TWILL_ERR_SYSTEM);
    assert_non_null(strstr(twill_context_message(context), "thread 0 of 2 cannot be started"));
    twill_context_destroy(context);
}

/* A launcher's word counts where it covers all CPUs on which an unbound rank may run. On a host of
 * several jobs the others' cores stay free. */
TWILL_TEST(a_launcher_gives_cpus)
{
    const struct twill_cpus none = {{0}}, cpus = {{0xff00, 0xff}}; /* 16 */
    assert_true(twill_threads_are_given(16, 1, &cpus));
    assert_true(twill_threads_are_given(4, 4, &cpus));
    assert_true(twill_threads_are_given(64, 1, &cpus));
    assert_false(twill_threads_are_given(15, 1, &cpus));
    assert_false(twill_threads_are_given(4, 3, &cpus));
    assert_false(twill_threads_are_given(0, 4, &cpus));
    assert_false(twill_threads_are_given(4, 4, &none));
}

/* Figures are not read if a fact that changes them differs from when they were written. */
TWILL_TEST(figures_are_for_the_same_sharing_and_openmp)
{
    const char *settings[] = {"TWILL_LAUNCHER=none", "TWILL_THREADS=2", NULL};
    struct twill_thread_rates read;
    uint32_t team;
    twill_context *context = NULL;
    assert_int_equal(twill_context_create(&context, NULL, settings), TWILL_OK);
    bool openmp = twill_has_openmp(2), *shared = &context->machine.threads->shared;
    twill_thread_cache_write(context, &context->machine.threads->rates, TWILL_TEAM_OWN);
    bool known = twill_thread_cache_read(context, &read, &team);
    *shared = !*shared;
    bool other_sharing = twill_thread_cache_read(context, &read, &team);
    *shared = !*shared;
    assert_int_equal(setenv("OMP_WAIT_POLICY", "passive", 1), 0);
    bool other_policy = twill_thread_cache_read(context, &read, &team);
    unsetenv("OMP_WAIT_POLICY");
    assert_int_equal(setenv("KMP_BLOCKTIME", "infinite", 1), 0);
    bool other_time = twill_thread_cache_read(context, &read, &team);
    unsetenv("KMP_BLOCKTIME");
    twill_context_destroy(context);
    if (!known)
        skip(); /* a machine whose CPU is unknown */
    assert_false(other_sharing);
    assert_int_equal(other_policy, !openmp);
    assert_int_equal(other_time, !openmp);
}

TWILL_TEST(figures_are_kept_for_the_same_threads)
{
    const char *settings[] = {"TWILL_LAUNCHER=none", "TWILL_THREADS=2", NULL};
    const struct twill_thread_rates kept = {
        .steps = 2,
        .near_bytes = 12345,
        .step = {{1, 0, 0, {10, 11}, {12, 13}}, {2, 3, 4, {14, 15}, {16, 17}}}};
    struct twill_thread_rates read;
    uint32_t team = 7;
    twill_context *context = NULL;
    assert_int_equal(twill_context_create(&context, NULL, settings), TWILL_OK);
    twill_thread_cache_write(context, &kept, TWILL_TEAM_OWN);
    if (!twill_thread_cache_read(context, &read, &team)) {
        twill_context_destroy(context);
        skip(); /* a machine whose CPU is unknown */
    }
    assert_memory_equal(&read, &kept, sizeof(kept));
    assert_int_equal(team, TWILL_TEAM_OWN);
    twill_context_destroy(context);
    assert_int_equal(twill_context_create(&context, NULL, settings), TWILL_OK);
    assert_memory_equal(&context->machine.threads->rates, &kept, sizeof(kept));
    assert_string_equal(context->machine.threads->source, "kept from an earlier job");
    twill_context_destroy(context);
    settings[1] = "TWILL_THREADS=3";
    assert_int_equal(twill_context_create(&context, NULL, settings), TWILL_OK);
    assert_int_equal(context->machine.threads->rates.steps, 3);
    twill_context_destroy(context);
}

TWILL_TEST_GROUP(set_home, remove_home)
