/* SPDX-License-Identifier: Apache-2.0 */
/* The machine, by hwloc (only seen in numa/topology*.c) or as TWILL_LAYOUT=topology says. */
#ifndef TWILL_TOPOLOGY_H
#define TWILL_TOPOLOGY_H

#include "lib/base/base.h"

struct twill_topology;

enum twill_memory_kind { TWILL_KIND_DDR, TWILL_KIND_MCDRAM, TWILL_KIND_CXL, TWILL_KIND_OTHER };

#define TWILL_MAX_NUMA 128
/* A set of NUMA nodes, one bit each by os_index. */
__extension__ typedef unsigned __int128 twill_numa_set;
_Static_assert(sizeof(twill_numa_set) * 8 == TWILL_MAX_NUMA, "a bit for each");

/* Return the set of one node, empty if its number is too large. */
static inline twill_numa_set twill_numa_bit(unsigned os_index)
{
    return os_index < TWILL_MAX_NUMA ? (twill_numa_set)1 << os_index : 0;
}

/* One NUMA node, a part of struct twill_machine. */
struct twill_numa_node {
    unsigned os_index;
    enum twill_memory_kind kind; /* MCDRAM for all HBM, OTHER for persistent, GPU or unknown */
    uint64_t bytes;              /* capacity, 0 if unknown */
    uint64_t free_bytes;         /* now, 0 if the machine is not this one */
    unsigned bandwidth_mbs;      /* hwloc's Bandwidth attribute in MB/s, 0 if unknown */
    bool has_cpus;
    /* it is among the fastest of its kind whose CPUs include those of the process, or if there are
     * none, of those that have some of them */
    bool local;
};

/* The facts known of a machine. Owned by the topology. Constant but for twill_topology_locate(). */
struct twill_machine {
    bool is_this_machine;  /* false if another one is described, so nothing can be bound */
    const char *elsewhere; /* what describes another machine, NULL for this one */
    char source[160];      /* "this machine", "file knl.xml", "synthetic pack:1 ..." */
    char model[96];        /* CPU model, if known */
    char cpu[64];          /* vendor, family and model number by CPUID, or "" */
    bool is_knl;           /* Xeon Phi of the second or third generation, by CPUID */
    char memory_mode[32];  /* on KNL "Flat", "Cache" or "Hybrid50", else "" */
    char cluster_mode[32]; /* on KNL "Quadrant" or "SNC4", else "" */
    unsigned packages, numa_nodes, cores, pus;
    unsigned allowed_pus;                   /* those this process may run on (cgroup, affinity) */
    unsigned pus_per_core, cores_per_l2;    /* of the first core (KNL tiles have 2 cores per L2) */
    unsigned l3_caches;                     /* number, without memory-side caches */
    uint64_t l1d_bytes, l2_bytes, l3_bytes; /* of the first of each, 0 if none or of unknown size */
    uint64_t side_cache_bytes;              /* sum of all memory-side caches (KNL cache mode) */
    twill_numa_set barred_hbm; /* NUMA nodes of MCDRAM that this process may not use (cpuset) */
    bool hbm_is_faster; /* MCDRAM is faster than DDR for all CPUs that the process may run on */
    struct twill_numa_node numa[TWILL_MAX_NUMA]; /* by logical index, the first TWILL_MAX_NUMA */
};

/* Load *topology, which twill_topology_close() frees and which is NULL on failure. `text` is NULL
 * or "" for this machine, else the path of an XML file or a synthetic description. Returns
 * TWILL_ERR_CONFIG if that is wrong, as the message says, TWILL_ERR_SYSTEM if hwloc cannot read
 * this machine, or TWILL_ERR_MEMORY. */
twill_status twill_topology_open(struct twill_topology **topology, const char *text,
                                 struct twill_error *error);
/* Free a topology, which may be NULL. */
void twill_topology_close(struct twill_topology *topology);
/* Return what is known of the machine, valid until the topology is closed. */
const struct twill_machine *twill_topology_machine(const struct twill_topology *topology);
/* Return the NUMA node (its os_index) of DDR of the process, or -1 if it has none or several. */
int twill_machine_own_node(const struct twill_machine *machine);
/* Update allowed_pus, hbm_is_faster and the `local` of the NUMA nodes, as the process may have been
 * bound since. On this machine `cpus` must be NULL. On a described one "0-3,64" says where the
 * process runs, and NULL means everywhere. TWILL_ERR_ARGUMENT means that `cpus` is wrong. */
