/* SPDX-License-Identifier: Apache-2.0 */
/* The failure detector between hosts: a vanished host is detected by ranks without a connection to
 * it, by one rank of a host alone, and if not all hosts are connected; a live host is not declared
 * lost. Ranks are processes that connect over TCP. */
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
    struct test_detector test_detector;
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

static bool connect_all(struct connected *c, struct hosts_place *place, int rank)
{
    for (int fd = 0; fd < FILES; fd++)
        c->before[fd] = false;
    struct test_detector *w = &c->test_detector;
    memset(w, 0, sizeof(*w));
    twill_status status = twill_test_job_open(&place->job, rank, &w->oob, &w->error);
    for (int fd = 0; fd < FILES; fd++)
        c->before[fd] = is_tcp(fd);
    if (status == TWILL_OK)
        status = test_detector_start(&w->detector, w->oob, place->most, &w->error);
    if (status == TWILL_OK)
        mislead(w, place, rank);
    struct twill_agreement agreement = {.oob = w->oob};
    if (status == TWILL_OK) {
        status = twill_detector_connect(w->detector, w->oob, place->host, 1, &agreement, &w->error);
        status = twill_agreement_exchange(&agreement, status, &w->error);
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

static void scene_run(struct hosts_place *place, int size, twill_rank_fn fn)
{
    twill_test_job_init(&place->job, "127.0.0.1", size);
    place->job.odd = -1;
    twill_test_run_processes(size, fn, place);
}

/* Two hosts of two ranks. No rank has connected to another before the second host vanishes; then
 * only rank 1 checks, which has no connection between hosts itself. */
static void rank_of_two(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct connected c;
    char text[160];
    if (!connect_all(&c, user, rank))
        return;
    TWILL_CHECK(twill_detector_describe(c.test_detector.detector, text, sizeof(text)) == 0);
    TWILL_CHECK(rank_barrier(&c.test_detector));
    TWILL_CHECK(rank < 2 || sockets_vanish(&c) >= 1);
    TWILL_CHECK(rank_barrier(&c.test_detector));
    TWILL_CHECK(rank != 1 || dies(&c.test_detector, 3));
    TWILL_CHECK(rank != 1 || twill_detector_lost_host(c.test_detector.detector, 3) != NULL);
    TWILL_CHECK(rank != 1 || twill_detector_is_dead(c.test_detector.detector,
                                                    2)); /* at once: its host is known */
    TWILL_CHECK(rank != 1 || !twill_detector_is_dead(c.test_detector.detector, 0));
    TWILL_CHECK(rank_barrier(&c.test_detector));
    test_detector_close(&c.test_detector);
}

TWILL_TEST(vanishes)
{
    struct hosts_place place = {.host = {0, 0, 1, 1}, .most = 8};
    scene_run(&place, 4, rank_of_two);
}

/* As above, but the lowest rank of a host has closed its connections before: they stay open. */
static void rank_outlived(int rank, int size, twill_bootstrap *unused, void *user)
{
    const struct hosts_place *place = user;
    struct connected c;
    if (!connect_all(&c, user, rank))
        return;
    struct twill_hosts *hosts = &c.test_detector.detector->hosts;
    TWILL_CHECK(rank_barrier(&c.test_detector));
    if (rank == place->ends) /* its listener stays, unresponsive: else this machine would refuse */
        twill_hosts_close(hosts);
    TWILL_CHECK(rank_barrier(&c.test_detector));
    for (uint64_t until = twill_now() + TWILL_TEST_SECOND; rank == 1 && twill_now() < until;
         usleep(1000))
        TWILL_CHECK(!twill_detector_is_dead(c.test_detector.detector, 3));
    TWILL_CHECK(rank != 1 || hosts->state[1] == HOST_MONITORED);
    TWILL_CHECK(rank != 3 || take_kept(hosts->keeper) == 1);
    TWILL_CHECK(rank < 2 || sockets_vanish(&c) >= 1);
    TWILL_CHECK(rank_barrier(&c.test_detector));
    TWILL_CHECK(rank != 1 || dies(&c.test_detector, 3));
    TWILL_CHECK(rank != 1 || twill_detector_lost_host(c.test_detector.detector, 3) != NULL);
    TWILL_CHECK(rank_barrier(&c.test_detector));
    test_detector_close(&c.test_detector);
}

TWILL_TEST(outlives)
{
    for (int ends = 0; ends <= 2; ends += 2) {
        struct hosts_place place = {.host = {0, 0, 1, 1}, .most = 8, .ends = ends};
        scene_run(&place, 4, rank_outlived);
    }
}

/* Nine hosts, each with connections to those 1, 2 and 4 away: hosts 3 and 6 have none to host 0. */
static void rank_of_many(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct connected c;
    struct twill_notice notice;
    if (!connect_all(&c, user, rank))
        return;
    uint64_t deadline = twill_now() + TWILL_TEST_PATIENCE;
    TWILL_CHECK(c.test_detector.detector->hosts.fd[(rank + 3) % size] < 0);
    TWILL_CHECK(c.test_detector.detector->hosts.fd[(rank + 4) % size] >= 0);
    TWILL_CHECK(rank_barrier(&c.test_detector));
    TWILL_CHECK(rank != 0 || sockets_vanish(&c) >= 7); /* listener and connections */
    TWILL_CHECK(rank_barrier(&c.test_detector));
    while (rank != 0 && !twill_detector_is_dead(c.test_detector.detector, 0) &&
           twill_now() < deadline) {
        TWILL_CHECK(!twill_detector_poll(c.test_detector.detector,
                                         &notice)); /* handled by the detector itself */
        usleep(1000);
    }
    TWILL_CHECK(twill_now() < deadline);
    for (uint32_t r = 1; rank != 0 && r < (uint32_t)size; r++)
        TWILL_CHECK(!twill_detector_is_dead(c.test_detector.detector, r));
    TWILL_CHECK(rank_barrier(&c.test_detector));
    test_detector_close(&c.test_detector);
}

TWILL_TEST(passes_it_on)
{
    struct hosts_place place = {.host = {0, 1, 2, 3, 4, 5, 6, 7, 8}, .most = 2};
    scene_run(&place, 9, rank_of_many);
}

/* A connection that is cut makes a suspect, which answers; one that is closed does not. */
static void rank_answers(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct connected c;
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    if (!connect_all(&c, user, rank))
        return;
    struct twill_hosts *hosts = &c.test_detector.detector->hosts;
    TWILL_CHECK(rank_barrier(&c.test_detector));
    for (uint32_t h = 1; rank == 0 && h < 3; h++) {
        if (h == 1)
            TWILL_CHECK(setsockopt(hosts->fd[h], SOL_SOCKET, SO_LINGER, &now, sizeof(now)) == 0);
        close(hosts->fd[h]);
        hosts->fd[h] = -1;
    }
    TWILL_CHECK(rank_barrier(&c.test_detector));
    for (uint64_t until = twill_now() + 4 * TWILL_TEST_SECOND; rank != 0 && twill_now() < until;
         usleep(1000))
        TWILL_CHECK(!twill_detector_is_dead(c.test_detector.detector, 0));
    TWILL_CHECK(rank == 0 || hosts->state[0] == HOST_CLOSED);
    TWILL_CHECK(rank_barrier(&c.test_detector));
    if (rank == 0) {
        twill_detector_close(c.test_detector.detector);
        c.test_detector.detector = NULL;
    }
    TWILL_CHECK(rank == 0 || dies(&c.test_detector, 0));
    TWILL_CHECK(rank == 0 ||
                twill_detector_lost_host(c.test_detector.detector, 0) == NULL); /* not its host */
    TWILL_CHECK(rank_barrier(&c.test_detector));
    test_detector_close(&c.test_detector);
}

TWILL_TEST(answers)
{
    struct hosts_place place = {.host = {0, 1, 2}, .most = 8};
    scene_run(&place, 3, rank_answers);
}

/* If a connection between hosts fails, the job starts without it. */
static void rank_does_without(int rank, int size, twill_bootstrap *unused, void *user)
{
    const struct hosts_place *place = user;
    struct connected c;
    char text[160];
    if (!connect_all(&c, user, rank))
        return;
    TWILL_CHECK(rank_barrier(&c.test_detector));
    size_t missing = twill_detector_describe(c.test_detector.detector, text, sizeof(text));
    TWILL_CHECK(missing == (rank == 1 || (rank == 0 && place->zero == CANNOT_CALL)));
    TWILL_CHECK(rank_barrier(&c.test_detector));
    test_detector_close(&c.test_detector);
}

TWILL_TEST(does_without)
{
    struct hosts_place cannot = {.host = {0, 1, 2}, .most = 8, .zero = CANNOT_CALL};
    struct hosts_place astray = {.host = {0, 1, 2}, .most = 8, .zero = IS_LED_ASTRAY};
    scene_run(&cannot, 3, rank_does_without);
    scene_run(&astray, 3, rank_does_without);
}

/* An attempt to connect that started long ago and failed does not make a suspect a lost host. */
static void rank_tries_afresh(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct connected c;
    int ends[2];
    if (!connect_all(&c, user, rank))
        return;
    struct twill_detector *detector = c.test_detector.detector;
    TWILL_CHECK(rank_barrier(&c.test_detector));
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
    TWILL_CHECK(rank_barrier(&c.test_detector));
    test_detector_close(&c.test_detector);
}

TWILL_TEST(tries_afresh)
{
    struct hosts_place place = {.host = {0, 1}, .most = 8};
    scene_run(&place, 2, rank_tries_afresh);
}
