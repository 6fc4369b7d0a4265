/* SPDX-License-Identifier: Apache-2.0 */
/* The machine, as hwloc finds it or as TWILL_LAYOUT=topology describes it. hwloc's types are not
 * visible outside numa/topology*.c. */
#ifndef TWILL_TOPOLOGY_H
#define TWILL_TOPOLOGY_H

#include "lib/base/base.h"

struct twill_topology;

enum twill_memory_kind { TWILL_KIND_DDR, TWILL_KIND_MCDRAM, TWILL_KIND_CXL, TWILL_KIND_OTHER };

#define TWILL_MAX_NUMA 128
/* NUMA nodes by os_index, one bit each. */
__extension__ typedef unsigned __int128 twill_numa_set;
_Static_assert(sizeof(twill_numa_set) * 8 == TWILL_MAX_NUMA, "a bit for each");

static inline twill_numa_set twill_numa_bit(unsigned os_index)
{
    return os_index < TWILL_MAX_NUMA ? (twill_numa_set)1 << os_index : 0;
}

/* One NUMA node. */
struct twill_numa_node {
    unsigned os_index;
    enum twill_memory_kind kind; /* MCDRAM stands for any high-bandwidth memory (HBM), OTHER for
                                    persistent, GPU or unknown memory */
    uint64_t bytes;              /* capacity, 0: unknown */
    uint64_t free_bytes;         /* now; 0 if the machine is not this one */
    unsigned bandwidth_mbs;      /* hwloc's Bandwidth attribute in MB/s, 0: unknown */
    bool has_cpus;
    bool local; /* nearest of its kind to where the process runs; all it spans if several */
};

/* What is known of a machine. Owned by the topology. */
struct twill_machine {
    bool is_this_machine;  /* false: another one is described; nothing can be bound or placed */
    const char *elsewhere; /* why not, and by what; NULL for this machine */
    char source[160];      /* "this machine", "file knl.xml", "synthetic pack:1 ..." */
    char model[96];        /* CPU model, if known */
    char cpu[64];          /* vendor, family and model number by CPUID, or "" */
    bool is_knl;           /* Xeon Phi of the second or third generation, by CPUID */
    char memory_mode[32];  /* KNL: "Flat", "Cache", "Hybrid50"; else "" */
    char cluster_mode[32]; /* KNL: "Quadrant", "SNC4"; else "" */
    unsigned packages, numa_nodes, cores, pus;
    unsigned allowed_pus;                   /* what this process may run on (cgroup, affinity) */
    unsigned pus_per_core, cores_per_l2;    /* of the first core; KNL tiles: 2 cores per L2 */
    unsigned l3_caches;                     /* without memory-side caches */
    uint64_t l1d_bytes, l2_bytes, l3_bytes; /* of the first of each; 0: none, or size unknown */
    uint64_t side_cache_bytes;              /* all memory-side caches (KNL cache mode) */
    twill_numa_set barred_hbm; /* NUMA nodes of MCDRAM that this process may not use (cpuset) */
    bool hbm_is_faster; /* MCDRAM is faster than DDR for all CPUs that the process may run on */
    struct twill_numa_node numa[TWILL_MAX_NUMA]; /* by logical index, the first TWILL_MAX_NUMA */
};

/* Load a topology. text: NULL or "" for this machine, else the path of an XML file or a synthetic
 * description; TWILL_ERR_CONFIG names TWILL_LAYOUT=topology and what is wrong with it. */
twill_status twill_topology_open(struct twill_topology **topology, const char *text,
                                 struct twill_error *error);
void twill_topology_close(struct twill_topology *topology);
const struct twill_machine *twill_topology_machine(const struct twill_topology *topology);

/* Update allowed_pus, hbm_is_faster and the `local` of the NUMA nodes, as the process may have been
 * bound since. On this machine cpus must be NULL; on a described one cpus ("0-3,64") says where the
 * process runs, NULL: everywhere. */
twill_status twill_topology_locate(struct twill_topology *topology, const char *cpus,
                                   struct twill_error *error);

/* Ask the kernel about a NUMA node: its free bytes now (0: unknown), and whether it has CPUs
 * (`otherwise` if unknown). */
uint64_t twill_numa_free_bytes(unsigned os_index);
bool twill_numa_has_cpus(unsigned os_index, bool otherwise);

/* Where a thread may run: logical indices, -1 if unknown or several. Ranks exchange it, and compare
 * it to find out how many share their CPUs. */
