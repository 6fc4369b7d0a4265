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

#define RECOVER_SETTINGS TWILL_TEST_PATIENT, "TWILL_PROVIDER=tcp"

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
static const struct revocation {
    enum blocked_in where;
    const char *nodes;
    bool by_blocked;
} revocations[] = {
    {IN_ALLREDUCE, "1x3", false}, {IN_WAIT, "1x3", false}, {IN_DUP, "1x3", false},
    {IN_RECV, "1x3", false},      {IN_WAIT, "2+1", true},  {IN_DUP, "3x1", false},
    {IN_ALLREDUCE, "1x3", true},  {IN_RECV, "1+2", false}, {IN_SPLIT, "1+2", false},
    {IN_SPLIT, "1x3", true},
};

static void *revoke_soon(void *comm)
{
    usleep(20000);
    (void)twill_comm_revoke(comm);
    return NULL;
}

TWILL_TEST_CASES(test_revocation, ranks, revocations, c->nodes, RECOVER_SETTINGS)
{
    float buffer[4] = {0};
    pthread_t thread;
    bool threaded = c->by_blocked && rank == 1, revokes = !c->by_blocked && rank == 0;
    TWILL_CHECK(!threaded || pthread_create(&thread, NULL, revoke_soon, comm) == 0);
    twill_status status;
    if (rank != 0)
        status = block(comm, c->where);
    else if (c->by_blocked)
        status = twill_recv(comm, buffer, 4, TWILL_F32, 2);
    else
        status = twill_comm_revoke(comm);
    if (threaded)
        pthread_join(thread, NULL);
    TWILL_CHECK(TWILL_ENDS(comm, status, revokes ? TWILL_OK : TWILL_ERR_REVOKED,
                           "has revoked communicator"));
    TWILL_CHECK(twill_barrier(comm) == TWILL_ERR_BROKEN);
    TWILL_CHECK(twill_comm_revoke(comm) == TWILL_OK); /* again */
}

/* --- agreement and shrinking without failures ------------------------------------------------- */

