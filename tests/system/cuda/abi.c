/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles only if kernels/cuda/cuda_driver.h agrees with cuda.h. */
#include "kernels/cuda/cuda_driver.h"

#include <cuda.h>

#define ABI_SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
ABI_SAME(TWILL_CUDA_SUCCESS, CUDA_SUCCESS);
ABI_SAME(TWILL_CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
ABI_SAME(TWILL_CUDA_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
ABI_SAME(TWILL_CUDA_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
ABI_SAME(TWILL_CUDA_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
ABI_SAME(TWILL_CUDA_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT);
ABI_SAME(TWILL_CUDA_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
ABI_SAME(TWILL_CUDA_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
ABI_SAME(TWILL_CUDA_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
ABI_SAME(TWILL_CUDA_MEMORY_HOST, CU_MEMORYTYPE_HOST);
ABI_SAME(TWILL_CUDA_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
ABI_SAME(TWILL_CUDA_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
_Static_assert(sizeof(enum twill_cuda_result) == sizeof(CUresult), "CUresult");
_Static_assert(sizeof(enum twill_cuda_attribute) == sizeof(CUpointer_attribute), "attribute");
_Static_assert(__builtin_types_compatible_p(twill_cuda_pointer, CUdeviceptr), "CUdeviceptr");

/* The rows of a copy */
#define ROWS_SAME(ours, theirs)                                                                    \
    ABI_SAME(offsetof(struct twill_cuda_rows, ours), offsetof(CUDA_MEMCPY2D, theirs));             \
    ABI_SAME(sizeof(((struct twill_cuda_rows *)0)->ours), sizeof(((CUDA_MEMCPY2D *)0)->theirs))
_Static_assert(sizeof(struct twill_cuda_rows) == sizeof(CUDA_MEMCPY2D), "CUDA_MEMCPY2D");
ROWS_SAME(from_type, srcMemoryType);
ROWS_SAME(from_host, srcHost);
ROWS_SAME(from_pitch, srcPitch);
ROWS_SAME(to_type, dstMemoryType);
ROWS_SAME(to_device, dstDevice);
ROWS_SAME(to_pitch, dstPitch);
ROWS_SAME(width, WidthInBytes);
ROWS_SAME(height, Height);

/* Names as cuda.h maps them; parameters by a call with arguments of our types. */
#define SYMBOL_NAME_(symbol)    #symbol
#define SYMBOL_NAME(symbol)     SYMBOL_NAME_(symbol)
#define SAME_NAME(symbol, ours) _Static_assert(sizeof(SYMBOL_NAME(symbol)) == sizeof(ours), ours)
SAME_NAME(cuCtxPushCurrent, "cuCtxPushCurrent_v2");
SAME_NAME(cuCtxPopCurrent, "cuCtxPopCurrent_v2");
SAME_NAME(cuMemcpyDtoH, "cuMemcpyDtoH_v2");
SAME_NAME(cuMemcpyHtoD, "cuMemcpyHtoD_v2");
SAME_NAME(cuMemcpy2D, "cuMemcpy2D_v2");
SAME_NAME(cuMemHostRegister, "cuMemHostRegister_v2");
SAME_NAME(cuMemHostUnregister, "cuMemHostUnregister");
SAME_NAME(cuCtxGetCurrent, "cuCtxGetCurrent");
SAME_NAME(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
SAME_NAME(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
SAME_NAME(cuStreamSynchronize, "cuStreamSynchronize");
SAME_NAME(cuPointerGetAttributes, "cuPointerGetAttributes");

CUresult twill_check_calls(void *memory, CUcontext context, const char **text, int *version);
CUresult twill_check_calls(void *memory, CUcontext context, const char **text, int *version)
{
    CUpointer_attribute which = CU_POINTER_ATTRIBUTE_CONTEXT;
    twill_cuda_pointer pointer = 0;
    size_t bytes = 0;
    CUdevice device = 0;
    CUDA_MEMCPY2D rows = {0};
    return cuDriverGetVersion(version) | cuGetErrorString(CUDA_SUCCESS, text) |
           cuPointerGetAttributes(1u, &which, &memory, pointer) | cuCtxPushCurrent(context) |
           cuCtxPopCurrent(&context) | cuMemcpyDtoH(memory, pointer, bytes) |
           cuMemcpyHtoD(pointer, memory, bytes) | cuMemcpy2D(&rows) | cuStreamSynchronize(NULL) |
           cuCtxGetCurrent(&context) | cuDevicePrimaryCtxRetain(&context, device) |
           cuDevicePrimaryCtxRelease(device) |
           cuMemHostRegister(memory, bytes, TWILL_CUDA_REGISTER_PORTABLE) |
           cuMemHostUnregister(memory);
}
