/* SPDX-License-Identifier: Apache-2.0 */
/* Point to point and groups: in order from rank to rank, any number under way, to oneself, beside
 * collectives, mismatched; and calls of a group, done together, small allreduces as one. */
#include "tests/support/ranks.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST   50000 /* elements of a message */
#define FLIGHT 40

struct world_case {
    int size;
    const char *nodes, *mock;
};

static const struct world_case worlds[] = {
    {1, "", NULL},
    {2, "", NULL},
    {4, "", NULL},
    {4, "2x2", NULL},
    {3, "3x1", NULL},
    {4, "", "delay=3,reorder=1,again=20"},
    {5, "3+2", "delay=5,reorder=1,chunk=64"},
};

struct job {
    const struct world_case *world;
    int rank, size;
    twill_context *context;
    twill_comm *comm;
    int32_t *out, *in;
};

static bool start(struct job *job, twill_bootstrap *bootstrap)
{
    static const char *const settings[] = {TWILL_TEST_PATIENT, "TWILL_HEAP_LIMIT=8M",
                                           "TWILL_SEGMENT_NET=16K", NULL};
    bool connected = twill_test_connect(&job->context, &job->comm, bootstrap, job->world->nodes,
                                        job->world->mock, settings);
    job->out = calloc(FLIGHT * (size_t)MOST, sizeof(int32_t));
    job->in = calloc(FLIGHT * (size_t)MOST, sizeof(int32_t));
    return twill_test_note(connected && job->out != NULL && job->in != NULL, __FILE__, __LINE__,
                           "out of memory");
}

static void stop(struct job *job)
{
    twill_comm_destroy(job->comm);
    twill_context_destroy(job->context);
    free(job->out);
    free(job->in);
}

static void each_world(void (*fn)(int rank, int size, twill_bootstrap *bootstrap, void *user),
                       size_t first)
{
    for (size_t w = first; w < TWILL_ARRAY_LENGTH(worlds); w++)
        twill_test_run_ranks(worlds[w].size, fn, (void *)(uintptr_t)&worlds[w]);
}

static bool ok(const struct job *job, twill_status status, int line)
{
    return twill_test_note(status == TWILL_OK, __FILE__, line, "rank %d: %s", job->rank,
                           twill_comm_message(job->comm));
}
#define OK(status)                                                                                 \
    do {                                                                                           \
        if (!ok(&job, (status), __LINE__))                                                         \
            goto out;                                                                              \
    } while (0)
#define RIGHT(cond)                                                                                \
    do {                                                                                           \
        if (!twill_test_note((cond), __FILE__, __LINE__, "%s", #cond))                             \
            goto out;                                                                              \
    } while (0)

static size_t count_of(int k)
{
    static const size_t counts[] = {1, 0, 12, 13, 700, 5000, 3, MOST};
    return counts[k % 8];
}

static void fill(int32_t *at, size_t count, int from, int to, int k)
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

/* Everybody to the next rank, everybody from the one before; a rank alone to itself. */
static void flight_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct job job = {.world = user, .rank = rank, .size = size};
    twill_request *send[FLIGHT], *recv[FLIGHT], *reduce;
    int to = (rank + 1) % size, from = (rank + size - 1) % size, index;
    if (!start(&job, bootstrap))
        goto out;
    for (int round = 0; round < 3; round++) {
        for (int k = 0; k < FLIGHT; k++) {
            fill(job.out + k * MOST, count_of(k), rank, to, k);
            memset(job.in + k * MOST, 0xa5, MOST * sizeof(int32_t));
            OK(twill_send_start(job.comm, job.out + k * MOST, count_of(k), TWILL_I32, to,
                                &send[k]));
            if (k == 10)
                OK(twill_barrier_start(job.comm, &reduce));
        }
        for (int k = 0; k < FLIGHT; k++)
            OK(twill_recv_start(job.comm, job.in + k * MOST, count_of(k), TWILL_I32, from,
                                &recv[k]));
        OK(twill_barrier(job.comm)); /* collectives pass by */
        OK(twill_wait(&reduce));
        for (int k = 0; k < FLIGHT; k++) {
            OK(twill_wait_any(FLIGHT, recv, &index));
            RIGHT(index >= 0);
            RIGHT(is_filled(job.in + index * MOST, count_of(index), from, rank, index));
        }
        OK(twill_wait_all(FLIGHT, send));
    }
out:
    stop(&job);
}

static void many_messages(void **unused)
{
    (void)unused;
    each_world(flight_rank, 0);
}

static void blocking_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct job job = {.world = user, .rank = rank, .size = size};
    if (!start(&job, bootstrap))
        goto out;
    for (int k = 0; k < 24; k++) {
        /* a token goes round */
        if (rank > 0)
            OK(twill_recv(job.comm, job.in, count_of(k), TWILL_I32, rank - 1));
        RIGHT(rank == 0 || is_filled(job.in, count_of(k), rank - 1, rank, k));
        fill(job.out, count_of(k), rank, rank + 1, k);
        if (rank + 1 < size)
            OK(twill_send(job.comm, job.out, count_of(k), TWILL_I32, rank + 1));
        /* all at once, sizes of both ways differ */
        int to = (rank + k) % size, from = (rank + size - k % size) % size;
        fill(job.out, count_of(k + rank), rank, to, k);
        OK(twill_sendrecv(job.comm, job.out, count_of(k + rank), to, job.in, count_of(k + from),
                          from, TWILL_I32));
        RIGHT(is_filled(job.in, count_of(k + from), from, rank, k));
        job.out[0] = 1;
        OK(twill_allreduce(job.comm, job.out, job.in, 1, TWILL_I32, TWILL_SUM));
        RIGHT(job.in[0] == size);
    }
out:
    stop(&job);
}

