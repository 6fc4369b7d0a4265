/* SPDX-License-Identifier: Apache-2.0 */
/* Where the caller runs, and where local ranks would best run. */
#include "numa/topology_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

hwloc_bitmap_t twill_topology_here(const struct twill_topology *topology)
{
    if (topology->here != NULL)
        return hwloc_bitmap_dup(topology->here);
    hwloc_bitmap_t here = hwloc_bitmap_alloc();
    if (here == NULL)
        return NULL;
    hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(topology->hwloc);
    if (!topology->machine.is_this_machine ||
        hwloc_get_cpubind(topology->hwloc, here, HWLOC_CPUBIND_THREAD) != 0)
        hwloc_bitmap_copy(here, hwloc_topology_get_topology_cpuset(topology->hwloc));
    hwloc_bitmap_and(here, here, allowed);
    if (hwloc_bitmap_iszero(here)) /* bound to CPUs the topology does not show */
        hwloc_bitmap_copy(here, allowed);
    return here;
}

/* The part of the allowed CPUs that the text names. */
static twill_status parse_cpus(const struct twill_topology *topology, const char *cpus,
                               hwloc_bitmap_t set, struct twill_error *error)
{
    if (hwloc_bitmap_list_sscanf(set, cpus) != 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "\"%.100s\" is no list of CPUs", cpus);
    hwloc_bitmap_and(set, set, hwloc_topology_get_allowed_cpuset(topology->hwloc));
    if (hwloc_bitmap_iszero(set))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "the machine has none of the CPUs \"%.100s\"",
                          cpus);
    return TWILL_OK;
}

twill_status twill_topology_locate(struct twill_topology *topology, const char *cpus,
                                   struct twill_error *error)
{
    if (cpus != NULL && topology->machine.is_this_machine)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "the kernel decides which CPUs this process runs on, not \"%.100s\"",
                          cpus);
    if (cpus != NULL) {
        hwloc_bitmap_t set = hwloc_bitmap_alloc();
        twill_status status =
            set == NULL ? TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for a set of CPUs")
                        : parse_cpus(topology, cpus, set, error);
        if (status != TWILL_OK) {
            hwloc_bitmap_free(set);
            return status;
        }
        hwloc_bitmap_free(topology->here);
        topology->here = set;
    } else {
        hwloc_bitmap_free(topology->here);
        topology->here = NULL;
    }
    hwloc_bitmap_t here = twill_topology_here(topology);
    if (here == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for a set of CPUs");
    twill_machine_locate(topology, here);
    hwloc_bitmap_free(here);
    return TWILL_OK;
}

/* Logical index of the object of a type that has all of the CPUs, -1: none has. */
static int index_around(hwloc_topology_t hwloc, hwloc_const_bitmap_t here, hwloc_obj_type_t type)
{
    hwloc_obj_t object = NULL;
    while ((object = hwloc_get_next_obj_by_type(hwloc, type, object)) != NULL)
        if (hwloc_bitmap_isincluded(here, object->cpuset) && !twill_is_side_cache(object))
            return (int)object->logical_index;
    return -1;
}

int twill_numa_around(const struct twill_topology *topology, hwloc_const_bitmap_t here)
{
    int found = -1;
    for (unsigned i = 0; i < topology->machine.numa_nodes; i++) {
        hwloc_obj_t node = hwloc_get_obj_by_type(topology->hwloc, HWLOC_OBJ_NUMANODE, i);
        if (!hwloc_bitmap_isincluded(here, node->cpuset))
            continue;
        if (topology->machine.numa[i].has_cpus)
            return (int)i;
        if (found < 0)
            found = (int)i;
    }
    return found;
}

/* FNV-1a over the indices. */
static uint64_t hash_of(hwloc_const_bitmap_t set)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i))
        for (int byte = 0; byte < 4; byte++)
            hash = (hash ^ ((unsigned)i >> (8 * byte) & 0xff)) * 0x100000001b3u;
    return hash;
}

void twill_topology_place(const struct twill_topology *topology, struct twill_place *place)
{
    *place = (struct twill_place){-1, -1, -1, -1, -1, -1, 0, 0};
    hwloc_topology_t hwloc = topology->hwloc;
    hwloc_bitmap_t here = twill_topology_here(topology);
    if (here == NULL)
        return;
    place->package = index_around(hwloc, here, HWLOC_OBJ_PACKAGE);
    place->numa = twill_numa_around(topology, here);
    place->l3 = index_around(hwloc, here, HWLOC_OBJ_L3CACHE);
    place->l2 = index_around(hwloc, here, HWLOC_OBJ_L2CACHE);
    place->core = index_around(hwloc, here, HWLOC_OBJ_CORE);
    place->pu = index_around(hwloc, here, HWLOC_OBJ_PU);
    place->cpuset_hash = hash_of(here);
    place->cpus = (unsigned)hwloc_bitmap_weight(here);
    hwloc_bitmap_free(here);
}

