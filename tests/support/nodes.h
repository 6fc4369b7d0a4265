/* SPDX-License-Identifier: Apache-2.0 */
/* Whole nodes of machines that are not at hand: worlds of one node whose levels are found, as lib/
 * finds them, in recorded topologies. */
#ifndef TWILL_NODES_H
#define TWILL_NODES_H

#include "lib/job/config.h"
#include "lib/job/context.h"
#include "tests/support/schedules.h"

/* A machine: the units of each level that hwloc shows, with a rank on each core; 0: unknown. `slow`
 * is the largest level below the node with several units. */
struct test_machine {
    const char *text;                        /* a recorded file or hwloc's synthetic description */
    unsigned cores, units[TWILL_LEVEL_NODE]; /* tiles, L3 caches, NUMA nodes, packages */
    twill_level slow;
};
enum { TEST_MOST_CORES = 128 };

/* How ranks are placed: core by core; round robin over units; one per unit; all cores of the last
 * unit and every third of the others; on random cores. */
enum test_layout { EACH_CORE, ROUND_ROBIN, ONE_A_UNIT, UNEVEN, SHUFFLED, LAYOUT_COUNT };

struct test_node {
    struct twill_context context; /* topology, config and world only */
    struct twill_config config;
    struct twill_world *world;
    const struct test_machine *machine;
};

/* Call fn for all machines in all layouts. */
void test_each_node(void (*fn)(struct test_node *node, enum test_layout layout, void *user),
                    void *user);
/* Return the number of units of a level that have ranks; 0 if the level is unknown. */
uint32_t test_units(const struct test_node *node, unsigned level);

/* Add the bytes from unit i of a level to unit j to bytes[i * units + j]; the diagonal is what
 * stays inside a unit. `unit` is as in struct twill_world, with numbers 0 to units - 1. */
void test_traffic_by_link(uint64_t *bytes, uint32_t units, const uint32_t *unit,
                          const struct twill_schedule *schedule, uint32_t rank, size_t count,
                          struct twill_element_kind elements);

/* Bytes that cross between units of a level: in all, and the most into or out of one unit. */
struct test_crossing {
    uint64_t all, most;
};
struct test_crossing test_cross(const struct test_node *node, unsigned level,
                                const struct twill_schedule *schedules, size_t bytes);

/* Set algorithm and shape to what is chosen for the test's collective, root and protocol; MAPPED
 * requests mapped buffers. */
void test_choose(struct test_case *test, size_t bytes, struct twill_chooser *chooser);

#endif
