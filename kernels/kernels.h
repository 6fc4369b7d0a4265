/* SPDX-License-Identifier: Apache-2.0 */
/* The reductions and copies, one table per instruction set, all equal bit for bit.
 *
 * A kernel folds nsrc sources in the order given, in one pass over memory:
 *     dst[i] = ((src[0][i] op src[1][i]) op src[2][i]) ...
 * dst may be the very same address as one of the sources, else nothing overlaps. 16-bit floats are
 * folded in f32 and rounded once, at the end of the pass. A NaN result is the canonical quiet NaN.
 * Pointers are aligned to the element, no more. */
#ifndef TWILL_KERNELS_H
#define TWILL_KERNELS_H

#include "lib/base.h"

#define TWILL_KERNEL_MAX_SOURCES 8

enum twill_kernel_flags {
    /* Store past the caches: for a destination that will not be read before it would have left
     * them. Measured on Zen 5 (1 MiB L2, 32 MiB L3), f32 sum of two: where everything fits L2 it
     * costs up to a factor of 4; within L3 it gains 5 to 15 % and the reader pays for it; from
     * about the size of L3 (16 MiB per array) on it gains 25 to 45 %, a copy 50 %. */
    TWILL_KERNEL_STREAM = 1
};

/* nsrc is 1..8. divisor (at least 1) is read by TWILL_AVG only: the sum is divided by it (integers
 * towards zero) before it is rounded and stored. Called directly, a kernel rounds and treats
 * denormals as the thread's floating-point environment says; twill_kernels_reduce makes sure of
 * nearest even and of denormals kept. */
typedef void (*twill_reduce_fn)(void *dst, const void *const *src, unsigned nsrc, size_t count,
                                uint32_t divisor, unsigned flags);
typedef void (*twill_copy_fn)(void *dst, const void *src, size_t bytes, unsigned flags);

struct twill_kernels {
    const char *isa;         /* "scalar", "avx2", "avx512f" */
    bool (*supported)(void); /* by CPUID and the operating system's state, never by model */
    twill_reduce_fn reduce[TWILL_TYPE_COUNT][TWILL_OP_COUNT];
    twill_copy_fn copy;
};

/* The table of this name, or the best this machine runs for NULL or "auto". An unknown or
 * unsupported name is TWILL_ERR_CONFIG with a message that lists what there is. */
twill_status twill_kernels_select(const struct twill_kernels **kernels, const char *isa,
                                  struct twill_error *error);
/* All tables compiled in, best last; NULL past the end. */
const struct twill_kernels *twill_kernels_at(size_t index);

/* Run a kernel, with the same bits in any floating-point environment, split over at most `threads`
 * OpenMP threads where that pays (1 without OpenMP; never more than omp_get_max_threads()). threads
 * is what the caller of twill gave us. */
void twill_kernels_reduce(const struct twill_kernels *kernels, twill_type type, twill_op op,
                          void *dst, const void *const *src, unsigned nsrc, size_t count,
                          uint32_t divisor, unsigned flags, int threads);
void twill_kernels_copy(const struct twill_kernels *kernels, void *dst, const void *src,
                        size_t bytes, unsigned flags, int threads);

#endif
