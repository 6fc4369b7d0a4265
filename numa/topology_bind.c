/* SPDX-License-Identifier: Apache-2.0 */
/* Computes which cores each rank of a host is bound to.
 *
 * At each level (package, NUMA node, L3 cache, tile, core) the ranks are dealt in order to the
 * units, in proportion to their cores, until a rank has its own. So consecutive ranks are near each
 * other, no rank spans two units that could be within one, and all memory is used. Finally all
 * ranks are cut to the lowest number of cores of any rank, as a job waits for its slowest. */
#include "lib/base/plural.h"
#include "numa/topology_internal.h"

#include <stdlib.h>

static const hwloc_obj_type_t levels[] = {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_NUMANODE, HWLOC_OBJ_L3CACHE,
                                          HWLOC_OBJ_L2CACHE, HWLOC_OBJ_CORE};

/* Return the number of cores with a PU in `here`. If `set` is not NULL, add to it the PUs in `here`
 * of the cores number `from` to `to` - 1. If cores are not known, each PU counts as one. */
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
    if (set != NULL)
        hwloc_bitmap_and(set, set, here);
    return seen;
}

/* Return the unit of a level after `unit`, or NULL past the last. The first follows NULL. Caches on
 * the memory's side and NUMA nodes without CPUs are skipped. */
static hwloc_obj_t next_unit(const struct twill_topology *topology, hwloc_obj_type_t type,
                             hwloc_obj_t unit)
{
    hwloc_topology_t hwloc = topology->hwloc;
    int depth = type == HWLOC_OBJ_CORE ? hwloc_get_type_or_below_depth(hwloc, type)
                                       : hwloc_get_type_depth(hwloc, type);
    if (depth == HWLOC_TYPE_DEPTH_UNKNOWN)
        return NULL;
    do
        unit = hwloc_get_next_obj_by_depth(hwloc, depth, unit);
    while (unit != NULL && (twill_is_side_cache(unit) ||
                            (type == HWLOC_OBJ_NUMANODE && unit->logical_index < TWILL_MAX_NUMA &&
                             !topology->machine.numa[unit->logical_index].has_cpus)));
    return unit;
}

/* Divide a set by the units of a level, into subset[], empty sets, unless that is NULL. PUs of no
 * unit are the last subset. Returns the number of subsets, or 0 if out of memory. */
static unsigned cut_cpuset(const struct twill_topology *topology, hwloc_const_bitmap_t set,
                           hwloc_obj_type_t type, hwloc_bitmap_t *subset)
{
    unsigned subsets = 0;
    hwloc_bitmap_t left = hwloc_bitmap_dup(set);
    hwloc_obj_t unit = NULL;
    while (left != NULL && (unit = next_unit(topology, type, unit)) != NULL) {
        if (!hwloc_bitmap_intersects(left, unit->cpuset))
            continue;
        if (subset != NULL)
            hwloc_bitmap_and(subset[subsets], left, unit->cpuset);
        hwloc_bitmap_andnot(left, left, unit->cpuset);
        subsets++;
    }
    if (left != NULL && !hwloc_bitmap_iszero(left)) {
        if (subset != NULL)
            hwloc_bitmap_copy(subset[subsets], left);
        subsets++;
    }
    hwloc_bitmap_free(left);
    return subsets;
}

/* Free an array of sets, which may be NULL, and the sets. */
static void free_sets(hwloc_bitmap_t *set, unsigned count)
{
    for (unsigned i = 0; set != NULL && i < count; i++)
        hwloc_bitmap_free(set[i]);
    free(set);
}

/* Return `count` empty sets, or NULL if out of memory. Free them with free_sets(). */
static hwloc_bitmap_t *new_sets(unsigned count)
{
    hwloc_bitmap_t *set = calloc((size_t)count + 1, sizeof(hwloc_bitmap_t));
    bool good = set != NULL;
    for (unsigned i = 0; good && i < count; i++)
        good = (set[i] = hwloc_bitmap_alloc()) != NULL;
    if (good)
        return set;
    free_sets(set, count);
    return NULL;
}

/* Divide a set by the level that makes the fewest subsets, but more than one. Returns *subsets sets
 * for free_sets(). Returns NULL if out of memory or, with *subsets 0, if no level divides it. */
