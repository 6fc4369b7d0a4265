/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP bootstrap between ranks that are threads, also with unauthenticated connections. */
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"
#include "tests/support/job_ranks.h"
#include "tests/support/noise.h"
#include "tests/support/unit.h"

#include <netdb.h>
#include <netinet/in.h>

TWILL_TEST(tcp_sizes)
{
    static const int sizes[] = {1, 2, 5, 16};
    struct twill_test_job job;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(sizes); i++) {
        twill_test_job_init(&job, "127.0.0.1", sizes[i]);
        job.odd = (int)i % sizes[i]; /* the rank that is late */
        for (int r = 0; r < sizes[i] && i % 2; r++)
            job.key[r] = "2a2a2a2a2a2a2a2a";
        twill_test_run_ranks(sizes[i], twill_test_rank_gathers, &job);
    }
}

TWILL_TEST(tcp_ipv6)
{
    struct twill_test_job job;
    static const char *const written[] = {"::1", "[::1]"}; /* as in URLs, too */
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(written); i++) {
        twill_test_job_init(&job, written[i], 3);
        int fd = twill_test_listen("::1", job.port);
        if (fd < 0)
            skip();
        close(fd);
        twill_test_run_ranks(3, twill_test_rank_gathers, &job);
    }
}

TWILL_TEST(tcp_host_name)
{
    twill_test_job_run("localhost", 3, 0, twill_test_rank_gathers);
}

/* Bind to the port from another socket, as another program would: 0, or an errno. */
static int bind_elsewhere(const char *port)
{
    struct sockaddr_storage address;
    socklen_t length;
    (void)twill_endpoint_address("127.0.0.1", (uint16_t)atoi(port), &address, &length);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    int why = bind(fd, (struct sockaddr *)&address, length) == 0 ? 0 : errno;
    close(fd);
    return why;
}

/* A rank that gathers. Once all have joined, the port accepts no connection. */
static void rank_finds_closed(int rank, int size, twill_bootstrap *unused, void *user)
{
    const struct twill_test_job *job = user;
    struct twill_error error = {0};
    struct twill_oob *oob;
    struct sockaddr_storage address;
    socklen_t length;
    if (rank == 0)
        usleep(100000); /* the others connect before it takes the launcher's socket */
    TWILL_CHECK_OK(&error, twill_test_job_open(job, rank, &oob, &error));
    TWILL_CHECK(twill_test_gather(oob, 100, 0));
    TWILL_CHECK(twill_endpoint_address(job->host, (uint16_t)atoi(job->port), &address, &length));
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TWILL_CHECK(fd >= 0);
    bool closed = connect(fd, (struct sockaddr *)&address, length) != 0 && errno == ECONNREFUSED;
    TWILL_NOTE(closed, "the port is open when all ranks are there");
    close(fd);
    (void)twill_test_gather(oob, 100, 1);
    twill_oob_close(oob);
}

/* The launcher's socket is used if it is valid, and ignored if not. */
TWILL_TEST(tcp_listen_fd)
{
    static const char *const wrong[] = {"abc", "-1", "0", "999999", "3x"};
    struct twill_test_job job;
    twill_test_job_init(&job, "127.0.0.1", 3);
    int fd = twill_test_listen("127.0.0.1", job.port), off = 0;
    snprintf(job.listen_fd, sizeof(job.listen_fd), "%d", fd);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &off, sizeof(off)),
                     0);                        /* twillrun's */
    assert_int_equal(fcntl(fd, F_SETFD, 0), 0); /* as inherited through exec() */
    for (int again = 0; again < 2; again++) {   /* a second context opens it again */
        twill_test_run_ranks(3, rank_finds_closed, &job);
        assert_int_equal(bind_elsewhere(job.port), EADDRINUSE); /* no other program gets the port */
    }
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC); /* not for programs that this one executes */
    close(fd);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(wrong); i++) {
        twill_test_job_init(&job, "127.0.0.1", 2);
        snprintf(job.listen_fd, sizeof(job.listen_fd), "%s", wrong[i]);
        twill_test_run_ranks(2, twill_test_rank_gathers, &job);
    }
}

/* --- unauthenticated connections ------------------------------------------------------------- */

/* What they send, and whether they get a reason for the refusal. */
struct rendezvous_intruder {
    const char *says; /* raw; NULL: a call */
    struct twill_hello_identity identity;
    bool other_version, other_key;
    enum twill_fault fault;
    const char *refusal; /* NULL: closed without a reason, or refused with `fault` */
    bool silent;         /* sends nothing and stays open */
};

