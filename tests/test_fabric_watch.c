/* SPDX-License-Identifier: Apache-2.0 */
/* The watch: dead peers are noticed, living ones are not called dead, news arrives whole, garbage
 * and strangers change nothing. Ranks are threads that meet over TCP. */
#include "fabric/watch.h"
#include "tests/support/job.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE (20 * TWILL_TEST_SECOND)

/* Bootstrap and watch of a rank. */
struct watcher {
    struct twill_boot *boot;
    struct twill_watch *watch;
    struct twill_error error;
};

static bool watcher_open(struct watcher *w, const struct twill_test_job *job, int rank)
{
    memset(w, 0, sizeof(*w));
    twill_status status = twill_test_job_open(job, rank, &w->boot, &w->error);
    if (status == TWILL_OK)
        status = twill_watch_open(&w->watch, w->boot, &w->error);
    return twill_test_note(status == TWILL_OK, __FILE__, __LINE__, "rank %d: %s", rank,
                           w->error.message);
}

static void watcher_close(struct watcher *w)
{
    twill_watch_close(w->watch);
    twill_boot_close(w->boot);
}

static bool meet(struct watcher *w)
{
    return twill_test_gather(w->boot, 1, 0);
}

static bool dies(struct watcher *w, uint32_t peer)
{
    uint64_t deadline = twill_now() + PATIENCE;
    while (!twill_watch_is_dead(w->watch, peer))
        if (twill_now() > deadline)
            return false;
        else
            usleep(1000);
    return true;
}

static bool hears(struct watcher *w, struct twill_news *news)
{
    uint64_t deadline = twill_now() + PATIENCE;
    while (!twill_watch_hear(w->watch, news))
        if (twill_now() > deadline)
            return false;
        else
            usleep(1000);
    return true;
}

static void tell(struct watcher *w, int rank, uint32_t comm)
{
    struct twill_news news = {.from = (uint32_t)rank, .comm = comm, .status = TWILL_ERR_MISMATCH};
    snprintf(news.message, sizeof(news.message), "rank %d tells of %u", rank, comm);
    uint32_t everyone[64];
    for (uint32_t r = 0; r < TWILL_ARRAY_LENGTH(everyone); r++)
        everyone[r] = r;
    twill_watch_tell(w->watch, &news, everyone, (size_t)w->boot->size, PATIENCE);
}

/* The odd rank closes; all others notice, and find each other alive, before and after. */
static void rank_notices(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *job = user;
    struct twill_news news;
    struct watcher w;
    (void)unused;
    if (!watcher_open(&w, job, rank))
        return;
    TWILL_CHECK(!twill_watch_is_dead(w.watch, (uint32_t)rank));
    TWILL_CHECK(!twill_watch_is_dead(w.watch, (uint32_t)size));
    for (int turns = 0; turns < 50; turns++) {
        for (int peer = 0; peer < size; peer++)
            TWILL_CHECK(!twill_watch_is_dead(w.watch, (uint32_t)peer));
        TWILL_CHECK(!twill_watch_hear(w.watch, &news));
        usleep(1000);
    }
    TWILL_CHECK(meet(&w));
    if (rank == job->odd) {
        twill_watch_close(w.watch);
        w.watch = NULL;
    } else if (size > 1) {
        TWILL_CHECK(dies(&w, (uint32_t)job->odd));
        for (int turns = 0; turns < 50; turns++) {
            for (int peer = 0; peer < size; peer++)
                TWILL_CHECK(twill_watch_is_dead(w.watch, (uint32_t)peer) == (peer == job->odd));
            (void)twill_watch_hear(w.watch, &news);
        }
    }
    TWILL_CHECK(meet(&w));
    watcher_close(&w);
}

static void notices(void **state)
{
    static const int sizes[] = {1, 2, 5, 16};
    struct twill_test_job job;
    (void)state;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(sizes); i++) {
        twill_test_job_init(&job, "127.0.0.1", sizes[i]);
        job.odd = sizes[i] - 1;
        twill_test_run_ranks(sizes[i], rank_notices, &job);
    }
}

