/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter servers of processes that are killed: workers go on without a worker, with the right
 * divisor, and from replicas without a server; what is lost is named. */
#include "lib/base/times.h"
#include "lib/server/server.h"
#include "lib/twill_recover.h"
#include "tests/support/server_steps.h"
#include "tests/support/unit.h"

#define DEATH_STEPS 12u
#define DEATH_COUNT 1000u

struct death_case {
    const char *nodes;
    twill_server_layout layout;
    twill_server_mode mode;
    int dies, replicas, threads; /* dies: rank, after half of its steps */
    int late;   /* if not 0, `dies` has pushed before, and this rank pushes after its death only */
    bool polls; /* waits are loops of twill_server_test() */
};

struct death_rank {
    const struct death_case *c;
    twill_comm *comm;
    twill_server *server;
};

static bool open_death_server(struct death_rank *r)
{
    static twill_optimizer sgd; /* each process has its own */
    twill_server_options options;
    twill_server_defaults(&options);
    twill_optimizer_defaults(&sgd, TWILL_OPTIMIZER_SGD);
    sgd.rate = 1;
    options.layout = r->c->layout;
    options.servers = 2;
    options.mode = r->c->mode;
    options.replicas = r->c->replicas;
    options.threads = r->c->threads;
    options.chunk_bytes = 1024;
    options.optimizer = &sgd;
    return twill_test_server_open(&r->server, r->comm, &options, TWILL_TEST_WEIGHTS(DEATH_COUNT));
}

static twill_status await_step(struct death_rank *r)
{
    int done = 0;
    twill_status status = TWILL_OK;
    if (!r->c->polls)
        return twill_server_wait(r->server, 0);
    while (status == TWILL_OK && !done)
        status = twill_server_test(r->server, 0, &done);
    return status;
}

/* Push ones until the version is DEATH_STEPS: averages of them are one, whoever lives. The version
 * may pass half of that and all of it at once. */
static twill_status train(struct death_rank *r, int rank)
{
    while (twill_server_version(r->server, 0) < DEATH_STEPS || rank == r->c->dies) {
        float *gradient = twill_server_gradient(r->server, 0);
        if (rank == r->c->dies && twill_server_version(r->server, 0) >= DEATH_STEPS / 2) {
            twill_test_expect_death(rank);
            if (r->c->late > 0)
                (void)twill_server_push(r->server, 0);
            (void)raise(SIGKILL);
        }
        if (r->c->late > 0 && rank == r->c->late &&
            twill_server_version(r->server, 0) == DEATH_STEPS / 2)
            (void)usleep(800000);
        for (size_t i = 0; i < DEATH_COUNT; i++)
            gradient[i] = 1;
        twill_status status = twill_server_push_pull(r->server, 0);
        if (status == TWILL_OK)
            status = await_step(r);
        if (status != TWILL_OK)
            return status;
        if (r->c->dies == 0)
            (void)usleep(50000); /* the server's death comes by a timer */
    }
    return TWILL_OK;
}

/* All updates of synchronous mode are in the parameters, each once. */
static bool check_trained(struct death_rank *r)
{
    const float *parameters = twill_server_parameters(r->server, 0);
    TWILL_REQUIRE(parameters != NULL);
    for (size_t i = 0; i < DEATH_COUNT && r->c->mode == TWILL_SERVER_SYNC; i++)
        TWILL_REQUIRE(parameters[i] == -(float)DEATH_STEPS);
    return true;
}

/* Define a test with processes that have a server each, by an array of cases. Its body has the
 * parameters r, rank, size and bootstrap. */
#define DEATH_TEST(name, cases)                                                                    \
    static void name##_body(struct death_rank *r, int rank, int size, twill_bootstrap *bootstrap); \
    TWILL_TEST_CASES(name, processes, cases, c->nodes, TWILL_TEST_PATIENT, "TWILL_LOG=none")       \
    {                                                                                              \
        struct death_rank r = {.c = c, .comm = comm};                                              \
        TWILL_CHECK(open_death_server(&r));                                                        \
        name##_body(&r, rank, size, bootstrap);                                                    \
        twill_server_destroy(r.server);                                                            \
        twill_comm_leave(r.comm);                                                                  \
    }                                                                                              \
    static void name##_body(struct death_rank *r, int rank, int size, twill_bootstrap *bootstrap)

