/* SPDX-License-Identifier: Apache-2.0 */
/* Fills in struct twill_machine from hwloc's tree: counts, caches, kinds of memory. */
#include "numa/memory_internal.h"
#include "numa/topology_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#if HWLOC_API_VERSION >= 0x00020100
#define MEMCACHE HWLOC_OBJ_MEMCACHE
#else
#define MEMCACHE HWLOC_OBJ_TYPE_MAX /* the type of no object */
#endif

bool twill_is_side_cache(hwloc_obj_t object)
{
    return object->type == MEMCACHE ||
           (object->subtype != NULL && strcmp(object->subtype, "MemorySideCache") == 0);
}

/* Return the NUMA node with this logical index, or NULL if there is none. */
static hwloc_obj_t numa_at(hwloc_topology_t hwloc, unsigned i)
{
    return hwloc_get_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, i);
}

/* Copy an info attribute of the machine, or of its first package, where hwloc 2 keeps the CPU's,
 * without trailing blanks. Copies "" if there is none. */
static void copy_info(hwloc_topology_t hwloc, const char *name, char *to, size_t bytes)
{
    hwloc_obj_t package = hwloc_get_obj_by_type(hwloc, HWLOC_OBJ_PACKAGE, 0);
    const char *value = hwloc_obj_get_info_by_name(hwloc_get_root_obj(hwloc), name);
    if (value == NULL && package != NULL)
        value = hwloc_obj_get_info_by_name(package, name);
    snprintf(to, bytes, "%s", value != NULL ? value : "");
    for (size_t n = strlen(to); n > 0 && isspace((unsigned char)to[n - 1]); n--)
        to[n - 1] = '\0'; /* CPUID pads brand strings */
}

/* Print "GenuineIntel 6 143". If one of the words is unknown, `to` stays as it is. Brand strings
 * are useless, as virtual machines choose any. */
static void name_cpu(hwloc_topology_t hwloc, char *to, size_t bytes)
{
    char vendor[32], family[8], model[8];
    copy_info(hwloc, "CPUVendor", vendor, sizeof(vendor));
    copy_info(hwloc, "CPUFamilyNumber", family, sizeof(family));
    copy_info(hwloc, "CPUModelNumber", model, sizeof(model));
    if (vendor[0] != '\0' && family[0] != '\0' && model[0] != '\0')
        snprintf(to, bytes, "%s %s %s", vendor, family, model);
}

/* Return whether the CPU is a Xeon Phi of the second or third generation, by CPUID. */
static bool is_knl(hwloc_topology_t hwloc)
{
    char vendor[32], family[8], model[8];
    copy_info(hwloc, "CPUVendor", vendor, sizeof(vendor));
    copy_info(hwloc, "CPUFamilyNumber", family, sizeof(family));
    copy_info(hwloc, "CPUModelNumber", model, sizeof(model));
    return strcmp(vendor, "GenuineIntel") == 0 && strcmp(family, "6") == 0 &&
           (strcmp(model, "87") == 0 || strcmp(model, "133") == 0);
}

#define INITIATORS_MOST 64
/* The sets of CPUs, owned by hwloc, that access a NUMA node, with hwloc's Bandwidth in MB/s. A
 * local variable that find_initiators() sets. */
struct initiators {
    unsigned count;
    hwloc_const_bitmap_t cpus[INITIATORS_MOST];
    unsigned bandwidth_mbs[INITIATORS_MOST];
};

/* Get the initiators of a NUMA node, none if they are unknown. */
static void find_initiators(hwloc_topology_t hwloc, hwloc_obj_t node, struct initiators *found)
{
    found->count = 0;
#if HWLOC_API_VERSION >= 0x00020300
    struct hwloc_location at[INITIATORS_MOST];
    hwloc_uint64_t values[INITIATORS_MOST];
    unsigned n = INITIATORS_MOST;
    if (hwloc_memattr_get_initiators(hwloc, HWLOC_MEMATTR_ID_BANDWIDTH, node, 0, &n, at, values) !=
        0)
        return;
    for (unsigned i = 0; i < n && i < INITIATORS_MOST; i++) {
        bool cpus = at[i].type == HWLOC_LOCATION_TYPE_CPUSET;
        found->cpus[i] = cpus ? at[i].location.cpuset : at[i].location.object->cpuset;
        found->bandwidth_mbs[i] = values[i] > UINT32_MAX ? UINT32_MAX : (unsigned)values[i];
        found->count++;
    }
#else
    (void)hwloc;
    (void)node;
#endif
}

