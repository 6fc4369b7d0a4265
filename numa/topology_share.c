/* SPDX-License-Identifier: Apache-2.0 */
/* Divides cores on which several ranks may run among these ranks. */
#include "numa/topology_internal.h"

#include <stdlib.h>

/* Who may run on a core. `ranks` is a hash of their numbers. `before` of these `count` ranks come
 * before the one that asks. Zeros if that one may not run there. */
struct sharers {
    uint64_t ranks;
    unsigned count, before;
};

/* Return who may run on a core, out of ranks with the sets of_rank[n], for rank `me`. */
static struct sharers find_sharers(hwloc_obj_t core, const hwloc_bitmap_t *of_rank, unsigned n,
                                   unsigned me)
{
    struct sharers found = {.ranks = 0xcbf29ce484222325u};
    if (!hwloc_bitmap_intersects(core->cpuset, of_rank[me]))
        return (struct sharers){0, 0, 0};
    for (unsigned r = 0; r < n; r++)
        if (hwloc_bitmap_intersects(core->cpuset, of_rank[r])) {
            found.ranks = (found.ranks ^ (r + 1)) * 0x100000001b3u;
            found.before += r < me;
            found.count++;
        }
    return found;
}

/* Return whether core number c of `cores` goes to the rank for which of_core[cores] was found. The
 * cores that the same ranks share are dealt to them in equal, consecutive parts. */
static bool gets_core(const struct sharers *of_core, unsigned cores, unsigned c)
{
    unsigned all = 0, before = 0;
    if (of_core[c].count == 0)
        return false;
    for (unsigned other = 0; other < cores; other++)
        if (of_core[other].count == of_core[c].count && of_core[other].ranks == of_core[c].ranks) {
            all++;
            before += other < c;
        }
    unsigned each = all / of_core[c].count;
    return each > 0 && before / each == of_core[c].before;
}

/* Add to `share` the PUs of rank `me` on the cores that it gets. Returns false if out of memory. */
static bool share_cores(hwloc_topology_t hwloc, const hwloc_bitmap_t *of_rank, unsigned n,
                        unsigned me, hwloc_bitmap_t share)
{
    int depth = hwloc_get_type_or_below_depth(hwloc, HWLOC_OBJ_CORE);
    unsigned cores = hwloc_get_nbobjs_by_depth(hwloc, depth);
    struct sharers *of_core = calloc((size_t)cores + 1, sizeof(*of_core));
    if (of_core == NULL)
        return false;
    for (unsigned c = 0; c < cores; c++)
        of_core[c] = find_sharers(hwloc_get_obj_by_depth(hwloc, depth, c), of_rank, n, me);
    for (unsigned c = 0; c < cores; c++)
        if (gets_core(of_core, cores, c))
            hwloc_bitmap_or(share, share, hwloc_get_obj_by_depth(hwloc, depth, c)->cpuset);
    hwloc_bitmap_and(share, share, of_rank[me]);
    free(of_core);
    return true;
}

unsigned twill_topology_share(const struct twill_topology *topology, const struct twill_cpus *ranks,
                              unsigned n, unsigned me, struct twill_cpus *share)
{
    hwloc_bitmap_t *of_rank = calloc((size_t)n + 1, sizeof(hwloc_bitmap_t));
    hwloc_bitmap_t mine = hwloc_bitmap_alloc();
    bool good = of_rank != NULL && mine != NULL;
    *share = (struct twill_cpus){{0}};
    for (unsigned r = 0; good && r < n; r++)
        good = (of_rank[r] = twill_cpus_bitmap(&ranks[r])) != NULL;
    if (good && share_cores(topology->hwloc, of_rank, n, me, mine))
        twill_cpus_from(share, mine);
    int depth = hwloc_get_type_or_below_depth(topology->hwloc, HWLOC_OBJ_CORE);
    unsigned cores = 0;
    hwloc_obj_t core = NULL;
    while (good && (core = hwloc_get_next_obj_by_depth(topology->hwloc, depth, core)) != NULL)
        cores += hwloc_bitmap_intersects(core->cpuset, mine) != 0;
    for (unsigned r = 0; of_rank != NULL && r < n; r++)
        hwloc_bitmap_free(of_rank[r]);
    free(of_rank);
    hwloc_bitmap_free(mine);
    return cores;
}

void twill_topology_positions(const struct twill_topology *topology, const int *pu,
                              unsigned threads, uint16_t position[TWILL_CPUS_MOST])
{
    for (unsigned cpu = 0; cpu < TWILL_CPUS_MOST; cpu++)
        position[cpu] = UINT16_MAX;
    for (unsigned t = 0; t < threads; t++) {
        hwloc_obj_t unit = hwloc_get_pu_obj_by_os_index(topology->hwloc, (unsigned)pu[t]);
        hwloc_obj_t core =
            unit == NULL ? NULL
                         : hwloc_get_ancestor_obj_by_type(topology->hwloc, HWLOC_OBJ_CORE, unit);
        hwloc_const_bitmap_t set = core != NULL ? core->cpuset : unit != NULL ? unit->cpuset : NULL;
        for (int cpu = set != NULL ? hwloc_bitmap_first(set) : -1;
             cpu >= 0 && cpu < TWILL_CPUS_MOST; cpu = hwloc_bitmap_next(set, cpu))
            if (position[cpu] == UINT16_MAX)
                position[cpu] = (uint16_t)t;
    }
}

bool twill_topology_is_bound(const struct twill_topology *topology)
{
    hwloc_bitmap_t here = twill_topology_here(topology);
    hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(topology->hwloc);
    bool bound =
        here != NULL && topology->machine.is_this_machine && !hwloc_bitmap_isequal(here, allowed);
    hwloc_bitmap_free(here);
    return bound;
}
