/* SPDX-License-Identifier: Apache-2.0 */
/* A timeout names the rank that all wait for, and set-up ends upon a failure or a revocation. In
 * the bad order, too: the first rank whose time is over waits for one that waits for another one,
 * and so on, which have not reported anything by then. Theirs is so long that they report only
 * after that (once a second). */
#include "fabric/shm/call_records.h"
#include "lib/comm/comm_internal.h"
#include "lib/job/context.h"
#include "lib/twill_recover.h"
#include "tests/support/unit.h"

#include <sys/socket.h>
#include <sys/syscall.h>

#define SHORT    0.8 /* seconds: of rank 0 */
#define LONGER   2.0 /* than set-up takes on a busy machine */
#define ABSENT   3   /* makes no call */
#define PASSING  1   /* stops while it passes descriptors on */
#define OF_SETUP 3   /* ranks */

/* Rank 0 waits for rank 1, which waits for rank 2 and, if `circle`, is waited for by it. */
static twill_status wait_in_chain(twill_comm *comm, int rank, bool circle)
{
    twill_request *request[2] = {NULL, NULL};
    float in[2] = {0, 0};
    int first = rank + 1, second = -1;
    if (circle && rank == 1)
        second = ABSENT;
    else if (circle && rank == 2)
        first = 1;
    twill_status status = twill_recv_start(comm, &in[0], 1, TWILL_F32, first, &request[0]);
    if (status == TWILL_OK && second >= 0)
        status = twill_recv_start(comm, &in[1], 1, TWILL_F32, second, &request[1]);
    twill_status outcome = twill_wait_all(2, request);
    return status != TWILL_OK ? status : outcome;
}

/* With `circle`, ranks 1 and 2 wait for each other, and rank 1 for rank 3, too. */
static const struct wait_chain {
    const char *layout;
    bool circle;
} chains[] = {{"1x4", false}, {"2x2", false}, {"4x1", false},
              {"1+3", false}, {"2x2", true},  {"4x1", true}};

TWILL_TEST_CASES(test_chain, ranks, chains, c->layout, TWILL_TEST_PATIENT, "TWILL_PROVIDER=tcp")
{
    TWILL_CHECK(rank != 0 || twill_comm_set_timeout(comm, SHORT) == TWILL_OK);
    TWILL_CHECK(twill_barrier(comm) == TWILL_OK);
    if (rank != ABSENT)
        TWILL_CHECK(
            TWILL_ENDS(comm, wait_in_chain(comm, rank, c->circle), TWILL_ERR_TIMEOUT, "rank 3"));
}

/* All others ask rank 0 before it looks, more than its mailbox holds: it answers each of them. The
 * first times connect them. */
TWILL_TEST_ON(test_many_ask, ranks, TWILL_LAYOUTS("8x1"), TWILL_TEST_PATIENT, "TWILL_PROVIDER=tcp")
{
    const uint32_t asked = 0;
    TWILL_CHECK(size == 2 * (int)TWILL_MAILBOX_REPORTS && twill_barrier(comm) == TWILL_OK);
    for (unsigned times = 0; times < 20; times++) {
        comm->health->reported[0].in = 0;
        if (rank != 0)
            twill_comm_report(comm, &asked, 1);
        TWILL_CHECK(twill_test_barrier(bootstrap));
        TWILL_CHECK(rank != 0 || twill_comm_poll_failures(comm, true) == TWILL_OK);
        TWILL_CHECK(twill_test_barrier(bootstrap));
        TWILL_CHECK(rank == 0 || twill_comm_poll_failures(comm, true) == TWILL_OK);
        usleep(1000);
    }
    TWILL_CHECK(rank == 0 || comm->health->reported[0].in == comm->issue.sequence,
                "rank %d has no answer", rank);
}

/* --- where the late rank is ------------------------------------------------------------------- */

enum place_how { PLACE_ELSEWHERE, PLACE_MESSAGE, PLACE_NOWHERE };
static struct place_case {
    const char *layout;
    enum place_how how;
    const char *expected;
    _Atomic(twill_comm *) in; /* of the late rank: what it waits in */
} places[] = {
    {"1x3", PLACE_ELSEWHERE, "rank 2 is in allreduce #1 (count 1, f32 sum) of communicator 1",
     NULL},
    {"3x1", PLACE_ELSEWHERE, "rank 2 is in allreduce #1 (count 1, f32 sum) of communicator 1",
     NULL},
    {"1x3", PLACE_MESSAGE, "rank 2 waits for a message; its last call here was barrier #", NULL},
    {"3x1", PLACE_MESSAGE, "rank 2 waits for a message; its last call here was barrier #", NULL},
    {"1x3", PLACE_NOWHERE, "rank 2 is in no call; its last was barrier #", NULL},
    {"3x1", PLACE_NOWHERE, "rank 2 does not answer: it is in no call, or stopped", NULL},
};

