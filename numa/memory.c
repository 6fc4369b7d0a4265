/* SPDX-License-Identifier: Apache-2.0 */
/* Pools. A BIND takes no more than is free, as the kernel would kill the process at first touch. */
#include "numa/cgroup.h"
#include "numa/memory_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* An allocation that has not been freed. Its pool owns it. */
struct memory_block {
    struct memory_block *next;
    void *pointer;
    size_t bytes; /* rounded up to cache lines, or to pages if it is placed */
    bool hbw;     /* placed by the policy, else the system's memory */
};

/* A pool, from twill_memory_open() to twill_memory_close(). Used by one thread at a time. */
struct twill_memory {
    struct twill_memory_policy policy;
    uint64_t budget; /* most bytes that the policy may place, 0 for no limit */
    uint64_t limit;  /* for it and its sibling, what was free at first or this rank's share of it */
    bool shared;     /* twill_memory_limit() has set a limit */
    struct twill_log *log;
    const struct twill_memory_placer *placer;
    struct memory_block *blocks;
    struct twill_memory_stats stats;
    struct twill_memory *sibling; /* shares the budget, may be NULL */
    bool warned;                  /* a fallback has been logged */
};

/* Return the bytes free on the policy's nodes, less a margin on each for what the kernel reserves.
 * Returns 0 if nothing is left or no node is named. */
static uint64_t free_bytes(const struct twill_memory_policy *policy)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < TWILL_MAX_NUMA; i++)
        if (policy->nodes >> i & 1) {
            uint64_t bytes = twill_numa_free_bytes(i);
            uint64_t margin = bytes / 32 + (UINT64_C(4) << 20);
            sum += bytes > margin ? bytes - margin : 0;
        }
    return sum;
}

twill_status twill_memory_open(struct twill_memory **memory,
                               const struct twill_memory_policy *policy, uint64_t budget,
                               struct twill_log *log, struct twill_error *error)
{
    if (memory == NULL || policy == NULL)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "no memory policy to open a pool with");
    *memory = calloc(1, sizeof(**memory));
    if (*memory == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for a pool");
    (*memory)->policy = *policy;
    (*memory)->budget = budget;
    (*memory)->log = log;
    (*memory)->limit = free_bytes(policy);
    bool placed = policy->kind != TWILL_KIND_DDR && policy->nominal == NULL && policy->nodes != 0;
    /* memkind has no kind for CXL. "auto" does not load it, as its jemalloc touches 6 MiB. */
    if (placed && policy->kind == TWILL_KIND_MCDRAM && !policy->automatic)
        (*memory)->placer = twill_memory_placer_memkind(policy, log);
    if ((*memory)->placer == NULL)
        (*memory)->placer = &twill_memory_placer_mbind;
    twill_say(log, TWILL_LOG_DEBUG, "memory: %s%s%s", policy->why, placed ? ", by " : "",
              placed ? (*memory)->placer->name : "");
    return TWILL_OK;
}

void twill_memory_join(struct twill_memory *memory, struct twill_memory *sibling)
{
    memory->sibling = sibling;
    sibling->sibling = memory;
}

void twill_memory_claim(const struct twill_memory *memory, struct twill_memory_claim *claim)
{
    const struct twill_memory_policy *policy = &memory->policy;
    bool bound = policy->mode == TWILL_MODE_BIND;
    claim->nodes = policy->nominal == NULL ? policy->nodes : 0;
    claim->free_bytes = bound ? memory->limit : UINT64_MAX;
}

/* Return whether a rank's memory may be on one of these nodes. */
static bool meets(const struct twill_memory_claims *claims, twill_numa_set nodes)
{
    return ((claims->user.nodes | claims->library.nodes) & nodes) != 0;
}

/* Return the free bytes of a claim divided by the number of ranks, of the n of the host, that may
 * use its NUMA nodes. Returns UINT64_MAX if the pool of the claim does not bind its memory. */
static uint64_t part_of(const struct twill_memory_claim *claim,
                        const struct twill_memory_claims *ranks, unsigned n)
{
    uint64_t sharing = 0;
    for (unsigned r = 0; r < n && claim->free_bytes != UINT64_MAX; r++)
        sharing += meets(&ranks[r], claim->nodes);
    return sharing > 0 ? claim->free_bytes / sharing : UINT64_MAX;
}

/* Together the ranks that may take from a binding rank's nodes get no more than was free there,
 * from whichever of their nodes the kernel takes pages. */
uint64_t twill_memory_share(const struct twill_memory_claims *ranks, unsigned n, unsigned me)
{
    uint64_t share = UINT64_MAX;
    for (unsigned r = 0; r < n; r++) {
        if (meets(&ranks[me], ranks[r].user.nodes))
            share = twill_min(share, part_of(&ranks[r].user, ranks, n));
        if (meets(&ranks[me], ranks[r].library.nodes))
            share = twill_min(share, part_of(&ranks[r].library, ranks, n));
    }
    return share;
}

