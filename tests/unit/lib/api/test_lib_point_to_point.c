/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: in order, many in progress, to the rank itself, between collectives, mismatched; and
 * groups of calls, with small allreduces fused. */
#include "tests/support/unit.h"

#define POINT_MOST   50000 /* elements of a message */
#define POINT_FLIGHT 40

struct point_world {
    int size;
    const char *nodes, *mock;
};

static const struct point_world worlds[] = {
    {1, "", NULL},
    {2, "", NULL},
    {4, "", NULL},
    {4, "2x2", NULL},
    {3, "3x1", NULL},
    {4, "", "delay=3,reorder=1,again=20"},
    {5, "3+2", "delay=5,reorder=1,chunk=64"},
};

struct point_job {
    const struct point_world *world;
    int rank, size;
    twill_context *context;
    twill_comm *comm;
    int32_t *out, *in;
};

static bool start(struct point_job *job, twill_bootstrap *bootstrap)
{
    static const char *const settings[] = {TWILL_TEST_PATIENT,
                                           "TWILL_TUNE=heap_limit=8M,segment_net=16K", NULL};
    bool connected = twill_test_connect(&job->context, &job->comm, bootstrap, job->world->nodes,
                                        job->world->mock, settings);
    job->out = calloc(POINT_FLIGHT * (size_t)POINT_MOST, sizeof(int32_t));
    job->in = calloc(POINT_FLIGHT * (size_t)POINT_MOST, sizeof(int32_t));
    return TWILL_NOTE(connected && job->out != NULL && job->in != NULL, "out of memory");
}

static void stop(struct point_job *job)
{
    twill_test_disconnect(job->comm, job->context);
    free(job->out);
    free(job->in);
}

static void world_cases_run(void (*fn)(int rank, int size, twill_bootstrap *bootstrap, void *user),
                            size_t first)
{
    for (size_t w = first; w < TWILL_ARRAY_LENGTH(worlds); w++)
        twill_test_run_ranks(worlds[w].size, fn, (void *)(uintptr_t)&worlds[w]);
}

static bool ok(const struct point_job *job, twill_status status, int line)
{
    return twill_test_note(status == TWILL_OK, __FILE__, line, "ok()", " rank %d: %s", job->rank,
                           twill_comm_message(job->comm));
}
#define POINT_OK(status)                                                                           \
    do {                                                                                           \
        if (!ok(&job, (status), __LINE__))                                                         \
            goto out;                                                                              \
    } while (0)
#define POINT_RIGHT(cond)                                                                          \
    do {                                                                                           \
        if (!TWILL_NOTE((cond), "%s", #cond))                                                      \
            goto out;                                                                              \
    } while (0)

static size_t count_message(int k)
{
    static const size_t counts[] = {1, 0, 12, 13, 700, 5000, 3, POINT_MOST};
    return counts[k % 8];
}

static void fill_message(int32_t *at, size_t count, int from, int to, int k)
{
    for (size_t i = 0; i < count; i++)
        at[i] = from * 1000000 + to * 10000 + k * 100 + (int32_t)(i % 97);
}

static bool is_filled(const int32_t *at, size_t count, int from, int to, int k)
{
    for (size_t i = 0; i < count; i++)
        if (at[i] != from * 1000000 + to * 10000 + k * 100 + (int32_t)(i % 97))
            return false;
    return true;
}

/* Each rank sends to the next and receives from the previous one; one rank alone to itself. */
static void flight_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct point_job job = {.world = user, .rank = rank, .size = size};
    twill_request *send[POINT_FLIGHT], *recv[POINT_FLIGHT], *reduce;
    int to = (rank + 1) % size, from = (rank + size - 1) % size, index;
    if (!start(&job, bootstrap))
        goto out;
    for (int round = 0; round < 3; round++) {
        for (int k = 0; k < POINT_FLIGHT; k++) {
            fill_message(job.out + k * POINT_MOST, count_message(k), rank, to, k);
            memset(job.in + k * POINT_MOST, 0xa5, POINT_MOST * sizeof(int32_t));
            POINT_OK(twill_send_start(job.comm, job.out + k * POINT_MOST, count_message(k),
                                      TWILL_I32, to, &send[k]));
            if (k == 10)
                POINT_OK(twill_barrier_start(job.comm, &reduce));
        }
        for (int k = 0; k < POINT_FLIGHT; k++)
            POINT_OK(twill_recv_start(job.comm, job.in + k * POINT_MOST, count_message(k),
                                      TWILL_I32, from, &recv[k]));
        POINT_OK(twill_barrier(job.comm)); /* collectives do not wait for messages */
        POINT_OK(twill_wait(&reduce));
        for (int k = 0; k < POINT_FLIGHT; k++) {
            POINT_OK(twill_wait_any(POINT_FLIGHT, recv, &index));
            POINT_RIGHT(index >= 0);
            POINT_RIGHT(
                is_filled(job.in + index * POINT_MOST, count_message(index), from, rank, index));
        }
        POINT_OK(twill_wait_all(POINT_FLIGHT, send));
    }
out:
    stop(&job);
}

TWILL_TEST(many_messages)
{
    world_cases_run(flight_rank, 0);
}

static void blocking_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct point_job job = {.world = user, .rank = rank, .size = size};
    if (!start(&job, bootstrap))
        goto out;
    for (int k = 0; k < 24; k++) {
        /* a token around the ring */
        if (rank > 0)
            POINT_OK(twill_recv(job.comm, job.in, count_message(k), TWILL_I32, rank - 1));
        POINT_RIGHT(rank == 0 || is_filled(job.in, count_message(k), rank - 1, rank, k));
        fill_message(job.out, count_message(k), rank, rank + 1, k);
        if (rank + 1 < size)
            POINT_OK(twill_send(job.comm, job.out, count_message(k), TWILL_I32, rank + 1));
        /* all ranks at once, with different sizes each way */
        int to = (rank + k) % size, from = (rank + size - k % size) % size;
        fill_message(job.out, count_message(k + rank), rank, to, k);
        POINT_OK(twill_sendrecv(job.comm, job.out, count_message(k + rank), to, job.in,
                                count_message(k + from), from, TWILL_I32));
        POINT_RIGHT(is_filled(job.in, count_message(k + from), from, rank, k));
        job.out[0] = 1;
        POINT_OK(twill_allreduce(job.comm, job.out, job.in, 1, TWILL_I32, TWILL_SUM));
        POINT_RIGHT(job.in[0] == size);
    }
out:
    stop(&job);
}

