/* SPDX-License-Identifier: Apache-2.0 */
/* Set-up takes few exchanges: contexts and communicators on one node and on several. */
#include "lib/comm/comm.h"
#include "tests/support/unit.h"

#include <sys/resource.h>

static const struct rounds_case {
    const char *name, *nodes;
    int size;
    unsigned first, dup; /* most exchanges: context and first communicator; a duplicate */
} cases[] = {
    {"one node", "1x4", 4, 5, 3},
    {"two nodes", "2x2", 4, 6, 3},
    {"a rank on each node", "3x1", 3, 6, 3},
};

static void count_rounds(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct rounds_case *c = user;
    const char *settings[] = {TWILL_TEST_PATIENT, NULL};
    twill_context *context = NULL;
    twill_comm *comm = NULL, *dup = NULL;
    if (twill_test_connect(&context, &comm, bootstrap, c->nodes, NULL, settings) &&
        TWILL_NOTE(twill_comm_dup(&dup, comm) == TWILL_OK, "%s", twill_comm_message(comm))) {
        if (rank == 0)
            printf("%s: %u exchanges, %u for a duplicate\n", c->name, context->job.oob->rounds,
                   dup->oob->rounds);
        TWILL_NOTE(context->job.oob->rounds > 0 && context->job.oob->rounds <= c->first &&
                       dup->oob->rounds > 0 && dup->oob->rounds <= c->dup,
                   "rank %d of %d on %s: %u exchanges, %u for a duplicate", rank, size, c->name,
                   context->job.oob->rounds, dup->oob->rounds);
    }
    twill_comm_destroy(dup);
    twill_test_disconnect(comm, context);
}

/* The heap is shared for nodes that there are not: ranks that share no memory are nodes. */
static void run_alone(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const char *const *nodes = user;
    const char *settings[] = {TWILL_TEST_PATIENT, NULL};
    twill_context *context = NULL;
    twill_comm *comm = NULL, *dup = NULL;
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};
    int32_t one = 1, sum = 0;
    TWILL_CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    TWILL_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0); /* of memory files, too */
    if (twill_test_connect(&context, &comm, bootstrap, *nodes, NULL, settings) &&
        TWILL_NOTE(twill_comm_dup(&dup, comm) == TWILL_OK, "%s", twill_comm_message(comm))) {
        TWILL_CHECK(context->job.world.nodes == (uint32_t)size && comm->local_size == 1);
        TWILL_CHECK(twill_allreduce(comm, &one, &sum, 1, TWILL_I32, TWILL_SUM) == TWILL_OK);
        TWILL_CHECK(sum == size);
        TWILL_CHECK(twill_allreduce(dup, &one, &sum, 1, TWILL_I32, TWILL_SUM) == TWILL_OK);
        TWILL_CHECK(sum == size);
        for (int r = 0; r < size; r++)
            TWILL_CHECK(r == rank || !twill_comm_is_dead(comm, (uint32_t)r));
    }
    twill_comm_destroy(dup);
    twill_test_disconnect(comm, context);
}

TWILL_TEST(test_no_sharing)
{
    const char *nodes[] = {"1x3", "2+1"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(nodes); i++)
        twill_test_run_processes(3, run_alone, &nodes[i]);
}

/* A context can end without a communicator. */
TWILL_TEST_OF_RANKS(test_context_alone, 3)
{
    const char *settings[] = {TWILL_TEST_PATIENT, NULL};
    twill_context *context = NULL;
    TWILL_CHECK(twill_context_create(&context, bootstrap, settings) == TWILL_OK);
    twill_context_destroy(context);
}

TWILL_TEST(test_rounds)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        struct rounds_case one = cases[i];
        twill_test_run_ranks(one.size, count_rounds, &one);
        twill_test_run_processes(one.size, count_rounds, &one);
    }
}
