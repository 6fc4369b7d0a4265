/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions and copies, in one table per instruction set, all with the same results bit for bit.
 *
 * A kernel reduces nsrc sources in the order given, in one pass
 *     dst[i] = ((src[0][i] op src[1][i]) op src[2][i]) ...
 * dst may be one of the sources. Otherwise nothing overlaps. Pointers may have any alignment. 8-
 * and 16-bit floats are reduced in f32 and rounded once, at the end of the pass. A NaN result is
 * the canonical quiet NaN, which is positive with only the first bit of the mantissa set (f8e5m2:
 * 0x7e). f8e4m3 has a single NaN, 0x7f, to which overflow also rounds. Integers wrap at their
 * width, as does the sum of an average, which is then divided and truncated.
 *
 * Pairs (minloc, maxloc) are {value; int32_t index}, laid out as C structs. Padding is written as
 * zeros. The order is total: NaN first, then the value as for min and max, then the lower index.
 *
 * A reduction that continues elsewhere leaves a partial: for sum, prod and avg of 8- and 16-bit
 * floats an f32, neither rounded nor divided. Otherwise it is an element, undivided for avg. */
#ifndef TWILL_KERNELS_H
#define TWILL_KERNELS_H

#include "lib/base/base.h"

#define TWILL_KERNEL_MAX_SOURCES      8
#define TWILL_KERNEL_MAX_DESTINATIONS 8

enum twill_kernel_flags {
    /* Store past the caches, for a destination that would have left them before it is read. This is
     * slower if everything fits L2, and faster if it exceeds L3. In between, the reader pays. */
    TWILL_KERNEL_STREAM = 1,
    /* A source or a destination is in the caches of another core, so lines are asked for ahead.
       Only copies do, and reductions of two sources of common types. */
    TWILL_KERNEL_FETCH = 2
};

/* Reduce nsrc (1 to 8) sources of raw elements. Only TWILL_AVG reads `divisor` (at least 1), by
 * which the sum is divided (integers towards zero) before it is rounded and stored. A kernel called
 * directly uses the thread's floating-point environment. twill_kernels_reduce() makes sure that it
 * rounds to nearest even and keeps denormals. */
typedef void (*twill_reduce_fn)(void *dst, const void *const *src, unsigned nsrc, size_t count,
                                uint32_t divisor, unsigned flags);
/* Like twill_reduce_fn, but store to each of ndst (2 to 8) destinations. One may be a source. */
typedef void (*twill_spread_fn)(void *const *dst, unsigned ndst, const void *const *src,
                                unsigned nsrc, size_t count, uint32_t divisor, unsigned flags);
/* Like twill_spread_fn for a sum, product or average of floats, to 1 to 8 destinations. Stop before
 * the first batch of elements that has a NaN or infinity in its result, or at the end if no whole
 * batch is left. Of the flags only TWILL_KERNEL_FETCH matters. Returns the number of elements that
 * are reduced and stored. */
typedef size_t (*twill_finite_fn)(void *const *dst, unsigned ndst, const void *const *src,
                                  unsigned nsrc, size_t count, twill_op op, uint32_t divisor,
                                  unsigned flags);
typedef void (*twill_copy_fn)(void *dst, const void *src, size_t bytes, unsigned flags);
/* Convert elements to f32, exactly, or back, rounded. A NaN becomes the canonical one. */
typedef void (*twill_convert_fn)(void *dst, const void *src, size_t count);
/* Return whether an element is a NaN or infinity. */
typedef bool (*twill_exceeds_fn)(const void *src, size_t count);
/* Return the CRC32C (Castagnoli, RFC 3720) of the data whose CRC32C is `crc`, followed by these
 * bytes. With `crc` 0 it is that of these bytes alone. */
typedef uint32_t (*twill_crc32c_fn)(uint32_t crc, const void *data, size_t bytes);

/* The table of the kernels of one instruction set, a constant. */
struct twill_kernels {
    const char *isa;         /* "scalar", "avx2", "avx512f" */
    bool (*supported)(void); /* decided by CPUID and the operating system's state, never by model */
    twill_reduce_fn reduce[TWILL_TYPE_COUNT][TWILL_OP_COUNT]; /* NULL if not defined */
    twill_spread_fn spread[TWILL_TYPE_COUNT][TWILL_OP_COUNT]; /* NULL for reduce, then copy */
    twill_convert_fn widen[TWILL_TYPE_COUNT];   /* to f32, NULL except for 8- and 16-bit floats */
    twill_convert_fn narrow[TWILL_TYPE_COUNT];  /* from f32, NULL except for these */
    twill_exceeds_fn exceeds[TWILL_TYPE_COUNT]; /* NULL for integers */
    twill_finite_fn finite[TWILL_TYPE_COUNT];   /* NULL except for floats of 16 bits or more */
    twill_copy_fn copy;
    twill_crc32c_fn crc32c;
    const struct twill_training_kernels *training; /* for optimizer.h and quantize.h */
};

