/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines of communicators and requests, and the bounds that are stated for them. Rank 1 does not
 * come to the call in which the others wait; TWILL_TIMEOUT would be much longer. */
#include "lib/comm/comm.h"
#include "lib/twill_recover.h"
#include "tests/support/unit.h"

#define SHORT 0.3

struct waiting_rank {
    twill_context *context;
    twill_comm *comm;
    twill_bootstrap *bootstrap;
    int rank;
    float x[4];
};

static bool connect_late(struct waiting_rank *l, int rank, twill_bootstrap *bootstrap,
                         const char *nodes)
{
    const char *const settings[] = {TWILL_TEST_PATIENT, "TWILL_PROVIDER=tcp", NULL};
    *l = (struct waiting_rank){.bootstrap = bootstrap, .rank = rank};
    return twill_test_connect(&l->context, &l->comm, bootstrap, nodes, NULL, settings);
}

static void leave_late(struct waiting_rank *l)
{
    (void)twill_test_barrier(l->bootstrap);
    twill_comm_leave(l->comm);
    twill_context_destroy(l->context);
}

static twill_status start_sum(struct waiting_rank *l, twill_request **request)
{
    return twill_allreduce_start(l->comm, l->x, l->x, 4, TWILL_F32, TWILL_SUM, request);
}

/* The call must have ended by the short deadline: not before it, and long before TWILL_TIMEOUT. */
static bool was_short(uint64_t since)
{
    uint64_t took = twill_now() - since;
    return took >= (uint64_t)(SHORT * 0.99e9) && took < TWILL_TEST_PATIENCE / 2;
}

/* A bound is a little above what it is made of. */
static bool is_near(double bound, double seconds)
{
    return bound > seconds && bound < seconds + 2;
}

static void of_comm(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct waiting_rank l;
    twill_comm *copy = NULL;
    twill_bounds bounds;
    TWILL_CHECK(connect_late(&l, rank, bootstrap, user));
    TWILL_CHECK(twill_comm_set_timeout(l.comm, SHORT) == TWILL_OK);
    TWILL_CHECK(twill_comm_bounds(l.comm, &bounds) == TWILL_OK && is_near(bounds.silent, SHORT));
    TWILL_CHECK(twill_comm_set_timeout(l.comm, 0) == TWILL_OK);
    TWILL_CHECK(twill_comm_bounds(l.comm, &bounds) == TWILL_OK && bounds.silent > 100);
    TWILL_CHECK(twill_comm_dup(&copy, l.comm) == TWILL_OK);
    TWILL_CHECK(twill_comm_bounds(copy, &bounds) == TWILL_OK && bounds.silent > 100);
    twill_comm_leave(copy);
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank == 0)
        TWILL_CHECK(twill_comm_set_timeout(l.comm, SHORT) == TWILL_OK);
    uint64_t since = twill_now();
    twill_status status = rank == 1 ? TWILL_OK : twill_barrier(l.comm);
    if (rank == 0)
        TWILL_CHECK(status == TWILL_ERR_TIMEOUT && was_short(since));
    if (rank != 1) /* rank 2's own deadline has not expired */
        TWILL_CHECK(status == TWILL_ERR_TIMEOUT, "%d: %s", status, twill_comm_message(l.comm));
    leave_late(&l);
}

static void inherited(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct waiting_rank l;
    twill_comm *copy = NULL;
    TWILL_CHECK(connect_late(&l, rank, bootstrap, user));
    TWILL_CHECK(twill_comm_set_timeout(l.comm, SHORT * 100) == TWILL_OK);
    TWILL_CHECK(twill_comm_dup(&copy, l.comm) == TWILL_OK);
    twill_bounds bounds;
    TWILL_CHECK(twill_comm_bounds(copy, &bounds) == TWILL_OK &&
                is_near(bounds.silent, SHORT * 100));
    TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_comm_leave(copy);
    leave_late(&l);
}

