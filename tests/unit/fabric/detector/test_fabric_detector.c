/* SPDX-License-Identifier: Apache-2.0 */
/* The failure detector: dead peers are detected, live ones are not declared dead, notifications
 * arrive complete, malformed and unauthenticated connections change nothing. Ranks are threads that
 * connect over TCP. */
#include "fabric/bootstrap/oob_batch.h"
#include "fabric/detector/detector_state.h"
#include "tests/support/detector_ranks.h"
#include "tests/support/unit.h"

#include <sys/resource.h>

/* The odd rank closes; all others detect it, and find each other alive, before and after. */
static void rank_notices(struct test_detector *w, int rank, int size, struct twill_test_job *job)
{
    struct twill_notice notice;
    TWILL_CHECK(!twill_detector_is_dead(w->detector, (uint32_t)rank));
    TWILL_CHECK(!twill_detector_is_dead(w->detector, (uint32_t)size));
    for (int turns = 0; turns < 50; turns++) {
        for (int peer = 0; peer < size; peer++)
            TWILL_CHECK(!twill_detector_is_dead(w->detector, (uint32_t)peer));
        TWILL_CHECK(!twill_detector_poll(w->detector, &notice));
        usleep(1000);
    }
    TWILL_CHECK(rank_barrier(w));
    if (rank == job->odd) {
        detector_dies(w);
    } else if (size > 1) {
        TWILL_CHECK(dies(w, (uint32_t)job->odd));
        for (int turns = 0; turns < 50; turns++) {
            for (int peer = 0; peer < size; peer++)
                TWILL_CHECK(twill_detector_is_dead(w->detector, (uint32_t)peer) ==
                            (peer == job->odd));
            (void)twill_detector_poll(w->detector, &notice);
        }
    }
    TWILL_CHECK(rank_barrier(w));
}

TWILL_TEST(notices)
{
    static const int sizes[] = {1, 2, 5, 16};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(sizes); i++)
        test_detector_run(twill_test_run_ranks, sizes[i], sizes[i] - 1, rank_notices);
}

/* A process that is killed. */
DETECTOR_TEST(notices_processes, twill_test_run_processes, 3, 2)
{
    struct twill_notice notice;
    if (rank == job->odd)
        twill_test_expect_death(rank);
    for (int peer = 0; peer < size; peer++)
        TWILL_CHECK(!twill_detector_is_dead(w->detector, (uint32_t)peer));
    TWILL_CHECK(twill_test_barrier(w->bootstrap));
    if (rank == job->odd)
        raise(SIGKILL);
    TWILL_CHECK(dies(w, (uint32_t)job->odd));
    TWILL_CHECK(!twill_detector_is_dead(w->detector, (uint32_t)(1 - rank)));
    notify(w, rank, 3); /* each stays until the other has looked */
    TWILL_CHECK(receives(w, &notice) && notice.from == (uint32_t)(1 - rank) && notice.comm == 3);
}

/* A process that is no rank gets the port of one that has closed, accepts and stays silent. */
DETECTOR_TEST(notices_though_port_is_taken, twill_test_run_ranks, 3, -1)
{
    int unauthenticated = -1;
    if (rank == 1) /* rank 0 connects before, rank 2 after that */
        TWILL_CHECK(!twill_detector_is_dead(w->detector, 0));
    if (rank == 0)
        TWILL_CHECK(!twill_detector_is_dead(w->detector, 1));
    TWILL_CHECK(rank_barrier(w));
    if (rank == 1) {
        uint16_t port = (uint16_t)w->detector->place[1].port;
        detector_dies(w);
        unauthenticated = twill_socket_listen_at("127.0.0.1", port, 16);
        TWILL_CHECK(unauthenticated >= 0);
    }
    TWILL_CHECK(rank_barrier(w));
    if (rank != 1) {
        TWILL_CHECK(dies(w, 1));
        TWILL_CHECK(!twill_detector_is_dead(w->detector, rank == 0 ? 2 : 0));
    }
    TWILL_CHECK(rank_barrier(w));
    if (unauthenticated >= 0)
        close(unauthenticated);
}

/* --- notifications --------------------------------------------------------------------------- */

