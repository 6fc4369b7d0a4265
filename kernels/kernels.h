/* SPDX-License-Identifier: Apache-2.0 */
/* The reductions and copies, one table per instruction set, all equal bit for bit.
 *
 * A kernel folds nsrc sources in the order given, in one pass over memory:
 *     dst[i] = ((src[0][i] op src[1][i]) op src[2][i]) ...
 * dst may be the very same address as one of the sources, else nothing overlaps. 8- and 16-bit
 * floats are folded in f32 and rounded once, at the end of the pass. A NaN result is the canonical
 * quiet NaN: positive, only the first bit of the mantissa set (f8e5m2: 0x7e); f8e4m3 has but one,
 * 0x7f, and it is also what overflow rounds to. Integers wrap at their width, the sum of an average
 * too, which is then divided and truncated. Pointers are aligned to the element, no more.
 *
 * Pairs (minloc, maxloc) are {value; int32_t index}, laid out as C structs; padding comes out as
 * zeros. The order is total: NaN first, then the value as for min and max, then the lower index.
 *
 * A fold that goes on elsewhere leaves a partial: for sum, prod and avg of 8- and 16-bit floats
 * f32, neither rounded nor divided; else an element, of avg not yet divided. */
#ifndef TWILL_KERNELS_H
#define TWILL_KERNELS_H

#include "lib/base.h"

#define TWILL_KERNEL_MAX_SOURCES      8
#define TWILL_KERNEL_MAX_DESTINATIONS 8

enum twill_kernel_flags {
    /* Store past the caches: for a destination that will not be read before it would have left
     * them. Measured on Zen 5 (1 MiB L2, 32 MiB L3), f32 sum of two: where everything fits L2 it
     * costs up to a factor of 4; within L3 it gains 5 to 15 % and the reader pays for it; from
     * about the size of L3 (16 MiB per array) on it gains 25 to 45 %, a copy 50 %. */
    TWILL_KERNEL_STREAM = 1
};

/* nsrc is 1..8, all elements raw. divisor (at least 1) is read by TWILL_AVG only: the sum is
 * divided by it (integers towards zero) before it is rounded and stored. Called directly, a kernel
 * rounds and treats denormals as the thread's floating-point environment says; twill_kernels_reduce
 * makes sure of nearest even and of denormals kept. */
typedef void (*twill_reduce_fn)(void *dst, const void *const *src, unsigned nsrc, size_t count,
                                uint32_t divisor, unsigned flags);
/* The same to several places at once, 2..8 of them: each of dst[] gets every element. One of them
 * may be a source. */
typedef void (*twill_spread_fn)(void *const *dst, unsigned ndst, const void *const *src,
                                unsigned nsrc, size_t count, uint32_t divisor, unsigned flags);
typedef void (*twill_copy_fn)(void *dst, const void *src, size_t bytes, unsigned flags);
/* From elements to f32, exact, or back, rounded; a NaN becomes the canonical one. */
typedef void (*twill_convert_fn)(void *dst, const void *src, size_t count);

struct twill_kernels {
    const char *isa;         /* "scalar", "avx2", "avx512f" */
    bool (*supported)(void); /* by CPUID and the operating system's state, never by model */
    twill_reduce_fn reduce[TWILL_TYPE_COUNT][TWILL_OP_COUNT]; /* NULL: has no meaning */
    twill_spread_fn spread[TWILL_TYPE_COUNT][TWILL_OP_COUNT]; /* NULL: by strips and copies */
    twill_convert_fn widen[TWILL_TYPE_COUNT];  /* NULL but for 8- and 16-bit floats */
    twill_convert_fn narrow[TWILL_TYPE_COUNT]; /* likewise */
    twill_copy_fn copy;
};

/* The table of this name, or the best this machine runs for NULL or "auto". An unknown or
 * unsupported name is TWILL_ERR_CONFIG with a message that lists what there is. */
twill_status twill_kernels_select(const struct twill_kernels **kernels, const char *isa,
                                  struct twill_error *error);
/* All tables compiled in, best last; NULL past the end. */
const struct twill_kernels *twill_kernels_at(size_t index);

/* Whether the operation has a meaning for the type. */
bool twill_kernels_takes(twill_type type, twill_op op);
/* Bytes of an element: of a pair for minloc and maxloc. 0 if the operation has no meaning. */
size_t twill_kernels_element(twill_type type, twill_op op);
/* Bytes of an element of a partial; likewise. */
size_t twill_kernels_partial(twill_type type, twill_op op);

/* What a fold is, but for its data. */
struct twill_reduction {
    twill_type type;
    twill_op op;
    uint32_t divisor;         /* at least 1; read by TWILL_AVG when the result is final */
    uint32_t partial_sources; /* bit i: src[i] is a partial; the others are raw */
    bool partial_result;      /* dst is to be a partial; else it is final: divided, rounded */
    unsigned flags;           /* enum twill_kernel_flags */
    int threads;              /* what the caller of twill lent */
};

/* dst[i] = ((src[0][i] op src[1][i]) op ...), nsrc (1..8) of them, whatever mix of raw and partial:
 * the bits are those of folding in f32 from left to right and rounding at the end. dst may be the
 * very same address as a source whose elements are as wide as those of dst, else nothing overlaps.
 * One source is widened, or finished, or passed on.
 *
 * The same bits in any floating-point environment; split over at most `threads` OpenMP threads
 * where that pays (1 without OpenMP; never more than omp_get_max_threads()). */
void twill_kernels_reduce(const struct twill_kernels *kernels,
                          const struct twill_reduction *reduction, void *dst,
                          const void *const *src, unsigned nsrc, size_t count);

/* The same to each of dst[], 1..8 of them, in one pass: what is stored is read no more. Any of them
 * may be a source as above. */
void twill_kernels_spread(const struct twill_kernels *kernels,
                          const struct twill_reduction *reduction, void *const *dst, unsigned ndst,
                          const void *const *src, unsigned nsrc, size_t count);

/* dst[i] = *factor * src[i], src raw, dst a partial of TWILL_SUM: for 8- and 16-bit floats *factor
 * is a float and dst are f32; else both are of the type. dst may be src if equally wide. */
void twill_kernels_scale(const struct twill_kernels *kernels, twill_type type, void *dst,
                         const void *src, const void *factor, size_t count, int threads);

void twill_kernels_copy(const struct twill_kernels *kernels, void *dst, const void *src,
                        size_t bytes, unsigned flags, int threads);

/* A fold from raw to final. */
static inline void twill_kernels_reduce_raw(const struct twill_kernels *kernels, twill_type type,
                                            twill_op op, void *dst, const void *const *src,
                                            unsigned nsrc, size_t count, uint32_t divisor,
                                            unsigned flags, int threads)
{
    const struct twill_reduction reduction = {
        .type = type, .op = op, .divisor = divisor, .flags = flags, .threads = threads};
    twill_kernels_reduce(kernels, &reduction, dst, src, nsrc, count);
}

#endif
