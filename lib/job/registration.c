/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation and registration of memory. A context lists regions of twill_alloc(), twill_register()
 * and the library, so that a network that needs registered memory registers each one once. */
#ifdef TWILL_WITH_CUDA
#include "kernels/cuda/cuda_device.h"
#endif
#include "lib/job/config.h"
#include "lib/job/job_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

/* Most bytes of a copy of SHARED that is longer so that all threads of a rank help. */
#define THREADED_MOST ((size_t)16 << 20)

#ifdef TWILL_WITH_CUDA
twill_status twill_context_open_device(struct twill_context *context)
{
    const char *library = twill_config_text(context->config, TWILL_VARIABLE_CUDA_LIBRARY);
    char how[200];
    TWILL_TRY(&context->error, twill_device_open(&context->machine.device, library, how,
                                                 sizeof(how), &context->error));
    const char *found = context->machine.device != NULL ? "staged through the host" : "unavailable";
    twill_context_note(context, "device memory: %s: %s", found, how);
    /* A user who names a library expects it to be used, so failure is a warning. */
    bool unavailable = context->machine.device == NULL && library != NULL;
    if (unavailable)
        twill_say(&context->log, TWILL_LOG_WARN, "device memory: %s: %s", found, how);
    return TWILL_OK;
}

void twill_context_close_device(struct twill_context *context)
{
    twill_device_close(context->machine.device);
    context->machine.device = NULL;
}

void twill_context_unpin(struct twill_context *context, void *memory)
{
    unsigned char *pages = (unsigned char *)twill_round_up((uintptr_t)memory, TWILL_DEVICE_PAGE);
    if (context->machine.device != NULL)
        twill_device_unpin(context->machine.device, pages);
}

twill_status twill_context_check_host(struct twill_context *context, const char *call,
                                      const void *memory, struct twill_error *error)
{
    struct twill_device_memory found = {.is_device = false};
    if (context->machine.device != NULL)
        TWILL_TRY(error, twill_device_find(context->machine.device, memory, &found, error));
    if (found.is_device)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "%s: %p is memory of a device, which is staged through the host: it "
                          "cannot be registered with a network",
                          call, memory);
    return TWILL_OK;
}

#else

twill_status twill_context_open_device(struct twill_context *context)
{
    const char *library = twill_config_text(context->config, TWILL_VARIABLE_CUDA_LIBRARY);
    if (library != NULL)
        return TWILL_FAIL(
            &context->error, TWILL_ERR_CONFIG,
            "TWILL_TUNE=cuda_library=%s: this library was built without TWILL_WITH_CUDA", library);
    return TWILL_OK;
}

void twill_context_close_device(struct twill_context *context)
{
    (void)context;
}

#endif

/* Memory that stays mapped until it is removed from the list, under the context's lock. An entry is
 * allocated by persistent_add() and freed when it is removed. */
struct twill_persistent_region {
    struct twill_persistent_region *next;
    void *start;
    size_t bytes;
    bool registered; /* by twill_register() */
    bool pinned;     /* for a device: twill_context_set_pinned() */
};

/* Set *region and *region_bytes to the listed region that contains [start, start + bytes), or
 * return false if none does. `user` is the context. Transports call this through
 * twill_persistent. */
static bool find(void *user, const void *start, size_t bytes, void **region, size_t *region_bytes)
{
    struct twill_context *context = user;
    uintptr_t from = (uintptr_t)start;
    twill_context_lock(context);
    const struct twill_persistent_region *p = context->memory->regions;
    while (p != NULL && (from < (uintptr_t)p->start || bytes > p->bytes ||
                         from - (uintptr_t)p->start > p->bytes - bytes))
        p = p->next;
    if (p != NULL) {
        *region = p->start;
        *region_bytes = p->bytes;
    }
    twill_context_unlock(context);
    return p != NULL;
}

