/* SPDX-License-Identifier: Apache-2.0 */
/* A double of the CUDA driver, without a GPU. Its "device" memory is a mapping that the CPU may not
 * touch; its contents are reached through a second mapping of these pages. As with the driver, a
 * copy needs a current context, which is the memory's unless that is in none; what is queued, and a
 * copy to the device, takes place when its stream is synchronised. */
#include "kernels/cuda/cuda_driver.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE ((size_t)64 << 20)

enum { FAILURE = 700 };

/* --- what only tests call: tests/system/cuda/gpu.c ------------------------------------------- */

#define DOUBLE_FUNCTIONS(X)                                                                        \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuDeviceGet, (int *device, int ordinal))                                                     \
    X(cuCtxCreate_v2, (void **context, unsigned flags, int device))                                \
    X(cuMemAlloc_v2, (twill_cuda_pointer * memory, size_t bytes))                                  \
    X(cuMemAllocManaged, (twill_cuda_pointer * memory, size_t bytes, unsigned flags))              \
    X(cuMemAllocAsync, (twill_cuda_pointer * memory, size_t bytes, void *stream))                  \
    X(cuMemAllocHost_v2, (void **memory, size_t bytes))                                            \
    X(cuMemFree_v2, (twill_cuda_pointer memory))                                                   \
    X(cuMemFreeHost, (void *memory))                                                               \
    X(cuMemcpyDtoHAsync_v2, (void *host, twill_cuda_pointer memory, size_t bytes, void *stream))   \
    X(cuMemsetD32Async, (twill_cuda_pointer memory, unsigned word, size_t words, void *stream))    \
    X(cuStreamCreate, (void **stream, unsigned flags))

#define X(symbol, parameters) enum twill_cuda_result symbol parameters;
DOUBLE_FUNCTIONS(X)
#undef X
#define X(member, symbol, parameters) enum twill_cuda_result symbol parameters;
TWILL_CUDA_FUNCTIONS(X)
#undef X
int double_copies(int to_device); /* copies so far, to the device or to the host */
int double_pinned(void);          /* ranges that cuMemHostRegister() has pinned */
void double_fail(int on);         /* do what CUDA_DOUBLE_FAIL asks for; it begins with 1 */

/* --- state ------------------------------------------------------------------------------------ */

enum memory_kind { FREED, OF_CONTEXT, OF_POOL, MANAGED, ALLOCATED_HOST, REGISTERED };

struct memory {
    enum memory_kind kind;
    uintptr_t start;
    size_t bytes;
    void *context;
    unsigned char *pages; /* the memory that was at `start` when it was pinned; NULL: not shared */
};

/* A fill or a copy to the device that has not taken place. */
struct late {
    struct late *next;
    void *stream;
    unsigned char *to;
    size_t bytes;
    unsigned char data[];
};

static struct {
    unsigned char *device, *inside; /* two mappings of one memory */
    size_t used;
    int started, context[2]; /* addresses: the primary context, and another */
    int retained;            /* the primary context */
    void *stack[8];          /* contexts, current last */
    unsigned depth;
    struct memory memory[256];
    unsigned memories;
    struct late *late; /* in order */
    int stream;        /* address: the one that does not wait for the default one */
    int copies[2];     /* to the host, to the device */
    int is_whole;      /* nothing fails */
} gpu;

/* CUDA_DOUBLE_FAIL=FUNCTION:RANK makes a function fail on a rank. */
static int fails(const char *function)
{
    const char *setting = getenv("CUDA_DOUBLE_FAIL"), *rank = getenv("RANK");
    size_t length = strlen(function);
    return !gpu.is_whole && setting != NULL && rank != NULL &&
           strncmp(setting, function, length) == 0 && setting[length] == ':' &&
           strcmp(setting + length + 1, rank) == 0;
}

#define FAIL_IF_REQUESTED()                                                                        \
    do {                                                                                           \
        if (fails(__func__))                                                                       \
            return (enum twill_cuda_result)FAILURE;                                                \
    } while (0)

static void *current(void)
{
    return gpu.depth > 0 ? gpu.stack[gpu.depth - 1] : NULL;
}

static struct memory *memory_of(twill_cuda_pointer pointer, size_t bytes)
{
    for (unsigned i = 0; i < gpu.memories; i++) {
        struct memory *m = &gpu.memory[i];
        if (m->kind != FREED && pointer >= m->start && pointer - m->start < m->bytes &&
            bytes <= m->bytes - (pointer - m->start))
            return m;
    }
    return NULL;
}

