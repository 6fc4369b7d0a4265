/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas: a worker is killed in the middle of a push, which one server has got and another has
 * not, and then the server that has it. What the survivors go on with has the same bits as what
 * they had pulled from it, and what it had taken and not yet applied is not lost. */
#include "lib/comm/comm.h"
#include "lib/server/shard/link.h"
#include "lib/twill_recover.h"
#include "tests/support/server_steps.h"
#include "tests/support/unit.h"

/* Servers 0 and 1, workers 2, 3, which observes, and 4, which dies in the middle of a push. Of the
 * survivors 1 and 2 serve, and 3 works. */
enum { OBSERVER = 3, VICTIM = 4, REPLICA_RANKS = 5, REPLICA_STEPS = 4, REPLICA_COUNT = 3000 };

/* In memory that all processes share. */
struct shared_progress {
    _Atomic int server_pid, pushed, pulled;
};

struct replica_case {
    const char *nodes;
    twill_server_mode mode;
    twill_optimizer_rule rule;
    int threads;
    struct shared_progress *progress;
};

struct replica_rank {
    const struct replica_case *c;
    int rank;
    twill_comm *comm;
    twill_server *server;
    twill_optimizer optimizer;
    float pulled[REPLICA_COUNT];   /* by the observer, before the server dies */
    bool of_server[REPLICA_COUNT]; /* elements of the server that dies */
};

static float gradient_at(int rank, unsigned step, size_t i)
{
    return (float)((int)((i * 7 + step * 5 + (unsigned)rank * 3) % 11) - 5);
}

static bool open_replicated(struct replica_rank *r)
{
    twill_server_options options;
    twill_server_defaults(&options);
    twill_optimizer_defaults(&r->optimizer, r->c->rule);
    r->optimizer.rate = 0.25;
    options.optimizer = &r->optimizer;
    options.layout = TWILL_SERVER_NCS;
    options.servers = 2;
    options.mode = r->c->mode;
    options.threads = r->c->threads;
    options.replicas = 2;
    options.chunk_bytes = 1024;
    options.credits = 1; /* a push takes several messages */
    return twill_test_server_open(&r->server, r->comm, &options, TWILL_TEST_WEIGHTS(REPLICA_COUNT));
}

static void set_gradient(struct replica_rank *r, unsigned step)
{
    float *gradient = twill_server_gradient(r->server, 0);
    for (size_t i = 0; i < REPLICA_COUNT; i++)
        gradient[i] = gradient_at(r->rank, step, i);
}

static bool push_steps(struct replica_rank *r, unsigned steps)
{
    for (unsigned step = 0; step < steps; step++) {
        set_gradient(r, step);
        TWILL_REQUIRE(twill_test_server_step(r->server, 0));
    }
    return true;
}

/* Die when the first server has got an order to take this push, or the first messages of it, and
 * the second server nothing. */
static void push_half(struct replica_rank *r)
{
    struct twill_port *port = &r->server->work.port[0];
    struct twill_server_order order = {.kind = TWILL_ORDER_PUSH};
    while (r->c->mode != TWILL_SERVER_SYNC && atomic_load(&r->c->progress->pushed) < 2 &&
           !twill_test_failed())
        (void)usleep(1000); /* this push is the last one */
    set_gradient(r, REPLICA_STEPS);
    order.push = atomic_fetch_add(&r->server->key[0].pushes, 1) + 1;
    atomic_fetch_add(&r->c->progress->pushed, 1);
    twill_test_expect_death(r->rank);
    if (port->link == NULL)
        twill_ring_put(port->ring, r->server->keys, order);
    else
        twill_link_order(port->link, order);
    for (unsigned i = 0; port->link != NULL && i < 2000; i++)
        (void)twill_link_poll(port->link);
    (void)raise(SIGKILL);
}

/* Note what there is once the victim is dead for all, then kill the server. */
static bool observe(struct replica_rank *r)
{
    struct shared_progress *progress = r->c->progress;
    const struct twill_chunk_place *place = r->server->cut.place;
    while (!twill_comm_is_dead(r->server->comm, VICTIM) || atomic_load(&progress->pushed) < 3)
        TWILL_REQUIRE(!twill_test_failed() && usleep(1000) == 0);
    (void)usleep(300000); /* for the servers, too */
    TWILL_REQUIRE(twill_server_pull(r->server, 0) == TWILL_OK);
    TWILL_REQUIRE(twill_server_wait(r->server, 0) == TWILL_OK);
    memcpy(r->pulled, twill_server_parameters(r->server, 0), sizeof(r->pulled));
    for (uint32_t p = 0; p < r->server->cut.places; p++)
        for (size_t i = 0; i < place[p].count; i++)
            r->of_server[place[p].first + i] = place[p].shard < r->server->roles.threads;
    atomic_store(&progress->pulled, 1);
    TWILL_REQUIRE(kill(atomic_load(&progress->server_pid), SIGKILL) == 0);
    while (twill_server_pull(r->server, 0) == TWILL_OK &&
           twill_server_wait(r->server, 0) == TWILL_OK)
        (void)usleep(1000);
    return true;
}

