/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's memory, which a server maps, stays as it is until the server does not read it any
 * more: when the worker destroys its end, or rebuilds it, before the server does, and when the
 * server does not come. */
#include "lib/server/shard/shard.h"
#include "lib/twill_recover.h"
#include "tests/support/no_threads.h"
#include "tests/support/unit.h"

#define MEMORY_COUNT ((size_t)1 << 20) /* f32: freed blocks of 2 MiB or more read as zeros */
#define MEMORY_LOOKS 50u

static twill_status open_memory_server(twill_server **server, twill_comm *comm, int threads)
{
    twill_server_options options;
    twill_server_defaults(&options);
    options.layout = TWILL_SERVER_NC;
    options.servers = 1;
    options.threads = threads;
    twill_tensor tensor = {.name = "weights", .count = MEMORY_COUNT, .type = TWILL_F32};
    TWILL_TRY(NULL, twill_server_create(server, comm, &options));
    TWILL_TRY(NULL, twill_server_add(*server, &tensor, NULL));
    return twill_server_commit(*server);
}

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
static void rank_of_memory(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    twill_comm *comm;
    twill_server *server = NULL;
    const int *threads = user;
    TWILL_CHECK(twill_test_open(&comm, bootstrap, "2", TWILL_TEST_PATIENT));
    twill_status status = open_memory_server(&server, comm, *threads);
    for (int rebuilds = 1; rebuilds >= 0; rebuilds--) {
        TWILL_CHECK(status == TWILL_OK, "%s", twill_server_message(server));
        TWILL_CHECK(twill_barrier(comm) == TWILL_OK); /* until then rank 0 serves the first pull */
        float *gradient = twill_server_gradient(server, 0);
        TWILL_CHECK((gradient != NULL) == (rank == 1));
        if (rank == 1)
            gradient[MEMORY_COUNT / 2] = 5;
        TWILL_CHECK(twill_test_barrier(bootstrap));
        TWILL_CHECK(rank == 1 || sees_gradient(server));
        if (rebuilds > 0)
            status = twill_server_rebuild(&server, comm);
    }
    twill_server_destroy(server);
    twill_test_close(comm);
}

TWILL_TEST(test_memory_stays)
{
    for (int threads = 0; threads < 2; threads++)
        twill_test_run_ranks(2, rank_of_memory, &threads);
}

/* Rank 1 ends its part, while the thread of rank 0 that would do the same is silent for longer than
 * rank 1 waits; or rank 1's commit has failed in its last exchange, and not that of rank 0. */
static void silent_server(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    twill_comm *comm;
    twill_server *server = NULL;
    const bool *commits = user;
    TWILL_CHECK(twill_test_open(&comm, bootstrap, "2", TWILL_TEST_PATIENT));
    TWILL_CHECK(open_memory_server(&server, comm, 1) == TWILL_OK);
    if (rank == 1) {
        float *gradient = twill_server_gradient(server, 0);
        gradient[MEMORY_COUNT / 2] = 5;
        TWILL_CHECK(twill_comm_set_timeout(server->comm, 0.05) == TWILL_OK);
        server->committed = *commits;
        TWILL_CHECK(twill_test_barrier(bootstrap));
        twill_server_destroy(server);
        TWILL_CHECK(gradient[MEMORY_COUNT / 2] == 5);
        TWILL_CHECK(twill_test_barrier(bootstrap));
    } else {
        TWILL_CHECK(twill_test_barrier(bootstrap));
        TWILL_CHECK(twill_test_barrier(bootstrap));
        TWILL_CHECK(sees_gradient(server));
        server->committed = *commits; /* else it would wait for a worker that has not left */
        twill_server_destroy(server);
    }
    TWILL_CHECK(twill_barrier(comm) == TWILL_OK);
    twill_test_close(comm);
}

TWILL_TEST(test_silent_server)
{
    for (int commits = 0; commits < 2; commits++)
        twill_test_run_ranks(2, silent_server, &(bool){commits != 0});
}

/* --- a commit that fails when some threads run ------------------------------------------------ */

/* Both ranks work and serve. Rank 1 has no thread for its shard and ends its part, while that of
 * rank 0 runs. */
TWILL_TEST_OF_RANKS(test_threadless_server, 2)
{
    twill_comm *comm;
    twill_server *server = NULL;
    twill_server_options options;
    const twill_tensor tensor = {.name = "weights", .count = MEMORY_COUNT, .type = TWILL_F32};
    TWILL_CHECK(twill_test_open(&comm, bootstrap, "2", TWILL_TEST_PATIENT));
    twill_server_defaults(&options);
    options.threads = 1;
    options.chunk_bytes =
        sizeof(float) * MEMORY_COUNT / 2; /* no trial of sizes, which has threads */
    no_threads = rank == 1;
    TWILL_CHECK(twill_server_create(&server, comm, &options) == TWILL_OK);
    TWILL_CHECK(twill_server_add(server, &tensor, NULL) == TWILL_OK);
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
    twill_test_close(comm);
}