#define JOINS(r, n, t)                                                                             \
    .identity = {.role = TWILL_HELLO_JOIN,                                                         \
                 .rank = (r),                                                                      \
                 .size = (n),                                                                      \
                 .to = (t),                                                                        \
                 .argument = TWILL_TEST_PATIENCE / 1000000}
#define REFUSED(reason) .fault = TWILL_FAULT_REFUSED, .refusal = (reason)

static const struct rendezvous_intruder intruders[] = {
    {.says = "GET / HTTP/1.1\r\nHost: x\r\n\r\n", .fault = TWILL_FAULT_MALFORMED},
    {.says = "\x01\x02\x03\x04garbage garbage garbage garbage garbage garbage garbage garbage "
             "garbage garbage garbage garbage garbage",
     .fault = TWILL_FAULT_MALFORMED},
    {.says = "", .fault = TWILL_FAULT_CLOSED}, /* closes at once */
    {.silent = true, .fault = TWILL_FAULT_SLOW},
    {.says = "W", .silent = true, .fault = TWILL_FAULT_SLOW},
    {.says = "WTWL", .silent = true, .fault = TWILL_FAULT_SLOW},
    {JOINS(1, 4, 0), .other_version = true, .fault = TWILL_FAULT_VERSION},
    {JOINS(1, 4, 0), .other_key = true, .fault = TWILL_FAULT_KEY},
    {JOINS(1, 5, 0), REFUSED("WORLD_SIZE")},
    {JOINS(0, 4, 0), REFUSED("RANK")},
    {JOINS(4, 4, 0), REFUSED("RANK")},
    {JOINS(UINT32_MAX, 4, 0), REFUSED("RANK")},
    {JOINS(1, 4, 1), REFUSED("RANK")},
    {JOINS(2, 4, 0), REFUSED("taken")}, /* by the false rank 2 */
    {.identity = {.role = TWILL_HELLO_DATA, .rank = 1, .size = 4}, .fault = TWILL_FAULT_MALFORMED},
};

/* Without the key, or with another: receives a refusal at most. */
static bool be_refused(int fd, const struct rendezvous_intruder *s)
{
    struct twill_secret secret;
    struct twill_hello hello;
    struct twill_session session;
    TWILL_REQUIRE(twill_secret_parse(&secret, "key", TWILL_TEST_KEY, NULL) == TWILL_OK);
    secret.key[0] ^= s->other_key;
    TWILL_REQUIRE(twill_hello_call(&hello, &secret, &s->identity));
    hello.said.call.version = (uint16_t)(hello.said.call.version + s->other_version);
    enum twill_wire_moved outcome = twill_test_hello_finish(fd, &hello, &session);
    bool refusal = s->fault != TWILL_FAULT_MALFORMED;
    TWILL_REQUIRE(outcome == TWILL_WIRE_GONE && hello.refused == refusal);
    TWILL_REQUIRE(hello.fault == (refusal ? s->fault : TWILL_FAULT_CLOSED));
    return true;
}

static bool receive_refusal(int fd, struct twill_session *session, const char *expected)
{
    char text[TWILL_WIRE_TEXT + 1] = "";
    struct twill_wire_header answer;
    TWILL_REQUIRE(recv(fd, &answer, sizeof(answer), MSG_WAITALL) == (ssize_t)sizeof(answer));
    TWILL_REQUIRE(twill_wire_check(session, &answer) == TWILL_FAULT_NONE);
    TWILL_REQUIRE(answer.kind == TWILL_WIRE_REFUSE && answer.length < sizeof(text));
    TWILL_REQUIRE(recv(fd, text, answer.length, MSG_WAITALL) == (ssize_t)answer.length);
    TWILL_REQUIRE(twill_wire_is_body(&answer, text));
    return TWILL_NOTE(strstr(text, expected) != NULL, "received \"%s\" instead of \"%s\"", text,
                      expected);
}

