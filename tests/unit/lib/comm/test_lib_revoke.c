/* SPDX-License-Identifier: Apache-2.0 */
/* Threads on one communicator, of which one revokes, ends or advances it, or is refused. Each step
 * of two of them is forced: CMakeLists.txt puts __wrap_*() below in place of calls by which the
 * library waits. */
#include "lib/comm/comm_internal.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/twill_recover.h"
#include "lib/wait/wait.h"
#include "tests/support/unit.h"

/* What a thread of the library does, and where another one has it stop. */
struct watched {
    twill_comm *comm;
    twill_status status;
    atomic_uint naps, yields; /* so far */
    atomic_bool stops;        /* it stays in its first nap while this is set */
    atomic_bool ended;
    unsigned sentences; /* that it has begun */
    bool early;         /* the communicator was torn before one */
};
static _Thread_local struct watched *watched;

int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    if (watched != NULL) {
        atomic_fetch_add(&watched->naps, 1);
        while (atomic_load(&watched->stops))
            (void)__real_nanosleep(time, left);
    }
    return __real_nanosleep(time, left);
}

int __real_sched_yield(void);
int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
    if (watched != NULL)
        atomic_fetch_add(&watched->yields, 1);
    return __real_sched_yield();
}

/* Of the sentence that says why a communicator is torn. */
const char *__real_twill_engine_rank_text(const struct twill_engine *e, uint32_t rank, char *text);
const char *__wrap_twill_engine_rank_text(const struct twill_engine *e, uint32_t rank, char *text);
const char *__wrap_twill_engine_rank_text(const struct twill_engine *e, uint32_t rank, char *text)
{
    const struct twill_comm *comm = twill_comm_of(e);
    if (watched != NULL && !comm->broken) {
        watched->sentences++;
        watched->early |= twill_comm_is_torn(comm);
    }
    return __real_twill_engine_rank_text(e, rank, text);
}

static void *call_it(void *own)
{
    watched = own;
    watched->status = twill_barrier(watched->comm);
    return NULL;
}

static void *revoke_it(void *own)
{
    watched = own;
    watched->status = twill_comm_revoke(watched->comm);
    atomic_store(&watched->ended, true);
    return NULL;
}

static void *destroy_it(void *own)
{
    watched = own;
    twill_comm_destroy(watched->comm);
    atomic_store(&watched->ended, true);
    return NULL;
}

static void *leave_it(void *comm)
{
    twill_comm_leave(comm);
    return NULL;
}

/* Wait until a thread has done this once, as it stops there, or a few times, or has ended. Returns
 * whether it has not. */
static bool watched_waits(struct watched *thread, atomic_uint *done)
{
    const unsigned wanted = atomic_load(&thread->stops) ? 1 : 3;
    while (!atomic_load(&thread->ended) && atomic_load(done) < wanted)
        (void)usleep(100);
    return !atomic_load(&thread->ended);
}

/* Rank 0 is in an agreement, which fails, and makes no other call. Another thread has begun to
 * revoke, and found it there: all learn of that. */
TWILL_TEST_ON(test_late_call, ranks, TWILL_LAYOUTS("1x2", "2x1"), TWILL_TEST_PATIENT)
{
    pthread_t thread;
    if (rank == 0) {
        struct watched revoker = {.comm = comm, .stops = true};
        TWILL_CHECK(twill_comm_acquire(comm, "twill_comm_agree") == TWILL_OK);
        TWILL_CHECK(pthread_create(&thread, NULL, revoke_it, &revoker) == 0);
        bool waits = watched_waits(&revoker, &revoker.naps);
        struct twill_error error = {.message = "another rank is in another call"};
        (void)twill_recovery_conclude(comm, TWILL_ERR_MISMATCH, &error);
        twill_comm_release(comm);
        atomic_store(&revoker.stops, false);
        pthread_join(thread, NULL);
        TWILL_CHECK(waits && comm->broken);
        TWILL_CHECK(comm->error.status == TWILL_ERR_REVOKED);
    } else {
        TWILL_CHECK(
            TWILL_ENDS(comm, twill_barrier(comm), TWILL_ERR_REVOKED, "has revoked communicator"));
    }
}

/* A thread is still in twill_comm_revoke(), which has found the communicator in a call, when that
 * has ended and another thread destroys the communicator. */