/* Return the highest bandwidth in MB/s of an initiator to the node, or 0 if unknown. If `cpus` is
 * not NULL, only initiators that intersect it count. */
static unsigned bandwidth_of(hwloc_topology_t hwloc, hwloc_obj_t node, hwloc_const_bitmap_t cpus)
{
    struct initiators from;
    unsigned best = 0;
    find_initiators(hwloc, node, &from);
    for (unsigned i = 0; i < from.count; i++)
        if (cpus == NULL || (from.cpus[i] != NULL && hwloc_bitmap_intersects(from.cpus[i], cpus)))
            best = twill_max(best, from.bandwidth_mbs[i]);
    return best;
}

/* Return whether hwloc gives the node this subtype, in either case of letters. */
static bool is_subtype(hwloc_obj_t node, const char *name)
{
    return node->subtype != NULL && twill_words_equal(node->subtype, name, SIZE_MAX);
}

/* Return whether the node is named MCDRAM or HBM. */
static bool is_hbm(hwloc_obj_t node)
{
    return is_subtype(node, "MCDRAM") || is_subtype(node, "HBM");
}

/* Return whether the node is memory on CXL (hwloc's tiers CXL-DRAM, CXL-HBM, CXL-NVM). */
static bool is_cxl(hwloc_obj_t node)
{
    return node->subtype != NULL && twill_words_equal(node->subtype, "CXL", 3);
}

/* Return whether the node is persistent, CXL or GPU memory, not attached to a processor. */
static bool is_not_main(hwloc_obj_t node)
{
    return is_subtype(node, "NVM") || is_subtype(node, "GPUMemory") || is_cxl(node);
}

/* Rate by its name how unlikely the node is to have CPUs. That is 0 for DRAM or no name, 1 for
 * another name, 2 for HBM, and 3 for memory that is_not_main(). */
static unsigned remoteness(hwloc_obj_t node)
{
    if (node->subtype == NULL || is_subtype(node, "DRAM"))
        return 0;
    return is_not_main(node) ? 3 : is_hbm(node) ? 2 : 1;
}

/* Return whether the i-th of `count` nodes has CPUs. hwloc gives a node without CPUs those next to
 * it, so several nodes may have the same set. Then DRAM has them, not HBM, else the first node. */
static bool has_cpus(hwloc_topology_t hwloc, unsigned i, unsigned count)
{
    hwloc_obj_t node = numa_at(hwloc, i);
    if (is_not_main(node) || hwloc_bitmap_iszero(node->complete_cpuset))
        return false;
    for (unsigned j = 0; j < count; j++) {
        hwloc_obj_t other = numa_at(hwloc, j);
        if (j == i || !hwloc_bitmap_isequal(node->complete_cpuset, other->complete_cpuset))
            continue;
        unsigned mine = remoteness(node), theirs = remoteness(other);
        if (mine != theirs ? mine > theirs : j < i)
            return false;
    }
    return true;
}

/* Return whether a node without CPUs has more bandwidth than the DDR of the initiators that are
 * nearest to it. Another socket's DDR does not count, as it may be slower than any. */
static bool is_faster(const struct twill_topology *topology, hwloc_obj_t node)
{
    struct initiators from;
    unsigned best = bandwidth_of(topology->hwloc, node, NULL);
    find_initiators(topology->hwloc, node, &from);
    for (unsigned i = 0; i < from.count; i++) {
        unsigned ddr = 0;
        for (unsigned n = 0; from.cpus[i] != NULL && n < topology->machine.numa_nodes; n++)
            if (topology->machine.numa[n].has_cpus)
                ddr = twill_max(
                    ddr, bandwidth_of(topology->hwloc, numa_at(topology->hwloc, n), from.cpus[i]));
        if (from.bandwidth_mbs[i] == best && (ddr == 0 || best <= ddr))
            return false;
    }
    return best > 0;
}

