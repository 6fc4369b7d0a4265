/* SPDX-License-Identifier: Apache-2.0 */
/* The levels of a world. Units within a node are found or declared. Groups are declared. */
#ifndef TWILL_FIND_LEVELS_H
#define TWILL_FIND_LEVELS_H

#include "lib/job/context.h"

/* Where a rank runs. Exchanged between ranks as it is in memory. */
struct twill_level_info {
    int16_t unit[TWILL_LEVEL_NODE]; /* logical index on the host, -1 if in none or several */
    uint8_t roams;        /* may use cores of several tiles; no bool, as a peer may send any byte */
    uint8_t elsewhere;    /* 1 if its machine is replaced by TWILL_LAYOUT=topology */
    uint32_t cpus;        /* number of CPUs that the rank's thread may run on */
    uint64_t cpuset_hash; /* of these CPUs */
};
/* Set *info to the place of a rank. Its units and `roams` are those of `cpus` or, if that is NULL,
 * of the CPUs that this thread may run on. info->cpus and cpuset_hash are always of this thread. */
void twill_levels_describe(const struct twill_topology *topology, const struct twill_cpus *cpus,
                           struct twill_level_info *info);
/* Set the levels of the context's world, whose nodes are known. Units come from TWILL_LAYOUT=units
 * or, without it, from info[size]. Groups come from TWILL_LAYOUT=groups. Sets job.unbound to
 * whether several ranks of a node may run on the same set of several cores. Without
 * TWILL_LAYOUT=units one of them then logs that. Fails if the layout is wrong. Collective, as ranks
 * exchange places in info[] if TWILL_LAYOUT=topology is set. */
twill_status twill_levels_open(struct twill_context *context, struct twill_level_info *info);
/* Set a world's levels from info[size], if any rank knows them. Fails only if out of memory. */
twill_status twill_levels_find(struct twill_world *world, const struct twill_level_info *info,
                               struct twill_error *error);
/* Set levels as `groups` and `units`, values of TWILL_LAYOUT=groups and units, say. Each may be
 * NULL, which sets nothing. Fails if one is malformed or does not fit the world. */
twill_status twill_levels_declare(struct twill_world *world, const char *groups, const char *units,
                                  struct twill_error *error);
/* Set the levels of a world as if twillrun had bound the ranks of each node on this machine.
 * Returns TWILL_ERR_ARGUMENT if a node has more ranks than the machine has cores. */
twill_status twill_levels_place(struct twill_world *world, const struct twill_topology *topology,
                                struct twill_error *error);

/* Add notes to twill-info that draw the hierarchy as a tree. */
void twill_levels_log_world(struct twill_context *context);
/* Add a line to twill_context_describe() that says on which CPUs this rank may run, unless
 * TWILL_LAYOUT=topology replaces the machine. If ranks are not bound (job.unbound), and others are
 * on this rank's node, add another line with CPUs to which to bind it. */
void twill_levels_log_binding(struct twill_context *context);

#endif
