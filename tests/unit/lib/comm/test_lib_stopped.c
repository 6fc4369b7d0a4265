/* SPDX-License-Identifier: Apache-2.0 */
/* A machine that is stopped for longer than a short deadline: its peers are not taken for the cause
 * of what they could not do meanwhile. A test can make the clock of this program jump. */
#include "lib/comm/comm_internal.h"
#include "tests/support/job_ranks.h"
#include "tests/support/leap.h"
#include "tests/support/tcp_ends.h"
#include "tests/support/unit.h"

#include <poll.h>
#include <sys/syscall.h>

/* --- a rank that returns --------------------------------------------------------------------- */

enum { STOPPED_RANKS = 3 };

static atomic_bool asleep, reconnected;
static _Thread_local bool stops;

/* Rank 0's poll() returns after its deadline, by the clock, with a rank that has connected again
 * meanwhile: that rank must still be accepted. */
int poll(struct pollfd *fds, nfds_t count, int ms)
{
    if (stops && count == STOPPED_RANKS + 1 && ms > 0 && ms < 6000) {
        stops = false;
        atomic_store(&asleep, true);
        while (!atomic_load(&reconnected) && !twill_test_failed())
            usleep(1000);
        fast += 6;
        ms = 0;
    }
    struct timespec limit = {ms / 1000, ms % 1000 * 1000000L};
    return (int)syscall(SYS_ppoll, fds, count, ms < 0 ? NULL : &limit, NULL, 0);
}

static bool greet_socket(int fd)
{
    const struct twill_hello_identity identity = {
        .role = TWILL_HELLO_JOIN, .rank = 1, .size = STOPPED_RANKS, .argument = 240000};
    struct twill_session session;
    TWILL_REQUIRE(fd >= 0 && twill_test_hello(fd, &identity, &session));
    return true;
}

static bool becomes(const atomic_bool *event)
{
    while (!atomic_load(event) && !twill_test_failed())
        usleep(1000);
    return !twill_test_failed();
}

static void returning_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct twill_test_job *job = user;
    struct twill_oob *oob = NULL;
    struct twill_error error = {0};
    if (rank == 1) {
        int fd = twill_test_dial(job);
        TWILL_CHECK(greet_socket(fd));
        close(fd);
        TWILL_CHECK(becomes(&asleep));
        fd = twill_test_dial(job);
        atomic_store(&reconnected, true);
        (void)greet_socket(fd);
        (void)twill_test_barrier(bootstrap);
        close(fd);
    } else if (rank == 0 || becomes(&reconnected)) {
        stops = rank == 0;
        TWILL_CHECK_OK(&error, twill_test_job_open(job, rank, &oob, &error));
        twill_oob_close(oob);
        (void)twill_test_barrier(bootstrap);
    }
}

TWILL_TEST(a_rank_reconnects)
{
    struct twill_test_job job;
    twill_test_job_init(&job, "127.0.0.1", STOPPED_RANKS);
    twill_test_run_ranks(STOPPED_RANKS, returning_rank, &job);
    assert_true(atomic_load(&asleep));
}

/* --- data on its way ------------------------------------------------------------------------- */

/* Both ends run in one thread, in turns: the other end advances only when the closing one waits. */
static struct twill_test_end *other;

int nanosleep(const struct timespec *time, struct timespec *left)
{
    if (leap > 0 && other != NULL)
        (void)end_progress(other);
    return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
}

enum { STOPPED_BYTES = 32 << 20 }; /* more than sockets hold */

static void close_and_receive(struct twill_test_end *end, void *user)
{
    struct twill_transfer *in = user;
    unsigned char *data = calloc(STOPPED_BYTES, 1);
    TWILL_CHECK(data != NULL);
    if (end->rank == 1) {
        *in = end_transfer(TWILL_TRANSFER_RECV, 0, 0, data, STOPPED_BYTES);
        TWILL_CHECK(end_post(end, in));
        other = end;
    }
    TWILL_CHECK(end_barrier(end));
    if (end->rank == 0) {
        struct twill_transfer out = end_transfer(TWILL_TRANSFER_SEND, 1, 0, data, STOPPED_BYTES);
        data[STOPPED_BYTES - 1] = 77;
        TWILL_CHECK(end_post(end, &out));
        while (tcp_channel(end, 0)->state != TWILL_TCP_OPEN)
            TWILL_CHECK(end_progress(other) >= 0 && end_progress(end) >= 0);
        leap = 2;
        end_close_more(end);
        leap = 0;
        TWILL_CHECK(end_await(other, in, 1));
        TWILL_NOTE(in->status == TWILL_OK, "%d", in->status);
    }
    TWILL_CHECK(end_barrier(end));
    TWILL_CHECK(end->rank == 0 || data[STOPPED_BYTES - 1] == 77);
    free(data);
}

TWILL_TEST(what_has_been_sent)
{
    struct twill_transfer in = {0};
    end_test_run(
        (struct end_test){.ranks = 2, .open = tcp_open, .body = close_and_receive, .user = &in});
    other = NULL;
}

/* --- another rank's notice ------------------------------------------------------------------- */

/* Rank 1 fails, and its end of the transport closes before rank 0 has received the notice. */
TWILL_TEST_ON(message_of_another_rank, ranks, TWILL_LAYOUTS("1+1"), "TWILL_PROVIDER=tcp",
              TWILL_TEST_PATIENT)
{
    struct twill_notice notice = {.from = 1, .status = TWILL_ERR_MEMORY};
    float data[8] = {0}, sum[8];
    TWILL_CHECK(twill_allreduce(comm, data, sum, 8, TWILL_F32, TWILL_SUM) == TWILL_OK);
    TWILL_CHECK(!twill_comm_is_dead(comm, (uint32_t)(1 - rank))); /* connects the detectors */
    notice.comm = comm->number;
    snprintf(notice.message, sizeof(notice.message), "rank 1: the cause");
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank == 1) {
        comm->links.transport[comm->links.route[0]]->ops->cancel(
            comm->links.transport[comm->links.route[0]]);
        twill_comm_notify(comm, &notice, TWILL_TEST_PATIENCE);
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank == 0) {
        leap = 1;
        twill_status status = twill_allreduce(comm, data, sum, 8, TWILL_F32, TWILL_SUM);
        leap = 0;
        TWILL_CHECK(TWILL_ENDS(comm, status, TWILL_ERR_MEMORY, "the cause"));
    }
}