static enum twill_cuda_result add_memory(enum memory_kind kind, const void *start, size_t bytes)
{
    if (gpu.depth == 0)
        return TWILL_CUDA_INVALID_CONTEXT;
    unsigned i = 0;
    while (i < gpu.memories && gpu.memory[i].kind != FREED)
        i++;
    if (i == sizeof(gpu.memory) / sizeof(gpu.memory[0]) || start == MAP_FAILED)
        return (enum twill_cuda_result)FAILURE;
    gpu.memories += i == gpu.memories;
    gpu.memory[i] = (struct memory){kind, (uintptr_t)start, bytes, current(), NULL};
    if (kind == REGISTERED) { /* of a shared mapping this makes a second one */
        void *pages = mremap((void *)(uintptr_t)start, 0, bytes, MREMAP_MAYMOVE);
        gpu.memory[i].pages = pages != MAP_FAILED ? pages : NULL;
    }
    return TWILL_CUDA_SUCCESS;
}

static int is_on_device(const struct memory *memory)
{
    return memory != NULL && (memory->kind == OF_CONTEXT || memory->kind == OF_POOL);
}

/* Return where a copy from or to host memory takes place: in pinned pages, wherever they are. */
static void *host_at(const void *host, size_t bytes)
{
    const struct memory *memory = memory_of((uintptr_t)host, bytes);
    return memory != NULL && memory->pages != NULL
               ? memory->pages + ((uintptr_t)host - memory->start)
               : (void *)(uintptr_t)host;
}

/* Let what is queued take place, on the default stream or on the other one. */
static void land(void *stream)
{
    for (struct late **at = &gpu.late; *at != NULL;) {
        struct late *late = *at;
        if (late->stream != stream) {
            at = &late->next;
            continue;
        }
        memcpy(late->to, late->data, late->bytes);
        *at = late->next;
        free(late);
    }
}

static struct late *queue(void *stream, twill_cuda_pointer to, size_t bytes)
{
    struct late **at = &gpu.late;
    while (*at != NULL)
        at = &(*at)->next;
    struct late *late = malloc(sizeof(*late) + bytes);
    if (late == NULL)
        abort();
    late->next = NULL;
    late->stream = stream;
    late->to = gpu.inside + (to - (uintptr_t)gpu.device);
    late->bytes = bytes;
    *at = late;
    return late;
}

static enum twill_cuda_result ready_to_copy(twill_cuda_pointer pointer, size_t bytes)
{
    const struct memory *memory = memory_of(pointer, bytes);
    if (!is_on_device(memory))
        return TWILL_CUDA_INVALID_VALUE;
    if (gpu.depth == 0 || (memory->kind == OF_CONTEXT && memory->context != current()))
        return TWILL_CUDA_INVALID_CONTEXT;
    return TWILL_CUDA_SUCCESS;
}

/* --- what twill calls ------------------------------------------------------------------------- */

enum twill_cuda_result cuDriverGetVersion(int *version)
{
    FAIL_IF_REQUESTED();
    *version = 99010;
    return TWILL_CUDA_SUCCESS;
}

enum twill_cuda_result cuGetErrorString(enum twill_cuda_result result, const char **text)
{
    *text =
        result == (enum twill_cuda_result)FAILURE ? "the double was told to fail" : "some error";
    return TWILL_CUDA_SUCCESS;
}

enum twill_cuda_result cuPointerGetAttributes(unsigned count, enum twill_cuda_attribute *which,
                                              void **values, twill_cuda_pointer pointer)
{
    if (gpu.started == 0)
        return TWILL_CUDA_NOT_INITIALIZED;
    FAIL_IF_REQUESTED();
    const struct memory *memory = memory_of(pointer, 1);
    int on_device = is_on_device(memory) || (memory != NULL && memory->kind == MANAGED);
    for (unsigned i = 0; i < count; i++)
        switch (which[i]) {
        case TWILL_CUDA_CONTEXT:
            *(void **)values[i] =
                memory != NULL && memory->kind != OF_POOL ? memory->context : NULL;
            break;
        case TWILL_CUDA_MEMORY_TYPE:
            *(unsigned *)values[i] = memory == NULL ? 0
                                     : on_device    ? TWILL_CUDA_MEMORY_DEVICE
                                                    : TWILL_CUDA_MEMORY_HOST;
            break;
        case TWILL_CUDA_IS_MANAGED:
            *(unsigned char *)values[i] = memory != NULL && memory->kind == MANAGED;
            break;
        case TWILL_CUDA_DEVICE_ORDINAL:
            *(int *)values[i] = memory != NULL ? 0 : -2;
            break;
        }
    return TWILL_CUDA_SUCCESS;
}

enum twill_cuda_result cuCtxPushCurrent_v2(void *context)
{
    FAIL_IF_REQUESTED();
    if (context == NULL || gpu.depth == sizeof(gpu.stack) / sizeof(gpu.stack[0]))
        return TWILL_CUDA_INVALID_VALUE;
    gpu.stack[gpu.depth++] = context;
    return TWILL_CUDA_SUCCESS;
}