static bool intrude(const struct twill_test_job *job, const struct rendezvous_intruder *s,
                    int *kept)
{
    char byte;
    struct twill_session session;
    int fd = twill_test_dial(job);
    TWILL_REQUIRE(fd >= 0);
    *kept = s->silent ? fd : -1;
    if (s->says)
        TWILL_REQUIRE(send(fd, s->says, strlen(s->says), MSG_NOSIGNAL) == (ssize_t)strlen(s->says));
    if (s->silent)
        return true;
    if (s->refusal)
        TWILL_REQUIRE(twill_test_hello(fd, &s->identity, &session) &&
                      receive_refusal(fd, &session, s->refusal));
    else if (!s->says)
        TWILL_REQUIRE(be_refused(fd, s));
    if (s->says && !*s->says)
        shutdown(fd, SHUT_WR);
    TWILL_REQUIRE(recv(fd, &byte, 1, 0) <= 0); /* closed */
    close(fd);
    return true;
}

/* Join as rank 2 from another process; it is admitted before this returns. */
static int be_false(const struct twill_test_job *job)
{
    const struct twill_hello_identity identity = twill_test_joins(2, job->size);
    struct twill_session session;
    char garbage[200] = "garbage";
    int fd = twill_test_dial(job), probe = twill_test_dial(job);
    bool sent = twill_test_hello(fd, &identity, &session) &&
                send(probe, garbage, sizeof(garbage), MSG_NOSIGNAL) == (ssize_t)sizeof(garbage);
    /* Once a later connection has been closed, the earlier one has been processed. */
    sent = sent && recv(probe, garbage, 1, 0) <= 0;
    close(probe);
    if (TWILL_NOTE(fd >= 0 && sent, "no way in for a false rank"))
        return fd;
    close(fd);
    return -1;
}

/* Thread 4 plays all the unauthenticated connections, then lets ranks 1 and 2 join. */
static void play_intruders(struct twill_test_job *job)
{
    int kept[TWILL_ARRAY_LENGTH(intruders)];
    int false_rank = be_false(job);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(intruders); i++)
        if (false_rank < 0 || !intrude(job, &intruders[i], &kept[i]))
            return;
    close(false_rank); /* it left: the true rank 2 can join */
    atomic_store(&job->arrived, 1);
    while (atomic_load(&job->arrived) < 1 + job->size && !twill_test_failed())
        usleep(10000);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(intruders); i++)
        if (kept[i] >= 0)
            close(kept[i]);
}

static void rank_among_intruders(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *job = user;
    struct twill_error error = {0};
    struct twill_oob *oob;
    if (rank == job->size) {
        play_intruders(job);
        return;
    }
    while ((rank == 1 || rank == 2) && atomic_load(&job->arrived) == 0 && !twill_test_failed())
        usleep(10000);
    TWILL_CHECK_OK(&error, twill_test_job_open(job, rank, &oob, &error));
    for (int round = 0; round < 3 && twill_test_gather(oob, 100, round); round++)
        ;
    TWILL_CHECK(rank != 0 || strstr(oob->how, " connections rejected (4 malformed, 1 of"));
    for (int fault = 1; rank == 0 && fault < TWILL_FAULTS; fault++) {
        unsigned expected = fault == TWILL_FAULT_MALFORMED; /* the probe */
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(intruders); i++)
            expected += intruders[i].fault == (enum twill_fault)fault;
        /* Ranks of the job may be slow, too, on a busy machine, and connect again. */
        bool more = fault == TWILL_FAULT_SLOW || fault == TWILL_FAULT_CLOSED;
        (void)TWILL_NOTE(oob->rejected.count[fault] == expected ||
                             (more && oob->rejected.count[fault] > expected),
                         "%u of fault %d instead of %u", oob->rejected.count[fault], fault,
                         expected);
    }
    twill_oob_close(oob);
    atomic_fetch_add(&job->arrived, 1);
}

TWILL_TEST(tcp_intruders)
{
    struct twill_test_job job;
    int before = twill_test_open_files();
    twill_test_job_init(&job, "127.0.0.1", 4);
    twill_test_run_ranks(5, rank_among_intruders, &job);
    assert_int_equal(twill_test_open_files(), before);
}