TWILL_TEST_ON(test_agreement, ranks, TWILL_LAYOUTS("1x1", "1x4", "2x2", "1+3+1"), RECOVER_SETTINGS)
{
    float buffer[COUNT];
    twill_outcome outcome;
    TWILL_CHECK(twill_comm_outcome(comm, &outcome) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(sum_is(comm, buffer, (float)size));
    for (uint64_t round = 0; round < 5; round++) {
        uint64_t flags = ~(UINT64_C(1) << ((uint64_t)rank + round));
        TWILL_CHECK(twill_comm_agree(comm, &flags) == TWILL_OK);
        for (int r = 0; r < size; r++)
            TWILL_CHECK((flags >> ((uint64_t)r + round) & 1) == 0);
        TWILL_CHECK((flags >> 40) == UINT64_MAX >> 40);
    }
    TWILL_CHECK(twill_comm_outcome(comm, &outcome) == TWILL_OK);
    TWILL_CHECK(outcome.failed == 0 && outcome.survivors == size);
    TWILL_CHECK(outcome.complete == 1 && outcome.complete_some == 1);
    TWILL_CHECK(twill_comm_failed_rank(comm, 0) == -1);
    if (rank == size - 1)
        TWILL_CHECK(twill_comm_revoke(comm) == TWILL_OK);
    twill_comm *same = NULL;
    TWILL_CHECK(twill_test_fine(comm, twill_comm_shrink(&same, comm)));
    twill_comm_leave(comm);
    TWILL_CHECK(twill_comm_size(same) == size && twill_comm_rank(same) == rank);
    TWILL_CHECK(sum_is(same, buffer, (float)size));
    TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_comm_leave(same);
}

TWILL_TEST_ON(test_bad_calls, ranks, TWILL_LAYOUTS("1x2"), RECOVER_SETTINGS)
{
    float buffer[4] = {0};
    uint64_t flags = 0;
    twill_request *request = NULL;
    twill_comm *made = NULL;
    TWILL_CHECK(twill_comm_revoke(NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_agree(NULL, &flags) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_agree(comm, NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_shrink(NULL, comm) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_outcome(comm, NULL) == TWILL_ERR_ARGUMENT);
    if (rank == 1) /* rank 0's request is under way until then */
        TWILL_CHECK(twill_test_barrier(bootstrap));
    TWILL_CHECK(twill_allreduce_start(comm, buffer, buffer, 4, TWILL_F32, TWILL_SUM, &request) ==
                TWILL_OK);
    if (rank == 0) {
        TWILL_CHECK(
            TWILL_ENDS(comm, twill_comm_shrink(&made, comm), TWILL_ERR_ARGUMENT, "under way") &&
            made == NULL);
        TWILL_CHECK(twill_test_barrier(bootstrap));
    }
    TWILL_CHECK(twill_wait(&request) == TWILL_OK);
}

/* Rank 0 agrees while the others shrink: it learns that, and they wait until it does the same. */
TWILL_TEST_ON(test_mixed_calls, ranks, TWILL_LAYOUTS("1x3", "1+2"), RECOVER_SETTINGS)
{
    float buffer[COUNT];
    uint64_t flags = UINT64_MAX;
    twill_comm *same = NULL;
    if (rank == 0) {
        TWILL_CHECK(TWILL_ENDS(comm, twill_comm_agree(comm, &flags), TWILL_ERR_MISMATCH,
                               "makes a different call"));
        TWILL_CHECK(flags == UINT64_MAX);
    }
    TWILL_CHECK(twill_test_fine(comm, twill_comm_shrink(&same, comm)));
    twill_comm_leave(comm);
    TWILL_CHECK(sum_is(same, buffer, (float)size));
    TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_comm_leave(same);
}

/* --- ranks that die -------------------------------------------------------------------------- */

static const struct deaths {
    const char *nodes;
    int first, second; /* ranks that die; second: while the others shrink, or -1 */
    unsigned delay_us; /* of the second, from its call on */
} deaths[] = {
    {"1x3", 0, -1, 0},   {"1x3", 2, -1, 0},   {"2x2", 0, -1, 0},   {"1+2", 0, -1, 0},
    {"1x4", 1, 0, 500},  {"1x4", 0, 1, 3000}, {"2x2", 2, 3, 2000}, {"2x2", 1, 0, 5000},
    {"4x1", 3, 0, 8000}, {"1x2", 0, -1, 0},   {"1x5", 4, 0, 1},
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

/* Shrink until a sum over the survivors of `size` ranks is right. Returns their communicator, or
 * NULL after noting a failure. */
static twill_comm *survive(twill_comm *comm, const struct deaths *test, int rank, int size,
                           float *buffer)
{
    int expected = size - 1 - (test->second >= 0);
    for (;;) {
        twill_comm *smaller = NULL;
        if (rank == test->second)
            die_after(test->delay_us);
        if (!twill_test_fine(comm, twill_comm_shrink(&smaller, comm)))
            return NULL;
        bool named = twill_comm_size(comm) < size || has_failed_rank(comm, test->first);
        twill_comm_leave(comm);
        comm = smaller;
        for (size_t i = 0; i < COUNT; i++)
            buffer[i] = 1;
        twill_status status = twill_allreduce(comm, buffer, buffer, COUNT, TWILL_F32, TWILL_SUM);
        if (rank == test->second)
            pause();
        int left = twill_comm_size(comm);
        if (!TWILL_NOTE(named && (status != TWILL_OK || buffer[0] == (float)left)))
            return NULL;
        if (status == TWILL_OK && left == expected)
            return comm;
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

TWILL_TEST_CASES(test_deaths, processes, deaths, c->nodes, RECOVER_SETTINGS)
{
    twill_context *context = twill_comm_context(comm);
    float *buffer;
    if (rank == c->first || rank == c->second)
        twill_test_expect_death(rank);
    TWILL_CHECK(twill_alloc(context, (void **)&buffer, COUNT * sizeof(*buffer)) == TWILL_OK);
    TWILL_CHECK(sum_is(comm, buffer, (float)size));
    if (rank == c->first)
        _exit(1);
    twill_status status = TWILL_OK;
    while (status == TWILL_OK)
        status = twill_allreduce(comm, buffer, buffer, COUNT, TWILL_F32, TWILL_MAX);
    TWILL_CHECK(status == TWILL_ERR_PEER);
    comm = survive(comm, c, rank, size, buffer);
    if (comm != NULL && c->second < 0)
        train_once(comm);
    twill_free(context, buffer);
    twill_comm_leave(comm);
}

/* Rank 2 dies; rank 0 finds out in twill_comm_grow(), the other ones by an error before it. */
TWILL_TEST_ON(test_growing, processes, TWILL_LAYOUTS("1x3", "2x2"), RECOVER_SETTINGS)
{
    char handle[TWILL_HANDLE_BYTES];
    twill_comm *other = NULL;
    float buffer[COUNT];
    if (rank == 2)
        twill_test_expect_death(rank);
    TWILL_CHECK(sum_is(comm, buffer, (float)size));
    if (rank == 2)
        _exit(1);
    if (rank == 0) {
        TWILL_CHECK(twill_comm_handle(comm, 1, handle) == TWILL_OK);
        TWILL_CHECK(twill_comm_grow(&other, comm) != TWILL_OK && other == NULL);
    } else {
        TWILL_CHECK(twill_barrier(comm) == TWILL_ERR_PEER);
    }
    TWILL_CHECK(twill_test_fine(comm, twill_comm_shrink(&other, comm)));
    twill_comm_leave(comm);
    TWILL_CHECK(sum_is(other, buffer, (float)size - 1));
    twill_comm_leave(other);
}

/* --- reductions that are complete everywhere or nowhere --------------------------------------- */

static const unsigned delays_us[] = {300, 1000, 1700, 2400, 3100, 3800};

/* Rank 2 dies at some time in a row of reductions to rank 0, in which the others need not wait. */
TWILL_TEST_CASES(test_uniform, processes, delays_us, "2+1", RECOVER_SETTINGS, "TWILL_AGREE=every")
{
    float buffer[4] = {1, 1, 1, 1}, complete = 0, least, most;
    twill_comm *smaller = NULL;
    if (rank == 2) {
        twill_test_expect_death(rank);
        die_after(*c);
    }
    while (twill_reduce(comm, buffer, buffer, 4, TWILL_F32, TWILL_MAX, 0) == TWILL_OK)
        complete++;
    if (rank == 2)
        pause();
    TWILL_CHECK(twill_comm_shrink(&smaller, comm) == TWILL_OK);
    TWILL_CHECK(twill_allreduce(smaller, &complete, &least, 1, TWILL_F32, TWILL_MIN) == TWILL_OK);
    TWILL_CHECK(twill_allreduce(smaller, &complete, &most, 1, TWILL_F32, TWILL_MAX) == TWILL_OK);
    TWILL_CHECK(least == most, "%g and %g reductions complete", (double)least, (double)most);
    twill_comm_leave(comm);
    twill_comm_leave(smaller);
}

/* --- a rank that is silent for too long ------------------------------------------------------- */

TWILL_TEST_ON(test_silence, processes, TWILL_LAYOUTS("1x3", "3x1"), "TWILL_TIMEOUT=3",
              "TWILL_PROVIDER=tcp")
{
    float *buffer;
    uint64_t flags = 1;
    twill_comm *smaller = NULL;
    TWILL_CHECK(twill_alloc(comm->context, (void **)&buffer, COUNT * sizeof(*buffer)) == TWILL_OK);
    TWILL_CHECK(sum_is(comm, buffer, (float)size));
    if (rank == 0) {
        TWILL_CHECK(twill_test_barrier(bootstrap));
        for (uint32_t l = 1; l < comm->local_size; l++) /* as if in the middle of a call */
            memset(comm->links.view[l].base, 0, COUNT * sizeof(*buffer));
        TWILL_CHECK(TWILL_ENDS(comm, twill_comm_agree(comm, &flags), TWILL_ERR_EXCLUDED,
                               "have excluded this one"));
        TWILL_CHECK(twill_comm_shrink(&smaller, comm) == TWILL_ERR_EXCLUDED);
    } else {
        TWILL_CHECK(twill_test_fine(comm, twill_comm_shrink(&smaller, comm)));
        TWILL_CHECK(buffer[COUNT - 1] == (float)size); /* moved, with its contents */
        TWILL_CHECK(sum_is(smaller, buffer, (float)size - 1));
        TWILL_CHECK(twill_test_barrier(bootstrap));
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank != 0) /* unharmed */
        TWILL_CHECK(buffer[0] == (float)size - 1 && buffer[COUNT - 1] == (float)size - 1);
    twill_comm_leave(comm);
    twill_comm_leave(smaller);
}