/* Add a region to the list. Fails only if out of memory. The caller holds the context's lock. */
static twill_status persistent_add(struct twill_context *context, void *start, size_t bytes,
                                   bool registered, struct twill_error *error)
{
    struct twill_persistent_region *region = malloc(sizeof(*region));
    if (region == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
    *region = (struct twill_persistent_region){
        .next = context->memory->regions, .start = start, .bytes = bytes, .registered = registered};
    context->memory->regions = region;
    return TWILL_OK;
}

/* Remove the region at `start` from memory->regions and from all transports, before its memory is
 * freed. It must be from twill_register() if `registered`, and otherwise not. Returns false if
 * there is none. Takes the context's lock itself, because transports' locks come before it. */
static bool persistent_remove(struct twill_context *context, const void *start, bool registered)
{
    twill_context_lock(context);
    struct twill_persistent_region **at = &context->memory->regions;
    while (*at != NULL && ((*at)->start != start || (*at)->registered != registered))
        at = &(*at)->next;
    struct twill_persistent_region *region = *at;
    if (region != NULL)
        *at = region->next;
    twill_context_unlock(context);
    if (region == NULL)
        return false;
    if (region->pinned)
        twill_context_unpin(context, region->start);
    twill_context_forget_memory(context, region->start, region->bytes);
    free(region);
    return true;
}

void twill_context_forget_memory(struct twill_context *context, const void *start, size_t bytes)
{
    struct twill_context_transports *transports = &context->transports;
    pthread_mutex_lock(&transports->alone_lock);
    for (size_t t = 0; t < TWILL_TRANSPORTS_MOST; t++) {
        twill_common_forget(&transports->common[t], start, bytes);
        for (struct twill_alone *a = transports->alone; a != NULL; a = a->next)
            twill_common_forget(&a->common[t], start, bytes);
    }
    pthread_mutex_unlock(&transports->alone_lock);
}

twill_status twill_context_fence(struct twill_context *context, struct twill_error *error)
{
    struct twill_heap *heap = &context->memory->heap;
    twill_status status = twill_promoted_fence(context, error);
    twill_context_lock(context);
    for (struct twill_persistent_region *p = context->memory->regions; p != NULL; p = p->next) {
        if (p->pinned) /* a device would copy to or from the old pages */
            twill_context_unpin(context, p->start);
        p->pinned = false;
    }
    if (status == TWILL_OK)
        status = twill_heap_fence(heap, error);
    twill_context_unlock(context);
    if (heap->fenced)
        twill_context_forget_memory(context, heap->base, heap->bytes);
    twill_promoted_forget(context); /* networks would use the old pages */
    return status;
}

void twill_persistent_init(struct twill_context *context)
{
    context->memory->persistent = (struct twill_persistent){
        .find = find, .user = context, .pinned = &context->memory->pinned};
}

void twill_persistent_clear(struct twill_context *context)
{
    while (context->memory->regions != NULL) {
        struct twill_persistent_region *region = context->memory->regions;
        context->memory->regions = region->next;
        free(region);
    }
}

twill_status twill_persistent_inherit(struct twill_context *context,
                                      const struct twill_context *from, struct twill_error *error)
{
    for (const struct twill_persistent_region *p = from->memory->regions; p != NULL; p = p->next)
        if (p->registered)
            TWILL_TRY(error, persistent_add(context, p->start, p->bytes, true, error));
    return TWILL_OK;
}

bool twill_persistent_is_used(const struct twill_context *context)
{
    const struct twill_persistent_region *p = context->memory->regions;
    while (p != NULL && p->registered)
        p = p->next;
    return p != NULL;
}

twill_status twill_context_take(struct twill_context *context, void **memory, size_t bytes,
                                struct twill_error *error)
{
    twill_context_lock(context);
    twill_status status = twill_memory_alloc(context->memory->library, memory, bytes, error);
    if (status == TWILL_OK) {
        status = persistent_add(context, *memory, bytes, false, error);
        if (status != TWILL_OK)
            twill_memory_free(context->memory->library, *memory, bytes);
    }
    twill_context_unlock(context);
    return status;
}

void twill_context_give(struct twill_context *context, void *memory, size_t bytes)
{
    if (memory == NULL)
        return;
    (void)persistent_remove(context, memory, false);
    twill_context_lock(context);
    twill_memory_free(context->memory->library, memory, bytes);
    twill_context_unlock(context);
}

twill_status twill_context_take_shared(struct twill_context *context, void **memory, size_t bytes,
                                       struct twill_error *error)
{
    struct twill_error full = {0};
    twill_context_lock(context);
    twill_status status = twill_heap_alloc(&context->memory->heap, memory, bytes, &full);
    if (status == TWILL_OK) {
        status = persistent_add(context, *memory, bytes, false, error);
        if (status != TWILL_OK)
            (void)twill_heap_free(&context->memory->heap, *memory, NULL);
    }
    twill_context_unlock(context);
    return full.status == TWILL_OK ? status : twill_context_take(context, memory, bytes, error);
}

void twill_context_give_shared(struct twill_context *context, void *memory, size_t bytes)
{
    struct twill_error none = {0};
    if (memory == NULL)
        return;
    (void)persistent_remove(context, memory, false);
    twill_context_lock(context);
    if (twill_heap_free(&context->memory->heap, memory, &none) != TWILL_OK)
        twill_memory_free(context->memory->library, memory, bytes);
    twill_context_unlock(context);
}

void twill_context_set_pinned(struct twill_context *context, const void *memory)
{
    for (struct twill_persistent_region *p = context->memory->regions; p != NULL; p = p->next)
        p->pinned |= p->start == memory && !p->registered;
}

/* Place shared memory as TWILL_MEMORY says for the library's memory, and count its bytes. Returns
 * true if it is in memory that TWILL_MEMORY selects instead of DDR. Returns false if it is in DDR,
 * as selected or for lack of the other, or after an error, which is only logged. `user` is the
 * context. */
static bool place(void *user, void *at, size_t bytes)
{
    struct twill_context *context = user;
    struct twill_error error = {0};
    bool placed = false;
    twill_context_lock(context);
    twill_status status = twill_memory_place(context->memory->library, at, bytes, &placed, &error);
    if (status != TWILL_OK)
        twill_say(&context->log, TWILL_LOG_WARN, "%s", error.message);
    twill_context_unlock(context);
    return placed;
}

/* Give `bytes` bytes of memory that is about to be freed back to the budget of the library's
 * memory. `placed` is what place() returned for it. */
static void unplace(void *user, size_t bytes, bool placed)
{
    struct twill_context *context = user;
    twill_context_lock(context);
    twill_memory_unplace(context->memory->library, bytes, placed);
    twill_context_unlock(context);
}

struct twill_shm_region_placer twill_context_placer(struct twill_context *context)
{
    return (struct twill_shm_region_placer){
        .place = place, .unplace = unplace, .user = context, .visible = true};
}

size_t twill_context_shared_bytes(const struct twill_context *context)
{
    const int64_t *number = context->config->number;
    int64_t most = twill_max(number[TWILL_VARIABLE_SEGMENT], number[TWILL_VARIABLE_SEGMENT_NET]);
    size_t ranks = context->job.world.size;
    size_t threaded = twill_min(context->job.piece, THREADED_MOST / ranks) * ranks;
    return twill_round_up(twill_max((size_t)most, threaded), 4096);
}

twill_status twill_context_check_use(const struct twill_context *context, const char *call,
                                     struct twill_error *error)
{
    if (twill_context_is_forked(context)) /* the region and its data belong to the parent */
        return TWILL_FAIL(error, TWILL_ERR_FORKED,
                          "%s: this process was forked after the context was created", call);
    return TWILL_OK;
}

/* If `memory` is the first that is private because the heap is full, log that. Only rank 0 logs it
 * at level warn, because most programs allocate the same amounts on all ranks. */
static void log_spill(struct twill_context *context, const void *memory, size_t bytes)
{
    const struct twill_heap *heap = &context->memory->heap;
    if (context->memory->spilled || heap->region == NULL ||
        twill_heap_offset(heap, memory, bytes) != TWILL_HEAP_NOWHERE)
        return;
    context->memory->spilled = true;
    twill_say(&context->log, twill_log_once(TWILL_LOG_WARN, twill_log_is_first(&context->log)),
              "twill_alloc: %zu bytes are private and slower: the %zu MiB that a rank shares are "
              "full (larger: TWILL_TUNE=heap_limit; reported once)",
              bytes, heap->bytes >> 20);
}

/* Set *memory to new memory of the heap of twill_alloc() and add its region to the list. Log the
 * first memory that is private (log_spill()). The caller holds the context's lock. Returns TWILL_OK
 * or the error. */
static twill_status alloc(struct twill_context *context, void **memory, size_t bytes,
                          struct twill_error *error)
{
    TWILL_TRY(error, twill_heap_alloc(&context->memory->heap, memory, bytes, error));
    log_spill(context, *memory, bytes);
    twill_status status = persistent_add(context, *memory, bytes, false, error);
    if (status != TWILL_OK)
        (void)twill_heap_free(&context->memory->heap, *memory, NULL);
    return status;
}

twill_status twill_alloc(twill_context *context, void **memory, size_t bytes)
{
    struct twill_error error = {0};
    if (context == NULL || memory == NULL || !context->ready)
        return TWILL_ERR_ARGUMENT;
    twill_status status = twill_context_check_use(context, "twill_alloc", &error);
    if (status == TWILL_OK) {
        twill_context_lock(context);
        status = alloc(context, memory, bytes, &error);
        twill_context_unlock(context);
    }
    return twill_context_outcome(context, status, &error);
}

/* Free memory of twill_alloc(), of this context or of one that it has replaced, and remove its
 * region from the list and from transports. Returns TWILL_OK, or TWILL_ERR_ARGUMENT if none of
 * these contexts has it. */
static twill_status free_memory(struct twill_context *context, void *memory,
                                struct twill_error *error)
{
    twill_status status = TWILL_ERR_ARGUMENT;
    for (; context != NULL && status != TWILL_OK; context = context->older) {
        twill_error_clear(error);
        twill_context_lock(context);
        int pins = twill_heap_pin(&context->memory->heap, memory, 0, 0);
        twill_context_unlock(context);
        if (pins > 0)
            return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                              "twill_free: memory %p is that of a window: destroy it before",
                              memory);
        (void)persistent_remove(context, memory, false);
        twill_context_lock(context);
        status = twill_heap_free(&context->memory->heap, memory, error);
        twill_context_unlock(context);
    }
    return status;
}

