/* SPDX-License-Identifier: Apache-2.0 */
/* Downpour SGD: threads that push and threads that pull, Adagrad on the shard against a scalar
 * oracle, workers that leave at any time; and what is refused, in sentences. */
#include "lib/twill_server.h"
#include "tests/support/unit.h"

#define POUR_COUNT 700u
#define POUR_STEPS 30u

struct pour_case {
    int size, threads;
    const char *nodes;
    twill_server_mode mode;
    bool replicated;
};

struct pour_rank {
    twill_context *context;
    twill_comm *comm;
    twill_server *server;
    _Atomic bool pushed;
    twill_status push_status, pull_status;
    uint64_t pulls;
};

static bool open_pour_server(struct pour_rank *r, const struct pour_case *c,
                             twill_bootstrap *bootstrap, twill_optimizer *adagrad)
{
    twill_server_options options;
    twill_tensor tensor = {.name = "weights", .count = POUR_COUNT, .type = TWILL_F32};
    TWILL_REQUIRE(twill_test_join(&r->context, &r->comm, bootstrap, c->nodes, TWILL_TEST_PATIENT));
    twill_server_defaults(&options);
    twill_optimizer_defaults(adagrad, TWILL_OPTIMIZER_ADAGRAD);
    adagrad->rate = 0.5;
    options.mode = c->mode;
    options.threads = c->threads;
    options.optimizer = adagrad;
    options.op = TWILL_SUM;
    options.chunk_bytes = 1024;
    options.replicas = c->replicated ? 2 : 1;
    TWILL_REQUIRE(twill_server_create(&r->server, r->comm, &options) == TWILL_OK);
    TWILL_REQUIRE(twill_server_add(r->server, &tensor, NULL) == TWILL_OK);
    twill_status status = twill_server_commit(r->server);
    return TWILL_NOTE(status == TWILL_OK, "%s", twill_server_message(r->server));
}

static void close_pour_server(struct pour_rank *r)
{
    twill_server_destroy(r->server);
    twill_test_disconnect(r->comm, r->context);
}

static void *push_thread(void *argument)
{
    struct pour_rank *r = argument;
    float *gradient = twill_server_gradient(r->server, 0);
    for (unsigned step = 0; step < POUR_STEPS && r->push_status == TWILL_OK; step++) {
        for (size_t i = 0; i < POUR_COUNT; i++)
            gradient[i] = 0.25f;
        r->push_status = twill_server_push(r->server, 0);
        if (r->push_status == TWILL_OK)
            r->push_status = twill_server_wait_push(r->server, 0);
    }
    atomic_store(&r->pushed, true);
    return NULL;
}

/* Pull until all is pushed; versions never fall. */
static void *pull_thread(void *argument)
{
    struct pour_rank *r = argument;
    uint64_t last = 0;
    bool more = true;
    while (more && r->pull_status == TWILL_OK) {
        more = !atomic_load(&r->pushed);
        r->pull_status = twill_server_pull(r->server, 0);
        if (r->pull_status == TWILL_OK)
            r->pull_status = twill_server_wait_pull(r->server, 0);
        r->pulls++;
        if (r->pull_status == TWILL_OK && twill_server_version(r->server, 0) < last)
            r->pull_status = TWILL_ERR_INTERNAL;
        last = twill_server_version(r->server, 0);
    }
    return NULL;
}

/* Adagrad with the same gradient g in all of n steps. */
static double adagrad_oracle(unsigned steps, double g, double rate, double epsilon)
{
    double w = 0, s = 0;
    for (unsigned t = 0; t < steps; t++) {
        s += g * g;
        w -= rate * g / (sqrt(s) + epsilon);
    }
    return w;
}

static void rank_pours(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct pour_rank r = {.pulls = 0};
    twill_optimizer adagrad;
    pthread_t pusher, puller;
    TWILL_CHECK(open_pour_server(&r, user, bootstrap, &adagrad));
    TWILL_CHECK(pthread_create(&pusher, NULL, push_thread, &r) == 0);
    TWILL_CHECK(pthread_create(&puller, NULL, pull_thread, &r) == 0);
    (void)pthread_join(pusher, NULL);
    (void)pthread_join(puller, NULL);
    TWILL_CHECK(r.push_status == TWILL_OK && r.pull_status == TWILL_OK, "%s",
                twill_server_message(r.server));
    TWILL_CHECK(r.pulls > 0);
    /* Each rank serves: once all have left, its chunks have taken all pushes. */
    TWILL_CHECK(twill_server_serve(r.server) == TWILL_OK);
    twill_server_counters n;
    TWILL_CHECK(twill_server_count(r.server, &n) == TWILL_OK);
    TWILL_CHECK(n.updates == (uint64_t)size * POUR_STEPS * n.chunks_here);
    close_pour_server(&r);
}