/* Wait until the late rank waits, and on a node until it has published that. */
static void await_place(struct place_case *p, const twill_comm *comm)
{
    const twill_comm *in;
    while (!twill_test_failed() &&
           ((in = atomic_load(&p->in)) == NULL || atomic_load(&in->claim.held) == NULL ||
            (comm->world->node[2] == comm->world->node[comm->rank] &&
             twill_node_elsewhere(comm->node, comm->world->local[2]).ticks == 0)))
        usleep(2000);
}

TWILL_TEST_CASES(test_place, ranks, places, c->layout, TWILL_TEST_PATIENT, "TWILL_PROVIDER=tcp")
{
    twill_comm *other;
    float one = 1, sum = 0;
    TWILL_CHECK(twill_comm_dup(&other, comm) == TWILL_OK && twill_barrier(comm) == TWILL_OK);
    if (rank == 2) {
        atomic_store(&c->in, c->how == PLACE_MESSAGE ? comm : other);
        if (c->how == PLACE_ELSEWHERE)
            TWILL_CHECK(twill_allreduce(other, &one, &sum, 1, TWILL_F32, TWILL_SUM) ==
                        TWILL_ERR_REVOKED);
        else if (c->how == PLACE_MESSAGE)
            TWILL_CHECK(twill_recv(comm, &sum, 1, TWILL_F32, 0) == TWILL_ERR_TIMEOUT);
    } else {
        if (c->how != PLACE_NOWHERE)
            await_place(c, comm);
        TWILL_CHECK(rank != 0 || twill_comm_set_timeout(comm, SHORT) == TWILL_OK);
        TWILL_CHECK(TWILL_ENDS(comm, twill_barrier(comm), TWILL_ERR_TIMEOUT, c->expected));
        TWILL_CHECK(rank != 0 || twill_comm_revoke(other) == TWILL_OK);
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_comm_leave(other);
    twill_comm_leave(comm);
}

static _Thread_local const twill_comm *freezing; /* NULL: none */

/* The clock of a thread stands once `freezing` has a notice: what it then waits for has no
 * deadline, however late other ranks are. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    static _Thread_local struct timespec last;
    bool stands = freezing != NULL && freezing->health->notified && !twill_test_failed();
    if (clock == CLOCK_MONOTONIC && stands) {
        *now = last;
        return 0;
    }
    int rc = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_MONOTONIC)
        last = *now;
    return rc;
}

static twill_comm *volatile told;

/* Rank 1 is told that rank 0 has left the communicator, and when it has taken that in, why: it
 * names the reason. */
TWILL_TEST_ON(test_left, ranks, TWILL_LAYOUTS("3x1"), TWILL_TEST_PATIENT, "TWILL_PROVIDER=tcp")
{
    const uint32_t to = 1;
    struct twill_detector *detector = comm->context->health.detector;
    TWILL_CHECK(twill_barrier(comm) == TWILL_OK);
    struct twill_notice notice = {.comm = comm->number,
                                  .status = TWILL_ERR_PEER,
                                  .message = "rank 0 has left",
                                  .state = {0, TWILL_NOTICE_LEFT}};
    if (rank == 1)
        told = comm;
    TWILL_CHECK(twill_test_barrier(bootstrap));
    freezing = rank == 1 ? comm : NULL;
    if (rank == 0) {
        twill_detector_notify(detector, &notice, &to, 1, TWILL_TEST_PATIENCE);
        while (!*(volatile bool *)&told->health->notified && !twill_test_failed())
            usleep(100);
        notice = (struct twill_notice){
            .comm = comm->number, .status = TWILL_ERR_TIMEOUT, .message = "no message of rank 2"};
        twill_detector_notify(detector, &notice, &to, 1, TWILL_TEST_PATIENCE);
    }
    bool fine = rank != 1 || TWILL_ENDS(comm, twill_barrier(comm), TWILL_ERR_TIMEOUT, "rank 2");
    freezing = NULL;
    TWILL_CHECK(fine && twill_test_barrier(bootstrap));
    twill_comm_leave(comm);
}

/* Rank 1 has found a failure about a rank, and is told that rank 0 has left the communicator. */
static const struct left_finding {
    twill_status status;
    uint32_t about;
    const char *found, *expected;
} findings[] = {
    {TWILL_ERR_PEER, 2, "rank 2, as rank 0, has died or ended", "rank 2, as rank 0, has died"},
    {TWILL_ERR_PEER, 0, "tcp: it has died, ended or given up: reset", "rank 0 of the job has left"},
    {TWILL_ERR_FABRIC, TWILL_NO_RANK, "ofi: rank 0: a peer is gone", "a peer is gone"},
    {TWILL_ERR_MISMATCH, 0, "rank 0 calls barrier #2 instead", "calls barrier #2 instead"}};

TWILL_TEST_CASES(test_own_finding, ranks, findings, "3x1", TWILL_TEST_PATIENT, "TWILL_PROVIDER=tcp")
{
    const uint32_t to = 1;
    struct twill_context *context = comm->context;
    TWILL_CHECK(twill_barrier(comm) == TWILL_OK);
    TWILL_CHECK(twill_test_barrier(bootstrap)); /* else the notice ends another rank's barrier */
    struct twill_notice notice = {.comm = comm->number,
                                  .status = TWILL_ERR_PEER,
                                  .message = "rank 0 of the job has left the communicator",
                                  .state = {0, TWILL_NOTICE_LEFT}};
    if (rank == 0)
        twill_detector_notify(context->health.detector, &notice, &to, 1, TWILL_TEST_PATIENCE);
    while (rank == 1 && !comm->health->mailbox.failed && !twill_test_failed()) {
        pthread_mutex_lock(&context->health.detector_lock);
        twill_context_receive_notices(context);
        pthread_mutex_unlock(&context->health.detector_lock);
    }
    if (rank == 1) {
        twill_status status = TWILL_COMM_FAIL(comm, c->status, "%s", c->found);
        comm->error.rank = c->about;
        (void)twill_comm_fail(comm, status, TWILL_CAUSE_ASKED);
        TWILL_CHECK(TWILL_SAYS(twill_comm_message(comm), c->expected));
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank == 2) { /* on another node: a finding is sent to it, that a rank has left is not */
        bool sent = strstr(c->expected, "left") == NULL;
        while (sent && twill_comm_poll_failures(comm, true) == TWILL_OK && !twill_test_failed())
            usleep(100);
        TWILL_CHECK(!sent || TWILL_SAYS(twill_comm_message(comm), c->expected));
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_comm_leave(comm);
}

static bool stops;

/* With `stops` this process stops when it has to pass on a descriptor. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    while (stops && message->msg_controllen > 0)
        pause();
    return syscall(SYS_sendmsg, fd, message, flags);
}

static void *revoke_soon(void *comm)
{
    usleep(20000);
    (void)twill_comm_revoke(comm);
    return NULL;
}

/* Ranks 0 and 2 wait for the descriptor of rank 1, or rank 0 does and rank 2 for rank 0: the time
 * of those that have little is over, and all name rank 1, or a thread of rank 0 revokes the
 * communicator. A wait that was too long began before the timeout was over once, or is 0. */
static const struct slow_setup {
    const char *layout;
    int patient; /* the rank that fails when rank 2 does, or -1 */
    bool revoked;
} setups[] = {{"2+1", 0, false}, {"1x3", -1, false}, {"2+1", 0, true}};

TWILL_TEST_CASES(test_setup, processes, setups, c->layout, TWILL_TEST_PATIENT, "TWILL_PROVIDER=tcp")
{
    twill_comm *copy = NULL;
    pid_t pid[OF_SETUP], own = getpid();
    pthread_t thread;
    bool revokes = c->revoked && rank == 0, in_time = !c->revoked && rank != c->patient;
    if (rank == PASSING)
        twill_test_expect_death(rank);
    TWILL_CHECK(bootstrap->exchange(bootstrap->user, &own, pid, sizeof(own)) == 0);
    TWILL_CHECK(!in_time || twill_comm_set_timeout(comm, LONGER) == TWILL_OK);
    stops = rank == PASSING;
    uint64_t before = twill_now();
    TWILL_CHECK(!revokes || pthread_create(&thread, NULL, revoke_soon, comm) == 0);
    struct twill_room *room = comm->node->room;
    comm->node->room = NULL; /* so the duplicate's memory is shared anew */
    twill_status status = twill_comm_dup(&copy, comm);
    comm->node->room = room;
    TWILL_CHECK(TWILL_ENDS(comm, status, c->revoked ? TWILL_ERR_REVOKED : TWILL_ERR_TIMEOUT,
                           c->revoked ? "revoked" : "rank 1"));
    TWILL_CHECK(copy == NULL);
    TWILL_CHECK(comm->waits.timed_out_since < before + (uint64_t)(LONGER * 1e9));
    if (revokes)
        pthread_join(thread, NULL);
    if (rank == 0)
        kill(pid[PASSING], SIGKILL);
    twill_comm_leave(comm);
}