void twill_memory_limit(struct twill_memory *memory, uint64_t bytes)
{
    memory->shared = bytes != UINT64_MAX;
    memory->limit = twill_min(memory->limit, bytes);
}

void twill_memory_close(struct twill_memory *memory)
{
    if (memory == NULL)
        return;
    if (memory->sibling != NULL)
        memory->sibling->sibling = NULL;
    while (memory->blocks != NULL)
        twill_memory_free(memory, memory->blocks->pointer, memory->blocks->bytes);
    free(memory);
}

/* Return a text that says why these bytes cannot be where the policy wants them, or NULL. The
 * kernel counts memory that is allocated but not touched as free, so the pool's own limit is
 * checked besides. It also limits a pool that only prefers its NUMA nodes if a rank of the host
 * binds memory to them. That rank could not use DDR instead. */
static const char *refusal(const struct twill_memory *memory, size_t bytes)
{
    const struct twill_memory_policy *policy = &memory->policy;
    bool bound = policy->mode == TWILL_MODE_BIND;
    uint64_t held = memory->stats.bytes_hbw;
    if (memory->sibling != NULL)
        held += memory->sibling->stats.bytes_hbw;
    if (policy->nominal != NULL)
        return policy->nominal;
    if (policy->nodes == 0)
        return "the policy names no NUMA node";
    if (memory->budget > 0 && (held > memory->budget || bytes > memory->budget - held))
        return "TWILL_TUNE=memory_budget is used up (it counts in steps of 2 MiB)";
    if (bound && bytes > free_bytes(policy))
        return "not enough of it is free";
    if ((bound || memory->shared) && (held > memory->limit || bytes > memory->limit - held))
        return memory->shared ? "this rank's share of the free memory is used up"
                              : "not enough of it was free when this pool was opened";
    return NULL;
}

/* Return a text for an errno of mbind(). */
static const char *placing_failed(int error)
{
    return error == EPERM    ? "mbind() is not permitted, as in containers (docker run --cap-add "
                               "SYS_NICE permits it)"
           : error == ENOSYS ? "this kernel has no mbind()"
           : error == EINVAL ? "mbind(): the NUMA node does not exist or is not allowed here"
                             : strerror(error);
}

/* Count a fallback to DDR, and log the first. If it has a cause in this rank (`own`), this rank
 * logs. Other causes, as a machine without MCDRAM, only rank 0 logs, once for both pools. */
static void fall_back(struct twill_memory *memory, size_t bytes, const char *cause, bool own)
{
    bool first = own || twill_log_is_first(memory->log);
    bool cxl = strncmp(memory->policy.why, "cxl", 3) == 0;
    memory->stats.fallbacks++;
    if (!memory->warned && (own || memory->sibling == NULL || !memory->sibling->warned))
        twill_say(memory->log, twill_log_once(TWILL_LOG_WARN, first),
                  cxl ? "memory: %zu bytes meant for CXL are in DDR: %s (reported once, then "
                        "counted)"
                      : "memory: %zu bytes meant for MCDRAM or HBM are in DDR: %s (reported once, "
                        "then counted)",
                  bytes, cause);
    memory->warned = true;
}

/* Return whether the policy wants other memory than DDR. */
static bool wants_kind(const struct twill_memory *memory)
{
    return memory->policy.kind != TWILL_KIND_DDR;
}

/* Map memory of record->bytes, which it rounds up to pages, and apply the policy. Sets `pointer`
 * and `hbw` of the record. Returns 0, or an errno with nothing mapped. */
static int map_placed(const struct twill_memory *memory, struct memory_block *record,
                      size_t alignment)
{
    record->bytes = twill_round_up(record->bytes, TWILL_MEMORY_PAGE);
    int failed = twill_memory_map(&record->pointer, record->bytes, alignment);
    if (failed)
        return failed;
    failed = memory->placer->place(&memory->policy, record->pointer, record->bytes);
    if (failed)
        twill_memory_unmap(record->pointer, record->bytes);
    record->hbw = failed == 0;
    return failed;
}

/* Allocate `bytes` into *record under the policy if possible, else from the system, which is
 * counted as a fallback if the policy wants other memory. Returns 0 or an errno. */
static int obtain(struct twill_memory *memory, struct memory_block *record, size_t bytes)
{
    size_t alignment = bytes >= TWILL_HUGE_PAGE ? TWILL_HUGE_PAGE : TWILL_CACHE_LINE;
    const char *cause = wants_kind(memory) ? refusal(memory, bytes) : NULL;
    bool own = !memory->policy.missed && memory->policy.nominal == NULL;
    record->bytes = twill_round_up(twill_max(bytes, 1), TWILL_CACHE_LINE);
    if (wants_kind(memory) && cause == NULL) {
        int failed = map_placed(memory, record, alignment);
        cause = failed ? placing_failed(failed) : NULL;
        own = false;
    }
    if (record->hbw)
        return 0;
    int failed = twill_memory_take(&record->pointer, record->bytes, alignment);
    cause = memory->policy.missed ? memory->policy.why : cause;
    if (failed == 0 && cause != NULL)
        fall_back(memory, bytes, cause, own);
    return failed;
}

