/* SPDX-License-Identifier: Apache-2.0 */
/* The failure detector between hosts: a vanished host is detected by ranks without a connection to
 * it, by one rank of a host alone, and if not all hosts are connected; a live host is not declared
 * lost. Ranks are processes that connect over TCP. */
#include "fabric/bootstrap/oob_batch.h"
#include "fabric/detector/detector_state.h"
#include "fabric/shm/fd_message.h"
#include "tests/support/detector_ranks.h"
#include "tests/support/noise.h"
#include "tests/support/unit.h"

#define FILES 256

/* The host of each rank, and how many connections it may have. */
struct hosts_place {
    struct twill_test_job job;
    uint32_t host[16];
    size_t most;
    int ends;                                           /* a rank that ends before the others */
    enum { CONNECTS, CANNOT_CALL, IS_LED_ASTRAY } zero; /* rank 0, when it calls host 1 */
};

struct connected {
    struct test_detector w;
    bool before[FILES]; /* descriptors of other things */
};

/* Rank 0 has no address of rank 1, or that of another listener. A rank that waits longer than the
 * timeout of the others' bootstrap fails them. */
static void mislead(struct test_detector *w, const struct hosts_place *place, int rank)
{
    if (place->zero == CONNECTS)
        return;
    bool patient = place->zero == CANNOT_CALL && rank == 1;
    w->oob->timeout_ns = patient ? TWILL_TEST_PATIENCE : TWILL_TEST_SOON;
    if (rank == 0 && place->zero == CANNOT_CALL)
        memcpy(w->detector->place[1].address, "nowhere", sizeof("nowhere"));
    else if (rank == 0)
        w->detector->place[1].port = (uint64_t)newest_listener();
}

static bool connect_all(struct connected *c, const struct hosts_place *place, int rank)
{
    for (int fd = 0; fd < FILES; fd++)
        c->before[fd] = false;
    struct test_detector *w = &c->w;
    memset(w, 0, sizeof(*w));
    twill_status status = twill_test_job_open(&place->job, rank, &w->oob, &w->error);
    for (int fd = 0; fd < FILES; fd++)
        c->before[fd] = is_tcp(fd);
    if (status == TWILL_OK)
        status = test_detector_start(&w->detector, w->oob, place->most, &w->error);
    if (status == TWILL_OK)
        mislead(w, place, rank);
    struct twill_oob_batch batch = {.oob = w->oob};
    if (status == TWILL_OK) {
        status = twill_detector_connect(w->detector, w->oob, place->host, 1, &batch, &w->error);
        status = twill_oob_batch_exchange(&batch, status, &w->error);
    }
    if (status == TWILL_OK)
        status = twill_detector_conclude(w->detector, &w->error);
    return TWILL_NOTE(status == TWILL_OK, "rank %d: %s", rank, w->error.message);
}

/* Drop all that arrives at this process's sockets of the detector, also at unaccepted ones. */
static int sockets_vanish(const struct connected *c)
{
    int deaf = 0;
    for (int fd = 0; fd < FILES; fd++)
        if (!c->before[fd] && is_tcp(fd))
            deaf += twill_test_deafen(fd);
    return deaf;
}

/* Get the connections that are kept in the queue of this socket, so that they vanish with the rest.
 * Returns how many. */
static int take_kept(int keeper)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(TWILL_FDS_MOST * sizeof(int))];
    } control;
    char byte;
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof(control.space)};
    if (recv(keeper, &byte, 1, MSG_DONTWAIT) != 1 || recvmsg(keeper, &message, MSG_DONTWAIT) != 1)
        return -1;
    const struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    return c != NULL ? (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)) : -1;
}

struct hosts_scene {
    struct hosts_place place;
    void (*fn)(struct connected *c, int rank, int size, const struct hosts_place *place);
};

static void rank_of_scene(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct hosts_scene *scene = user;
    struct connected c;
    if (!connect_all(&c, &scene->place, rank))
        return;
    scene->fn(&c, rank, size, &scene->place);
    test_detector_close(&c.w);
}

/* Run ranks, as processes, that are connected as the place says. */
static void scene_run(struct hosts_place place, int size,
                      void (*fn)(struct connected *, int, int, const struct hosts_place *))
{
    struct hosts_scene scene = {.place = place, .fn = fn};
    twill_test_job_init(&scene.place.job, "127.0.0.1", size);
    scene.place.job.odd = -1;
    twill_test_run_processes(size, rank_of_scene, &scene);
}

/* Define such a test; the body is what each rank does. The other arguments are of struct
 * hosts_place. */