static hwloc_bitmap_t *split_coarsely(const struct twill_topology *topology,
                                      hwloc_const_bitmap_t set, unsigned *subsets)
{
    hwloc_obj_type_t type = HWLOC_OBJ_CORE;
    *subsets = 0;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(levels); i++) {
        unsigned count = cut_cpuset(topology, set, levels[i], NULL);
        if (count < 2 || (*subsets > 0 && count >= *subsets))
            continue;
        *subsets = count;
        type = levels[i];
    }
    hwloc_bitmap_t *subset = *subsets > 0 ? new_sets(*subsets) : NULL;
    if (subset != NULL && cut_cpuset(topology, set, type, subset) != *subsets) {
        free_sets(subset, *subsets);
        subset = NULL;
    }
    return subset;
}

/* Divide the CPUs in `set` among ranks, into of_rank[ranks], empty sets that the caller has made
 * and frees. The caller passes at most as many ranks as the set has cores. If cores overlap, as in
 * a strange file, several ranks may get the same core nevertheless. Returns false if out of
 * memory. */
static bool deal_cpuset(const struct twill_topology *topology, hwloc_const_bitmap_t set,
                        unsigned ranks, hwloc_bitmap_t *of_rank)
{
    unsigned subsets = 0;
    hwloc_bitmap_t *subset = ranks > 1 ? split_coarsely(topology, set, &subsets) : NULL;
    bool good = subset != NULL || subsets == 0;
    /* Several ranks get here only if cores overlap, as in a strange file. */
    for (unsigned r = 0; subsets == 0 && r < ranks; r++)
        good = hwloc_bitmap_copy(of_rank[r], set) == 0 && good;
    unsigned cores = walk_cores(topology->hwloc, set, 0, 0, NULL), before = 0, dealt = 0;
    for (unsigned p = 0; good && ranks >= subsets && p < subsets; p++) {
        before += walk_cores(topology->hwloc, subset[p], 0, 0, NULL);
        /* A core whose PUs are in two units, as in a strange file, counts in both. */
        unsigned up_to = (unsigned)twill_min(((uint64_t)ranks * before + cores - 1) / cores, ranks);
        if (up_to > dealt)
            good = deal_cpuset(topology, subset[p], up_to - dealt, of_rank + dealt);
        dealt = up_to;
    }
    for (unsigned r = 0; good && ranks < subsets && r < ranks; r++) {
        unsigned first = (unsigned)((uint64_t)r * subsets / ranks);
        for (unsigned p = first; p < first + subsets / ranks; p++)
            hwloc_bitmap_or(of_rank[r], of_rank[r], subset[p]);
    }
    free_sets(subset, subsets);
    return good;
}

/* Cut the CPUs of each rank, in of_rank[ranks], to as many cores as the rank with the fewest has.
 * If that is at most half of an equal share, because units differ in size, ignore units. Then each
 * rank gets an equal number of consecutive cores of `here`, which has `cores` cores. Returns false
 * if out of memory. */
static bool even_out(const struct twill_topology *topology, hwloc_const_bitmap_t here,
                     unsigned cores, unsigned ranks, hwloc_bitmap_t *of_rank)
{
    unsigned least = cores;
    hwloc_bitmap_t whole = hwloc_bitmap_alloc();
    for (unsigned r = 0; r < ranks; r++) {
        unsigned has = walk_cores(topology->hwloc, of_rank[r], 0, 0, NULL);
        least = has < least ? has : least;
    }
    bool uneven = 2 * least <= cores / ranks;
    least = uneven ? cores / ranks : least;
    for (unsigned r = 0; whole != NULL && r < ranks; r++) {
        unsigned first = uneven ? (unsigned)((uint64_t)r * cores / ranks) : 0;
        hwloc_bitmap_copy(whole, uneven ? here : of_rank[r]);
        hwloc_bitmap_zero(of_rank[r]);
        walk_cores(topology->hwloc, whole, first, first + least, of_rank[r]);
    }
    hwloc_bitmap_free(whole);
    return whole != NULL;
}

/* Add to a set all PUs of `here` in those units of the kind `to` that it intersects. Do nothing
 * with TWILL_BOUND_TO_CORES, or if out of memory. */
