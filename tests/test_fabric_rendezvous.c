/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP bootstrap between ranks that are threads, also with strangers on the port. */
#include "fabric/boot_wire.h"
#include "tests/support/job.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void tcp_sizes(void **state)
{
    static const int sizes[] = {1, 2, 5, 16};
    struct twill_test_job job;
    (void)state;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(sizes); i++) {
        twill_test_job_init(&job, "127.0.0.1", sizes[i]);
        job.odd = (int)i % sizes[i]; /* rank 0 is late for the first two */
        for (int r = 0; r < sizes[i] && i % 2; r++)
            job.nonce[r] = "2a";
        twill_test_run_ranks(sizes[i], twill_test_rank_gathers, &job);
    }
}

static void tcp_ipv6(void **state)
{
    struct twill_test_job job;
    (void)state;
    twill_test_job_init(&job, "::1", 3);
    int fd = twill_test_listen("::1", job.port);
    if (fd < 0)
        skip();
    close(fd);
    twill_test_run_ranks(3, twill_test_rank_gathers, &job);
}

static void tcp_host_name(void **state)
{
    struct twill_test_job job;
    (void)state;
    twill_test_job_init(&job, "localhost", 3);
    twill_test_run_ranks(3, twill_test_rank_gathers, &job);
}

/* The launcher's socket is used when it is one, and ignored when it is not. */
static void tcp_listen_fd(void **state)
{
    static const char *const wrong[] = {"abc", "-1", "0", "999999", "3x"};
    struct twill_test_job job;
    (void)state;
    twill_test_job_init(&job, "127.0.0.1", 3);
    int fd = twill_test_listen("127.0.0.1", job.port);
    snprintf(job.listen_fd, sizeof(job.listen_fd), "%d", fd);
    for (int again = 0; again < 2; again++) /* a second context finds it open still */
        twill_test_run_ranks(3, twill_test_rank_gathers, &job);
    close(fd);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(wrong); i++) {
        twill_test_job_init(&job, "127.0.0.1", 2);
        snprintf(job.listen_fd, sizeof(job.listen_fd), "%s", wrong[i]);
        twill_test_run_ranks(2, twill_test_rank_gathers, &job);
    }
}

/* --- strangers ------------------------------------------------------------------------------- */

/* What strangers say, and whether they are told why they are refused. */
struct stranger {
    const char *says; /* raw; NULL: the header */
    struct twill_wire_header header;
    const char *told; /* NULL: just cut off */
    bool silent;      /* says nothing and stays */
};

#define HELLO(v, k, r, n, l, first, reason)                                                        \
    {                                                                                              \
        .header = {.magic = TWILL_WIRE_MAGIC,                                                      \
                   .version = (v),                                                                 \
                   .kind = (k),                                                                    \
                   .rank = (r),                                                                    \
                   .size = (n),                                                                    \
                   .argument = 30000,                                                              \
                   .length = (l),                                                                  \
                   .nonce = {first}},                                                              \
        .told = (reason)                                                                           \
    }