/* Select the table of a name, or with NULL or "auto" the best that this machine runs. An unknown or
 * unsupported name is TWILL_ERR_CONFIG, with a message that lists the tables. */
twill_status twill_kernels_select(const struct twill_kernels **kernels, const char *isa,
                                  struct twill_error *error);
/* Return table number `index` of those built in, the best one last, or NULL past the end. */
const struct twill_kernels *twill_kernels_at(size_t index);
/* Return whether the operation is defined for the type. */
bool twill_kernels_takes(twill_type type, twill_op op);
/* Return the bytes of an element, for minloc and maxloc of a pair, or 0 if not defined. */
size_t twill_kernels_element(twill_type type, twill_op op);
/* Return the bytes of an element of a partial, or 0 if not defined. */
size_t twill_kernels_partial(twill_type type, twill_op op);

struct twill_thread_pool; /* kernels/thread_pool.h */

/* The parameters of a reduction, without its data. A variable of the caller. */
struct twill_reduction {
    twill_type type;
    twill_op op;
    uint32_t divisor;         /* at least 1, read by TWILL_AVG when the result is final */
    uint32_t partial_sources; /* bit i is set if src[i] is a partial. If not, it has type `type` */
    bool partial_result;      /* whether dst becomes a partial. If not, the result is divided for
                                 TWILL_AVG, rounded to `type` and called final */
    const float *after;       /* NULL, or points to a factor by which a final result of 8- or 16-bit
                                 floats is multiplied before it is rounded */
    unsigned flags;           /* enum twill_kernel_flags */
    struct twill_thread_pool *pool; /* threads that share the work, or NULL for the caller alone */
};

/* Compute dst[i] = ((src[0][i] op src[1][i]) op ...) from nsrc (1 to 8) sources, any mix of raw and
 * partial. The bits are those of reducing in f32 from left to right and rounding at the end. dst
 * may be a source whose elements are as wide as those of dst. Otherwise nothing overlaps. A single
 * source is copied, widened or finished. The result does not depend on the floating-point
 * environment. */
void twill_kernels_reduce(const struct twill_kernels *kernels,
                          const struct twill_reduction *reduction, void *dst,
                          const void *const *src, unsigned nsrc, size_t count);
/* Reduce as twill_kernels_reduce() does, but store the result to each of ndst (1 to 8) destinations
 * in one pass. A destination may also be a source, if the elements of both are equally wide. */
void twill_kernels_spread(const struct twill_kernels *kernels,
                          const struct twill_reduction *reduction, void *const *dst, unsigned ndst,
                          const void *const *src, unsigned nsrc, size_t count);
/* Reduce as twill_kernels_spread() does, but stop before a batch of elements of which a source may
 * have a NaN or infinity. Such an element makes the result of a sum, product or average a NaN or
 * infinity. Returns the number of elements that are reduced and stored. It is 0 for other
 * operations, 8-bit floats and integers, and if threads would share the work or 16-bit floats need
 * f32 in between. */
size_t twill_kernels_spread_finite(const struct twill_kernels *kernels,
                                   const struct twill_reduction *reduction, void *const *dst,
                                   unsigned ndst, const void *const *src, unsigned nsrc,
                                   size_t count);
/* Compute dst[i] = *factor * src[i], where src is raw and dst a partial of TWILL_SUM. For 8- and
 * 16-bit floats *factor and dst are f32, else of the type. With `rounds` dst is also raw, and
 * *factor as before. dst may be src if equally wide. */
void twill_kernels_scale(const struct twill_kernels *kernels, twill_type type, void *dst,
                         const void *src, const void *factor, bool rounds, size_t count,
                         struct twill_thread_pool *pool);
/* Copy bytes, which do not overlap, or do nothing if dst is src. `flags` are those of enum
 * twill_kernel_flags. The threads of `pool`, unless it is NULL, share the work. */
void twill_kernels_copy(const struct twill_kernels *kernels, void *dst, const void *src,
                        size_t bytes, unsigned flags, struct twill_thread_pool *pool);
/* Return the index of the first element that is a NaN or infinity, or `count` if none is. The
 * threads of `pool`, unless it is NULL, share the work. */
size_t twill_kernels_find_nan(const struct twill_kernels *kernels, twill_type type, const void *src,
                              size_t count, struct twill_thread_pool *pool);
/* Reduce nsrc sources whose elements have type `type` to dst, divided for TWILL_AVG and rounded.
 * This is twill_kernels_reduce() without partials. The arguments are as in struct
 * twill_reduction. */
static inline void twill_kernels_reduce_raw(const struct twill_kernels *kernels, twill_type type,
                                            twill_op op, void *dst, const void *const *src,
                                            unsigned nsrc, size_t count, uint32_t divisor,
                                            unsigned flags, struct twill_thread_pool *pool)
{
    const struct twill_reduction reduction = {
        .type = type, .op = op, .divisor = divisor, .flags = flags, .pool = pool};
    twill_kernels_reduce(kernels, &reduction, dst, src, nsrc, count);
}

#endif
