/* SPDX-License-Identifier: Apache-2.0 */
/* Groups in step with a parameter server across them, and one server for racks: gradients are
 * reduced within each group, its first rank pushes and pulls, and broadcasts what it has pulled.
 * What all ranks get is of the gradients of all; only sums of racks cross between racks. If the
 * first rank of a group dies, which serves, too, the others go on from replicas. */
#include "lib/twill_recover.h"
#include "tests/support/server_steps.h"
#include "tests/support/unit.h"

#define GROUPS_COUNT  3000u
#define GROUPS_STEPS  6u
#define GROUPS_LEVELS 2u
#define GROUPS_VICTIM 3 /* the first rank of the second group */

struct group_case {
    const char *nodes;
    int width[GROUPS_LEVELS]; /* ranks of a group; groups of a rack */
    twill_server_mode mode;   /* across the groups of the last level */
    bool replicas;            /* all first ranks serve, with replicas */
};

struct group_rank {
    const struct group_case *c;
    twill_comm *comm;
    twill_comm *level[GROUPS_LEVELS], *across; /* NULL where this rank is not the first of below */
    twill_server *server;
    float gradient[GROUPS_COUNT], parameters[GROUPS_COUNT];
};

static float group_gradient(int rank, size_t i, unsigned step)
{
    return (float)((i * 5 + (size_t)rank * 3 + step) % 11) - 4;
}

static bool split_groups(struct group_rank *r, int rank)
{
    int below = 1; /* ranks of a member of this level */
    for (unsigned l = 0; l < GROUPS_LEVELS; l++) {
        int group = below * r->c->width[l];
        int colour = rank % below == 0 ? rank / group : TWILL_COLOUR_NONE;
        TWILL_REQUIRE(twill_comm_split(&r->level[l], r->comm, colour, rank) == TWILL_OK);
        below = group;
    }
    int colour = rank % below == 0 ? 0 : TWILL_COLOUR_NONE;
    TWILL_REQUIRE(twill_comm_split(&r->across, r->comm, colour, rank) == TWILL_OK);
    return true;
}

static bool open_across(struct group_rank *r)
{
    twill_server_options options;
    twill_optimizer sgd;
    twill_tensor tensor = {.name = "weights",
                           .count = GROUPS_COUNT,
                           .type = TWILL_F32,
                           .gradient = r->gradient,
                           .parameters = r->parameters};
    if (r->across == NULL)
        return true;
    twill_optimizer_defaults(&sgd, TWILL_OPTIMIZER_SGD);
    sgd.rate = 1;
    twill_server_defaults(&options);
    options.layout = r->c->replicas ? TWILL_SERVER_CS : TWILL_SERVER_CC;
    options.replicas = r->c->replicas ? 2 : 1;
    options.threads = 1;
    options.op = TWILL_SUM;
    options.mode = r->c->mode;
    options.optimizer = &sgd;
    options.chunk_bytes = 1024;
    return twill_test_server_open(&r->server, r->across, &options, &tensor);
}

static bool spread_parameters(struct group_rank *r)
{
    for (unsigned l = GROUPS_LEVELS; l-- > 0;)
        TWILL_REQUIRE(r->level[l] == NULL ||
                      twill_broadcast(r->level[l], r->parameters, r->parameters, GROUPS_COUNT,
                                      TWILL_F32, 0) == TWILL_OK);
    return true;
}

/* One step of all groups: the reductions within, push and pull across, and the broadcasts. */
static bool step_groups(struct group_rank *r, int rank, unsigned step)
{
    for (size_t i = 0; i < GROUPS_COUNT; i++)
        r->gradient[i] = group_gradient(rank, i, step);
    for (unsigned l = 0; l < GROUPS_LEVELS; l++)
        TWILL_REQUIRE(r->level[l] == NULL ||
                      twill_reduce(r->level[l], r->gradient, r->gradient, GROUPS_COUNT, TWILL_F32,
                                   TWILL_SUM, 0) == TWILL_OK);
    if (r->server != NULL)
        TWILL_REQUIRE(twill_test_server_step(r->server, 0));
    return spread_parameters(r);
}

