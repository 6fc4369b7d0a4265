/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of schedules. */
#ifndef TWILL_MUTANTS_H
#define TWILL_MUTANTS_H

#include "tests/support/schedules.h"

enum test_mutation {
    DROP,       /* the step is removed */
    DROP_PEER,  /* AWAIT, REDUCE: one rank fewer */
    ALTER_PEER, /* another rank */
    ALTER_DST,  /* the next block */
    ALTER_SRC,
    ALTER_DST_SPACE, /* the next space */
    ALTER_SRC_SPACE,
    ALTER_LENGTH,  /* one block more or fewer */
    ALTER_FLAG,    /* each bit */
    ALTER_ORDINAL, /* one more or fewer */
    ALTER_OP,      /* each other operation */
    ALTER_LANE,    /* to the end of another lane */
    TWICE,         /* the step is repeated */
    SWAP,          /* exchanged with the next step */
    TEST_MUTATIONS
};
const char *test_mutation_name(enum test_mutation kind);

/* Apply variant v of a mutation to step `at`; `steps` must have capacity for one more. Returns
 * false if there is no such variant, or if it cannot differ from the original. */
bool test_mutate(struct twill_schedule *s, const struct twill_world *world, uint32_t at,
                 enum test_mutation kind, uint32_t v);

#endif