/* A process that is killed, with nobody to say goodbye. */
static void process_notices(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *job = user;
    struct twill_news news;
    struct watcher w;
    (void)unused;
    if (rank == job->odd)
        twill_test_expect_death(rank);
    if (!watcher_open(&w, job, rank))
        return;
    for (int peer = 0; peer < size; peer++)
        TWILL_CHECK(!twill_watch_is_dead(w.watch, (uint32_t)peer));
    TWILL_CHECK(meet(&w));
    if (rank == job->odd)
        raise(SIGKILL);
    TWILL_CHECK(dies(&w, (uint32_t)job->odd));
    TWILL_CHECK(!twill_watch_is_dead(w.watch, (uint32_t)(1 - rank)));
    tell(&w, rank, 3); /* each stays until the other has looked */
    TWILL_CHECK(hears(&w, &news) && news.from == (uint32_t)(1 - rank) && news.comm == 3);
    watcher_close(&w);
}

static void notices_processes(void **state)
{
    struct twill_test_job job;
    (void)state;
    twill_test_job_init(&job, "127.0.0.1", 3);
    job.odd = 2;
    twill_test_run_processes(3, process_notices, &job);
}

/* --- news ------------------------------------------------------------------------------------ */

static void rank_tells(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *job = user;
    struct watcher w;
    int heard[16] = {0};
    (void)unused;
    if (!watcher_open(&w, job, rank))
        return;
    if (rank % 2) /* with and without a connection that is there already */
        for (int peer = 0; peer < size; peer++)
            TWILL_CHECK(!twill_watch_is_dead(w.watch, (uint32_t)peer));
    for (uint32_t comm = 0; comm < 3; comm++)
        tell(&w, rank, comm);
    for (int n = 0; n < 3 * (size - 1); n++) {
        struct twill_news news;
        char wanted[64];
        TWILL_CHECK(hears(&w, &news));
        TWILL_CHECK(news.from < (uint32_t)size && news.from != (uint32_t)rank);
        TWILL_CHECK(news.comm < 3 && news.status == TWILL_ERR_MISMATCH);
        snprintf(wanted, sizeof(wanted), "rank %u tells of %u", news.from, news.comm);
        TWILL_CHECK(strcmp(news.message, wanted) == 0);
        heard[news.from] |= 1 << news.comm;
    }
    for (int peer = 0; peer < size; peer++)
        TWILL_CHECK(heard[peer] == (peer == rank ? 0 : 7));
    TWILL_CHECK(meet(&w));
    watcher_close(&w);
}

static void tells(void **state)
{
    static const int sizes[] = {1, 2, 5, 16};
    struct twill_test_job job;
    (void)state;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(sizes); i++) {
        twill_test_job_init(&job, "127.0.0.1", sizes[i]);
        job.odd = -1;
        twill_test_run_ranks(sizes[i], rank_tells, &job);
    }
}

/* One is dead already: the others hear all the same. */
static void rank_tells_survivors(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *job = user;
    struct watcher w;
    struct twill_news news;
    (void)unused;
    (void)size;
    if (!watcher_open(&w, job, rank))
        return;
    if (rank == 1) {
        twill_watch_close(w.watch);
        w.watch = NULL;
    }
    TWILL_CHECK(meet(&w));
    if (rank == 0)
        tell(&w, 0, 9);
    else if (rank > 1)
        TWILL_CHECK(hears(&w, &news) && news.from == 0 && news.comm == 9);
    TWILL_CHECK(meet(&w));
    TWILL_CHECK(rank == 1 || twill_watch_is_dead(w.watch, 1));
    watcher_close(&w);
}

static void tells_survivors(void **state)
{
    struct twill_test_job job;
    (void)state;
    twill_test_job_init(&job, "127.0.0.1", 4);
    job.odd = -1;
    twill_test_run_ranks(4, rank_tells_survivors, &job);
}

/* --- strangers ------------------------------------------------------------------------------- */

/* The port of rank 0's watch: rank 0 tells, over the bootstrap, by what it has bound since. */
static int newest_listener(void)
{
    struct twill_endpoint endpoint;
    int port = 0;
    for (int fd = 0; fd < 256; fd++) {
        int on = 0;
        socklen_t length = sizeof(on);
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &length) == 0 && on &&
            twill_socket_name(fd, false, &endpoint))
            port = endpoint.port;
    }
    return port;
}

struct frame {
    struct twill_wire_header header;
    char body[512];
};

