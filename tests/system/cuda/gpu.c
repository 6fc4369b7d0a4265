/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver API, as far as the tests use it. Compiles without CUDA's headers. */
#include "tests/system/cuda/gpu.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long gpu_pointer; /* CUdeviceptr */

/* X(name, parameters): all return 0 or an error */
#define GPU_FUNCTIONS(X)                                                                           \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuDeviceGet, (int *device, int ordinal))                                                     \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                      \
    X(cuCtxCreate_v2, (void **context, unsigned flags, int device))                                \
    X(cuCtxPushCurrent_v2, (void *context))                                                        \
    X(cuCtxPopCurrent_v2, (void **context))                                                        \
    X(cuCtxGetCurrent, (void **context))                                                           \
    X(cuMemAlloc_v2, (gpu_pointer * memory, size_t bytes))                                         \
    X(cuMemAllocManaged, (gpu_pointer * memory, size_t bytes, unsigned flags))                     \
    X(cuMemAllocAsync, (gpu_pointer * memory, size_t bytes, void *stream))                         \
    X(cuMemAllocHost_v2, (void **memory, size_t bytes))                                            \
    X(cuMemFree_v2, (gpu_pointer memory))                                                          \
    X(cuMemFreeHost, (void *memory))                                                               \
    X(cuMemcpyDtoH_v2, (void *host, gpu_pointer memory, size_t bytes))                             \
    X(cuMemcpyHtoD_v2, (gpu_pointer memory, const void *host, size_t bytes))                       \
    X(cuMemcpyDtoHAsync_v2, (void *host, gpu_pointer memory, size_t bytes, void *stream))          \
    X(cuMemsetD32Async, (gpu_pointer memory, unsigned word, size_t words, void *stream))           \
    X(cuStreamCreate, (void **stream, unsigned flags))                                             \
    X(cuStreamSynchronize, (void *stream))

enum { MANAGED_GLOBAL = 1, STREAM_NON_BLOCKING = 1 };

static struct {
#define X(name, parameters) int(*name) parameters;
    GPU_FUNCTIONS(X)
#undef X
    int (*double_copies)(int to_device);
    int (*double_pinned)(void);
    void (*double_fail)(int on);
    void *primary, *second, *stream;
} gpu;

