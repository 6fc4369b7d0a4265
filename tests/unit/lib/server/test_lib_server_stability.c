/* SPDX-License-Identifier: Apache-2.0 */
/* What stale gradients do to the learning rate: an asynchronous server diverges on a quadratic at a
 * rate that a single worker could double, and converges when each gradient counts 1 / staleness.
 * The staleness is exact, so the parameters are those of a closed form, and so is what n-softsync's
 * updates make of them. */
#include "tests/support/server_steps.h"
#include "tests/support/unit.h"

#define STABILITY_WORKERS 6
#define STABILITY_ROUNDS  12
#define STABILITY_COUNT   600u /* three chunks */
#define STABILITY_RATE    0.6
#define CURED             (1 + 1 + 1.0 / 2 + 1.0 / 3 + 1.0 / 4 + 1.0 / 5)

static const struct stability_case {
    twill_server_mode mode;
    int k;
    twill_server_rate rate;
    double of_a_round; /* by how much of the rate the parameters change in a round */
} cases[] = {
    /* each gradient counts 1: w becomes 1 - 6 rate of itself, and that diverges */
    {TWILL_SERVER_ASYNC, 1, TWILL_SERVER_RATE_FIXED, STABILITY_WORKERS},
    {TWILL_SERVER_SYNC, 1, TWILL_SERVER_RATE_FIXED, 1},
    /* of staleness 0, 1, 2 ..., which converges */
    {TWILL_SERVER_ASYNC, 1, TWILL_SERVER_RATE_STALENESS, CURED},
    {TWILL_SERVER_BOUNDED, 3, TWILL_SERVER_RATE_STALENESS, CURED},
    /* updates by the mean of two: each round is 3 of them; by staleness 1 + 1 + 1/2 */
    {TWILL_SERVER_SOFTSYNC, 3, TWILL_SERVER_RATE_FIXED, 3},
    {TWILL_SERVER_SOFTSYNC, 3, TWILL_SERVER_RATE_STALENESS, 2.5},
};

struct stability_rank {
    const struct stability_case *c;
    twill_comm *comm, *workers;
    twill_server *server;
};

/* All pull, then all push: of w^2 / 2 the gradient is w. */
static bool descend(struct stability_rank *r)
{
    float *gradient = twill_server_gradient(r->server, 0);
    const float *w = twill_server_parameters(r->server, 0);
    double expected = 1;
    for (int round = 0; round < STABILITY_ROUNDS; round++) {
        TWILL_REQUIRE(twill_server_pull(r->server, 0) == TWILL_OK);
        TWILL_REQUIRE(twill_server_wait(r->server, 0) == TWILL_OK);
        for (size_t i = 0; i < STABILITY_COUNT; i++) {
            TWILL_REQUIRE(fabs((double)w[i] - expected) <= 1e-4 * fabs(expected),
                          "round %d: %g is not %g", round, (double)w[i], expected);
            gradient[i] = w[i];
        }
        TWILL_REQUIRE(twill_barrier(r->workers) == TWILL_OK);
        TWILL_REQUIRE(twill_server_push(r->server, 0) == TWILL_OK);
        TWILL_REQUIRE(twill_server_wait(r->server, 0) == TWILL_OK);
        TWILL_REQUIRE(twill_barrier(r->workers) == TWILL_OK);
        expected *= 1 - STABILITY_RATE * r->c->of_a_round;
    }
    return true;
}

/* Each round's gradients were as stale as the updates before them in the round. */
static bool check_staleness(struct stability_rank *r)
{
    uint64_t histogram[STABILITY_WORKERS + 1];
    uint64_t needed = r->c->mode == TWILL_SERVER_SYNC ? STABILITY_WORKERS : 1;
    if (r->c->mode == TWILL_SERVER_SOFTSYNC)
        needed = STABILITY_WORKERS / (uint64_t)r->c->k;
    TWILL_REQUIRE(twill_server_staleness(r->server, histogram, STABILITY_WORKERS + 1) == TWILL_OK);
    for (uint64_t s = 0; s <= STABILITY_WORKERS; s++)
        TWILL_REQUIRE(histogram[s] ==
                          (s < STABILITY_WORKERS / needed ? 3 * STABILITY_ROUNDS * needed : 0),
                      "%d gradients of staleness %d", (int)histogram[s], (int)s);
    return true;
}

TWILL_TEST_CASES(stale_gradients, ranks, cases, "7", TWILL_TEST_PATIENT)
{
    float initial[STABILITY_COUNT];
    struct stability_rank r = {.c = c, .comm = comm};
    twill_server_options options;
    twill_optimizer sgd;
    twill_tensor tensor = {.name = "w", .count = STABILITY_COUNT, .type = TWILL_F32};
    for (size_t i = 0; i < STABILITY_COUNT; i++)
        initial[i] = 1;
    tensor.parameters = rank > 0 ? initial : NULL;
    twill_optimizer_defaults(&sgd, TWILL_OPTIMIZER_SGD);
    sgd.rate = STABILITY_RATE;
    twill_server_defaults(&options);
    options.layout = TWILL_SERVER_NC;
    options.mode = c->mode;
    options.k = c->k;
    options.rate = c->rate;
    options.optimizer = &sgd;
    options.chunk_bytes = 1024;
    TWILL_CHECK(twill_comm_split(&r.workers, comm, rank > 0, rank) == TWILL_OK);
    TWILL_CHECK(twill_test_server_open(&r.server, comm, &options, &tensor));
    if (rank == 0)
        TWILL_CHECK(twill_server_serve(r.server) == TWILL_OK && check_staleness(&r));
    else
        TWILL_CHECK(descend(&r));
    twill_server_destroy(r.server);
    twill_comm_destroy(r.workers);
}

/* A rate that a single worker could double diverges in async mode, and not with the cure. */
TWILL_TEST(rates_that_diverge)
{
    assert_true(fabs(1 - 2 * STABILITY_RATE) < 1 && fabs(1 - STABILITY_RATE * CURED) < 1);
    assert_true(fabs(1 - STABILITY_RATE * STABILITY_WORKERS) > 2);
}
