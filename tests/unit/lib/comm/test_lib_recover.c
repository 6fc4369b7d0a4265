/* SPDX-License-Identifier: Apache-2.0 */
/* Going on after failures: revocation, agreement, and the communicator of the survivors
 * (lib/twill_recover.h). Ranks are threads where none dies, else processes. */
#include "lib/comm/comm.h"
#include "lib/job/heap.h"
#include "lib/twill_recover.h"
#include "lib/twill_train.h"
#include "tests/support/unit.h"

#include <sys/time.h>

enum { COUNT = 1000 };

/* What one rank of a test has. */
struct recovering {
    twill_context *context;
    twill_comm *comm;
};

static bool connect_ends(struct recovering *ends, twill_bootstrap *bootstrap, const char *nodes,
                         const char *timeout)
{
    return twill_test_join(&ends->context, &ends->comm, bootstrap, nodes, timeout,
                           "TWILL_PROVIDER=tcp");
}

static void leave_ends(struct recovering *ends)
{
    twill_comm_leave(ends->comm);
    twill_context_destroy(ends->context);
}

static bool sum_is(twill_comm *comm, float *buffer, float expected)
{
    for (size_t i = 0; i < COUNT; i++)
        buffer[i] = 1;
    twill_status status = twill_allreduce(comm, buffer, buffer, COUNT, TWILL_F32, TWILL_SUM);
    return TWILL_NOTE(status == TWILL_OK && buffer[0] == expected && buffer[COUNT - 1] == expected,
                      "sum %g instead of %g: %s", (double)buffer[0], (double)expected,
                      twill_comm_message(comm));
}

/* --- revocation ------------------------------------------------------------------------------ */

enum blocked_in { IN_ALLREDUCE, IN_WAIT, IN_DUP, IN_SPLIT, IN_RECV, NOT_BLOCKED };

/* Rank 0 does not make the call that the others block in. */
static twill_status block(twill_comm *comm, enum blocked_in where)
{
    float buffer[4] = {0};
    twill_request *request = NULL;
    twill_comm *made = NULL;
    twill_status status;
    switch (where) {
    case IN_ALLREDUCE:
        return twill_allreduce(comm, buffer, buffer, 4, TWILL_F32, TWILL_SUM);
    case IN_WAIT:
        status = twill_allreduce_start(comm, buffer, buffer, 4, TWILL_F32, TWILL_SUM, &request);
        return status != TWILL_OK ? status : twill_wait(&request);
    case IN_DUP:
        return twill_comm_dup(&made, comm);
    case IN_SPLIT:
        return twill_comm_split(&made, comm, 0, 0);
    case IN_RECV:
        return twill_recv(comm, buffer, 4, TWILL_F32, 0);
    case NOT_BLOCKED:
        break;
    }
    return twill_barrier(comm);
}

/* A second thread of rank 1 revokes while its first is blocked, or rank 0 does. */
struct revocation {
    enum blocked_in where;
    const char *nodes;
    bool by_blocked;
};

static void *revoke_soon(void *comm)
{
    usleep(20000);
    (void)twill_comm_revoke(comm);
    return NULL;
}

static void revoked_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct revocation *test = user;
    struct recovering ends = {NULL, NULL};
    float buffer[4] = {0};
    pthread_t thread;
    TWILL_CHECK(connect_ends(&ends, bootstrap, test->nodes, TWILL_TEST_PATIENT));
    bool threaded = test->by_blocked && rank == 1;
    if (threaded)
        TWILL_CHECK(pthread_create(&thread, NULL, revoke_soon, ends.comm) == 0);
    twill_status status;
    if (rank != 0)
        status = block(ends.comm, test->where);
    else if (test->by_blocked)
        status = twill_recv(ends.comm, buffer, 4, TWILL_F32, 2);
    else
        status = twill_comm_revoke(ends.comm);
    if (threaded)
        pthread_join(thread, NULL);
    bool revokes = rank == 0 && !test->by_blocked;
    TWILL_CHECK(status == (revokes ? TWILL_OK : TWILL_ERR_REVOKED), "status %d: %s", status,
                twill_comm_message(ends.comm));
    TWILL_CHECK(strstr(twill_comm_message(ends.comm), "has revoked communicator") != NULL);
    TWILL_CHECK(twill_barrier(ends.comm) == TWILL_ERR_BROKEN);
    TWILL_CHECK(twill_comm_revoke(ends.comm) == TWILL_OK); /* again */
    TWILL_CHECK(twill_test_barrier(bootstrap));
    leave_ends(&ends);
}

