/* SPDX-License-Identifier: Apache-2.0 */
/* Bad arguments and failures: each ends in a status and a sentence that names cause and rank, on
 * every rank, before the deadline; never in a hang, a crash or a wrong result. */
#include "lib/comm/comm_internal.h"
#include "tests/support/unit.h"

#define FAILURE_COUNT 20000

/* libfabric 1.17 sometimes leaks a connection that is closed while it is being made, which failing
 * ranks do. In other tests, leaks under libfabric count. */
TWILL_TEST_LEAKS("leak:libfabric.so")

struct failure_job {
    twill_context *context;
    twill_comm *comm;
    float *src, *dst;
};

static bool start(struct failure_job *job, twill_bootstrap *bootstrap, const char *nodes,
                  const char *timeout)
{
    bool connected = twill_test_join(&job->context, &job->comm, bootstrap, nodes, timeout,
                                     "TWILL_TUNE=heap_limit=8M");
    job->src = calloc(FAILURE_COUNT, sizeof(float));
    job->dst = calloc(FAILURE_COUNT, sizeof(float));
    return TWILL_NOTE(connected && job->src != NULL && job->dst != NULL, "out of memory");
}

static void stop(struct failure_job *job)
{
    twill_test_disconnect(job->comm, job->context);
    free(job->src);
    free(job->dst);
}

/* The last rank makes another call than the others; all must fail and say so. In eager calls a rank
 * that only contributes data learns of it in its next call. */
struct call_disagreement {
    const char *name;
    int size;
    const char *nodes;
    twill_status (*usual)(struct failure_job *job);
    twill_status (*odd)(struct failure_job *job);
    const char *expected; /* in the message of every rank */
};

static twill_status reduce_8(struct failure_job *j)
{
    return twill_allreduce(j->comm, j->src, j->dst, 8, TWILL_F32, TWILL_SUM);
}
static twill_status reduce_7(struct failure_job *j)
{
    return twill_allreduce(j->comm, j->src, j->dst, 7, TWILL_F32, TWILL_SUM);
}
static twill_status reduce_many(struct failure_job *j)
{
    return twill_allreduce(j->comm, j->src, j->dst, FAILURE_COUNT, TWILL_F32, TWILL_SUM);
}
static twill_status reduce_fewer(struct failure_job *j)
{
    return twill_allreduce(j->comm, j->src, j->dst, FAILURE_COUNT - 1, TWILL_F32, TWILL_SUM);
}
static twill_status reduce_none(struct failure_job *j)
{
    return twill_allreduce(j->comm, j->src, j->dst, 0, TWILL_F32, TWILL_SUM);
}
static twill_status reduce_8_max(struct failure_job *j)
{
    return twill_allreduce(j->comm, j->src, j->dst, 8, TWILL_F32, TWILL_MAX);
}
static twill_status reduce_8_i32(struct failure_job *j)
{
    return twill_allreduce(j->comm, j->src, j->dst, 8, TWILL_I32, TWILL_SUM);
}
static twill_status barrier(struct failure_job *j)
{
    return twill_barrier(j->comm);
}
static twill_status root_0(struct failure_job *j)
{
    return twill_broadcast(j->comm, j->src, j->dst, 8, TWILL_F32, 0);
}
static twill_status root_0_fewer(struct failure_job *j)
{
    return twill_broadcast(j->comm, j->src, j->dst, 7, TWILL_F32, 0);
}
static twill_status root_0_many(struct failure_job *j)
{
    return twill_broadcast(j->comm, j->src, j->dst, FAILURE_COUNT, TWILL_F32, 0);
}
static twill_status root_last(struct failure_job *j)
{
    return twill_broadcast(j->comm, j->src, j->dst, 8, TWILL_F32, 1);
}
static twill_status root_1(struct failure_job *j)
{
    return twill_broadcast(j->comm, j->src, j->dst, 8, TWILL_F32, 1);
}
static twill_status null_src(struct failure_job *j)
{
    return twill_allreduce(j->comm, NULL, j->dst, 8, TWILL_F32, TWILL_SUM);
}
static twill_status null_dst(struct failure_job *j)
{
    return twill_allreduce(j->comm, j->src, NULL, 8, TWILL_F32, TWILL_SUM);
}
static twill_status overlap(struct failure_job *j)
{
    return twill_allreduce(j->comm, j->src, j->src + 4, 8, TWILL_F32, TWILL_SUM);
}