TWILL_TEST(blocking_messages)
{
    world_cases_run(blocking_rank, 0);
}

/* The last rank receives another count or type than the first sends. */
static void mismatch_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct point_job job = {.world = user, .rank = rank, .size = size};
    twill_status status = TWILL_OK;
    if (!start(&job, bootstrap))
        goto out;
    if (rank == 0)
        status = twill_send(job.comm, job.out, 100, TWILL_I32, size - 1);
    else if (rank == size - 1)
        status = twill_recv(job.comm, job.in, 100, TWILL_F32, 0);
    if (rank == size - 1)
        POINT_RIGHT(status == TWILL_ERR_MISMATCH &&
                    strstr(twill_comm_message(job.comm), "rank 0") != NULL);
    status = twill_barrier(job.comm);
    (void)TWILL_NOTE(status != TWILL_OK, "rank %d got no error", rank);
    (void)twill_test_barrier(bootstrap);
out:
    stop(&job);
}

TWILL_TEST(mismatched_messages)
{
    world_cases_run(mismatch_rank, 1);
}

static void arguments_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct point_job job = {.world = user, .rank = rank, .size = size};
    static const struct {
        int peer;
        int type;
        bool null;
        const char *named;
    } bad[] = {{1, TWILL_I32, false, "to"},
               {-1, TWILL_I32, false, "to"},
               {0, 99, false, "type"},
               {0, TWILL_I32, true, "src"}};
    if (!start(&job, bootstrap))
        goto out;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(bad); i++) {
        const void *src = bad[i].null ? NULL : job.out;
        twill_status status = twill_send(job.comm, src, 4, (twill_type)bad[i].type, bad[i].peer);
        POINT_RIGHT(status == TWILL_ERR_ARGUMENT &&
                    strstr(twill_comm_message(job.comm), bad[i].named) != NULL);
    }
    POINT_RIGHT(twill_sendrecv(job.comm, job.in, 4, 0, job.in + 2, 4, 0, TWILL_I32) ==
                TWILL_ERR_ARGUMENT);
    POINT_OK(twill_barrier(job.comm)); /* a communicator of one rank survives */
out:
    stop(&job);
}

TWILL_TEST(bad_arguments)
{
    twill_test_run_ranks(1, arguments_rank, (void *)(uintptr_t)&worlds[0]);
}

/* --- groups ---------------------------------------------------------------------------------- */

