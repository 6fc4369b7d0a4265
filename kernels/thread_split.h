/* SPDX-License-Identifier: Apache-2.0 */
/* Work that is split over the threads the caller of twill lent. */
#ifndef TWILL_THREAD_SPLIT_H
#define TWILL_THREAD_SPLIT_H

#include "lib/base.h"

/* Elements [first, first + count) of a job. */
typedef void (*twill_range_fn)(const void *job, size_t first, size_t count);

/* Call `share` for all of 0 .. count-1, in one piece or, where that pays, one for each of at most
 * `threads` threads. `element` is the bytes of one in the destination (a power of two to 64). */
void twill_split(twill_range_fn apply, const void *job, size_t count, size_t element, int threads);

#endif