static const struct call_disagreement disagreements[] = {
    {"count, small", 2, "", reduce_8, reduce_7, "count"},
    {"count, small, 4 ranks", 4, "", reduce_8, reduce_7, "count"},
    {"count, large", 3, "", reduce_many, reduce_fewer, "count"},
    {"small against large", 3, "", reduce_8, reduce_many, "count"},
    {"nothing against something", 3, "", reduce_8, reduce_none, "count"},
    {"operation", 3, "", reduce_8, reduce_8_max, "max"},
    {"type", 3, "", reduce_8, reduce_8_i32, "i32"},
    {"collective", 4, "", reduce_8, barrier, "barrier"},
    {"collective, large", 4, "", reduce_many, barrier, "barrier"},
    {"eager, root", 3, "", root_0, root_1, "root"},
    {"eager, count", 3, "", root_0, root_0_fewer, "count"},
    {"eager, collective", 3, "", root_0, reduce_8, "allreduce"},
    {"eager, collective, large", 3, "", root_0_many, reduce_many, "allreduce"},
    {"eager, collective, the odd one", 2, "", reduce_8, root_last, "allreduce"},
    {"count between nodes", 2, "2x1", reduce_8, reduce_7, "count"},
    {"count between nodes, large", 4, "2x2", reduce_many, reduce_fewer, "count"},
    {"collective between nodes", 4, "4x1", reduce_8, barrier, "barrier"},
    {"small against large between nodes", 4, "4x1", reduce_8, reduce_many, "count"},
    {"operation between nodes", 4, "2x2", reduce_8, reduce_8_max, "max"},
    {"src", 3, "", reduce_8, null_src, "src is NULL"},
    {"dst", 3, "", reduce_8, null_dst, "dst is NULL"},
    {"overlap", 3, "", reduce_8, overlap, "overlap"},
    {"dst between nodes", 4, "2x2", reduce_8, null_dst, "dst is NULL"},
};

static void disagree(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct call_disagreement *d = user;
    struct failure_job job;
    if (start(&job, bootstrap, d->nodes, TWILL_TEST_PATIENT)) {
        /* a good call before, and a broken communicator after */
        twill_status status = reduce_many(&job);
        bool fine = TWILL_NOTE(status == TWILL_OK, "%s: first: %s", d->name,
                               twill_comm_message(job.comm)) &&
                    twill_test_barrier(bootstrap);
        if (fine)
            status = rank == size - 1 ? d->odd(&job) : d->usual(&job);
        if (fine && status == TWILL_OK && strncmp(d->name, "eager", 5) == 0)
            status = barrier(&job);
        const char *message = twill_comm_message(job.comm);
        if (fine &&
            TWILL_NOTE(status == TWILL_ERR_MISMATCH || status == TWILL_ERR_ARGUMENT,
                       "%s: rank %d: status %d: %s", d->name, rank, status, message) &&
            TWILL_NOTE(strstr(message, d->expected) != NULL && strstr(message, "rank") != NULL,
                       "%s: rank %d: \"%s\"", d->name, rank, message))
            (void)TWILL_NOTE(twill_barrier(job.comm) == TWILL_ERR_BROKEN, "%s: not broken",
                             d->name);
    }
    (void)twill_test_barrier(bootstrap);
    stop(&job);
}

TWILL_TEST(ranks_that_disagree)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(disagreements); i++) {
        struct call_disagreement d = disagreements[i];
        twill_test_run_ranks(d.size, disagree, &d);
    }
}

/* A rank that calls when the others have failed and ended gets their failure, not an error about
 * the connections they have closed, in every form of call. */
static twill_status begin_and_wait(struct failure_job *j)
{
    twill_request *request;
    twill_status status =
        twill_allreduce_start(j->comm, j->src, j->dst, 8, TWILL_F32, TWILL_SUM, &request);
    return status == TWILL_OK ? twill_wait(&request) : status;
}
static twill_status split(struct failure_job *j)
{
    twill_comm *made;
    return twill_comm_split(&made, j->comm, 0, 0);
}
static twill_status send_on(struct failure_job *j)
{
    return twill_send(j->comm, j->src, 8, TWILL_F32, 0);
}
static twill_status send_in_group(struct failure_job *j)
{
    twill_status status = twill_group_start(j->comm);
    if (status == TWILL_OK)
        status = send_on(j);
    return status == TWILL_OK ? twill_group_end(j->comm) : status;
}

struct late {
    const char *name;
    twill_status (*call)(struct failure_job *job);
};

