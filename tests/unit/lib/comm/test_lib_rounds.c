/* SPDX-License-Identifier: Apache-2.0 */
/* Set-up takes few exchanges: contexts and communicators on one node and on several. */
#include "lib/comm/comm.h"
#include "tests/support/ranks.h"

#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

static const struct rounds_case {
    const char *name, *nodes;
    int size;
    unsigned first, dup; /* most exchanges: context and first communicator; a duplicate */
} cases[] = {
    {"one node", "1x4", 4, 5, 3},
    {"two nodes", "2x2", 4, 7, 3},
    {"a rank on each node", "3x1", 3, 7, 3},
};

static void count_rounds(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct rounds_case *c = user;
    const char *settings[] = {TWILL_TEST_PATIENT, NULL};
    twill_context *context = NULL;
    twill_comm *comm = NULL, *dup = NULL;
    if (twill_test_connect(&context, &comm, bootstrap, c->nodes, NULL, settings) &&
        twill_test_note(twill_comm_dup(&dup, comm) == TWILL_OK, __FILE__, __LINE__, "%s",
                        twill_comm_message(comm))) {
        if (rank == 0)
            printf("%s: %u exchanges, %u for a duplicate\n", c->name, context->job.oob->rounds,
                   dup->oob->rounds);
        twill_test_note(context->job.oob->rounds > 0 && context->job.oob->rounds <= c->first &&
                            dup->oob->rounds > 0 && dup->oob->rounds <= c->dup,
                        __FILE__, __LINE__, "rank %d of %d on %s: %u exchanges, %u for a duplicate",
                        rank, size, c->name, context->job.oob->rounds, dup->oob->rounds);
    }
    twill_comm_destroy(dup);
    twill_comm_destroy(comm);
    twill_context_destroy(context);
}

static void test_rounds(void **state)
{
    (void)state;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        struct rounds_case one = cases[i];
        twill_test_run_ranks(one.size, count_rounds, &one);
        twill_test_run_processes(one.size, count_rounds, &one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
