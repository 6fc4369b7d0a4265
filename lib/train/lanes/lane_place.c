/* SPDX-License-Identifier: Apache-2.0 */
/* Where the threads of lanes run, and what they reach the network by. */
#include "lib/train/gradients.h"
#include "numa/topology.h"

#include <stdio.h>

void twill_lane_place(struct twill_lane *lane)
{
    lane->own.core =
        twill_extend_choose_cpu(lane->set->context, lane->set->lanes,
                                (unsigned)(lane - lane->set->lane), &lane->own.own_core);
}

/* Append ", LEVEL N", if there is such. */
static size_t add_level(char *text, size_t bytes, const char *level, int index)
{
    return index < 0 ? 0 : (size_t)snprintf(text, bytes, "%s %d, ", level, index);
}

/* Print where the thread runs. Returns the length. */
static size_t describe_core(const struct twill_lane *lane, char *text, size_t bytes)
{
    struct twill_place place;
    if (lane->own.core < 0)
        return (size_t)snprintf(text, bytes, "not bound, as no PU is left for it");
    twill_topology_place_pu(lane->set->process.topology, (unsigned)lane->own.core, &place);
    size_t used = add_level(text, bytes, "package", place.package);
    used += add_level(text + used, bytes - used, "NUMA node", place.numa);
    used += add_level(text + used, bytes - used, "L3", place.l3);
    used += add_level(text + used, bytes - used, "core", place.core);
    used += (size_t)snprintf(text + used, bytes - used, "PU %d (%s)", lane->own.core,
                             lane->own.own_core ? "one of this rank's"
                                                : "no rank of this host may run there");
    return used;
}

void twill_lane_describe(const struct twill_lane *lane, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "thread %td: ", lane - lane->set->lane);
    used += describe_core(lane, text + used, bytes - used);
    if (used < bytes)
        twill_extend_describe_endpoints(lane->comm, text + used, bytes - used);
}