TWILL_TEST_ON(test_late_revocation, ranks, TWILL_LAYOUTS("1x1"), TWILL_TEST_PATIENT)
{
    pthread_t revoking, destroying;
    struct watched revoker = {.comm = comm, .stops = true}, destroyer = {.comm = comm};
    TWILL_CHECK(twill_comm_acquire(comm, "twill_allreduce") == TWILL_OK);
    TWILL_CHECK(pthread_create(&revoking, NULL, revoke_it, &revoker) == 0);
    TWILL_CHECK(watched_waits(&revoker, &revoker.naps));
    twill_comm_release(comm);
    TWILL_CHECK(pthread_create(&destroying, NULL, destroy_it, &destroyer) == 0);
    bool waits = watched_waits(&destroyer, &destroyer.yields);
    atomic_store(&revoker.stops, false);
    pthread_join(revoking, NULL);
    pthread_join(destroying, NULL);
    TWILL_CHECK(waits && revoker.status == TWILL_OK);
}

/* Destruction while another thread in twill_comm_revoke() holds the communicator, which it breaks:
 * it is destroyed once that has ended. */
TWILL_TEST_ON(test_held_revocation, ranks, TWILL_LAYOUTS("1x1"), TWILL_TEST_PATIENT)
{
    pthread_t thread;
    TWILL_CHECK(twill_comm_revoke(comm) == TWILL_OK);
    struct watched destroyer = {.comm = comm};
    TWILL_CHECK(twill_comm_try_hold(comm));
    TWILL_CHECK(pthread_create(&thread, NULL, destroy_it, &destroyer) == 0);
    bool waits = watched_waits(&destroyer, &destroyer.yields);
    twill_comm_release(comm);
    pthread_join(thread, NULL);
    TWILL_CHECK(waits && !twill_comm_is_live(comm));
}

static const bool with_revocation[] = {false, true};

/* A second call is refused, or a thread revokes, during a call: that may end, and look why, as soon
 * as the communicator is torn, so its sentence is written before. */
TWILL_TEST_CASES(test_refused, ranks, with_revocation, "1x1", TWILL_TEST_PATIENT)
{
    pthread_t thread;
    struct watched other = {.comm = comm};
    TWILL_CHECK(twill_comm_acquire(comm, "twill_allreduce") == TWILL_OK);
    TWILL_CHECK(pthread_create(&thread, NULL, *c ? revoke_it : call_it, &other) == 0);
    while (!twill_comm_is_torn(comm))
        (void)usleep(100);
    twill_status torn = twill_comm_torn(comm);
    twill_comm_release(comm);
    pthread_join(thread, NULL);
    TWILL_CHECK(torn == (*c ? TWILL_ERR_REVOKED : TWILL_ERR_ARGUMENT));
    TWILL_CHECK(other.sentences == 1 && !other.early);
}

/* Rank 0 begins to leave, then revokes the communicator in another thread before leaving has closed
 * it: the others learn that. */
TWILL_TEST_ON(test_revoked_leaving, ranks, TWILL_LAYOUTS("1x2", "2x1"), TWILL_TEST_PATIENT)
{
    pthread_t thread;
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
        TWILL_CHECK(
            TWILL_ENDS(comm, twill_barrier(comm), TWILL_ERR_REVOKED, "has revoked communicator"));
    }
}

/* A thread that advances a communicator, or is in twill_comm_revoke(), and does not come back: a
 * call fails, leaving keeps the communicator, and both work once it has come back. */
TWILL_TEST_ON(test_stuck_thread, ranks, TWILL_LAYOUTS("1x1"), TWILL_TEST_PATIENT)
{
    static const char held[] = "has held it for 0.1 s (TWILL_TIMEOUT)";
    twill_comm *other;
    TWILL_CHECK(twill_comm_dup(&other, comm) == TWILL_OK);
    comm->context->config->number[TWILL_VARIABLE_TIMEOUT] = 100000000; /* 0.1 s */
    TWILL_CHECK(twill_comm_try_hold(comm));
    TWILL_CHECK(TWILL_ENDS(comm, twill_barrier(comm), TWILL_ERR_TIMEOUT, held));
    twill_comm_release(comm);
    TWILL_CHECK(TWILL_ENDS(comm, twill_barrier(comm), TWILL_ERR_BROKEN, held));
    twill_comm_leave(comm);
    atomic_fetch_add(&other->claim.revoking, 1);
    twill_comm_leave(other);
    TWILL_CHECK(twill_barrier(other) == TWILL_OK);
    atomic_fetch_sub(&other->claim.revoking, 1);
    twill_comm_leave(other);
    TWILL_CHECK(!twill_comm_is_live(other));
}
