/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile bytes, drawn from fixed seeds: rendezvous and failure detector get recordings that were
 * changed, truncated, repeated or reordered, and noise. No process without the key is
 * authenticated, nothing crashes or stays open, and the ranks still connect. */
#include "fabric/bootstrap/oob_batch.h"
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"
#include "fabric/detector/detector_state.h"
#include "tests/support/detector_ranks.h"
#include "tests/support/noise.h"
#include "tests/support/numbers.h"
#include "tests/support/unit.h"

#include <sys/socket.h>

/* --- rendezvous ------------------------------------------------------------------------------ */

#define HOSTILE_RANKS 4
#define HOSTILE_CROWD 40   /* connections of one wave */
#define HOSTILE       1000 /* connections in all */

/* What a rank with the key once sent: recorded from a handshake of its own. */
static bool record(const struct twill_test_job *job, struct twill_noise *said)
{
    const struct twill_hello_identity identity = twill_test_joins(2, HOSTILE_RANKS);
    struct twill_secret key;
    struct twill_hello hello;
    struct twill_session session;
    int fd = twill_test_dial(job);
    TWILL_REQUIRE(fd >= 0 && twill_secret_parse(&key, "key", TWILL_TEST_KEY, NULL) == TWILL_OK &&
                  twill_hello_call(&hello, &key, &identity));
    enum twill_wire_moved outcome = twill_test_hello_finish(fd, &hello, &session);
    said->count = 0;
    twill_noise_add(said, &hello.said.call, sizeof(hello.said.call));
    twill_noise_add(said, hello.reply, sizeof(hello.reply));
    close(fd);
    return outcome == TWILL_WIRE_DONE;
}

/* When ranks join: rank 2 soon after the recorded one in its name, which would count as ended
 * otherwise; rank 3 in between; rank 1 at the end, so that rank 0 has seen all of it. */
enum { RECORDED = 1, HOSTILE_HALF, OVER };
static const int comes_at[HOSTILE_RANKS] = {0, OVER, RECORDED, HOSTILE_HALF};

/* Waves of connections; some stay open as long as their wave, and some send a byte at a time. */
static void attack(struct twill_test_job *job)
{
    uint64_t seed = 4;
    struct twill_noise said;
    TWILL_CHECK(record(job, &said));
    atomic_store(&job->arrived, RECORDED);
    for (int wave = 0; wave < HOSTILE / HOSTILE_CROWD && !twill_test_failed(); wave++) {
        int fds[HOSTILE_CROWD];
        for (int i = 0; i < HOSTILE_CROWD; i++) {
            struct twill_noise noise = said;
            fds[i] = twill_test_dial(job);
            TWILL_CHECK(fds[i] >= 0);
            if (i % 4 != 0) /* every fourth is as recorded */
                twill_noise_change(&noise, &seed);
            size_t bytes = i % 8 == 7 ? 1 : noise.count;
            (void)!send(fds[i], noise.bytes, bytes, MSG_NOSIGNAL);
        }
        for (int i = 0; i < HOSTILE_CROWD; i++)
            close(fds[i]);
        if (wave == HOSTILE / HOSTILE_CROWD / 2)
            atomic_store(&job->arrived, HOSTILE_HALF);
    }
}

static void rank_under_attack(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *job = user;
    struct twill_error error = {0};
    struct twill_oob *oob;
    if (rank == HOSTILE_RANKS) {
        attack(job);
        atomic_store(&job->arrived, OVER);
        return;
    }
    while (atomic_load(&job->arrived) < comes_at[rank] && !twill_test_failed())
        usleep(1000);
    TWILL_CHECK_OK(&error, twill_test_job_open(job, rank, &oob, &error));
    for (int round = 0; round < 3 && twill_test_gather(oob, 100, round); round++)
        ;
    if (rank == 0) {
        const unsigned *count = oob->rejected.count;
        TWILL_CHECK(count[TWILL_FAULT_REPLAYED] > 0 || count[TWILL_FAULT_CLOSED] > 0);
        TWILL_CHECK(count[TWILL_FAULT_KEY] > 0 && count[TWILL_FAULT_MALFORMED] > 0);
        TWILL_CHECK(count[TWILL_FAULT_REFUSED] == 0);
        TWILL_CHECK(twill_rejected_total(&oob->rejected) >= HOSTILE * 9 / 10);
    }
    twill_oob_close(oob);
}

TWILL_TEST(rendezvous)
{
    struct twill_test_job job;
    int before = twill_test_open_files();
    twill_test_job_init(&job, "127.0.0.1", HOSTILE_RANKS);
    twill_test_run_ranks(HOSTILE_RANKS + 1, rank_under_attack, &job);
    assert_int_equal(twill_test_open_files(), before);
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

/* --- failure detector ------------------------------------------------------------------------ */

static void pester_port(const struct twill_test_job *job, const struct twill_detector *detector,
                        const struct twill_secret *run, const struct twill_hello_identity *identity)
{
    struct twill_noise said = {.count = 0};
    struct twill_hello hello;
    uint64_t seed = 6;
    char byte;
    TWILL_CHECK(twill_hello_call(&hello, run, identity));
    twill_noise_add(&said, &hello.said.call, sizeof(hello.said.call));
    for (int i = 0; i < 600; i++) {
        struct twill_noise noise = said;
        int fd = twill_test_dial_port(job, (int)detector->place[0].port);
        TWILL_CHECK(fd >= 0);
        if (i % 4 != 0)
            twill_noise_change(&noise, &seed);
        else if (i % 8 != 0) /* and noise after it */
            twill_noise_add(&noise, &hello.said.call, sizeof(hello.said.call));
        (void)!send(fd, noise.bytes, noise.count, MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
        while (recv(fd, &byte, 1, 0) > 0) /* a refusal at most; then closed */
            ;
        close(fd);
    }
}

/* Rank 1 calls rank 0's detector with changed recordings; then it sends a real notification. */
static void rank_detects(int rank, int size, twill_bootstrap *unused, void *user)
{
    const struct twill_hello_identity identity = {
        .role = TWILL_HELLO_DETECTOR, .rank = 1, .size = 2, .argument = 2};
    struct twill_test_job *job = user;
    struct twill_error error = {0};
    struct twill_oob *oob;
    struct twill_detector *detector;
    struct twill_notice notice = {.comm = 9, .message = "right"};
    TWILL_CHECK_OK(&error, twill_test_job_open(job, rank, &oob, &error));
    TWILL_CHECK_OK(&error, test_detector_start(&detector, oob, 0, &error));
    if (rank == 0) {
        while (!twill_detector_poll(detector, &notice) && !twill_test_failed())
            usleep(100);
        TWILL_CHECK(notice.comm == 9 && notice.from == 1 && strcmp(notice.message, "right") == 0);
        TWILL_CHECK(twill_rejected_total(twill_detector_rejected(detector)) >= 500);
        TWILL_CHECK(twill_detector_rejected(detector)->count[TWILL_FAULT_REPLAYED] > 0);
    } else {
        pester_port(job, detector, &oob->secret, &identity);
        twill_detector_notify(detector, &notice, (const uint32_t[]){0}, 1, TWILL_TEST_PATIENCE);
    }
    TWILL_CHECK(twill_test_gather(oob, 1, 0));
    twill_detector_close(detector);
    twill_oob_close(oob);
}

TWILL_TEST(detects)
{
    struct twill_test_job job;
    int before = twill_test_open_files();
    twill_test_job_init(&job, "127.0.0.1", 2);
    twill_test_run_ranks(2, rank_detects, &job);
    assert_int_equal(twill_test_open_files(), before);
}
