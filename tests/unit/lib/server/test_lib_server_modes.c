/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter servers in every mode: what is counted adds up, parameters are exactly those of the
 * gradients that are in updates; learning rates by staleness and distance in closed form;
 * compression; state in files; hyperparameters that change; what is refused. */
#include "tests/support/server_steps.h"
#include "tests/support/unit.h"

#define MODES_STEPS 20u
#define MODES_COUNT 1000u /* four chunks of 256 floats, the last one shorter */

struct mode_case {
    twill_server_mode mode;
    int k, threads;
    const char *nodes;
    double least, most; /* updates of a chunk for each gradient */
};

/* Create a server of one tensor with the state in files, or NULL. */
static bool open_server(twill_server **server, twill_comm *comm,
                        const twill_server_options *options, const char *path)
{
    TWILL_REQUIRE(twill_server_create(server, comm, options) == TWILL_OK);
    TWILL_REQUIRE(twill_server_add(*server, TWILL_TEST_WEIGHTS(MODES_COUNT), NULL) == TWILL_OK);
    if (path != NULL)
        TWILL_REQUIRE(twill_server_load(*server, path) == TWILL_OK);
    return twill_test_server_ok(*server, twill_server_commit(*server));
}

static bool push_ones(twill_server *server)
{
    for (unsigned step = 0; step < MODES_STEPS; step++)
        TWILL_REQUIRE(twill_test_server_push(server, 0, MODES_COUNT, 1));
    return true;
}

/* Check what a server has counted, after all workers have left. */
static bool check_counts(twill_server *server, const struct mode_case *c, uint64_t workers)
{
    uint64_t histogram[200], sum = 0;
    twill_server_counters n;
    TWILL_REQUIRE(twill_server_count(server, &n) == TWILL_OK);
    TWILL_REQUIRE(twill_server_staleness(server, histogram, 200) == TWILL_OK);
    for (unsigned s = 0; s < 200; s++)
        sum += histogram[s];
    TWILL_REQUIRE(n.chunks_here == 4 && n.versions == n.updates && n.workers == 0);
    TWILL_REQUIRE(n.gradients + n.dropped == workers * MODES_STEPS * n.chunks_here);
    TWILL_REQUIRE(sum == n.gradients && n.duplicates == 0);
    uint64_t part = c->mode == TWILL_SERVER_SYNC ? 0 : n.chunks_here; /* of each one update */
    TWILL_REQUIRE((double)(n.updates + part) >= c->least * (double)n.gradients &&
                  (double)n.updates <= c->most * (double)n.gradients);
    if (c->mode == TWILL_SERVER_SOFTSYNC) /* exactly */
        TWILL_REQUIRE(n.updates == n.gradients / 4 / (workers / (uint64_t)c->k) * 4);
    return true;
}

/* The parameters are minus the gradients that are in updates, all of them ones. */
static bool check_parameters(twill_server *server, int size)
{
    const float *parameters = twill_server_parameters(server, 0);
    for (size_t i = 1; i < 256; i++)
        TWILL_REQUIRE(parameters[i] == parameters[0]);
    TWILL_REQUIRE(parameters[0] <= 0 && parameters[0] == floorf(parameters[0]));
    TWILL_REQUIRE(-parameters[0] <= (float)(MODES_STEPS * (unsigned)size));
    return true;
}

/* Options of servers that subtract the sum of the gradients. */
static twill_server_options sum_options(twill_optimizer *sgd)
{
    twill_server_options options;
    twill_optimizer_defaults(sgd, TWILL_OPTIMIZER_SGD);
    sgd->rate = 1;
    twill_server_defaults(&options);
    options.optimizer = sgd;
    options.chunk_bytes = 1024;
    return options;
}

static const struct mode_case modes[] = {{TWILL_SERVER_SYNC, 1, 0, "5", 0.25, 0.25},
                                         {TWILL_SERVER_K_SYNC, 2, 0, "5", 0.25, 1},
                                         {TWILL_SERVER_K_BATCH_SYNC, 2, 2, "5", 0.25, 0.5},
                                         {TWILL_SERVER_K_ASYNC, 2, 1, "5", 0.25, 1},
                                         {TWILL_SERVER_K_BATCH_ASYNC, 3, 1, "5x1", 0.3, 0.34},
                                         {TWILL_SERVER_ASYNC, 1, 2, "5", 1, 1},
                                         {TWILL_SERVER_SOFTSYNC, 2, 0, "5", 0.5, 0.5},
                                         {TWILL_SERVER_BOUNDED, 3, 0, "5", 1, 1},
                                         {TWILL_SERVER_BOUNDED, 0, 1, "5x1", 1, 1}};

