/* SPDX-License-Identifier: Apache-2.0 */
/* Where pages of memory are, as the kernel tells it: the proof behind twill-info --memory. */
#ifndef TWILL_PAGES_H
#define TWILL_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TWILL_BENCH_NODES = 64 };

struct twill_bench_pages {
    size_t total, page_bytes;
    size_t on_node[TWILL_BENCH_NODES];
    size_t elsewhere;  /* absent, or on a node beyond those */
    size_t misplaced;  /* of those that are there, not on an allowed node */
    bool policy_known; /* the memory policy of the range could be read */
    bool bound;        /* it is MPOL_BIND */
    uint64_t allowed;  /* the nodes it names */
    const char *policy;
};

/* Ask about `bytes` at `memory`. 0, or an errno. */
int twill_bench_pages_find(const void *memory, size_t bytes, struct twill_bench_pages *pages);

/* Ask about all mappings of this process whose file begins with the name, such as
 * "/memfd:twill-comm", and add up; the policy is that of the first which is not bound, or bound.
 * *ranges: how many there are. 0, or an errno. */
int twill_bench_pages_find_named(const char *name, struct twill_bench_pages *pages,
                                 unsigned *ranges);

/* Is the range bound, and every page that is there on an allowed node? */
bool twill_bench_pages_bound(const struct twill_bench_pages *pages);

#endif