/* Decide the kind of memory of a NUMA node by its name, its CPUs, and its bandwidth. `legacy_knl`
 * says that the machine is a KNL whose nodes without CPUs are MCDRAM. */
static enum twill_memory_kind node_kind(const struct twill_topology *topology,
                                        const struct twill_numa_node *numa, hwloc_obj_t node,
                                        bool legacy_knl)
{
    if (is_hbm(node))
        return TWILL_KIND_MCDRAM;
    if (is_not_main(node))
        return is_cxl(node) ? TWILL_KIND_CXL : TWILL_KIND_OTHER;
    if (numa->has_cpus || is_subtype(node, "DRAM"))
        return TWILL_KIND_DDR;
    if (legacy_knl || is_faster(topology, node))
        return TWILL_KIND_MCDRAM;
    return TWILL_KIND_OTHER; /* slow or unknown */
}

/* Fill in machine->numa_nodes and, for each node, machine->numa: size, bandwidth, CPUs and kind. On
 * this machine also set the free bytes. */
static void describe_numa(struct twill_topology *topology)
{
    hwloc_topology_t hwloc = topology->hwloc;
    struct twill_machine *machine = &topology->machine;
    int found = hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_NUMANODE);
    unsigned count = found > 0 ? (unsigned)found : 0, without = 0;
    machine->numa_nodes = count < TWILL_MAX_NUMA ? count : TWILL_MAX_NUMA;
    for (unsigned i = 0; i < machine->numa_nodes; i++) {
        hwloc_obj_t node = numa_at(hwloc, i);
        struct twill_numa_node *numa = &machine->numa[i];
        numa->os_index = node->os_index;
        numa->bytes = node->attr->numanode.local_memory;
        numa->bandwidth_mbs = bandwidth_of(hwloc, node, NULL);
        numa->has_cpus = has_cpus(hwloc, i, count);
        if (machine->is_this_machine) {
            numa->has_cpus = twill_numa_has_cpus(numa->os_index, numa->has_cpus);
            numa->free_bytes = twill_numa_free_bytes(numa->os_index);
        }
        without += !numa->has_cpus;
    }
    /* hwloc 3 does not know KNL. If half of its nodes lack CPUs, these are MCDRAM. */
    bool legacy = machine->is_knl && without * 2 == machine->numa_nodes;
    for (unsigned i = 0; i < machine->numa_nodes; i++)
        machine->numa[i].kind = node_kind(topology, &machine->numa[i], numa_at(hwloc, i), legacy);
}

bool twill_machine_is_restricted(const struct twill_topology *topology)
{
    hwloc_bitmap_t barred = hwloc_bitmap_alloc();
    twill_numa_set allowed = topology->machine.is_this_machine ? twill_memory_allowed() : 0;
    if (barred == NULL)
        return false;
    hwloc_bitmap_andnot(barred, hwloc_topology_get_complete_nodeset(topology->hwloc),
                        hwloc_topology_get_topology_nodeset(topology->hwloc));
    for (unsigned i = 0; i < TWILL_MAX_NUMA; i++) /* left out for another reason (GPU, empty) */
        if (allowed >> i & 1)
            hwloc_bitmap_clr(barred, i);
    bool some = !hwloc_bitmap_iszero(barred);
    hwloc_bitmap_free(barred);
    return some;
}

void twill_machine_compare(struct twill_machine *machine, const struct twill_machine *all)
{
    for (unsigned n = 0; n < all->numa_nodes; n++) {
        const struct twill_numa_node *node = &all->numa[n];
        unsigned i = 0;
        while (i < machine->numa_nodes && machine->numa[i].os_index != node->os_index)
            i++;
        if (i < machine->numa_nodes) {
            machine->numa[i].kind = node->kind;
            machine->numa[i].has_cpus = node->has_cpus;
        } else if (node->kind == TWILL_KIND_MCDRAM) {
            machine->barred_hbm |= twill_numa_bit(node->os_index);
        }
    }
}

