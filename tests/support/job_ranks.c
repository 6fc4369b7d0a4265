/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs whose ranks are threads that bootstrap over TCP. */
#include "tests/support/job_ranks.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

/* Ports below those of connections (net.ipv4.ip_local_port_range). A process reserves a block of
 * them while it lives, so that a port that is closed and opened again is not taken by another
 * test. */
enum { FIRST_PORT = 10000, RANGES = 100, RANGE = 100 };

static struct {
    pthread_mutex_t mutex;
    pid_t owner;
    unsigned range, next;
    int held; /* keeps the port of the last job, so that no other program gets it before rank 0 */
} ports = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Reserve a block, by an abstract socket that lives as long as the process and is seen in its
 * network namespace. Before main(), for tests that count descriptors. If no block is free, one is
 * shared. */
__attribute__((constructor)) static void take_ports(void)
{
    int holder = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ports.owner = getpid();
    if (ports.held == 0) /* from the start, for tests that count descriptors */
        ports.held = fcntl(holder, F_DUPFD_CLOEXEC, 0);
    for (unsigned tries = 0; tries < RANGES; tries++) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        ports.range = ((unsigned)ports.owner + tries) % RANGES;
        int length =
            snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "test-ports-%u", ports.range);
        if (bind(holder, (struct sockaddr *)&name,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0)
            break;
    }
}

/* Return the next port; a child process first reserves a block. */
static unsigned next_port(void)
{
    pthread_mutex_lock(&ports.mutex);
    if (ports.owner != getpid())
        take_ports();
    unsigned number = FIRST_PORT + ports.range * RANGE + ports.next++ % RANGE;
    pthread_mutex_unlock(&ports.mutex);
    return number;
}

int twill_test_listen(const char *host, char port[8])
{
    struct sockaddr_storage address;
    socklen_t length;
    unsigned number = 0;
    int fd = -1;
    for (int tries = 0; tries < RANGE && fd < 0; tries++) {
        number = next_port();
        assert_true(twill_endpoint_address(host, (uint16_t)number, &address, &length));
        fd = twill_socket_listen((struct sockaddr *)&address, length, 64);
        if (fd < 0 && errno != EADDRINUSE)
            break;
    }
    snprintf(port, 8, "%u", number);
    return fd;
}

void twill_test_job_init(struct twill_test_job *job, const char *host, int size)
{
    memset(job, 0, sizeof(*job));
    job->host = host;
    job->size = size;
    job->timeout_ns = TWILL_TEST_PATIENCE;
    close(ports.held);
    ports.held = twill_test_listen("127.0.0.1", job->port);
    assert_true(ports.held >= 0);
    assert_int_equal(shutdown(ports.held, SHUT_RDWR), 0); /* it no longer listens */
}

void twill_test_job_run(const char *host, int size, int odd, twill_rank_fn fn)
{
    struct twill_test_job job;
    twill_test_job_init(&job, host, size);
    job.odd = odd;
    twill_test_run_ranks(size, fn, &job);
}

twill_status twill_test_job_open(const struct twill_test_job *job, int rank, struct twill_oob **oob,
                                 struct twill_error *error)
{
    char rank_text[16], size_text[16];
    struct twill_bootstrap_params params = {.rank = rank_text,
                                            .world_size = size_text,
                                            .master_addr = job->host,
                                            .master_port = job->port,
                                            .job = job->key[rank] ? job->key[rank] : TWILL_TEST_KEY,
                                            .listen_fd = rank == 0 ? job->listen_fd : NULL,
                                            .timeout_ns = job->timeout_ns};
    snprintf(rank_text, sizeof(rank_text), "%d", rank);
    snprintf(size_text, sizeof(size_text), "%d", job->size);
    twill_error_clear(error);
    return twill_bootstrap_open(oob, &params, error);
}

static unsigned char pattern(int rank, size_t i, int round)
{
    return (unsigned char)((size_t)rank * 31 + i * 7 + (size_t)round);
}