#define GPU_TRY(call)                                                                              \
    do {                                                                                           \
        int gpu_result = gpu.call;                                                                 \
        if (gpu_result != 0) {                                                                     \
            printf("%s: CUDA error %d\n", #call, gpu_result);                                      \
            return -1;                                                                             \
        }                                                                                          \
    } while (0)

static int resolve(void)
{
    const char *name = getenv("TEST_CUDA_LIBRARY");
    void *library = dlopen(name != NULL ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        printf("%s\n", dlerror());
        return -1;
    }
#define X(name, parameters)                                                                        \
    *(void **)&gpu.name = dlsym(library, #name);                                                   \
    if (gpu.name == NULL) {                                                                        \
        printf("no %s\n", #name);                                                                  \
        return -1;                                                                                 \
    }
    GPU_FUNCTIONS(X)
#undef X
    *(void **)&gpu.double_copies = dlsym(library, "double_copies");
    *(void **)&gpu.double_pinned = dlsym(library, "double_pinned");
    *(void **)&gpu.double_fail = dlsym(library, "double_fail");
    if (gpu.double_fail != NULL)
        gpu.double_fail(0);
    return 0;
}

int gpu_start(void)
{
    int device;
    void *popped;
    if (resolve() != 0)
        return -1;
    GPU_TRY(cuInit(0));
    GPU_TRY(cuDeviceGet(&device, 0));
    GPU_TRY(cuDevicePrimaryCtxRetain(&gpu.primary, device));
    GPU_TRY(cuCtxCreate_v2(&gpu.second, 0, device));
    GPU_TRY(cuCtxPopCurrent_v2(&popped));
    GPU_TRY(cuCtxPushCurrent_v2(gpu.primary));
    GPU_TRY(cuStreamCreate(&gpu.stream, STREAM_NON_BLOCKING));
    GPU_TRY(cuCtxPopCurrent_v2(&popped));
    return 0;
}

static void *context_of(enum gpu_memory kind)
{
    return kind == GPU_OTHER ? gpu.second : gpu.primary;
}

void *gpu_current(void)
{
    void *context = NULL;
    return gpu.cuCtxGetCurrent == NULL || gpu.cuCtxGetCurrent(&context) != 0 ? NULL : context;
}

void gpu_enter(void)
{
    if (gpu.cuCtxPushCurrent_v2(gpu.primary) != 0)
        puts("cuCtxPushCurrent failed");
}

void gpu_leave(void)
{
    void *popped;
    if (gpu.cuCtxPopCurrent_v2(&popped) != 0)
        puts("cuCtxPopCurrent failed");
}

static int allocate(enum gpu_memory kind, gpu_pointer *at, size_t bytes)
{
    void *host;
    switch (kind) {
    case GPU_MANAGED:
        GPU_TRY(cuMemAllocManaged(at, bytes, MANAGED_GLOBAL));
        return 0;
    case GPU_POOL:
        GPU_TRY(cuMemAllocAsync(at, bytes, NULL));
        GPU_TRY(cuStreamSynchronize(NULL));
        return 0;
    case GPU_PINNED:
        GPU_TRY(cuMemAllocHost_v2(&host, bytes));
        *at = (gpu_pointer)(uintptr_t)host;
        return 0;
    default:
        GPU_TRY(cuMemAlloc_v2(at, bytes));
        return 0;
    }
}

void *gpu_alloc(enum gpu_memory kind, size_t bytes)
{
    gpu_pointer at = 0;
    void *popped;
    if (gpu.cuCtxPushCurrent_v2(context_of(kind)) != 0)
        return NULL;
    int failed = allocate(kind, &at, bytes);
    if (gpu.cuCtxPopCurrent_v2(&popped) != 0 || failed != 0)
        return NULL;
    return (void *)(uintptr_t)at;
}

int gpu_free(enum gpu_memory kind, void *memory)
{
    void *popped;
    GPU_TRY(cuCtxPushCurrent_v2(context_of(kind)));
    if (kind == GPU_PINNED)
        GPU_TRY(cuMemFreeHost(memory));
    else
        GPU_TRY(cuMemFree_v2((gpu_pointer)(uintptr_t)memory));
    GPU_TRY(cuCtxPopCurrent_v2(&popped));
    return 0;
}

int gpu_read(enum gpu_memory kind, void *host, const void *memory, size_t bytes)
{
    void *popped;
    GPU_TRY(cuCtxPushCurrent_v2(context_of(kind)));
    GPU_TRY(cuMemcpyDtoH_v2(host, (gpu_pointer)(uintptr_t)memory, bytes));
    GPU_TRY(cuCtxPopCurrent_v2(&popped));
    return 0;
}

int gpu_write(enum gpu_memory kind, void *memory, const void *host, size_t bytes)
{
    void *popped;
    GPU_TRY(cuCtxPushCurrent_v2(context_of(kind)));
    GPU_TRY(cuMemcpyHtoD_v2((gpu_pointer)(uintptr_t)memory, host, bytes));
    GPU_TRY(cuStreamSynchronize(NULL));
    GPU_TRY(cuCtxPopCurrent_v2(&popped));
    return 0;
}

int gpu_queue_fill(void *memory, unsigned word, size_t words, int rounds, int apart)
{
    void *stream = apart ? gpu.stream : NULL;
    gpu_enter();
    for (int i = 1; i <= rounds; i++)
        GPU_TRY(cuMemsetD32Async((gpu_pointer)(uintptr_t)memory, i == rounds ? word : ~word, words,
                                 stream));
    gpu_leave();
    return 0;
}

int gpu_wait(void)
{
    gpu_enter();
    GPU_TRY(cuStreamSynchronize(gpu.stream));
    gpu_leave();
    return 0;
}

int gpu_read_apart(void *pinned, const void *memory, size_t bytes)
{
    gpu_enter();
    GPU_TRY(cuMemcpyDtoHAsync_v2(pinned, (gpu_pointer)(uintptr_t)memory, bytes, gpu.stream));
    GPU_TRY(cuStreamSynchronize(gpu.stream));
    gpu_leave();
    return 0;
}

void gpu_fail_as_asked(void)
{
    if (gpu.double_fail != NULL)
        gpu.double_fail(1);
}

int gpu_copies(int to_device)
{
    return gpu.double_copies != NULL ? gpu.double_copies(to_device) : -1;
}

int gpu_pinned(void)
{
    return gpu.double_pinned != NULL ? gpu.double_pinned() : -1;
}
