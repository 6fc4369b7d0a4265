/* SPDX-License-Identifier: Apache-2.0 */
/* Finds where the calling thread runs, and which units that is in. */
#include "numa/topology_internal.h"

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
    if (topology->more != NULL)
        hwloc_bitmap_or(here, here, topology->more);
    hwloc_bitmap_and(here, here, allowed);
    if (hwloc_bitmap_iszero(here)) /* bound to CPUs that the topology does not show */
        hwloc_bitmap_copy(here, allowed);
    return here;
}

void twill_topology_extend(struct twill_topology *topology, const struct twill_cpus *more)
{
    hwloc_bitmap_free(topology->more);
    topology->more = topology->machine.is_this_machine ? twill_cpus_bitmap(more) : NULL;
    hwloc_bitmap_t here = twill_topology_here(topology);
    if (here != NULL)
        twill_machine_locate(topology, here);
    hwloc_bitmap_free(here);
}

/* Parse a list of CPUs into a set, and keep those that the topology allows. Returns
 * TWILL_ERR_ARGUMENT if it is no list or none is left. */
static twill_status parse_cpus(const struct twill_topology *topology, const char *cpus,
                               hwloc_bitmap_t set, struct twill_error *error)
{
    if (hwloc_bitmap_list_sscanf(set, cpus) != 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "\"%.100s\" is not a list of CPUs", cpus);
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
    hwloc_bitmap_t set = NULL;
    if (cpus != NULL) {
        set = hwloc_bitmap_alloc();
        twill_status status =
            set == NULL ? TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for a set of CPUs")
                        : parse_cpus(topology, cpus, set, error);
        if (status != TWILL_OK) {
            hwloc_bitmap_free(set);
            return status;
        }
    }
    hwloc_bitmap_free(topology->here);
    topology->here = set;
    hwloc_bitmap_t here = twill_topology_here(topology);
    if (here == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for a set of CPUs");
    twill_machine_locate(topology, here);
    hwloc_bitmap_free(here);
    return TWILL_OK;
}

/* Return the logical index of the first object of a type whose CPUs include all of `here`, or -1 if
 * there is none. Caches on the memory's side are skipped. */
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

/* Return a hash of a set, FNV-1a of its indices. */
static uint64_t hash_bitmap(hwloc_const_bitmap_t set)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i))
        for (int byte = 0; byte < 4; byte++)
            hash = (hash ^ ((unsigned)i >> (8 * byte) & 0xff)) * 0x100000001b3u;
    return hash;
}

/* Get the place of a thread that may run on the PUs in `here`, and free `here`. Each index is that
 * of the unit that has all these PUs, or -1. If `here` is NULL, all indices are -1 and `cpus` is
 * 0. */
static void place_set(const struct twill_topology *topology, hwloc_bitmap_t here,
                      struct twill_place *place)
{
    hwloc_topology_t hwloc = topology->hwloc;
    *place = (struct twill_place){-1, -1, -1, -1, -1, -1, 0, 0};
    if (here == NULL)
        return;
    place->package = index_around(hwloc, here, HWLOC_OBJ_PACKAGE);
    place->numa = twill_numa_around(topology, here);
    place->l3 = index_around(hwloc, here, HWLOC_OBJ_L3CACHE);
    place->l2 = index_around(hwloc, here, HWLOC_OBJ_L2CACHE);
    place->core = index_around(hwloc, here, HWLOC_OBJ_CORE);
    place->pu = index_around(hwloc, here, HWLOC_OBJ_PU);
    place->cpuset_hash = hash_bitmap(here);
    place->cpus = (unsigned)hwloc_bitmap_weight(here);
    hwloc_bitmap_free(here);
}

void twill_topology_place(const struct twill_topology *topology, struct twill_place *place)
{
    place_set(topology, twill_topology_here(topology), place);
}

void twill_topology_place_pu(const struct twill_topology *topology, unsigned pu,
                             struct twill_place *place)
{
    hwloc_bitmap_t here = hwloc_bitmap_alloc();
    if (here != NULL && hwloc_bitmap_set(here, pu) != 0) {
        hwloc_bitmap_free(here);
        here = NULL;
    }
    place_set(topology, here, place);
}

/* Return the number of the package for PUs in the NUMA node units->numa. If several NUMA nodes have
 * CPUs and a whole package is inside this one, it is the first such package. Else it is
 * units->package. */
static int merge_packages(const struct twill_topology *topology, const struct twill_units *units)
{
    unsigned nodes = 0;
    hwloc_obj_t package = NULL;
    hwloc_obj_t node =
        hwloc_get_obj_by_type(topology->hwloc, HWLOC_OBJ_NUMANODE, (unsigned)units->numa);
    for (unsigned i = 0; i < topology->machine.numa_nodes; i++)
        nodes += topology->machine.numa[i].has_cpus;
    while (nodes > 1 && (package = hwloc_get_next_obj_by_type(topology->hwloc, HWLOC_OBJ_PACKAGE,
                                                              package)) != NULL)
        if (hwloc_bitmap_isincluded(package->cpuset, node->cpuset))
            return (int)package->logical_index;
    return units->package;
}

/* Return a NUMA node number for PUs whose node the topology does not have, as its memory may not be
 * used. It is the number of NUMA nodes plus that of the package. Returns -1 if the PUs have a node
 * or span several packages. */
static int node_without_memory(const struct twill_topology *topology, hwloc_const_bitmap_t here,
                               int package)
{
    const struct twill_machine *machine = &topology->machine;
    for (unsigned i = 0; i < machine->numa_nodes; i++)
        if (machine->numa[i].has_cpus &&
            hwloc_bitmap_intersects(
                hwloc_get_obj_by_type(topology->hwloc, HWLOC_OBJ_NUMANODE, i)->cpuset, here))
            return -1;
    if (package < 0 && machine->packages > 1)
        return -1;
    return (int)machine->numa_nodes + twill_max(package, 0);
}

void twill_topology_units(const struct twill_topology *topology, const struct twill_cpus *cpus,
                          struct twill_units *units)
{
    *units = (struct twill_units){-1, -1, -1, -1, false};
    hwloc_topology_t hwloc = topology->hwloc;
    hwloc_bitmap_t here = cpus != NULL ? twill_cpus_bitmap(cpus) : twill_topology_here(topology);
    if (here == NULL)
        return;
    units->tile = index_around(hwloc, here, HWLOC_OBJ_L2CACHE);
    units->l3 = index_around(hwloc, here, HWLOC_OBJ_L3CACHE);
    units->package = index_around(hwloc, here, HWLOC_OBJ_PACKAGE);
    units->numa = twill_numa_around(topology, here);
    if (units->numa >= 0 && !topology->machine.numa[units->numa].has_cpus)
        units->numa = -1; /* MCDRAM near several nodes with cores */
    if (units->numa >= 0)
        units->package = merge_packages(topology, units);
    else
        units->numa = node_without_memory(topology, here, units->package);
    units->roams = units->tile < 0 && index_around(hwloc, here, HWLOC_OBJ_CORE) < 0;
    hwloc_bitmap_free(here);
}