twill_status twill_topology_locate(struct twill_topology *topology, const char *cpus,
                                   struct twill_error *error);
/* Return the bytes of a NUMA node of this machine that can be taken now, or 0 if unknown. Clean
 * pages of files count as free. */
uint64_t twill_numa_free_bytes(unsigned os_index);
/* Return whether a NUMA node of this machine has CPUs, by the kernel, or `otherwise` if unknown. */
bool twill_numa_has_cpus(unsigned os_index, bool otherwise);

/* The place of a thread, as logical indices, -1 if unknown or several. A plain value. Ranks
 * exchange and compare it to find out how many share their CPUs. */
struct twill_place {
    int package, numa, l3, l2, core, pu;
    uint64_t cpuset_hash; /* equal for equal sets of allowed CPUs */
    unsigned cpus;        /* number of allowed CPUs */
};
/* Get the place of the calling thread. If out of memory, all indices are -1 and `cpus` is 0. */
void twill_topology_place(const struct twill_topology *topology, struct twill_place *place);

#define TWILL_CPUS_MOST 1024
/* A set of PUs, one bit each by Linux's number. A plain value. */
struct twill_cpus {
    uint64_t word[TWILL_CPUS_MOST / 64];
};
/* Count `more` to the CPUs on which the process runs, whatever the calling thread is bound to. Has
 * no effect on a described machine, or if memory runs out. */
void twill_topology_extend(struct twill_topology *topology, const struct twill_cpus *more);
/* Print a list such as "0-3,64-67". Returns its length like snprintf(), or -1 if out of memory. */
int twill_cpus_list(const struct twill_cpus *cpus, char *text, size_t bytes);

/* Logical indices of the tile (L2 cache), the L3 cache, the NUMA node and the package that hold all
 * of a set of PUs. An index is -1 if the machine has no such unit or the PUs span several. A thread
 * that may run in two L3 caches shares neither with another thread. If the NUMA node of the PUs has
 * no memory that may be used, it gets a number above all nodes, one for each package. On a machine
 * with several NUMA nodes, all packages inside one NUMA node get the index of the first of them, so
 * that units nest. */
struct twill_units {
    int tile, l3, numa, package;
    bool roams; /* the PUs span several cores that are not of one tile */
};
/* Get in *units, for each level, the unit that contains all of a set of PUs, or -1 if none does. If
 * `cpus` is NULL, they are the PUs that the calling thread may run on. */
void twill_topology_units(const struct twill_topology *topology, const struct twill_cpus *cpus,
                          struct twill_units *units);
/* Return the number of cores with a PU that the calling thread may run on, 0 if out of memory. */
unsigned twill_topology_cores(const struct twill_topology *topology);

/* The units a rank is bound to: its cores, or all of their L3 caches, NUMA nodes or packages. */
enum twill_bound_to {
    TWILL_BOUND_TO_CORES,
    TWILL_BOUND_TO_L3,
    TWILL_BOUND_TO_NUMA,
    TWILL_BOUND_TO_PACKAGE
};
/* Compute a binding for the ranks of this host into cpus[ranks], within what the calling thread may
 * use. All ranks get the same number of whole cores, spread over the machine, widened to units of
 * `to`. Consecutive ranks are near each other, and no rank spans two units that could be within
 * one. If there are more ranks than cores, ranks share cores. Binds nothing. */
twill_status twill_topology_bind(const struct twill_topology *topology, unsigned ranks,
                                 enum twill_bound_to to, struct twill_cpus *cpus,
                                 struct twill_error *error);
/* Compute a binding of `each` whole cores for every rank of this host into cpus[ranks], within what
 * the calling thread may use. The cores of a rank are neighbours: they touch as few packages, NUMA
 * nodes, L3 caches and tiles as possible. Ranks are spread over the machine as by
 * twill_topology_bind() if each has so many cores in its share. Returns TWILL_ERR_ARGUMENT if
 * `each` is 0 or there are too few cores. With `shared` ranks may share cores, so `each` must be
 * there. */
twill_status twill_topology_bind_each(const struct twill_topology *topology, unsigned ranks,
                                      unsigned each, bool shared, struct twill_cpus *cpus,
                                      struct twill_error *error);
