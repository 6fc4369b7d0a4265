/* SPDX-License-Identifier: Apache-2.0 */
/* Placement: which memory (DDR, MCDRAM) buffers go to. memkind's types stay inside numa/memory*.c;
 * without memkind the same policies are applied by mbind(). */
#ifndef TWILL_MEMORY_H
#define TWILL_MEMORY_H

#include "numa/topology.h"

enum twill_memory_mode { TWILL_MODE_PREFERRED, TWILL_MODE_BIND, TWILL_MODE_INTERLEAVE };

/* One half of TWILL_MEMORY, resolved against a machine. */
struct twill_memory_policy {
    enum twill_memory_kind kind; /* what was decided: DDR or MCDRAM */
    enum twill_memory_mode mode;
    uint64_t nodes; /* NUMA nodes by os_index, one bit each; 0: the system's default */
    bool missed;    /* MCDRAM was asked for by name, and is not there */
    bool nominal;   /* decided for a machine that is not this one: nothing is bound */
    char why[160];  /* "auto: 16 GiB MCDRAM at NUMA 1", for people; HBM where it is no KNL */
};

/* Parse "auto", "ddr", "mcdram", "mcdram:bind", "hbm", ... and decide for this machine. MCDRAM that
 * is not there is TWILL_ERR_CONFIG for :bind, else a fallback to DDR that `why` tells. auto: MCDRAM
 * if the machine has it as memory of its own (flat, hybrid), DDR otherwise (cache mode, ordinary
 * Xeon). hbw_nodes: MEMKIND_HBW_NODES' value or NULL; it counts as MCDRAM, as memkind does it. */
twill_status twill_memory_decide(struct twill_memory_policy *policy, const char *text,
                                 const struct twill_machine *machine, const char *hbw_nodes,
                                 struct twill_error *error);

struct twill_memory; /* a pool with one policy and one budget */

/* budget: most bytes of MCDRAM to take, 0: no limit but what is free. Free is what the kernel says;
 * ranks of a host that bind at the same time do not see each other's untouched pages, so each is
 * limited to its part by twill_memory_share(). */
twill_status twill_memory_open(struct twill_memory **memory,
                               const struct twill_memory_policy *policy, uint64_t budget,
                               struct twill_log *log, struct twill_error *error);
void twill_memory_close(struct twill_memory *memory);
/* Two pools of one process (the user's, the library's) that count against each other's budget and
 * against the same free memory. Either may be closed first. */
void twill_memory_join(struct twill_memory *memory, struct twill_memory *sibling);

/* So many ranks take from the same nodes: from now on a BIND takes at most its part of what was
 * free when the pool was opened. All of them are to open their pools before the first one
 * allocates. */
void twill_memory_share(struct twill_memory *memory, unsigned ranks);

/* Private memory, aligned to 64 bytes, to 2 MiB from 2 MiB up (and advised to use huge pages). BIND
 * never takes more than is free or than the budget allows: it falls back to DDR, counted, said
 * once. */
twill_status twill_memory_alloc(struct twill_memory *memory, void **pointer, size_t bytes,
                                struct twill_error *error);
void twill_memory_free(struct twill_memory *memory, void *pointer, size_t bytes);
/* Apply the policy to a mapping somebody else made (a shared segment), before it is touched; the
 * same rules. Page-aligned. */
twill_status twill_memory_place(struct twill_memory *memory, void *pointer, size_t bytes,
                                struct twill_error *error);
/* Give back what twill_memory_place() took from the budget; what fell back to DDR first. */
void twill_memory_unplace(struct twill_memory *memory, size_t bytes);

struct twill_memory_stats {
    uint64_t bytes;     /* held now, allocated and placed, rounded up to pages or cache lines */
    uint64_t bytes_hbw; /* of those, accounted to MCDRAM */
    uint64_t fallbacks; /* allocations that did not get the kind asked for */
};
void twill_memory_stats(const struct twill_memory *memory, struct twill_memory_stats *stats);

/* Where are the pages? Counts pages per NUMA node by move_pages(); pages nobody touched
 * are not counted. Returns the number of pages found, or a negative status. */
long twill_memory_where(const void *pointer, size_t bytes, uint64_t pages[TWILL_MAX_NUMA]);

#endif