static const struct death_case worker_deaths[] = {
    {"4", TWILL_SERVER_NC, TWILL_SERVER_SYNC, 2, 1, 0, 0, false},
    {"4", TWILL_SERVER_NC, TWILL_SERVER_SYNC, 3, 1, 0, 1, false},
    {"4x1", TWILL_SERVER_NC, TWILL_SERVER_SYNC, 3, 1, 1, 0, false},
    {"5", TWILL_SERVER_NCS, TWILL_SERVER_ASYNC, 4, 1, 2, 0, false},
};

/* A worker dies. */
DEATH_TEST(test_worker_dies, worker_deaths)
{
    twill_server_counters n;
    if (twill_server_role(r->server) == TWILL_SERVER_SERVES) {
        TWILL_CHECK(twill_test_server_ok(r->server, twill_server_serve(r->server)));
        TWILL_CHECK(twill_server_count(r->server, &n) == TWILL_OK);
        TWILL_CHECK(n.deaths == 1 && n.duplicates == 0, "%d deaths, %d duplicates", (int)n.deaths,
                    (int)n.duplicates);
        if (r->c->mode == TWILL_SERVER_SYNC)
            TWILL_CHECK(n.versions == DEATH_STEPS * n.chunks_here);
    } else {
        TWILL_CHECK(twill_test_server_ok(r->server, train(r, rank)));
        TWILL_CHECK(check_trained(r));
    }
}

static const struct death_case early_shrinks[] = {
    {"3", TWILL_SERVER_CC, TWILL_SERVER_SYNC, 2, 1, 0, 0, false},
    {"4x1", TWILL_SERVER_CC, TWILL_SERVER_SYNC, 2, 1, 0, 0, false},
    {"2x2", TWILL_SERVER_CC, TWILL_SERVER_SYNC, 3, 1, 0, 0, true},
};

/* A worker dies, and the server, which has no threads, is in twill_comm_shrink() when the others
 * still push and pull: it serves them there, without the dead one, and they come. */
DEATH_TEST(test_worker_dies_server_shrinks, early_shrinks)
{
    twill_comm *smaller = NULL;
    float one = 1, sum = 0;
    if (rank == r->c->dies) {
        twill_test_expect_death(rank);
        (void)raise(SIGKILL);
    }
    for (size_t i = 0; i < DEATH_COUNT; i++)
        ((float *)twill_server_gradient(r->server, 0))[i] = 1;
    TWILL_CHECK(twill_server_push_pull(r->server, 0) == TWILL_OK);
    TWILL_CHECK(rank == 0 || twill_test_server_ok(r->server, await_step(r)));
    TWILL_CHECK(twill_allreduce(r->comm, &one, &sum, 1, TWILL_F32, TWILL_SUM) == TWILL_ERR_PEER);
    TWILL_CHECK(twill_comm_shrink(&smaller, r->comm) == TWILL_OK);
    TWILL_CHECK(await_step(r) == TWILL_OK && twill_server_version(r->server, 0) == 1);
    TWILL_CHECK(twill_allreduce(smaller, &one, &sum, 1, TWILL_F32, TWILL_SUM) == TWILL_OK);
    TWILL_CHECK(sum == (float)(size - 1));
    twill_comm_leave(r->comm);
    r->comm = smaller;
}

static const struct death_case ends_apart[] = {
    {"4", TWILL_SERVER_NCS, TWILL_SERVER_ASYNC, 3, 1, 0, 0, false}};

/* Two servers, a worker that leaves and one that dies. The first server finds that and ends. The
 * second one serves only then, and finds that the other one has ended before it looks at the
 * workers: nobody needs the other one any more. */