/* All ranks to all, sends first: without a group they would block each other. */
static bool exchange_in_group(struct point_job *job_)
{
    struct point_job job = *job_;
    bool right = false;
    int n = job.size;
    POINT_OK(twill_group_start(job.comm));
    for (int r = 0; r < n; r++) {
        fill_message(job.out + r * POINT_MOST, POINT_MOST, job.rank, r, 1);
        POINT_OK(twill_send(job.comm, job.out + r * POINT_MOST, POINT_MOST, TWILL_I32, r));
    }
    for (int r = 0; r < n; r++)
        POINT_OK(twill_recv(job.comm, job.in + r * POINT_MOST, POINT_MOST, TWILL_I32, r));
    POINT_OK(twill_group_end(job.comm));
    for (int r = 0; r < n; r++)
        POINT_RIGHT(is_filled(job.in + r * POINT_MOST, POINT_MOST, r, job.rank, 1));
    right = true;
out:
    return right;
}

/* Allreduces of many sizes, some of them fused, with a broadcast in between. */
static bool reduce_in_group(struct point_job *job_)
{
    struct point_job job = *job_;
    bool right = false;
    int n = job.size;
    twill_counters before, after;
    for (int k = 0; k < 20; k++)
        fill_message(job.out + k * POINT_MOST, count_message(k), job.rank, 0, k);
    fill_message(job.in + 20 * POINT_MOST, 9, job.rank, 0, 0);
    POINT_OK(twill_comm_counters(job.comm, &before));
    POINT_OK(twill_group_start(job.comm));
    for (int k = 0; k < 20; k++) {
        if (k == 5)
            POINT_OK(twill_broadcast(job.comm, job.in + 20 * POINT_MOST, job.in + 20 * POINT_MOST,
                                     9, TWILL_I32, n - 1));
        int32_t *dst =
            k % 3 == 0 ? job.out + k * POINT_MOST : job.in + k * POINT_MOST; /* some in place */
        POINT_OK(twill_allreduce(job.comm, job.out + k * POINT_MOST, dst, count_message(k),
                                 TWILL_I32, TWILL_MAX));
    }
    POINT_OK(twill_group_end(job.comm));
    POINT_OK(twill_comm_counters(job.comm, &after));
    for (int k = 0; k < 20; k++)
        POINT_RIGHT(is_filled((k % 3 == 0 ? job.out : job.in) + k * POINT_MOST, count_message(k),
                              n - 1, 0, k));
    POINT_RIGHT(is_filled(job.in + 20 * POINT_MOST, 9, n - 1, 0, 0));
    /* 0-4, broadcast, 5-6, 7, 8-14, 15, 16-19: large ones are not fused */
    POINT_RIGHT(after.calls - before.calls == 7);
    right = true;
out:
    return right;
}

static void group_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct point_job job = {.world = user, .rank = rank, .size = size};
    twill_request *request;
    if (!start(&job, bootstrap))
        goto out;
    for (int time = 0; time < 3; time++)
        if (!exchange_in_group(&job) || !reduce_in_group(&job))
            goto out;
    POINT_OK(twill_group_start(job.comm)); /* an empty group, and calls that are refused in it */
    POINT_RIGHT(twill_group_start(job.comm) == TWILL_ERR_ARGUMENT);
    POINT_RIGHT(twill_barrier_start(job.comm, &request) == TWILL_ERR_ARGUMENT && request == NULL);
    POINT_RIGHT(twill_barrier_init(job.comm, &request) == TWILL_ERR_ARGUMENT && request == NULL);
    POINT_OK(twill_group_end(job.comm));
    POINT_RIGHT(twill_group_end(job.comm) == TWILL_ERR_ARGUMENT);
    POINT_OK(twill_barrier(job.comm));
out:
    stop(&job);
}

TWILL_TEST(groups)
{
    world_cases_run(group_rank, 0);
}

/* A call with a bad argument fails at once; the calls recorded before it are not run. */
static void bad_group_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct point_job job = {.world = user, .rank = rank, .size = size};
    if (!start(&job, bootstrap))
        goto out;
    POINT_OK(twill_group_start(job.comm));
    POINT_OK(twill_allreduce(job.comm, job.out, job.in, 4, TWILL_I32, TWILL_SUM));
    POINT_RIGHT(twill_allreduce(job.comm, job.out, NULL, 4, TWILL_I32, TWILL_SUM) ==
                TWILL_ERR_ARGUMENT);
    POINT_RIGHT(twill_group_end(job.comm) == TWILL_ERR_BROKEN);
    (void)twill_test_barrier(bootstrap);
out:
    stop(&job);
}

TWILL_TEST(bad_arguments_in_groups)
{
    world_cases_run(bad_group_rank, 1);
}