static void blocking_messages(void **unused)
{
    (void)unused;
    each_world(blocking_rank, 0);
}

/* The last rank receives something else than the first sends. */
static void mismatch_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct job job = {.world = user, .rank = rank, .size = size};
    twill_status status = TWILL_OK;
    if (!start(&job, bootstrap))
        goto out;
    if (rank == 0)
        status = twill_send(job.comm, job.out, 100, TWILL_I32, size - 1);
    else if (rank == size - 1)
        status = twill_recv(job.comm, job.in, 100, TWILL_F32, 0);
    if (rank == size - 1)
        RIGHT(status == TWILL_ERR_MISMATCH &&
              strstr(twill_comm_message(job.comm), "rank 0") != NULL);
    status = twill_barrier(job.comm);
    (void)twill_test_note(status != TWILL_OK, __FILE__, __LINE__, "rank %d noticed nothing", rank);
    (void)twill_test_barrier(bootstrap);
out:
    stop(&job);
}

static void mismatched_messages(void **unused)
{
    (void)unused;
    each_world(mismatch_rank, 1);
}

static void arguments_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct job job = {.world = user, .rank = rank, .size = size};
    static const struct {
        int peer;
        int type;
        bool null, crooked;
        const char *named;
    } bad[] = {{1, TWILL_I32, false, false, "to"},
               {-1, TWILL_I32, false, false, "to"},
               {0, 99, false, false, "type"},
               {0, TWILL_I32, true, false, "src"},
               {0, TWILL_I32, false, true, "aligned"}};
    if (!start(&job, bootstrap))
        goto out;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(bad); i++) {
        const char *src = bad[i].null ? NULL : (const char *)job.out + bad[i].crooked;
        twill_status status = twill_send(job.comm, src, 4, (twill_type)bad[i].type, bad[i].peer);
        RIGHT(status == TWILL_ERR_ARGUMENT &&
              strstr(twill_comm_message(job.comm), bad[i].named) != NULL);
    }
    RIGHT(twill_sendrecv(job.comm, job.in, 4, 0, job.in + 2, 4, 0, TWILL_I32) ==
          TWILL_ERR_ARGUMENT);
    OK(twill_barrier(job.comm)); /* a communicator of one survives */
out:
    stop(&job);
}

static void bad_arguments(void **unused)
{
    (void)unused;
    twill_test_run_ranks(1, arguments_rank, (void *)(uintptr_t)&worlds[0]);
}

/* --- groups ---------------------------------------------------------------------------------- */

