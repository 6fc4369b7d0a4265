/* SPDX-License-Identifier: Apache-2.0 */
/* Pools. A BIND never takes more than is free: the kernel would kill the process at first touch,
 * not return NULL. */
#include "numa/memory_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* An allocation that has not been freed. */
struct memory_block {
    struct memory_block *next;
    void *pointer;
    size_t bytes; /* rounded up to the kind's grain */
    bool hbw;
    const struct twill_memory_kind_ops *ops;
};

struct twill_memory {
    struct twill_memory_policy policy;
    uint64_t budget;
    uint64_t free_at_open; /* bytes of the policy's nodes; divided by the ranks that share them */
    bool shared;           /* twill_memory_share() was called */
    uint64_t placed, placed_hbw; /* bytes by twill_memory_place(): all, in MCDRAM */
    struct twill_log *log;
    const struct twill_memory_kind_ops *ops;
    struct memory_block *blocks;
    struct twill_memory_stats stats;
    struct twill_memory *sibling; /* shares the budget */
    bool warned;                  /* a fallback has been logged */
};

/* Return the bytes free on the policy's nodes, less a margin for what the kernel reserves. */
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
    (*memory)->free_at_open = free_bytes(policy);
    bool placed = policy->kind != TWILL_KIND_DDR && !policy->nominal && policy->nodes != 0;
    (*memory)->ops = placed ? NULL : &twill_memory_kind_system;
    if (placed && policy->kind == TWILL_KIND_MCDRAM) /* memkind has no kind for CXL */
        (*memory)->ops = twill_memory_kind_memkind(policy, log);
    if ((*memory)->ops == NULL)
        (*memory)->ops = &twill_memory_kind_mmap;
    twill_say(log, TWILL_LOG_DEBUG, "memory: %s, by %s", policy->why, (*memory)->ops->name);
    return TWILL_OK;
}

void twill_memory_join(struct twill_memory *memory, struct twill_memory *sibling)
{
    memory->sibling = sibling;
    sibling->sibling = memory;
}

void twill_memory_share(struct twill_memory *memory, unsigned ranks)
{
    if (ranks < 2)
        return;
    memory->free_at_open /= ranks;
    memory->shared = true;
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

/* Return why these bytes cannot be in MCDRAM, or NULL. The kernel counts memory that is allocated
 * but not touched as free, hence the second check against free_at_open. */
static const char *refusal(const struct twill_memory *memory, size_t bytes)
{
    const struct twill_memory_policy *policy = &memory->policy;
    uint64_t held = memory->stats.bytes_hbw;
    if (memory->sibling != NULL)
        held += memory->sibling->stats.bytes_hbw;
    if (policy->nominal)
        return "TWILL_LAYOUT=topology describes another machine than this one";
    if (policy->nodes == 0)
        return "the policy names no NUMA node";
    if (memory->budget > 0 && (held > memory->budget || bytes > memory->budget - held))
        return "the budget is used up";
    if (policy->mode != TWILL_MODE_BIND)
        return NULL; /* the kernel spills over to DDR by itself */
    if (bytes > free_bytes(policy))
        return "not enough of it is free";
    if (held > memory->free_at_open || bytes > memory->free_at_open - held)
        return memory->shared ? "this rank's share of the free memory is used up"
                              : "not enough of it was free when this pool was opened";
    return NULL;
}

/* Count a fallback to DDR, and log the first. That the machine has no MCDRAM only rank 0 warns of.
 */
static void fall_back(struct twill_memory *memory, size_t bytes, const char *cause)
{
    bool first = !memory->policy.missed || twill_log_is_first(memory->log);
    bool cxl = strncmp(memory->policy.why, "cxl", 3) == 0;
    memory->stats.fallbacks++;
    if (!memory->warned)
        twill_say(memory->log, twill_log_once(TWILL_LOG_WARN, first),
                  cxl ? "memory: %zu bytes meant for CXL are in DDR: %s (reported once, then "
                        "counted)"
                      : "memory: %zu bytes meant for MCDRAM or HBM are in DDR: %s (reported once, "
                        "then counted)",
                  bytes, cause);
    memory->warned = true;
}

static bool wants_kind(const struct twill_memory *memory)
{
    return memory->policy.kind != TWILL_KIND_DDR;
}

static int try_kind(const struct twill_memory_kind_ops *ops,
                    const struct twill_memory_policy *policy, struct memory_block *record,
                    size_t bytes)
{
    size_t alignment = bytes >= TWILL_HUGE_PAGE ? TWILL_HUGE_PAGE : TWILL_CACHE_LINE;
    record->ops = ops;
    record->bytes = twill_round_up(twill_max(bytes, 1), ops->grain);
    return ops->alloc(policy, &record->pointer, record->bytes, alignment);
}

/* Allocate under the policy if possible, else by the system's default. Returns 0 or an errno. */
static int obtain(struct twill_memory *memory, struct memory_block *record, size_t bytes)
{
    const struct twill_memory_policy *policy = &memory->policy;
    const char *cause = wants_kind(memory) ? refusal(memory, bytes) : NULL;
    if (wants_kind(memory) && cause == NULL) {
        int failed = try_kind(memory->ops, policy, record, bytes);
        if (failed && memory->ops != &twill_memory_kind_mmap)
            failed = try_kind(&twill_memory_kind_mmap, policy, record, bytes);
        record->hbw = failed == 0;
        cause = failed ? strerror(failed) : NULL;
    }
    if (record->hbw)
        return 0;
    int failed = try_kind(memory->ops, NULL, record, bytes);
    cause = memory->policy.missed ? memory->policy.why : cause;
    if (failed == 0 && cause != NULL)
        fall_back(memory, bytes, cause);
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
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "%zu bytes by %s: %s", bytes, memory->ops->name,
                          strerror(failed));
    }
    if (bytes >= TWILL_HUGE_PAGE) /* only advice: a kernel without huge pages refuses */
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
    record->ops->free(record->pointer, record->bytes);
    free(record);
}

twill_status twill_memory_place(struct twill_memory *memory, void *pointer, size_t bytes,
                                struct twill_error *error)
{
    if ((uintptr_t)pointer % 4096 != 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "memory to be placed must be page-aligned");
    if (wants_kind(memory) && bytes > 0) {
        const char *cause = refusal(memory, bytes);
        if (cause == NULL) {
            int failed = memory->ops->place(&memory->policy, pointer, bytes);
            cause = failed ? strerror(failed) : NULL;
        }
        if (cause != NULL) {
            fall_back(memory, bytes, cause);
        } else {
            memory->placed_hbw += bytes;
            memory->stats.bytes_hbw += bytes;
        }
    }
    if (memory->policy.missed)
        fall_back(memory, bytes, memory->policy.why);
    memory->placed += bytes;
    memory->stats.bytes += bytes;
    return TWILL_OK;
}

/* Which bytes these were is not known. Those in DDR go first, so that the budget never grows; when
 * all are given back, the counts are right. */
void twill_memory_unplace(struct twill_memory *memory, size_t bytes)
{
    uint64_t back = bytes < memory->placed ? bytes : memory->placed;
    uint64_t ddr = memory->placed - memory->placed_hbw;
    uint64_t hbw = back > ddr ? back - ddr : 0;
    memory->placed -= back;
    memory->placed_hbw -= hbw;
    memory->stats.bytes -= back;
    memory->stats.bytes_hbw -= hbw;
}

void twill_memory_stats(const struct twill_memory *memory, struct twill_memory_stats *stats)
{
    *stats = memory->stats;
}
