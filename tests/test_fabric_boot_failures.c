/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP bootstrap when a rank is missing, dies, or is not like the others: every rank is told
 * who.
 */
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

/* --- ranks that are missing, die, or differ -------------------------------------------------- */

/* What every rank but the odd one must be told. */
struct verdict {
    twill_status status;
    const char *says;
};

static void rank_misses(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *job = user;
    struct twill_error error = {0};
    struct twill_boot *boot = NULL;
    (void)unused;
    (void)size;
    if (rank == job->odd)
        return;
    char says[32];
    snprintf(says, sizeof(says), "rank %d", job->odd);
    twill_status status = twill_test_job_open(job, rank, &boot, &error);
    TWILL_CHECK(boot == NULL);
    if (!twill_test_verdict(rank, status, &error, TWILL_ERR_TIMEOUT, says))
        return;
    snprintf(says, sizeof(says), "rank %d: ", rank);
    TWILL_CHECK(strncmp(error.message, says, strlen(says)) == 0);
}

static void tcp_missing(void **state)
{
    static const int odd[] = {2, 0, 3};
    struct twill_test_job job;
    (void)state;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(odd); i++) {
        twill_test_job_init(&job, "127.0.0.1", 4);
        job.timeout_ns = TWILL_TEST_SECOND;
        job.odd = odd[i];
        twill_test_run_ranks(4, rank_misses, &job);
    }
}

/* The odd rank greets, and goes for good. */
static void rank_joins_and_goes(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *job = user;
    struct twill_error error = {0};
    struct twill_boot *boot;
    (void)unused;
    if (rank == job->odd) {
        struct twill_boot me = {.rank = rank, .size = size};
        struct twill_wire_header hello;
        twill_wire_fill(&hello, TWILL_WIRE_HELLO, &me, 30000, 0);
        int fd = twill_test_dial(job);
        TWILL_CHECK(fd >= 0 && send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) > 0);
        usleep(200000);
        close(fd);
    } else if (rank != 1) { /* rank 1 never comes, so that all have to wait */
        twill_status status = twill_test_job_open(job, rank, &boot, &error);
        (void)twill_test_verdict(rank, status, &error, TWILL_ERR_PEER, "rank 2 joined and ended");
    }
}

static void tcp_joins_and_goes(void **state)
{
    struct twill_test_job job;
    (void)state;
    twill_test_job_init(&job, "127.0.0.1", 4);
    job.odd = 2;
    twill_test_run_ranks(4, rank_joins_and_goes, &job);
}

enum misdeed { DIES, STALLS, DIFFERS, SENDS_GARBAGE, MISDEEDS };
struct misdeeds {
    struct twill_test_job job;
    enum misdeed what;
};

static void rank_misbehaves(int rank, int size, twill_bootstrap *unused, void *user)
{
    static const struct verdict verdicts[MISDEEDS] = {
        [DIES] = {TWILL_ERR_PEER, "rank %d ended"},
        [STALLS] = {TWILL_ERR_TIMEOUT, "rank %d did not reach"},
        [DIFFERS] = {TWILL_ERR_MISMATCH, "rank %d is in all-gather 2 of 12 bytes"},
        [SENDS_GARBAGE] = {TWILL_ERR_BOOTSTRAP, "rank %d sent something"},
    };
    struct misdeeds *m = user;
    struct twill_error error = {0};
    struct twill_boot *boot;
    char mine[16] = "", all[16 * 16], says[64];
    (void)unused;
    TWILL_CHECK_OK(&error, twill_test_job_open(&m->job, rank, &boot, &error));
    TWILL_CHECK_OK(&error, twill_boot_allgather(boot, mine, all, sizeof(mine), &error));
    bool odd = rank == m->job.odd;
    if (odd && m->what == SENDS_GARBAGE)
        memset(boot->nonce, 7, sizeof(boot->nonce));
    if (!odd || m->what == DIFFERS || m->what == SENDS_GARBAGE) {
        twill_status status = twill_boot_allgather(boot, mine, all, odd ? 12 : 16, &error);
        const struct verdict *v = &verdicts[m->what];
        snprintf(says, sizeof(says), "%.7s%s", v->says, v->says + 7);
        char *hole = strstr(says, "%d");
        *hole = (char)('0' + m->job.odd);
        memmove(hole + 1, hole + 2, strlen(hole + 1));
        if (!odd || m->what == DIFFERS)
            (void)twill_test_verdict(rank, status, &error, v->status, says);
        twill_error_clear(&error);
        status = twill_boot_allgather(boot, mine, all, 16, &error);
        TWILL_CHECK(status == TWILL_ERR_BOOTSTRAP); /* once failed, always failed */
        atomic_fetch_add(&m->job.arrived, 1);
    }
    while (odd && m->what == STALLS && atomic_load(&m->job.arrived) < size - 1 &&
           !twill_test_failed())
        usleep(10000);
    twill_boot_close(boot);
}