/* Everybody with everybody, sends first: without a group they would wait for each other. */
static bool exchange_in_group(struct job *job_)
{
    struct job job = *job_;
    bool right = false;
    int n = job.size;
    OK(twill_group_start(job.comm));
    for (int r = 0; r < n; r++) {
        fill(job.out + r * MOST, MOST, job.rank, r, 1);
        OK(twill_send(job.comm, job.out + r * MOST, MOST, TWILL_I32, r));
    }
    for (int r = 0; r < n; r++)
        OK(twill_recv(job.comm, job.in + r * MOST, MOST, TWILL_I32, r));
    OK(twill_group_end(job.comm));
    for (int r = 0; r < n; r++)
        RIGHT(is_filled(job.in + r * MOST, MOST, r, job.rank, 1));
    right = true;
out:
    return right;
}

/* Allreduces of many sizes, among them such as are fused, a broadcast, and others again. */
static bool reduce_in_group(struct job *job_)
{
    struct job job = *job_;
    bool right = false;
    int n = job.size;
    twill_counters before, after;
    for (int k = 0; k < 20; k++)
        fill(job.out + k * MOST, count_of(k), job.rank, 0, k);
    fill(job.in + 20 * MOST, 9, job.rank, 0, 0);
    OK(twill_comm_counters(job.comm, &before));
    OK(twill_group_start(job.comm));
    for (int k = 0; k < 20; k++) {
        if (k == 5)
            OK(twill_broadcast(job.comm, job.in + 20 * MOST, job.in + 20 * MOST, 9, TWILL_I32,
                               n - 1));
        int32_t *dst = k % 3 == 0 ? job.out + k * MOST : job.in + k * MOST; /* some in place */
        OK(twill_allreduce(job.comm, job.out + k * MOST, dst, count_of(k), TWILL_I32, TWILL_MAX));
    }
    OK(twill_group_end(job.comm));
    OK(twill_comm_counters(job.comm, &after));
    for (int k = 0; k < 20; k++)
        RIGHT(is_filled((k % 3 == 0 ? job.out : job.in) + k * MOST, count_of(k), n - 1, 0, k));
    RIGHT(is_filled(job.in + 20 * MOST, 9, n - 1, 0, 0));
    /* 0-4, broadcast, 5-6, 7, 8-14, 15, 16-19: large ones are alone */
    RIGHT(after.calls - before.calls == 7);
    right = true;
out:
    return right;
}

static void group_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct job job = {.world = user, .rank = rank, .size = size};
    twill_request *request;
    if (!start(&job, bootstrap))
        goto out;
    for (int time = 0; time < 3; time++)
        if (!exchange_in_group(&job) || !reduce_in_group(&job))
            goto out;
    OK(twill_group_start(job.comm)); /* an empty one; and what is refused inside */
    RIGHT(twill_group_start(job.comm) == TWILL_ERR_ARGUMENT);
    RIGHT(twill_barrier_start(job.comm, &request) == TWILL_ERR_ARGUMENT && request == NULL);
    RIGHT(twill_barrier_init(job.comm, &request) == TWILL_ERR_ARGUMENT && request == NULL);
    OK(twill_group_end(job.comm));
    RIGHT(twill_group_end(job.comm) == TWILL_ERR_ARGUMENT);
    OK(twill_barrier(job.comm));
out:
    stop(&job);
}

static void groups(void **unused)
{
    (void)unused;
    each_world(group_rank, 0);
}

/* A call with a bad argument fails at once; what was recorded before it is not done. */
static void bad_group_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct job job = {.world = user, .rank = rank, .size = size};
    if (!start(&job, bootstrap))
        goto out;
    OK(twill_group_start(job.comm));
    OK(twill_allreduce(job.comm, job.out, job.in, 4, TWILL_I32, TWILL_SUM));
    RIGHT(twill_allreduce(job.comm, job.out, NULL, 4, TWILL_I32, TWILL_SUM) == TWILL_ERR_ARGUMENT);
    RIGHT(twill_group_end(job.comm) == TWILL_ERR_BROKEN);
    (void)twill_test_barrier(bootstrap);
out:
    stop(&job);
}

static void bad_arguments_in_groups(void **unused)
{
    (void)unused;
    each_world(bad_group_rank, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_messages),
        cmocka_unit_test(blocking_messages),
        cmocka_unit_test(mismatched_messages),
        cmocka_unit_test(bad_arguments),
        cmocka_unit_test(groups),
        cmocka_unit_test(bad_arguments_in_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
