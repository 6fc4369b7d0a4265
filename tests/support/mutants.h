/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of schedules, and rules that show which of them are equivalent to the original. */
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

/* The rules by which mutants are equivalent to the original. */
enum test_rule {
    NO_RULE,
    COMMUTES,      /* neighbours that access nothing in common, and order nothing */
    WAITS_EARLIER, /* stricter, unless it deadlocks */
    SIGNALS_LATER,
    NOTHING_SIGNALLED, /* WAIT for SENDs only: it orders nothing */
    PACES,   /* a WAIT between unrelated messages: it only bounds what is posted, or sent */
    KNOWN,   /* AWAIT of a first SIGNAL, which only shows that its rank has started: known anyway */
    RELAYED, /* AWAIT of a rank that itself awaited the one to be named */
    PAIR,    /* two ranks on a node: either may signal first */
    SAME_VALUE,  /* the other location has a copy of the same value */
    ORDER_FREE,  /* reduced by one rank alone: any order gives all ranks the same */
    MORE_COPIED, /* to where nothing is read before it is overwritten */
    TEST_RULES
};
const char *test_rule_name(enum test_rule rule);

/* The case of a mutant: its schedules, and the altered step. */
struct test_scene {
    const struct test_case *test;
    const struct twill_schedule *schedules; /* of all ranks; that of `rank` is altered */
    const struct twill_schedule *whole;     /* the original schedule of `rank` */
    uint32_t rank, at;
};
/* Return the rule by which a mutant that was not noticed is equivalent, or NO_RULE. */
enum test_rule test_explain(enum test_mutation kind, const struct test_scene *scene);

#endif
