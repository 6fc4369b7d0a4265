/* SPDX-License-Identifier: Apache-2.0 */
/* Internal to numa/topology*.c. The only header that includes hwloc. */
#ifndef TWILL_TOPOLOGY_INTERNAL_H
#define TWILL_TOPOLOGY_INTERNAL_H

#include "numa/topology.h"

#include <hwloc.h>

/* A loaded topology, until twill_topology_close(). Read-only but for twill_topology_locate(). */
struct twill_topology {
    hwloc_topology_t hwloc;
    hwloc_bitmap_t here; /* where a described process runs, NULL if everywhere or this machine */
    hwloc_bitmap_t more; /* CPUs on which this process runs besides those of a thread, or NULL */
    struct twill_machine machine;
};

/* Return the CPUs that the calling thread may run on and topology->more, to be freed, or NULL if
 * out of memory. */
hwloc_bitmap_t twill_topology_here(const struct twill_topology *topology);
/* Return the logical index of a NUMA node that holds these CPUs, with CPUs if possible, or -1. */
int twill_numa_around(const struct twill_topology *topology, hwloc_const_bitmap_t here);
/* Fill in topology->machine from hwloc, except what loading it and twill_machine_locate() set, and
 * barred_hbm. */
void twill_machine_describe(struct twill_topology *topology);
/* Return whether the topology leaves out NUMA nodes whose memory this process may not use. */
bool twill_machine_is_restricted(const struct twill_topology *topology);
/* Correct `machine` by `all`, which describes the same machine with all NUMA nodes. Kinds of memory
 * and has_cpus are copied from there. MCDRAM or HBM nodes that `machine` lacks, because this
 * process may not use them, are added to its barred_hbm. */
void twill_machine_compare(struct twill_machine *machine, const struct twill_machine *all);
/* Set in topology->machine what depends on the CPUs `here` on which the process runs: allowed_pus,
 * hbm_is_faster and `local`. For each kind of memory the fastest of the nodes whose CPUs include
 * `here` are local, or if there are none (unbound on SNC4), of those that share CPUs with it. */
void twill_machine_locate(struct twill_topology *topology, hwloc_const_bitmap_t here);
/* Convert a set of PUs to hwloc's, which the caller frees. Returns NULL if out of memory. */
hwloc_bitmap_t twill_cpus_bitmap(const struct twill_cpus *cpus);
/* Convert a set of hwloc's into *cpus. PUs from number TWILL_CPUS_MOST on are lost. */
void twill_cpus_from(struct twill_cpus *cpus, hwloc_const_bitmap_t set);
/* Return whether an object is a cache on the memory's side, which hwloc calls an L3 on KNL. */
bool twill_is_side_cache(hwloc_obj_t object);

#endif
