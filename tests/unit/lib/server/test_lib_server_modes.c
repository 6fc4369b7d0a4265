/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter servers in every mode: what is counted adds up, parameters are exactly those of the
 * gradients that are in updates; learning rates by staleness and distance in closed form;
 * compression; state in files; hyperparameters that change; what is refused. */
#include "lib/twill_server.h"
#include "tests/support/unit.h"

#define MODES_STEPS 20u
#define MODES_COUNT 1000u /* four chunks of 256 floats, the last one shorter */

struct mode_case {
    int size;
    const char *nodes;
    twill_server_options options;
    double least, most; /* updates of a chunk for each gradient */
    const char *path;
};

struct mode_rank {
    const struct mode_case *c;
    twill_context *context;
    twill_comm *comm;
    twill_server *server;
};

static bool open_server(struct mode_rank *r, const twill_server_options *options, const char *path)
{
    twill_tensor tensor = {.name = "weights", .count = MODES_COUNT, .type = TWILL_F32};
    TWILL_REQUIRE(twill_server_create(&r->server, r->comm, options) == TWILL_OK);
    TWILL_REQUIRE(twill_server_add(r->server, &tensor, NULL) == TWILL_OK);
    if (path != NULL)
        TWILL_REQUIRE(twill_server_load(r->server, path) == TWILL_OK);
    twill_status status = twill_server_commit(r->server);
    return TWILL_NOTE(status == TWILL_OK, "%s", twill_server_message(r->server));
}

static bool push_ones(struct mode_rank *r)
{
    float *gradient = twill_server_gradient(r->server, 0);
    for (unsigned step = 0; step < MODES_STEPS; step++) {
        for (size_t i = 0; i < MODES_COUNT; i++)
            gradient[i] = 1;
        TWILL_REQUIRE(twill_server_push_pull(r->server, 0) == TWILL_OK);
        twill_status status = twill_server_wait(r->server, 0);
        TWILL_REQUIRE(status == TWILL_OK, "%s", twill_server_message(r->server));
    }
    return true;
}

/* Check what a server has counted, after all workers have left. */
static bool check_counts(struct mode_rank *r)
{
    const twill_server_options *o = &r->c->options;
    uint64_t histogram[200], sum = 0, workers = (uint64_t)r->c->size - 1;
    twill_server_counters n;
    TWILL_REQUIRE(twill_server_count(r->server, &n) == TWILL_OK);
    TWILL_REQUIRE(twill_server_staleness(r->server, histogram, 200) == TWILL_OK);
    for (unsigned s = 0; s < 200; s++)
        sum += histogram[s];
    TWILL_REQUIRE(n.chunks_here == 4 && n.versions == n.updates && n.workers == 0);
    TWILL_REQUIRE(n.gradients + n.dropped == workers * MODES_STEPS * n.chunks_here);
    TWILL_REQUIRE(sum == n.gradients && n.duplicates == 0);
    uint64_t part = o->mode == TWILL_SERVER_SYNC ? 0 : n.chunks_here; /* of each one update */
    TWILL_REQUIRE((double)(n.updates + part) >= r->c->least * (double)n.gradients &&
                  (double)n.updates <= r->c->most * (double)n.gradients);
    if (o->mode == TWILL_SERVER_SOFTSYNC) /* exactly */
        TWILL_REQUIRE(n.updates == n.gradients / 4 / (workers / (uint64_t)o->k) * 4);
    return true;
}

/* The parameters are minus the gradients that are in updates, all of them ones. */
static bool check_parameters(struct mode_rank *r)
{
    const float *parameters = twill_server_parameters(r->server, 0);
    for (size_t i = 1; i < 256; i++)
        TWILL_REQUIRE(parameters[i] == parameters[0]);
    TWILL_REQUIRE(parameters[0] <= 0 && parameters[0] == floorf(parameters[0]));
    TWILL_REQUIRE(-parameters[0] <= (float)(MODES_STEPS * (unsigned)r->c->size));
    return true;
}

static void rank_mode(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct mode_rank r = {.c = user};
    if (twill_test_join(&r.context, &r.comm, bootstrap, r.c->nodes, TWILL_TEST_PATIENT) &&
        open_server(&r, &r.c->options, NULL)) {
        if (rank > 0 && push_ones(&r))
            (void)check_parameters(&r);
        if (rank == 0)
            (void)(twill_server_serve(r.server) == TWILL_OK && check_counts(&r));
    }
    twill_server_destroy(r.server);
    twill_test_disconnect(r.comm, r.context);
}