enum twill_cuda_result cuCtxPopCurrent_v2(void **context)
{
    if (gpu.depth == 0)
        return TWILL_CUDA_INVALID_CONTEXT;
    *context = gpu.stack[--gpu.depth];
    return TWILL_CUDA_SUCCESS;
}

enum twill_cuda_result cuCtxGetCurrent(void **context)
{
    *context = current();
    return TWILL_CUDA_SUCCESS;
}

enum twill_cuda_result cuDevicePrimaryCtxRetain(void **context, int ordinal)
{
    if (ordinal != 0)
        return TWILL_CUDA_INVALID_VALUE;
    gpu.retained++;
    *context = &gpu.context[0];
    return TWILL_CUDA_SUCCESS;
}

enum twill_cuda_result cuDevicePrimaryCtxRelease_v2(int ordinal)
{
    if (ordinal != 0 || gpu.retained == 0)
        return TWILL_CUDA_INVALID_CONTEXT;
    gpu.retained--;
    return TWILL_CUDA_SUCCESS;
}

enum twill_cuda_result cuMemcpyDtoH_v2(void *host, twill_cuda_pointer pointer, size_t bytes)
{
    FAIL_IF_REQUESTED();
    enum twill_cuda_result result = ready_to_copy(pointer, bytes);
    if (result != TWILL_CUDA_SUCCESS)
        return result;
    land(NULL);
    gpu.copies[0]++;
    memcpy(host_at(host, bytes), gpu.inside + (pointer - (uintptr_t)gpu.device), bytes);
    return TWILL_CUDA_SUCCESS;
}

static enum twill_cuda_result queue_copy(twill_cuda_pointer pointer, const void *host, size_t bytes)
{
    enum twill_cuda_result result = ready_to_copy(pointer, bytes);
    if (result != TWILL_CUDA_SUCCESS)
        return result;
    memcpy(queue(NULL, pointer, bytes)->data, host_at(host, bytes), bytes);
    gpu.copies[1]++;
    return TWILL_CUDA_SUCCESS;
}

enum twill_cuda_result cuMemcpyHtoD_v2(twill_cuda_pointer pointer, const void *host, size_t bytes)
{
    FAIL_IF_REQUESTED();
    return queue_copy(pointer, host, bytes);
}

enum twill_cuda_result cuMemcpy2D_v2(const struct twill_cuda_rows *rows)
{
    FAIL_IF_REQUESTED();
    if (rows->from_type != TWILL_CUDA_MEMORY_HOST || rows->to_type != TWILL_CUDA_MEMORY_DEVICE ||
        rows->from_pitch != rows->width || rows->to_pitch != rows->width)
        return TWILL_CUDA_INVALID_VALUE;
    return queue_copy(rows->to_device, rows->from_host, rows->width * rows->height);
}

enum twill_cuda_result cuStreamSynchronize(void *stream)
{
    FAIL_IF_REQUESTED();
    if (gpu.depth == 0)
        return TWILL_CUDA_INVALID_CONTEXT;
    land(stream);
    return TWILL_CUDA_SUCCESS;
}

/* As the driver does, refuse pages that are pinned already, or not in memory. */
enum twill_cuda_result cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags)
{
    FAIL_IF_REQUESTED();
    uintptr_t start = (uintptr_t)host;
    for (unsigned i = 0; i < gpu.memories; i++)
        if (gpu.memory[i].kind != FREED && start < gpu.memory[i].start + gpu.memory[i].bytes &&
            gpu.memory[i].start < start + bytes)
            return (enum twill_cuda_result)FAILURE;
    unsigned char resident[1];
    if (flags != TWILL_CUDA_REGISTER_PORTABLE || start % 4096 != 0 || bytes % 4096 != 0 ||
        mincore((void *)(start + bytes - 4096), 4096, resident) != 0)
        return TWILL_CUDA_INVALID_VALUE;
    return add_memory(REGISTERED, host, bytes);
}

/* The pages must still be there: CUDA would have pinned others otherwise. */
enum twill_cuda_result cuMemHostUnregister(void *host)
{
    struct memory *memory = memory_of((uintptr_t)host, 1);
    if (gpu.depth == 0)
        return TWILL_CUDA_INVALID_CONTEXT;
    if (memory == NULL || memory->kind != REGISTERED || memory->start != (uintptr_t)host)
        return TWILL_CUDA_INVALID_VALUE;
    unsigned char resident[1];
    if (mincore(host, 4096, resident) != 0)
        abort();
    if (memory->pages != NULL)
        munmap(memory->pages, memory->bytes);
    memory->kind = FREED;
    return TWILL_CUDA_SUCCESS;
}

