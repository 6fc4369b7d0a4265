/* SPDX-License-Identifier: Apache-2.0 */
/* One rank lacks memory in a rebuild, or in the comparison of the tensors: no rank waits for it,
 * all fail, and a second rebuild goes on with the state. One lacks descriptors, in the commit or
 * later: all ranks fail at once and name the cause, and no rank waits as it destroys the server. */
#include "lib/server/server.h"
#include "tests/support/server_steps.h"
#include "tests/support/unit.h"

#include <sys/resource.h>

enum { SCARCE_KEYS = 3, SCARCE_COUNT = 500 };
#define FEW_NS 4500000000 /* less than TWILL_TEST_HASTY */

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
    for (int k = 0; k < SCARCE_KEYS; k++)
        TWILL_REQUIRE(twill_test_server_push(server, k, SCARCE_COUNT, 2));
    return true;
}

/* Rank 1 has no memory for `array` in the first rebuild. */
static bool rebuild_twice(twill_server **server, twill_comm *comm, struct scarce_array array)
{
    bool lacks = twill_comm_rank(comm) == 1;
    if (lacks)
        scarce = array;
    TWILL_REQUIRE(twill_server_rebuild(server, comm) == TWILL_ERR_MEMORY);
    TWILL_REQUIRE(scarce.count == 0);
    TWILL_REQUIRE(lacks || TWILL_SAYS(twill_server_message(*server), "another rank"));
    return twill_test_server_ok(*server, twill_server_rebuild(server, comm));
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
        const twill_tensor tensor = {
            .name = (const char *[]){"a", "b", "c"}[k], .count = SCARCE_COUNT, .type = TWILL_F32};
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

TWILL_TEST_ON(test_scarce_rebuild, ranks, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT)
{
    twill_server *server = NULL;
    if (TEST_SLOW)
        return;
    TWILL_CHECK(run_scarce(&server, comm));
    twill_server_destroy(server);
}

/* --- descriptors ----------------------------------------------------------------------------- */

/* Who lacks descriptors: `rank` has `left` of them. */
struct few_descriptors {
    int rank, left;
    twill_server_layout layout;
};

/* Leave this process `left` descriptors below its limit. */
static bool leave_descriptors(int left)
{
    struct rlimit few;
    int fd, last = -1;
    TWILL_REQUIRE(getrlimit(RLIMIT_NOFILE, &few) == 0);
    few.rlim_cur = few.rlim_max = 128;
    TWILL_REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
    while ((fd = dup(0)) >= 0)
        last = fd;
    for (; left > 0; left--)
        TWILL_REQUIRE(close(last--) == 0);
    return true;
}

/* Commit, take a step, which ends once all workers have pushed, and serve. Returns whether a
 * failure names descriptors and the rank that lacks them. */
static bool run_with_few(twill_server *server, const struct few_descriptors *few, int32_t *status)
{
    const char *name = few->rank == 0 ? "rank 0" : "rank 1";
    *status = twill_server_commit(server);
    if (*status == TWILL_OK && twill_server_works(server) &&
        (*status = twill_server_push_pull(server, 0)) == TWILL_OK &&
        (*status = twill_server_wait(server, 0)) == TWILL_OK)
        *status = twill_server_leave(server);
    if (*status == TWILL_OK && twill_server_serves(server))
        *status = twill_server_serve(server);
    const char *message = twill_server_message(server);
    return TWILL_NOTE(*status == TWILL_OK ||
                          (*status == TWILL_ERR_SYSTEM && strstr(message, name) != NULL &&
                           strstr(message, "oo many open files") != NULL),
                      "%d left: %d: %s", few->left, *status, message);
}

static void rank_has_few(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct few_descriptors *few = user;
    const twill_tensor tensor = {.name = "w", .count = SCARCE_COUNT, .type = TWILL_F32};
    twill_context *context = NULL;
    twill_comm *comm = NULL;
    twill_server *server = NULL;
    twill_server_options options;
    int32_t status, statuses[3];
    TWILL_CHECK(twill_test_join(&context, &comm, bootstrap, size == 2 ? "2x1" : "3x1",
                                TWILL_TEST_HASTY, "TWILL_LOG=none", "TWILL_PROVIDER=tcp"));
    twill_server_defaults(&options);
    options.layout = few->layout;
    TWILL_CHECK(twill_server_create(&server, comm, &options) == TWILL_OK);
    TWILL_CHECK(twill_server_add(server, &tensor, NULL) == TWILL_OK);
    if (rank == few->rank)
        TWILL_CHECK(leave_descriptors(few->left));
    uint64_t from = twill_now();
    TWILL_CHECK(run_with_few(server, few, &status));
    TWILL_CHECK(bootstrap->exchange(bootstrap->user, &status, statuses, sizeof(status)) == 0);
    TWILL_CHECK(statuses[0] == statuses[size - 1] && statuses[1] == statuses[0]);
    twill_server_destroy(server);
    TWILL_CHECK(twill_now() - from < FEW_NS); /* also where descriptors lack only in the end */
    twill_comm_leave(comm);
    twill_context_destroy(context);
}

/* With three ranks a worker that is not concerned has to learn it. */
TWILL_TEST(test_few_descriptors)
{
    for (int left = 2; left < 12; left++)
        for (int rank = 0; rank < 2; rank++) {
            static const twill_server_layout layouts[] = {TWILL_SERVER_NC, TWILL_SERVER_CC,
                                                          TWILL_SERVER_NC, TWILL_SERVER_CS};
            struct few_descriptors few = {rank, left, layouts[left % 4]};
            twill_test_run_processes(3 - left % 2, rank_has_few, &few);
        }
}
