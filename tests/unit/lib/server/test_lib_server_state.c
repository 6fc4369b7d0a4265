/* SPDX-License-Identifier: Apache-2.0 */
/* State files: tensors whose long names begin alike, gradients that wait for an update, in the same
 * mode and in another one. Ranks whose options differ are told which. Memory is registered with the
 * network in the first exchange, or before. */
#include "lib/server/shard/shard.h"
#include "tests/support/server_steps.h"
#include "tests/support/unit.h"

enum { STATE_COUNT = 600, STATE_KEYS = 2, LONG_NAME = 400 };

struct state_rank {
    twill_comm *comm;
    twill_server *server;
    twill_optimizer sgd;
    char name[STATE_KEYS][LONG_NAME + 1]; /* they differ in their last letters */
    char path[100];
    twill_server_layout layout; /* CS */
};

static bool open_state_server(struct state_rank *r, twill_server_mode mode, bool loads)
{
    twill_server_options options;
    twill_server_defaults(&options);
    twill_optimizer_defaults(&r->sgd, TWILL_OPTIMIZER_SGD);
    r->sgd.rate = 1;
    options.optimizer = &r->sgd;
    options.op = TWILL_SUM;
    options.mode = mode;
    options.layout = r->layout;
    options.k = mode == TWILL_SERVER_ASYNC ? 1 : 3;
    options.chunk_bytes = 1024;
    TWILL_REQUIRE(twill_server_create(&r->server, r->comm, &options) == TWILL_OK);
    for (int k = 0; k < STATE_KEYS; k++) {
        twill_tensor tensor = {.name = r->name[k], .count = STATE_COUNT, .type = TWILL_F32};
        TWILL_REQUIRE(twill_server_add(r->server, &tensor, NULL) == TWILL_OK);
    }
    if (loads)
        TWILL_REQUIRE(twill_test_server_ok(r->server, twill_server_load(r->server, r->path)));
    return twill_test_server_ok(r->server, twill_server_commit(r->server));
}

/* Push a constant of each key, and pull. */
static bool push_constants(struct state_rank *r, float value)
{
    for (int k = 0; k < STATE_KEYS; k++)
        TWILL_REQUIRE(twill_test_server_push(r->server, k, STATE_COUNT, value * (float)(k + 1)));
    return true;
}

static bool check_parameters(struct state_rank *r, float value)
{
    for (int k = 0; k < STATE_KEYS; k++) {
        const float *parameters = twill_server_parameters(r->server, k);
        for (size_t i = 0; i < STATE_COUNT; i++)
            TWILL_REQUIRE(parameters[i] == value * (float)(k + 1), "key %d is %g, not %g", k,
                          (double)parameters[i], (double)value * (k + 1));
    }
    return true;
}

static bool save(struct state_rank *r)
{
    return twill_test_server_ok(r->server, twill_server_save(r->server, r->path));
}

/* Replace the server by one that has what was saved. */
static bool load(struct state_rank *r, twill_server_mode mode)
{
    twill_server_destroy(r->server);
    return open_state_server(r, mode, true);
}

static bool save_and_load(struct state_rank *r)
{
    /* Three gradients are an update; two more wait. */
    TWILL_REQUIRE(open_state_server(r, TWILL_SERVER_K_BATCH_ASYNC, false));
    for (unsigned i = 1; i <= 5; i++)
        TWILL_REQUIRE(push_constants(r, (float)i));
    TWILL_REQUIRE(check_parameters(r, -6) && save(r));
    /* They still wait. */
    TWILL_REQUIRE(load(r, TWILL_SERVER_K_BATCH_ASYNC) && check_parameters(r, -6));
    TWILL_REQUIRE(push_constants(r, 6) && check_parameters(r, -21));
    /* One that holds gradients waits for none of them. */
    TWILL_REQUIRE(load(r, TWILL_SERVER_SYNC));
    TWILL_REQUIRE(r->server->shard[0].chunk[0].version == 1 &&
                  r->server->shard[0].chunk[0].waiting == 0);
    TWILL_REQUIRE(push_constants(r, 1) && check_parameters(r, -7));
    /* A mode that adds none takes the parameters only; what it saves, the first one takes. */
    TWILL_REQUIRE(load(r, TWILL_SERVER_ASYNC));
    TWILL_REQUIRE(push_constants(r, 1) && check_parameters(r, -7) && save(r));
    TWILL_REQUIRE(load(r, TWILL_SERVER_K_BATCH_ASYNC));
    for (unsigned i = 0; i < 3; i++)
        TWILL_REQUIRE(push_constants(r, 1));
    return check_parameters(r, -10);
}