/* Return the number of objects of a type. If the topology has none, return that of the objects one
 * level below where they would be, such as PUs instead of cores. */
static unsigned count_objects(hwloc_topology_t hwloc, hwloc_obj_type_t type)
{
    int depth = hwloc_get_type_or_below_depth(hwloc, type);
    return depth < 0 ? 0 : hwloc_get_nbobjs_by_depth(hwloc, depth);
}

/* Return the number of objects of a type inside an object, 0 if that is NULL. */
static unsigned count_inside(hwloc_topology_t hwloc, hwloc_obj_t object, hwloc_obj_type_t type)
{
    int n =
        object == NULL ? 0 : hwloc_get_nbobjs_inside_cpuset_by_type(hwloc, object->cpuset, type);
    return n > 0 ? (unsigned)n : 0;
}

/* Return the number of L3 caches, without memory-side caches. */
static unsigned count_l3(hwloc_topology_t hwloc)
{
    unsigned n = 0;
    hwloc_obj_t cache = NULL;
    while ((cache = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_L3CACHE, cache)) != NULL)
        n += !twill_is_side_cache(cache);
    return n;
}

/* Return the bytes of the first cache of a type, or if `side`, of all its memory-side caches
 * together. Without `side` these are skipped. Returns 0 if there is none. */
static uint64_t cache_bytes(hwloc_topology_t hwloc, hwloc_obj_type_t type, bool side)
{
    uint64_t sum = 0;
    hwloc_obj_t cache = NULL;
    while ((cache = hwloc_get_next_obj_by_type(hwloc, type, cache)) != NULL) {
        if (twill_is_side_cache(cache) != side)
            continue;
        if (!side)
            return cache->attr->cache.size;
        sum += cache->attr->cache.size;
    }
    return sum;
}

void twill_machine_describe(struct twill_topology *topology)
{
    hwloc_topology_t hwloc = topology->hwloc;
    struct twill_machine *machine = &topology->machine;
    copy_info(hwloc, "CPUModel", machine->model, sizeof(machine->model));
    name_cpu(hwloc, machine->cpu, sizeof(machine->cpu));
    machine->is_knl = is_knl(hwloc);
    copy_info(hwloc, "MemoryMode", machine->memory_mode, sizeof(machine->memory_mode));
    copy_info(hwloc, "ClusterMode", machine->cluster_mode, sizeof(machine->cluster_mode));
    int packages = hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_PACKAGE);
    machine->packages = packages > 0 ? (unsigned)packages : 0;
    machine->cores = count_objects(hwloc, HWLOC_OBJ_CORE);
    machine->pus = count_objects(hwloc, HWLOC_OBJ_PU);
    hwloc_obj_t core = hwloc_get_obj_by_type(hwloc, HWLOC_OBJ_CORE, 0);
    machine->pus_per_core = core != NULL ? count_inside(hwloc, core, HWLOC_OBJ_PU) : 1;
    hwloc_obj_t l2 = hwloc_get_obj_by_type(hwloc, HWLOC_OBJ_L2CACHE, 0);
    machine->cores_per_l2 = count_inside(hwloc, l2, HWLOC_OBJ_CORE);
    machine->l1d_bytes = cache_bytes(hwloc, HWLOC_OBJ_L1CACHE, false);
    machine->l2_bytes = cache_bytes(hwloc, HWLOC_OBJ_L2CACHE, false);
    machine->l3_bytes = cache_bytes(hwloc, HWLOC_OBJ_L3CACHE, false);
    machine->l3_caches = count_l3(hwloc);
    machine->side_cache_bytes =
        cache_bytes(hwloc, HWLOC_OBJ_L3CACHE, true) + cache_bytes(hwloc, HWLOC_OBJ_MEMCACHE, true);
    describe_numa(topology);
}

/* Return 2 if the node's CPUs include `here`, 1 if they intersect it, else 0. */
static int nearness(hwloc_const_bitmap_t node, hwloc_const_bitmap_t here)
{
    if (!hwloc_bitmap_intersects(node, here))
        return 0;
    return hwloc_bitmap_isincluded(here, node) ? 2 : 1;
}

