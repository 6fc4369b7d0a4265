/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter servers in synchronous mode: the bits of an allreduce, in every layout, with
 * optimizers, threads and chunks of any size; the bytes of the layouts; what is refused. */
#include "tests/support/server_steps.h"
#include "tests/support/unit.h"

#define SYNC_TENSORS 5u
#define SYNC_STEPS   4u
#define SYNC_MOST    30000u
#define SYNC_RATE    0.25f

static const struct sync_case {
    const char *nodes;
    twill_server_layout layout;
    int servers, threads;
    size_t chunk_bytes;
    twill_type type;
    bool own;     /* memory of malloc() */
    bool updates; /* by sgd */
} cases[] = {
    {"1", TWILL_SERVER_CS, 1, 0, 1024, TWILL_F32, false, false},
    {"2", TWILL_SERVER_CS, 1, 0, 1024, TWILL_F32, false, false},
    {"4", TWILL_SERVER_CS, 1, 2, 4096, TWILL_F32, true, false},
    {"4", TWILL_SERVER_CC, 1, 0, TWILL_SERVER_WHOLE_TENSORS, TWILL_I32, false, false},
    {"3", TWILL_SERVER_NC, 1, 3, 1024, TWILL_F32, false, true},
    {"6", TWILL_SERVER_NCS, 2, 0, 2048, TWILL_F32, true, true},
    {"2x2", TWILL_SERVER_CS, 1, 0, 1024, TWILL_F32, false, false},
    {"3x1", TWILL_SERVER_NC, 1, 2, 4096, TWILL_I32, true, false},
    {"3x2", TWILL_SERVER_NCS, 2, 0, 2048, TWILL_F32, true, true},
    {"10", TWILL_SERVER_NC, 1, 1, 32768, TWILL_I32, false, false},
};

static const size_t sync_counts[SYNC_TENSORS] = {1, 7, SYNC_MOST, 1000, 4096};

/* Values whose sums are exact in every type. */
static int gradient_value(int rank, unsigned tensor, size_t i, unsigned step)
{
    return (int)((i * 7 + tensor * 3 + step * 5 + (size_t)rank * 11) % 17) - 8;
}

static void fill(void *memory, twill_type type, size_t count, int rank, unsigned tensor,
                 unsigned step)
{
    for (size_t i = 0; i < count; i++) {
        int value = gradient_value(rank, tensor, i, step);
        if (type == TWILL_F32)
            ((float *)memory)[i] = (float)value / 8;
        else
            ((int32_t *)memory)[i] = value;
    }
}

struct sync_rank {
    const struct sync_case *c;
    twill_comm *comm;
    twill_server *server;
    void *memory[SYNC_TENSORS];
    float *oracle; /* [SYNC_TENSORS][SYNC_MOST] parameters of plain SGD */
};

static bool add_tensors(struct sync_rank *r)
{
    static const char *const names[SYNC_TENSORS] = {"one", "seven", "large", "thousand", "chunk"};
    for (unsigned t = 0; t < SYNC_TENSORS; t++) {
        twill_tensor tensor = {.name = names[t], .count = sync_counts[t], .type = r->c->type};
        int key = -1;
        if (r->c->own) {
            tensor.gradient = calloc(2 * sync_counts[t], sizeof(float));
            TWILL_REQUIRE(tensor.gradient != NULL);
            r->memory[t] = tensor.gradient;
            tensor.parameters = (float *)tensor.gradient + sync_counts[t];
        }
        TWILL_REQUIRE(twill_server_add(r->server, &tensor, &key) == TWILL_OK);
        TWILL_REQUIRE(key == (int)t);
    }
    return true;
}

