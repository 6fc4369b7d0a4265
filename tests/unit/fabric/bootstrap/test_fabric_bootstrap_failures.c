/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP bootstrap when a rank is missing, dies or differs: every rank's message names it. */
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"
#include "tests/support/job_ranks.h"
#include "tests/support/unit.h"

#include <netinet/in.h>
#include <sys/resource.h>

/* --- ranks that are missing, die, or differ -------------------------------------------------- */

/* What all ranks but the odd one must report. */
struct expected {
    twill_status status;
    const char *says;
};

/* Ranks with a short timeout, so that the test ends soon. If rank 0 is there, it notifies the
 * others: with short timeouts of their own they would give up first if it started late. */
static twill_status open_hasty(const struct twill_test_job *job, int rank, bool hasty,
                               struct twill_oob **oob, struct twill_error *error)
{
    struct twill_test_job own = *job;
    own.timeout_ns = hasty ? TWILL_TEST_SOON : TWILL_TEST_PATIENCE;
    return twill_test_job_open(&own, rank, oob, error);
}

static void rank_misses(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *job = user;
    struct twill_error error = {0};
    struct twill_oob *oob = NULL;
    if (rank == job->odd)
        return;
    char says[32];
    snprintf(says, sizeof(says), "rank %d", job->odd);
    /* If the last rank is odd, rank 1 has the short timeout, and sends it to rank 0. */
    bool hasty = job->odd == 0 || rank == (job->odd == size - 1 ? 1 : 0);
    twill_status status = open_hasty(job, rank, hasty, &oob, &error);
    TWILL_CHECK(oob == NULL);
    if (!twill_test_outcome_is(rank, status, &error, TWILL_ERR_TIMEOUT, says))
        return;
    snprintf(says, sizeof(says), "rank %d: ", rank);
    TWILL_CHECK(strncmp(error.message, says, strlen(says)) == 0);
}

TWILL_TEST(tcp_missing)
{
    static const int odd[] = {2, 0, 3};
    struct twill_test_job job;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(odd); i++) {
        twill_test_job_init(&job, "127.0.0.1", 4);
        job.odd = odd[i];
        twill_test_run_ranks(4, rank_misses, &job);
    }
}

/* The odd rank authenticates and then leaves for good. */
static void rank_joins_and_goes(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *job = user;
    struct twill_error error = {0};
    struct twill_oob *oob;
    if (rank == job->odd) {
        const struct twill_hello_identity identity = twill_test_joins((uint32_t)rank, size);
        struct twill_session session;
        int fd = twill_test_dial(job);
        TWILL_CHECK(fd >= 0 && twill_test_hello(fd, &identity, &session));
        usleep(200000);
        close(fd);
    } else if (rank != 1) { /* rank 1 never joins, so that all have to wait */
        twill_status status = twill_test_job_open(job, rank, &oob, &error);
        (void)twill_test_outcome_is(rank, status, &error, TWILL_ERR_PEER,
                                    "rank 2 joined and ended");
    }
}

TWILL_TEST(tcp_joins_and_goes)
{
    struct twill_test_job job;
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
    static const struct expected expectations[MISDEEDS] = {
        [DIES] = {TWILL_ERR_PEER, "rank %d ended"},
        [STALLS] = {TWILL_ERR_TIMEOUT, "rank %d did not reach"},
        [DIFFERS] = {TWILL_ERR_MISMATCH, "rank %d is in all-gather 2 of 12 bytes"},
        [SENDS_GARBAGE] = {TWILL_ERR_BOOTSTRAP, "rank %d sent something"},
    };
    struct misdeeds *m = user;
    struct twill_error error = {0};
    struct twill_oob *oob;
    char mine[16] = "", all[16 * 16], says[64];
    bool hasty = rank == 0 && m->what == STALLS;
    TWILL_CHECK_OK(&error, open_hasty(&m->job, rank, hasty, &oob, &error));
    TWILL_CHECK_OK(&error, twill_oob_allgather(oob, mine, all, sizeof(mine), &error));
    bool odd = rank == m->job.odd;
    if (odd && m->what == SENDS_GARBAGE)
        ((struct twill_bootstrap_tcp *)oob)->session.sent++; /* out of order */
    if (!odd || m->what == DIFFERS || m->what == SENDS_GARBAGE) {
        twill_status status = twill_oob_allgather(oob, mine, all, odd ? 12 : 16, &error);
        const struct expected *v = &expectations[m->what];
        snprintf(says, sizeof(says), "%.7s%s", v->says, v->says + 7);
        char *hole = strstr(says, "%d");
        *hole = (char)('0' + m->job.odd);
        memmove(hole + 1, hole + 2, strlen(hole + 1));
        if (!odd || m->what == DIFFERS)
            (void)twill_test_outcome_is(rank, status, &error, v->status, says);
        twill_error_clear(&error);
        status = twill_oob_allgather(oob, mine, all, 16, &error);
        TWILL_CHECK(status == TWILL_ERR_BOOTSTRAP); /* after a failure, every call fails */
        atomic_fetch_add(&m->job.arrived, 1);
    }
    while (odd && m->what == STALLS && atomic_load(&m->job.arrived) < size - 1 &&
           !twill_test_failed())
        usleep(10000);
    twill_oob_close(oob);
}

