/* SPDX-License-Identifier: Apache-2.0 */
/* Two buffers of floats of each kind of memory, their contents and their checks. */
#ifndef TWILL_TEST_DEVICE_BUFFERS_H
#define TWILL_TEST_DEVICE_BUFFERS_H

#include "tests/system/cuda/gpu.h"
#include "twill.h"

#include <stdbool.h>

#define CUDA_MOST   300000u /* floats: many segments */
#define CUDA_BEYOND 16u     /* floats behind the last one, which no call may write */

enum memory_place { HOST, CUDA_SHARED, CUDA_DEVICE, MANAGED, CUDA_OTHER, POOL, PINNED, PLACES };
const char *cuda_place_name(enum memory_place place);

struct cuda_buffers {
    twill_comm *comm;
    int rank, size, tried;
    float *at[2][PLACES];
    float *scratch;
};

/* `device`: also of the kinds that need CUDA. */
bool cuda_allocate_buffers(struct cuda_buffers *b, bool device);
void cuda_free_buffers(struct cuda_buffers *b, bool device);

/* Write the rank's input, or a poison, to the first floats of a buffer. */
void cuda_fill_input(const struct cuda_buffers *b, enum memory_place place, int which,
                     size_t count);
void cuda_fill_poison(const struct cuda_buffers *b, enum memory_place place, int which,
                      size_t count);
/* Return a buffer's first floats, in host memory that the next call reuses if it is a device's. */
const float *cuda_get(const struct cuda_buffers *b, enum memory_place place, int which,
                      size_t count);
/* Check that a buffer has the sum of all ranks' inputs, or, with a root of 0 or more, that one's,
 * and that what is beyond is as it was. Returns 1, and says why, if not. */
int cuda_check_values(const struct cuda_buffers *b, const char *what, const float *at, size_t count,
                      int root);
bool cuda_value_is_wrong(const struct cuda_buffers *b, const char *what, size_t i, float got,
                         float expected);
int cuda_check_status(const struct cuda_buffers *b, twill_status status, const char *what);

#endif
