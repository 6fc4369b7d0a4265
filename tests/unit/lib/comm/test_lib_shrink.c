/* SPDX-License-Identifier: Apache-2.0 */
/* twill_comm_shrink() ends within its bounds when a rank lives but does not come further: one that
 * stops while the survivors share memory, one that sends messages of no agreement, and one that
 * cannot do its part, however often they try. A rank that agrees does not give up one that comes
 * later because it has waited for a silent rank itself. */
#include "fabric/detector/detector.h"
#include "fabric/shm/node_memory.h"
#include "lib/comm/comm.h"
#include "lib/job/context.h"
#include "lib/twill_recover.h"
#include "tests/support/unit.h"

#include <sys/socket.h>
#include <sys/syscall.h>

enum { STUCK_RANKS = 3, STUCK = 2 /* the rank that does not come further */ };
#define SHORT 2.0 /* seconds: the communicator's timeout; that of the job is TWILL_TEST_PATIENT */

struct stuck_case {
    const char *nodes;
    bool talks;          /* it sends messages; else it stops while memory is shared */
    atomic_int *gone_on; /* ranks that have gone on without it; in shared memory */
};

static bool stops, refuses;
static int refused; /* times */

/* With `stops` this process stops when it has to pass on a descriptor, with `refuses` it cannot. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    while (stops && message->msg_controllen > 0)
        pause();
    if (refuses && message->msg_controllen > 0) {
        refused++;
        errno = EPERM;
        return -1;
    }
    return syscall(SYS_sendmsg, fd, message, flags);
}

/* Send messages that count as signs of life and are of no agreement, until the others are done. */
static void talk(twill_comm *comm, const struct stuck_case *test)
{
    static const char nothing[8] = "nothing";
    struct twill_context *context = comm->context;
    struct twill_notice notice = {
        .comm = comm->number, .status = TWILL_OK, .data = nothing, .bytes = sizeof(nothing)};
    while (atomic_load(test->gone_on) < STUCK_RANKS - 1 && !twill_test_failed()) {
        pthread_mutex_lock(&context->health.detector_lock);
        for (uint32_t r = 0; r < STUCK; r++)
            twill_detector_send(context->health.detector, comm->job[r], &notice);
        pthread_mutex_unlock(&context->health.detector_lock);
        usleep(20000);
    }
}

static void stuck_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct stuck_case *test = user;
    twill_context *context;
    twill_comm *comm, *smaller = NULL;
    pid_t pid[STUCK_RANKS], own = getpid();
    float one = 1, sum = 0;
    if (rank == STUCK && !test->talks)
        twill_test_expect_death(rank);
    TWILL_CHECK(twill_test_join(&context, &comm, bootstrap, test->nodes, TWILL_TEST_PATIENT,
                                "TWILL_PROVIDER=tcp"));
    TWILL_CHECK(bootstrap->exchange(bootstrap->user, &own, pid, sizeof(own)) == 0);
    TWILL_CHECK(twill_comm_set_timeout(comm, SHORT) == TWILL_OK);
    stops = rank == STUCK && !test->talks;
    struct twill_room *room = comm->node->room;
    comm->node->room = NULL; /* so memory is shared anew */
    if (rank == STUCK && test->talks) {
        talk(comm, test);
        TWILL_CHECK(twill_comm_shrink(&smaller, comm) == TWILL_ERR_EXCLUDED && smaller == NULL);
        TWILL_CHECK(twill_comm_shrink(&smaller, comm) == TWILL_ERR_EXCLUDED); /* for good */
    } else {
        TWILL_CHECK(twill_comm_shrink(&smaller, comm) == TWILL_OK, "%s", twill_comm_message(comm));
        TWILL_CHECK(twill_comm_size(smaller) == STUCK_RANKS - 1);
        TWILL_CHECK(twill_comm_failed_rank(comm, 0) == STUCK);
        TWILL_CHECK(twill_allreduce(smaller, &one, &sum, 1, TWILL_F32, TWILL_SUM) == TWILL_OK);
        TWILL_CHECK(sum == STUCK_RANKS - 1);
        if (!test->talks && rank == 0)
            kill(pid[STUCK], SIGKILL);
    }
    comm->node->room = room;
    atomic_fetch_add(test->gone_on, 1);
    if (test->talks)
        TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_comm_leave(comm);
    twill_comm_leave(smaller);
    twill_context_destroy(context);
}

/* Rank 2 fails each attempt to meet: all give up together, and can do it once nothing is wrong. */
TWILL_TEST_ON(test_attempts_end, processes, TWILL_LAYOUTS("1x3"), TWILL_TEST_PATIENT,
              "TWILL_PROVIDER=tcp")
{
    twill_comm *smaller = NULL;
    float one = 1, sum = 0;
    TWILL_CHECK(twill_comm_set_timeout(comm, SHORT) == TWILL_OK);
    refuses = rank == STUCK;
    struct twill_room *room = comm->node->room;
    comm->node->room = NULL;
    TWILL_CHECK(twill_comm_shrink(&smaller, comm) < 0 && smaller == NULL);
    TWILL_CHECK(twill_comm_failed_rank(comm, 0) == -1); /* none has died */
    TWILL_CHECK(rank != STUCK || (refused > 1 && refused < 20));
    refuses = false;
    comm->node->room = room;
    TWILL_CHECK(twill_test_barrier(bootstrap));
    TWILL_CHECK(twill_test_fine(comm, twill_comm_shrink(&smaller, comm)));
    TWILL_CHECK(twill_allreduce(smaller, &one, &sum, 1, TWILL_F32, TWILL_SUM) == TWILL_OK);
    TWILL_CHECK(sum == (float)size);
    TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_comm_leave(comm);
    twill_comm_leave(smaller);
}

#define LATE_TIMEOUT 0.5 /* seconds */

/* Rank 0 may wait for rank 2, which makes no call, for as long as bounds.silent says, and comes to
 * the agreement then. Rank 1, which had all it needed in that call, waits for it there. */
TWILL_TEST_ON(test_waits_for_late, processes, TWILL_LAYOUTS("3x1"), TWILL_TEST_PATIENT,
              "TWILL_PROVIDER=tcp")
{
    twill_bounds bounds;
    uint64_t flags = 6u | (uint64_t)rank;
    TWILL_CHECK(twill_comm_set_timeout(comm, LATE_TIMEOUT) == TWILL_OK);
    TWILL_CHECK(twill_comm_bounds(comm, &bounds) == TWILL_OK && bounds.silent > LATE_TIMEOUT);
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank == 0) /* longer than the timeout by a quarter of what else it takes until it fails */
        usleep((useconds_t)((3 * LATE_TIMEOUT + bounds.silent) / 4 * 1e6));
    if (rank != STUCK) {
        TWILL_CHECK(twill_test_fine(comm, twill_comm_agree(comm, &flags)));
        TWILL_CHECK(flags == 6);
        TWILL_CHECK(twill_comm_failed_rank(comm, 0) == STUCK);
        TWILL_CHECK(twill_comm_failed_rank(comm, 1) == -1);
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_comm_leave(comm);
}

static void run_stuck(const char *nodes, bool talks)
{
    struct stuck_case test = {nodes, talks, twill_test_shared(sizeof(atomic_int))};
    twill_test_run_processes(STUCK_RANKS, stuck_rank, &test);
}

TWILL_TEST(test_stops_sharing)
{
    run_stuck("3", false);
}

TWILL_TEST(test_talks)
{
    run_stuck("3", true);
    run_stuck("2+1", true);
}