TWILL_TEST(tcp_misdeeds)
{
    struct misdeeds m;
    for (int what = 0; what < MISDEEDS; what++) {
        twill_test_job_init(&m.job, "127.0.0.1", 4);
        m.job.odd = 2;
        m.what = (enum misdeed)what;
        twill_test_run_ranks(4, rank_misbehaves, &m);
    }
}

/* Rank 0 dies: the others report it. */
static void rank_loses_root(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_error error = {0};
    struct twill_oob *oob;
    char mine[16] = "", all[16 * 16];
    TWILL_CHECK_OK(&error, twill_test_job_open(user, rank, &oob, &error));
    if (rank != 0) {
        twill_status status = twill_oob_allgather(oob, mine, all, sizeof(mine), &error);
        (void)twill_test_outcome_is(rank, status, &error, TWILL_ERR_PEER, "rank 0 ended");
    }
    twill_oob_close(oob);
}

TWILL_TEST(tcp_root_dies)
{
    struct twill_test_job job;
    twill_test_job_init(&job, "127.0.0.1", 3);
    twill_test_run_ranks(3, rank_loses_root, &job);
}

static void rank_of_other_job(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *job = user;
    struct twill_error error = {0};
    struct twill_oob *oob;
    twill_status status = open_hasty(job, rank, rank != 2, &oob, &error);
    if (rank == job->odd)
        (void)twill_test_outcome_is(rank, status, &error, TWILL_ERR_BOOTSTRAP, "TWILL_JOB");
    else
        (void)twill_test_outcome_is(rank, status, &error, TWILL_ERR_TIMEOUT, "rank 1");
}

TWILL_TEST(tcp_other_job)
{
    static const char *const other[] = {"deadbeefdeadbeef", ""}; /* the second one: of the user */
    struct twill_test_job job;
    char folder[] = "/tmp/twill-boot-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("HOME", folder, 1), 0);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(other); i++) {
        twill_test_job_init(&job, "127.0.0.1", 3);
        job.odd = 1;
        job.key[1] = other[i];
        twill_test_run_ranks(3, rank_of_other_job, &job);
    }
    /* All have the user's key: they connect. */
    twill_test_job_init(&job, "127.0.0.1", 3);
    for (int r = 0; r < 3; r++)
        job.key[r] = "";
    job.odd = -1;
    twill_test_run_ranks(3, twill_test_rank_gathers, &job);
    snprintf(path, sizeof(path), "%s/.twill/key", folder);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/.twill", folder);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

TWILL_TEST(tcp_port_taken)
{
    struct twill_test_job job;
    struct twill_error error = {0};
    struct twill_oob *oob;
    twill_test_job_init(&job, "127.0.0.1", 2);
    job.timeout_ns = TWILL_TEST_SECOND / 2;
    int fd = twill_test_listen("127.0.0.1", job.port);
    assert_int_equal(twill_test_job_open(&job, 0, &oob, &error), TWILL_ERR_BOOTSTRAP);
    assert_non_null(strstr(error.message, job.port));
    assert_non_null(strstr(error.message, strerror(EADDRINUSE)));
    close(fd);
}

/* Rank 0 of more ranks than it may have descriptors for: what the process had open stays open. The
 * limit cannot be raised again, so a child process sets it. */
static int lacks_descriptors(void)
{
    const struct rlimit few = {64, 64};
    struct twill_test_job job;
    struct twill_error error = {0};
    struct twill_oob *oob;
    twill_test_job_init(&job, "127.0.0.1", 256);
    if (fcntl(STDIN_FILENO, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != STDIN_FILENO)
        return 1;
    if (setrlimit(RLIMIT_NOFILE, &few) != 0)
        return 2;
    if (twill_test_job_open(&job, 0, &oob, &error) != TWILL_ERR_SYSTEM ||
        strstr(error.message, "ulimit") == NULL)
        return 3;
    return fcntl(STDIN_FILENO, F_GETFD) < 0 ? 4 : 0;
}

TWILL_TEST(tcp_few_descriptors)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(lacks_descriptors());
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}