/* Return the sum of an element's gradients of all ranks in steps [0, steps). */
static float sum_gradients(const struct group_rank *r, size_t i, unsigned steps)
{
    float sum = 0;
    for (unsigned step = 0; step < steps; step++)
        for (int rank = 0; rank < twill_test_size(r->c->nodes); rank++)
            sum += group_gradient(rank, i, step);
    return sum;
}

/* After S steps the parameters are minus the gradients of all ranks and steps. */
static bool check_sum(const struct group_rank *r, unsigned steps)
{
    for (size_t i = 0; i < GROUPS_COUNT; i++)
        TWILL_REQUIRE(r->parameters[i] == -sum_gradients(r, i, steps));
    return true;
}

/* Of R racks, a rack but the server's sends and receives n in a step, and pulls once before; all of
 * it by messages. Without levels it would be n for each of its ranks. */
static bool check_crossing(struct group_rank *r, int across, int racks)
{
    const uint64_t n = GROUPS_COUNT * sizeof(float), s = GROUPS_STEPS;
    uint64_t times = across == 0 ? (uint64_t)racks - 1 : 1;
    twill_server_counters count;
    TWILL_REQUIRE(twill_server_count(r->server, &count) == TWILL_OK);
    uint64_t pushed = across == 0 ? count.bytes_received : count.bytes_sent;
    uint64_t pulled = across == 0 ? count.bytes_sent : count.bytes_received;
    TWILL_REQUIRE(pushed == s * n * times && pulled == (s + 1) * n * times);
    TWILL_REQUIRE(count.bytes_messages == pushed + pulled);
    return true;
}

static bool train_groups(struct group_rank *r, int rank)
{
    TWILL_REQUIRE(split_groups(r, rank) && open_across(r));
    for (unsigned step = 0; step < GROUPS_STEPS; step++) {
        TWILL_REQUIRE(step_groups(r, rank, step));
        if (r->c->mode == TWILL_SERVER_SYNC)
            TWILL_REQUIRE(check_sum(r, step + 1));
    }
    TWILL_REQUIRE(twill_barrier(r->comm) == TWILL_OK); /* all have pushed and pulled */
    if (r->c->mode == TWILL_SERVER_SYNC)
        return r->server == NULL ||
               check_crossing(r, twill_comm_rank(r->across), twill_comm_size(r->across));
    if (r->server != NULL) {
        TWILL_REQUIRE(twill_server_pull(r->server, 0) == TWILL_OK);
        TWILL_REQUIRE(twill_server_wait(r->server, 0) == TWILL_OK);
    }
    return spread_parameters(r) && check_sum(r, GROUPS_STEPS);
}

/* --- a death ---------------------------------------------------------------------------------- */

/* The victim dies beside a push of the other group, which may or may not succeed. */
static bool lose_first_rank(struct group_rank *r, int rank, twill_bootstrap *bootstrap)
{
    TWILL_REQUIRE(twill_test_barrier(bootstrap)); /* all have pulled from the victim */
    if (rank == GROUPS_VICTIM) {
        twill_test_expect_death(rank);
        (void)raise(SIGKILL);
    }
    if (r->server != NULL) {
        for (size_t i = 0; i < GROUPS_COUNT; i++)
            r->gradient[i] = 1;
        TWILL_REQUIRE(twill_server_push_pull(r->server, 0) == TWILL_OK);
        twill_status status = twill_server_wait(r->server, 0);
        TWILL_REQUIRE(status == TWILL_OK || status == TWILL_ERR_PEER);
    }
    return twill_barrier(r->comm) == TWILL_ERR_PEER;
}

static void leave_groups(struct group_rank *r)
{
    for (unsigned l = 0; l < GROUPS_LEVELS; l++)
        twill_comm_leave(r->level[l]);
    twill_comm_leave(r->across);
    twill_comm_leave(r->comm);
}

