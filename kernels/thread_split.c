/* SPDX-License-Identifier: Apache-2.0 */
/* Splits large reductions and copies over OpenMP threads. */
#include "kernels/isa.h"
#include "kernels/kernels.h"

#if defined(_OPENMP)
#include <omp.h>
#endif

/* Least bytes of the destination per thread. On Zen 5 two threads take 5 us for 512 KiB where one
 * takes 14. At 64 KiB they lose if they have gone to sleep. */
#define THREAD_BYTES ((size_t)256 << 10)

#if defined(_OPENMP)
/* Call `apply` for range number `index` of the `of` ranges into which `count` elements are split.
 * All ranges begin at a multiple of `line` elements. */
static void call_range(twill_range_fn apply, const void *job, size_t count, size_t line,
                       size_t index, size_t of)
{
    size_t lines = count / line + 1, each = lines / of, extra = lines % of;
    size_t first = index * each + twill_min(index, extra);
    size_t from = twill_min(first * line, count);
    size_t to = twill_min((first + each + (index < extra)) * line, count);
    apply(job, from, to - from);
}
#endif

/* Return how many threads to use to write `bytes` bytes, at most `threads`. */
static int work_threads(size_t bytes, int threads)
{
#if defined(_OPENMP)
    if (threads <= 1 || bytes < 2 * THREAD_BYTES)
        return 1;
    size_t most = twill_min((size_t)threads, (size_t)omp_get_max_threads());
    return (int)twill_min(most, bytes / THREAD_BYTES);
#else
    (void)bytes;
    (void)threads;
    return 1;
#endif
}

/* Call apply(job, first, n) for ranges that together are the elements 0 to count-1, each range in
 * its own thread. `bytes`, the size of all that is written, and `threads` bound the number of
 * threads. All ranges begin at a multiple of `line` elements. */
static void split_lines(twill_range_fn apply, const void *job, size_t count, size_t line,
                        size_t bytes, int threads)
{
    threads = work_threads(bytes, threads);
#if defined(_OPENMP)
    if (threads > 1) {
#pragma omp parallel num_threads(threads)
        call_range(apply, job, count, line, (size_t)omp_get_thread_num(),
                   (size_t)omp_get_num_threads());
        return;
    }
#else
    (void)line;
#endif
    apply(job, 0, count);
}

/* Lines have 64 bytes, so that no two threads write to one line of an aligned destination. */
void twill_split(twill_range_fn apply, const void *job, size_t count, size_t element, int threads)
{
    split_lines(apply, job, count, TWILL_CACHE_LINE / element, count * element, threads);
}

void twill_split_blocks(twill_range_fn apply, const void *job, size_t blocks, size_t bytes,
                        int threads)
{
    split_lines(apply, job, blocks, 1, blocks * bytes, threads);
}

size_t twill_kernels_shared_from(int threads)
{
#if defined(_OPENMP)
    threads = twill_min(threads, omp_get_max_threads());
    return threads > 1 ? (size_t)threads * THREAD_BYTES : 0;
#else
    (void)threads;
    return 0;
#endif
}