TWILL_TEST(test_downpour)
{
    struct pour_case cases[] = {{2, 0, "", TWILL_SERVER_ASYNC, false},
                                {3, 1, "", TWILL_SERVER_ASYNC, false},
                                {2, 1, "2x1", TWILL_SERVER_ASYNC, false},
                                {3, 1, "", TWILL_SERVER_ASYNC, true},
                                {2, 2, "2x1", TWILL_SERVER_ASYNC, true}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        twill_test_run_ranks(cases[i].size, rank_pours, &cases[i]);
}

static void rank_adagrad(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct pour_rank r = {.pulls = 0};
    twill_optimizer adagrad;
    TWILL_CHECK(open_pour_server(&r, user, bootstrap, &adagrad));
    float *gradient = twill_server_gradient(r.server, 0);
    const float *w = twill_server_parameters(r.server, 0);
    for (unsigned step = 1; step <= POUR_STEPS; step++) {
        for (size_t i = 0; i < POUR_COUNT; i++)
            gradient[i] = (float)(i % 7) / 4;
        TWILL_CHECK(twill_server_push_pull(r.server, 0) == 0 &&
                    twill_server_wait(r.server, 0) == 0);
        for (size_t i = 0; i < POUR_COUNT; i++) {
            double wanted =
                adagrad_oracle(step, (double)(i % 7) / 4 * size, adagrad.rate, adagrad.epsilon);
            TWILL_CHECK(fabs((double)w[i] - wanted) <= 1e-6 * fmax(1, fabs(wanted)));
        }
    }
    close_pour_server(&r);
}

TWILL_TEST(test_adagrad)
{
    struct pour_case c = {3, 1, "", TWILL_SERVER_SYNC, false};
    twill_test_run_ranks(c.size, rank_adagrad, &c);
}

/* --- what is refused -------------------------------------------------------------------------- */

static bool refuses(struct pour_rank *r, const twill_server_options *options, const char *text)
{
    twill_server *server = NULL;
    TWILL_REQUIRE(twill_server_create(&server, r->comm, options) != TWILL_OK && server == NULL);
    return TWILL_NOTE(strstr(twill_comm_message(r->comm), text) != NULL, "'%s' is not in '%s'",
                      text, twill_comm_message(r->comm));
}

static bool check_options(struct pour_rank *r)
{
    twill_server_options good, o;
    twill_optimizer lamb;
    const int twice[2] = {1, 1};
    twill_server_defaults(&good);
    twill_optimizer_defaults(&lamb, TWILL_OPTIMIZER_LAMB);
    o = good;
    o.bytes = 3;
    TWILL_REQUIRE(refuses(r, &o, "options.bytes"));
    o = good;
    o.k = 0;
    TWILL_REQUIRE(refuses(r, &o, "options.k 0"));
    o = good;
    o.chunk_bytes = 1000;
    TWILL_REQUIRE(refuses(r, &o, "options.chunk_bytes 1000"));
    o = good;
    o.optimizer = &lamb;
    TWILL_REQUIRE(refuses(r, &o, "lamb needs norms"));
    o = good;
    o.rate = TWILL_SERVER_RATE_DISTANCE;
    TWILL_REQUIRE(refuses(r, &o, "options.rate by distance"));
    o = good;
    o.layout = TWILL_SERVER_NCS;
    o.servers = 2;
    TWILL_REQUIRE(refuses(r, &o, "at least one worker"));
    o = good;
    o.ranks = twice;
    TWILL_REQUIRE(refuses(r, &o, "options.ranks[1] is 1"));
    return true;
}

/* A refused call names the tensor and the rank. */
static bool says(struct pour_rank *r, int rank, const char *text)
{
    char name[20];
    snprintf(name, sizeof(name), "rank %d: ", rank);
    const char *message = twill_server_message(r->server);
    return TWILL_NOTE(strstr(message, name) != NULL && strstr(message, text) != NULL,
                      "'%s' is not in '%s'", text, message);
}

TWILL_TEST_OF_RANKS(test_refusals, 2)
{
    struct pour_rank r = {.pulls = 0};
    twill_tensor tensor = {.name = "a", .count = 3, .type = TWILL_F32};
    TWILL_CHECK(twill_test_join(&r.context, &r.comm, bootstrap, "", TWILL_TEST_PATIENT));
    TWILL_CHECK(check_options(&r));
    TWILL_CHECK(twill_server_create(&r.server, r.comm, NULL) == TWILL_OK);
    TWILL_CHECK(twill_server_push(r.server, 0) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(says(&r, rank, "before twill_server_commit()"));
    TWILL_CHECK(twill_server_add(r.server, &tensor, NULL) == TWILL_OK);
    TWILL_CHECK(twill_server_add(r.server, &tensor, NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(says(&r, rank, "tensor 'a' is registered twice"));
    tensor = (twill_tensor){.name = "b", .count = 0, .type = TWILL_F32};
    TWILL_CHECK(twill_server_add(r.server, &tensor, NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(says(&r, rank, "tensor 'b': count 0"));
    TWILL_CHECK(twill_server_commit(r.server) == TWILL_OK);
    TWILL_CHECK(twill_server_push(r.server, 1) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(says(&r, rank, "key 1 is outside 0 .. 0"));
    TWILL_CHECK(twill_server_push(r.server, 0) == TWILL_OK);
    if (rank == 0) { /* rank 1 has not pushed yet */
        TWILL_CHECK(twill_server_push(r.server, 0) == TWILL_ERR_ARGUMENT);
        TWILL_CHECK(says(&r, rank, "a push of tensor 'a' is under way"));
    }
    TWILL_CHECK(twill_server_wait(r.server, -1) == TWILL_OK);
    twill_server_destroy(r.server);
    r.server = NULL;
    /* Tensors that differ. */
    tensor = (twill_tensor){.name = "a", .count = 3 + (size_t)rank, .type = TWILL_F32};
    TWILL_CHECK(twill_server_create(&r.server, r.comm, NULL) == TWILL_OK);
    TWILL_CHECK(twill_server_add(r.server, &tensor, NULL) == TWILL_OK);
    TWILL_CHECK(twill_server_commit(r.server) == TWILL_ERR_MISMATCH);
    TWILL_CHECK(says(&r, rank, "tensor 0 is not the same on all ranks: here it is 'a'"));
    close_pour_server(&r);
}