DEATH_TEST(test_servers_end_apart, ends_apart)
{
    TWILL_CHECK(twill_barrier(r->comm) == TWILL_OK);
    if (rank == r->c->dies) {
        twill_test_expect_death(rank);
        (void)raise(SIGKILL);
    }
    while (rank == 1 && !twill_test_failed() &&
           !(twill_extend_is_dead(r->server->comm, 0) && twill_extend_is_dead(r->server->comm, 2)))
        (void)usleep(1000);
    if (rank == 1)
        r->server->shard[0].next_check = twill_now() + TWILL_SERVER_CHECK_NS / 2;
    twill_status status = rank < 2 ? twill_server_serve(r->server) : twill_server_leave(r->server);
    TWILL_CHECK(twill_test_server_ok(r->server, status));
}

static const struct death_case none_dies[] = {
    {"2", TWILL_SERVER_CC, TWILL_SERVER_SYNC, -1, 1, 0, 0, false}};

/* A server that lives and does not come is named by the worker whose time is over. */
DEATH_TEST(test_server_is_late, none_dies)
{
    TWILL_CHECK(twill_barrier(r->comm) == TWILL_OK);
    if (rank != 0) {
        TWILL_CHECK(twill_comm_set_timeout(r->server->comm, 0.5) == TWILL_OK);
        TWILL_CHECK(twill_server_push_pull(r->server, 0) == TWILL_OK);
        TWILL_CHECK(await_step(r) == TWILL_ERR_TIMEOUT);
        TWILL_CHECK(TWILL_SAYS(twill_server_message(r->server), ": rank 0 has not answered"));
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    (void)twill_comm_revoke(r->comm);
}

/* --- a server dies ---------------------------------------------------------------------------- */

static twill_status go_on(struct death_rank *r)
{
    twill_comm *smaller = NULL;
    twill_status status = twill_comm_shrink(&smaller, r->comm);
    if (status != TWILL_OK)
        return status;
    twill_status rebuilt = twill_server_rebuild(&r->server, smaller);
    if (rebuilt != TWILL_OK)
        (void)TWILL_NOTE(r->c->replicas == 1 &&
                             strstr(twill_server_message(r->server), "'weights'") != NULL,
                         "%s", twill_server_message(r->server));
    twill_comm_leave(r->comm);
    r->comm = smaller;
    return rebuilt;
}

static const struct death_case server_deaths[] = {
    {"4", TWILL_SERVER_CS, TWILL_SERVER_SYNC, 0, 2, 0, 0, false},
    {"2", TWILL_SERVER_CS, TWILL_SERVER_SYNC, 0, 2, 0, 0, false}, /* one rank is left */
    {"3", TWILL_SERVER_CS, TWILL_SERVER_SYNC, 0, 1, 0, 0, false},
    {"3", TWILL_SERVER_NC, TWILL_SERVER_SYNC, 0, 1, 0, 0, true}, /* all parameters are lost */
    {"4x1", TWILL_SERVER_CS, TWILL_SERVER_SYNC, 0, 2, 1, 0, false},
};

DEATH_TEST(test_server_dies, server_deaths)
{
    TWILL_CHECK(twill_barrier(r->comm) == TWILL_OK);
    if (rank == r->c->dies) {
        twill_test_expect_death(rank);
        (void)ualarm(300000, 0);
    }
    for (;;) {
        bool serves = twill_server_role(r->server) == TWILL_SERVER_SERVES;
        twill_status status = serves ? twill_server_serve(r->server) : train(r, rank);
        if (status == TWILL_OK)
            break;
        TWILL_CHECK(status == TWILL_ERR_PEER, "%s", twill_server_message(r->server));
        TWILL_CHECK(TWILL_SAYS(twill_server_message(r->server), "'weights'"));
        TWILL_CHECK(go_on(r) == (r->c->replicas == 1 ? TWILL_ERR_PEER : TWILL_OK));
        if (r->c->replicas == 1)
            return;
    }
    if (twill_server_role(r->server) != TWILL_SERVER_SERVES)
        TWILL_CHECK(check_trained(r));
}
