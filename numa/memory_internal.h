/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of numa/memory share. */
#ifndef TWILL_MEMORY_INTERNAL_H
#define TWILL_MEMORY_INTERNAL_H

#include "numa/memory.h"

#include <stddef.h>

/* Where private memory comes from: a kind is a const table of operations, so that memkind (which
 * is no longer developed) can be replaced by writing another one. */
struct twill_memory_kind_ops {
    const char *name;
    size_t grain; /* sizes are rounded up to this, and accounted so */
    /* Memory under the policy, or from the system's default for a NULL one. Touches no page.
     * Returns 0 or an errno. */
    int (*alloc)(const struct twill_memory_policy *policy, void **pointer, size_t bytes,
                 size_t alignment);
    void (*free)(void *pointer, size_t bytes);
};

extern const struct twill_memory_kind_ops twill_memory_kind_mmap;

/* The memkind table when it was built in and can serve the policy here and now, else NULL. */
const struct twill_memory_kind_ops *
twill_memory_kind_memkind(const struct twill_memory_policy *policy);

/* Apply a policy to untouched pages. Returns 0 or an errno. */
int twill_memory_mbind(const struct twill_memory_policy *policy, void *pointer, size_t bytes);
/* The nodes of the policy the memory at the pointer has; 0: none or not known. */
uint64_t twill_memory_bound_to(void *pointer);

#endif
