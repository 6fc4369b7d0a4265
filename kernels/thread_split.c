/* SPDX-License-Identifier: Apache-2.0 */
/* Large reductions and copies over the OpenMP threads the caller lent. */
#include "kernels/thread_split.h"

#if defined(_OPENMP)
#include <omp.h>
#endif

/* The least a thread is woken for, in bytes of the destination. Measured on Zen 5, two threads, f32
 * sum of two sources: entering a team costs 0.5 us while its threads spin and 7 us once they sleep.
 * At 512 KiB two threads take 5 us where one takes 14; at 64 KiB they are even, and sleeping ones
 * lose. */
#define THREAD_BYTES ((size_t)256 << 10)

#if defined(_OPENMP)
/* Share `index` of `of`: whole lines of 64 bytes, so that no two threads write to one line of an
 * aligned destination. */
static void call_range(twill_range_fn apply, const void *job, size_t count, size_t element,
                       size_t index, size_t of)
{
    const size_t line = TWILL_CACHE_LINE / element;
    size_t lines = count / line + 1, each = lines / of, extra = lines % of;
    size_t first = index * each + twill_min(index, extra);
    size_t from = twill_min(first * line, count);
    size_t to = twill_min((first + each + (index < extra)) * line, count);
    apply(job, from, to - from);
}
#endif

/* How many threads to take of those lent. */
static int work_threads(size_t bytes, int threads)
{
#if defined(_OPENMP)
    if (threads <= 1 || bytes < 2 * THREAD_BYTES)
        return 1;
    size_t lent = twill_min((size_t)threads, (size_t)omp_get_max_threads());
    return (int)twill_min(lent, bytes / THREAD_BYTES);
#else
    (void)bytes;
    (void)threads;
    return 1;
#endif
}

void twill_split(twill_range_fn apply, const void *job, size_t count, size_t element, int threads)
{
    threads = work_threads(count * element, threads);
#if defined(_OPENMP)
    if (threads > 1) {
#pragma omp parallel num_threads(threads)
        call_range(apply, job, count, element, (size_t)omp_get_thread_num(),
                   (size_t)omp_get_num_threads());
        return;
    }
#endif
    apply(job, 0, count);
}
