/* SPDX-License-Identifier: Apache-2.0 */
/* Groups in step with a parameter server across them, and one server for racks: gradients are
 * reduced within each group, its first rank pushes and pulls, and broadcasts what it has pulled.
 * What all ranks get is of the gradients of all; only sums of racks cross between racks. */
#include "lib/twill_server.h"
#include "tests/support/ranks.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#define GROUPS_COUNT  3000u
#define GROUPS_STEPS  6u
#define GROUPS_LEVELS 2u

struct group_case {
    int size;
    const char *nodes;
    int width[GROUPS_LEVELS]; /* ranks of a group; groups of a rack */
    twill_server_mode mode;   /* across the groups of the last level */
};

struct group_rank {
    const struct group_case *c;
    twill_context *context;
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
    options.layout = TWILL_SERVER_CC;
    options.threads = 1;
    options.op = TWILL_SUM;
    options.mode = r->c->mode;
    options.optimizer = &sgd;
    options.chunk_bytes = 1024;
    TWILL_REQUIRE(twill_server_create(&r->server, r->across, &options) == TWILL_OK);
    TWILL_REQUIRE(twill_server_add(r->server, &tensor, NULL) == TWILL_OK);
    twill_status status = twill_server_commit(r->server);
    return twill_test_note(status == TWILL_OK, __FILE__, __LINE__, "%s",
                           twill_server_message(r->server));
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
    if (r->server != NULL) {
        TWILL_REQUIRE(twill_server_push_pull(r->server, 0) == TWILL_OK);
        TWILL_REQUIRE(twill_server_wait(r->server, 0) == TWILL_OK);
    }
    return spread_parameters(r);
}

/* After S steps the parameters are minus the gradients of all ranks and steps. */
static bool check_sum(const struct group_rank *r, unsigned steps)
{
    for (size_t i = 0; i < GROUPS_COUNT; i++) {
        float sum = 0;
        for (unsigned step = 0; step < steps; step++)
            for (int rank = 0; rank < r->c->size; rank++)
                sum += group_gradient(rank, i, step);
        TWILL_REQUIRE(r->parameters[i] == -sum);
    }
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

static void rank_groups(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const char *const more[] = {TWILL_TEST_PATIENT, NULL};
    struct group_rank *r = calloc(1, sizeof(*r));
    (void)size;
    TWILL_CHECK(r != NULL);
    r->c = user;
    if (twill_test_connect(&r->context, &r->comm, bootstrap, r->c->nodes, NULL, more))
        (void)train_groups(r, rank);
    twill_server_destroy(r->server);
    twill_comm_destroy(r->across);
    for (unsigned l = 0; l < GROUPS_LEVELS; l++)
        twill_comm_destroy(r->level[l]);
    twill_comm_destroy(r->comm);
    twill_context_destroy(r->context);
    free(r);
}

static void test_groups(void **state)
{
    struct group_case cases[] = {
        {6, "", {3, 1}, TWILL_SERVER_ASYNC},    /* two groups in step */
        {6, "6x1", {2, 1}, TWILL_SERVER_SYNC},  /* three, on hosts */
        {8, "4x2", {2, 2}, TWILL_SERVER_SYNC},  /* two racks of two nodes of two ranks */
        {8, "4x2", {2, 2}, TWILL_SERVER_ASYNC}, /* the same */
    };
    (void)state;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        twill_test_run_ranks(cases[i].size, rank_groups, &cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
