/* SPDX-License-Identifier: Apache-2.0 */
/* Internal to numa/memory*.c: the kinds of private memory. */
#ifndef TWILL_MEMORY_INTERNAL_H
#define TWILL_MEMORY_INTERNAL_H

#include "numa/memory.h"

#include <stddef.h>

/* A source of private memory. A table of operations, so that memkind, which is no longer developed,
 * can be replaced. */
struct twill_memory_kind_ops {
    const char *name;
    size_t grain; /* sizes are rounded up to a multiple of this */
    /* Allocate under the policy, NULL: the system's default. Touches no page. Returns 0 or an
     * errno. */
    int (*alloc)(const struct twill_memory_policy *policy, void **pointer, size_t bytes,
                 size_t alignment);
    void (*free)(void *pointer, size_t bytes);
    /* Apply the policy to untouched pages of a mapping of the caller's, shared or private. Returns
     * 0 or an errno. */
    int (*place)(const struct twill_memory_policy *policy, void *pointer, size_t bytes);
};

extern const struct twill_memory_kind_ops twill_memory_kind_mmap, twill_memory_kind_system;

/* Return the table for a policy that names NUMA nodes: memkind's, or NULL if it is not built in,
 * cannot serve the policy now, or has not the memory to be loaded, which the log says. */
const struct twill_memory_kind_ops *
twill_memory_kind_memkind(const struct twill_memory_policy *policy, struct twill_log *log);
/* Return whether limits allow this process that many more bytes; *limit: what leaves less, or NULL.
 */
bool twill_memory_allows(uint64_t bytes, const char **limit);

/* Apply a policy to untouched pages. Returns 0 or an errno. */
int twill_memory_mbind(const struct twill_memory_policy *policy, void *pointer, size_t bytes);
/* Return the nodes in the kernel's policy of the memory at the pointer; 0: none or unknown. */
uint64_t twill_memory_bound_to(void *pointer);

#endif