static twill_optimizer sum_rule(void)
{
    twill_optimizer sgd;
    twill_optimizer_defaults(&sgd, TWILL_OPTIMIZER_SGD);
    sgd.rate = 1;
    return sgd;
}

TWILL_TEST(test_modes)
{
    const struct {
        twill_server_mode mode;
        int k, threads;
        const char *nodes;
        double least, most;
    } cases[] = {{TWILL_SERVER_SYNC, 1, 0, "", 0.25, 0.25},
                 {TWILL_SERVER_K_SYNC, 2, 0, "", 0.25, 1},
                 {TWILL_SERVER_K_BATCH_SYNC, 2, 2, "", 0.25, 0.5},
                 {TWILL_SERVER_K_ASYNC, 2, 1, "", 0.25, 1},
                 {TWILL_SERVER_K_BATCH_ASYNC, 3, 1, "5x1", 0.3, 0.34},
                 {TWILL_SERVER_ASYNC, 1, 2, "", 1, 1},
                 {TWILL_SERVER_SOFTSYNC, 2, 0, "", 0.5, 0.5},
                 {TWILL_SERVER_BOUNDED, 3, 0, "", 1, 1},
                 {TWILL_SERVER_BOUNDED, 0, 1, "5x1", 1, 1}};
    twill_optimizer sgd = sum_rule();
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        struct mode_case c = {
            .size = 5, .nodes = cases[i].nodes, .least = cases[i].least, .most = cases[i].most};
        twill_server_defaults(&c.options);
        c.options.layout = TWILL_SERVER_NC;
        c.options.mode = cases[i].mode;
        c.options.k = cases[i].k;
        c.options.threads = cases[i].threads;
        c.options.op = TWILL_SUM;
        c.options.optimizer = &sgd;
        c.options.chunk_bytes = 1024;
        twill_test_run_ranks(c.size, rank_mode, &c);
    }
}

/* --- learning rates, one worker that never pulls ---------------------------------------------- */

static void rank_rates(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct mode_rank r = {.c = user};
    const twill_server_options *o = &r.c->options;
    double w[4] = {0};
    TWILL_CHECK(twill_test_join(&r.context, &r.comm, bootstrap, "", TWILL_TEST_PATIENT));
    TWILL_CHECK(open_server(&r, o, NULL));
    float *gradient = twill_server_gradient(r.server, 0);
    for (unsigned step = 0; step < MODES_STEPS; step++) {
        for (size_t i = 0; i < MODES_COUNT; i++)
            gradient[i] = 0.5f;
        TWILL_CHECK(twill_server_push(r.server, 0) == 0 && twill_server_wait(r.server, 0) == 0);
        for (unsigned chunk = 0; chunk < 4; chunk++) {
            double count = chunk < 3 ? 256 : MODES_COUNT - 768,
                   d = count * w[chunk] * w[chunk]; /* all have pulled 0 */
            double rate = step > 1 ? 1.0 / step : 1;
            if (o->rate == TWILL_SERVER_RATE_DISTANCE)
                rate = d > 0 ? fmin(o->distance_c / d, o->distance_most) : o->distance_most;
            w[chunk] = o->optimizer != NULL ? w[chunk] - rate * 0.5 : rate * 0.5;
        }
    }
    TWILL_CHECK(twill_server_pull(r.server, 0) == 0 && twill_server_wait(r.server, 0) == 0);
    const float *parameters = twill_server_parameters(r.server, 0);
    for (size_t i = 0; i < MODES_COUNT; i++)
        TWILL_CHECK(fabs((double)parameters[i] - w[i / 256]) <= 1e-5 * fabs(w[i / 256]));
    TWILL_CHECK(twill_server_version(r.server, 0) == MODES_STEPS);
    twill_server_destroy(r.server);
    twill_test_disconnect(r.comm, r.context);
}

