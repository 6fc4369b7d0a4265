/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's memory, which a server maps, stays as it is until the server does not read it any
 * more: when the worker destroys its end, or rebuilds it, before the server does, and when the
 * server does not come. */
#include "lib/server/shard/shard.h"
#include "lib/twill_recover.h"
#include "tests/support/no_threads.h"
#include "tests/support/server_steps.h"
#include "tests/support/unit.h"

#define MEMORY_COUNT ((size_t)1 << 20) /* f32: freed blocks of 2 MiB or more read as zeros */
#define MEMORY_LOOKS 50u

static bool open_memory_server(twill_server **server, twill_comm *comm, int threads)
{
    twill_server_options options;
    twill_server_defaults(&options);
    options.layout = TWILL_SERVER_NC;
    options.servers = 1;
    options.threads = threads;
    return twill_test_server_open(server, comm, &options, TWILL_TEST_WEIGHTS(MEMORY_COUNT));
}

static const int numbers_of_threads[] = {0, 1};

/* Look at the worker's gradient, as the server maps it, while the worker goes on. */
static bool sees_gradient(const struct twill_server *server)
{
    const float *sent = (const void *)server->shard[0].worker[0].key[0].sent;
    bool same = sent != NULL;
    for (unsigned i = 0; i < MEMORY_LOOKS && same; i++) {
        same = sent[MEMORY_COUNT / 2] == 5;
        (void)usleep(1000);
    }
    return same;
}

/* Rank 1 works. It rebuilds, and then destroys, each time before rank 0 does. */
TWILL_TEST_CASES(test_memory_stays, ranks, numbers_of_threads, "1x2", TWILL_TEST_PATIENT)
{
    twill_server *server;
    TWILL_CHECK(open_memory_server(&server, comm, *c));
    for (int rebuilds = 1; rebuilds >= 0; rebuilds--) {
        TWILL_CHECK(twill_barrier(comm) == TWILL_OK); /* until then rank 0 serves the first pull */
        float *gradient = twill_server_gradient(server, 0);
        TWILL_CHECK((gradient != NULL) == (rank == 1));
        if (rank == 1)
            gradient[MEMORY_COUNT / 2] = 5;
        TWILL_CHECK(twill_test_barrier(bootstrap));
        TWILL_CHECK(rank == 1 || sees_gradient(server));
        if (rebuilds > 0)
            TWILL_CHECK(twill_test_server_ok(server, twill_server_rebuild(&server, comm)));
    }
    twill_server_destroy(server);
}

static const bool commits[] = {false, true};

/* Rank 1 ends its part, while the thread of rank 0 that would do the same is silent for longer than
 * rank 1 waits; or rank 1's commit has failed in its last exchange, and not that of rank 0. */
TWILL_TEST_CASES(test_silent_server, ranks, commits, "1x2", TWILL_TEST_PATIENT)
{
    twill_server *server;
    TWILL_CHECK(open_memory_server(&server, comm, 1));
    if (rank == 1) {
        float *gradient = twill_server_gradient(server, 0);
        gradient[MEMORY_COUNT / 2] = 5;
        TWILL_CHECK(twill_comm_set_timeout(server->comm, 0.05) == TWILL_OK);
        server->committed = *c;
        TWILL_CHECK(twill_test_barrier(bootstrap));
        twill_server_destroy(server);
        TWILL_CHECK(gradient[MEMORY_COUNT / 2] == 5);
        TWILL_CHECK(twill_test_barrier(bootstrap));
    } else {
        TWILL_CHECK(twill_test_barrier(bootstrap));
        TWILL_CHECK(twill_test_barrier(bootstrap));
        TWILL_CHECK(sees_gradient(server));
        server->committed = *c; /* else it would wait for a worker that has not left */
        twill_server_destroy(server);
    }
    TWILL_CHECK(twill_barrier(comm) == TWILL_OK);
}

/* --- a commit that fails when some threads run ------------------------------------------------ */

/* Both ranks work and serve. Rank 1 has no thread for its shard and ends its part, while that of
 * rank 0 runs. */
TWILL_TEST_ON(test_threadless_server, ranks, TWILL_LAYOUTS("1x2"), TWILL_TEST_PATIENT)
{
    twill_server *server = NULL;
    twill_server_options options;
    twill_server_defaults(&options);
    options.threads = 1;
    options.chunk_bytes =
        sizeof(float) * MEMORY_COUNT / 2; /* no trial of sizes, which has threads */
    no_threads = rank == 1;
    TWILL_CHECK(twill_server_create(&server, comm, &options) == TWILL_OK);
    TWILL_CHECK(twill_server_add(server, TWILL_TEST_WEIGHTS(MEMORY_COUNT), NULL) == TWILL_OK);
    twill_status status = twill_server_commit(server);
    TWILL_CHECK(status == TWILL_ERR_SYSTEM, "%d: %s", status, twill_server_message(server));
    TWILL_CHECK(server->shard != NULL && server->shard[0].thread.running == (rank == 0));
    const unsigned char *sent = server->shard[0].worker[1].key[0].sent;
    if (rank == 1) {
        server->key[0].sent[MEMORY_COUNT / 2] = 5;
        twill_server_destroy(server);
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank == 0) {
        TWILL_CHECK(sent[MEMORY_COUNT / 2] == 5);
        twill_server_destroy(server);
    }
    TWILL_CHECK(twill_barrier(comm) == TWILL_OK);
}
