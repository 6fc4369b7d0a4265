/* SPDX-License-Identifier: Apache-2.0 */
/* Worlds of many shapes, and the schedules of all their ranks, for tests. */
#ifndef TWILL_SCHEDULES_H
#define TWILL_SCHEDULES_H

#include "algorithms/algorithms.h"
#include "tests/support/sanitizers.h"

/* Rows of tables by algorithm, and an algorithm's, which is its place in the registry. */
#define TEST_ALGORITHMS 64
size_t test_algorithm_index(const struct twill_algorithm *algorithm);

/* One thing to emit. */
struct test_case {
    const struct twill_algorithm *algorithm;
    struct twill_world *world;
    struct twill_shape shape;
    char name[160];
};

typedef void (*test_case_fn)(const struct test_case *test, void *user);

/* How labels are dealt to ranks. */
enum test_placement {
    TEST_ONE_NODE,
    TEST_ALL_NODES,     /* one rank each */
    TEST_PAIRS,         /* two a node, the last one perhaps alone */
    TEST_HALVES,        /* two nodes */
    TEST_SQUARE,        /* about as many nodes as ranks a node */
    TEST_RAGGED,        /* nodes of 1, 2, 3, ... ranks */
    TEST_ROUND_ROBIN,   /* over three nodes */
    TEST_LONE_AND_MANY, /* rank 0 alone, all others together */
    TEST_RANDOM,        /* by seed */
    TEST_PLACEMENT_COUNT
};

/* Fill *world; false if the shape is that of an earlier placement at this size. */
bool test_world(struct twill_world *world, uint32_t size, unsigned placement, uint32_t seed);
/* Every algorithm, collective, flavour, order, vector or not, with some parameters, that applies to
 * this world, and `roots` roots of rooted collectives (0: all). Of the cases that may have the same
 * schedules the one that asks most of them comes first. TEST_ALGORITHM=name, TEST_COLLECTIVE=name:
 * that one only. */
void test_each_case(struct twill_world *world, uint32_t roots, test_case_fn fn, void *user);
/* The schedules of all ranks, or NULL and why. */
struct twill_schedule *test_try_emit(const struct test_case *test, struct twill_error *error);
/* The schedules of all ranks; fails the test if they cannot be had. */
struct twill_schedule *test_emit(const struct test_case *test);
/* The schedules met since the algorithm, world, collective, flavour, root or parameters changed. */
#define TEST_SEEN 64
struct test_seen {
    struct test_case last;
    uint64_t hash[TEST_SEEN];
    unsigned count;
};
/* Did the same schedules come by for a shape that asks at least as much? What was found of them
 * holds for this case too. Remembers them. */
bool test_is_covered(struct test_seen *seen, const struct test_case *test,
                     const struct twill_schedule *schedules);
/* Where votes may take the place of the first meeting all ranks must leave it out, or none: do
 * they, and do those of "direct" leave it out where they should? */
bool test_enters_alike(const struct test_case *test, const struct twill_schedule *schedules);
void test_schedules_destroy(struct twill_schedule *schedules, uint32_t size);

/* TEST_SEED, or 1. TEST_WHOLE asks for everything that is otherwise sampled. */
uint64_t test_seed(void);
bool test_whole(void);
uint32_t test_draw(uint64_t *state, uint32_t below);

#endif
