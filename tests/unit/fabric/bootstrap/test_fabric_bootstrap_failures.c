/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP bootstrap when a rank is missing, dies or differs: every rank's message names it; and
 * when a rank with the key sends what it should not, drawn from a fixed seed. */
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"
#include "tests/support/job_ranks.h"
#include "tests/support/noise.h"
#include "tests/support/numbers.h"
#include "tests/support/unit.h"

#include <netinet/in.h>
#include <sys/resource.h>

/* --- ranks that are missing, die, or differ -------------------------------------------------- */

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
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(odd); i++)
        twill_test_job_run("127.0.0.1", 4, odd[i], rank_misses);
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
    twill_test_job_run("127.0.0.1", 4, 2, rank_joins_and_goes);
}

enum misdeed { DIES, STALLS, DIFFERS, SENDS_GARBAGE, MISDEEDS };
struct misdeeds {
    struct twill_test_job job; /* rank 2 is odd */
    enum misdeed what;
};

static void rank_misbehaves(int rank, int size, twill_bootstrap *unused, void *user)
{
    static const struct {
        twill_status status;
        const char *says; /* on the other ranks */
    } expected[MISDEEDS] = {
        [DIES] = {TWILL_ERR_PEER, "rank 2 ended"},
        [STALLS] = {TWILL_ERR_TIMEOUT, "rank 2 did not reach"},
        [DIFFERS] = {TWILL_ERR_MISMATCH, "rank 2 is in all-gather 2 of 12 bytes"},
        [SENDS_GARBAGE] = {TWILL_ERR_BOOTSTRAP, "rank 2 sent something"},
    };
    struct misdeeds *m = user;
    struct twill_error error = {0};
    struct twill_oob *oob;
    char mine[16] = "", all[16 * 16];
    bool odd = rank == m->job.odd, hasty = rank == 0 && m->what == STALLS;
    TWILL_CHECK_OK(&error, open_hasty(&m->job, rank, hasty, &oob, &error));
    TWILL_CHECK_OK(&error, twill_oob_allgather(oob, mine, all, sizeof(mine), &error));
    if (odd && m->what == SENDS_GARBAGE)
        ((struct twill_bootstrap_tcp *)oob)->session.sent++; /* out of order */
    if (!odd || m->what == DIFFERS || m->what == SENDS_GARBAGE) {
        twill_status status = twill_oob_allgather(oob, mine, all, odd ? 12 : 16, &error);
        if (!odd || m->what == DIFFERS)
            (void)twill_test_outcome_is(rank, status, &error, expected[m->what].status,
                                        expected[m->what].says);
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

/* Rank 0 has given up the odd one: it waits for it in an all-gather only shortly, though its
 * timeout is long. The odd one takes part if it waits in vain for that. */
static void rank_gives_up(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *job = user;
    struct twill_error error = {0};
    struct twill_oob *oob;
    char mine[16] = "", all[2 * 16];
    TWILL_CHECK_OK(&error, twill_test_job_open(job, rank, &oob, &error));
    uint64_t until = twill_now() + 4 * TWILL_TEST_SOON;
    if (rank == 0)
        (void)twill_oob_attend(oob, 1, true);
    while (rank == 1 && atomic_load(&job->arrived) == 0 && twill_now() < until)
        usleep(10000);
    twill_status status = twill_oob_allgather(oob, mine, all, sizeof(mine), &error);
    atomic_store(&job->arrived, 1);
    (void)twill_test_outcome_is(rank, status, &error, TWILL_ERR_TIMEOUT, "rank 1 did not reach");
    twill_oob_close(oob);
}

TWILL_TEST(tcp_gives_up)
{
    struct twill_test_job job;
    twill_test_job_init(&job, "127.0.0.1", 2);
    twill_test_run_ranks(2, rank_gives_up, &job);
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
    twill_test_job_run("127.0.0.1", 3, -1, rank_loses_root);
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

/* --- a rank with the key that sends what it should not --------------------------------------- */

struct liar {
    struct twill_test_job job;
    uint64_t seed;
    int which;
    bool late; /* the receiver gave up before */
};

/* A valid frame except for what is drawn: kind, argument, length, or bytes of it. */
static void send_lie(int fd, struct twill_session *session, struct liar *liar,
                     enum twill_wire_kind kind, const void *body, size_t bytes)
{
    struct twill_noise noise = {.count = 0};
    struct twill_wire_header header;
    uint64_t *seed = &liar->seed;
    size_t real = bytes;
    int what = liar->which % 4;
    if (what == 0)
        kind = (enum twill_wire_kind)((kind + 1 + twill_test_random(seed) % 15) % 16);
    if (what == 1) /* with a valid proof */
        bytes = twill_test_random(seed) % 2 ? SIZE_MAX - 10 : bytes + 1;
    uint8_t digest[TWILL_DIGEST_BYTES] = {0};
    int64_t argument = what == 2 ? (int64_t)twill_test_random(seed) : 1;
    twill_wire_seal(session, &header, kind, argument, body, bytes, what == 1 ? digest : NULL);
    twill_noise_add(&noise, &header, sizeof(header));
    twill_noise_add(&noise, body, real);
    if (what == 3)
        twill_noise_change(&noise, seed);
    (void)!send(fd, noise.bytes, noise.count, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
}

/* Rank 1 sends a wrong shard in the first all-gather: rank 0 ends the job at once. */
static void rank_receives_lies(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct liar *liar = user;
    const struct twill_hello_identity identity = twill_test_joins(1, 2);
    struct twill_error error = {0};
    struct twill_oob *oob;
    char mine[100] = "", all[200];
    if (rank == 0) {
        TWILL_CHECK_OK(&error, twill_test_job_open(&liar->job, rank, &oob, &error));
        twill_status status = twill_oob_allgather(oob, mine, all, sizeof(mine), &error);
        TWILL_CHECK(status != TWILL_OK && status != TWILL_ERR_TIMEOUT);
        twill_oob_close(oob);
        return;
    }
    struct twill_session session;
    int fd = twill_test_dial(&liar->job);
    TWILL_CHECK(fd >= 0 && twill_test_hello(fd, &identity, &session));
    send_lie(fd, &session, liar, TWILL_WIRE_GATHER, mine, sizeof(mine));
    while (recv(fd, all, sizeof(all), 0) > 0)
        ;
    close(fd);
}

/* Rank 0 sends a wrong welcome: rank 1 does not join, and fails by its deadline. */
static void rank_is_welcomed_by_liar(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct liar *liar = user;
    struct twill_error error = {0};
    struct twill_oob *oob;
    if (rank == 1) {
        twill_status status = twill_test_job_open(&liar->job, rank, &oob, &error);
        if (TWILL_NOTE(status != TWILL_OK || liar->which % 4 == 2, "lie %d was believed",
                       liar->which) &&
            status == TWILL_OK)
            twill_oob_close(oob);
        return;
    }
    struct twill_secret key;
    struct twill_hello hello;
    struct twill_session session;
    struct twill_bootstrap_welcome body = {.address = "127.0.0.1", .rank = 1};
    int listener = atoi(liar->job.listen_fd);
    TWILL_CHECK(twill_wire_wait(listener, POLLIN, twill_wire_deadline(TWILL_TEST_PATIENCE)) ==
                TWILL_WIRE_DONE);
    int fd = twill_socket_accept(listener);
    TWILL_CHECK(fd >= 0 && twill_secret_parse(&key, "key", TWILL_TEST_KEY, NULL) == TWILL_OK);
    TWILL_CHECK(twill_hello_expect(&hello, &key, TWILL_HELLO_JOIN, 0, 2));
    enum twill_wire_moved outcome = twill_test_hello_finish(fd, &hello, &session);
    liar->late = outcome != TWILL_WIRE_DONE;
    if (!liar->late)
        send_lie(fd, &session, liar, TWILL_WIRE_WELCOME, &body, sizeof(body));
    close(fd);
    close(listener);
}

TWILL_TEST(liars)
{
    struct liar liar = {.seed = 5};
    int before = twill_test_open_files();
    for (liar.which = 0; liar.which < 40; liar.which++) {
        twill_test_job_init(&liar.job, "127.0.0.1", 2);
        twill_test_run_ranks(2, rank_receives_lies, &liar);
    }
    for (liar.which = 0; liar.which < 12; liar.which++) {
        uint64_t patience = TWILL_TEST_SECOND / 10; /* some cases take all of it */
        do {
            twill_test_job_init(&liar.job, "127.0.0.1", 2);
            liar.job.timeout_ns = patience;
            int fd = twill_test_listen("127.0.0.1", liar.job.port);
            snprintf(liar.job.listen_fd, sizeof(liar.job.listen_fd), "%d", fd);
            twill_test_run_ranks(2, rank_is_welcomed_by_liar, &liar);
            patience *= 3;
        } while (liar.late && patience < 30 * TWILL_TEST_SECOND);
        assert_false(liar.late);
    }
    assert_int_equal(twill_test_open_files(), before);
}
