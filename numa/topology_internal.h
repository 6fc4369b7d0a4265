/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of numa/topology share; the only header that shows hwloc. */
#ifndef TWILL_TOPOLOGY_INTERNAL_H
#define TWILL_TOPOLOGY_INTERNAL_H

#include "numa/topology.h"

#include <hwloc.h>

struct twill_topology {
    hwloc_topology_t hwloc;
    hwloc_bitmap_t here; /* a replaced machine: where the process is said to run; else NULL */
    struct twill_machine machine;
};

/* CPUs the caller's thread may run on, of those the topology allows. NULL when memory is out; the
 * caller frees it. */
hwloc_bitmap_t twill_topology_here(const struct twill_topology *topology);

/* Logical index of the NUMA node that holds these CPUs, one with CPUs before the MCDRAM beside it;
 * -1: none. */
int twill_numa_around(const struct twill_topology *topology, hwloc_const_bitmap_t here);

/* Fill topology->machine, all but `source` and `is_this_machine`, from the loaded topology. */
void twill_machine_describe(struct twill_topology *topology);
/* Fill what depends on where the process runs: allowed_pus and `local`. */
void twill_machine_locate(struct twill_topology *topology, hwloc_const_bitmap_t here);

/* PUs as hwloc has them; NULL when memory is out, the caller frees it. */
hwloc_bitmap_t twill_cpus_bitmap(const struct twill_cpus *cpus);
void twill_cpus_from(struct twill_cpus *cpus, hwloc_const_bitmap_t set);

/* "memory-side cache" is an L3 by name on KNL: no cache of the cores. */
bool twill_is_side_cache(hwloc_obj_t object);

#endif
