/* SPDX-License-Identifier: Apache-2.0 */
/* The levels of the world's hierarchy: units within nodes (tile, L3, NUMA node, package), found
 * or declared, and declared groups of nodes. */
#ifndef TWILL_FIND_LEVELS_H
#define TWILL_FIND_LEVELS_H

#include "lib/job/context.h"

/* Where a rank runs. Exchanged between ranks as it is in memory. */
struct twill_level_info {
    int16_t unit[TWILL_LEVEL_NODE]; /* logical index on the host; -1: in none, or in several */
    uint8_t roams;        /* may run on several cores: struct twill_units. No bool: another rank may
                             send any byte */
    uint8_t elsewhere;    /* on a machine that TWILL_LAYOUT=topology has replaced */
    uint32_t cpus;        /* number of CPUs it may run on */
    uint64_t cpuset_hash; /* of these CPUs */
};
/* Describe a rank that may run on `cpus`; NULL: those of the calling thread. */
void twill_levels_describe(const struct twill_topology *topology, const struct twill_cpus *cpus,
                           struct twill_level_info *info);
/* Set the levels of the context's world, whose nodes are known: units as info[size] says, unless
 * TWILL_LAYOUT=units declares them, and groups as TWILL_LAYOUT=groups declares. Collective: ranks
 * on a machine that TWILL_LAYOUT=topology has replaced exchange where they would be bound there. */
twill_status twill_levels_open(struct twill_context *context, struct twill_level_info *info);
/* Set the levels of a world: from info[size]; or from the values of TWILL_LAYOUT=groups and
 * TWILL_LAYOUT=units (NULL: not set). */
twill_status twill_levels_find(struct twill_world *world, const struct twill_level_info *info,
                               struct twill_error *error);
twill_status twill_levels_declare(struct twill_world *world, const char *groups, const char *units,
                                  struct twill_error *error);
/* Set the levels of a world as if twillrun had bound the ranks of each node on this machine. */
twill_status twill_levels_place(struct twill_world *world, const struct twill_topology *topology,
                                struct twill_error *error);

/* Note for twill-info: the hierarchy as a tree; where this rank runs, with advice if ranks are not
 * bound. */
void twill_levels_log_world(struct twill_context *context);
void twill_levels_log_binding(struct twill_context *context);

#endif