static void rank_notifies(struct test_detector *w, int rank, int size, struct twill_test_job *job)
{
    int received[16] = {0};
    if (rank % 2) /* with and without an open connection */
        for (int peer = 0; peer < size; peer++)
            TWILL_CHECK(!twill_detector_is_dead(w->detector, (uint32_t)peer));
    for (uint32_t comm = 0; comm < 3; comm++)
        notify(w, rank, comm);
    for (int n = 0; n < 3 * (size - 1); n++) {
        struct twill_notice notice;
        char expected[64];
        TWILL_CHECK(receives(w, &notice));
        TWILL_CHECK(notice.from < (uint32_t)size && notice.from != (uint32_t)rank);
        TWILL_CHECK(notice.comm < 3 && notice.status == TWILL_ERR_MISMATCH);
        snprintf(expected, sizeof(expected), "rank %u reports %u", notice.from, notice.comm);
        TWILL_CHECK(strcmp(notice.message, expected) == 0);
        received[notice.from] |= 1 << notice.comm;
    }
    for (int peer = 0; peer < size; peer++)
        TWILL_CHECK(received[peer] == (peer == rank ? 0 : 7));
    TWILL_CHECK(rank_barrier(w));
}

TWILL_TEST(notifies)
{
    static const int sizes[] = {1, 2, 5, 16};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(sizes); i++)
        test_detector_run(twill_test_run_ranks, sizes[i], -1, rank_notifies);
}

/* One is dead already: the others are notified all the same. */
DETECTOR_TEST(notifies_survivors, twill_test_run_ranks, 4, -1)
{
    struct twill_notice notice;
    if (rank == 1)
        detector_dies(w);
    TWILL_CHECK(rank_barrier(w));
    if (rank == 0)
        notify(w, 0, 9);
    else if (rank > 1)
        TWILL_CHECK(receives(w, &notice) && notice.from == 0 && notice.comm == 9);
    TWILL_CHECK(rank_barrier(w));
    TWILL_CHECK(rank == 1 || dies(w, 1));
}