static void widen_cpuset(const struct twill_topology *topology, hwloc_const_bitmap_t here,
                         enum twill_bound_to to, hwloc_bitmap_t set)
{
    static const hwloc_obj_type_t type[] = {[TWILL_BOUND_TO_L3] = HWLOC_OBJ_L3CACHE,
                                            [TWILL_BOUND_TO_NUMA] = HWLOC_OBJ_NUMANODE,
                                            [TWILL_BOUND_TO_PACKAGE] = HWLOC_OBJ_PACKAGE};
    hwloc_bitmap_t wide = to == TWILL_BOUND_TO_CORES ? NULL : hwloc_bitmap_dup(set);
    hwloc_obj_t unit = NULL;
    while (wide != NULL && (unit = next_unit(topology, type[to], unit)) != NULL)
        if (hwloc_bitmap_intersects(set, unit->cpuset))
            hwloc_bitmap_or(wide, wide, unit->cpuset);
    if (wide != NULL)
        hwloc_bitmap_and(set, wide, here);
    hwloc_bitmap_free(wide);
}

/* Compute the CPUs to which each rank would be bound, out of `here`, those that the caller may use.
 * They are cores, widened to units of the kind `to`. Results go to of_rank[ranks], empty sets that
 * the caller has made and frees in any case. Returns false if out of memory. */
static bool bind_all(const struct twill_topology *topology, hwloc_const_bitmap_t here,
                     unsigned ranks, enum twill_bound_to to, hwloc_bitmap_t *of_rank)
{
    unsigned cores = walk_cores(topology->hwloc, here, 0, 0, NULL);
    if (ranks <= cores) {
        if (!deal_cpuset(topology, here, ranks, of_rank) ||
            !even_out(topology, here, cores, ranks, of_rank))
            return false;
    }
    for (unsigned r = 0; r < ranks && ranks > cores; r++) { /* ranks share cores */
        unsigned core = (unsigned)((uint64_t)r * cores / ranks);
        walk_cores(topology->hwloc, here, core, core + 1, of_rank[r]);
    }
    for (unsigned r = 0; r < ranks; r++)
        widen_cpuset(topology, here, to, of_rank[r]);
    return true;
}

unsigned twill_topology_cores(const struct twill_topology *topology)
{
    hwloc_bitmap_t here = twill_topology_here(topology);
    unsigned cores = here != NULL ? walk_cores(topology->hwloc, here, 0, 0, NULL) : 0;
    hwloc_bitmap_free(here);
    return cores;
}

twill_status twill_topology_bind(const struct twill_topology *topology, unsigned ranks,
                                 enum twill_bound_to to, struct twill_cpus *cpus,
                                 struct twill_error *error)
{
    hwloc_bitmap_t here = twill_topology_here(topology), *of_rank = new_sets(ranks);
    bool good = here != NULL && of_rank != NULL && bind_all(topology, here, ranks, to, of_rank);
    for (unsigned r = 0; good && r < ranks; r++)
        twill_cpus_from(&cpus[r], of_rank[r]);
    free_sets(of_rank, ranks);
    hwloc_bitmap_free(here);
    return good ? TWILL_OK
                : TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for the cores of %u ranks",
                             ranks);
}

/* The spread of cores that are in one unit of each level. */
#define NEAREST UINT64_C(0x0001000100010001)
/* Return how far a set of cores is spread, by the packages, then NUMA nodes, L3 caches and tiles
 * that it touches. */
static uint64_t measure_spread(const struct twill_topology *topology, hwloc_const_bitmap_t set)
{
    uint64_t spread = 0;
    for (size_t i = 0; levels[i] != HWLOC_OBJ_CORE; i++)
        spread = spread << 16 | cut_cpuset(topology, set, levels[i], NULL);
    return spread;
}

/* Get in `nearest`, an empty set, `each` cores of a set that has so many. They are consecutive in
 * it, the least spread, and of these the first. Returns false if out of memory. */
static bool pick_nearest(const struct twill_topology *topology, hwloc_const_bitmap_t set,
                         unsigned each, hwloc_bitmap_t nearest)
{
    unsigned cores = walk_cores(topology->hwloc, set, 0, 0, NULL);
    uint64_t least = UINT64_MAX;
    hwloc_bitmap_t window = hwloc_bitmap_alloc();
    bool good = window != NULL;
    for (unsigned first = 0; good && first + each <= cores && least > NEAREST; first++) {
        hwloc_bitmap_zero(window);
        walk_cores(topology->hwloc, set, first, first + each, window);
        uint64_t spread = measure_spread(topology, window);
        if (spread < least)
            good = hwloc_bitmap_copy(nearest, window) == 0;
        least = twill_min(spread, least);
    }
    hwloc_bitmap_free(window);
    return good;
}

/* Give each of the ranks `each` cores of its share of `here`, if all shares, in share[ranks], have
 * so many. Otherwise give one rank after the other those of the cores left that are nearest
 * together. If no such number is left, all cores are dealt again. Returns false if out of memory.
 */
