/* SPDX-License-Identifier: Apache-2.0 */
/* The machine, as hwloc sees it or as TWILL_TOPOLOGY describes it. hwloc's types stay inside. */
#ifndef TWILL_TOPOLOGY_H
#define TWILL_TOPOLOGY_H

#include "lib/base.h"

struct twill_topology;

enum twill_memory_kind { TWILL_KIND_DDR, TWILL_KIND_MCDRAM, TWILL_KIND_OTHER };

#define TWILL_MAX_NUMA 64

/* One NUMA node. */
struct twill_numa_node {
    unsigned os_index;
    enum twill_memory_kind kind; /* MCDRAM stands for any high-bandwidth memory (HBM) */
    uint64_t bytes;              /* capacity, 0: unknown */
    uint64_t free_bytes;         /* now, 0 when the machine is not this one */
    unsigned bandwidth_mbs;      /* hwloc's Bandwidth attribute, 0 when unknown */
    bool has_cpus;
    bool local; /* best of its kind for the place this process runs at; all it spans if several */
};

struct twill_machine {
    bool is_this_machine;  /* false: TWILL_TOPOLOGY replaced it; nothing can be bound or placed */
    char source[160];      /* "this machine", "file knl.xml", "synthetic pack:1 ..." */
    char model[96];        /* CPU model, if known */
    char cpu[64];          /* its vendor, family and model number by CPUID, or "" */
    bool is_knl;           /* Xeon Phi of the second or third generation, by CPUID */
    char memory_mode[32];  /* KNL: "Flat", "Cache", "Hybrid50"; else "" */
    char cluster_mode[32]; /* KNL: "Quadrant", "SNC4"; else "" */
    unsigned packages, numa_nodes, cores, pus;
    unsigned allowed_pus;                   /* what this process may run on (cgroup, affinity) */
    unsigned pus_per_core, cores_per_l2;    /* of the first core; KNL tiles: 2 cores per L2 */
    unsigned l3_caches;                     /* memory-side caches not among them */
    uint64_t l1d_bytes, l2_bytes, l3_bytes; /* of the first of each, 0: none, or size unknown */
    uint64_t side_cache_bytes;              /* memory-side caches together (KNL cache mode) */
    struct twill_numa_node numa[TWILL_MAX_NUMA]; /* by logical index; nodes beyond are left out */
};

/* text: NULL or "" for this machine, else a path of an XML file or a synthetic description.
 * Something that is neither is TWILL_ERR_CONFIG naming TWILL_TOPOLOGY and what is wrong. */
twill_status twill_topology_open(struct twill_topology **topology, const char *text,
                                 struct twill_error *error);
void twill_topology_close(struct twill_topology *topology);
const struct twill_machine *twill_topology_machine(const struct twill_topology *topology);

/* Look again where the process runs (it may have been bound since) and renew allowed_pus and the
 * `local` of the NUMA nodes. On a machine that TWILL_TOPOLOGY replaced, cpus ("0-3,64") says where;
 * NULL means everywhere. On this machine cpus must be NULL. */
twill_status twill_topology_locate(struct twill_topology *topology, const char *cpus,
                                   struct twill_error *error);

/* What the kernel says about a NUMA node now: free bytes (0: unknown), and whether it has CPUs
 * (`otherwise`: unknown). */
uint64_t twill_numa_free_bytes(unsigned os_index);
bool twill_numa_has_cpus(unsigned os_index, bool otherwise);

/* Where is the caller's thread? Logical indices, -1 when unknown or spread over several. Used to
 * describe ranks to each other and to see how many ranks share the CPUs. */
struct twill_place {
    int package, numa, l3, l2, core, pu;
    uint64_t cpuset_hash; /* ranks with the same allowed CPUs have the same */
    unsigned cpus;        /* allowed */
};
void twill_topology_place(const struct twill_topology *topology, struct twill_place *place);

/* PUs, by the numbers that Linux gives them. */
#define TWILL_CPUS_MOST 1024
struct twill_cpus {
    uint64_t word[TWILL_CPUS_MOST / 64];
};
/* As a list such as "0-3,64-67". Returns its length as snprintf() does; < 0: no memory. */
int twill_cpus_list(const struct twill_cpus *cpus, char *text, size_t bytes);

/* Logical index of the tile (L2 cache), the L3 cache, the NUMA node and the package that hold all
 * of the PUs (NULL: those that the caller's thread may run on). -1: the machine shows none, or they
 * lie across several: a thread that may run in two L3 caches shares neither with anybody.
 * Where one of several NUMA nodes holds several packages, these count as one, their first: the slow
 * links are between the nodes, and a level has to lie in the next. */
struct twill_units {
    int tile, l3, numa, package;
    bool roams; /* over several cores, which are not of one tile */
};
void twill_topology_units(const struct twill_topology *topology, const struct twill_cpus *cpus,
                          struct twill_units *units);

/* Cores, of which the caller's thread may run on at least one PU. */
unsigned twill_topology_cores(const struct twill_topology *topology);

/* How ranks of this host are bound within what the caller's thread may use. Each gets whole cores,
 * all ranks equally many, spread over the machine: neighbours in rank lie near each other, and no
 * rank lies across two parts of the machine where it could lie within one. Where there are more
 * ranks than cores, they share cores. Wider than to cores: to all of the L3 caches, NUMA nodes or
 * packages that these lie in. */
enum twill_bound_to {
    TWILL_BOUND_TO_CORES,
    TWILL_BOUND_TO_L3,
    TWILL_BOUND_TO_NUMA,
    TWILL_BOUND_TO_PACKAGE
};
/* cpus[ranks] */
twill_status twill_topology_bind(const struct twill_topology *topology, unsigned ranks,
                                 enum twill_bound_to to, struct twill_cpus *cpus,
                                 struct twill_error *error);
/* The cores of local rank l of n, as a list. */
twill_status twill_topology_advise(const struct twill_topology *topology, unsigned l, unsigned n,
                                   char *text, size_t bytes, struct twill_error *error);

/* Those that the caller's thread may run on. */
void twill_topology_cpus(const struct twill_topology *topology, struct twill_cpus *cpus);
/* For a thread beside rank `me` of n on this machine, which may run on these: a PU that none of
 * them may run on, in the NUMA node of `me` if there is one, of a core that has none of them if
 * there is one. Ranks get different ones as long as there are enough. -1: none is left. */
int twill_topology_spare(const struct twill_topology *topology, const struct twill_cpus *ranks,
                         unsigned n, unsigned me);

/* NICs: index 0, 1, ...; false past the end. */
struct twill_nic {
    char name[64];     /* "eth0", "mlx5_0" */
    char kind[16];     /* "network", "openfabrics" */
    int numa, package; /* logical index of the nearest NUMA node and package, -1: unknown */
    unsigned distance; /* from where the caller runs: 0 nothing is nearer (or all is equally near,
                          or nothing is known), 1 in the same package, 2 beyond */
};
bool twill_topology_nic(const struct twill_topology *topology, size_t index, struct twill_nic *nic);
/* The one of this name; else the one at this PCI address. */
bool twill_topology_nic_named(const struct twill_topology *topology, const char *name,
                              struct twill_nic *nic);
bool twill_topology_nic_at(const struct twill_topology *topology, unsigned domain, unsigned bus,
                           unsigned device, unsigned function, struct twill_nic *nic);

#endif