bool twill_test_gather(struct twill_oob *oob, size_t bytes, int round)
{
    struct twill_error error = {0};
    unsigned char *mine = malloc(bytes + 1), *all = malloc(bytes * (size_t)oob->size + 1);
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; i++)
        mine[i] = pattern(oob->rank, i, round);
    twill_status status = twill_oob_allgather(oob, mine, all, bytes, &error);
    for (int r = 0; status == TWILL_OK && r < oob->size; r++)
        for (size_t i = 0; i < bytes; i++)
            wrong += all[(size_t)r * bytes + i] != pattern(r, i, round);
    free(mine);
    free(all);
    return TWILL_NOTE(status == TWILL_OK && wrong == 0,
                      "rank %d: %zu bytes, round %d: status %d, %zu wrong: %s", oob->rank, bytes,
                      round, status, wrong, error.message);
}

void twill_test_rank_gathers(int rank, int size, twill_bootstrap *unused, void *user)
{
    static const size_t sizes[] = {1, 0, 48, 4096, 100000, 3};
    struct twill_test_job *job = user;
    struct twill_error error = {0};
    struct twill_oob *oob;
    uint8_t nonces[16][TWILL_NONCE_BYTES];
    if (job->odd == rank)
        usleep(300000);
    TWILL_CHECK_OK(&error, twill_test_job_open(job, rank, &oob, &error));
    TWILL_CHECK(oob->rank == rank && oob->size == size);
    TWILL_CHECK(
        strcmp(oob->ops->name, job->key[rank] && !*job->key[rank] ? "torchrun" : "twillrun") == 0);
    /* /etc/hosts may give localhost either address, and Debian's gives both. */
    bool six = strcmp(oob->address, "::1") == 0;
    TWILL_CHECK(six || strcmp(oob->address, "127.0.0.1") == 0);
    TWILL_CHECK(strcmp(job->host, "localhost") == 0 || six == (strstr(job->host, "::1") != NULL));
    TWILL_CHECK(strstr(oob->how, "RANK=") && strstr(oob->how, job->port));
    TWILL_CHECK_OK(&error, twill_oob_allgather(oob, oob->nonce, nonces, sizeof(nonces[0]), &error));
    for (int r = 0; r < size; r++)
        TWILL_CHECK(memcmp(nonces[r], oob->nonce, sizeof(nonces[0])) == 0);
    for (int round = 0; round < 6; round++)
        if (!twill_test_gather(oob, sizes[round], round))
            break;
    twill_oob_close(oob);
}

int twill_test_dial_port(const struct twill_test_job *job, int port)
{
    struct sockaddr_storage address;
    socklen_t length;
    (void)twill_endpoint_address(job->host, (uint16_t)port, &address, &length);
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    while (twill_now() < limit && !twill_test_failed()) {
        int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&address, length) == 0 &&
            twill_socket_connected(fd) == 0)
            return fd;
        close(fd);
        usleep(20000);
    }
    return -1;
}

int twill_test_dial(const struct twill_test_job *job)
{
    return twill_test_dial_port(job, atoi(job->port));
}

enum twill_wire_moved twill_test_hello_finish(int fd, struct twill_hello *hello,
                                              struct twill_session *session)
{
    enum twill_wire_moved outcome;
    do
        outcome = twill_hello_move(hello, fd, session);
    while (outcome == TWILL_WIRE_LATER &&
           twill_wire_wait(fd, hello->events, twill_wire_deadline(TWILL_TEST_PATIENCE)) ==
               TWILL_WIRE_DONE);
    return outcome;
}

bool twill_test_hello(int fd, const struct twill_hello_identity *identity,
                      struct twill_session *session)
{
    struct twill_secret secret;
    struct twill_hello hello;
    TWILL_REQUIRE(twill_secret_parse(&secret, "key", TWILL_TEST_KEY, NULL) == TWILL_OK);
    TWILL_REQUIRE(twill_hello_call(&hello, &secret, identity));
    return twill_test_hello_finish(fd, &hello, session) == TWILL_WIRE_DONE;
}

bool twill_test_outcome_is(int rank, twill_status status, const struct twill_error *error,
                           twill_status expected, const char *says)
{
    return TWILL_NOTE(status == expected && strstr(error->message, says),
                      "rank %d: status %d, \"%s\"; expected %d, \"%s\"", rank, status,
                      error->message, expected, says);
}
