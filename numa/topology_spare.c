/* SPDX-License-Identifier: Apache-2.0 */
/* Finds PUs for threads of the library: such as no rank of the machine may run on, or of a rank's
 * own. Each rank finds its own without communication, from the sets of PUs of all ranks. */
#include "numa/topology_internal.h"

void twill_cpus_from(struct twill_cpus *cpus, hwloc_const_bitmap_t set)
{
    *cpus = (struct twill_cpus){{0}};
    for (int i = hwloc_bitmap_first(set); i >= 0 && i < TWILL_CPUS_MOST;
         i = hwloc_bitmap_next(set, i))
        cpus->word[i / 64] |= UINT64_C(1) << i % 64;
}

static void add_cpus(hwloc_bitmap_t set, const struct twill_cpus *cpus)
{
    for (unsigned i = 0; i < TWILL_CPUS_MOST; i++)
        if (cpus->word[i / 64] >> i % 64 & 1)
            hwloc_bitmap_set(set, i);
}

hwloc_bitmap_t twill_cpus_bitmap(const struct twill_cpus *cpus)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set != NULL)
        add_cpus(set, cpus);
    return set;
}

int twill_cpus_list(const struct twill_cpus *cpus, char *text, size_t bytes)
{
    hwloc_bitmap_t set = twill_cpus_bitmap(cpus);
    int length = set != NULL ? hwloc_bitmap_list_snprintf(text, bytes, set) : -1;
    hwloc_bitmap_free(set);
    return length;
}

void twill_topology_cpus(const struct twill_topology *topology, struct twill_cpus *cpus)
{
    hwloc_bitmap_t here = twill_topology_here(topology);
    *cpus = (struct twill_cpus){{0}};
    if (here != NULL)
        twill_cpus_from(cpus, here);
    hwloc_bitmap_free(here);
}

/* Return the NUMA node that a rank runs in: the first with CPUs that it may run on. */
static hwloc_obj_t numa_of(const struct twill_topology *topology, const struct twill_cpus *cpus)
{
    hwloc_obj_t found = NULL;
    hwloc_bitmap_t set = twill_cpus_bitmap(cpus);
    for (unsigned i = 0; set != NULL && found == NULL && i < topology->machine.numa_nodes; i++) {
        hwloc_obj_t node = hwloc_get_obj_by_type(topology->hwloc, HWLOC_OBJ_NUMANODE, i);
        if (node != NULL && topology->machine.numa[i].has_cpus &&
            hwloc_bitmap_intersects(set, node->cpuset))
            found = node;
    }
    hwloc_bitmap_free(set);
    return found;
}

/* Return the k-th PU of a set, or -1 past the end; *count becomes the number of PUs counted. First
 * comes one PU of each core without ranks, then all others. */
static int pick(hwloc_topology_t hwloc, hwloc_const_bitmap_t set, hwloc_const_bitmap_t taken,
                unsigned k, unsigned *count)
{
    int depth = hwloc_get_type_or_below_depth(hwloc, HWLOC_OBJ_CORE);
    *count = 0;
    for (int others = 0; others < 2; others++) {
        hwloc_obj_t core = NULL;
        while ((core = hwloc_get_next_obj_by_depth(hwloc, depth, core)) != NULL) {
            bool whole = !hwloc_bitmap_intersects(core->cpuset, taken), first = true;
            for (int pu = hwloc_bitmap_first(core->cpuset); pu >= 0;
                 pu = hwloc_bitmap_next(core->cpuset, pu)) {
                if (!hwloc_bitmap_isset(set, (unsigned)pu))
                    continue;
                if ((whole && first) != (others == 1) && (*count)++ == k)
                    return pu;
                first = false;
            }
        }
    }
    return -1;
}

/* One of several threads that a rank has. */
struct helper {
    unsigned rank, threads, k;
};

static int pick_core(const struct twill_topology *topology, hwloc_bitmap_t spare,
                     hwloc_bitmap_t taken, const struct twill_cpus *ranks, struct helper helper)
{
    unsigned me = helper.rank;
    hwloc_obj_t numa_node = numa_of(topology, &ranks[me]);
    unsigned before = me, count;
    if (numa_node != NULL && hwloc_bitmap_intersects(spare, numa_node->cpuset)) {
        hwloc_bitmap_and(spare, spare, numa_node->cpuset);
        before = 0;
        for (unsigned r = 0; r < me; r++)
            before += numa_of(topology, &ranks[r]) == numa_node;
    }
    (void)pick(topology->hwloc, spare, taken, UINT32_MAX, &count);
    before = before * helper.threads + helper.k;
    return count == 0 ? -1 : pick(topology->hwloc, spare, taken, before % count, &count);
}

static int find_spare(const struct twill_topology *topology, const struct twill_cpus *ranks,
                      unsigned n, struct helper helper)
{
    hwloc_bitmap_t taken = hwloc_bitmap_alloc(), spare = hwloc_bitmap_alloc();
    int pu = -1;
    if (taken != NULL && spare != NULL) {
        for (unsigned r = 0; r < n; r++)
            add_cpus(taken, &ranks[r]);
        hwloc_bitmap_andnot(spare, hwloc_topology_get_allowed_cpuset(topology->hwloc), taken);
        pu = pick_core(topology, spare, taken, ranks, helper);
    }
    hwloc_bitmap_free(taken);
    hwloc_bitmap_free(spare);
    return pu;
}

int twill_topology_spare(const struct twill_topology *topology, const struct twill_cpus *ranks,
                         unsigned n, unsigned me)
{
    return find_spare(topology, ranks, n, (struct helper){.rank = me, .threads = 1});
}

/* Find one of the PUs that a rank may run on, from the last, as other ranks that may run on some of
 * them do, if that leaves one for computing. */
static int find_own(const struct twill_topology *topology, const struct twill_cpus *ranks,
                    unsigned n, struct helper helper)
{
    hwloc_bitmap_t own = twill_cpus_bitmap(&ranks[helper.rank]), none = hwloc_bitmap_alloc();
    unsigned sharing = 0, before = 0, count = 0;
    int pu = -1;
    for (unsigned r = 0; own != NULL && none != NULL && r < n; r++) {
        hwloc_bitmap_t other = twill_cpus_bitmap(&ranks[r]);
        if (other != NULL && hwloc_bitmap_intersects(own, other)) {
            before += r < helper.rank;
            sharing++;
        }
        hwloc_bitmap_free(other);
    }
    if (sharing > 0)
        (void)pick(topology->hwloc, own, none, UINT32_MAX, &count);
    if (sharing > 0 && sharing * helper.threads < count)
        pu = pick(topology->hwloc, own, none, count - 1 - (before * helper.threads + helper.k),
                  &count);
    hwloc_bitmap_free(own);
    hwloc_bitmap_free(none);
    return pu;
}

int twill_topology_helper(const struct twill_topology *topology, const struct twill_cpus *ranks,
                          unsigned n, unsigned me, unsigned threads, unsigned k, bool *own)
{
    struct helper helper = {me, threads, k};
    int pu = find_spare(topology, ranks, n, helper);
    *own = pu < 0;
    return pu >= 0 ? pu : find_own(topology, ranks, n, helper);
}
