/* SPDX-License-Identifier: Apache-2.0 */
/* Internal to numa/memory*.c: how memory is taken and placed. */
#ifndef TWILL_MEMORY_INTERNAL_H
#define TWILL_MEMORY_INTERNAL_H

#include "numa/memory.h"

#include <stddef.h>
#include <stdio.h>

#define TWILL_MEMORY_PAGE 4096u

/* A way to apply a policy to untouched pages of a mapping, shared or private. Each is a constant.
 * It is a structure so that memkind, which is no longer developed, can be replaced. */
struct twill_memory_placer {
    const char *name;
    /* Returns 0 or an errno. */
    int (*place)(const struct twill_memory_policy *policy, void *pointer, size_t bytes);
};

/* The kernel's mbind(). */
extern const struct twill_memory_placer twill_memory_placer_mbind;
/* Return the placer that uses the library memkind. Returns NULL if it is not built in, would use
 * other nodes than the policy's, or lacks the memory to be loaded, which is logged. */
const struct twill_memory_placer *
twill_memory_placer_memkind(const struct twill_memory_policy *policy, struct twill_log *log);

/* Map untouched private memory in whole pages. It is aligned to `alignment`, a power of two, if
 * that is TWILL_HUGE_PAGE or more, else to a page. Returns 0 or an errno. */
int twill_memory_map(void **pointer, size_t bytes, size_t alignment);
/* Unmap what twill_memory_map() mapped for the same number of bytes. */
void twill_memory_unmap(void *pointer, size_t bytes);
/* Take memory that no policy places, with no page touched if it has 128 KiB or more. It is then
 * aligned as by twill_memory_map(), otherwise to `alignment`. Returns 0 or an errno. The caller
 * returns it with twill_memory_give() and the same size. */
int twill_memory_take(void **pointer, size_t bytes, size_t alignment);
/* Free what twill_memory_take() returned for the same number of bytes. */
void twill_memory_give(void *pointer, size_t bytes);
/* Return whether limits of resources and cgroup allow this process `bytes` more. Sets *limit to
 * NULL, or if not, to a text that says which limit leaves less, or that its use of memory is
 * unknown. */
bool twill_memory_allows(uint64_t bytes, const char **limit);
/* Return the bytes that can be taken from a NUMA node, given its meminfo from sysfs. Clean pages of
 * files count as free, as they are dropped when memory is needed, even for a BIND. */
uint64_t twill_numa_free_in(FILE *meminfo);
/* Return the NUMA nodes whose memory this process may use (cpuset), or 0 if unknown. */
twill_numa_set twill_memory_allowed(void);
/* Return the nodes in the kernel's policy of the memory at the pointer, or 0 if none or unknown. */
twill_numa_set twill_memory_bound_to(void *pointer);

#endif