TWILL_TEST(test_revocation)
{
    static const struct revocation tests[] = {
        {IN_ALLREDUCE, "3", false}, {IN_WAIT, "3", false},   {IN_DUP, "3", false},
        {IN_RECV, "3", false},      {IN_WAIT, "2+1", true},  {IN_DUP, "3x1", false},
        {IN_ALLREDUCE, "3", true},  {IN_RECV, "1+2", false}, {IN_SPLIT, "1+2", false},
        {IN_SPLIT, "3", true},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(tests); i++)
        twill_test_run_ranks(3, revoked_rank, (void *)(uintptr_t)&tests[i]);
}

/* --- agreement and shrinking without failures ------------------------------------------------- */

static void agreeing_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct recovering ends = {NULL, NULL};
    float buffer[COUNT];
    twill_outcome outcome;
    TWILL_CHECK(connect_ends(&ends, bootstrap, user, TWILL_TEST_PATIENT));
    TWILL_CHECK(twill_comm_outcome(ends.comm, &outcome) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(sum_is(ends.comm, buffer, (float)size));
    for (uint64_t round = 0; round < 5; round++) {
        uint64_t flags = ~(UINT64_C(1) << ((uint64_t)rank + round));
        TWILL_CHECK(twill_comm_agree(ends.comm, &flags) == TWILL_OK);
        for (int r = 0; r < size; r++)
            TWILL_CHECK((flags >> ((uint64_t)r + round) & 1) == 0);
        TWILL_CHECK((flags >> 40) == UINT64_MAX >> 40);
    }
    TWILL_CHECK(twill_comm_outcome(ends.comm, &outcome) == TWILL_OK);
    TWILL_CHECK(outcome.failed == 0 && outcome.survivors == size);
    TWILL_CHECK(outcome.complete == 1 && outcome.complete_some == 1);
    TWILL_CHECK(twill_comm_failed_rank(ends.comm, 0) == -1);
    if (rank == size - 1)
        TWILL_CHECK(twill_comm_revoke(ends.comm) == TWILL_OK);
    twill_comm *same = NULL;
    TWILL_CHECK(twill_comm_shrink(&same, ends.comm) == TWILL_OK, "%s",
                twill_comm_message(ends.comm));
    twill_comm_leave(ends.comm);
    ends.comm = same;
    TWILL_CHECK(twill_comm_size(same) == size && twill_comm_rank(same) == rank);
    TWILL_CHECK(sum_is(same, buffer, (float)size));
    TWILL_CHECK(twill_test_barrier(bootstrap));
    leave_ends(&ends);
}

TWILL_TEST(test_agreement)
{
    twill_test_run_ranks(1, agreeing_rank, "1");
    twill_test_run_ranks(4, agreeing_rank, "4");
    twill_test_run_ranks(4, agreeing_rank, "2x2");
    twill_test_run_ranks(5, agreeing_rank, "1+3+1");
}