struct twill_place {
    int package, numa, l3, l2, core, pu;
    uint64_t cpuset_hash; /* equal for equal sets of allowed CPUs */
    unsigned cpus;        /* number of allowed CPUs */
};
/* Get the place of the calling thread. */
void twill_topology_place(const struct twill_topology *topology, struct twill_place *place);

/* A set of PUs, by Linux's numbers. */
#define TWILL_CPUS_MOST 1024
struct twill_cpus {
    uint64_t word[TWILL_CPUS_MOST / 64];
};
/* Print a list such as "0-3,64-67". Returns its length as snprintf() does; < 0: out of memory. */
int twill_cpus_list(const struct twill_cpus *cpus, char *text, size_t bytes);

/* Logical indices of the tile (L2 cache), the L3 cache, the NUMA node and the package that hold all
 * of a set of PUs. -1: the machine has none, or the PUs span several: a thread that may run in two
 * L3 caches shares neither with another. PUs whose NUMA node has no memory that may be used have a
 * number above all nodes, one for each package. If one of several NUMA nodes holds several
 * packages, these count as one, their first: the slow links are between the nodes, and units must
 * nest. */
struct twill_units {
    int tile, l3, numa, package;
    bool roams; /* the PUs span several cores that are not of one tile */
};
/* Get the units of a set of PUs; NULL: those the calling thread may run on. */
void twill_topology_units(const struct twill_topology *topology, const struct twill_cpus *cpus,
                          struct twill_units *units);

/* Return the number of cores with a PU that the calling thread may run on. */
unsigned twill_topology_cores(const struct twill_topology *topology);

/* What a rank is bound to: its cores, or all of the L3 caches, NUMA nodes or packages that they are
 * in. */
enum twill_bound_to {
    TWILL_BOUND_TO_CORES,
    TWILL_BOUND_TO_L3,
    TWILL_BOUND_TO_NUMA,
    TWILL_BOUND_TO_PACKAGE
};
/* Compute a binding for the ranks of this host, into cpus[ranks], within what the calling thread
 * may use. All ranks get equally many whole cores, spread over the machine: consecutive ranks are
 * near each other, and no rank spans two units that could be within one. More ranks than cores
 * share cores. Binds nothing. */
twill_status twill_topology_bind(const struct twill_topology *topology, unsigned ranks,
                                 enum twill_bound_to to, struct twill_cpus *cpus,
                                 struct twill_error *error);
/* Print the cores of local rank l of n as a list. */
twill_status twill_topology_advise(const struct twill_topology *topology, unsigned l, unsigned n,
                                   char *text, size_t bytes, struct twill_error *error);

/* Get the PUs that the calling thread may run on. */
void twill_topology_cpus(const struct twill_topology *topology, struct twill_cpus *cpus);
/* Return a PU for a helper thread of rank `me`: one that none of the n ranks (of this machine,
 * which may run on ranks[n]) may run on, preferably in the NUMA node of `me`, and of a core without
 * ranks. Ranks get different PUs as long as there are enough. -1: there is none. */
int twill_topology_spare(const struct twill_topology *topology, const struct twill_cpus *ranks,
                         unsigned n, unsigned me);

/* Return a PU for thread k of the `threads` that each rank has for communication: as above, or
 * where ranks may run everywhere one of the PUs of `me` (*own becomes true), from the last, as long
 * as one is left for computing; ranks that may run on the same PUs get different ones. -1: there is
 * none. */
int twill_topology_helper(const struct twill_topology *topology, const struct twill_cpus *ranks,
                          unsigned n, unsigned me, unsigned threads, unsigned k, bool *own);
/* Get the place of a PU, by Linux's number. */
void twill_topology_place_pu(const struct twill_topology *topology, unsigned pu,
                             struct twill_place *place);

struct twill_nic {
    char name[64];     /* "eth0", "mlx5_0" */
    char kind[16];     /* "network", "openfabrics" */
    int numa, package; /* logical index of the nearest NUMA node and package, -1: unknown */
    unsigned distance; /* from where the calling thread runs: 0 nearest or unknown, 1 in the same
                          package, 2 farther */
};
/* Describe NIC number `index`, from 0. Returns false past the end. */
bool twill_topology_nic(const struct twill_topology *topology, size_t index, struct twill_nic *nic);
/* Describe the NIC of a name, or at a PCI address. Returns false if there is none. */
bool twill_topology_nic_named(const struct twill_topology *topology, const char *name,
                              struct twill_nic *nic);
bool twill_topology_nic_at(const struct twill_topology *topology, unsigned domain, unsigned bus,
                           unsigned device, unsigned function, struct twill_nic *nic);

#endif
