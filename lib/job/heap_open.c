/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a context's heap. Decides its size and shares its region with the ranks of the node. */
#include "fabric/host/host_identity.h"
#include "fabric/shm/mapping.h"
#include "fabric/shm/node_memory.h"
#include "fabric/transports.h"
#include "lib/job/config.h"
#include "lib/job/job_internal.h"
#include "numa/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Return the bytes of address space left (ulimit -v), or UINT64_MAX if unlimited. */
static uint64_t address_space_left(void)
{
    struct rlimit limit;
    unsigned long pages = 0, resident, data;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    if (!twill_memory_pages(&pages, &resident, &data))
        pages = 0;
    uint64_t taken = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    return limit.rlim_cur > taken ? limit.rlim_cur - taken : 0;
}

void twill_heap_describe(const struct twill_context *context, struct twill_heap_info *info)
{
    struct twill_host host;
    twill_host_describe(&host);
    info->memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    info->space = address_space_left();
    info->pid_namespace = host.pid_namespace;
    info->pid = (uint64_t)host.pid;
    info->preloaded = context->memory->preloaded.outcome;
    info->spare = twill_mapping_spare();
}

/* How much memory of its node the process of one rank maps, a value. It maps the heaps of its own
 * ranks, or one heap if malloc() uses it. For each of its ranks, it also maps the heaps of all
 * ranks of other processes. */
struct mapped {
    uint32_t heaps;      /* number of heaps, where one that is mapped twice counts twice */
    uint32_t regions;    /* of the node memory of the first communicator, counted in the same way */
    uint64_t node_bytes; /* bytes of that */
};

/* Return what the process of `rank` maps, on a node of `ranks` ranks. */
static struct mapped count_mapped(const struct twill_context *context,
                                  const struct twill_heap_info *info, uint32_t rank, uint32_t ranks)
{
    const uint32_t *label = context->job.label;
    uint32_t threads = 0;
    for (uint32_t other = 0; other < (uint32_t)context->job.oob->size; other++)
        threads += label[other] == label[rank] && info[other].pid == info[rank].pid &&
                   info[other].pid_namespace == info[rank].pid_namespace;
    uint32_t own = info[rank].preloaded == TWILL_PRELOADED_READY ? 1 : threads;
    size_t shared = twill_context_shared_bytes(context);
    return (struct mapped){
        .heaps = own + threads * (ranks - threads),
        .regions = threads + threads * (ranks - threads),
        .node_bytes = twill_node_mapped_bytes(shared, twill_shm_pair_bytes(), ranks, threads)};
}

/* Most address space of one rank for the node memory of further communicators. */
#define ROOM_MOST ((size_t)512 << 30)

/* Set *ranks to the number of ranks on this node and *bytes to the default heap size of each. All
 * their heaps fit in 3/4 of the host's memory, and in half of the address space left to each
 * process. Also set job.room, the same on all ranks of the node. Fails on all ranks of the node if
 * a process cannot map the node memory. */
static twill_status default_bytes(struct twill_context *context, const struct twill_heap_info *info,
                                  uint32_t *ranks, size_t *bytes)
{
    uint32_t size = (uint32_t)context->job.oob->size;
    const uint32_t *label = context->job.label, own = label[context->job.oob->rank];
    uint64_t least = UINT64_MAX, room = ROOM_MOST;
    *ranks = 0;
    for (uint32_t r = 0; r < size; r++)
        *ranks += label[r] == own;
    for (uint32_t r = 0; r<size && * ranks> 1; r++) {
        if (label[r] != own)
            continue;
        struct mapped mapped = count_mapped(context, info, r, *ranks);
        uint64_t needed = mapped.node_bytes + mapped.heaps * (uint64_t)TWILL_HUGE_PAGE;
        if (info[r].space < needed)
            return TWILL_FAIL(&context->error, TWILL_ERR_MEMORY,
                              "rank %u: the memory that the %u ranks of its node share takes %llu "
                              "MiB of address space, of which it has %llu left (ulimit -v)",
                              r, *ranks, (unsigned long long)needed >> 20,
                              (unsigned long long)info[r].space >> 20);
        uint64_t budget = info[r].memory / 4 * 3, left = (info[r].space - mapped.node_bytes) / 2;
        least = twill_min(least, twill_min(budget, left) / mapped.heaps);
        room = twill_min(room, info[r].spare / mapped.regions);
    }
    if (*ranks == 1) {
        room = twill_min(room, info[context->job.oob->rank].spare);
        least = twill_min(info[context->job.oob->rank].memory / 4 * 3,
                          info[context->job.oob->rank].space / 2);
    }
    *bytes = (size_t)twill_max(least & ~((uint64_t)TWILL_HUGE_PAGE - 1), TWILL_HUGE_PAGE);
    context->job.room = (size_t)room & ~((size_t)TWILL_HUGE_PAGE - 1);
    return TWILL_OK;
}

/* Warn on the first rank where TWILL_HEAP has no effect. If TWILL_MEMORY asks for other memory than
 * DDR, also warn on each rank with such a heap that it does not place that. Does nothing if no rank
 * requested TWILL_HEAP. outcome[size] is that of each rank. */