static bool bind_each(const struct twill_topology *topology, hwloc_const_bitmap_t here,
                      unsigned ranks, unsigned each, hwloc_bitmap_t *share, struct twill_cpus *cpus)
{
    bool fit = deal_cpuset(topology, here, ranks, share), good = true;
    for (unsigned r = 0; r < ranks; r++)
        fit = fit && walk_cores(topology->hwloc, share[r], 0, 0, NULL) >= each;
    hwloc_bitmap_t left = hwloc_bitmap_dup(here), own = hwloc_bitmap_alloc();
    good = left != NULL && own != NULL;
    for (unsigned r = 0; good && r < ranks; r++) {
        if (!fit && walk_cores(topology->hwloc, left, 0, 0, NULL) < each)
            hwloc_bitmap_copy(left, here);
        hwloc_bitmap_zero(own);
        good = pick_nearest(topology, fit ? share[r] : left, each, own);
        hwloc_bitmap_andnot(left, left, own);
        twill_cpus_from(&cpus[r], own);
    }
    hwloc_bitmap_free(left);
    hwloc_bitmap_free(own);
    return good;
}

twill_status twill_topology_bind_each(const struct twill_topology *topology, unsigned ranks,
                                      unsigned each, bool shared, struct twill_cpus *cpus,
                                      struct twill_error *error)
{
    unsigned cores = twill_topology_cores(topology);
    if (each == 0 || each > cores || (!shared && (uint64_t)ranks * each > cores))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "%u rank%s with %u core%s each need %llu, and %u may be used here", ranks,
                          TWILL_PLURAL(ranks), each, TWILL_PLURAL(each),
                          (unsigned long long)ranks * each, cores);
    hwloc_bitmap_t here = twill_topology_here(topology), *share = new_sets(ranks);
    bool good =
        here != NULL && share != NULL && bind_each(topology, here, ranks, each, share, cpus);
    free_sets(share, ranks);
    hwloc_bitmap_free(here);
    return good ? TWILL_OK
                : TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for the cores of %u ranks",
                             ranks);
}

twill_status twill_topology_advise(const struct twill_topology *topology, unsigned l, unsigned n,
                                   char *text, size_t bytes, struct twill_error *error)
{
    if (l >= n)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "local rank %u of %u does not exist", l, n);
    if (text == NULL || bytes == 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "no buffer for the list of CPUs");
    struct twill_cpus *cpus = calloc(n, sizeof(*cpus));
    if (cpus == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for the cores of %u ranks", n);
    twill_status status = twill_topology_bind(topology, n, TWILL_BOUND_TO_CORES, cpus, error);
    int length = status == TWILL_OK ? twill_cpus_list(&cpus[l], text, bytes) : 0;
    free(cpus);
    TWILL_TRY(error, status);
    if (length < 0)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for a list of CPUs");
    if ((size_t)length >= bytes)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "the list of CPUs needs %d bytes, not %zu",
                          length + 1, bytes);
    return TWILL_OK;
}

void twill_cpus_from(struct twill_cpus *cpus, hwloc_const_bitmap_t set)
{
    *cpus = (struct twill_cpus){{0}};
    for (int i = hwloc_bitmap_first(set); i >= 0 && i < TWILL_CPUS_MOST;
         i = hwloc_bitmap_next(set, i))
        cpus->word[i / 64] |= UINT64_C(1) << i % 64;
}

/* Add PUs to a set of hwloc's. */
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

/* Return the NUMA node that a rank runs in, the first with CPUs that it may run on, or NULL. */
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

/* Return the k-th PU of a set, counted from 0, or -1 past the end. One PU of each core that has
 * none in `taken` comes first, then all others. *count is k + 1, or the number of PUs of the set
 * past the end. */
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

/* One helper thread of a rank, number k of its `threads`. A plain value. */
struct helper {
    unsigned rank, threads, k;
};

/* Return a PU (OS index) of `spare` for a helper thread, or -1 if it is empty. Cores without a CPU
 * in `taken`, where ranks may run, go first. If `spare` has PUs of the NUMA node of the helper's
 * rank, it is cut to them. Ranks of that node get different PUs while there are enough. */
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

/* Return a PU on which no rank may run, for a helper thread, or -1. */
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

/* Return one of the PUs (OS index) of the helper's rank for the helper thread. Those of the n ranks
 * whose PUs overlap with its own take different ones, from the last on. Returns -1 if that would
 * leave none for computing. */
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
