/* SPDX-License-Identifier: Apache-2.0 */
/* Where the kernel says that pages of memory are; the evidence behind twill-info --memory. */
#ifndef TWILL_PAGES_H
#define TWILL_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TWILL_BENCH_NODES = 64 };

struct twill_bench_pages {
    size_t total, page_bytes;
    size_t on_node[TWILL_BENCH_NODES];
    size_t elsewhere;  /* absent, or on a node beyond TWILL_BENCH_NODES */
    size_t misplaced;  /* present, but not on an allowed node */
    bool policy_known; /* the memory policy of the range could be read */
    bool bound;        /* the policy is MPOL_BIND */
    uint64_t allowed;  /* the policy's nodes, as a mask */
    const char *policy;
};

/* Query `bytes` at `memory`. Returns 0 or an errno. */
int twill_bench_pages_find(const void *memory, size_t bytes, struct twill_bench_pages *pages);

/* Query all mappings of this process whose path begins with `name`, such as "/memfd:twill-comm",
 * and add them up. pages->policy is that of the first one that is not bound, if any. *ranges: the
 * number of files, a rank's each. Returns 0 or an errno. */
int twill_bench_pages_find_named(const char *name, struct twill_bench_pages *pages,
                                 unsigned *ranges);

/* Return whether the range is bound and every present page is on an allowed node. */
bool twill_bench_pages_bound(const struct twill_bench_pages *pages);

#endif