static void log_preloaded(struct twill_context *context, const uint32_t *outcome)
{
    uint32_t size = (uint32_t)context->job.oob->size, first = size, ineffective = 0;
    bool asked = false;
    for (uint32_t r = 0; r < size; r++) {
        asked = asked || outcome[r] != TWILL_PRELOADED_OFF;
        if (outcome[r] > TWILL_PRELOADED_READY && ineffective++ == 0)
            first = r;
    }
    if (asked)
        twill_preloaded_warn(&context->memory->preloaded, &context->log,
                             first == (uint32_t)context->job.oob->rank ? (int)ineffective : 0,
                             context->memory->user_policy.kind != TWILL_KIND_DDR);
}

twill_status twill_heap_make_world(struct twill_context *context)
{
    TWILL_TRY(&context->error,
              twill_world_create(&context->job.world, (uint32_t)context->job.oob->size,
                                 context->job.label, &context->error));
    context->job.world.by_messages = /* only messages have checksums */
        strcmp(context->config->text[TWILL_VARIABLE_CHECKSUM], "all") == 0;
    return TWILL_OK;
}

twill_status twill_heap_offer(struct twill_context *context, struct twill_heap_opening *opening,
                              struct twill_oob_batch *batch)
{
    *opening = (struct twill_heap_opening){
        .outcome = calloc((size_t)context->job.oob->size, sizeof(*opening->outcome))};
    if (context->job.oob->size > 1)
        TWILL_TRY(&context->error, twill_shm_region_offer(&opening->region, context->job.oob, batch,
                                                          &context->error));
    if (opening->outcome == NULL)
        return TWILL_FAIL(&context->error, TWILL_ERR_MEMORY, "out of memory");
    return TWILL_OK;
}

twill_status twill_heap_attach(struct twill_context *context, struct twill_heap_opening *opening,
                               const struct twill_heap_info *info, struct twill_oob_batch *batch)
{
    struct twill_preloaded *preloaded = &context->memory->preloaded;
    uint32_t ranks;
    size_t limit = (size_t)context->config->number[TWILL_VARIABLE_HEAP_LIMIT];
    TWILL_TRY(&context->error, default_bytes(context, info, &ranks, &opening->default_bytes));
    opening->bytes = limit > 0 ? twill_round_up(limit, TWILL_HUGE_PAGE) : opening->default_bytes;
    if (ranks > 1)
        twill_preloaded_make(preloaded, opening->bytes);
    twill_oob_batch_add(batch, &preloaded->outcome, opening->outcome, sizeof(*opening->outcome));
    if (opening->region == NULL)
        return TWILL_OK;
    return twill_shm_region_attach(
        opening->region, context->job.label, opening->bytes, 0, TWILL_MAPPING_HEAP,
        preloaded->token != NULL ? &preloaded->given : NULL, NULL, batch, &context->error);
}

void twill_heap_opening_end(struct twill_heap_opening *opening)
{
    twill_shm_region_close(opening->region);
    free(opening->outcome);
}

twill_status twill_heap_conclude(struct twill_context *context, struct twill_heap_opening *opening)
{
    const char *why = NULL;
    struct twill_preloaded *preloaded = &context->memory->preloaded;
    size_t limit = (size_t)context->config->number[TWILL_VARIABLE_HEAP_LIMIT];
    log_preloaded(context, opening->outcome);
    if (opening->region != NULL)
        TWILL_TRY(&context->error, twill_shm_region_conclude(opening->region, context->job.label,
                                                             &why, &context->error));
    if (why != NULL)
        twill_say(&context->log, TWILL_LOG_WARN,
                  "ranks of this node communicate through the network: %s", why);
    twill_heap_init(&context->memory->heap, opening->region, (uint32_t)context->job.oob->rank,
                    context->memory->user, preloaded->token != NULL ? preloaded->library : NULL,
                    limit);
    opening->region = NULL; /* now owned by the context */
    if (why != NULL) {
        twill_world_destroy(&context->job.world);
        TWILL_TRY(&context->error, twill_heap_make_world(context));
    }
    uint32_t node = context->job.world.node[context->job.oob->rank];
    if (context->job.world.node_size[node] == 1) { /* alone on the node, so all memory is private */
        twill_shm_region_close(context->memory->heap.region);
        twill_heap_init(&context->memory->heap, NULL, 0, context->memory->user, NULL, limit);
    }
    twill_preloaded_begin(preloaded, twill_min(opening->bytes, opening->default_bytes) / 8,
                          context->job.world.node_size[node]);
    return TWILL_OK;
}

void twill_heap_note(struct twill_context *context)
{
    const struct twill_heap *heap = &context->memory->heap;
    if (heap->region == NULL)
        return;
    twill_context_note(context, "memory shared on the node: up to %zu MiB of each rank%s",
                       heap->bytes >> 20,
                       heap->limit > 0 ? ", as TWILL_TUNE=heap_limit says"
                                       : ", beyond that it is private (TWILL_TUNE=heap_limit)");
}