static void bad_calls(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct recovering ends = {NULL, NULL};
    float buffer[4] = {0};
    uint64_t flags = 0;
    twill_request *request = NULL;
    twill_comm *made = NULL;
    TWILL_CHECK(connect_ends(&ends, bootstrap, user, TWILL_TEST_PATIENT));
    TWILL_CHECK(twill_comm_revoke(NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_agree(NULL, &flags) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_agree(ends.comm, NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_shrink(NULL, ends.comm) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_outcome(ends.comm, NULL) == TWILL_ERR_ARGUMENT);
    if (rank == 1) /* rank 0's request is under way until then */
        TWILL_CHECK(twill_test_barrier(bootstrap));
    TWILL_CHECK(twill_allreduce_start(ends.comm, buffer, buffer, 4, TWILL_F32, TWILL_SUM,
                                      &request) == TWILL_OK);
    if (rank == 0) {
        TWILL_CHECK(twill_comm_shrink(&made, ends.comm) == TWILL_ERR_ARGUMENT && made == NULL);
        TWILL_CHECK(strstr(twill_comm_message(ends.comm), "under way") != NULL);
        TWILL_CHECK(twill_test_barrier(bootstrap));
    }
    TWILL_CHECK(twill_wait(&request) == TWILL_OK);
    leave_ends(&ends);
}

/* Rank 0 agrees while the others shrink: it learns that, and they wait until it does the same. */
static void mixed_calls(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct recovering ends = {NULL, NULL};
    float buffer[COUNT];
    uint64_t flags = UINT64_MAX;
    twill_comm *same = NULL;
    TWILL_CHECK(connect_ends(&ends, bootstrap, user, TWILL_TEST_PATIENT));
    if (rank == 0) {
        TWILL_CHECK(twill_comm_agree(ends.comm, &flags) == TWILL_ERR_MISMATCH);
        TWILL_CHECK(strstr(twill_comm_message(ends.comm), "in a different call") != NULL);
        TWILL_CHECK(flags == UINT64_MAX);
    }
    TWILL_CHECK(twill_comm_shrink(&same, ends.comm) == TWILL_OK, "%s",
                twill_comm_message(ends.comm));
    twill_comm_leave(ends.comm);
    ends.comm = same;
    TWILL_CHECK(sum_is(same, buffer, (float)size));
    TWILL_CHECK(twill_test_barrier(bootstrap));
    leave_ends(&ends);
}

TWILL_TEST(test_mixed_calls)
{
    twill_test_run_ranks(3, mixed_calls, "3");
    twill_test_run_ranks(3, mixed_calls, "1+2");
}

TWILL_TEST(test_bad_calls)
{
    twill_test_run_ranks(2, bad_calls, "2");
}

/* --- ranks that die -------------------------------------------------------------------------- */

struct deaths {
    const char *nodes;
    int ranks;
    int first, second; /* ranks that die; second: while the others shrink, or -1 */
    unsigned delay_us; /* of the second, from its call on */
};

/* Die of SIGALRM, somewhere in the next calls. */
static void die_after(unsigned us)
{
    struct itimerval timer = {.it_value = {.tv_usec = us > 0 ? (suseconds_t)us : 1}};
    (void)setitimer(ITIMER_REAL, &timer, NULL);
}

static bool has_failed_rank(const twill_comm *comm, int rank)
{
    for (int i = 0, failed; (failed = twill_comm_failed_rank(comm, i)) >= 0; i++)
        if (failed == rank)
            return true;
    return false;
}

/* Shrink until a sum over the survivors is right. */
static void survive(struct recovering *ends, const struct deaths *test, int rank, float *buffer)
{
    int expected = test->ranks - 1 - (test->second >= 0);
    for (;;) {
        twill_comm *smaller = NULL;
        if (rank == test->second)
            die_after(test->delay_us);
        TWILL_CHECK(twill_comm_shrink(&smaller, ends->comm) == TWILL_OK, "%s",
                    twill_comm_message(ends->comm));
        if (twill_comm_size(ends->comm) == test->ranks)
            TWILL_CHECK(has_failed_rank(ends->comm, test->first));
        twill_comm_leave(ends->comm);
        ends->comm = smaller;
        for (size_t i = 0; i < COUNT; i++)
            buffer[i] = 1;
        twill_status status = twill_allreduce(smaller, buffer, buffer, COUNT, TWILL_F32, TWILL_SUM);
        if (rank == test->second)
            pause();
        if (status != TWILL_OK)
            continue;
        TWILL_CHECK(buffer[0] == (float)twill_comm_size(smaller));
        if (twill_comm_size(smaller) == expected)
            return;
    }
}

/* A gradient set's thread has an endpoint of its own, among ranks that are not all of the job. */
static void train_once(twill_comm *comm)
{
    twill_gradients_options options;
    twill_gradients *set;
    const twill_tensor tensor = {.name = "weights", .count = COUNT, .type = TWILL_F32};
    twill_gradients_defaults(&options);
    options.threads = 1;
    options.op = TWILL_SUM;
    TWILL_CHECK(twill_gradients_create(&set, comm, &options) == TWILL_OK);
    TWILL_CHECK(twill_gradients_add(set, &tensor, NULL) == TWILL_OK);
    TWILL_CHECK(twill_gradients_commit(set) == TWILL_OK, "%s", twill_gradients_message(set));
    float *gradient = twill_gradients_memory(set, 0);
    for (size_t i = 0; i < COUNT; i++)
        gradient[i] = 2;
    TWILL_CHECK(twill_gradients_ready(set, 0) == TWILL_OK);
    TWILL_CHECK(twill_gradients_wait_all(set) == TWILL_OK);
    TWILL_CHECK(gradient[COUNT - 1] == 2 * (float)twill_comm_size(comm));
    twill_gradients_destroy(set);
}

static void dying_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct deaths *test = user;
    struct recovering ends = {NULL, NULL};
    float *buffer;
    if (rank == test->first || rank == test->second)
        twill_test_expect_death(rank);
    TWILL_CHECK(connect_ends(&ends, bootstrap, test->nodes, TWILL_TEST_PATIENT));
    TWILL_CHECK(twill_alloc(ends.context, (void **)&buffer, COUNT * sizeof(*buffer)) == TWILL_OK);
    TWILL_CHECK(sum_is(ends.comm, buffer, (float)size));
    if (rank == test->first)
        _exit(1);
    twill_status status = TWILL_OK;
    while (status == TWILL_OK)
        status = twill_allreduce(ends.comm, buffer, buffer, COUNT, TWILL_F32, TWILL_MAX);
    TWILL_CHECK(status == TWILL_ERR_PEER);
    survive(&ends, test, rank, buffer);
    if (test->second < 0)
        train_once(ends.comm);
    twill_free(ends.context, buffer);
    leave_ends(&ends);
}

TWILL_TEST(test_deaths)
{
    static const struct deaths tests[] = {
        {"3", 3, 0, -1, 0},     {"3", 3, 2, -1, 0},     {"2x2", 4, 0, -1, 0},
        {"1+2", 3, 0, -1, 0},   {"4", 4, 1, 0, 500},    {"4", 4, 0, 1, 3000},
        {"2x2", 4, 2, 3, 2000}, {"2x2", 4, 1, 0, 5000}, {"4x1", 4, 3, 0, 8000},
        {"2", 2, 0, -1, 0},     {"5", 5, 4, 0, 1},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(tests); i++)
        twill_test_run_processes(tests[i].ranks, dying_rank, (void *)(uintptr_t)&tests[i]);
}

/* Rank 2 dies; rank 0 finds out in twill_comm_grow(), the other ones by an error before it. */
static void growing_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct recovering ends = {NULL, NULL};
    char handle[TWILL_HANDLE_BYTES];
    twill_comm *other = NULL;
    float buffer[COUNT];
    if (rank == 2)
        twill_test_expect_death(rank);
    TWILL_CHECK(connect_ends(&ends, bootstrap, user, TWILL_TEST_PATIENT));
    TWILL_CHECK(sum_is(ends.comm, buffer, (float)size));
    if (rank == 2)
        _exit(1);
    if (rank == 0) {
        TWILL_CHECK(twill_comm_handle(ends.comm, 1, handle) == TWILL_OK);
        TWILL_CHECK(twill_comm_grow(&other, ends.comm) != TWILL_OK && other == NULL);
    } else {
        TWILL_CHECK(twill_barrier(ends.comm) == TWILL_ERR_PEER);
    }
    TWILL_CHECK(twill_comm_shrink(&other, ends.comm) == TWILL_OK, "%s",
                twill_comm_message(ends.comm));
    twill_comm_leave(ends.comm);
    ends.comm = other;
    TWILL_CHECK(sum_is(ends.comm, buffer, (float)size - 1));
    leave_ends(&ends);
}