/* No process has a descriptor left: each notifies the others all the same, and is notified. */
DETECTOR_TEST(notifies_without_descriptors, twill_test_run_processes, 3, -1)
{
    struct twill_notice notice;
    struct rlimit few, before;
    few.rlim_max = getrlimit(RLIMIT_NOFILE, &before) == 0 ? before.rlim_max : 0;
    few.rlim_cur = 256;
    TWILL_CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    while (dup(w->detector->listener) >= 0) /* the process ends soon */
        ;
    TWILL_CHECK(errno == EMFILE);
    TWILL_CHECK(twill_test_barrier(w->bootstrap));
    for (int from = 0; from < size; from++) {
        if (rank == from)
            notify(w, rank, (uint32_t)from);
        else
            TWILL_CHECK(receives(w, &notice) && notice.from == (uint32_t)from &&
                        notice.comm == (uint32_t)from);
        TWILL_CHECK(twill_test_barrier(w->bootstrap));
    }
    TWILL_CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

/* --- unauthenticated connections ------------------------------------------------------------- */

#define WRONG_KINDS  11
#define NOTICE_BYTES 360 /* bytes of the body of a notification */

/* A handshake with the right key, then a notification: each time with one thing wrong. */
static void send_wrong(int fd, const struct twill_oob *oob, int which)
{
    struct twill_hello_identity identity = {.role = TWILL_HELLO_DETECTOR,
                                            .rank = (uint32_t)oob->rank,
                                            .size = (uint32_t)oob->size,
                                            .argument = (uint64_t)which + 1000};
    struct twill_secret secret = oob->secret;
    struct twill_session session;
    struct twill_hello hello;
    struct {
        struct twill_wire_header header;
        char body[NOTICE_BYTES];
    } notice;
    size_t bytes = sizeof(notice);
    memset(&notice, 0, sizeof(notice));
    snprintf(notice.body, sizeof(notice.body), "xxxxxxxxwrong");
    secret.key[3] ^= which == 0; /* another key */
    identity.rank = which == 1 ? identity.size : identity.rank;
    identity.to = which == 2 ? 2 : 0;
    identity.role = which == 3 ? TWILL_HELLO_DATA : identity.role;
    identity.argument = which == 7 ? 1 : identity.argument; /* the first call again */
    if (!twill_hello_call(&hello, &secret, &identity) || which >= WRONG_KINDS)
        return;     /* silence */
    if (which == 6) /* noise */
        memset(&hello.said.call, 0x5a, sizeof(hello.said.call));
    if (twill_hello_move(&hello, fd, &session) != TWILL_WIRE_DONE)
        return;
    session.sent += which == 8; /* not the first frame */
    twill_wire_seal(&session, &notice.header, which == 9 ? TWILL_WIRE_FAIL : TWILL_WIRE_NOTICE, 0,
                    notice.body, sizeof(notice.body), NULL);
    if (which == 4)
        notice.header.length = UINT64_MAX - 10; /* which invalidates the proof */
    if (which == 5)
        bytes = 100; /* incomplete */
    if (which == 10)
        notice.body[20] ^= 1; /* changed in transit */
    (void)!send(fd, &notice, bytes, MSG_NOSIGNAL);
}

#define WATCH_WRONG                                                                                \
    30 /* WRONG_KINDS of them differ, the rest is silent; above TWILL_DETECTOR_HANDSHAKES */

DETECTOR_TEST(intruders, twill_test_run_processes, 3, -1)
{
    struct twill_notice notice;
    int fds[WATCH_WRONG];
    if (rank == 1)
        notify(w, 1, 4);
    if (rank == 0)
        TWILL_CHECK(receives(w, &notice) && notice.from == 1 && notice.comm == 4);
    TWILL_CHECK(rank_barrier(w));
    if (rank == 1) {
        for (int i = 0; i < WATCH_WRONG; i++) {
            fds[i] = twill_test_dial_port(job, (int)w->detector->place[0].port);
            TWILL_CHECK(fds[i] >= 0);
            send_wrong(fds[i], w->oob, i);
        }
    }
    TWILL_CHECK(rank_barrier(w));
    if (rank == 0) /* the valid one is received, once a place is free again */
        TWILL_CHECK(receives(w, &notice) && notice.from == 2 && notice.comm == 5 &&
                    strcmp(notice.message, "rank 2 reports 5") == 0);
    if (rank == 2)
        notify(w, 2, 5);
    TWILL_CHECK(rank_barrier(w));
    TWILL_CHECK(rank == 2 || !twill_detector_is_dead(w->detector, 2));
    if (rank == 0) {
        const unsigned *count = twill_detector_rejected(w->detector)->count;
        TWILL_CHECK(!twill_detector_poll(w->detector, &notice));
        TWILL_CHECK(count[TWILL_FAULT_KEY] == 3 && count[TWILL_FAULT_REFUSED] == 2 &&
                        count[TWILL_FAULT_MALFORMED] == 3 && count[TWILL_FAULT_REPLAYED] == 2,
                    "%u of another key, %u refused, %u malformed, %u replayed",
                    count[TWILL_FAULT_KEY], count[TWILL_FAULT_REFUSED],
                    count[TWILL_FAULT_MALFORMED], count[TWILL_FAULT_REPLAYED]);
    }
    for (int i = 0; rank == 1 && i < WATCH_WRONG; i++)
        close(fds[i]);
    TWILL_CHECK(rank_barrier(w));
}

/* Rank 1 starts to connect to rank 0 and is elsewhere for a while. Rank 0 has no free place, and
 * closes what says nothing. Rank 1 connects again, and holds nothing against rank 0. If the odd one
 * is rank 0, it also sends a byte, as a process would that has got the port of a dead rank: then
 * rank 1 suspects it. */
static void rank_is_away(struct test_detector *w, int rank, int size, struct twill_test_job *job)
{
    struct twill_notice notice;
    struct twill_detector_link *link = &w->detector->link[0];
    if (rank == 1) {
        link->fd = twill_test_dial_port(job, (int)w->detector->place[0].port);
        link->state = LINK_CONNECTING; /* as begin_link() leaves it, some time ago */
        link->point = twill_now() + UINT64_C(1000000000);
    }
    TWILL_CHECK(rank_barrier(w));
    if (rank == 0) {
        int fd = accept(w->detector->listener, NULL, NULL);
        TWILL_CHECK(fd >= 0 && (job->odd != 0 || send(fd, "x", 1, 0) == 1) && close(fd) == 0);
    }
    TWILL_CHECK(rank_barrier(w));
    if (rank == 1) {
        const uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
        for (int i = 0; (i < 5 || link->state != LINK_OPEN) && !twill_test_failed(); i++)
            TWILL_CHECK(!twill_detector_is_dead(w->detector, 0) && twill_now() < limit);
        TWILL_CHECK(link->suspected == (job->odd == 0));
        notify(w, 1, 6);
    }
    if (rank == 0)
        TWILL_CHECK(receives(w, &notice) && notice.from == 1 && notice.comm == 6);
    TWILL_CHECK(rank_barrier(w));
}

TWILL_TEST(closed_while_away)
{
    for (int odd = -1; odd <= 0; odd++)
        test_detector_run(twill_test_run_processes, 2, odd, rank_is_away);
}
