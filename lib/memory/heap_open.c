/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a context's heap: decides its size and shares its region with the ranks of the node. */
#include "fabric/host/host_identity.h"
#include "fabric/shm/mapping.h"
#include "lib/comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Bytes of address space left to this process (ulimit -v); SIZE_MAX: unlimited. */
static size_t address_space_left(void)
{
    struct rlimit limit;
    unsigned long pages = 0;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL) {
        if (fscanf(file, "%lu", &pages) != 1)
            pages = 0;
        fclose(file);
    }
    size_t taken = pages * (size_t)sysconf(_SC_PAGESIZE);
    return limit.rlim_cur > taken ? limit.rlim_cur - taken : 0;
}

/* Default bytes of all heaps of a node: three quarters of its memory, and at most half of the
 * address space left to this process, which maps the heaps of all ranks. */
static size_t default_budget(void)
{
    size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    return twill_min(memory / 4 * 3, address_space_left() / 2);
}

void twill_heap_describe(const struct twill_context *context, struct twill_heap_info *info)
{
    struct twill_host host;
    twill_host_describe(&host);
    info->budget = default_budget();
    info->pid_namespace = host.pid_namespace;
    info->pid = (uint64_t)host.pid;
    info->preloaded = context->memory.preloaded.outcome;
}

/* Most heaps that a process of this node maps: those of its own ranks (one if malloc() is served
 * from it), and for each of its ranks those of all ranks of other processes. */
static uint32_t heaps_mapped(const struct twill_context *context,
                             const struct twill_heap_info *info, uint32_t ranks)
{
    uint32_t size = (uint32_t)context->job.oob->size,
             label = context->job.label[context->job.oob->rank];
    uint32_t most = 1;
    for (uint32_t r = 0; r < size; r++) {
        if (context->job.label[r] != label)
            continue;
        uint32_t threads = 0;
        for (uint32_t other = 0; other < size; other++)
            threads += context->job.label[other] == label && info[other].pid == info[r].pid &&
                       info[other].pid_namespace == info[r].pid_namespace;
        uint32_t own = info[r].preloaded == TWILL_PRELOADED_READY ? 1 : threads;
        most = twill_max(most, own + threads * (ranks - threads));
    }
    return most;
}

/* Default heap size on this node, the same on all its ranks; *ranks: how many there are. */
static size_t default_bytes(const struct twill_context *context, const struct twill_heap_info *info,
                            uint32_t *ranks)
{
    uint32_t size = (uint32_t)context->job.oob->size,
             label = context->job.label[context->job.oob->rank];
    uint64_t budget = UINT64_MAX;
    *ranks = 0;
    for (uint32_t r = 0; r < size; r++)
        if (context->job.label[r] == label) {
            budget = twill_min(budget, info[r].budget);
            (*ranks)++;
        }
    uint64_t bytes = budget / heaps_mapped(context, info, *ranks);
    return (size_t)twill_max(bytes & ~((uint64_t)TWILL_HUGE_PAGE - 1), TWILL_HUGE_PAGE);
}

/* If any rank requested TWILL_HEAP, the first rank where it has no effect warns. */
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
        twill_preloaded_warn(&context->memory.preloaded, &context->log,
                             first == (uint32_t)context->job.oob->rank ? (int)ineffective : 0,
                             context->memory.user_policy.kind != TWILL_KIND_DDR);
}

twill_status twill_heap_make_world(struct twill_context *context)
{
    TWILL_TRY(&context->error,
              twill_world_create(&context->job.world, (uint32_t)context->job.oob->size,
                                 context->job.label, &context->error));
    context->job.world.by_messages = /* which alone have checksums */
        strcmp(context->config.text[TWILL_VARIABLE_CHECKSUM], "all") == 0;
    return TWILL_OK;
}

twill_status twill_heap_offer(struct twill_context *context, struct twill_heap_opening *opening,
                              struct twill_agreement *agreement)
{
    *opening = (struct twill_heap_opening){
        .outcome = calloc((size_t)context->job.oob->size, sizeof(*opening->outcome))};
    if (context->job.oob->size > 1)
        TWILL_TRY(&context->error, twill_shm_region_offer(&opening->region, context->job.oob,
                                                          agreement, &context->error));
    if (opening->outcome == NULL)
        return TWILL_FAIL(&context->error, TWILL_ERR_MEMORY, "out of memory");
    return TWILL_OK;
}