#define HOSTS_TEST(name, ranks, ...)                                                               \
    static void rank_of_##name(struct connected *c, int rank, int size,                            \
                               const struct hosts_place *place);                                   \
    TWILL_TEST(name)                                                                               \
    {                                                                                              \
        scene_run((struct hosts_place){__VA_ARGS__}, ranks, rank_of_##name);                       \
    }                                                                                              \
    static void rank_of_##name(struct connected *c, int rank, int size,                            \
                               const struct hosts_place *place)

/* Two hosts of two ranks. No rank has connected to another before the second host vanishes; then
 * only rank 1 checks, which has no connection between hosts itself. */
HOSTS_TEST(vanishes, 4, .host = {0, 0, 1, 1}, .most = 8)
{
    char text[160];
    TWILL_CHECK(twill_detector_describe(c->w.detector, text, sizeof(text)) == 0);
    TWILL_CHECK(rank_barrier(&c->w));
    TWILL_CHECK(rank < 2 || sockets_vanish(c) >= 1);
    TWILL_CHECK(rank_barrier(&c->w));
    TWILL_CHECK(rank != 1 || dies(&c->w, 3));
    TWILL_CHECK(rank != 1 || twill_detector_lost_host(c->w.detector, 3) != NULL);
    TWILL_CHECK(rank != 1 ||
                twill_detector_is_dead(c->w.detector, 2)); /* at once: its host is known */
    TWILL_CHECK(rank != 1 || !twill_detector_is_dead(c->w.detector, 0));
    TWILL_CHECK(rank_barrier(&c->w));
}

/* As above, but the lowest rank of a host has closed its connections before: they stay open. */
static void rank_outlived(struct connected *c, int rank, int size, const struct hosts_place *place)
{
    struct twill_hosts *hosts = &c->w.detector->hosts;
    TWILL_CHECK(rank_barrier(&c->w));
    if (rank == place->ends) /* its listener stays, unresponsive: else this machine would refuse */
        twill_hosts_close(hosts);
    TWILL_CHECK(rank_barrier(&c->w));
    for (uint64_t until = twill_now() + TWILL_TEST_SECOND; rank == 1 && twill_now() < until;
         usleep(1000))
        TWILL_CHECK(!twill_detector_is_dead(c->w.detector, 3));
    TWILL_CHECK(rank != 1 || hosts->state[1] == HOST_MONITORED);
    TWILL_CHECK(rank != 3 || take_kept(hosts->keeper) == 1);
    TWILL_CHECK(rank < 2 || sockets_vanish(c) >= 1);
    TWILL_CHECK(rank_barrier(&c->w));
    TWILL_CHECK(rank != 1 || dies(&c->w, 3));
    TWILL_CHECK(rank != 1 || twill_detector_lost_host(c->w.detector, 3) != NULL);
    TWILL_CHECK(rank_barrier(&c->w));
}

TWILL_TEST(outlives)
{
    for (int ends = 0; ends <= 2; ends += 2) {
        scene_run((struct hosts_place){.host = {0, 0, 1, 1}, .most = 8, .ends = ends}, 4,
                  rank_outlived);
    }
}

/* Nine hosts, each with connections to those 1, 2 and 4 away: hosts 3 and 6 have none to host 0. */
HOSTS_TEST(passes_it_on, 9, .host = {0, 1, 2, 3, 4, 5, 6, 7, 8}, .most = 2)
{
    struct twill_notice notice;
    uint64_t deadline = twill_now() + TWILL_TEST_PATIENCE;
    TWILL_CHECK(c->w.detector->hosts.fd[(rank + 3) % size] < 0);
    TWILL_CHECK(c->w.detector->hosts.fd[(rank + 4) % size] >= 0);
    TWILL_CHECK(rank_barrier(&c->w));
    TWILL_CHECK(rank != 0 || sockets_vanish(c) >= 7); /* listener and connections */
    TWILL_CHECK(rank_barrier(&c->w));
    while (rank != 0 && !twill_detector_is_dead(c->w.detector, 0) && twill_now() < deadline) {
        TWILL_CHECK(
            !twill_detector_poll(c->w.detector, &notice)); /* handled by the detector itself */
        usleep(1000);
    }
    TWILL_CHECK(twill_now() < deadline);
    for (uint32_t r = 1; rank != 0 && r < (uint32_t)size; r++)
        TWILL_CHECK(!twill_detector_is_dead(c->w.detector, r));
    TWILL_CHECK(rank_barrier(&c->w));
}

