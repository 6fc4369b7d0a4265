/* SPDX-License-Identifier: Apache-2.0 */
/* Splits work over the OpenMP threads that twill may use. */
#ifndef TWILL_THREAD_SPLIT_H
#define TWILL_THREAD_SPLIT_H

#include "lib/base/base.h"

/* Process elements [first, first + count) of a job. */
typedef void (*twill_range_fn)(const void *job, size_t first, size_t count);

/* Call `apply` for elements 0 .. count-1, in one range or, if that pays, in one range for each of
 * at most `threads` threads. `element` is the bytes of a destination's element, a power of two up
 * to 64. */
void twill_split(twill_range_fn apply, const void *job, size_t count, size_t element, int threads);

/* As twill_split(), for blocks that each write `bytes` bytes. */
void twill_split_blocks(twill_range_fn apply, const void *job, size_t blocks, size_t bytes,
                        int threads);

#endif
