/* SPDX-License-Identifier: Apache-2.0 */
/* Large reductions and copies over the OpenMP threads the caller lent. */
#include "kernels/isa.h"

#if defined(_OPENMP)
#include <omp.h>
#endif

/* The least a thread is woken for, in bytes of the destination. Measured on Zen 5, two threads, f32
 * sum of two sources: entering a team costs 0.5 us while its threads spin and 7 us once they sleep.
 * At 512 KiB two threads take 5 us where one takes 14; at 64 KiB they are even, and sleeping ones
 * lose. */
#define SHARE_BYTES ((size_t)256 << 10)

static const size_t element_size[TWILL_TYPE_COUNT] = {
    [TWILL_F32] = sizeof(element_f32), [TWILL_F64] = sizeof(element_f64),
    [TWILL_I32] = sizeof(element_i32), [TWILL_I64] = sizeof(element_i64),
    [TWILL_F16] = sizeof(element_f16), [TWILL_BF16] = sizeof(element_bf16)};

struct work {
    twill_reduce_fn reduce; /* NULL: copy src[0] */
    twill_copy_fn copy;
    void *dst;
    const void *const *src;
    size_t bytes, element;
    unsigned nsrc, flags;
    uint32_t divisor;
    bool integer;
};

/* A caller built with -ffast-math runs with denormals flushed, another may round upwards; ranks and
 * threads may differ. Results have the same bits everywhere, so a fold of floats rounds to nearest
 * and keeps denormals whatever it finds (MXCSR; 5 ns), and puts that back. Elsewhere than on x86-64
 * the caller's environment holds. */
static void fold(const struct work *work, void *dst, const void *const *src, size_t count)
{
#if defined(__x86_64__)
    const unsigned modes = 0xe040; /* flush to zero, rounding, denormals are zero */
    unsigned found = work->integer ? 0 : __builtin_ia32_stmxcsr();
    if (TWILL_UNLIKELY(found & modes)) {
        __builtin_ia32_ldmxcsr(found & ~modes);
        work->reduce(dst, src, work->nsrc, count, work->divisor, work->flags);
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | (found & modes));
        return;
    }
#endif
    work->reduce(dst, src, work->nsrc, count, work->divisor, work->flags);
}

/* Share `index` of `of`: whole lines of 64 bytes, so that no two threads write to one line of an
 * aligned destination. */
static void work_share(const struct work *work, size_t index, size_t of)
{
    size_t lines = work->bytes / TWILL_CACHE_LINE + 1, each = lines / of, extra = lines % of;
    size_t first = index * each + twill_min(index, extra);
    size_t from = twill_min(first * TWILL_CACHE_LINE, work->bytes);
    size_t to = twill_min((first + each + (index < extra)) * TWILL_CACHE_LINE, work->bytes);
    const void *src[TWILL_KERNEL_MAX_SOURCES];
    for (unsigned s = 0; s < work->nsrc; s++)
        src[s] = (const char *)work->src[s] + from;
    if (work->reduce)
        fold(work, (char *)work->dst + from, src, (to - from) / work->element);
    else
        work->copy((char *)work->dst + from, src[0], to - from, work->flags);
}

/* How many threads to take of those lent. */
static int work_threads(size_t bytes, int threads)
{
#if defined(_OPENMP)
    if (threads <= 1 || bytes < 2 * SHARE_BYTES)
        return 1;
    size_t lent = twill_min((size_t)threads, (size_t)omp_get_max_threads());
    return (int)twill_min(lent, bytes / SHARE_BYTES);
#else
    (void)bytes;
    (void)threads;
    return 1;
#endif
}

static void work_split(const struct work *work, int threads)
{
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads)
    work_share(work, (size_t)omp_get_thread_num(), (size_t)omp_get_num_threads());
#else
    (void)threads;
    work_share(work, 0, 1);
#endif
}

void twill_kernels_reduce(const struct twill_kernels *kernels, twill_type type, twill_op op,
                          void *dst, const void *const *src, unsigned nsrc, size_t count,
                          uint32_t divisor, unsigned flags, int threads)
{
    struct work work = {.reduce = kernels->reduce[type][op],
                        .dst = dst,
                        .src = src,
                        .bytes = count * element_size[type],
                        .element = element_size[type],
                        .nsrc = nsrc,
                        .flags = flags,
                        .divisor = divisor,
                        .integer = type == TWILL_I32 || type == TWILL_I64};
    threads = work_threads(work.bytes, threads);
    if (threads > 1)
        work_split(&work, threads);
    else
        fold(&work, dst, src, count);
}

void twill_kernels_copy(const struct twill_kernels *kernels, void *dst, const void *src,
                        size_t bytes, unsigned flags, int threads)
{
    threads = work_threads(bytes, threads);
    if (threads <= 1) {
        kernels->copy(dst, src, bytes, flags);
        return;
    }
    struct work work = {
        .copy = kernels->copy, .dst = dst, .src = &src, .bytes = bytes, .nsrc = 1, .flags = flags};
    work_split(&work, threads);
}
