/* SPDX-License-Identifier: Apache-2.0 */
/* The failure detector with peers that are slow, stop in the middle, or whose connection is cut.
 * Ranks are processes that connect over TCP. */
#include "fabric/detector/detector_state.h"
#include "tests/support/detector_ranks.h"
#include "tests/support/noise.h"
#include "tests/support/unit.h"

/* --- slow, incomplete and cut connections ---------------------------------------------------- */

/* Connect to rank 0's detector and send this rank's handshake with that number. */
static bool call(int fd, const struct twill_oob *oob, uint64_t number,
                 struct twill_session *session)
{
    const struct twill_hello_identity identity = {.role = TWILL_HELLO_DETECTOR,
                                                  .rank = (uint32_t)oob->rank,
                                                  .size = (uint32_t)oob->size,
                                                  .argument = number};
    struct twill_hello hello;
    return twill_hello_call(&hello, &oob->secret, &identity) &&
           twill_hello_move(&hello, fd, session) == TWILL_WIRE_DONE;
}

/* Send `bytes` of a notification. */
static bool begin_frame(int fd, struct twill_session *session, uint32_t comm, size_t bytes)
{
    struct twill_notice_frame frame;
    memset(&frame, 0, sizeof(frame));
    frame.body.comm = comm;
    frame.body.status = TWILL_ERR_MISMATCH;
    twill_wire_seal(session, &frame.header, TWILL_WIRE_NOTICE, 0, &frame.body, sizeof(frame.body),
                    NULL);
    return send(fd, &frame, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

#define HALVES 40 /* above TWILL_DETECTOR_HANDSHAKES */

/* Rank 1 connects, leaves the library for long and then continues; and stops in the middle of many
 * notifications. None of that blocks the notifications of others. */
static void rank_among_halves(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job there = *(const struct twill_test_job *)user;
    struct twill_session session;
    struct test_detector w;
    struct twill_notice notice;
    int32_t ports[3], mine = 0;
    int slow = -1;
    if (!test_detector_open(&w, user, rank))
        return;
    mine = rank == 0 ? newest_listener() : 0;
    TWILL_CHECK_OK(&w.error, twill_oob_allgather(w.oob, &mine, ports, sizeof(mine), &w.error));
    snprintf(there.port, sizeof(there.port), "%d", ports[0]);
    if (rank == 1)
        TWILL_CHECK((slow = twill_test_dial(&there)) >= 0);
    for (uint64_t i = 0; rank == 1 && i < HALVES; i++) {
        int fd = twill_test_dial(&there);
        TWILL_CHECK(fd >= 0 && call(fd, w.oob, i + 1, &session) &&
                    begin_frame(fd, &session, 1, 100));
        close(fd);
    }
    TWILL_CHECK(rank_barrier(&w));
    for (uint64_t until = twill_now() + 3 * TWILL_TEST_SECOND; rank == 0 && twill_now() < until;
         usleep(10000))
        TWILL_CHECK(!twill_detector_poll(w.detector, &notice));
    TWILL_CHECK(rank_barrier(&w));
    if (rank == 1)
        TWILL_CHECK(call(slow, w.oob, HALVES + 1, &session) &&
                    begin_frame(slow, &session, 2, sizeof(struct twill_notice_frame)));
    if (rank == 0)
        TWILL_CHECK(receives(&w, &notice) && notice.from == 1 && notice.comm == 2);
    TWILL_CHECK(rank_barrier(&w));
    if (rank == 2)
        notify(&w, 2, 5);
    if (rank == 0)
        TWILL_CHECK(receives(&w, &notice) && notice.from == 2 && notice.comm == 5);
    TWILL_CHECK(rank_barrier(&w));
    if (rank == 1)
        close(slow);
    test_detector_close(&w);
}

TWILL_TEST(halves)
{
    test_detector_run(twill_test_run_processes, 3, -1, rank_among_halves);
}

/* Reset the connections that were accepted at this port, as a device on the way may. How many. */
static int cut_off(int port)
{
    struct twill_endpoint endpoint;
    int cut = 0;
    for (int fd = 0; fd < 256; fd++) {
        int on = 1;
        socklen_t length = sizeof(on);
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &length) == 0 && !on &&
            twill_socket_name(fd, false, &endpoint) && endpoint.port == port)
            cut += shutdown(fd, SHUT_RDWR) == 0;
    }
    return cut;
}