TWILL_TEST(test_growing)
{
    twill_test_run_processes(3, growing_rank, "3");
    twill_test_run_processes(4, growing_rank, "2x2");
}

/* --- reductions that are complete everywhere or nowhere --------------------------------------- */

/* Rank 2 dies at some time in a row of reductions to rank 0, in which the others need not wait. */
static void uniform_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const unsigned *delay_us = user;
    struct recovering ends = {NULL, NULL};
    float buffer[4] = {1, 1, 1, 1}, complete = 0, least, most;
    twill_comm *smaller = NULL;
    if (rank == 2)
        twill_test_expect_death(rank);
    TWILL_CHECK(twill_test_join(&ends.context, &ends.comm, bootstrap, "2+1", TWILL_TEST_PATIENT,
                                "TWILL_PROVIDER=tcp", "TWILL_AGREE=every"));
    if (rank == 2)
        die_after(*delay_us);
    while (twill_reduce(ends.comm, buffer, buffer, 4, TWILL_F32, TWILL_MAX, 0) == TWILL_OK)
        complete++;
    if (rank == 2)
        pause();
    TWILL_CHECK(twill_comm_shrink(&smaller, ends.comm) == TWILL_OK);
    TWILL_CHECK(twill_allreduce(smaller, &complete, &least, 1, TWILL_F32, TWILL_MIN) == TWILL_OK);
    TWILL_CHECK(twill_allreduce(smaller, &complete, &most, 1, TWILL_F32, TWILL_MAX) == TWILL_OK);
    TWILL_CHECK(least == most, "%g and %g reductions complete", (double)least, (double)most);
    twill_comm_leave(ends.comm);
    ends.comm = smaller;
    leave_ends(&ends);
}