static bool rebuild_replicated(struct replica_rank *r)
{
    twill_comm *smaller = NULL;
    TWILL_REQUIRE(twill_comm_shrink(&smaller, r->comm) == TWILL_OK);
    twill_status status = twill_server_rebuild(&r->server, smaller);
    twill_comm_leave(r->comm);
    r->comm = smaller;
    return twill_test_server_ok(r->server, status);
}

/* The bits are those of before. In softsync the victim's gradient of the dead server's chunks
 * waits: the next update averages it with the gradient that it comes with. */
static bool check_survived(struct replica_rank *r)
{
    const float *now = twill_server_parameters(r->server, 0);
    TWILL_REQUIRE(memcmp(now, r->pulled, sizeof(r->pulled)) == 0);
    if (r->c->mode != TWILL_SERVER_SOFTSYNC)
        return push_steps(r, 2);
    TWILL_REQUIRE(push_steps(r, 1));
    TWILL_REQUIRE(twill_server_pull(r->server, 0) == TWILL_OK);
    TWILL_REQUIRE(twill_server_wait(r->server, 0) == TWILL_OK);
    unsigned averaged = 0;
    for (size_t i = 0; i < REPLICA_COUNT; i++) {
        float own = gradient_at(r->rank, 0, i),
              both = (own + gradient_at(VICTIM, REPLICA_STEPS, i)) / 2;
        float alone = r->pulled[i] - 0.25f * own, with = r->pulled[i] - 0.25f * both;
        bool is_alone = now[i] > alone - 1e-5f && now[i] < alone + 1e-5f;
        bool is_both = now[i] > with - 1e-5f && now[i] < with + 1e-5f;
        TWILL_REQUIRE(TWILL_NOTE(r->of_server[i] ? is_both || r->c->nodes[0] != '\0' : is_alone,
                                 "element %zu%s: %g became %g, not %g or %g", i,
                                 r->of_server[i] ? ", of the dead server" : "",
                                 (double)r->pulled[i], (double)now[i], (double)alone,
                                 (double)with));
        TWILL_REQUIRE(is_alone || is_both);
        averaged += is_both && !is_alone;
    }
    TWILL_REQUIRE(averaged > 0 || r->c->nodes[0] != '\0');
    return true;
}

static struct replica_case cases[] = {
    {"5", TWILL_SERVER_ASYNC, TWILL_OPTIMIZER_ADAGRAD, 0, NULL},
    {"5", TWILL_SERVER_SOFTSYNC, TWILL_OPTIMIZER_SGD, 1, NULL},
    {"5x1", TWILL_SERVER_SYNC, TWILL_OPTIMIZER_ADAM, 0, NULL},
    {"2+1+1+1", TWILL_SERVER_SOFTSYNC, TWILL_OPTIMIZER_SGD, 0, NULL},
    {"5", TWILL_SERVER_K_ASYNC, TWILL_OPTIMIZER_ADAGRAD, 2, NULL},
    {"5", TWILL_SERVER_BOUNDED, TWILL_OPTIMIZER_ADAGRAD, 1, NULL},
    {"2+1+1+1", TWILL_SERVER_BOUNDED, TWILL_OPTIMIZER_SGD, 0, NULL},
};

static int share_progress(void **state)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        cases[i].progress = twill_test_shared(sizeof(struct shared_progress));
    return 0;
}

TWILL_TEST_GROUP(share_progress, NULL)

TWILL_TEST_CASES(test_killed_in_a_push, processes, cases, c->nodes, TWILL_TEST_PATIENT,
                 "TWILL_LOG=none")
{
    struct replica_rank r = {.c = c, .rank = rank, .comm = comm};
    struct shared_progress *progress = c->progress;
    if (rank == 0)
        atomic_store(&progress->server_pid, (int)getpid());
    TWILL_CHECK(open_replicated(&r));
    if (rank == 0)
        twill_test_expect_death(0);
    if (twill_server_role(r.server) == TWILL_SERVER_SERVES) {
        TWILL_CHECK(twill_server_serve(r.server) == TWILL_ERR_PEER);
    } else {
        TWILL_CHECK(push_steps(&r, REPLICA_STEPS));
        if (rank == VICTIM)
            push_half(&r);
        if (r.c->mode == TWILL_SERVER_SYNC)
            TWILL_CHECK(push_steps(&r, 1)); /* waits for the victim, or its death */
        atomic_fetch_add(&progress->pushed, 1);
        if (rank == OBSERVER)
            TWILL_CHECK(observe(&r));
        while (!atomic_load(&progress->pulled) && !twill_test_failed())
            (void)usleep(1000);
    }
    TWILL_CHECK(rebuild_replicated(&r));
    if (twill_server_role(r.server) == TWILL_SERVER_SERVES)
        TWILL_CHECK(twill_server_serve(r.server) == TWILL_OK);
    else
        TWILL_CHECK(check_survived(&r));
    twill_server_destroy(r.server);
    twill_comm_leave(r.comm);
}