static void of_request(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct waiting_rank l;
    twill_request *requests[2] = {NULL, NULL};
    int done = 0;
    const char *how = user;
    TWILL_CHECK(connect_late(&l, rank, bootstrap, "3"));
    uint64_t since = twill_now();
    if (rank == 1) {
        leave_late(&l);
        return;
    }
    TWILL_CHECK(start_sum(&l, &requests[0]) == TWILL_OK && start_sum(&l, &requests[1]) == TWILL_OK);
    if (rank == 0)
        TWILL_CHECK(twill_request_set_timeout(requests[1], SHORT) == TWILL_OK);
    twill_status status = TWILL_OK;
    if (strcmp(how, "wait") == 0)
        status = twill_wait(&requests[1]);
    else if (strcmp(how, "any") == 0)
        status = twill_wait_any(2, requests, &done);
    else
        while (status == TWILL_OK && done == 0)
            status = twill_test(&requests[1], &done);
    TWILL_CHECK(status == TWILL_ERR_TIMEOUT, "%d: %s", status, twill_comm_message(l.comm));
    TWILL_CHECK(was_short(since));
    (void)twill_wait_all(2, requests);
    leave_late(&l);
}

static void bad_calls(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    static const double bad[] = {-1, 1e-9, 1e9, INFINITY, NAN};
    struct waiting_rank l;
    twill_request *request = NULL;
    twill_bounds bounds;
    TWILL_CHECK(connect_late(&l, rank, bootstrap, user));
    TWILL_CHECK(start_sum(&l, &request) == TWILL_OK);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(bad); i++) {
        TWILL_CHECK(twill_comm_set_timeout(l.comm, bad[i]) == TWILL_ERR_ARGUMENT);
        TWILL_CHECK(strstr(twill_comm_message(l.comm), "twill_comm_set_timeout") != NULL);
        TWILL_CHECK(twill_request_set_timeout(request, bad[i]) == TWILL_ERR_ARGUMENT);
    }
    TWILL_CHECK(twill_request_set_timeout(request, 0) == TWILL_OK);
    TWILL_CHECK(twill_wait(&request) == TWILL_OK);
    TWILL_CHECK(twill_comm_set_timeout(NULL, 1) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_request_set_timeout(NULL, 1) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_bounds(NULL, &bounds) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_bounds(l.comm, NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_bounds(l.comm, &bounds) == TWILL_OK);
    TWILL_CHECK(bounds.silent > 100 && bounds.death > 0 && bounds.death < 2);
    TWILL_CHECK((bounds.host > 0) == (twill_comm_nodes(l.comm) > 1));
    /* Eight times `silent`, which has one tick of the agreement more, for every rank in turn. */
    TWILL_CHECK(fabs(bounds.agree / (8 * size * bounds.silent) - 1) < 0.01);
    TWILL_CHECK(bounds.grow > 1.7 * (bounds.silent - 1.5)); /* three quarters of the timeout more */
    TWILL_CHECK(twill_comm_set_timeout(l.comm, 2) == TWILL_OK);
    TWILL_CHECK(twill_comm_bounds(l.comm, &bounds) == TWILL_OK);
    TWILL_CHECK(bounds.meet == 1 && bounds.silent > 2 && bounds.silent < 4);
    TWILL_CHECK(twill_comm_set_timeout(l.comm, 0) == TWILL_OK);
    leave_late(&l);
}

TWILL_TEST(test_of_comm)
{
    twill_test_run_ranks(3, of_comm, "3");
    twill_test_run_ranks(3, of_comm, "2+1");
    twill_test_run_ranks(2, inherited, "2");
}

TWILL_TEST(test_of_request)
{
    twill_test_run_ranks(3, of_request, "wait");
    twill_test_run_ranks(3, of_request, "any");
    twill_test_run_ranks(3, of_request, "test");
}

TWILL_TEST(test_bad_calls)
{
    twill_test_run_ranks(2, bad_calls, "2");
    twill_test_run_ranks(2, bad_calls, "2x1");
}