/* Report whether the peer stays alive, with a connection that lasts longer than a failed one. */
static bool lasts(struct test_detector *w, uint32_t peer)
{
    const struct twill_detector_link *link = &w->detector->link[peer];
    uint64_t deadline = twill_now() + TWILL_TEST_PATIENCE;
    do {
        if (twill_detector_is_dead(w->detector, peer) || twill_now() > deadline)
            return false;
        usleep(1000);
    } while (link->state != LINK_OPEN || twill_now() < link->point + 3 * TWILL_TEST_SECOND);
    return true;
}

/* Rank 0's connection is cut again and again. It counts as alive until it ends. */
static void rank_cut_off(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct test_detector w;
    struct twill_notice notice;
    if (!test_detector_open(&w, user, rank))
        return;
    int port = rank == 0 ? newest_listener() : 0;
    for (int turn = 0; turn < 3; turn++) {
        TWILL_CHECK(rank == 0 || lasts(&w, 0));
        TWILL_CHECK(rank_barrier(&w));
        uint64_t deadline = twill_now() + TWILL_TEST_PATIENCE;
        while (rank == 0 && turn < 2 && cut_off(port) == 0 && twill_now() < deadline)
            TWILL_CHECK(!twill_detector_poll(w.detector, &notice));
        TWILL_CHECK(twill_now() < deadline && rank_barrier(&w));
        TWILL_CHECK(rank != 0 || !twill_detector_poll(w.detector, &notice)); /* drops the cut one */
    }
    if (rank == 0) {
        twill_detector_close(w.detector);
        w.detector = NULL;
    }
    TWILL_CHECK(rank == 0 || dies(&w, 0));
    test_detector_end(&w);
}

TWILL_TEST(cut_off_twice)
{
    test_detector_run(twill_test_run_processes, 2, -1, rank_cut_off);
}

/* --- connections that are closed again at once ----------------------------------------------- */

#define CLOSED_TURNS 5

/* Leave the link to rank 0 as begin_link() does, some time ago, and let it be closed by what
 * listens on `listener` of rank 0. *dead: rank 1 then finds rank 0 dead. */
static void close_again(struct test_detector *w, const struct twill_test_job *there, int rank,
                        int listener, bool *dead)
{
    struct pollfd ends = {.fd = -1, .events = POLLRDHUP};
    if (rank == 1 && w->detector->link[0].state == LINK_IDLE) {
        struct twill_detector_link *link = &w->detector->link[0];
        ends.fd = link->fd = twill_test_dial(there);
        link->state = LINK_CONNECTING;
        link->point = twill_now() + UINT64_C(1000000000);
    }
    TWILL_CHECK(rank_barrier(w));
    for (int fd; rank == 0 && (fd = twill_socket_accept(listener)) >= 0;)
        close(fd);
    TWILL_CHECK(rank_barrier(w));
    TWILL_CHECK(ends.fd < 0 || poll(&ends, 1, (int)(TWILL_TEST_PATIENCE / 1000000)) == 1);
    *dead = rank == 1 && twill_detector_is_dead(w->detector, 0);
}

/* Rank 1 is always elsewhere while its connection to rank 0 is closed: by rank 0, as where many
 * others wait, which proves nothing; then by a process that has got one of its ports. */
