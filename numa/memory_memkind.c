/* SPDX-License-Identifier: Apache-2.0 */
/* Placement by memkind, if it is built in and finds high-bandwidth memory itself (KNL by CPUID,
 * HMAT, or MEMKIND_HBW_NODES). The library is opened when memory is first to be placed there. It
 * loads eight others, which would delay every program that links twill, and its jemalloc crashes
 * the process if there is no memory then. Only its policies are used, as its heap takes DDR. */
#include "numa/memory_internal.h"

#ifdef TWILL_WITH_MEMKIND
#include <dlfcn.h>
#include <memkind.h>
#include <stdlib.h>

#define MEMKIND_SONAME "libmemkind.so.0"
#define LOADED_BYTES                                                                               \
    (UINT64_C(64) << 20) /* bytes of address space required, as loading it takes 19 MiB */

/* Return the address of a symbol of memkind, or NULL. This is repeated for each call, which avoids
 * global state and takes 1 us, much less than placing memory. */
static void *symbol(const char *name)
{
    void *library = dlopen(MEMKIND_SONAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *found = library != NULL ? dlsym(library, name) : NULL;
    if (library != NULL)
        dlclose(library);
    return found;
}

/* Return memkind's kind for a policy, or NULL if it has none. */
static memkind_t kind_for(const struct twill_memory_policy *policy)
{
    bool many = (policy->nodes & (policy->nodes - 1)) != 0;
    const memkind_t *found = symbol(policy->mode == TWILL_MODE_INTERLEAVE ? "MEMKIND_HBW_INTERLEAVE"
                                    : policy->mode == TWILL_MODE_PREFERRED ? "MEMKIND_HBW_PREFERRED"
                                    : many                                 ? "MEMKIND_HBW_ALL"
                                                                           : "MEMKIND_HBW");
    return found != NULL ? *found : NULL;
}

/* Let memkind apply the policy to a mapping that it did not make, by a function that it exports
 * without a public header. memkind chooses the nodes itself. Returns whether they are exactly the
 * policy's, whose free memory the pool counts. They are not if, say, the thread has moved. */
static bool apply(const struct twill_memory_policy *policy, void *pointer, size_t bytes)
{
    int (*bind_mapping)(memkind_t, void *, size_t) =
        (int (*)(memkind_t, void *, size_t))symbol("memkind_default_mbind");
    memkind_t kind = kind_for(policy);
    return bind_mapping != NULL && kind != NULL &&
           bind_mapping(kind, pointer, bytes) == MEMKIND_SUCCESS &&
           twill_memory_bound_to(pointer) == policy->nodes;
}

/* Apply a policy to a mapping by memkind, or if that fails by mbind(). Returns 0 or an errno. */
static int memkind_place(const struct twill_memory_policy *policy, void *pointer, size_t bytes)
{
    return apply(policy, pointer, bytes) ? 0
                                         : twill_memory_placer_mbind.place(policy, pointer, bytes);
}

static const struct twill_memory_placer memkind_placer = {"memkind", memkind_place};

/* Return whether memkind would use the policy's nodes. Tries it with an untouched page. */
static bool agrees(const struct twill_memory_policy *policy)
{
    void *page = NULL;
    if (twill_memory_map(&page, TWILL_MEMORY_PAGE, TWILL_CACHE_LINE) != 0)
        return false;
    bool same = apply(policy, page, TWILL_MEMORY_PAGE);
    twill_memory_unmap(page, TWILL_MEMORY_PAGE);
    return same;
}

/* Return whether memkind is loaded already, or limits leave the memory to load it. If not, warn. */
static bool may_load(struct twill_log *log)
{
    const char *limit;
    void *library = dlopen(MEMKIND_SONAME, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library != NULL)
        dlclose(library);
    if (library != NULL || twill_memory_allows(LOADED_BYTES, &limit))
        return true;
    twill_say(log, TWILL_LOG_WARN,
              "memory: memkind is not loaded, which wants %llu MiB to be free: %s; mbind() places "
              "memory",
              (unsigned long long)(LOADED_BYTES >> 20), limit);
    return false;
}

const struct twill_memory_placer *
twill_memory_placer_memkind(const struct twill_memory_policy *policy, struct twill_log *log)
{
    /* With these variables of hwloc, memkind counts other CPUs and overruns its tables. */
    if (getenv("HWLOC_XMLFILE") != NULL || getenv("HWLOC_SYNTHETIC") != NULL || !may_load(log))
        return NULL;
    return agrees(policy) ? &memkind_placer : NULL;
}
#else
const struct twill_memory_placer *
twill_memory_placer_memkind(const struct twill_memory_policy *policy, struct twill_log *log)
{
    (void)policy;
    (void)log;
    return NULL;
}
#endif
