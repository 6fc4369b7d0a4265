/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of calls goes: a rank that is 200 ms late shows as waiting on the others, with its
 * name, and not as time of the transfer; on one node, and on two. */
#include "lib/comm/comm.h"
#include "tests/support/ranks.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define DELAY_US 200000
#define WAITED   0.15 /* s: the least that others report */
#define MOST     (16u << 10)
#define WARM     3

enum late_call { BROADCAST, ALLREDUCE, STARTED, LATE_CALLS };

static const struct split_case {
    const char *nodes;
    int size, late;
} cases[] = {{"1x2", 2, 1}, {"1x4", 4, 3}, {"2x2", 4, 3}, {"3x1", 3, 2}};

/* What the ranks of a run share. */
struct split_job {
    const struct split_case *c;
    enum late_call call;
    size_t count;
    _Atomic int arrived; /* ranks that are about to make the late call */
};

static twill_status make_call(const struct split_job *job, twill_comm *comm, float *x)
{
    twill_request *request = NULL;
    if (job->call == BROADCAST)
        return twill_broadcast(comm, x, x, job->count, TWILL_F32, job->c->late);
    if (job->call == ALLREDUCE)
        return twill_allreduce(comm, x, x, job->count, TWILL_F32, TWILL_SUM);
    twill_status status =
        twill_allreduce_start(comm, x, x, job->count, TWILL_F32, TWILL_SUM, &request);
    return status == TWILL_OK ? twill_wait(&request) : status;
}

/* Delay the late rank until all others are about to enter the call, and some more. */
static void come_late(struct split_job *job, int rank)
{
    atomic_fetch_add(&job->arrived, 1);
    if (rank != job->c->late)
        return;
    while (atomic_load(&job->arrived) < job->c->size && !twill_test_failed())
        twill_pause();
    usleep(DELAY_US);
}

/* Does a line of twill_comm_times() say that the late rank has cost this one the delay? */
static bool names_late_rank(const struct split_job *job, twill_comm *comm)
{
    char start[32];
    double seconds = 0;
    unsigned long long calls = 0;
    const char *line = twill_comm_times(comm, 1);
    snprintf(start, sizeof(start), "rank %d ", job->c->late);
    return line != NULL && strncmp(line, start, strlen(start)) == 0 &&
           sscanf(line + strlen(start), "was last in %llu calls, %lf s", &calls, &seconds) == 2 &&
           calls >= 1 && seconds >= WAITED;
}

static void check_late_call(struct split_job *job, int rank, twill_comm *comm, float *x)
{
    twill_counters before, after;
    for (int i = 0; i < WARM; i++)
        TWILL_CHECK(make_call(job, comm, x) == TWILL_OK);
    TWILL_CHECK(twill_comm_times_reset(comm) == TWILL_OK);
    TWILL_CHECK(twill_comm_counters(comm, &before) == TWILL_OK);
    come_late(job, rank);
    TWILL_CHECK(make_call(job, comm, x) == TWILL_OK);
    TWILL_CHECK(twill_comm_counters(comm, &after) == TWILL_OK);
    double waited = after.seconds_waiting - before.seconds_waiting;
    double transfer = after.seconds - before.seconds - waited;
    TWILL_CHECK(twill_test_note(
        transfer < WAITED && (rank == job->c->late ? waited < WAITED : waited >= WAITED), __FILE__,
        __LINE__, "%s, call %d of %zu: rank %d waited %f s, transfer took %f s", job->c->nodes,
        job->call, job->count, rank, waited, transfer));
    TWILL_CHECK(rank == job->c->late || names_late_rank(job, comm));
    TWILL_CHECK(twill_comm_times_reset(comm) == TWILL_OK);
    TWILL_CHECK(twill_comm_times(comm, 1) == NULL); /* nothing in the new period */
}

static void split_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    static const char *const settings[] = {TWILL_TEST_PATIENT, "TWILL_PROVIDER=tcp", NULL};
    static float buffers[4][MOST];
    struct split_job *job = user;
    twill_context *context;
    twill_comm *comm;
    (void)size;
    if (!twill_test_connect(&context, &comm, bootstrap, job->c->nodes, NULL, settings))
        return;
    check_late_call(job, rank, comm, buffers[rank]);
    twill_test_barrier(bootstrap);
    twill_comm_destroy(comm);
    twill_context_destroy(context);
}

static void late_rank_is_named(void **state)
{
    static const size_t counts[] = {2, MOST};
    (void)state;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        for (enum late_call call = BROADCAST; call < LATE_CALLS; call++) {
            struct split_job job = {.c = &cases[i], .call = call, .count = counts[(i + call) % 2]};
            twill_test_run_ranks(job.c->size, split_rank, &job);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(late_rank_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