TWILL_TEST_CASES(test_modes, ranks, modes, c->nodes, TWILL_TEST_PATIENT)
{
    twill_server *server = NULL;
    twill_optimizer sgd;
    twill_server_options options = sum_options(&sgd);
    options.layout = TWILL_SERVER_NC;
    options.mode = c->mode;
    options.k = c->k;
    options.threads = c->threads;
    options.op = TWILL_SUM;
    TWILL_CHECK(open_server(&server, comm, &options, NULL));
    if (rank > 0)
        TWILL_CHECK(push_ones(server) && check_parameters(server, size));
    else
        TWILL_CHECK(twill_server_serve(server) == TWILL_OK &&
                    check_counts(server, c, (uint64_t)size - 1));
    twill_server_destroy(server);
}

/* --- learning rates, one worker that never pulls ---------------------------------------------- */

static const struct rate_case {
    twill_server_rate rate;
    bool optimizer; /* else parameters become the gradient */
} rates[] = {{TWILL_SERVER_RATE_STALENESS, true},
             {TWILL_SERVER_RATE_STALENESS, false},
             {TWILL_SERVER_RATE_DISTANCE, true},
             {TWILL_SERVER_RATE_DISTANCE, false}};

TWILL_TEST_CASES(test_rates, ranks, rates, "1", TWILL_TEST_PATIENT)
{
    twill_server *server = NULL;
    twill_optimizer sgd;
    twill_server_options o = sum_options(&sgd);
    double w[4] = {0};
    o.mode = TWILL_SERVER_ASYNC;
    o.rate = c->rate;
    o.distance_c = 40;
    o.distance_most = 0.7;
    o.optimizer = c->optimizer ? &sgd : NULL;
    TWILL_CHECK(open_server(&server, comm, &o, NULL));
    float *gradient = twill_server_gradient(server, 0);
    for (unsigned step = 0; step < MODES_STEPS; step++) {
        for (size_t i = 0; i < MODES_COUNT; i++)
            gradient[i] = 0.5f;
        TWILL_CHECK(twill_server_push(server, 0) == 0 && twill_server_wait(server, 0) == 0);
        for (unsigned chunk = 0; chunk < 4; chunk++) {
            double count = chunk < 3 ? 256 : MODES_COUNT - 768,
                   d = count * w[chunk] * w[chunk]; /* all have pulled 0 */
            double rate = step > 1 ? 1.0 / step : 1;
            if (c->rate == TWILL_SERVER_RATE_DISTANCE)
                rate = d > 0 ? fmin(o.distance_c / d, o.distance_most) : o.distance_most;
            w[chunk] = c->optimizer ? w[chunk] - rate * 0.5 : rate * 0.5;
        }
    }
    TWILL_CHECK(twill_server_pull(server, 0) == 0 && twill_server_wait(server, 0) == 0);
    const float *parameters = twill_server_parameters(server, 0);
    for (size_t i = 0; i < MODES_COUNT; i++)
        TWILL_CHECK(fabs((double)parameters[i] - w[i / 256]) <= 1e-5 * fabs(w[i / 256]));
    TWILL_CHECK(twill_server_version(server, 0) == MODES_STEPS);
    twill_server_destroy(server);
}

/* --- compression: what is not sent is added to the next push ---------------------------------- */

static const struct code_case {
    twill_compression code;
    const char *nodes;
} codes[] = {{TWILL_COMPRESS_F16, "3x1"},      {TWILL_COMPRESS_BF16, "3"},
             {TWILL_COMPRESS_INT8, "3x1"},     {TWILL_COMPRESS_F8E4M3, "3"},
             {TWILL_COMPRESS_F8E5M2, "3x1"},   {TWILL_COMPRESS_TOP_K, "3"},
             {TWILL_COMPRESS_THRESHOLD, "3x1"}};

TWILL_TEST_CASES(test_compression, ranks, codes, c->nodes, TWILL_TEST_PATIENT)
{
    twill_server *server = NULL;
    twill_optimizer sgd;
    twill_server_options options = sum_options(&sgd);
    options.op = TWILL_SUM;
    options.compression = c->code;
    options.compression_ratio = 0.25;
    options.compression_threshold = 0.5;
    TWILL_CHECK(open_server(&server, comm, &options, NULL) && push_ones(server));
    const float *parameters = twill_server_parameters(server, 0);
    double sum = 0;
    for (size_t i = 0; i < MODES_COUNT; i++)
        sum += (double)parameters[i];
    /* All but what is left behind: of top-k with a quarter, at most four steps' gradients. */
    double all = -(double)MODES_STEPS * size * MODES_COUNT;
    TWILL_CHECK(sum <= all * 0.75 && sum >= all * 1.001);
    twill_server_destroy(server);
}

/* --- state in files --------------------------------------------------------------------------- */