/* Divide the survivors anew. The first rank of the group that has lost its first one has no server
 * yet. */
static bool regroup(struct group_rank *r)
{
    twill_comm *smaller = NULL;
    TWILL_REQUIRE(twill_comm_shrink(&smaller, r->comm) == TWILL_OK);
    leave_groups(r);
    r->comm = smaller;
    TWILL_REQUIRE(split_groups(r, twill_comm_rank(smaller)));
    if (r->server == NULL)
        return open_across(r);
    return twill_test_server_ok(r->server, twill_server_rebuild(&r->server, r->across));
}

/* All updates are there, the one beside the death once or not; the survivors make another step. The
 * barrier keeps its push out of what the other group's rebuild pulls: in async mode it may be. */
static bool train_survivors(struct group_rank *r)
{
    static float before[GROUPS_COUNT];
    int rank = twill_comm_rank(r->comm), size = twill_comm_size(r->comm);
    TWILL_REQUIRE(twill_barrier(r->comm) == TWILL_OK && spread_parameters(r));
    memcpy(before, r->parameters, sizeof(before));
    for (size_t i = 0; i < GROUPS_COUNT; i++) {
        float without = -sum_gradients(r, i, GROUPS_STEPS);
        TWILL_REQUIRE(before[i] == without || before[i] == without - 1);
    }
    TWILL_REQUIRE(step_groups(r, rank, GROUPS_STEPS) && twill_barrier(r->comm) == TWILL_OK);
    if (r->server != NULL) {
        TWILL_REQUIRE(twill_server_pull(r->server, 0) == TWILL_OK);
        TWILL_REQUIRE(twill_server_wait(r->server, 0) == TWILL_OK);
    }
    TWILL_REQUIRE(spread_parameters(r));
    for (size_t i = 0; i < GROUPS_COUNT; i++) {
        float sum = 0;
        for (int other = 0; other < size; other++)
            sum += group_gradient(other, i, GROUPS_STEPS);
        TWILL_REQUIRE(r->parameters[i] == before[i] - sum);
    }
    return true;
}

static const struct group_case losses[] = {
    {"6", {3, 1}, TWILL_SERVER_ASYNC, true},
    {"6x1", {3, 1}, TWILL_SERVER_ASYNC, true},
};

TWILL_TEST_CASES(test_group_loses_its_first_rank, processes, losses, c->nodes, TWILL_TEST_PATIENT,
                 "TWILL_LOG=none")
{
    struct group_rank *r = calloc(1, sizeof(*r));
    TWILL_CHECK(r != NULL);
    r->c = c;
    r->comm = comm;
    TWILL_CHECK(train_groups(r, rank) && lose_first_rank(r, rank, bootstrap) && regroup(r) &&
                train_survivors(r));
    twill_server_destroy(r->server);
    leave_groups(r);
    free(r);
}

static const struct group_case groups[] = {
    {"6", {3, 1}, TWILL_SERVER_ASYNC, false},   /* two groups in step */
    {"6x1", {2, 1}, TWILL_SERVER_SYNC, false},  /* three, on hosts */
    {"4x2", {2, 2}, TWILL_SERVER_SYNC, false},  /* two racks of two nodes of two ranks */
    {"4x2", {2, 2}, TWILL_SERVER_ASYNC, false}, /* the same */
};

/* After the other one, which forks. */
TWILL_TEST_CASES(test_groups, ranks, groups, c->nodes, TWILL_TEST_PATIENT)
{
    struct group_rank *r = calloc(1, sizeof(*r));
    TWILL_CHECK(r != NULL);
    r->c = c;
    r->comm = comm;
    (void)train_groups(r, rank);
    twill_server_destroy(r->server);
    twill_comm_destroy(r->across);
    for (unsigned l = 0; l < GROUPS_LEVELS; l++)
        twill_comm_destroy(r->level[l]);
    free(r);
}