static void come_late(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct late *late = user;
    struct failure_job job;
    bool fine =
        start(&job, bootstrap, "3x1", TWILL_TEST_PATIENT) &&
        TWILL_NOTE(reduce_many(&job) == TWILL_OK, "first: %s", twill_comm_message(job.comm)) &&
        twill_test_barrier(bootstrap);
    if (fine && rank != 1) {
        (void)TWILL_NOTE((rank == 0 ? reduce_8 : null_dst)(&job) == TWILL_ERR_ARGUMENT, "%s",
                         twill_comm_message(job.comm));
        stop(&job);
    }
    fine = fine && twill_test_barrier(bootstrap);
    if (fine && rank == 1) {
        twill_status status = late->call(&job);
        const char *message = twill_comm_message(job.comm);
        (void)TWILL_NOTE(status == TWILL_ERR_ARGUMENT && strstr(message, "reported by rank") &&
                             strncmp(message, "rank 1: ", 8) == 0,
                         "%s: status %d: \"%s\"", late->name, status, message);
    }
    (void)twill_test_barrier(bootstrap);
    if (!fine || rank == 1)
        stop(&job);
}

TWILL_TEST(ranks_that_have_gone)
{
    static const struct late late[] = {{"a call", reduce_8},
                                       {"a nonblocking call", begin_and_wait},
                                       {"a communicator made", split},
                                       {"a message", send_on},
                                       {"a message in a group", send_in_group}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(late); i++)
        twill_test_run_ranks(3, come_late, (void *)(uintptr_t)&late[i]);
}

