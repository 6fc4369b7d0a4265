/* SPDX-License-Identifier: Apache-2.0 */
/* Whole nodes that we do not have: worlds of one node whose levels are found, as lib/ finds them,
 * on recorded topologies. */
#ifndef TWILL_NODES_H
#define TWILL_NODES_H

#include "lib/comm/context.h"
#include "tests/support/schedules.h"

/* Units of each level that hwloc shows, with a rank on each core; 0: not known. `slow` is the
 * largest below the node that there are several of. */
struct test_machine {
    const char *text, *what;                 /* a recorded file, or hwloc's synthetic description */
    unsigned cores, units[TWILL_LEVEL_NODE]; /* tiles, L3 caches, NUMA domains, packages */
    twill_level slow;
};
enum { TEST_MOST_CORES = 128 };

/* How ranks are laid out: core by core; core by core of each unit in turn; one a unit; all cores of
 * the last unit and every third of others; on cores drawn by chance. */
enum test_layout { EACH_CORE, ROUND_ROBIN, ONE_A_UNIT, UNEVEN, SHUFFLED, LAYOUT_COUNT };

struct test_node {
    struct twill_context context; /* its topology, config and world only */
    struct twill_world *world;
    const struct test_machine *machine;
};

/* All machines, in all layouts. */
void test_each_node(void (*fn)(struct test_node *node, enum test_layout layout, void *user),
                    void *user);
/* Units of a level that have ranks, 0: it is not known. */
uint32_t test_units(const struct test_node *node, unsigned level);

/* Bytes from unit to unit of a level: all, and the most that one gets or gives. */
struct test_crossing {
    uint64_t all, most;
};
struct test_crossing test_cross(const struct test_node *node, unsigned level,
                                const struct twill_schedule *schedules, size_t bytes);

/* Fill in what is chosen for the test's collective, root and flavour: MAPPED asks for memory that
 * is mapped. */
void test_choose(struct test_case *test, size_t bytes, struct twill_chooser *chooser);

#endif
