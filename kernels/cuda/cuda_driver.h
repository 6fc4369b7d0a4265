/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the CUDA driver's ABI that twill uses, so that no CUDA header is needed.
 * tests/system/cuda/abi.c compares it with cuda.h if that is installed. */
#ifndef TWILL_CUDA_DRIVER_H
#define TWILL_CUDA_DRIVER_H

#include <stddef.h>

typedef unsigned long long twill_cuda_pointer; /* CUdeviceptr */

enum twill_cuda_result { /* CUresult */
                         TWILL_CUDA_SUCCESS = 0,
                         TWILL_CUDA_INVALID_VALUE = 1,
                         TWILL_CUDA_NOT_INITIALIZED = 3,
                         TWILL_CUDA_DEINITIALIZED = 4,
                         TWILL_CUDA_INVALID_CONTEXT = 201,
};

enum twill_cuda_attribute { /* CUpointer_attribute */
                            TWILL_CUDA_CONTEXT = 1,
                            TWILL_CUDA_MEMORY_TYPE = 2,
                            TWILL_CUDA_IS_MANAGED = 8,
                            TWILL_CUDA_DEVICE_ORDINAL = 9,
};

enum { TWILL_CUDA_MEMORY_HOST = 1, TWILL_CUDA_MEMORY_DEVICE = 2 }; /* CUmemorytype */
enum { TWILL_CUDA_REGISTER_PORTABLE = 1 };                         /* for cuMemHostRegister() */

/* A copy of rows between host and device, CUDA_MEMCPY2D. On the stack of the function that copies.
 * A pitch is the bytes from one row to the next. */
struct twill_cuda_rows {
    size_t from_x, from_y;
    unsigned from_type; /* CUmemorytype */
    const void *from_host;
    twill_cuda_pointer from_device;
    void *from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    unsigned to_type;
    void *to_host;
    twill_cuda_pointer to_device;
    void *to_array;
    size_t to_pitch;
    size_t width, height; /* bytes of a row, and number of rows */
};

/* X(member, symbol, parameters). All return a result. The suffixes _v2 are part of the names. */
#define TWILL_CUDA_FUNCTIONS(X)                                                                    \
    X(version, cuDriverGetVersion, (int *version))                                                 \
    X(error_string, cuGetErrorString, (enum twill_cuda_result result, const char **text))          \
    X(attributes, cuPointerGetAttributes,                                                          \
      (unsigned count, enum twill_cuda_attribute *which, void **values,                            \
       twill_cuda_pointer pointer))                                                                \
    X(push, cuCtxPushCurrent_v2, (void *context))                                                  \
    X(pop, cuCtxPopCurrent_v2, (void **context))                                                   \
    X(current, cuCtxGetCurrent, (void **context))                                                  \
    X(retain, cuDevicePrimaryCtxRetain, (void **context, int ordinal))                             \
    X(release, cuDevicePrimaryCtxRelease_v2, (int ordinal))                                        \
    X(to_host, cuMemcpyDtoH_v2, (void *host, twill_cuda_pointer pointer, size_t bytes))            \
    X(from_host, cuMemcpyHtoD_v2, (twill_cuda_pointer pointer, const void *host, size_t bytes))    \
    X(copy_rows, cuMemcpy2D_v2, (const struct twill_cuda_rows *rows))                              \
    X(synchronize, cuStreamSynchronize, (void *stream))                                            \
    X(pin, cuMemHostRegister_v2, (void *host, size_t bytes, unsigned flags))                       \
    X(unpin, cuMemHostUnregister, (void *host))

#endif
