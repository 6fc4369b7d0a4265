/* SPDX-License-Identifier: Apache-2.0 */
/* Lossy compression of gradients: blocks of 8-bit codes with a scale, narrow floats, and the
 * largest elements of an array, each with error feedback. The bits are the same by every
 * instruction set.
 *
 * Error feedback (Seide et al. 2014) encodes v = prescale * gradient + residual. The part that the
 * code lacks is the next residual, so that nothing is lost but only delayed. Residuals start as
 * zeros.
 *
 * A block of n elements is an opaque element of 4 + n bytes: a scale in f32, then a code for each.
 * An element's value is code * scale. If a is the largest magnitude of the block, the scale is a /
 * 127 (int8, codes -127 .. 127), a / 448 (e4m3) or a / 57344 (e5m2), and codes are rounded to
 * nearest even. The error of an element is at most 0.501 scale for int8, and of its value 2^-4 for
 * e4m3 and 2^-3 for e5m2. Below 2^-6 scale (e4m3) or 2^-14 scale (e5m2), where codes are denormal,
 * it is at most 2^-10 scale or 2^-17 scale (times 1 + 2^-20, for the rounding of the scale). If a
 * is below 2^-100, scale and codes are zeros.
 *
 * If a block has a NaN or an infinity, its scale is the canonical NaN and its codes are zeros. All
 * of it then decodes to NaN, and so does every sum with it. Its residual is left as it was, so a
 * step that is skipped for its NaN costs nothing later. */
#ifndef TWILL_QUANTIZE_H
#define TWILL_QUANTIZE_H

#include "kernels/kernels.h"

#define TWILL_BLOCK_DEFAULT 256
#define TWILL_BLOCK_LEAST   32
#define TWILL_BLOCK_MOST    1024

/* The format of a block of codes, passed by value. */
struct twill_block_format {
    twill_type code;   /* TWILL_I8, TWILL_F8E4M3 or TWILL_F8E5M2 */
    uint32_t elements; /* of a block, a multiple of 32 in TWILL_BLOCK_LEAST .. _MOST */
};

/* Return whether a format has a code and a size that are supported. */
bool twill_block_format_valid(struct twill_block_format format);
/* Return the bytes of a block, 4 for the scale and one for each element. */
size_t twill_block_bytes(struct twill_block_format format);
/* Return how many blocks `count` elements take. The codes behind the last element are zeros. */
size_t twill_block_count(struct twill_block_format format, size_t count);

/* Encode prescale * gradient + residual, `count` elements of type TWILL_F32, TWILL_F16 or
 * TWILL_BF16, in one pass over memory. residual[count] then becomes what the codes have lost, for
 * the next call. It is NULL for no error feedback. `blocks` needs an alignment of 4. Nothing
 * overlaps. The threads of `pool`, unless it is NULL, share
 * the work. */
void twill_quantize(const struct twill_kernels *kernels, struct twill_block_format format,
                    void *blocks, twill_type type, const void *gradient, float *residual,
                    float prescale, size_t count, struct twill_thread_pool *pool);
/* Decode `sources` (1 to 8) arrays of blocks, add them in f32 in the order given, multiply by
 * `scale` and store `count` elements of TWILL_F32, TWILL_F16 or TWILL_BF16. Nothing overlaps. */
void twill_dequantize(const struct twill_kernels *kernels, struct twill_block_format format,
                      twill_type type, void *dst, const void *const *blocks, unsigned sources,
                      float scale, size_t count, struct twill_thread_pool *pool);
/* Add `sources` (1 to 8) arrays of blocks in f32 in the order given and encode the sums anew, with
 * new scales, as one hop of a reduction does. dst may be a source. */
void twill_quantized_add(const struct twill_kernels *kernels, struct twill_block_format format,
                         void *dst, const void *const *src, unsigned sources, size_t blocks,
                         struct twill_thread_pool *pool);
/* Round `count` elements of type TWILL_F32, TWILL_F16 or TWILL_BF16 to a narrow type (TWILL_F16,
 * TWILL_BF16, TWILL_F8E4M3 or TWILL_F8E5M2) without a scale, with error feedback unless `residual`
 * is NULL. If a code is not finite (NaN, or too large a value), its residual is left as it was. */
void twill_narrow(const struct twill_kernels *kernels, twill_type narrow, void *dst,
                  twill_type type, const void *gradient, float *residual, float prescale,
                  size_t count, struct twill_thread_pool *pool);
/* Compute residual += prescale * gradient, from which a sparse exchange then selects. */
void twill_accumulate(const struct twill_kernels *kernels, float *residual, twill_type type,
                      const void *gradient, float prescale, size_t count,
                      struct twill_thread_pool *pool);

/* Elements of an array, in the order of their indices. The caller owns both arrays. Their number is
 * not in it, but an argument or the result of the function that uses it. */
struct twill_sparse {
    uint32_t *index;
    float *value;
};

/* Move the k elements of the largest magnitude from `values` to `chosen`, and set them to zero in
 * `values`, which is then the residual. Elements of lower index come first among equals, and a NaN
 * is larger than every number. `count` is below 2^32, and k is at most `count`. The time is linear,
 * as a sample gives a bound, and elements above it are counted by their bits. Threads of the
 * pool, which may be NULL, share the work. Returns k. */
size_t twill_select_largest(const struct twill_kernels *kernels, float *values, size_t count,
                            size_t k, struct twill_sparse chosen, struct twill_thread_pool *pool);
/* Move the elements whose magnitude is at least `threshold` (>= 0), and NaNs, from `values` to
 * `chosen`, and set them to zero in `values`. If they are more than `most`, move only the `most`
 * largest of them. Returns how many were moved. */
size_t twill_select_above(const struct twill_kernels *kernels, float *values, size_t count,
                          float threshold, size_t most, struct twill_sparse chosen,
                          struct twill_thread_pool *pool);
/* Compute dst[index[i]] += scale * value[i] for n elements of f32, in their order, but only those
 * whose index is one of `count` from `first` on. So each thread can add those of its part. */
void twill_scatter_add_part(void *dst, size_t first, size_t count, const uint32_t *index,
                            const float *value, size_t n, float scale);
/* Compute dst[index[i]] += scale * value[i] for n elements of f32, in their order. Returns false,
 * and changes nothing, if an index is not below `count`. */
bool twill_scatter_add(void *dst, size_t count, const uint32_t *index, const float *value, size_t n,
                       float scale);

#endif
