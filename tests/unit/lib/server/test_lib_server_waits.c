/* SPDX-License-Identifier: Apache-2.0 */
/* A server without threads advances while its rank waits for another communicator: the other
 * workers need its chunks before they come there. */
#include "lib/twill_server.h"
#include "tests/support/ranks.h"

#include <setjmp.h>

#include <cmocka.h>

#define WAITS_COUNT  20000u
#define WAITS_PUSHES 3u

struct waits_case {
    int size;
    const char *nodes;
};

/* Rank 0, which has all chunks, goes into a barrier at once; the others push and pull first. */
static bool push_during_barrier(twill_comm *comm, twill_server *server, int rank)
{
    float *gradient = twill_server_gradient(server, 0);
    TWILL_REQUIRE(gradient != NULL);
    for (size_t i = 0; i < WAITS_COUNT; i++)
        gradient[i] = (float)rank;
    for (unsigned i = 0; rank > 0 && i < WAITS_PUSHES; i++) {
        TWILL_REQUIRE(twill_server_push_pull(server, 0) == TWILL_OK);
        twill_status status = twill_server_wait(server, 0);
        TWILL_REQUIRE(twill_test_note(status == TWILL_OK, __FILE__, __LINE__, "%s",
                                      twill_server_message(server)));
    }
    TWILL_REQUIRE(twill_barrier(comm) == TWILL_OK);
    twill_server_counters counters;
    TWILL_REQUIRE(twill_server_count(server, &counters) == TWILL_OK);
    unsigned workers = (unsigned)twill_comm_size(comm) - 1;
    TWILL_REQUIRE(counters.updates == counters.chunks_here * workers * WAITS_PUSHES);
    return true;
}

static bool run_waits(twill_comm *comm, int rank)
{
    twill_server_options options;
    twill_server_defaults(&options);
    options.layout = TWILL_SERVER_CC;
    options.mode = TWILL_SERVER_ASYNC;
    twill_server *server;
    TWILL_REQUIRE(twill_server_create(&server, comm, &options) == TWILL_OK);
    twill_tensor tensor = {.name = "weights", .count = WAITS_COUNT, .type = TWILL_F32};
    bool good = twill_server_add(server, &tensor, NULL) == TWILL_OK &&
                twill_server_commit(server) == TWILL_OK;
    good = good && twill_barrier(comm) == TWILL_OK && push_during_barrier(comm, server, rank);
    twill_server_destroy(server);
    TWILL_REQUIRE(good);
    return true;
}

static void rank_waits(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct waits_case *c = user;
    const char *const more[] = {TWILL_TEST_PATIENT, NULL};
    twill_context *context = NULL;
    twill_comm *comm = NULL;
    (void)size;
    if (twill_test_connect(&context, &comm, bootstrap, c->nodes, NULL, more))
        (void)run_waits(comm, rank);
    twill_comm_destroy(comm);
    twill_context_destroy(context);
}

static void test_waits(void **state)
{
    (void)state;
    static const struct waits_case cases[] = {{2, ""}, {3, ""}, {3, "3x1"}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        struct waits_case c = cases[i];
        twill_test_run_ranks(c.size, rank_waits, &c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_waits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
