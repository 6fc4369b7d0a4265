/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of a rank share work on every way that data takes, and the bits do not depend on their
 * number. Data is staged, fetched or mapped on a node. Between nodes twill's tcp or libfabric
 * takes it. */
#include "tests/support/collectives.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

/* libfabric 1.17 sometimes leaks a connection that is closed while it is being made. */
TWILL_TEST_LEAKS("leak:libfabric.so")

enum { SHARED_RANKS = 2, MOST_THREADS = 4, SHARED_COUNT = 2 << 20 };

struct way {
    const char *name, *nodes, *tune, *provider, *algorithm;
    bool heap;
};

/* One way with one number of threads. */
struct shared_job {
    const struct way *way;
    int threads;
    float *result; /* of rank 0 */
    uint64_t forks[SHARED_RANKS];
};

/* Numbers whose sum depends on the order of the operands. */
static float number(size_t i, int rank)
{
    return (float)((i * 2654435761u >> 7) % 100003) * (rank == 0 ? 1e-3f : -3e4f);
}

static bool sum_up(struct shared_job *job, twill_comm *comm, float *src, float *dst)
{
    twill_counters counters;
    int rank = twill_comm_rank(comm);
    for (size_t i = 0; i < SHARED_COUNT; i++)
        src[i] = number(i, rank);
    for (int turn = 0; turn < 2; turn++)
        TWILL_REQUIRE(twill_allreduce(comm, src, dst, SHARED_COUNT, TWILL_F32, TWILL_SUM) ==
                      TWILL_OK);
    TWILL_REQUIRE(twill_comm_counters(comm, &counters) == TWILL_OK);
    job->forks[rank] = counters.forks;
    if (rank == 0)
        memcpy(job->result, dst, SHARED_COUNT * sizeof(float));
    return true;
}

static void run_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct shared_job *job = user;
    const struct way *way = job->way;
    twill_context *context;
    twill_comm *comm;
    struct test_buffers buffers = {.src = NULL};
    (void)rank;
    (void)size;
    bool good = twill_test_join(&context, &comm, bootstrap, way->nodes,
                                twill_test_text("TWILL_THREADS=%d", job->threads),
                                twill_test_text("TWILL_TUNE=%s", way->tune),
                                twill_test_text("TWILL_PROVIDER=%s", way->provider),
                                twill_test_text("TWILL_ALGORITHM=%s", way->algorithm),
                                TWILL_TEST_PATIENT, "TWILL_LOG=none") &&
                test_buffers_get(&buffers, context, SHARED_COUNT * sizeof(float), 0, way->heap);
    if (good)
        good = sum_up(job, comm, (float *)(void *)buffers.src, (float *)(void *)buffers.dst);
    (void)TWILL_NOTE(good, "%s, %d threads: %s", way->name, job->threads, twill_comm_message(comm));
    test_buffers_put(&buffers, context, way->heap);
    twill_test_disconnect(comm, context);
}

/* Run a way with 1 to MOST_THREADS threads. */
static void check_way(const struct way *way)
{
    float *first = calloc(SHARED_COUNT, sizeof(*first)),
          *other = calloc(SHARED_COUNT, sizeof(*other));
    assert_true(first != NULL && other != NULL);
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        struct shared_job job = {way, threads, threads == 1 ? first : other, {0}};
        twill_test_run_ranks(SHARED_RANKS, run_rank, &job);
        for (int r = 0; r < SHARED_RANKS; r++)
            if ((job.forks[r] > 0) != (threads > 1))
                fail_msg("%s: rank %d with %d threads shared work %llu times", way->name, r,
                         threads, (unsigned long long)job.forks[r]);
        if (memcmp(job.result, first, SHARED_COUNT * sizeof(*first)) != 0)
            fail_msg("%s: %d threads change the result", way->name, threads);
    }
    for (size_t i = 0; i < SHARED_COUNT; i += 997)
        assert_true(first[i] == number(i, 0) + number(i, 1));
    free(first);
    free(other);
}

TWILL_TEST(staged)
{
    check_way(
        &(struct way){"staged", "", "reach=none,thread_bytes=64K", "", "allreduce:auto", false});
}

/* If the kernel refuses to read a peer's memory the algorithm cannot be used, and this fails. */
TWILL_TEST(fetched)
{
    check_way(&(struct way){"fetched", "", "reach=cma,thread_bytes=64K", "",
                            "allreduce:direct@fetched", false});
}

TWILL_TEST(mapped)
{
    check_way(
        &(struct way){"mapped", "", "reach=auto,thread_bytes=64K", "", "allreduce:auto", true});
}

TWILL_TEST(by_tcp)
{
    check_way(
        &(struct way){"tcp", "2x1", "reach=auto,thread_bytes=64K", "tcp", "allreduce:ring", false});
}

TWILL_TEST(by_libfabric)
{
    check_way(&(struct way){"libfabric", "2x1", "reach=auto,thread_bytes=64K", "ofi:tcp",
                            "allreduce:ring", false});
}