TWILL_TEST(test_rates)
{
    twill_optimizer sgd = sum_rule();
    for (unsigned rate = TWILL_SERVER_RATE_STALENESS; rate <= TWILL_SERVER_RATE_DISTANCE; rate++) {
        struct mode_case c = {.size = 1};
        twill_server_defaults(&c.options);
        c.options.mode = TWILL_SERVER_ASYNC;
        c.options.rate = (twill_server_rate)rate;
        c.options.distance_c = 40;
        c.options.distance_most = 0.7;
        c.options.optimizer = &sgd;
        c.options.chunk_bytes = 1024;
        twill_test_run_ranks(1, rank_rates, &c);
        c.options.optimizer = NULL; /* parameters become the gradient */
        twill_test_run_ranks(1, rank_rates, &c);
    }
}

/* --- compression: what is not sent is added to the next push ---------------------------------- */

static void rank_compressed(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct mode_rank r = {.c = user};
    TWILL_CHECK(twill_test_join(&r.context, &r.comm, bootstrap, r.c->nodes, TWILL_TEST_PATIENT));
    TWILL_CHECK(open_server(&r, &r.c->options, NULL));
    TWILL_CHECK(push_ones(&r));
    const float *parameters = twill_server_parameters(r.server, 0);
    double sum = 0;
    for (size_t i = 0; i < MODES_COUNT; i++)
        sum += (double)parameters[i];
    /* All but what is left behind: of top-k with a quarter, at most four steps' gradients. */
    double all = -(double)MODES_STEPS * size * MODES_COUNT;
    TWILL_CHECK(sum <= all * 0.75 && sum >= all * 1.001);
    twill_server_destroy(r.server);
    twill_test_disconnect(r.comm, r.context);
}

TWILL_TEST(test_compression)
{
    twill_optimizer sgd = sum_rule();
    for (int code = TWILL_COMPRESS_F16; code <= TWILL_COMPRESS_THRESHOLD; code++) {
        struct mode_case c = {.size = 3, .nodes = code % 2 == 0 ? "" : "3x1"};
        twill_server_defaults(&c.options);
        c.options.op = TWILL_SUM;
        c.options.optimizer = &sgd;
        c.options.chunk_bytes = 1024;
        c.options.compression = (twill_compression)code;
        c.options.compression_ratio = 0.25;
        c.options.compression_threshold = 0.5;
        twill_test_run_ranks(c.size, rank_compressed, &c);
    }
}

/* --- state in files --------------------------------------------------------------------------- */

