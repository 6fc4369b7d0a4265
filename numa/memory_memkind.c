/* SPDX-License-Identifier: Apache-2.0 */
/* Placement by memkind, where it was built in and finds high-bandwidth memory of its own accord
 * (KNL by CPUID, HMAT, or MEMKIND_HBW_NODES). */
#include "numa/memory_internal.h"

#ifdef TWILL_WITH_MEMKIND
#include <memkind.h>
#include <stdlib.h>

static memkind_t kind_for(const struct twill_memory_policy *policy)
{
    bool many = (policy->nodes & (policy->nodes - 1)) != 0;
    if (policy->mode == TWILL_MODE_INTERLEAVE)
        return MEMKIND_HBW_INTERLEAVE;
    if (policy->mode == TWILL_MODE_PREFERRED)
        return MEMKIND_HBW_PREFERRED;
    return many ? MEMKIND_HBW_ALL : MEMKIND_HBW;
}

/* memkind_malloc() aligns to less than it is asked for elsewhere, so always this. */
static int memkind_alloc(const struct twill_memory_policy *policy, void **pointer, size_t bytes,
                         size_t alignment)
{
    return memkind_posix_memalign(policy != NULL ? kind_for(policy) : MEMKIND_DEFAULT, pointer,
                                  alignment, bytes);
}

/* NULL: memkind finds the kind itself. It is slower, and never a wrong kind. */
static void memkind_release(void *pointer, size_t bytes)
{
    (void)bytes;
    memkind_free(NULL, pointer);
}

static const struct twill_memory_kind_ops memkind_ops = {
    .name = "memkind",
    .grain = TWILL_CACHE_LINE,
    .alloc = memkind_alloc,
    .free = memkind_release,
};

/* memkind chooses its nodes itself. Ask it for a page, which is not touched, to see whether they
 * are those the limits are watched on. */
static bool agrees(const struct twill_memory_policy *policy)
{
    void *page = NULL;
    if (memkind_check_available(kind_for(policy)) != MEMKIND_SUCCESS ||
        memkind_posix_memalign(kind_for(policy), &page, 4096, 4096) != 0)
        return false;
    uint64_t nodes = twill_memory_bound_to(page);
    memkind_free(kind_for(policy), page);
    return nodes != 0 && (nodes & ~policy->nodes) == 0;
}

const struct twill_memory_kind_ops *
twill_memory_kind_memkind(const struct twill_memory_policy *policy)
{
    if (policy->kind != TWILL_KIND_MCDRAM || policy->nominal || policy->nodes == 0)
        return &memkind_ops; /* DDR: MEMKIND_DEFAULT always works */
    /* memkind asks hwloc; with these it counts another machine's CPUs and writes past its tables.
     */
    if (getenv("HWLOC_XMLFILE") != NULL || getenv("HWLOC_SYNTHETIC") != NULL)
        return NULL;
    /* Of several equally near nodes memkind's PREFERRED takes none at all; mbind takes them. */
    if (policy->mode == TWILL_MODE_PREFERRED && (policy->nodes & (policy->nodes - 1)) != 0)
        return NULL;
    return agrees(policy) ? &memkind_ops : NULL;
}
#else
const struct twill_memory_kind_ops *
twill_memory_kind_memkind(const struct twill_memory_policy *policy)
{
    (void)policy;
    return NULL;
}
#endif