/* --- what tests call -------------------------------------------------------------------------- */

enum twill_cuda_result cuInit(unsigned flags)
{
    int fd = memfd_create("a double of device memory", 0);
    if (fd < 0 || ftruncate(fd, (off_t)SIZE) != 0)
        return (enum twill_cuda_result)FAILURE;
    gpu.device = mmap(NULL, SIZE, PROT_NONE, MAP_SHARED, fd, 0);
    gpu.inside = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    gpu.started = 1;
    return gpu.device == MAP_FAILED || gpu.inside == MAP_FAILED ? (enum twill_cuda_result)FAILURE
                                                                : TWILL_CUDA_SUCCESS;
}

enum twill_cuda_result cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return TWILL_CUDA_SUCCESS;
}

enum twill_cuda_result cuCtxCreate_v2(void **context, unsigned flags, int device)
{
    *context = &gpu.context[1];
    return cuCtxPushCurrent_v2(*context);
}

static enum twill_cuda_result allocate(enum memory_kind kind, twill_cuda_pointer *memory,
                                       size_t bytes)
{
    void *at = gpu.device + gpu.used;
    if (kind == MANAGED || kind == ALLOCATED_HOST)
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else if (bytes > SIZE - gpu.used)
        return (enum twill_cuda_result)FAILURE;
    else
        gpu.used += (bytes + 255) / 256 * 256;
    *memory = (twill_cuda_pointer)(uintptr_t)at;
    return add_memory(kind, at, bytes);
}

enum twill_cuda_result cuMemAlloc_v2(twill_cuda_pointer *memory, size_t bytes)
{
    return allocate(OF_CONTEXT, memory, bytes);
}

enum twill_cuda_result cuMemAllocManaged(twill_cuda_pointer *memory, size_t bytes, unsigned flags)
{
    return allocate(MANAGED, memory, bytes);
}

enum twill_cuda_result cuMemAllocAsync(twill_cuda_pointer *memory, size_t bytes, void *stream)
{
    return allocate(OF_POOL, memory, bytes);
}

enum twill_cuda_result cuMemAllocHost_v2(void **memory, size_t bytes)
{
    twill_cuda_pointer at;
    enum twill_cuda_result result = allocate(ALLOCATED_HOST, &at, bytes);
    *memory = (void *)(uintptr_t)at;
    return result;
}

/* Device memory is not used again. */
enum twill_cuda_result cuMemFree_v2(twill_cuda_pointer memory)
{
    struct memory *freed = memory_of(memory, 1);
    if (freed == NULL || freed->start != memory)
        return TWILL_CUDA_INVALID_VALUE;
    if (freed->kind == MANAGED)
        munmap((void *)freed->start, freed->bytes);
    freed->kind = FREED;
    return TWILL_CUDA_SUCCESS;
}

enum twill_cuda_result cuMemFreeHost(void *memory)
{
    struct memory *freed = memory_of((uintptr_t)memory, 1);
    if (freed == NULL || freed->kind != ALLOCATED_HOST)
        return TWILL_CUDA_INVALID_VALUE;
    munmap(memory, freed->bytes);
    freed->kind = FREED;
    return TWILL_CUDA_SUCCESS;
}

enum twill_cuda_result cuMemcpyDtoHAsync_v2(void *host, twill_cuda_pointer memory, size_t bytes,
                                            void *stream)
{
    enum twill_cuda_result result = ready_to_copy(memory, bytes);
    if (result != TWILL_CUDA_SUCCESS)
        return result;
    land(stream);
    memcpy(host, gpu.inside + (memory - (uintptr_t)gpu.device), bytes);
    return TWILL_CUDA_SUCCESS;
}

enum twill_cuda_result cuMemsetD32Async(twill_cuda_pointer memory, unsigned word, size_t words,
                                        void *stream)
{
    enum twill_cuda_result result = ready_to_copy(memory, words * sizeof(word));
    if (result != TWILL_CUDA_SUCCESS)
        return result;
    unsigned char *to = queue(stream, memory, words * sizeof(word))->data;
    for (size_t i = 0; i < words; i++)
        memcpy(to + i * sizeof(word), &word, sizeof(word));
    return TWILL_CUDA_SUCCESS;
}

enum twill_cuda_result cuStreamCreate(void **stream, unsigned flags)
{
    *stream = &gpu.stream;
    return TWILL_CUDA_SUCCESS;
}

int double_copies(int to_device)
{
    return gpu.copies[to_device];
}

void double_fail(int on)
{
    gpu.is_whole = !on;
}

int double_pinned(void)
{
    int pinned = 0;
    for (unsigned i = 0; i < gpu.memories; i++)
        pinned += gpu.memory[i].kind == REGISTERED;
    return pinned;
}