static void expect_refused_file(struct mode_rank *r, const twill_server_options *options,
                                const char *why)
{
    twill_tensor tensor = {.name = "weights", .count = MODES_COUNT, .type = TWILL_F32};
    TWILL_CHECK(twill_server_create(&r->server, r->comm, options) == TWILL_OK);
    TWILL_CHECK(twill_server_add(r->server, &tensor, NULL) == TWILL_OK);
    TWILL_CHECK(twill_server_load(r->server, r->c->path) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(strstr(twill_server_message(r->server), why) != NULL);
    twill_server_destroy(r->server);
}

static void rank_saves(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct mode_rank r = {.c = user};
    twill_server_options options = r.c->options;
    char name[200];
    TWILL_CHECK(twill_test_join(&r.context, &r.comm, bootstrap, "", TWILL_TEST_PATIENT));
    TWILL_CHECK(open_server(&r, &options, NULL));
    TWILL_CHECK(push_ones(&r));
    TWILL_CHECK(twill_server_save(r.server, r.c->path) == TWILL_OK);
    twill_server_destroy(r.server);
    options.layout = TWILL_SERVER_CC; /* another layout */
    TWILL_CHECK(open_server(&r, &options, r.c->path));
    TWILL_CHECK(twill_server_version(r.server, 0) == MODES_STEPS);
    const float *parameters = twill_server_parameters(r.server, 0);
    for (size_t i = 0; i < MODES_COUNT; i++)
        TWILL_CHECK(parameters[i] == -(float)MODES_STEPS);
    twill_server_destroy(r.server);
    r.server = NULL;
    if (rank == 1) {
        const twill_optimizer *sgd = options.optimizer;
        options.optimizer = NULL;
        expect_refused_file(&r, &options, "another optimizer");
        options.optimizer = sgd; /* a byte is wrong */
        snprintf(name, sizeof(name), "%s.1", r.c->path);
        FILE *file = fopen(name, "r+b");
        TWILL_CHECK(file != NULL && fseek(file, -100, SEEK_END) == 0);
        TWILL_CHECK(fputc(77, file) == 77 && fclose(file) == 0);
        expect_refused_file(&r, &options, "checksum");
    }
    snprintf(name, sizeof(name), "%s.%d", r.c->path, rank);
    TWILL_CHECK(unlink(name) == 0);
    twill_test_disconnect(r.comm, r.context);
}

TWILL_TEST(test_state_files)
{
    twill_optimizer sgd = sum_rule();
    char folder[] = "/tmp/twill-server-XXXXXX", path[100];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/state", folder);
    struct mode_case c = {.size = 3, .path = path};
    twill_server_defaults(&c.options);
    c.options.optimizer = &sgd;
    c.options.chunk_bytes = 1024;
    twill_test_run_ranks(c.size, rank_saves, &c);
    assert_int_equal(rmdir(folder), 0);
}

/* --- hyperparameters that change -------------------------------------------------------------- */

/* Only the server changes the rate; the rebuilt server has it, though its ranks were created alike.
 */
static void rank_settings(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct mode_rank r = {.c = user};
    twill_optimizer half = *r.c->options.optimizer;
    half.rate = 0.5;
    TWILL_CHECK(twill_test_join(&r.context, &r.comm, bootstrap, "", TWILL_TEST_PATIENT));
    TWILL_CHECK(open_server(&r, &r.c->options, NULL));
    for (unsigned round = 1; round <= 2; round++) {
        if (rank == 0) {
            TWILL_CHECK(round > 1 || twill_server_set_optimizer(r.server, &half) == TWILL_OK);
            TWILL_CHECK(twill_server_serve(r.server) == TWILL_OK);
        } else {
            TWILL_CHECK(push_ones(&r));
            const float *parameters = twill_server_parameters(r.server, 0);
            TWILL_CHECK(parameters[0] == -0.5f * (float)(round * MODES_STEPS));
            TWILL_CHECK(twill_server_leave(r.server) == TWILL_OK);
        }
        if (round == 1)
            TWILL_CHECK(twill_server_rebuild(&r.server, r.comm) == TWILL_OK);
    }
    twill_server_destroy(r.server);
    twill_test_disconnect(r.comm, r.context);
}

TWILL_TEST(test_settings)
{
    twill_optimizer sgd = sum_rule();
    struct mode_case c = {.size = 2};
    twill_server_defaults(&c.options);
    c.options.layout = TWILL_SERVER_NC;
    c.options.optimizer = &sgd;
    c.options.chunk_bytes = 1024;
    twill_test_run_ranks(c.size, rank_settings, &c);
}

/* --- what is refused -------------------------------------------------------------------------- */

static void rank_refused(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct mode_rank r = {.c = user};
    twill_server_options options;
    twill_optimizer sgd = sum_rule();
    twill_tensor tensor = {.name = "first", .count = 8, .type = TWILL_F32};
    TWILL_CHECK(twill_test_join(&r.context, &r.comm, bootstrap, "", TWILL_TEST_PATIENT));
    twill_server_defaults(&options);
    sgd.clip_norm = 1;
    options.optimizer = &sgd;
    TWILL_CHECK(twill_server_create(&r.server, r.comm, &options) == TWILL_ERR_UNSUPPORTED);
    TWILL_CHECK(strstr(twill_comm_message(r.comm), "clip_norm") != NULL);
    sgd.clip_norm = 0;
    options.chunk_bytes = TWILL_SERVER_WHOLE_TENSORS;
    options.compression = TWILL_COMPRESS_TOP_K;
    TWILL_CHECK(twill_server_create(&r.server, r.comm, &options) == TWILL_OK);
    TWILL_CHECK(twill_server_add(r.server, &tensor, NULL) == TWILL_OK);
    tensor.name = "long";
    tensor.count = (size_t)UINT32_MAX + 1; /* indices in lists have 32 bits */
    TWILL_CHECK(twill_server_add(r.server, &tensor, NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(strstr(twill_server_message(r.server), "'long'") != NULL);
    TWILL_CHECK(twill_server_load(r.server, "/nonexistent/state") == TWILL_OK);
    tensor.count = 8;
    TWILL_CHECK(twill_server_add(r.server, &tensor, NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(strstr(twill_server_message(r.server), "twill_server_load") != NULL);
    twill_server_destroy(r.server);
    twill_test_disconnect(r.comm, r.context);
}

TWILL_TEST(test_refused)
{
    struct mode_case c = {.size = 1};
    twill_test_run_ranks(1, rank_refused, &c);
}
