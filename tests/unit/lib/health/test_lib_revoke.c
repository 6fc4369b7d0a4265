/* SPDX-License-Identifier: Apache-2.0 */
/* Revocation beside a call of another thread on the same rank: the call is held by hand where it
 * looks for a revocation no more, or the revocation is, so that the other one overtakes it. */
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
        TWILL_CHECK(atomic_load(&comm->live) == TWILL_TORN);
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
    atomic_store(&comm->claim.held, twill_held_by_revocation);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_late_call),
                                       cmocka_unit_test(test_late_revocation),
                                       cmocka_unit_test(test_held_revocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
