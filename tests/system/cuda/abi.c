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
ABI_SAME(TWILL_CUDA_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
_Static_assert(sizeof(enum twill_cuda_result) == sizeof(CUresult), "CUresult");
_Static_assert(sizeof(enum twill_cuda_attribute) == sizeof(CUpointer_attribute), "attribute");
_Static_assert(__builtin_types_compatible_p(twill_cuda_pointer, CUdeviceptr), "CUdeviceptr");

/* Names as cuda.h maps them; parameters by a call with arguments of our types. */
#define SYMBOL_NAME_(symbol)    #symbol
#define SYMBOL_NAME(symbol)     SYMBOL_NAME_(symbol)
#define SAME_NAME(symbol, ours) _Static_assert(sizeof(SYMBOL_NAME(symbol)) == sizeof(ours), ours)
SAME_NAME(cuCtxPushCurrent, "cuCtxPushCurrent_v2");
SAME_NAME(cuCtxPopCurrent, "cuCtxPopCurrent_v2");
SAME_NAME(cuMemcpyDtoH, "cuMemcpyDtoH_v2");
SAME_NAME(cuMemcpyHtoD, "cuMemcpyHtoD_v2");
SAME_NAME(cuStreamSynchronize, "cuStreamSynchronize");
SAME_NAME(cuPointerGetAttributes, "cuPointerGetAttributes");

CUresult twill_check_calls(void *memory, CUcontext context, const char **text, int *version);
CUresult twill_check_calls(void *memory, CUcontext context, const char **text, int *version)
{
    CUpointer_attribute which = CU_POINTER_ATTRIBUTE_CONTEXT;
    twill_cuda_pointer pointer = 0;
    size_t bytes = 0;
    return cuDriverGetVersion(version) | cuGetErrorString(CUDA_SUCCESS, text) |
           cuPointerGetAttributes(1u, &which, &memory, pointer) | cuCtxPushCurrent(context) |
           cuCtxPopCurrent(&context) | cuMemcpyDtoH(memory, pointer, bytes) |
           cuMemcpyHtoD(pointer, memory, bytes) | cuStreamSynchronize(NULL);
}