/* Choose for each of a rank's threads a PU, by Linux's number, into pu[threads]. `cpus` are those
 * of the rank, or NULL for those that the calling thread may run on. The order is that of the
 * cores, so that thread t has the same tile, L3 cache or NUMA node as t + 1, whose share of the
 * data is next to its own, wherever that is possible. Fewer threads than cores are spread evenly.
 * Of more threads a core gets several, each on a PU of its own as far as there are PUs. Returns the
 * number of cores, or 0 with pu[] unchanged if there are none or memory runs out. */
unsigned twill_topology_threads(const struct twill_topology *topology,
                                const struct twill_cpus *cpus, unsigned threads, int *pu);
/* Get in *share the PUs that rank `me` may take for threads of its own, out of the n ranks of this
 * host, whose PUs are ranks[n]. No other rank gets any of them. Cores on which several ranks may
 * run are dealt to them in equal, consecutive parts in the order of ranks. Cores that are too few
 * for that stay without threads. Returns the number of cores, 0 if there are none or memory runs
 * out. */
unsigned twill_topology_share(const struct twill_topology *topology, const struct twill_cpus *ranks,
                              unsigned n, unsigned me, struct twill_cpus *share);
/* Set position[cpu], for each PU by Linux's number, to the first t for which pu[t] is on the same
 * core, out of pu[threads], or to UINT16_MAX if there is none. */
void twill_topology_positions(const struct twill_topology *topology, const int *pu,
                              unsigned threads, uint16_t position[TWILL_CPUS_MOST]);
/* Return whether the calling thread is bound: it may run on fewer PUs of this machine than the
 * process's cgroup allows. */
bool twill_topology_is_bound(const struct twill_topology *topology);
/* Print the PUs, by Linux's number, that twill_topology_bind() gives local rank l of n ranks with
 * TWILL_BOUND_TO_CORES. The list is such as "0-3,64-67". Returns TWILL_ERR_ARGUMENT if it does not
 * fit into `bytes`, or l is not below n. */
twill_status twill_topology_advise(const struct twill_topology *topology, unsigned l, unsigned n,
                                   char *text, size_t bytes, struct twill_error *error);
/* Get the PUs that the calling thread may run on, none if out of memory. */
void twill_topology_cpus(const struct twill_topology *topology, struct twill_cpus *cpus);
/* Return a PU, by Linux's number, for a helper thread of rank `me`, or -1 if there is none. None of
 * the n ranks of this machine, whose PUs are ranks[n], may run on it. PUs in the NUMA node of `me`
 * and on cores without ranks come first. Ranks get different PUs while there are enough. */
int twill_topology_spare(const struct twill_topology *topology, const struct twill_cpus *ranks,
                         unsigned n, unsigned me);
/* Return a PU for thread k of the `threads` that rank `me` has for communication. It is as by
 * twill_topology_spare(), with *own false, if there is one. Otherwise it is a PU of `me`, from the
 * last, with *own true. Ranks that may run on the same PUs get different ones. If that would leave
 * them no PU, return -1, also with *own true. */
int twill_topology_helper(const struct twill_topology *topology, const struct twill_cpus *ranks,
                          unsigned n, unsigned me, unsigned threads, unsigned k, bool *own);
/* Get the place of a PU, by Linux's number. Its indices are -1 if there is none. */
void twill_topology_place_pu(const struct twill_topology *topology, unsigned pu,
                             struct twill_place *place);

/* A network device of the machine. A plain value. */
struct twill_nic {
    char name[64];     /* "eth0", "mlx5_0" */
    char kind[16];     /* "network", "openfabrics" */
    int numa, package; /* logical index of the nearest NUMA node and package, -1 if unknown */
    unsigned distance; /* from the calling thread, 0 near or unknown, 1 in its package, 2 farther */
};
/* Describe network device number `index`, from 0. Returns false past the end. */
bool twill_topology_nic(const struct twill_topology *topology, size_t index, struct twill_nic *nic);
/* Describe the network device of this name. Returns false if there is none. */
bool twill_topology_nic_named(const struct twill_topology *topology, const char *name,
                              struct twill_nic *nic);
/* Describe the network device at a PCI address. Returns false if there is none. */
bool twill_topology_nic_at(const struct twill_topology *topology, unsigned domain, unsigned bus,
                           unsigned device, unsigned function, struct twill_nic *nic);

#endif