/* A connection that is cut makes a suspect, which answers; one that is closed does not. */
HOSTS_TEST(answers, 3, .host = {0, 1, 2}, .most = 8)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    struct twill_hosts *hosts = &c->w.detector->hosts;
    TWILL_CHECK(rank_barrier(&c->w));
    for (uint32_t h = 1; rank == 0 && h < 3; h++) {
        if (h == 1)
            TWILL_CHECK(setsockopt(hosts->fd[h], SOL_SOCKET, SO_LINGER, &now, sizeof(now)) == 0);
        close(hosts->fd[h]);
        hosts->fd[h] = -1;
    }
    TWILL_CHECK(rank_barrier(&c->w));
    for (uint64_t until = twill_now() + 4 * TWILL_TEST_SECOND; rank != 0 && twill_now() < until;
         usleep(1000))
        TWILL_CHECK(!twill_detector_is_dead(c->w.detector, 0));
    TWILL_CHECK(rank == 0 || hosts->state[0] == HOST_CLOSED);
    TWILL_CHECK(rank_barrier(&c->w));
    if (rank == 0)
        detector_dies(&c->w);
    TWILL_CHECK(rank == 0 || dies(&c->w, 0));
    TWILL_CHECK(rank == 0 || twill_detector_lost_host(c->w.detector, 0) == NULL); /* not its host */
    TWILL_CHECK(rank_barrier(&c->w));
}

/* If a connection between hosts fails, the job starts without it. */
static void rank_does_without(struct connected *c, int rank, int size,
                              const struct hosts_place *place)
{
    char text[160];
    TWILL_CHECK(rank_barrier(&c->w));
    size_t missing = twill_detector_describe(c->w.detector, text, sizeof(text));
    TWILL_CHECK(missing == (rank == 1 || (rank == 0 && place->zero == CANNOT_CALL)));
    TWILL_CHECK(rank_barrier(&c->w));
}

TWILL_TEST(does_without)
{
    struct hosts_place cannot = {.host = {0, 1, 2}, .most = 8, .zero = CANNOT_CALL};
    struct hosts_place astray = {.host = {0, 1, 2}, .most = 8, .zero = IS_LED_ASTRAY};
    scene_run(cannot, 3, rank_does_without);
    scene_run(astray, 3, rank_does_without);
}

/* An attempt to connect that started long ago and failed does not make a suspect a lost host. */
HOSTS_TEST(tries_afresh, 2, .host = {0, 1}, .most = 8)
{
    int ends[2];
    struct twill_detector *detector = c->w.detector;
    TWILL_CHECK(rank_barrier(&c->w));
    if (rank == 0) {
        TWILL_CHECK(pipe(ends) == 0);
        detector->link[1].fd = ends[0]; /* never reports an event */
        detector->link[1].state = LINK_CONNECTING;
        detector->link[1].point = 1;
        twill_hosts_suspect(detector, 1);
        for (uint64_t until = twill_now() + TWILL_TEST_PATIENCE;
             detector->hosts.state[1] == HOST_SUSPECT && twill_now() < until; usleep(1000))
            TWILL_CHECK(!twill_detector_is_dead(detector, 1));
        TWILL_CHECK(detector->hosts.state[1] == HOST_CLOSED);
        close(ends[1]);
    }
    TWILL_CHECK(rank_barrier(&c->w));
}

