/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of calls goes: a rank that is 200 ms late shows as waiting on the others, with its
 * name, and the transfer takes as long as in a call that all ranks enter together; on one node and
 * on several, by twill's tcp and by providers of libfabric. */
#include "lib/comm/comm.h"
#include "tests/support/unit.h"

#define DELAY_US 200000
#define WAITED   0.15 /* s: the least that others report */
#define MORE     0.05 /* s: the transfer of a delayed call may take longer than others by this */
#define ATTEMPTS 4    /* other programs use the cores, too */
#define MOST     (16u << 10)
#define WARM     4

/* The first three are made in all cases, all in the first one. */
enum late_call { BROADCAST, ALLREDUCE, STARTED, ANY, TESTED, PERSISTENT, GROUPED, LATE_CALLS };

static const struct split_case {
    const char *nodes, *provider;
    int size, late;
} cases[] = {{"1x2", "TWILL_PROVIDER=tcp", 2, 1},     {"1x4", "TWILL_PROVIDER=tcp", 4, 3},
             {"2x2", "TWILL_PROVIDER=tcp", 4, 3},     {"3x1", "TWILL_PROVIDER=tcp", 3, 2},
             {"2x2", "TWILL_PROVIDER=ofi:tcp", 4, 2}, {"3x1", "TWILL_PROVIDER=ofi:tcp", 3, 1},
             {"2x1", "TWILL_PROVIDER=sockets", 2, 0}};

/* What the ranks of a run share. */
struct split_job {
    const struct split_case *c;
    enum late_call call;
    size_t count;
    _Atomic int arrived; /* ranks that are about to make the late call, of all tries */
    _Atomic int slow;    /* attempts of ranks in which the transfer took longer than usual */
};

static twill_status make_call(const struct split_job *job, twill_comm *comm, float *x)
{
    twill_request *request = NULL;
    int index, done = 0;
    if (job->call == BROADCAST)
        return twill_broadcast(comm, x, x, job->count, TWILL_F32, job->c->late);
    if (job->call == PERSISTENT)
        TWILL_TRY(NULL,
                  twill_allreduce_init(comm, x, x, job->count, TWILL_F32, TWILL_SUM, &request));
    else if (job->call >= STARTED && job->call != GROUPED)
        TWILL_TRY(NULL,
                  twill_allreduce_start(comm, x, x, job->count, TWILL_F32, TWILL_SUM, &request));
    switch (job->call) {
    case STARTED:
        return twill_wait(&request);
    case ANY:
        return twill_wait_any(1, &request, &index);
    case TESTED:
        while (!done)
            TWILL_TRY(NULL, twill_test(&request, &done));
        return TWILL_OK;
    case PERSISTENT:
        TWILL_TRY(NULL, twill_request_start(request));
        TWILL_TRY(NULL, twill_wait(&request));
        return twill_request_free(&request);
    case GROUPED:
        TWILL_TRY(NULL, twill_group_start(comm));
        TWILL_TRY(NULL, twill_allreduce(comm, x, x, job->count, TWILL_F32, TWILL_SUM));
        return twill_group_end(comm);
    default:
        return twill_allreduce(comm, x, x, job->count, TWILL_F32, TWILL_SUM);
    }
}

/* Delay the late rank until all others are about to enter the call, and some more. */
static void come_late(struct split_job *job, int rank, int attempt)
{
    atomic_fetch_add(&job->arrived, 1);
    if (rank != job->c->late)
        return;
    while (atomic_load(&job->arrived) < job->c->size * (attempt + 1) && !twill_test_failed())
        twill_pause();
    usleep(DELAY_US);
}

/* Where the time of a call went, in seconds. */
struct call_split {
    double waited, transfer;
};

static void split_call(const struct split_job *job, twill_comm *comm, float *x,
                       struct call_split *split)
{
    twill_counters before, after;
    TWILL_CHECK(twill_comm_counters(comm, &before) == TWILL_OK);
    TWILL_CHECK(make_call(job, comm, x) == TWILL_OK);
    TWILL_CHECK(twill_comm_counters(comm, &after) == TWILL_OK);
    split->waited = after.seconds_waiting - before.seconds_waiting;
    split->transfer = after.seconds - before.seconds - split->waited;
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
           sscanf(line + strlen(start), "was last in %llu %*[cals], %lf s", &calls, &seconds) ==
               2 &&
           calls >= 1 && seconds >= WAITED;
}

/* Make calls that all ranks enter together, then one that a rank enters late; count it as slow if
 * its transfer took longer than the longest of the others. */
static void check_late_call(struct split_job *job, int rank, int attempt, twill_comm *comm,
                            float *x)
{
    double usual = 0;
    for (int i = 0; i < WARM; i++) {
        struct call_split split = {0, 0};
        split_call(job, comm, x, &split);
        if (i > 0 && split.transfer > usual) /* the first one connects */
            usual = split.transfer;
    }
    TWILL_CHECK(twill_comm_times_reset(comm) == TWILL_OK);
    come_late(job, rank, attempt);
    struct call_split late = {0, 0};
    split_call(job, comm, x, &late);
    bool tested = job->call == TESTED; /* its tests count, the caller's loop does not */
    TWILL_CHECK(!tested || rank == job->c->late || late.waited + late.transfer > 0);
    TWILL_CHECK(tested || (rank == job->c->late ? late.waited < WAITED : late.waited >= WAITED),
                "%s, %s, call %d of %zu: rank %d waited %f s, transfer took %f s", job->c->nodes,
                job->c->provider, job->call, job->count, rank, late.waited, late.transfer);
    TWILL_CHECK(rank == job->c->late || tested || names_late_rank(job, comm));
    TWILL_CHECK(twill_comm_times_reset(comm) == TWILL_OK);
    TWILL_CHECK(twill_comm_times(comm, 1) == NULL); /* nothing in the new period */
    bool longer = !tested && late.transfer > usual + MORE;
    TWILL_CHECK(!longer || attempt + 1 < ATTEMPTS,
                "%s, %s, call %d of %zu: transfer to rank %d took %f s, and %f s "
                "when rank %d was late",
                job->c->nodes, job->c->provider, job->call, job->count, rank, usual, late.transfer,
                job->c->late);
    atomic_fetch_add(&job->slow, longer);
}

static void split_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    static float buffers[4][MOST];
    struct split_job *job = user;
    twill_comm *comm;
    if (!twill_test_open(&comm, bootstrap, job->c->nodes, TWILL_TEST_PATIENT, job->c->provider))
        return;
    for (int attempt = 0, slow = 0; attempt < ATTEMPTS && !twill_test_failed(); attempt++) {
        check_late_call(job, rank, attempt, comm, buffers[rank]);
        twill_test_barrier(bootstrap);
        int now = atomic_load(&job->slow);
        twill_test_barrier(bootstrap);
        if (now == slow)
            break;
        slow = now;
    }
    twill_test_barrier(bootstrap);
    twill_test_close(comm);
}

TWILL_TEST(late_rank_is_named)
{
    static const size_t counts[] = {2, MOST};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        for (enum late_call call = BROADCAST; call < (i == 0 ? LATE_CALLS : ANY); call++) {
            struct split_job job = {.c = &cases[i], .call = call, .count = counts[(i + call) % 2]};
            twill_test_run_ranks(job.c->size, split_rank, &job);
        }
}
