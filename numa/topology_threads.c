/* SPDX-License-Identifier: Apache-2.0 */
/* Computes on which PUs the threads of one rank work. */
#include "numa/topology_internal.h"

/* Return the number of PUs of a core that are in a set. */
static unsigned count_pus(hwloc_obj_t core, hwloc_const_bitmap_t set)
{
    unsigned count = 0;
    for (int pu = hwloc_bitmap_first(core->cpuset); pu >= 0;
         pu = hwloc_bitmap_next(core->cpuset, pu))
        count += (unsigned)hwloc_bitmap_isset(set, (unsigned)pu);
    return count;
}

/* Return the PU of a set that is number k of a core with more PUs in the set, counted from 0. */
static int pu_of_core(hwloc_obj_t core, hwloc_const_bitmap_t set, unsigned k)
{
    int pu = hwloc_bitmap_first(core->cpuset);
    while (!hwloc_bitmap_isset(set, (unsigned)pu) || k-- > 0)
        pu = hwloc_bitmap_next(core->cpuset, pu);
    return pu;
}

/* How threads are dealt to cores. Each PU has `all` threads. Beyond these a core has one on each of
 * its first `level` PUs, and `extra` of the `wider` cores, which have more PUs, have another. */
struct thread_deal {
    unsigned all, level, extra, wider;
};

/* Deal threads to the cores with PUs in a set. Returns zeros if there is no such core. */
static struct thread_deal deal_threads(hwloc_topology_t hwloc, hwloc_const_bitmap_t set,
                                       unsigned threads)
{
    int depth = hwloc_get_type_or_below_depth(hwloc, HWLOC_OBJ_CORE);
    hwloc_obj_t core = NULL;
    unsigned pus = 0;
    while ((core = hwloc_get_next_obj_by_depth(hwloc, depth, core)) != NULL)
        pus += count_pus(core, set);
    if (pus == 0)
        return (struct thread_deal){0};
    struct thread_deal deal = {.all = threads / pus, .extra = threads % pus};
    for (;; deal.level++, deal.extra -= deal.wider) {
        deal.wider = 0;
        while ((core = hwloc_get_next_obj_by_depth(hwloc, depth, core)) != NULL)
            deal.wider += count_pus(core, set) > deal.level;
        if (deal.extra <= deal.wider)
            return deal;
    }
}

unsigned twill_topology_threads(const struct twill_topology *topology,
                                const struct twill_cpus *cpus, unsigned threads, int *pu)
{
    hwloc_topology_t hwloc = topology->hwloc;
    hwloc_bitmap_t set = cpus != NULL ? twill_cpus_bitmap(cpus) : twill_topology_here(topology);
    if (set == NULL)
        return 0;
    int depth = hwloc_get_type_or_below_depth(hwloc, HWLOC_OBJ_CORE);
    struct thread_deal deal = deal_threads(hwloc, set, threads);
    uint64_t cores = 0, wider = 0;
    hwloc_obj_t core = NULL;
    while ((core = hwloc_get_next_obj_by_depth(hwloc, depth, core)) != NULL) {
        unsigned has = count_pus(core, set);
        unsigned mine = deal.all * has + twill_min(has, deal.level);
        cores += has > 0;
        if (has > deal.level && deal.wider > 0) { /* extras are spread evenly, from the first */
            uint64_t before = (wider * deal.extra + deal.wider - 1) / deal.wider;
            mine += (++wider * deal.extra + deal.wider - 1) / deal.wider > before;
        }
        for (unsigned k = 0; k < mine; k++)
            *pu++ = pu_of_core(core, set, k % has);
    }
    hwloc_bitmap_free(set);
    return (unsigned)cores;
}
