/* SPDX-License-Identifier: Apache-2.0 */
/* A double of the CUDA driver, without a GPU. Its "device" memory is a mapping that the CPU may not
 * touch; its contents are reached through a second mapping of these pages. As with the driver, a
 * copy needs a current context, and one to the device completes when the stream is synchronised. */
#include "tests/doubles/cuda/cuda_double.h"
#include "kernels/cuda/cuda_driver.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE ((size_t)64 << 20)

enum { FAILURE = 700 };

static struct {
    unsigned char *device, *inside; /* two mappings of one memory */
    unsigned char *managed;
    size_t used;
    int started;
    void *stack[8]; /* contexts, current last */
    unsigned depth;
    void *late; /* a copy to the device in progress */
    unsigned char *late_to;
    size_t late_bytes;
    int copies[2]; /* to the host, to the device */
} gpu;

/* CUDA_DOUBLE_FAIL=FUNCTION:RANK makes a function fail on a rank. */
static int fails(const char *function)
{
    const char *setting = getenv("CUDA_DOUBLE_FAIL"), *rank = getenv("RANK");
    size_t length = strlen(function);
    return setting != NULL && rank != NULL && strncmp(setting, function, length) == 0 &&
           setting[length] == ':' && strcmp(setting + length + 1, rank) == 0;
}

#define FAIL_IF_REQUESTED()                                                                        \
    do {                                                                                           \
        if (fails(__func__))                                                                       \
            return (enum twill_cuda_result)FAILURE;                                                \
    } while (0)

static int pointer_holds(const unsigned char *start, twill_cuda_pointer pointer, size_t bytes)
{
    uintptr_t from = (uintptr_t)start;
    return start != NULL && pointer >= from && pointer - from <= SIZE - bytes;
}

static void land_copies(void)
{
    if (gpu.late != NULL)
        memcpy(gpu.late_to, gpu.late, gpu.late_bytes);
    free(gpu.late);
    gpu.late = NULL;
}

static enum twill_cuda_result ready_to_copy(twill_cuda_pointer pointer, size_t bytes)
{
    if (gpu.depth == 0)
        return TWILL_CUDA_INVALID_CONTEXT;
    if (!pointer_holds(gpu.device, pointer, bytes))
        return TWILL_CUDA_INVALID_VALUE;
    land_copies();
    return TWILL_CUDA_SUCCESS;
}

/* --- what twill calls ------------------------------------------------------------------------- */

#define X(member, symbol, parameters) enum twill_cuda_result symbol parameters;
TWILL_CUDA_FUNCTIONS(X)
#undef X

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
    int managed = pointer_holds(gpu.managed, pointer, 0);
    int known = managed || pointer_holds(gpu.device, pointer, 0);
    for (unsigned i = 0; i < count; i++)
        switch (which[i]) {
        case TWILL_CUDA_CONTEXT:
            *(void **)values[i] = known ? (void *)&gpu : NULL;
            break;
        case TWILL_CUDA_MEMORY_TYPE:
            *(unsigned *)values[i] = known ? TWILL_CUDA_MEMORY_DEVICE : 0;
            break;
        case TWILL_CUDA_IS_MANAGED:
            *(unsigned char *)values[i] = (unsigned char)managed;
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

enum twill_cuda_result cuMemcpyDtoH_v2(void *host, twill_cuda_pointer pointer, size_t bytes)
{
    FAIL_IF_REQUESTED();
    enum twill_cuda_result result = ready_to_copy(pointer, bytes);
    if (result != TWILL_CUDA_SUCCESS)
        return result;
    gpu.copies[0]++;
    memcpy(host, gpu.inside + (pointer - (uintptr_t)gpu.device), bytes);
    return TWILL_CUDA_SUCCESS;
}

enum twill_cuda_result cuMemcpyHtoD_v2(twill_cuda_pointer pointer, const void *host, size_t bytes)
{
    FAIL_IF_REQUESTED();
    enum twill_cuda_result result = ready_to_copy(pointer, bytes);
    if (result != TWILL_CUDA_SUCCESS)
        return result;
    gpu.late = malloc(bytes);
    if (gpu.late == NULL)
        return (enum twill_cuda_result)FAILURE;
    memcpy(gpu.late, host, bytes);
    gpu.late_to = gpu.inside + (pointer - (uintptr_t)gpu.device);
    gpu.late_bytes = bytes;
    gpu.copies[1]++;
    return TWILL_CUDA_SUCCESS;
}

enum twill_cuda_result cuStreamSynchronize(void *stream)
{
    FAIL_IF_REQUESTED();
    if (stream != NULL || gpu.depth == 0)
        return TWILL_CUDA_INVALID_CONTEXT;
    land_copies();
    return TWILL_CUDA_SUCCESS;
}

/* --- what the test calls ---------------------------------------------------------------------- */

int double_start(void)
{
    int fd = memfd_create("a double of device memory", 0);
    if (fd < 0 || ftruncate(fd, (off_t)SIZE) != 0)
        return -1;
    gpu.device = mmap(NULL, SIZE, PROT_NONE, MAP_SHARED, fd, 0);
    gpu.inside = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    gpu.managed = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    close(fd);
    gpu.started = 1;
    return gpu.device == MAP_FAILED || gpu.inside == MAP_FAILED || gpu.managed == MAP_FAILED ? -1
                                                                                             : 0;
}

void *double_memory(size_t offset)
{
    return gpu.device + offset;
}

void *double_managed(void)
{
    return gpu.managed;
}

void *double_inside(const void *pointer)
{
    return gpu.inside + ((const unsigned char *)pointer - gpu.device);
}

int double_copies(int to_device)
{
    return gpu.copies[to_device];
}

int double_contexts(void)
{
    return (int)gpu.depth;
}
