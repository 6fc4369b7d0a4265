/* SPDX-License-Identifier: Apache-2.0 */
/* Memory placement: whether buffers are in DDR or MCDRAM. memkind's types are not visible outside
 * numa/memory_memkind.c; without memkind mbind() applies the same policies. Set-up only: nothing
 * here runs in steady state. */
#ifndef TWILL_MEMORY_H
#define TWILL_MEMORY_H

#include "numa/topology.h"

enum twill_memory_mode { TWILL_MODE_PREFERRED, TWILL_MODE_BIND, TWILL_MODE_INTERLEAVE };

/* TWILL_MEMORY's setting for one kind of buffers, resolved against a machine. */
struct twill_memory_policy {
    enum twill_memory_kind kind; /* DDR, MCDRAM or CXL */
    enum twill_memory_mode mode;
    twill_numa_set nodes; /* 0: the system's default */
    bool missed;          /* MCDRAM was requested by name, and there is none */
    bool automatic;       /* of "auto" */
    const char *nominal;  /* why nothing is bound: it is decided for another machine; else NULL */
    char why[160];        /* "auto: 16 GiB MCDRAM at NUMA 1", for people; HBM unless on a KNL */
};

/* Parse "auto", "ddr", "mcdram", "mcdram:bind", "hbm", "cxl", ... and decide for a machine. Without
 * MCDRAM, mcdram:bind is TWILL_ERR_CONFIG, and other settings fall back to DDR, as `why` says.
 * auto: MCDRAM if the machine has it as separate memory (flat, hybrid), else DDR (cache mode,
 * ordinary Xeons). hbw_nodes: the value of MEMKIND_HBW_NODES or NULL; these nodes count as MCDRAM,
 * as in memkind. */
twill_status twill_memory_decide(struct twill_memory_policy *policy, const char *text,
                                 const struct twill_machine *machine, const char *hbw_nodes,
                                 struct twill_error *error);

/* A pool: memory under one policy and one budget. Not thread-safe. */
struct twill_memory;

/* Open a pool. budget: most bytes of MCDRAM to take, 0: all that is free. Free is what the kernel
 * reports; ranks of a host that bind at the same time do not see each other's untouched pages, so
 * twill_memory_limit() limits each of them. */
twill_status twill_memory_open(struct twill_memory **memory,
                               const struct twill_memory_policy *policy, uint64_t budget,
                               struct twill_log *log, struct twill_error *error);
void twill_memory_close(struct twill_memory *memory);

/* Join two pools of a process (the user's and the library's): each counts the other's bytes against
 * its budget and against what is free. Either may be closed first. */
void twill_memory_join(struct twill_memory *memory, struct twill_memory *sibling);

/* What ranks of a host tell each other, for twill_memory_share(): for each of the two pools the
 * NUMA nodes its memory may be on, and if it binds, the bytes that were free there when it was
 * opened, else UINT64_MAX. */
struct twill_memory_claim {
    twill_numa_set nodes;
    uint64_t free_bytes;
};
struct twill_memory_claims {
    struct twill_memory_claim user, library;
};
void twill_memory_claim(const struct twill_memory *memory, struct twill_memory_claim *claim);
/* Return the most bytes that rank `me` of n may place, so that no rank that binds is killed for
 * what the others take. UINT64_MAX: none that shares a node with it binds. */
uint64_t twill_memory_share(const struct twill_memory_claims *ranks, unsigned n, unsigned me);
/* Limit what this pool and its sibling place, together. All ranks must open their pools before the
 * first one allocates. */
void twill_memory_limit(struct twill_memory *memory, uint64_t bytes);

/* Allocate private memory, aligned to 64 bytes; from 2 MiB up to 2 MiB, and advised to use huge
 * pages. BIND never takes more than is free or than the budget allows: beyond that the memory is
 * DDR, counted as a fallback and logged once. */
twill_status twill_memory_alloc(struct twill_memory *memory, void **pointer, size_t bytes,
                                struct twill_error *error);
void twill_memory_free(struct twill_memory *memory, void *pointer, size_t bytes);
/* Apply the policy to a page-aligned mapping of the caller's, by the rules of twill_memory_alloc().
 * Call it before a page is touched. *placed: it is, and not in DDR. */
twill_status twill_memory_place(struct twill_memory *memory, void *pointer, size_t bytes,
                                bool *placed, struct twill_error *error);
/* Give back to the budget what twill_memory_place() took. The policy of the mapping stays. */
void twill_memory_unplace(struct twill_memory *memory, size_t bytes, bool placed);

struct twill_memory_stats {
    uint64_t bytes;     /* allocated or placed now, rounded up to pages or cache lines */
    uint64_t bytes_hbw; /* of those, in MCDRAM */
    uint64_t fallbacks; /* allocations that did not get the requested kind */
};
void twill_memory_stats(const struct twill_memory *memory, struct twill_memory_stats *stats);

/* Prefer a NUMA node, by Linux's number, for the whole pages of a range, and move there those that
 * only this process uses; -1: the default again. Returns 0 or an errno. */
int twill_memory_near(void *pointer, size_t bytes, int node);

#endif