TWILL_TEST(test_uniform)
{
    for (unsigned delay_us = 300; delay_us < 4000; delay_us += 700)
        twill_test_run_processes(3, uniform_rank, &delay_us);
}

/* --- a rank that is silent for too long ------------------------------------------------------- */

static void silent_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct recovering ends = {NULL, NULL};
    float *buffer;
    uint64_t flags = 1;
    twill_comm *smaller = NULL;
    TWILL_CHECK(connect_ends(&ends, bootstrap, user, "TWILL_TIMEOUT=3"));
    TWILL_CHECK(twill_alloc(ends.context, (void **)&buffer, COUNT * sizeof(*buffer)) == TWILL_OK);
    TWILL_CHECK(sum_is(ends.comm, buffer, (float)size));
    if (rank == 0) {
        TWILL_CHECK(twill_test_barrier(bootstrap));
        for (uint32_t l = 1; l < ends.comm->local_size; l++) /* as if in the middle of a call */
            memset(ends.comm->links.view[l].base, 0, COUNT * sizeof(*buffer));
        TWILL_CHECK(twill_comm_agree(ends.comm, &flags) == TWILL_ERR_EXCLUDED);
        TWILL_CHECK(strstr(twill_comm_message(ends.comm), "go on without this one") != NULL);
        TWILL_CHECK(twill_comm_shrink(&smaller, ends.comm) == TWILL_ERR_EXCLUDED);
    } else {
        TWILL_CHECK(twill_comm_shrink(&smaller, ends.comm) == TWILL_OK, "%s",
                    twill_comm_message(ends.comm));
        TWILL_CHECK(buffer[COUNT - 1] == (float)size); /* moved, with its contents */
        TWILL_CHECK(sum_is(smaller, buffer, (float)size - 1));
        twill_comm_leave(ends.comm);
        ends.comm = smaller;
        TWILL_CHECK(twill_test_barrier(bootstrap));
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank != 0) /* unharmed */
        TWILL_CHECK(buffer[0] == (float)size - 1 && buffer[COUNT - 1] == (float)size - 1);
    leave_ends(&ends);
}

TWILL_TEST(test_silence)
{
    twill_test_run_processes(3, silent_rank, "3");
    twill_test_run_processes(3, silent_rank, "3x1");
}
