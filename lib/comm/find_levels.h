/* SPDX-License-Identifier: Apache-2.0 */
/* The levels of the machine in the world: parts of nodes, and groups of them. */
#ifndef TWILL_FIND_LEVELS_H
#define TWILL_FIND_LEVELS_H

#include "lib/comm/context.h"

/* What a rank tells of where it runs. */
struct twill_level_info {
    int16_t unit[TWILL_LEVEL_NODE]; /* logical index on the host, -1: of none, or of several */
    bool roams;                     /* over several cores, see struct twill_units */
    bool elsewhere;                 /* on a machine that TWILL_TOPOLOGY replaced */
    uint32_t cpus;                  /* that it may run on */
    uint64_t cpuset_hash;           /* of these */
};
/* cpus NULL: those that the caller's thread may run on. */
void twill_levels_describe(const struct twill_topology *topology, const struct twill_cpus *cpus,
                           struct twill_level_info *info);
/* Give the context's world, whose nodes are known, its levels: where ranks run, unless TWILL_UNITS
 * declares them, and TWILL_GROUPS. Collective: ranks on a machine that TWILL_TOPOLOGY replaced tell
 * each other where they would be bound there. card[size]. */
twill_status twill_levels_open(struct twill_context *context, struct twill_level_info *info);
/* The same of any world: by what ranks tell, by what the two variables declare (NULL: nothing). */
twill_status twill_levels_find(struct twill_world *world, const struct twill_level_info *info,
                               struct twill_error *error);
twill_status twill_levels_declare(struct twill_world *world, const char *groups, const char *units,
                                  struct twill_error *error);
/* By where twillrun would bind the ranks of each node on this machine. */
twill_status twill_levels_place(struct twill_world *world, const struct twill_topology *topology,
                                struct twill_error *error);

/* Describe the levels of the context's world as a tree; where this rank runs, and where it would
 * best run, unless ranks are bound. */
void twill_levels_log_world(struct twill_context *context);
void twill_levels_log_binding(struct twill_context *context);

#endif
