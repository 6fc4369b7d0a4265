/* SPDX-License-Identifier: Apache-2.0 */
/* A server without threads advances while its rank waits for another communicator: the other
 * workers need its chunks before they come there. And a wait of one thread ends as another one
 * fails. A thread that does not come back keeps the server. */
#include "lib/comm/comm.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/server/server.h"
#include "tests/support/server_steps.h"
#include "tests/support/unit.h"

#define WAITS_COUNT  20000u
#define WAITS_PUSHES 3u
#define KEPT_NS      10000000 /* patience with a thread that does not come back */

/* Rank 0, which has all chunks, goes into a barrier at once; the others push and pull first. */
static bool push_during_barrier(twill_comm *comm, twill_server *server, int rank)
{
    for (unsigned i = 0; rank > 0 && i < WAITS_PUSHES; i++)
        TWILL_REQUIRE(twill_test_server_push(server, 0, WAITS_COUNT, (float)rank));
    TWILL_REQUIRE(twill_barrier(comm) == TWILL_OK);
    twill_server_counters counters;
    TWILL_REQUIRE(twill_server_count(server, &counters) == TWILL_OK);
    unsigned workers = (unsigned)twill_comm_size(comm) - 1;
    TWILL_REQUIRE(counters.updates == counters.chunks_here * workers * WAITS_PUSHES);
    return true;
}

static bool open_waits(twill_server **server, twill_comm *comm)
{
    twill_server_options options;
    twill_server_defaults(&options);
    options.layout = TWILL_SERVER_CC;
    options.mode = TWILL_SERVER_ASYNC;
    return twill_test_server_open(server, comm, &options, TWILL_TEST_WEIGHTS(WAITS_COUNT));
}

TWILL_TEST_ON(test_waits, ranks, TWILL_LAYOUTS("2", "3", "3x1"), TWILL_TEST_PATIENT)
{
    twill_server *server;
    TWILL_CHECK(open_waits(&server, comm) && twill_barrier(comm) == TWILL_OK);
    TWILL_CHECK(push_during_barrier(comm, server, rank));
    twill_server_destroy(server);
}

static bool never_done(struct twill_server *server, int key)
{
    return false;
}

static void *fail_server(void *server)
{
    (void)TWILL_SERVER_FAIL(server, TWILL_ERR_PEER, "another thread has found this");
    return NULL;
}

/* Another thread fails the server while this one waits, which has its status and sentence then.
 * Only the thread sanitizer sees whether they are there for sure. */
TWILL_TEST_ON(test_fails, ranks, TWILL_LAYOUTS("1x1"), TWILL_TEST_PATIENT)
{
    twill_server *server;
    pthread_t thread;
    TWILL_CHECK(open_waits(&server, comm));
    TWILL_CHECK(pthread_create(&thread, NULL, fail_server, server) == 0);
    TWILL_CHECK(twill_server_await(server, never_done, 0, "this") == TWILL_ERR_PEER);
    TWILL_CHECK(strcmp(twill_server_message(server), "another thread has found this") == 0);
    pthread_join(thread, NULL);
    twill_server_destroy(server);
}

/* Calls that read or change a shard do not wait for ever for a thread that is in it. */
static bool check_locked(struct twill_server *server)
{
    twill_server_counters counters;
    uint64_t staleness[2];
    TWILL_REQUIRE(twill_shard_try_lock(&server->shard[0]));
    TWILL_REQUIRE(twill_server_count(server, &counters) == TWILL_ERR_TIMEOUT);
    TWILL_REQUIRE(strstr(twill_server_message(server), "twill_server_count: another thread") !=
                  NULL);
    TWILL_REQUIRE(twill_server_staleness(server, staleness, 2) == TWILL_ERR_TIMEOUT);
    TWILL_REQUIRE(twill_server_save(server, "/dev/null/state") == TWILL_ERR_TIMEOUT);
    twill_shard_unlock(&server->shard[0]);
    TWILL_REQUIRE(twill_server_count(server, &counters) == TWILL_OK);
    return true;
}

/* A thread that advances the server does not come back in time: the server is neither freed nor
 * rebuilt, and what the thread uses stays. Once it has come back, the server can be freed. */
TWILL_TEST_ON(test_is_kept, ranks, TWILL_LAYOUTS("1x1"), TWILL_TEST_PATIENT)
{
    twill_server *server;
    TWILL_CHECK(open_waits(&server, comm));
    struct twill_server *same = server;
    int64_t *timeout = &comm->context->config->number[TWILL_VARIABLE_TIMEOUT], patient = *timeout;
    *timeout = KEPT_NS; /* of the thread only: its communicators keep theirs */
    server->process.timeout_ns = KEPT_NS;
    TWILL_CHECK(check_locked(server));
    atomic_fetch_add(&server->hook->calls, 1);
    TWILL_CHECK(twill_server_rebuild(&server, comm) == TWILL_ERR_TIMEOUT && server == same);
    TWILL_CHECK(strstr(twill_server_message(server), "TWILL_TIMEOUT") != NULL);
    twill_server_destroy(server);
    TWILL_CHECK(server->hook->calls == 1 && twill_comm_is_live(server->comm));
    TWILL_CHECK(twill_server_parameters(server, 0) != NULL);
    atomic_fetch_sub(&server->hook->calls, 1);
    *timeout = patient;
    twill_server_destroy(server);
}