twill_status twill_heap_attach(struct twill_context *context, struct twill_heap_opening *opening,
                               const struct twill_heap_info *info,
                               struct twill_agreement *agreement)
{
    struct twill_preloaded *preloaded = &context->memory.preloaded;
    uint32_t ranks;
    size_t limit = (size_t)context->config.number[TWILL_VARIABLE_HEAP_LIMIT];
    opening->default_bytes = default_bytes(context, info, &ranks);
    opening->bytes = limit > 0 ? twill_round_up(limit, TWILL_HUGE_PAGE) : opening->default_bytes;
    if (ranks > 1)
        twill_preloaded_make(preloaded, opening->bytes);
    twill_agreement_add(agreement, &preloaded->outcome, opening->outcome,
                        sizeof(*opening->outcome));
    if (opening->region == NULL)
        return TWILL_OK;
    return twill_shm_region_attach(
        opening->region, context->job.label, opening->bytes, TWILL_MAPPING_HEAP,
        preloaded->token != NULL ? &preloaded->given : NULL, NULL, agreement, &context->error);
}

void twill_heap_opening_end(struct twill_heap_opening *opening)
{
    twill_shm_region_close(opening->region);
    free(opening->outcome);
}

twill_status twill_heap_conclude(struct twill_context *context, struct twill_heap_opening *opening)
{
    const char *why = NULL;
    struct twill_preloaded *preloaded = &context->memory.preloaded;
    size_t limit = (size_t)context->config.number[TWILL_VARIABLE_HEAP_LIMIT];
    log_preloaded(context, opening->outcome);
    if (opening->region != NULL)
        TWILL_TRY(&context->error, twill_shm_region_conclude(opening->region, context->job.label,
                                                             &why, &context->error));
    if (why != NULL)
        twill_say(&context->log, TWILL_LOG_WARN,
                  "ranks of this node communicate through the network: %s", why);
    twill_heap_init(&context->memory.heap, opening->region, (uint32_t)context->job.oob->rank,
                    context->memory.user, preloaded->token != NULL ? preloaded->library : NULL,
                    limit);
    opening->region = NULL; /* the context closes it */
    if (why != NULL) {
        twill_world_destroy(&context->job.world);
        TWILL_TRY(&context->error, twill_heap_make_world(context));
    }
    uint32_t node = context->job.world.node[context->job.oob->rank];
    if (context->job.world.node_size[node] == 1) { /* alone on the node: private memory only */
        twill_shm_region_close(context->memory.heap.region);
        twill_heap_init(&context->memory.heap, NULL, 0, context->memory.user, NULL, limit);
    }
    twill_preloaded_begin(preloaded, twill_min(opening->bytes, opening->default_bytes) / 8,
                          context->job.world.node_size[node]);
    return TWILL_OK;
}

static bool is_in_open_comm(const struct twill_context *context, uint32_t job)
{
    for (size_t i = 0; i < context->comms.opened; i++)
        if (twill_comm_rank_of(context->comms.open[i], job) != UINT32_MAX)
            return true;
    return false;
}

void twill_heap_release_dead(struct twill_context *context)
{
    struct twill_shm_region *region = context->memory.heap.region;
    const struct twill_world *world = &context->job.world;
    twill_context_lock(context);
    bool ends = context->comms.opened == 0 && context->newer == NULL;
    for (uint32_t r = 0; region != NULL && !ends && r < world->size; r++)
        if (twill_shm_region_at(region, r) != NULL && !is_in_open_comm(context, r) &&
            twill_shm_region_release(region, r))
            twill_say(&context->log, TWILL_LOG_INFO, "memory of rank %u, which has ended, unmapped",
                      r);
    twill_context_unlock(context);
}

void twill_heap_note(struct twill_context *context)
{
    const struct twill_heap *heap = &context->memory.heap;
    if (heap->region == NULL)
        return;
    twill_context_note(context, "memory shared on the node: up to %zu MiB of each rank%s",
                       heap->bytes >> 20,
                       heap->limit > 0 ? ", as TWILL_TUNE=heap_limit says"
                                       : ", beyond that it is private (TWILL_TUNE=heap_limit)");
}
