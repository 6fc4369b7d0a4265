/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions and copies: one table per instruction set, all with the same results bit for bit.
 *
 * A kernel reduces nsrc sources in the order given, in one pass over memory:
 *     dst[i] = ((src[0][i] op src[1][i]) op src[2][i]) ...
 * dst may be one of the sources; otherwise nothing overlaps. 8- and 16-bit floats are reduced in
 * f32 and rounded once, at the end of the pass. A NaN result is the canonical quiet NaN: positive,
 * only the first bit of the mantissa set (f8e5m2: 0x7e); f8e4m3 has only one NaN, 0x7f, to which
 * overflow rounds as well. Integers wrap at their width, as does the sum of an average, which is
 * then divided and truncated. Pointers may have any alignment.
 *
 * Pairs (minloc, maxloc) are {value; int32_t index}, laid out as C structs; padding is written as
 * zeros. The order is total: NaN first, then the value as for min and max, then the lower index.
 *
 * A reduction that continues elsewhere leaves a partial: for sum, prod and avg of 8- and 16-bit
 * floats f32, neither rounded nor divided; otherwise an element, for avg not yet divided. */
#ifndef TWILL_KERNELS_H
#define TWILL_KERNELS_H

#include "lib/base/base.h"

#define TWILL_KERNEL_MAX_SOURCES      8
#define TWILL_KERNEL_MAX_DESTINATIONS 8

enum twill_kernel_flags {
    /* Store past the caches: for a destination that would have left them before it is read.
     * Measured on Zen 5 (1 MiB L2, 32 MiB L3), f32 sum of two: up to 4 times slower if everything
     * fits L2; within L3 5 to 15 % faster, which the reader pays for; from about the size of L3 (16
     * MiB per array) on 25 to 45 % faster, a copy 50 %. */
    TWILL_KERNEL_STREAM = 1
};

/* Reduce nsrc (1..8) sources of raw elements. divisor (at least 1) is read by TWILL_AVG only: the
 * sum is divided by it (integers towards zero) before it is rounded and stored. Called directly, a
 * kernel uses the thread's floating-point environment; twill_kernels_reduce() makes sure that it
 * rounds to nearest even and keeps denormals. */
typedef void (*twill_reduce_fn)(void *dst, const void *const *src, unsigned nsrc, size_t count,
                                uint32_t divisor, unsigned flags);
/* Like twill_reduce_fn, but store the result to each of ndst (2..8) destinations, one of which may
 * be a source. */
typedef void (*twill_spread_fn)(void *const *dst, unsigned ndst, const void *const *src,
                                unsigned nsrc, size_t count, uint32_t divisor, unsigned flags);
typedef void (*twill_copy_fn)(void *dst, const void *src, size_t bytes, unsigned flags);
/* Convert elements to f32, exact, or back, rounded; a NaN becomes the canonical one. */
typedef void (*twill_convert_fn)(void *dst, const void *src, size_t count);
/* Return the CRC32C (Castagnoli; RFC 3720) of the data that `crc` is of, followed by these bytes.
 * 0: of these bytes alone. */
typedef uint32_t (*twill_crc32c_fn)(uint32_t crc, const void *data, size_t bytes);

/* The kernels of one instruction set. Constant. */
struct twill_kernels {
    const char *isa;         /* "scalar", "avx2", "avx512f" */
    bool (*supported)(void); /* by CPUID and the operating system's state, never by model */
    twill_reduce_fn reduce[TWILL_TYPE_COUNT][TWILL_OP_COUNT]; /* NULL: not defined */
    twill_spread_fn spread[TWILL_TYPE_COUNT][TWILL_OP_COUNT]; /* NULL: reduce, then copy */
    twill_convert_fn widen[TWILL_TYPE_COUNT];  /* to f32; NULL except for 8- and 16-bit floats */
    twill_convert_fn narrow[TWILL_TYPE_COUNT]; /* from f32; NULL except for these */
    twill_copy_fn copy;
    twill_crc32c_fn crc32c;
    const struct twill_training_kernels *training; /* for optimizer.h and quantize.h */
};

/* Select the table of a name; NULL or "auto": the best that this machine runs. For an unknown or
 * unsupported name returns TWILL_ERR_CONFIG, with a message that lists the tables. */
twill_status twill_kernels_select(const struct twill_kernels **kernels, const char *isa,
                                  struct twill_error *error);
/* Return table number `index` of those built in, best last; NULL past the end. */
const struct twill_kernels *twill_kernels_at(size_t index);

/* Return whether the operation is defined for the type. */
bool twill_kernels_takes(twill_type type, twill_op op);
/* Return the bytes of an element, for minloc and maxloc of a pair; 0 if not defined. */
size_t twill_kernels_element(twill_type type, twill_op op);
/* Return the bytes of an element of a partial; 0 if not defined. */
size_t twill_kernels_partial(twill_type type, twill_op op);

/* The parameters of a reduction, without its data. */
struct twill_reduction {
    twill_type type;
    twill_op op;
    uint32_t divisor;         /* at least 1; read by TWILL_AVG when the result is final */
    uint32_t partial_sources; /* bit i: src[i] is a partial; the others are raw */
    bool partial_result;      /* dst becomes a partial; else it is final: divided, rounded */
    const float *after;       /* 8- and 16-bit floats, NULL: a final result is multiplied by this
                                 before it is rounded */
    unsigned flags;           /* enum twill_kernel_flags */
    int threads;              /* most OpenMP threads to use: TWILL_THREADS */
};

/* Compute dst[i] = ((src[0][i] op src[1][i]) op ...) from nsrc (1..8) sources, any mix of raw and
 * partial. The bits are those of reducing in f32 from left to right and rounding at the end. dst
 * may be a source whose elements are as wide as those of dst; otherwise nothing overlaps. A single
 * source is copied, widened or finished.
 *
 * The result does not depend on the floating-point environment. The work is split over at most
 * `threads` OpenMP threads if that pays (1 without OpenMP; never more than
 * omp_get_max_threads()). */
void twill_kernels_reduce(const struct twill_kernels *kernels,
                          const struct twill_reduction *reduction, void *dst,
                          const void *const *src, unsigned nsrc, size_t count);

/* Like twill_kernels_reduce(), but store the result to each of ndst (1..8) destinations, in one
 * pass over memory. Each may be a source. */
void twill_kernels_spread(const struct twill_kernels *kernels,
                          const struct twill_reduction *reduction, void *const *dst, unsigned ndst,
                          const void *const *src, unsigned nsrc, size_t count);

/* Compute dst[i] = *factor * src[i], where src is raw and dst a partial of TWILL_SUM: for 8- and
 * 16-bit floats *factor and dst are f32, else of the type. rounds: dst is raw, too; *factor is as
 * before. dst may be src if equally wide. */
void twill_kernels_scale(const struct twill_kernels *kernels, twill_type type, void *dst,
                         const void *src, const void *factor, bool rounds, size_t count,
                         int threads);

void twill_kernels_copy(const struct twill_kernels *kernels, void *dst, const void *src,
                        size_t bytes, unsigned flags, int threads);

/* Reduce raw sources to a final result. */
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