twill_status twill_free(twill_context *context, void *memory)
{
    struct twill_error error = {0};
    if (memory == NULL)
        return TWILL_OK;
    if (context == NULL || !context->ready)
        return TWILL_ERR_ARGUMENT;
    twill_status status = twill_context_check_use(context, "twill_free", &error);
    if (status == TWILL_OK)
        status = free_memory(context, memory, &error);
    return twill_context_outcome(context, status, &error);
}

bool twill_memory_is_readable(const void *memory, size_t bytes)
{
    char ends[2];
    struct iovec here = {ends, sizeof(ends)};
    struct iovec there[2] = {{(char *)(uintptr_t)memory, 1},
                             {(char *)(uintptr_t)memory + bytes - 1, 1}};
    ssize_t n = process_vm_readv(getpid(), &here, 1, there, 2, 0);
    return n < 0 ? errno != EFAULT : n == (ssize_t)sizeof(ends);
}

twill_status twill_context_check_memory(struct twill_context *context, const char *call,
                                        const void *memory, size_t bytes, struct twill_error *error)
{
    TWILL_TRY(error, twill_context_check_use(context, call, error));
    if (memory == NULL || bytes == 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "%s: %zu bytes at %p", call, bytes, memory);
    if (!twill_memory_is_readable(memory, bytes))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "%s: %zu bytes at %p are not memory that this process can read (memory "
                          "of a device?)",
                          call, bytes, memory);
    return twill_context_check_host(context, call, memory, error);
}

twill_status twill_register(twill_context *context, void *memory, size_t bytes)
{
    struct twill_error error = {0};
    if (context == NULL || !context->ready)
        return TWILL_ERR_ARGUMENT;
    twill_status status =
        twill_context_check_memory(context, "twill_register", memory, bytes, &error);
    if (status == TWILL_OK) {
        twill_context_lock(context);
        status = persistent_add(context, memory, bytes, true, &error);
        twill_context_unlock(context);
    }
    return twill_context_outcome(context, status, &error);
}

twill_status twill_deregister(twill_context *context, void *memory)
{
    struct twill_error error = {0};
    if (context == NULL || !context->ready)
        return TWILL_ERR_ARGUMENT;
    twill_status status = twill_context_check_use(context, "twill_deregister", &error);
    if (status == TWILL_OK && !persistent_remove(context, memory, true))
        status = TWILL_FAIL(&error, TWILL_ERR_ARGUMENT,
                            "twill_deregister: nothing was registered at %p", memory);
    return twill_context_outcome(context, status, &error);
}