/* A single rank survives its own bad arguments. */
static void alone(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct failure_job job;
    TWILL_CHECK(start(&job, bootstrap, "", TWILL_TEST_PATIENT));
    TWILL_CHECK(null_src(&job) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(strstr(twill_comm_message(job.comm), "src") != NULL);
    TWILL_CHECK(reduce_8(&job) == TWILL_OK);
    TWILL_CHECK(twill_allreduce(NULL, job.src, job.dst, 8, TWILL_F32, TWILL_SUM) ==
                TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_barrier(NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_create(NULL, job.context) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_rank(NULL) == -1);
    TWILL_CHECK(twill_context_create(NULL, NULL, NULL) == TWILL_ERR_ARGUMENT);
    stop(&job);
}

TWILL_TEST(one_rank)
{
    twill_test_run_ranks(1, alone, NULL);
}

/* Two communicators: a failure on one reaches the rank that waits in it, whatever both ranks' other
 * communicators do meanwhile. */
static void fail_on_the_other(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct failure_job job;
    twill_comm *other = NULL;
    if (start(&job, bootstrap, user, TWILL_TEST_PATIENT) &&
        TWILL_NOTE(twill_comm_create(&other, job.context) == TWILL_OK, "second communicator")) {
        /* rank 1 fails on the other one first, while rank 0 waits here; then rank 0 goes there */
        twill_status first = TWILL_OK, second;
        if (rank == 1) {
            second = twill_allreduce(other, NULL, job.dst, 8, TWILL_F32, TWILL_SUM);
            first = reduce_8(&job);
        } else {
            first = reduce_8(&job);
            second = twill_allreduce(other, job.src, job.dst, 8, TWILL_F32, TWILL_SUM);
        }
        (void)TWILL_NOTE(first == TWILL_OK, "rank %d: %s", rank, twill_comm_message(job.comm));
        (void)TWILL_NOTE(second == TWILL_ERR_ARGUMENT &&
                             strstr(twill_comm_message(other), "src is NULL") != NULL,
                         "rank %d: status %d: \"%s\"", rank, second, twill_comm_message(other));
    }
    (void)twill_test_barrier(bootstrap);
    twill_comm_destroy(other);
    stop(&job);
}

TWILL_TEST(two_communicators)
{
    twill_test_run_ranks(2, fail_on_the_other, "");
    twill_test_run_ranks(2, fail_on_the_other, "2x1");
}

/* --- a rank that never arrives ---------------------------------------------------------------- */

static void stay_away(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct failure_job job;
    /* With two ranks on each of two nodes, ranks report whom they wait for from time to time. */
    if (start(&job, bootstrap, user, size < 4 ? TWILL_TEST_HASTY : "TWILL_TIMEOUT=12")) {
        (void)TWILL_NOTE(reduce_8(&job) == TWILL_OK, "first: %s", twill_comm_message(job.comm));
        if (twill_test_barrier(bootstrap) && rank != size - 1) {
            twill_status status = reduce_8(&job);
            char name[32];
            snprintf(name, sizeof(name), "rank %d", size - 1);
            (void)TWILL_NOTE(
                status == TWILL_ERR_TIMEOUT && strstr(twill_comm_message(job.comm), name) != NULL,
                "rank %d: status %d: \"%s\"", rank, status, twill_comm_message(job.comm));
        }
    }
    (void)twill_test_barrier(bootstrap);
    stop(&job);
}

/* The deadline holds however long TWILL_TUNE=spin lets a rank spin. */
static void spin_on(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    twill_comm *comm;
    bool opened = twill_test_open(&comm, bootstrap, "", "TWILL_TUNE=spin=1000000000,heap_limit=4M",
                                  TWILL_TEST_HASTY);
    if (rank == 0 && opened)
        (void)TWILL_NOTE(twill_barrier(comm) == TWILL_ERR_TIMEOUT, "no time-out: %s",
                         twill_comm_message(comm));
    (void)twill_test_barrier(bootstrap);
    twill_test_close(comm);
}

TWILL_TEST(a_rank_that_never_comes)
{
    twill_test_run_ranks(2, spin_on, NULL);
    twill_test_run_ranks(3, stay_away, "");
    twill_test_run_ranks(2, stay_away, "2x1");
    twill_test_run_ranks(4, stay_away, "2x2");
}

/* --- a rank that dies ------------------------------------------------------------------------- */

static void die(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct failure_job job;
    if (!start(&job, bootstrap, user, TWILL_TEST_PATIENT))
        return;
    TWILL_CHECK(reduce_many(&job) == TWILL_OK && twill_test_barrier(bootstrap));
    if (rank == size - 1) {
        twill_test_expect_death(rank);
        raise(SIGKILL);
    }
    /* Two ranks: its death is sure when it is found a second time, of those that look since. */
    bool doubt = false;
    uint64_t since = twill_now();
    while (size == 2 && twill_now() - since < TWILL_TEST_PATIENCE && !doubt) {
        TWILL_CHECK(!twill_comm_is_surely_dead(job.comm, 1, since, &doubt));
        usleep(1000);
    }
    while (size == 2 && twill_now() - since < TWILL_TEST_PATIENCE &&
           !twill_comm_is_surely_dead(job.comm, 1, since, &doubt))
        usleep(1000);
    TWILL_CHECK(size != 2 ||
                (!twill_comm_is_surely_dead(job.comm, 1, twill_now(), &doubt) && doubt));
    twill_status status = reduce_many(&job);
    char name[32];
    snprintf(name, sizeof(name), "rank %d", size - 1);
    TWILL_CHECK(status == TWILL_ERR_PEER && strstr(twill_comm_message(job.comm), name) != NULL,
                "rank %d: status %d: \"%s\"", rank, status, twill_comm_message(job.comm));
    stop(&job);
}

TWILL_TEST(a_rank_that_dies)
{
    static const struct {
        int size;
        const char *nodes;
    } cases[] = {{2, ""}, {4, ""}, {2, "2x1"}, {4, "2x2"}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        twill_test_run_processes(cases[i].size, die, (void *)(uintptr_t)cases[i].nodes);
}

/* --- fork ------------------------------------------------------------------------------------- */

/* A child of a rank gets errors, and leaves its parent's data and connections alone. */
static void use_after_fork(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct failure_job job;
    void *memory = NULL, *big = NULL;
    TWILL_CHECK(start(&job, bootstrap, user, TWILL_TEST_PATIENT));
    TWILL_CHECK(twill_alloc(job.context, &big, (size_t)4 << 20) == TWILL_OK);
    memset(big, 0x5a, (size_t)4 << 20);
    TWILL_CHECK(reduce_8(&job) == TWILL_OK);
    pid_t pid = fork();
    TWILL_CHECK(pid >= 0);
    if (pid == 0) {
        bool right = reduce_8(&job) == TWILL_ERR_FORKED &&
                     twill_alloc(job.context, &memory, 8) == TWILL_ERR_FORKED &&
                     twill_free(job.context, big) == TWILL_ERR_FORKED;
        twill_test_disconnect(job.comm, job.context);
        _exit(right ? 0 : 1);
    }
    int status;
    TWILL_CHECK(waitpid(pid, &status, 0) == pid);
    TWILL_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (size_t i = 0; i < (size_t)4 << 20; i += 4096)
        TWILL_CHECK(((unsigned char *)big)[i] == 0x5a);
    for (int i = 0; i < FAILURE_COUNT; i++)
        job.src[i] = (float)(rank + 1);
    TWILL_CHECK(reduce_many(&job) == TWILL_OK);
    TWILL_CHECK(job.dst[FAILURE_COUNT - 1] == (float)(size * (size + 1) / 2));
    TWILL_CHECK(twill_free(job.context, big) == TWILL_OK);
    stop(&job);
}

TWILL_TEST(used_after_fork)
{
    twill_test_run_processes(1, use_after_fork, "");
    twill_test_run_processes(2, use_after_fork, "");
    twill_test_run_processes(2, use_after_fork, "2x1");
}