static void tcp_misdeeds(void **state)
{
    struct misdeeds m;
    (void)state;
    for (int what = 0; what < MISDEEDS; what++) {
        twill_test_job_init(&m.job, "127.0.0.1", 4);
        m.job.timeout_ns = what == STALLS ? TWILL_TEST_SECOND : 30 * TWILL_TEST_SECOND;
        m.job.odd = 2;
        m.what = (enum misdeed)what;
        twill_test_run_ranks(4, rank_misbehaves, &m);
    }
}

/* Rank 0 dies: the others hear of it. */
static void rank_loses_root(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_error error = {0};
    struct twill_boot *boot;
    char mine[16] = "", all[16 * 16];
    (void)unused;
    (void)size;
    TWILL_CHECK_OK(&error, twill_test_job_open(user, rank, &boot, &error));
    if (rank != 0) {
        twill_status status = twill_boot_allgather(boot, mine, all, sizeof(mine), &error);
        (void)twill_test_verdict(rank, status, &error, TWILL_ERR_PEER, "rank 0 ended");
    }
    twill_boot_close(boot);
}

static void tcp_root_dies(void **state)
{
    struct twill_test_job job;
    (void)state;
    twill_test_job_init(&job, "127.0.0.1", 3);
    twill_test_run_ranks(3, rank_loses_root, &job);
}

static void rank_of_other_job(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *job = user;
    struct twill_error error = {0};
    struct twill_boot *boot;
    (void)unused;
    (void)size;
    twill_status status = twill_test_job_open(job, rank, &boot, &error);
    if (rank == job->odd)
        (void)twill_test_verdict(rank, status, &error, TWILL_ERR_BOOTSTRAP, "TWILL_JOB");
    else
        (void)twill_test_verdict(rank, status, &error, TWILL_ERR_TIMEOUT, "rank 1");
}

static void tcp_other_job(void **state)
{
    static const char *const other[] = {"deadbeef", NULL};
    struct twill_test_job job;
    (void)state;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(other); i++) {
        twill_test_job_init(&job, "127.0.0.1", 3);
        job.timeout_ns = TWILL_TEST_SECOND;
        job.odd = 1;
        job.nonce[0] = job.nonce[2] = "c0ffee";
        job.nonce[1] = other[i];
        twill_test_run_ranks(3, rank_of_other_job, &job);
    }
}

static void tcp_port_taken(void **state)
{
    struct twill_test_job job;
    struct twill_error error = {0};
    struct twill_boot *boot;
    (void)state;
    twill_test_job_init(&job, "127.0.0.1", 2);
    job.timeout_ns = TWILL_TEST_SECOND / 2;
    int fd = twill_test_listen("127.0.0.1", job.port);
    assert_int_equal(twill_test_job_open(&job, 0, &boot, &error), TWILL_ERR_BOOTSTRAP);
    assert_non_null(strstr(error.message, job.port));
    assert_non_null(strstr(error.message, strerror(EADDRINUSE)));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tcp_missing),   cmocka_unit_test(tcp_joins_and_goes),
        cmocka_unit_test(tcp_misdeeds),  cmocka_unit_test(tcp_root_dies),
        cmocka_unit_test(tcp_other_job), cmocka_unit_test(tcp_port_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
