/* SPDX-License-Identifier: Apache-2.0 */
/* Placement by memkind, if it is built in and finds high-bandwidth memory itself (KNL by CPUID,
 * HMAT, or MEMKIND_HBW_NODES). The library is opened when memory is first to be placed there: it
 * loads eight others, which would delay every program that links twill, and its jemalloc ends the
 * process (SIGSEGV, SIGABRT) if there is no memory while it is loaded. */
#include "numa/memory_internal.h"

#ifdef TWILL_WITH_MEMKIND
#include <dlfcn.h>
#include <memkind.h>
#include <stdlib.h>

#define MEMKIND_SONAME "libmemkind.so.0"
#define LOADED_BYTES   (UINT64_C(64) << 20) /* address space left: loading it takes 19 MiB */

/* Look up a symbol of memkind, or NULL. Repeated for each call, so that there is no global state:
 * it takes 1 us, an allocation many. */
static void *symbol(const char *name)
{
    void *library = dlopen(MEMKIND_SONAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *found = library != NULL ? dlsym(library, name) : NULL;
    if (library != NULL)
        dlclose(library);
    return found;
}

static memkind_t symbol_kind(const char *name)
{
    const memkind_t *found = symbol(name);
    return found != NULL ? *found : NULL;
}

static memkind_t kind_for(const struct twill_memory_policy *policy)
{
    bool many = (policy->nodes & (policy->nodes - 1)) != 0;
    if (policy->mode == TWILL_MODE_INTERLEAVE)
        return symbol_kind("MEMKIND_HBW_INTERLEAVE");
    if (policy->mode == TWILL_MODE_PREFERRED)
        return symbol_kind("MEMKIND_HBW_PREFERRED");
    return symbol_kind(many ? "MEMKIND_HBW_ALL" : "MEMKIND_HBW");
}

/* memkind_malloc() may align to less than a cache line, so always use memkind_posix_memalign(). */
static int memkind_alloc(const struct twill_memory_policy *policy, void **pointer, size_t bytes,
                         size_t alignment)
{
    __typeof__(memkind_posix_memalign) *align = symbol("memkind_posix_memalign");
    return align(policy != NULL ? kind_for(policy) : symbol_kind("MEMKIND_DEFAULT"), pointer,
                 alignment, bytes);
}

/* With NULL, memkind finds the kind itself, which is slower and never wrong. */
static void memkind_release(void *pointer, size_t bytes)
{
    (void)bytes;
    __typeof__(memkind_free) *release = symbol("memkind_free");
    release(NULL, pointer);
}

/* Have memkind bind a mapping that it did not make: what ranks share is a memfd, which a kind
 * cannot allocate (a fixed kind hands out such a mapping, but places nothing). memkind exports the
 * function by which its kinds bind theirs, without a public header. Where it is missing, or has
 * chosen other nodes than twill, as the thread has moved, mbind() does it. */
static int memkind_place(const struct twill_memory_policy *policy, void *pointer, size_t bytes)
{
    int (*bind_mapping)(memkind_t, void *, size_t) =
        (int (*)(memkind_t, void *, size_t))symbol("memkind_default_mbind");
    if (bind_mapping != NULL && bind_mapping(kind_for(policy), pointer, bytes) == MEMKIND_SUCCESS) {
        uint64_t nodes = twill_memory_bound_to(pointer);
        if (nodes != 0 && (nodes & ~policy->nodes) == 0)
            return 0;
    }
    return twill_memory_mbind(policy, pointer, bytes);
}

static const struct twill_memory_kind_ops memkind_ops = {
    .name = "memkind",
    .grain = TWILL_CACHE_LINE,
    .alloc = memkind_alloc,
    .free = memkind_release,
    .place = memkind_place,
};

/* Return whether memkind uses the policy's nodes, whose free memory the pool checks: memkind
 * chooses its nodes itself. Allocates a page to see, and does not touch it. */
static bool agrees(const struct twill_memory_policy *policy)
{
    __typeof__(memkind_check_available) *is_available = symbol("memkind_check_available");
    void *page = NULL;
    if (is_available(kind_for(policy)) != MEMKIND_SUCCESS ||
        memkind_alloc(policy, &page, 4096, 4096) != 0)
        return false;
    uint64_t nodes = twill_memory_bound_to(page);
    memkind_release(page, 4096);
    return nodes != 0 && (nodes & ~policy->nodes) == 0;
}

/* Return whether the library and all symbols used of it exist. */
static bool library_is_there(void)
{
    static const char *const names[] = {
        "memkind_posix_memalign", "memkind_free",          "memkind_check_available",
        "MEMKIND_DEFAULT",        "MEMKIND_HBW",           "MEMKIND_HBW_ALL",
        "MEMKIND_HBW_PREFERRED",  "MEMKIND_HBW_INTERLEAVE"};
    size_t found = 0;
    while (found < TWILL_ARRAY_LENGTH(names) && symbol(names[found]) != NULL)
        found++;
    return found == TWILL_ARRAY_LENGTH(names);
}

/* Report whether the library is loaded, or may be. */
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

const struct twill_memory_kind_ops *
twill_memory_kind_memkind(const struct twill_memory_policy *policy, struct twill_log *log)
{
    if (!may_load(log) || !library_is_there())
        return NULL;
    /* memkind uses hwloc: with these variables it counts another machine's CPUs and writes past the
     * end of its tables. */
    if (getenv("HWLOC_XMLFILE") != NULL || getenv("HWLOC_SYNTHETIC") != NULL)
        return NULL;
    /* memkind's PREFERRED uses none of several equally near nodes; mbind() does. */
    if (policy->mode == TWILL_MODE_PREFERRED && (policy->nodes & (policy->nodes - 1)) != 0)
        return NULL;
    return agrees(policy) ? &memkind_ops : NULL;
}
#else
const struct twill_memory_kind_ops *
twill_memory_kind_memkind(const struct twill_memory_policy *policy, struct twill_log *log)
{
    (void)policy;
    (void)log;
    return NULL;
}
#endif