/* Compare what a step has pulled with an allreduce among the workers, bit for bit. */
static bool compare_step(struct sync_rank *r, twill_comm *workers, int rank, unsigned step)
{
    size_t width = twill_type_size(r->c->type);
    void *sum = calloc(SYNC_MOST, width);
    TWILL_REQUIRE(sum != NULL);
    bool same = true;
    for (unsigned t = 0; t < SYNC_TENSORS && same; t++) {
        fill(sum, r->c->type, sync_counts[t], rank, t, step);
        same = twill_allreduce(workers, sum, sum, sync_counts[t], r->c->type, TWILL_AVG) == 0;
        float *oracle = r->oracle + (size_t)t * SYNC_MOST;
        for (size_t i = 0; r->c->updates && i < sync_counts[t]; i++)
            oracle[i] -= SYNC_RATE * ((const float *)sum)[i];
        same =
            same && memcmp(r->c->updates ? (void *)oracle : sum,
                           twill_server_parameters(r->server, (int)t), sync_counts[t] * width) == 0;
        same = same && twill_server_version(r->server, (int)t) == step + 1;
    }
    free(sum);
    TWILL_REQUIRE(same);
    return true;
}

static bool train_steps(struct sync_rank *r, twill_comm *workers, int rank)
{
    for (unsigned step = 0; step < SYNC_STEPS; step++) {
        for (unsigned t = 0; t < SYNC_TENSORS; t++) {
            void *gradient = twill_server_gradient(r->server, (int)t);
            TWILL_REQUIRE(gradient != NULL);
            fill(gradient, r->c->type, sync_counts[t], rank, t, step);
            TWILL_REQUIRE(twill_server_push_pull(r->server, (int)t) == TWILL_OK);
        }
        TWILL_REQUIRE(twill_test_server_ok(r->server, twill_server_wait(r->server, -1)));
        TWILL_REQUIRE(compare_step(r, workers, rank, step));
    }
    return true;
}

/* Sum of the versions of the chunks: no update is lost, none is made twice. */
static bool check_counters(struct sync_rank *r)
{
    twill_server_counters counters;
    TWILL_REQUIRE(twill_server_count(r->server, &counters) == TWILL_OK);
    TWILL_REQUIRE(counters.most_bytes <= counters.least_bytes + SYNC_MOST * 8);
    if (twill_server_role(r->server) != TWILL_SERVER_SERVES)
        return true;
    TWILL_REQUIRE(counters.updates == counters.chunks_here * SYNC_STEPS);
    TWILL_REQUIRE(counters.versions == counters.updates);
    TWILL_REQUIRE(counters.duplicates == 0 && counters.dropped == 0 && counters.deaths == 0);
    return true;
}

static bool run_server(struct sync_rank *r, int rank)
{
    twill_server_options options;
    twill_optimizer sgd;
    twill_server_defaults(&options);
    twill_optimizer_defaults(&sgd, TWILL_OPTIMIZER_SGD);
    sgd.rate = (double)SYNC_RATE;
    options.layout = r->c->layout;
    options.servers = r->c->servers;
    options.threads = r->c->threads;
    options.chunk_bytes = r->c->chunk_bytes;
    options.optimizer = r->c->updates ? &sgd : NULL;
    TWILL_REQUIRE(twill_server_create(&r->server, r->comm, &options) == TWILL_OK);
    TWILL_REQUIRE(add_tensors(r));
    bool works = (twill_server_role(r->server) & TWILL_SERVER_WORKS) != 0;
    twill_comm *workers = NULL;
    TWILL_REQUIRE(twill_comm_split(&workers, r->comm, works ? 0 : TWILL_COLOUR_NONE, rank) == 0);
    TWILL_REQUIRE(twill_test_server_ok(r->server, twill_server_commit(r->server)));
    bool good = works ? train_steps(r, workers, rank) : twill_server_serve(r->server) == TWILL_OK;
    good = good && check_counters(r);
    twill_comm_destroy(workers);
    twill_server_destroy(r->server);
    TWILL_REQUIRE(good);
    return true;
}

TWILL_TEST_CASES(test_layouts, ranks, cases, c->nodes, TWILL_TEST_PATIENT)
{
    struct sync_rank r = {.c = c, .comm = comm};
    r.oracle = calloc((size_t)SYNC_TENSORS * SYNC_MOST, sizeof(float));
    TWILL_CHECK(r.oracle != NULL && run_server(&r, rank));
    for (unsigned t = 0; t < SYNC_TENSORS; t++)
        free(r.memory[t]);
    free(r.oracle);
}
