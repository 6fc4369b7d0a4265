/* SPDX-License-Identifier: Apache-2.0 */
/* Memory placement: whether buffers are in DDR, MCDRAM or CXL memory, by memkind (which only
 * numa/memory_memkind.c sees) or mbind(). Nothing here runs in the steady state. */
#ifndef TWILL_MEMORY_H
#define TWILL_MEMORY_H

#include "numa/topology.h"

enum twill_memory_mode { TWILL_MODE_PREFERRED, TWILL_MODE_BIND, TWILL_MODE_INTERLEAVE };

/* The setting of TWILL_MEMORY for one kind of buffers, as twill_memory_decide() resolves it. A
 * plain value, which a pool copies. */
struct twill_memory_policy {
    enum twill_memory_kind kind; /* DDR, MCDRAM or CXL */
    enum twill_memory_mode mode;
    twill_numa_set nodes; /* 0 for the system's default */
    bool missed;    /* a kind of memory, or nodes by MEMKIND_HBW_NODES, were requested in vain */
    bool automatic; /* decided by "auto" */
    const char *nominal; /* why nothing is placed (another machine is described), or NULL */
    char why[160];       /* for people: "auto: 16 GiB MCDRAM at NUMA 1, preferred" */
};

/* Set *policy from the text "auto", "ddr", "mcdram", "mcdram:bind", "hbm", "cxl", ... for a
 * machine. NULL and "" mean "auto". Another text is TWILL_ERR_CONFIG. So is one with :bind if the
 * machine has no such memory, where all others fall back to DDR, as `why` says. "auto" chooses
 * MCDRAM that is separate memory (flat, hybrid) and faster for all CPUs of the process, else DDR.
 * If hbw_nodes (MEMKIND_HBW_NODES) is not NULL or "", its nodes and no others are MCDRAM, which
 * "auto" then takes even if it is slower. */
twill_status twill_memory_decide(struct twill_memory_policy *policy, const char *text,
                                 const struct twill_machine *machine, const char *hbw_nodes,
                                 struct twill_error *error);

struct twill_memory;
/* Create a pool, the memory of a process under one policy and one budget. It may place at most
 * `budget` bytes on the policy's NUMA nodes, if that is not 0. With BIND it places no more than is
 * free there by the kernel. Ranks of a host that bind at the same time do not see each other's
 * untouched pages, so twill_memory_limit() limits each. It copies the policy, logs to `log`, and
 * has no lock. */
twill_status twill_memory_open(struct twill_memory **memory,
                               const struct twill_memory_policy *policy, uint64_t budget,
                               struct twill_log *log, struct twill_error *error);
/* Free a pool, which may be NULL, and all that was allocated from it. */
void twill_memory_close(struct twill_memory *memory);
/* Join two pools of a process, the user's and the library's. Each then counts the other's bytes
 * against its budget and against what is free. Either may be closed first. */
void twill_memory_join(struct twill_memory *memory, struct twill_memory *sibling);

/* The memory that a rank's pool may take. The ranks of a host exchange it for twill_memory_share().
 * A plain value. */
struct twill_memory_claim {
    twill_numa_set nodes; /* the NUMA nodes of its policy, 0 if that places nothing */
    uint64_t free_bytes;  /* free there when the pool was opened; UINT64_MAX unless it binds */
};
/* The memory that both pools of a rank, the user's and the library's, may take. A plain value. */
struct twill_memory_claims {
    struct twill_memory_claim user, library;
};
/* Get in *claim which memory a pool may take. The ranks of a host exchange this for
 * twill_memory_share(). */
void twill_memory_claim(const struct twill_memory *memory, struct twill_memory_claim *claim);
/* Return the most bytes that rank `me` of the n ranks of a host may take from the NUMA nodes of its
 * pools. It is so small that no rank that binds its memory is killed for what others take. Returns
 * UINT64_MAX if no rank binds memory to one of these NUMA nodes. */
uint64_t twill_memory_share(const struct twill_memory_claims *ranks, unsigned n, unsigned me);
/* Limit the bytes that a pool and its sibling place together, UINT64_MAX for no new limit. Call it
 * when all ranks have opened their pools and before any of them allocates. */
void twill_memory_limit(struct twill_memory *memory, uint64_t bytes);

/* Allocate private memory in *pointer, NULL on failure. It is aligned to 64 bytes, or from 2 MiB on
 * to 2 MiB with the advice to use huge pages. BIND takes no more than is free and the budget
 * allows. Memory beyond that is in DDR, counted as a fallback and logged once. */
twill_status twill_memory_alloc(struct twill_memory *memory, void **pointer, size_t bytes,
                                struct twill_error *error);
/* Free what twill_memory_alloc() returned. Ignores `bytes`, and a `pointer` not of this pool. */
void twill_memory_free(struct twill_memory *memory, void *pointer, size_t bytes);
/* Apply the policy to a page-aligned mapping of the caller's, by the rules of twill_memory_alloc().
 * Call it before any page is touched. *placed becomes true if the policy places it, false if it is
 * in DDR. Returns TWILL_ERR_ARGUMENT only if it is not page-aligned. */
twill_status twill_memory_place(struct twill_memory *memory, void *pointer, size_t bytes,
                                bool *placed, struct twill_error *error);
/* Give back to the budget `bytes` bytes that twill_memory_place() took. `placed` is what that
 * function stored in *placed. The policy of the mapping stays. */
void twill_memory_unplace(struct twill_memory *memory, size_t bytes, bool placed);

/* The counts of one pool, copied by twill_memory_stats(). */
struct twill_memory_stats {
    uint64_t bytes;     /* allocated or placed now, rounded up to pages or cache lines */
    uint64_t bytes_hbw; /* those of them in MCDRAM, HBM or CXL memory */
    uint64_t fallbacks; /* allocations and placements that did not get the requested kind */
};
/* Set what this process uses, in pages: address space, resident memory, data. Returns false if that
 * is unknown. */
bool twill_memory_pages(unsigned long *all, unsigned long *resident, unsigned long *data);
/* Copy the counts of a pool into *stats. */
void twill_memory_stats(const struct twill_memory *memory, struct twill_memory_stats *stats);
/* Prefer a NUMA node (Linux's number) for the whole pages of a range, and move there those that
 * only this process uses. -1 restores the default. Returns 0 or an errno. */
int twill_memory_near(void *pointer, size_t bytes, int node);
/* As twill_memory_near(), but only for pages that do not exist yet. */
int twill_memory_prefer(void *pointer, size_t bytes, int node);

#endif