static void rank_closes_again(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job there = *(const struct twill_test_job *)user;
    struct sockaddr_storage address;
    struct test_detector w;
    socklen_t length;
    bool dead = false;
    int taken = -1;
    if (!test_detector_open(&w, user, rank))
        return;
    uint16_t port = (uint16_t)w.detector->place[0].port;
    snprintf(there.port, sizeof(there.port), "%u", (unsigned)port);
    for (int turn = 0; turn < CLOSED_TURNS; turn++)
        close_again(&w, &there, rank, w.detector->listener, &dead);
    TWILL_CHECK(!dead && !w.detector->link[0].suspected);
    TWILL_CHECK(rank_barrier(&w));
    if (rank == 0) {
        twill_detector_close(w.detector);
        w.detector = NULL;
        TWILL_CHECK(twill_endpoint_address("127.0.0.1", port, &address, &length));
        taken = twill_socket_listen((struct sockaddr *)&address, length, 16);
        TWILL_CHECK(taken >= 0);
    }
    TWILL_CHECK(rank_barrier(&w));
    for (int turn = 0; turn < CLOSED_TURNS; turn++)
        close_again(&w, &there, rank, taken, &dead);
    TWILL_CHECK(dead == (rank == 1));
    TWILL_CHECK(rank_barrier(&w));
    if (taken >= 0)
        close(taken);
    test_detector_close(&w);
}

TWILL_TEST(closes_again)
{
    test_detector_run(twill_test_run_processes, 2, -1, rank_closes_again);
}

/* --- a rank that calls many others ----------------------------------------------------------- */

#define WATCH_CUT_OTHERS 100 /* calls to others: above the window of struct twill_taken */

/* Rank 0 calls rank 1, then another many times, then rank 1 again, which only now polls. */
static void rank_calls_others(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct test_detector w;
    struct twill_notice notice = {.comm = 1, .status = TWILL_ERR_MISMATCH};
    uint32_t received = 0, one = 1, two = 2;
    if (!test_detector_open(&w, user, rank))
        return;
    if (rank == 0) {
        twill_detector_notify(w.detector, &notice, &one, 1, TWILL_TEST_PATIENCE);
        for (int i = 0; i < WATCH_CUT_OTHERS; i++)
            twill_detector_notify(w.detector, &notice, &two, 1, TWILL_TEST_PATIENCE);
        notice.comm = 2;
        twill_detector_notify(w.detector, &notice, &one, 1, TWILL_TEST_PATIENCE);
    }
    TWILL_CHECK(rank_barrier(&w));
    for (int i = 0; rank == 1 && i < 2; i++) {
        TWILL_CHECK(receives(&w, &notice));
        received |= notice.comm;
    }
    TWILL_CHECK(rank != 1 || received == 3);
    test_detector_end(&w);
}

TWILL_TEST(calls_others)
{
    test_detector_run(twill_test_run_processes, 3, -1, rank_calls_others);
}

/* --- a host that vanishes -------------------------------------------------------------------- */

/* Drop all that arrives at this port, so that nothing is acknowledged. How many sockets. */
static int port_vanish(int port)
{
    struct twill_endpoint endpoint;
    int deaf = 0;
    for (int fd = 0; fd < 256; fd++)
        if (twill_socket_name(fd, false, &endpoint) && endpoint.port == port)
            deaf += twill_test_deafen(fd);
    return deaf;
}

/* Rank 1 sends all the time, as a rank that waits does: then there is no keep-alive. */
static void rank_vanishes(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct test_detector w;
    struct twill_notice notice = {.from = 1, .status = TWILL_OK};
    if (!test_detector_open(&w, user, rank))
        return;
    int port = rank == 0 ? newest_listener() : 0;
    uint64_t deadline = twill_now() + TWILL_TEST_PATIENCE;
    TWILL_CHECK(rank == 0 || lasts(&w, 0)); /* it is steady */
    if (rank == 1)
        twill_detector_send(w.detector, 0, &notice);
    if (rank == 0)
        TWILL_CHECK(receives(&w, &notice));
    TWILL_CHECK(rank == 1 || port_vanish(port) >= 2); /* listener and connection */
    TWILL_CHECK(rank_barrier(&w));
    while (rank == 1 && !twill_detector_is_dead(w.detector, 0) && twill_now() < deadline) {
        twill_detector_send(w.detector, 0, &notice);
        usleep(100000);
    }
    TWILL_CHECK(twill_now() < deadline);
    test_detector_end(&w);
}

TWILL_TEST(vanishes)
{
    test_detector_run(twill_test_run_processes, 2, -1, rank_vanishes);
}
