/* SPDX-License-Identifier: Apache-2.0 */
/* Threads on one communicator, of which one revokes, ends or advances it: a call is held by hand
 * where it looks for a revocation no more, or the revocation is, so that the other one overtakes
 * it, or for good. */
#include "lib/api/handle.h"
#include "lib/exec/progress.h"
#include "lib/twill_recover.h"
#include "tests/support/ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void *revoke_it(void *comm)
{
    (void)twill_comm_revoke(comm);
    return NULL;
}

static void *leave_it(void *comm)
{
    twill_comm_leave(comm);
    return NULL;
}

static void *destroy_it(void *comm)
{
    twill_comm_destroy(comm);
    return NULL;
}

/* Rank 0 is in a call that ends without a further look, and makes no other one. */
static void late_call(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const char *const more[] = {TWILL_TEST_PATIENT, NULL};
    twill_context *context;
    twill_comm *comm;
    pthread_t thread;
    (void)size;
    TWILL_CHECK(twill_test_connect(&context, &comm, bootstrap, user, NULL, more));
    if (rank == 0) {
        TWILL_CHECK(twill_comm_acquire(comm, "twill_allreduce") == TWILL_OK);
        TWILL_CHECK(pthread_create(&thread, NULL, revoke_it, comm) == 0);
        while (atomic_load(&comm->live) != TWILL_TORN)
            (void)usleep(100);
        (void)usleep(2000);
        twill_comm_release(comm);
        pthread_join(thread, NULL);
    } else {
        TWILL_CHECK(twill_barrier(comm) == TWILL_ERR_REVOKED);
        TWILL_CHECK(strstr(twill_comm_message(comm), "has revoked communicator") != NULL);
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_comm_leave(comm);
    twill_context_destroy(context);
}

static void test_late_call(void **state)
{
    (void)state;
    twill_test_run_ranks(2, late_call, "2");
    twill_test_run_ranks(2, late_call, "2x1");
}

/* A thread is still in twill_comm_revoke() when another one destroys the communicator. */
static void late_revocation(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const char *const more[] = {TWILL_TEST_PATIENT, NULL};
    twill_context *context;
    twill_comm *comm;
    pthread_t thread;
    (void)rank;
    (void)size;
    TWILL_CHECK(twill_test_connect(&context, &comm, bootstrap, user, NULL, more));
    TWILL_CHECK(twill_comm_revoke(comm) == TWILL_OK);
    atomic_fetch_add(&comm->claim.revoking, 1);
    TWILL_CHECK(pthread_create(&thread, NULL, destroy_it, comm) == 0);
    for (unsigned i = 0; i < 20; i++) {
        TWILL_CHECK(twill_comm_is_live(comm));
        (void)usleep(1000);
    }
    atomic_fetch_sub(&comm->claim.revoking, 1);
    pthread_join(thread, NULL);
    twill_context_destroy(context);
}

static void test_late_revocation(void **state)
{
    (void)state;
    twill_test_run_ranks(1, late_revocation, "1");
}

/* Destruction while another thread in twill_comm_revoke() holds the communicator, which it breaks:
 * it is destroyed once that has ended. */
static void held_revocation(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const char *const more[] = {TWILL_TEST_PATIENT, NULL};
    twill_context *context;
    twill_comm *comm;
    pthread_t thread;
    (void)rank;
    (void)size;
    TWILL_CHECK(twill_test_connect(&context, &comm, bootstrap, user, NULL, more));
    TWILL_CHECK(twill_comm_revoke(comm) == TWILL_OK);
    size_t opened = context->comms.opened;
    TWILL_CHECK(twill_comm_try_hold(comm));
    TWILL_CHECK(pthread_create(&thread, NULL, destroy_it, comm) == 0);
    (void)usleep(20000);
    TWILL_CHECK(context->comms.opened == opened);
    twill_comm_release(comm);
    pthread_join(thread, NULL);
    TWILL_CHECK(context->comms.opened == opened - 1);
    twill_context_destroy(context);
}

static void test_held_revocation(void **state)
{
    (void)state;
    twill_test_run_ranks(1, held_revocation, "1");
}

/* Rank 0 begins to leave, then revokes the communicator in another thread before leaving has closed
 * it: the others learn that. */
static void revoked_leaving(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const char *const more[] = {TWILL_TEST_PATIENT, NULL};
    twill_context *context;
    twill_comm *comm;
    pthread_t thread;
    (void)size;
    TWILL_CHECK(twill_test_connect(&context, &comm, bootstrap, user, NULL, more));
    if (rank == 0) {
        atomic_fetch_add(&comm->claim.revoking, 1); /* leaving waits for that */
        TWILL_CHECK(pthread_create(&thread, NULL, leave_it, comm) == 0);
        while (atomic_load(&comm->claim.held) == NULL)
            (void)usleep(100);
        TWILL_CHECK(twill_comm_revoke(comm) == TWILL_OK);
        atomic_fetch_sub(&comm->claim.revoking, 1);
        pthread_join(thread, NULL);
        TWILL_CHECK(twill_comm_revoke(comm) == TWILL_ERR_ARGUMENT);
    } else {
        TWILL_CHECK(twill_barrier(comm) == TWILL_ERR_REVOKED);
        TWILL_CHECK(strstr(twill_comm_message(comm), "has revoked communicator") != NULL);
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank != 0)
        twill_comm_leave(comm);
    twill_context_destroy(context);
}

static void test_revoked_leaving(void **state)
{
    (void)state;
    twill_test_run_ranks(2, revoked_leaving, "2");
    twill_test_run_ranks(2, revoked_leaving, "2x1");
}

/* A thread that advances a communicator, or is in twill_comm_revoke(), and does not come back: a
 * call fails, leaving keeps the communicator, and both work once it has come back. */
static void stuck_thread(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const char *const more[] = {TWILL_TEST_PATIENT, NULL};
    twill_context *context;
    twill_comm *comm, *other;
    (void)rank;
    (void)size;
    TWILL_CHECK(twill_test_connect(&context, &comm, bootstrap, user, NULL, more));
    TWILL_CHECK(twill_comm_dup(&other, comm) == TWILL_OK);
    context->config.number[TWILL_VARIABLE_TIMEOUT] = 100000000; /* 0.1 s */
    TWILL_CHECK(twill_comm_try_hold(comm));
    TWILL_CHECK(twill_barrier(comm) == TWILL_ERR_TIMEOUT);
    TWILL_CHECK(strstr(twill_comm_message(comm), "has held it for 0.1 s (TWILL_TIMEOUT)") != NULL);
    twill_comm_release(comm);
    TWILL_CHECK(twill_barrier(comm) == TWILL_ERR_BROKEN);
    TWILL_CHECK(strstr(twill_comm_message(comm), "has held it for 0.1 s (TWILL_TIMEOUT)") != NULL);
    twill_comm_leave(comm);
    atomic_fetch_add(&other->claim.revoking, 1);
    twill_comm_leave(other);
    TWILL_CHECK(twill_barrier(other) == TWILL_OK);
    atomic_fetch_sub(&other->claim.revoking, 1);
    twill_comm_leave(other);
    TWILL_CHECK(!twill_comm_is_live(other));
    twill_context_destroy(context);
}

static void test_stuck_thread(void **state)
{
    (void)state;
    twill_test_run_ranks(1, stuck_thread, "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late_call), cmocka_unit_test(test_late_revocation),
        cmocka_unit_test(test_held_revocation), cmocka_unit_test(test_revoked_leaving),
        cmocka_unit_test(test_stuck_thread)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
