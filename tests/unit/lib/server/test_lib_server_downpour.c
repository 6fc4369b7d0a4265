/* SPDX-License-Identifier: Apache-2.0 */
/* Downpour SGD: threads that push and threads that pull, Adagrad on the shard against a scalar
 * oracle, workers that leave at any time; and what is refused, in sentences. */
#include "tests/support/server_steps.h"
#include "tests/support/unit.h"

#define POUR_COUNT 700u
#define POUR_STEPS 30u

static const struct pour_case {
    const char *nodes;
    int threads;
    bool replicated;
} cases[] = {{"2", 0, false}, {"3", 1, false}, {"2x1", 1, false}, {"3", 1, true}, {"2x1", 2, true}};

struct pour_rank {
    twill_server *server;
    _Atomic bool pushed;
    twill_status push_status, pull_status;
    uint64_t pulls;
};

static bool open_pour_server(struct pour_rank *r, twill_comm *comm, twill_server_mode mode,
                             int threads, int replicas, twill_optimizer *adagrad)
{
    twill_server_options options;
    twill_server_defaults(&options);
    twill_optimizer_defaults(adagrad, TWILL_OPTIMIZER_ADAGRAD);
    adagrad->rate = 0.5;
    options.mode = mode;
    options.threads = threads;
    options.optimizer = adagrad;
    options.op = TWILL_SUM;
    options.chunk_bytes = 1024;
    options.replicas = replicas;
    return twill_test_server_open(&r->server, comm, &options, TWILL_TEST_WEIGHTS(POUR_COUNT));
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

TWILL_TEST_CASES(test_downpour, ranks, cases, c->nodes, TWILL_TEST_PATIENT)
{
    struct pour_rank r = {.pulls = 0};
    twill_optimizer adagrad;
    pthread_t pusher, puller;
    TWILL_CHECK(open_pour_server(&r, comm, TWILL_SERVER_ASYNC, c->threads, c->replicated ? 2 : 1,
                                 &adagrad));
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
    twill_server_destroy(r.server);
}

TWILL_TEST_ON(test_adagrad, ranks, TWILL_LAYOUTS("3"), TWILL_TEST_PATIENT)
{
    struct pour_rank r = {.pulls = 0};
    twill_optimizer adagrad;
    TWILL_CHECK(open_pour_server(&r, comm, TWILL_SERVER_SYNC, 1, 1, &adagrad));
    float *gradient = twill_server_gradient(r.server, 0);
    const float *w = twill_server_parameters(r.server, 0);
    for (unsigned step = 1; step <= POUR_STEPS; step++) {
        for (size_t i = 0; i < POUR_COUNT; i++)
            gradient[i] = (float)(i % 7) / 4;
        TWILL_CHECK(twill_test_server_step(r.server, 0));
        for (size_t i = 0; i < POUR_COUNT; i++) {
            double wanted =
                adagrad_oracle(step, (double)(i % 7) / 4 * size, adagrad.rate, adagrad.epsilon);
            TWILL_CHECK(fabs((double)w[i] - wanted) <= 1e-6 * fmax(1, fabs(wanted)));
        }
    }
    twill_server_destroy(r.server);
}

/* --- what is refused -------------------------------------------------------------------------- */

/* Change an option, which is refused with these words. */
#define REFUSES(comm, change, words)                                                               \
    do {                                                                                           \
        twill_server *server = NULL;                                                               \
        twill_server_options o;                                                                    \
        twill_server_defaults(&o);                                                                 \
        change;                                                                                    \
        TWILL_CHECK(twill_server_create(&server, comm, &o) != TWILL_OK && server == NULL);         \
        TWILL_CHECK(TWILL_SAYS(twill_comm_message(comm), words));                                  \
    } while (0)

TWILL_TEST_ON(test_refused_options, ranks, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT)
{
    static const int twice[2] = {1, 1};
    twill_optimizer lamb;
    twill_optimizer_defaults(&lamb, TWILL_OPTIMIZER_LAMB);
    REFUSES(comm, o.bytes = 3, "options.bytes");
    REFUSES(comm, o.k = 0, "options.k 0");
    REFUSES(comm, o.chunk_bytes = 1000, "options.chunk_bytes 1000");
    REFUSES(comm, o.optimizer = &lamb, "lamb needs norms");
    REFUSES(comm, o.rate = TWILL_SERVER_RATE_DISTANCE, "options.rate by distance");
    REFUSES(comm, (o.layout = TWILL_SERVER_NCS, o.servers = 2), "leaves no worker");
    REFUSES(comm, o.ranks = twice, "options.ranks[1] is 1");
}

/* A refused call names the tensor and the rank. */
static bool says(twill_server *server, int rank, const char *words)
{
    const char *message = twill_server_message(server);
    return TWILL_SAYS(message, twill_test_text("rank %d: ", rank)) && TWILL_SAYS(message, words);
}

TWILL_TEST_ON(test_refusals, ranks, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT)
{
    twill_server *server = NULL;
    twill_tensor tensor = {.name = "a", .count = 3, .type = TWILL_F32};
    TWILL_CHECK(twill_server_create(&server, comm, NULL) == TWILL_OK);
    TWILL_CHECK(twill_server_push(server, 0) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(says(server, rank, "call twill_server_commit() first"));
    TWILL_CHECK(twill_server_add(server, &tensor, NULL) == TWILL_OK);
    TWILL_CHECK(twill_server_add(server, &tensor, NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(says(server, rank, "tensor 'a' is registered twice"));
    tensor = (twill_tensor){.name = "b", .count = 0, .type = TWILL_F32};
    TWILL_CHECK(twill_server_add(server, &tensor, NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(says(server, rank, "tensor 'b': count 0"));
    TWILL_CHECK(twill_server_commit(server) == TWILL_OK);
    TWILL_CHECK(twill_server_push(server, 1) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(says(server, rank, "key 1 is outside 0 .. 0"));
    TWILL_CHECK(twill_server_push(server, 0) == TWILL_OK);
    if (rank == 0) { /* rank 1 has not pushed yet */
        TWILL_CHECK(twill_server_push(server, 0) == TWILL_ERR_ARGUMENT);
        TWILL_CHECK(says(server, rank, "a push of tensor 'a' is under way"));
    }
    TWILL_CHECK(twill_server_wait(server, -1) == TWILL_OK);
    twill_server_destroy(server);
    /* Tensors that differ. */
    tensor = (twill_tensor){.name = "a", .count = 3 + (size_t)rank, .type = TWILL_F32};
    TWILL_CHECK(twill_server_create(&server, comm, NULL) == TWILL_OK);
    TWILL_CHECK(twill_server_add(server, &tensor, NULL) == TWILL_OK);
    TWILL_CHECK(twill_server_commit(server) == TWILL_ERR_MISMATCH);
    TWILL_CHECK(says(server, rank, "tensor 0 is not the same on all ranks: here it is 'a'"));
    twill_server_destroy(server);
}
