/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of schedules, and which of them are as good as the original, by what rule. */
#ifndef TWILL_MUTANTS_H
#define TWILL_MUTANTS_H

#include "tests/support/schedules.h"

enum test_mutation {
    DROP,       /* the step is gone */
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
    TWICE,         /* once more */
    SWAP,          /* with the next step */
    TEST_MUTATIONS
};
const char *test_mutation_name(enum test_mutation kind);

/* Variant v of a mutation of step `at`; the steps have room for one more. False: there is none, or
 * it is one that nobody could tell from the original. */
bool test_mutate(struct twill_schedule *s, const struct twill_world *world, uint32_t at,
                 enum test_mutation kind, uint32_t v);

/* Mutants that are as good as the original, by the rule that says why. */
enum test_rule {
    NO_RULE,
    COMMUTES,      /* neighbours that touch nothing in common, and order nothing */
    WAITS_EARLIER, /* stricter, if it ends */
    SIGNALS_LATER,
    NOTHING_SIGNALLED, /* WAIT for SENDs only: nothing is learnt by it */
    PACES,   /* a WAIT between messages that have nothing in common: a bound on what is posted, or
                sent */
    KNOWN,   /* AWAIT of a first SIGNAL, which says but that its rank has begun: heard anyway */
    RELAYED, /* AWAIT of a rank that has heard of the one it should name */
    PAIR,    /* of two on a node, who tells whom first is all one */
    SAME_VALUE,  /* of two places that one is a copy of */
    ORDER_FREE,  /* one rank alone folds this: any order gives all the same */
    MORE_COPIED, /* where nobody reads before it is written again */
    TEST_RULES
};
const char *test_rule_name(enum test_rule rule);

/* What mutants are explained by: the case, its schedules, and where the step is. */
struct test_scene {
    const struct test_case *test;
    const struct twill_schedule *schedules; /* of all ranks; those of `rank` altered */
    const struct twill_schedule *whole;     /* that rank's as it was */
    uint32_t rank, at;
};
/* Why a mutant that was not noticed is right, or NO_RULE. */
enum test_rule test_explain(enum test_mutation kind, const struct test_scene *scene);

#endif
