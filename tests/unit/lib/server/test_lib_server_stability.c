/* SPDX-License-Identifier: Apache-2.0 */
/* What stale gradients do to the learning rate: an asynchronous server diverges on a quadratic at a
 * rate that a single worker could double, and converges when each gradient counts 1 / staleness.
 * The staleness is exact, so the parameters are those of a closed form, and so is what n-softsync's
 * updates make of them. */
#include "lib/twill_server.h"
#include "tests/support/unit.h"

#define STABILITY_WORKERS 6
#define STABILITY_ROUNDS  12
#define STABILITY_COUNT   600u /* three chunks */
#define STABILITY_RATE    0.6

struct stability_case {
    twill_server_options options;
    double shrinks; /* the factor of the parameters in a round */
};

struct stability_rank {
    const struct stability_case *c;
    twill_context *context;
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
        expected *= r->c->shrinks;
    }
    return true;
}

/* Each round's gradients were as stale as the updates before them in the round. */
static bool check_staleness(struct stability_rank *r)
{
    uint64_t histogram[STABILITY_WORKERS + 1];
    uint64_t needed = r->c->options.mode == TWILL_SERVER_SYNC ? STABILITY_WORKERS : 1;
    if (r->c->options.mode == TWILL_SERVER_SOFTSYNC)
        needed = STABILITY_WORKERS / (uint64_t)r->c->options.k;
    TWILL_REQUIRE(twill_server_staleness(r->server, histogram, STABILITY_WORKERS + 1) == TWILL_OK);
    for (uint64_t s = 0; s <= STABILITY_WORKERS; s++)
        TWILL_REQUIRE(histogram[s] ==
                          (s < STABILITY_WORKERS / needed ? 3 * STABILITY_ROUNDS * needed : 0),
                      "%d gradients of staleness %d", (int)histogram[s], (int)s);
    return true;
}

static bool open_stability(struct stability_rank *r, int rank)
{
    float initial[STABILITY_COUNT];
    twill_tensor tensor = {.name = "w", .count = STABILITY_COUNT, .type = TWILL_F32};
    for (size_t i = 0; i < STABILITY_COUNT; i++)
        initial[i] = 1;
    tensor.parameters = rank > 0 ? initial : NULL;
    TWILL_REQUIRE(twill_comm_split(&r->workers, r->comm, rank > 0, rank) == TWILL_OK);
    TWILL_REQUIRE(twill_server_create(&r->server, r->comm, &r->c->options) == TWILL_OK);
    TWILL_REQUIRE(twill_server_add(r->server, &tensor, NULL) == TWILL_OK);
    twill_status status = twill_server_commit(r->server);
    TWILL_REQUIRE(status == TWILL_OK, "%s", twill_server_message(r->server));
    if (rank == 0)
        return twill_server_serve(r->server) == TWILL_OK && check_staleness(r);
    return descend(r);
}

static void rank_stability(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct stability_rank r = {.c = user};
    if (twill_test_join(&r.context, &r.comm, bootstrap, "", TWILL_TEST_PATIENT))
        TWILL_CHECK(open_stability(&r, rank));
    twill_server_destroy(r.server);
    twill_comm_destroy(r.workers);
    twill_test_disconnect(r.comm, r.context);
}

static void run_case(twill_server_mode mode, int k, twill_server_rate rate, double of_a_round)
{
    twill_optimizer sgd;
    struct stability_case c = {.shrinks = 1 - STABILITY_RATE * of_a_round};
    twill_optimizer_defaults(&sgd, TWILL_OPTIMIZER_SGD);
    sgd.rate = STABILITY_RATE;
    twill_server_defaults(&c.options);
    c.options.layout = TWILL_SERVER_NC;
    c.options.mode = mode;
    c.options.k = k;
    c.options.rate = rate;
    c.options.optimizer = &sgd;
    c.options.chunk_bytes = 1024;
    twill_test_run_ranks(STABILITY_WORKERS + 1, rank_stability, &c);
}

TWILL_TEST(test_divergence)
{
    double fixed = STABILITY_WORKERS; /* each gradient counts 1: w becomes 1 - 6 rate of itself */
    assert_true(fabs(1 - STABILITY_RATE) < 1); /* a single worker, and sync */
    assert_true(fabs(1 - STABILITY_RATE * fixed) > 2);
    run_case(TWILL_SERVER_ASYNC, 1, TWILL_SERVER_RATE_FIXED, fixed);
    run_case(TWILL_SERVER_SYNC, 1, TWILL_SERVER_RATE_FIXED, 1);
}

TWILL_TEST(test_cure)
{
    double cured = 1; /* of staleness 0, 1, 2 ...: 1 + 1 + 1/2 + 1/3 + 1/4 + 1/5 */
    for (int staleness = 1; staleness < STABILITY_WORKERS; staleness++)
        cured += 1.0 / staleness;
    assert_true(fabs(1 - STABILITY_RATE * cured) < 1);
    run_case(TWILL_SERVER_ASYNC, 1, TWILL_SERVER_RATE_STALENESS, cured);
    run_case(TWILL_SERVER_BOUNDED, 3, TWILL_SERVER_RATE_STALENESS, cured);
}

/* Updates by the mean of two: fixed, each round is 3 of them; by staleness 1 + 1 + 1/2. */
TWILL_TEST(test_softsync_stability)
{
    run_case(TWILL_SERVER_SOFTSYNC, 3, TWILL_SERVER_RATE_FIXED, 3);
    run_case(TWILL_SERVER_SOFTSYNC, 3, TWILL_SERVER_RATE_STALENESS, 2.5);
}