static int index_touched(hwloc_topology_t hwloc, hwloc_const_bitmap_t here, hwloc_obj_type_t type)
{
    hwloc_obj_t object = NULL;
    while ((object = hwloc_get_next_obj_by_type(hwloc, type, object)) != NULL)
        if (hwloc_bitmap_intersects(here, object->cpuset) && !twill_is_side_cache(object))
            return (int)object->logical_index;
    return -1;
}

/* See struct twill_units. */
static void merge_packages(const struct twill_topology *topology, struct twill_units *units)
{
    unsigned nodes = 0;
    hwloc_obj_t node =
        hwloc_get_obj_by_type(topology->hwloc, HWLOC_OBJ_NUMANODE, (unsigned)units->numa);
    for (unsigned i = 0; i < topology->machine.numa_nodes; i++)
        nodes += topology->machine.numa[i].has_cpus;
    int first = index_touched(topology->hwloc, node->cpuset, HWLOC_OBJ_PACKAGE);
    if (nodes > 1 && first >= 0 && first < units->package)
        units->package = first;
}

void twill_topology_units(const struct twill_topology *topology, struct twill_units *units)
{
    *units = (struct twill_units){-1, -1, -1, -1};
    hwloc_topology_t hwloc = topology->hwloc;
    hwloc_bitmap_t here = twill_topology_here(topology);
    if (here == NULL)
        return;
    units->tile = index_touched(hwloc, here, HWLOC_OBJ_L2CACHE);
    units->l3 = index_touched(hwloc, here, HWLOC_OBJ_L3CACHE);
    units->package = index_touched(hwloc, here, HWLOC_OBJ_PACKAGE);
    for (unsigned i = 0; i < topology->machine.numa_nodes && units->numa < 0; i++) {
        hwloc_obj_t node = hwloc_get_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, i);
        if (topology->machine.numa[i].has_cpus && hwloc_bitmap_intersects(here, node->cpuset))
            units->numa = (int)i;
    }
    if (units->numa >= 0)
        merge_packages(topology, units);
    hwloc_bitmap_free(here);
}

/* The number of cores with an allowed PU; with `set`, add the PUs of those from `from` up to `to`.
 * Where no core is known, PUs are the cores. */
static unsigned walk_cores(hwloc_topology_t hwloc, hwloc_const_bitmap_t here, unsigned from,
                           unsigned to, hwloc_bitmap_t set)
{
    unsigned seen = 0;
    int depth = hwloc_get_type_or_below_depth(hwloc, HWLOC_OBJ_CORE);
    hwloc_obj_t core = NULL;
    while ((core = hwloc_get_next_obj_by_depth(hwloc, depth, core)) != NULL) {
        if (!hwloc_bitmap_intersects(core->cpuset, here))
            continue;
        if (set != NULL && seen >= from && seen < to)
            hwloc_bitmap_or(set, set, core->cpuset);
        seen++;
    }
    return seen;
}

twill_status twill_topology_advise(const struct twill_topology *topology, unsigned l, unsigned n,
                                   char *text, size_t bytes, struct twill_error *error)
{
    if (l >= n)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "local rank %u of %u does not exist", l, n);
    if (text == NULL || bytes == 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "no room for the list of CPUs");
    hwloc_bitmap_t here = twill_topology_here(topology), set = hwloc_bitmap_alloc();
    int length = -1;
    if (here != NULL && set != NULL) {
        unsigned cores = walk_cores(topology->hwloc, here, 0, 0, NULL);
        unsigned from = n <= cores ? (unsigned)((uint64_t)l * cores / n) : l % (cores + !cores);
        unsigned to = n <= cores ? (unsigned)((uint64_t)(l + 1) * cores / n) : from + 1;
        walk_cores(topology->hwloc, here, from, to, set);
        hwloc_bitmap_and(set, set, here);
        length = hwloc_bitmap_list_snprintf(text, bytes, set);
    }
    hwloc_bitmap_free(here);
    hwloc_bitmap_free(set);
    if (length < 0)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for a set of CPUs");
    if ((size_t)length >= bytes)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "the list of CPUs needs %d bytes, not %zu",
                          length + 1, bytes);
    return TWILL_OK;
}