static const struct stranger strangers[] = {
    {.says = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
    {.says = "\x01\x02\x03\x04garbage garbage garbage garbage garbage garbage garbage garbage"},
    {.says = ""}, /* closes at once */
    {.silent = true},
    {.says = "W", .silent = true},
    {.says = "WTWL", .silent = true},
    HELLO(77, TWILL_WIRE_HELLO, 1, 4, 0, 0, "version"),
    HELLO(TWILL_WIRE_VERSION, TWILL_WIRE_HELLO, 1, 4, 0, 5, "TWILL_JOB"),
    HELLO(TWILL_WIRE_VERSION, TWILL_WIRE_HELLO, 1, 5, 0, 0, "WORLD_SIZE"),
    HELLO(TWILL_WIRE_VERSION, TWILL_WIRE_HELLO, 0, 4, 0, 0, "RANK"),
    HELLO(TWILL_WIRE_VERSION, TWILL_WIRE_HELLO, 4, 4, 0, 0, "RANK"),
    HELLO(TWILL_WIRE_VERSION, TWILL_WIRE_HELLO, UINT32_MAX, 4, 0, 0, "RANK"),
    HELLO(TWILL_WIRE_VERSION, TWILL_WIRE_HELLO, 2, 4, 0, 0, "taken"), /* by the false one */
    HELLO(TWILL_WIRE_VERSION, TWILL_WIRE_HELLO, 1, 4, UINT64_MAX, 0, "greeting"),
    HELLO(TWILL_WIRE_VERSION, TWILL_WIRE_GATHER, 1, 4, 0, 0, "greeting"),
};

static bool be_strange(const struct twill_test_job *job, const struct stranger *s, int *kept)
{
    char text[TWILL_WIRE_TEXT + 1] = "";
    struct twill_wire_header answer;
    int fd = twill_test_dial(job);
    TWILL_REQUIRE(fd >= 0);
    size_t bytes = s->says ? strlen(s->says) : s->silent ? 0 : sizeof(s->header);
    const void *what = s->says ? (const void *)s->says : &s->header;
    TWILL_REQUIRE(send(fd, what, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    *kept = s->silent ? fd : -1;
    if (s->silent)
        return true;
    if (s->told) {
        TWILL_REQUIRE(recv(fd, &answer, sizeof(answer), MSG_WAITALL) == (ssize_t)sizeof(answer));
        TWILL_REQUIRE(answer.kind == TWILL_WIRE_REFUSE && answer.length < sizeof(text));
        TWILL_REQUIRE(recv(fd, text, answer.length, MSG_WAITALL) == (ssize_t)answer.length);
        TWILL_REQUIRE(twill_test_note(strstr(text, s->told) != NULL, __FILE__, __LINE__,
                                      "told \"%s\" instead of \"%s\"", text, s->told));
    }
    if (s->says && !*s->says)
        shutdown(fd, SHUT_WR);
    TWILL_REQUIRE(recv(fd, text, 1, 0) <= 0); /* cut off */
    close(fd);
    return true;
}

/* Something that greets as rank 2 and is let in before this returns. */
static int be_false(const struct twill_test_job *job)
{
    struct twill_boot me = {.rank = 2, .size = job->size};
    struct twill_wire_header hello, garbage = {.magic = 0};
    twill_wire_fill(&hello, TWILL_WIRE_HELLO, &me, 30000, 0);
    int fd = twill_test_dial(job), probe = twill_test_dial(job);
    bool sent = send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t)sizeof(hello) &&
                send(probe, &garbage, sizeof(garbage), MSG_NOSIGNAL) == (ssize_t)sizeof(garbage);
    /* When who came later has been cut off, who came before has been heard. */
    sent = sent && recv(probe, &garbage, 1, 0) <= 0;
    close(probe);
    if (twill_test_note(fd >= 0 && sent, __FILE__, __LINE__, "no way in for a false rank"))
        return fd;
    close(fd);
    return -1;
}

/* Thread 4 plays all the strangers, then lets ranks 1 and 2 come. */
static void play_strangers(struct twill_test_job *job)
{
    int kept[TWILL_ARRAY_LENGTH(strangers)];
    int false_rank = be_false(job);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(strangers); i++)
        if (false_rank < 0 || !be_strange(job, &strangers[i], &kept[i]))
            return;
    close(false_rank); /* it came and went: the true one is welcome */
    atomic_store(&job->arrived, 1);
    while (atomic_load(&job->arrived) < 1 + job->size && !twill_test_failed())
        usleep(10000);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(strangers); i++)
        if (kept[i] >= 0)
            close(kept[i]);
}

static void rank_among_strangers(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *job = user;
    struct twill_error error = {0};
    struct twill_boot *boot;
    (void)unused;
    (void)size;
    if (rank == job->size) {
        play_strangers(job);
        return;
    }
    while ((rank == 1 || rank == 2) && atomic_load(&job->arrived) == 0 && !twill_test_failed())
        usleep(10000);
    TWILL_CHECK_OK(&error, twill_test_job_open(job, rank, &boot, &error));
    for (int round = 0; round < 3 && twill_test_gather(boot, 100, round); round++)
        ;
    TWILL_CHECK(rank != 0 || boot->strays >= TWILL_ARRAY_LENGTH(strangers));
    twill_boot_close(boot);
    atomic_fetch_add(&job->arrived, 1);
}

static void tcp_strangers(void **state)
{
    struct twill_test_job job;
    (void)state;
    twill_test_job_init(&job, "127.0.0.1", 4);
    twill_test_run_ranks(5, rank_among_strangers, &job);
}

/* A rank that finds something else at the port goes on looking. */
static void rank_finds_stranger(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *job = user;
    if (rank == 0) {
        int fd = twill_test_listen("127.0.0.1", job->port);
        atomic_store(&job->arrived, 1);
        struct pollfd one = {.fd = fd, .events = POLLIN};
        TWILL_CHECK(poll(&one, 1, 20000) == 1);
        int there = accept(fd, NULL, NULL);
        TWILL_CHECK(send(there, "SSH-2.0-OpenSSH_9.2 and then some more to fill a header\r\n", 57,
                         MSG_NOSIGNAL) == 57);
        close(there);
        close(fd);
    } else {
        while (!atomic_load(&job->arrived))
            usleep(1000);
    }
    twill_test_rank_gathers(rank, size, unused, user);
}

static void tcp_other_service(void **state)
{
    struct twill_test_job job;
    (void)state;
    twill_test_job_init(&job, "127.0.0.1", 2);
    job.odd = -1;
    twill_test_run_ranks(2, rank_finds_stranger, &job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tcp_sizes),     cmocka_unit_test(tcp_ipv6),
        cmocka_unit_test(tcp_host_name), cmocka_unit_test(tcp_listen_fd),
        cmocka_unit_test(tcp_strangers), cmocka_unit_test(tcp_other_service),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