/* A greeting with the right nonce, then news: each with something wrong. */
static void send_wrong(int fd, const struct twill_boot *boot, int which)
{
    struct frame hello, news;
    size_t hello_bytes = sizeof(hello.header), news_bytes = sizeof(news.header) + 328;
    memset(&hello, 0, sizeof(hello));
    memset(&news, 'x', sizeof(news));
    twill_wire_fill(&hello.header, TWILL_WIRE_WATCH, boot, 0, 0);
    twill_wire_fill(&news.header, TWILL_WIRE_NEWS, boot, 0, 328);
    switch (which) {
    case 0: /* another nonce */
        hello.header.nonce[3] ^= 1;
        break;
    case 1: /* a rank that is not */
        hello.header.rank = news.header.rank = (uint32_t)boot->size;
        break;
    case 2: /* news of another rank than the greeting's */
        news.header.rank = 2;
        break;
    case 3: /* a length beyond all bounds */
        news.header.length = UINT64_MAX - 10;
        break;
    case 4: /* no greeting */
        hello_bytes = 0;
        break;
    case 5: /* half of it */
        news_bytes = 100;
        break;
    case 6: /* noise */
        memset(&hello, 0x5a, sizeof(hello));
        break;
    case 7: /* another kind */
        news.header.kind = TWILL_WIRE_FAIL;
        break;
    default: /* silence */
        hello_bytes = news_bytes = 0;
    }
    (void)!send(fd, &hello, hello_bytes, MSG_NOSIGNAL);
    (void)!send(fd, &news, hello_bytes == 0 && which != 4 ? 0 : news_bytes, MSG_NOSIGNAL);
}

#define WRONG 30 /* nine of them differ, the rest is silent; more than are let in at a time */

static void rank_among_strangers(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *job = user;
    struct watcher w;
    struct twill_news news;
    int32_t ports[4], mine = 0, fds[WRONG];
    (void)unused;
    (void)size;
    if (!watcher_open(&w, job, rank))
        return;
    mine = rank == 0 ? newest_listener() : 0;
    TWILL_CHECK_OK(&w.error, twill_boot_allgather(w.boot, &mine, ports, sizeof(mine), &w.error));
    if (rank == 1) {
        struct twill_test_job there = *job;
        snprintf(there.port, sizeof(there.port), "%d", ports[0]);
        for (int i = 0; i < WRONG; i++) {
            fds[i] = twill_test_dial(&there);
            TWILL_CHECK(fds[i] >= 0);
            send_wrong(fds[i], w.boot, i);
        }
    }
    TWILL_CHECK(meet(&w));
    if (rank == 0) /* the right one is heard, once there is room again */
        TWILL_CHECK(hears(&w, &news) && news.from == 2 && news.comm == 5 &&
                    strcmp(news.message, "rank 2 tells of 5") == 0);
    if (rank == 2)
        tell(&w, 2, 5);
    TWILL_CHECK(meet(&w));
    TWILL_CHECK(rank == 2 || !twill_watch_is_dead(w.watch, 2));
    if (rank == 0)
        TWILL_CHECK(!twill_watch_hear(w.watch, &news));
    for (int i = 0; rank == 1 && i < WRONG; i++)
        close(fds[i]);
    TWILL_CHECK(meet(&w));
    watcher_close(&w);
}

static void strangers(void **state)
{
    struct twill_test_job job;
    (void)state;
    twill_test_job_init(&job, "127.0.0.1", 3);
    job.odd = -1;
    twill_test_run_processes(3, rank_among_strangers, &job);
}

/* --- the rest -------------------------------------------------------------------------------- */

static int open_files(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

static void leaks_nothing(void **state)
{
    struct twill_test_job job;
    int before = open_files();
    (void)state;
    for (int again = 0; again < 3; again++) {
        twill_test_job_init(&job, "127.0.0.1", 4);
        job.odd = 1;
        twill_test_run_ranks(4, rank_notices, &job);
        job.odd = -1;
        twill_test_run_ranks(4, rank_tells, &job);
    }
    assert_int_equal(open_files(), before);
    twill_watch_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(notices),   cmocka_unit_test(notices_processes),
        cmocka_unit_test(tells),     cmocka_unit_test(tells_survivors),
        cmocka_unit_test(strangers), cmocka_unit_test(leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