twill_status twill_memory_alloc(struct twill_memory *memory, void **pointer, size_t bytes,
                                struct twill_error *error)
{
    *pointer = NULL;
    if (bytes > PTRDIFF_MAX - 2 * (size_t)TWILL_HUGE_PAGE)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "%zu bytes are more than can be addressed",
                          bytes);
    struct memory_block *record = calloc(1, sizeof(*record));
    if (record == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for an allocation's record");
    int failed = obtain(memory, record, bytes);
    if (failed) {
        free(record);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "%zu bytes: %s", bytes, strerror(failed));
    }
    if (bytes >= TWILL_HUGE_PAGE) /* only advice, which a kernel without huge pages refuses */
        (void)madvise(record->pointer, record->bytes & ~((size_t)TWILL_HUGE_PAGE - 1),
                      MADV_HUGEPAGE);
    record->next = memory->blocks;
    memory->blocks = record;
    memory->stats.bytes += record->bytes;
    memory->stats.bytes_hbw += record->hbw ? record->bytes : 0;
    *pointer = record->pointer;
    return TWILL_OK;
}

void twill_memory_free(struct twill_memory *memory, void *pointer, size_t bytes)
{
    (void)bytes;
    struct memory_block **link = &memory->blocks;
    while (*link != NULL && (*link)->pointer != pointer)
        link = &(*link)->next;
    struct memory_block *record = *link;
    if (record == NULL)
        return;
    *link = record->next;
    memory->stats.bytes -= record->bytes;
    memory->stats.bytes_hbw -= record->hbw ? record->bytes : 0;
    if (record->hbw)
        twill_memory_unmap(record->pointer, record->bytes);
    else
        twill_memory_give(record->pointer, record->bytes);
    free(record);
}

twill_status twill_memory_place(struct twill_memory *memory, void *pointer, size_t bytes,
                                bool *placed, struct twill_error *error)
{
    *placed = false;
    if ((uintptr_t)pointer % TWILL_MEMORY_PAGE != 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "memory to be placed must be page-aligned");
    bool own = !memory->policy.missed && memory->policy.nominal == NULL;
    const char *cause = memory->policy.missed ? memory->policy.why : NULL;
    if (wants_kind(memory) && bytes > 0) {
        cause = refusal(memory, bytes);
        int failed = cause == NULL ? memory->placer->place(&memory->policy, pointer, bytes) : 0;
        own = own && failed == 0;
        cause = failed ? placing_failed(failed) : cause;
        *placed = cause == NULL;
    }
    if (cause != NULL)
        fall_back(memory, bytes, cause, own);
    memory->stats.bytes += bytes;
    memory->stats.bytes_hbw += *placed ? bytes : 0;
    return TWILL_OK;
}

void twill_memory_unplace(struct twill_memory *memory, size_t bytes, bool placed)
{
    memory->stats.bytes -= bytes;
    memory->stats.bytes_hbw -= placed ? bytes : 0;
}

void twill_memory_stats(const struct twill_memory *memory, struct twill_memory_stats *stats)
{
    *stats = memory->stats;
}

/* Return the bytes that a limit of getrlimit() leaves to a process that uses `pages` pages. That is
 * 0 if it uses more than the limit, or UINT64_MAX if there is no limit. */
static uint64_t left_of(int resource, unsigned long pages)
{
    struct rlimit limit;
    uint64_t used = (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

/* Return the bytes that the cgroup of this process (version 2) leaves, UINT64_MAX without limit. */
static uint64_t left_of_cgroup(void)
{
    struct twill_cgroup cgroup;
    uint64_t limit[2], used[2];
    if (!twill_cgroup_find(&cgroup, "memory", "") || !cgroup.unified ||
        twill_cgroup_numbers(&cgroup, "memory.max", limit) < 1 ||
        twill_cgroup_numbers(&cgroup, "memory.current", used) < 1)
        return UINT64_MAX;
    return limit[0] > used[0] ? limit[0] - used[0] : 0;
}

bool twill_memory_pages(unsigned long *all, unsigned long *resident, unsigned long *data)
{
    FILE *file = fopen("/proc/self/statm", "re");
    bool known = file != NULL && fscanf(file, "%lu %lu %*u %*u %*u %lu", all, resident, data) == 3;
    if (file != NULL)
        fclose(file);
    return known;
}

bool twill_memory_allows(uint64_t bytes, const char **limit)
{
    unsigned long all = 0, resident, data = 0;
    bool known = twill_memory_pages(&all, &resident, &data);
    *limit = !known                               ? "its use of memory is unknown"
             : left_of(RLIMIT_AS, all) < bytes    ? "RLIMIT_AS leaves less"
             : left_of(RLIMIT_DATA, data) < bytes ? "RLIMIT_DATA leaves less"
             : left_of_cgroup() < bytes           ? "the cgroup's memory.max leaves less"
                                                  : NULL;
    return *limit == NULL;
}