static void expect_refused_file(twill_comm *comm, const twill_server_options *options,
                                const char *path, const char *why)
{
    twill_server *server = NULL;
    TWILL_CHECK(twill_server_create(&server, comm, options) == TWILL_OK);
    TWILL_CHECK(twill_server_add(server, TWILL_TEST_WEIGHTS(MODES_COUNT), NULL) == TWILL_OK);
    TWILL_CHECK(twill_server_load(server, path) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(TWILL_SAYS(twill_server_message(server), why));
    twill_server_destroy(server);
}

TWILL_TEST_ON(test_state_files, ranks, TWILL_LAYOUTS("3"), TWILL_TEST_PATIENT)
{
    twill_server *server = NULL;
    twill_optimizer sgd;
    twill_server_options options = sum_options(&sgd);
    char path[64];
    snprintf(path, sizeof(path), "/tmp/twill-server-%d", (int)getpid());
    TWILL_CHECK(open_server(&server, comm, &options, NULL) && push_ones(server));
    TWILL_CHECK(twill_server_save(server, path) == TWILL_OK);
    twill_server_destroy(server);
    options.layout = TWILL_SERVER_CC; /* another layout */
    TWILL_CHECK(open_server(&server, comm, &options, path));
    TWILL_CHECK(twill_server_version(server, 0) == MODES_STEPS);
    const float *parameters = twill_server_parameters(server, 0);
    for (size_t i = 0; i < MODES_COUNT; i++)
        TWILL_CHECK(parameters[i] == -(float)MODES_STEPS);
    twill_server_destroy(server);
    if (rank == 1) {
        options.optimizer = NULL;
        expect_refused_file(comm, &options, path, "another optimizer");
        options.optimizer = &sgd; /* a byte is wrong */
        FILE *file = fopen(twill_test_text("%s.1", path), "r+b");
        TWILL_CHECK(file != NULL && fseek(file, -100, SEEK_END) == 0);
        TWILL_CHECK(fputc(77, file) == 77 && fclose(file) == 0);
        expect_refused_file(comm, &options, path, "checksum");
    }
    TWILL_CHECK(unlink(twill_test_text("%s.%d", path, rank)) == 0);
}

/* --- hyperparameters that change -------------------------------------------------------------- */

/* Only the server changes the rate; the rebuilt server has it, though its ranks were created alike.
 */
TWILL_TEST_ON(test_settings, ranks, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT)
{
    twill_server *server = NULL;
    twill_optimizer sgd, half;
    twill_server_options options = sum_options(&sgd);
    options.layout = TWILL_SERVER_NC;
    half = sgd;
    half.rate = 0.5;
    TWILL_CHECK(open_server(&server, comm, &options, NULL));
    for (unsigned round = 1; round <= 2; round++) {
        if (rank == 0) {
            TWILL_CHECK(round > 1 || twill_server_set_optimizer(server, &half) == TWILL_OK);
            TWILL_CHECK(twill_server_serve(server) == TWILL_OK);
        } else {
            TWILL_CHECK(push_ones(server));
            const float *parameters = twill_server_parameters(server, 0);
            TWILL_CHECK(parameters[0] == -0.5f * (float)(round * MODES_STEPS));
            TWILL_CHECK(twill_server_leave(server) == TWILL_OK);
        }
        if (round == 1)
            TWILL_CHECK(twill_server_rebuild(&server, comm) == TWILL_OK);
    }
    twill_server_destroy(server);
}

/* --- what is refused -------------------------------------------------------------------------- */

TWILL_TEST_ON(test_refused, ranks, TWILL_LAYOUTS("1"), TWILL_TEST_PATIENT)
{
    twill_server *server;
    twill_optimizer sgd;
    twill_server_options options = sum_options(&sgd);
    twill_tensor tensor = {.name = "first", .count = 8, .type = TWILL_F32};
    sgd.clip_norm = 1;
    TWILL_CHECK(TWILL_ENDS(comm, twill_server_create(&server, comm, &options),
                           TWILL_ERR_UNSUPPORTED, "clip_norm"));
    sgd.clip_norm = 0;
    options.chunk_bytes = TWILL_SERVER_WHOLE_TENSORS;
    options.compression = TWILL_COMPRESS_TOP_K;
    TWILL_CHECK(twill_server_create(&server, comm, &options) == TWILL_OK);
    TWILL_CHECK(twill_server_add(server, &tensor, NULL) == TWILL_OK);
    tensor.name = "long";
    tensor.count = (size_t)UINT32_MAX + 1; /* indices in lists have 32 bits */
    TWILL_CHECK(twill_server_add(server, &tensor, NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(TWILL_SAYS(twill_server_message(server), "'long'"));
    TWILL_CHECK(twill_server_load(server, "/nonexistent/state") == TWILL_OK);
    tensor.count = 8;
    TWILL_CHECK(twill_server_add(server, &tensor, NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(TWILL_SAYS(twill_server_message(server), "before the load"));
    twill_server_destroy(server);
}