TWILL_TEST_ON(test_files, ranks, TWILL_LAYOUTS("1"), TWILL_TEST_PATIENT)
{
    struct state_rank r = {.comm = comm};
    snprintf(r.path, sizeof(r.path), "/tmp/twill-state-%d", (int)getpid());
    for (int k = 0; k < STATE_KEYS; k++) {
        memset(r.name[k], 'n', LONG_NAME);
        r.name[k][LONG_NAME - 1] = (char)('a' + k);
    }
    (void)save_and_load(&r);
    twill_server_destroy(r.server);
    strcat(r.path, ".0");
    (void)unlink(r.path);
}

/* --- options that differ ---------------------------------------------------------------------- */

TWILL_TEST_ON(test_differences, ranks, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT, "TWILL_LOG=none")
{
    static const char *const words[] = {"options.chunk_bytes", "options.optimizer->rate",
                                        "options.mode"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(words); i++) {
        twill_server *server = NULL;
        twill_server_options options;
        twill_optimizer sgd;
        twill_server_defaults(&options);
        twill_optimizer_defaults(&sgd, TWILL_OPTIMIZER_SGD);
        options.optimizer = &sgd;
        options.chunk_bytes = i == 0 && rank == 1 ? 2048 : 1024;
        sgd.rate = i == 1 && rank == 1 ? 0.25 : 0.5;
        options.mode = i == 2 && rank == 1 ? TWILL_SERVER_ASYNC : TWILL_SERVER_SYNC;
        TWILL_CHECK(twill_server_create(&server, comm, &options) == TWILL_OK);
        TWILL_CHECK(twill_server_commit(server) == TWILL_ERR_MISMATCH);
        const char *message = twill_server_message(server);
        TWILL_CHECK(TWILL_SAYS(message, words[i]));
        if (i == 1)
            TWILL_CHECK(strstr(message, rank == 1 ? "here it is 0.25" : "here it is 0.5") != NULL);
        twill_server_destroy(server);
    }
}

/* --- 100 exchanges ---------------------------------------------------------------------------- */

TWILL_TEST_ON(test_registrations, ranks, TWILL_LAYOUTS("2x1"), TWILL_TEST_PATIENT)
{
    struct state_rank r = {.comm = comm, .name = {"first", "second"}};
    twill_server_counters first, last;
    TWILL_CHECK(open_state_server(&r, TWILL_SERVER_ASYNC, false));
    TWILL_CHECK(push_constants(&r, 1));
    TWILL_CHECK(twill_server_count(r.server, &first) == TWILL_OK);
    for (unsigned i = 1; i < 100; i++)
        TWILL_CHECK(push_constants(&r, 1));
    TWILL_CHECK(twill_server_count(r.server, &last) == TWILL_OK);
    TWILL_CHECK(last.registrations == first.registrations);
    TWILL_CHECK(last.bytes_messages > 99 * sizeof(float) * STATE_COUNT);
    twill_server_destroy(r.server);
}

/* --- too few ranks ---------------------------------------------------------------------------- */

/* A server that is alone for a while cannot be rebuilt, but keeps its state. */
static bool rebuild_alone(struct state_rank *r, twill_comm *alone)
{
    TWILL_REQUIRE(open_state_server(r, TWILL_SERVER_ASYNC, false));
    if (twill_server_role(r->server) == TWILL_SERVER_SERVES)
        TWILL_REQUIRE(twill_server_serve(r->server) == TWILL_OK);
    else {
        TWILL_REQUIRE(push_constants(r, 3));
        TWILL_REQUIRE(twill_server_leave(r->server) == TWILL_OK);
    }
    for (int i = 0; i < 2; i++) {
        TWILL_REQUIRE(twill_server_rebuild(&r->server, alone) == TWILL_ERR_ARGUMENT);
        TWILL_REQUIRE(strstr(twill_comm_message(alone), "leaves no worker") != NULL);
        TWILL_REQUIRE(r->server != NULL);
    }
    TWILL_REQUIRE(twill_server_rebuild(&r->server, r->comm) == TWILL_OK);
    if (twill_server_role(r->server) == TWILL_SERVER_SERVES)
        return true;
    TWILL_REQUIRE(check_parameters(r, -3));
    TWILL_REQUIRE(push_constants(r, 1));
    return check_parameters(r, -4);
}

TWILL_TEST_ON(test_too_few_ranks, ranks, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT, "TWILL_LOG=none")
{
    struct state_rank r = {.comm = comm, .name = {"first", "second"}, .layout = TWILL_SERVER_NC};
    twill_comm *alone = NULL;
    TWILL_CHECK(twill_comm_split(&alone, r.comm, rank, 0) == TWILL_OK);
    (void)rebuild_alone(&r, alone);
    twill_server_destroy(r.server);
    twill_comm_destroy(alone);
}