/* A rank that finds another program at the port goes on searching. */
static void rank_finds_intruder(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *job = user;
    if (rank == 0) {
        int fd = twill_test_listen("127.0.0.1", job->port);
        atomic_store(&job->arrived, 1);
        struct pollfd one = {.fd = fd, .events = POLLIN};
        TWILL_CHECK(twill_wire_poll(&one, 1, twill_wire_deadline(TWILL_TEST_PATIENCE)) == 1);
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

TWILL_TEST(tcp_other_service)
{
    twill_test_job_run("127.0.0.1", 2, -1, rank_finds_intruder);
}

/* --- where rank 0 listens ------------------------------------------------------------------- */

/* Rank 0 listens at the given address if it is this host's, else on all, and reports why. */
static void listens(const char *host, bool alone)
{
    struct twill_job job = {.size = 2, .source = "MASTER_ADDR"};
    struct twill_bootstrap_tcp tcp = {
        .oob = {.size = 2, .timeout_ns = TWILL_TEST_SECOND}, .job = &job, .listener = -1};
    struct twill_endpoint here;
    struct twill_error error = {0};
    char port[8];
    int held = twill_test_listen("127.0.0.1", port); /* keeps the port, and does not listen */
    assert_int_equal(shutdown(held, SHUT_RDWR), 0);
    job.port = (uint16_t)atoi(port);
    snprintf(job.hosts, sizeof(job.hosts), "%s", host);
    assert_int_equal(
        twill_bootstrap_tcp_open_port(&tcp, NULL, twill_wire_deadline(TWILL_TEST_SECOND), &error),
        TWILL_OK);
    assert_true(twill_socket_name(tcp.listener, false, &here));
    assert_int_equal(strcmp(here.address, host) == 0, alone);
    assert_int_equal(tcp.wide == NULL, alone);
    close(tcp.listener);
    close(held);
}

TWILL_TEST(tcp_where)
{
    char addresses[320] = "", name[64] = "";
    listens("127.0.0.1", true);
    listens("192.0.2.7", false); /* reserved for documentation: no host has it */
    twill_interface_addresses(addresses, sizeof(addresses));
    addresses[strcspn(addresses, " ")] = '\0';
    if (addresses[0])
        listens(addresses, true);
    assert_int_equal(gethostname(name, sizeof(name) - 1), 0);
    struct addrinfo *found;
    if (strcmp(name, "localhost") != 0 && getaddrinfo(name, NULL, NULL, &found) == 0) {
        freeaddrinfo(found);
        listens(name, false);
    }
}

/* The first of two addresses is that of a program that accepts connections and sends nothing. */
static void rank_by_two_addresses(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct twill_test_job *test = user;
    struct twill_job job = {.rank = rank,
                            .size = size,
                            .port = (uint16_t)atoi(test->port),
                            .listener = -1,
                            .source = "PMI"};
    struct twill_bootstrap_params params = {.job = TWILL_TEST_KEY, .timeout_ns = test->timeout_ns};
    struct twill_error error = {0};
    struct twill_oob *oob;
    snprintf(job.hosts, sizeof(job.hosts), "%s", rank == 0 ? "127.0.0.2" : "127.0.0.1 127.0.0.2");
    TWILL_CHECK_OK(
        &error, twill_bootstrap_tcp_open(&oob, &twill_bootstrap_torchrun, &job, &params, &error));
    (void)twill_test_gather(oob, 100, 0);
    twill_oob_close(oob);
}

TWILL_TEST(tcp_silent_address)
{
    struct twill_test_job job;
    twill_test_job_init(&job, "127.0.0.1", 2);
    int silent = twill_test_listen("127.0.0.1", job.port);
    assert_true(silent >= 0);
    twill_test_run_ranks(2, rank_by_two_addresses, &job);
    close(silent);
}

/* A rank of torchrun, whose agent listens at MASTER_PORT. */
static void rank_beside_agent(int rank, int size, twill_bootstrap *unused, void *user)
{
    static const char *const environment[] = {"TORCHELASTIC_RUN_ID=none",
                                              "TORCHELASTIC_USE_AGENT_STORE=True", NULL};
    struct twill_test_job *job = user;
    struct twill_bootstrap_params params = {.rank = rank == 0 ? "0" : "1",
                                            .world_size = "2",
                                            .master_addr = job->host,
                                            .master_port = job->port,
                                            .job = TWILL_TEST_KEY,
                                            .launcher = "torchrun",
                                            .environment = environment,
                                            .timeout_ns = job->timeout_ns};
    struct twill_error error = {0};
    struct twill_oob *oob;
    TWILL_CHECK_OK(&error, twill_bootstrap_open(&oob, &params, &error));
    (void)twill_test_gather(oob, 100, 0);
    twill_oob_close(oob);
}

TWILL_TEST(tcp_beside_agent)
{
    struct twill_test_job job;
    twill_test_job_init(&job, "127.0.0.1", 2);
    int agent = twill_test_listen("127.0.0.1", job.port);
    assert_true(agent >= 0);
    twill_test_run_ranks(2, rank_beside_agent, &job);
    close(agent);
}
