/* SPDX-License-Identifier: Apache-2.0 */
/* One rank lacks memory in a rebuild, or in the comparison of the tensors: no rank waits for it,
 * all fail, and a second rebuild goes on with the state. */
#include "lib/server/server.h"
#include "tests/support/ranks.h"
#include "tests/support/sanitizers.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SCARCE_KEYS = 3, SCARCE_COUNT = 500 };

/* Of a thread: the array for which there is no memory, once. count 0: none. */
static _Thread_local volatile struct scarce_array {
    size_t count, bytes;
} scarce;

#if !TEST_SLOW
void *__libc_calloc(size_t count, size_t bytes);

void *calloc(size_t count, size_t bytes)
{
    if (count == 0 || count != scarce.count || bytes != scarce.bytes)
        return __libc_calloc(count, bytes);
    scarce.count = 0;
    return NULL;
}
#endif

static bool push_twos(twill_server *server)
{
    for (int k = 0; k < SCARCE_KEYS; k++) {
        float *gradient = twill_server_gradient(server, k);
        for (size_t i = 0; i < SCARCE_COUNT; i++)
            gradient[i] = 2;
        TWILL_REQUIRE(twill_server_push_pull(server, k) == TWILL_OK);
    }
    return twill_server_wait(server, -1) == TWILL_OK;
}

/* Rank 1 has no memory for `array` in the first rebuild. */
static bool rebuild_twice(twill_server **server, twill_comm *comm, struct scarce_array array)
{
    bool lacks = twill_comm_rank(comm) == 1;
    if (lacks)
        scarce = array;
    TWILL_REQUIRE(twill_server_rebuild(server, comm) == TWILL_ERR_MEMORY);
    TWILL_REQUIRE(scarce.count == 0);
    TWILL_REQUIRE(lacks ||
                  twill_test_note(strstr(twill_server_message(*server), "another rank") != NULL,
                                  __FILE__, __LINE__, "%s", twill_server_message(*server)));
    twill_status status = twill_server_rebuild(server, comm);
    return twill_test_note(status == TWILL_OK, __FILE__, __LINE__, "%s",
                           twill_server_message(*server));
}

static bool run_scarce(twill_server **server, twill_comm *comm)
{
    twill_server_options options;
    twill_optimizer sgd;
    twill_server_defaults(&options);
    twill_optimizer_defaults(&sgd, TWILL_OPTIMIZER_SGD);
    sgd.rate = 1;
    options.optimizer = &sgd;
    options.chunk_bytes = 1024;
    TWILL_REQUIRE(twill_server_create(server, comm, &options) == TWILL_OK);
    for (int k = 0; k < SCARCE_KEYS; k++) {
        const twill_tensor tensor = {.name = k == 0   ? "a"
                                             : k == 1 ? "b"
                                                      : "c",
                                     .count = SCARCE_COUNT,
                                     .type = TWILL_F32};
        TWILL_REQUIRE(twill_server_add(*server, &tensor, NULL) == TWILL_OK);
    }
    TWILL_REQUIRE(twill_server_commit(*server) == TWILL_OK);
    TWILL_REQUIRE(push_twos(*server));
    TWILL_REQUIRE(
        rebuild_twice(server, comm, (struct scarce_array){1, sizeof(struct twill_server)}));
    TWILL_REQUIRE(push_twos(*server));
    TWILL_REQUIRE(
        rebuild_twice(server, comm, (struct scarce_array){2 * SCARCE_KEYS + 1, sizeof(uint64_t)}));
    TWILL_REQUIRE(push_twos(*server));
    const float *parameters = twill_server_parameters(*server, SCARCE_KEYS - 1);
    for (size_t i = 0; i < SCARCE_COUNT; i++)
        TWILL_REQUIRE(parameters[i] == -6);
    return true;
}

static void rank_is_scarce(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const char *const more[] = {TWILL_TEST_PATIENT, NULL};
    twill_context *context = NULL;
    twill_comm *comm = NULL;
    twill_server *server = NULL;
    (void)rank, (void)size, (void)user;
    TWILL_CHECK(twill_test_connect(&context, &comm, bootstrap, "", NULL, more));
    TWILL_CHECK(run_scarce(&server, comm));
    twill_server_destroy(server);
    twill_comm_destroy(comm);
    twill_context_destroy(context);
}

static void test_scarce_rebuild(void **state)
{
    (void)state;
    if (!TEST_SLOW)
        twill_test_run_ranks(2, rank_is_scarce, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scarce_rebuild)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