/* --- connections that are slow, stop in the middle, or are cut ---------------------------------
 */

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
DETECTOR_TEST(halves, twill_test_run_processes, 3, -1)
{
    struct twill_session session;
    struct twill_notice notice;
    int slow = -1;
    int port = (int)w->detector->place[0].port;
    if (rank == 1)
        TWILL_CHECK((slow = twill_test_dial_port(job, port)) >= 0);
    for (uint64_t i = 0; rank == 1 && i < HALVES; i++) {
        int fd = twill_test_dial_port(job, port);
        TWILL_CHECK(fd >= 0 && call(fd, w->oob, i + 1, &session) &&
                    begin_frame(fd, &session, 1, 100));
        close(fd);
    }
    TWILL_CHECK(rank_barrier(w));
    for (uint64_t until = twill_now() + 3 * TWILL_TEST_SECOND; rank == 0 && twill_now() < until;
         usleep(10000))
        TWILL_CHECK(!twill_detector_poll(w->detector, &notice));
    TWILL_CHECK(rank_barrier(w));
    if (rank == 1)
        TWILL_CHECK(call(slow, w->oob, HALVES + 1, &session) &&
                    begin_frame(slow, &session, 2, sizeof(struct twill_notice_frame)));
    if (rank == 0)
        TWILL_CHECK(receives(w, &notice) && notice.from == 1 && notice.comm == 2);
    TWILL_CHECK(rank_barrier(w));
    if (rank == 2)
        notify(w, 2, 5);
    if (rank == 0)
        TWILL_CHECK(receives(w, &notice) && notice.from == 2 && notice.comm == 5);
    TWILL_CHECK(rank_barrier(w));
    if (rank == 1)
        close(slow);
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
DETECTOR_TEST(cut_off_twice, twill_test_run_processes, 2, -1)
{
    struct twill_notice notice;
    int port = rank == 0 ? newest_listener() : 0;
    for (int turn = 0; turn < 3; turn++) {
        TWILL_CHECK(rank == 0 || lasts(w, 0));
        TWILL_CHECK(rank_barrier(w));
        uint64_t deadline = twill_now() + TWILL_TEST_PATIENCE;
        while (rank == 0 && turn < 2 && cut_off(port) == 0 && twill_now() < deadline)
            TWILL_CHECK(!twill_detector_poll(w->detector, &notice));
        TWILL_CHECK(twill_now() < deadline && rank_barrier(w));
        TWILL_CHECK(rank != 0 ||
                    !twill_detector_poll(w->detector, &notice)); /* drops the cut one */
    }
    if (rank == 0)
        detector_dies(w);
    TWILL_CHECK(rank == 0 || dies(w, 0));
    TWILL_CHECK(rank_barrier(w));
}

/* --- connections that are closed again at once ----------------------------------------------- */

#define CLOSED_TURNS 5

/* Leave the link to rank 0 as begin_link() does, some time ago, and let it be closed by what
 * listens on `listener` of rank 0. *dead: rank 1 then finds rank 0 dead. */
static void close_again(struct test_detector *w, const struct twill_test_job *job, int rank,
                        int listener, bool *dead)
{
    struct pollfd ends = {.fd = -1, .events = POLLRDHUP};
    if (rank == 1 && w->detector->link[0].state == LINK_IDLE) {
        struct twill_detector_link *link = &w->detector->link[0];
        ends.fd = link->fd = twill_test_dial_port(job, (int)w->detector->place[0].port);
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
DETECTOR_TEST(closes_again, twill_test_run_processes, 2, -1)
{
    bool dead = false;
    int taken = -1;
    uint16_t port = (uint16_t)w->detector->place[0].port;
    for (int turn = 0; turn < CLOSED_TURNS; turn++)
        close_again(w, job, rank, w->detector->listener, &dead);
    TWILL_CHECK(!dead && !w->detector->link[0].suspected);
    TWILL_CHECK(rank_barrier(w));
    if (rank == 0) {
        detector_dies(w);
        taken = twill_socket_listen_at("127.0.0.1", port, 16);
        TWILL_CHECK(taken >= 0);
    }
    TWILL_CHECK(rank_barrier(w));
    for (int turn = 0; turn < CLOSED_TURNS; turn++)
        close_again(w, job, rank, taken, &dead);
    TWILL_CHECK(dead == (rank == 1));
    TWILL_CHECK(rank_barrier(w));
    if (taken >= 0)
        close(taken);
}

/* --- a rank that calls many others ----------------------------------------------------------- */

#define WATCH_CUT_OTHERS 100 /* calls to others: above the window of struct twill_taken */

/* Rank 0 calls rank 1, then another many times, then rank 1 again, which only now polls. */
DETECTOR_TEST(calls_others, twill_test_run_processes, 3, -1)
{
    struct twill_notice notice = {.comm = 1, .status = TWILL_ERR_MISMATCH};
    uint32_t received = 0, one = 1, two = 2;
    if (rank == 0) {
        twill_detector_notify(w->detector, &notice, &one, 1, TWILL_TEST_PATIENCE);
        for (int i = 0; i < WATCH_CUT_OTHERS; i++)
            twill_detector_notify(w->detector, &notice, &two, 1, TWILL_TEST_PATIENCE);
        notice.comm = 2;
        twill_detector_notify(w->detector, &notice, &one, 1, TWILL_TEST_PATIENCE);
    }
    TWILL_CHECK(rank_barrier(w));
    for (int i = 0; rank == 1 && i < 2; i++) {
        TWILL_CHECK(receives(w, &notice));
        received |= notice.comm;
    }
    TWILL_CHECK(rank != 1 || received == 3);
    TWILL_CHECK(rank_barrier(w));
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
DETECTOR_TEST(single_rank_vanishes, twill_test_run_processes, 2, -1)
{
    struct twill_notice notice = {.from = 1, .status = TWILL_OK};
    int port = rank == 0 ? newest_listener() : 0;
    uint64_t deadline = twill_now() + TWILL_TEST_PATIENCE;
    TWILL_CHECK(rank == 0 || lasts(w, 0)); /* it is steady */
    if (rank == 1)
        twill_detector_send(w->detector, 0, &notice);
    if (rank == 0)
        TWILL_CHECK(receives(w, &notice));
    TWILL_CHECK(rank == 1 || port_vanish(port) >= 2); /* listener and connection */
    TWILL_CHECK(rank_barrier(w));
    while (rank == 1 && !twill_detector_is_dead(w->detector, 0) && twill_now() < deadline) {
        twill_detector_send(w->detector, 0, &notice);
        usleep(100000);
    }
    TWILL_CHECK(twill_now() < deadline);
    TWILL_CHECK(rank_barrier(w));
}