/* Set `local` of each NUMA node of this kind of memory to whether it is among the fastest of the
 * nearest ones. The nearest are those whose CPUs include all of `here`, or if there are none, those
 * that have some of them. */
static void locate_kind(struct twill_topology *topology, enum twill_memory_kind kind,
                        hwloc_const_bitmap_t here)
{
    struct twill_machine *machine = &topology->machine;
    int near[TWILL_MAX_NUMA], nearest = 1;
    unsigned fastest = 0;
    for (unsigned i = 0; i < machine->numa_nodes; i++) {
        near[i] = nearness(numa_at(topology->hwloc, i)->cpuset, here);
        if (machine->numa[i].kind == kind && near[i] > nearest)
            nearest = near[i];
    }
    for (unsigned i = 0; i < machine->numa_nodes; i++) {
        struct twill_numa_node *numa = &machine->numa[i];
        if (numa->kind == kind && near[i] == nearest && numa->bandwidth_mbs > fastest)
            fastest = numa->bandwidth_mbs;
    }
    for (unsigned i = 0; i < machine->numa_nodes; i++) {
        struct twill_numa_node *numa = &machine->numa[i];
        if (numa->kind == kind)
            numa->local = near[i] == nearest && numa->bandwidth_mbs == fastest;
    }
}

/* Return the highest bandwidth of a kind of memory to these CPUs in MB/s, or 0 if unknown. Sets
 * *near to whether some of that memory is next to them. */
static unsigned kind_bandwidth(const struct twill_topology *topology, enum twill_memory_kind kind,
                               hwloc_const_bitmap_t cpus, bool *near)
{
    unsigned best = 0;
    *near = false;
    for (unsigned i = 0; i < topology->machine.numa_nodes; i++) {
        hwloc_obj_t node = numa_at(topology->hwloc, i);
        if (topology->machine.numa[i].kind != kind)
            continue;
        *near = *near || hwloc_bitmap_intersects(node->cpuset, cpus);
        best = twill_max(best, bandwidth_of(topology->hwloc, node, cpus));
    }
    return best;
}

/* Return whether MCDRAM is faster than DDR for these CPUs. If either bandwidth is unknown, return
 * whether MCDRAM is near, as MCDRAM of another socket is slower than own DDR. */
static bool hbm_pays(const struct twill_topology *topology, hwloc_const_bitmap_t cpus)
{
    bool near, beside;
    unsigned hbm = kind_bandwidth(topology, TWILL_KIND_MCDRAM, cpus, &near);
    unsigned ddr = kind_bandwidth(topology, TWILL_KIND_DDR, cpus, &beside);
    return hbm > 0 && ddr > 0 ? hbm > ddr : near;
}

/* Return whether MCDRAM is faster for the CPUs that the process may run on, together and of each
 * NUMA node. */
static bool hbm_is_faster(const struct twill_topology *topology, hwloc_const_bitmap_t here)
{
    bool faster = hbm_pays(topology, here);
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    for (unsigned i = 0; faster && cpus != NULL && i < topology->machine.numa_nodes; i++) {
        hwloc_bitmap_and(cpus, numa_at(topology->hwloc, i)->cpuset, here);
        if (topology->machine.numa[i].has_cpus && !hwloc_bitmap_iszero(cpus))
            faster = faster && hbm_pays(topology, cpus);
    }
    hwloc_bitmap_free(cpus);
    return faster;
}

/* hwloc_get_local_numanode_objs() could find local nodes, but only since hwloc 2.3. */
void twill_machine_locate(struct twill_topology *topology, hwloc_const_bitmap_t here)
{
    int weight = hwloc_bitmap_weight(here);
    topology->machine.allowed_pus = weight > 0 ? (unsigned)weight : 0;
    for (int kind = TWILL_KIND_DDR; kind <= TWILL_KIND_OTHER; kind++)
        locate_kind(topology, (enum twill_memory_kind)kind, here);
    topology->machine.hbm_is_faster = hbm_is_faster(topology, here);
}
