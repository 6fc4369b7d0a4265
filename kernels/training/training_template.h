/* SPDX-License-Identifier: Apache-2.0 */
/* Included once by each instruction set's file, after all_types.h: vectors of f32 for optimizers
 * and codes. It adds to the primitives of template.h:
 *
 *     TWILL_STEP_REGISTERS      registers of each array in a batch
 *     EACH_REGISTER             the pragma that unrolls a loop over these, or none
 *     splat_f32(x), splat_i32   a register filled with x
 *     sqrt_f32(v)
 *     bits_of_f32, f32_of_bits  reinterpretation as vector_i32 and back
 *     choose_less(a, b, x, y)   a < b ? x : y, for signed vector_i32
 *     add_square(sums, v)       add the squares of v's elements to as many f64, in their order
 *     store_low_bytes(p, v)     store the lowest byte of each element
 *     widen_bytes(p)            load a register's number of signed bytes, as f32
 *     lanes_in(v, low, last)    bit i: element i of v, a vector_i32 >= 0, is in [low, last]
 *     lanes_count(hits)         the number of bits that are set
 *
 * Arithmetic on vectors is that of the compiler's vector extension, which a float also has. */
#include "kernels/training/training.h"

#define STEP_LANES ((size_t)lanes_f32)
/* A batch for all arrays at once: registers [0, registers), or n elements of one register. */
#define EACH(v) EACH_REGISTER for (unsigned v = 0; v < registers; v++)

#define FETCH(type)                                                                                \
    TWILL_INLINE vector_f32 fetch_##type(const void *base, size_t at, size_t n)                    \
    {                                                                                              \
        const element_##type *p = (const element_##type *)base + at;                               \
        return n ? load_tail_##type(p, n) : load_##type(p);                                        \
    }                                                                                              \
    TWILL_INLINE void put_##type(void *base, size_t at, vector_f32 value, size_t n)                \
    {                                                                                              \
        element_##type *p = (element_##type *)base + at;                                           \
        if (n)                                                                                     \
            store_tail_##type(p, value, n);                                                        \
        else                                                                                       \
            store_##type(p, value);                                                                \
    }
FETCH(f32)
FETCH(f16)
FETCH(bf16)
FETCH(f8e4m3)
FETCH(f8e5m2)
#undef FETCH

/* Load f32, f16 or bf16, n elements or, if n is 0, a whole register. */
TWILL_INLINE vector_f32 fetch_any(twill_type type, const void *src, size_t at, size_t n)
{
    switch (type) {
    case TWILL_F16:
        return fetch_f16(src, at, n);
    case TWILL_BF16:
        return fetch_bf16(src, at, n);
    default:
        return fetch_f32(src, at, n);
    }
}

/* Store f32, f16 or bf16, n elements or, if n is 0, a whole register. */
TWILL_INLINE void put_any(twill_type type, void *dst, size_t at, vector_f32 value, size_t n)
{
    switch (type) {
    case TWILL_F16:
        put_f16(dst, at, value, n);
        return;
    case TWILL_BF16:
        put_bf16(dst, at, value, n);
        return;
    default:
        put_f32(dst, at, value, n);
    }
}

/* Return the elements of the register at `at` of `count`, or 0 if it is full. */
TWILL_INLINE size_t part_at(size_t at, size_t count)
{
    return count - at < STEP_LANES ? count - at : 0;
}

#define MAGNITUDE 0x7fffffff
/* Return the bits of the magnitudes. Compared as integers, they have the same order. */
TWILL_INLINE vector_i32 magnitude_of(vector_f32 v)
{
    return bits_of_f32(v) & splat_i32(MAGNITUDE);
}

#include "kernels/training/factors_template.h"
#include "kernels/training/optimizer_template.h"
#include "kernels/training/quantize_template.h"

static const struct twill_training_kernels training_kernels = {
    .update = {[TWILL_OPTIMIZER_SGD] = update_sgd,
               [TWILL_OPTIMIZER_ADAGRAD] = update_adagrad,
               [TWILL_OPTIMIZER_ADAM] = update_adam,
               [TWILL_OPTIMIZER_ADAMW] = update_adamw,
               [TWILL_OPTIMIZER_LARS] = update_lars,
               [TWILL_OPTIMIZER_LAMB] = update_lamb},
    .norms = {[TWILL_OPTIMIZER_LARS] = norms_lars, [TWILL_OPTIMIZER_LAMB] = norms_lamb},
    .squares = {[TWILL_F32] = squares_f32, [TWILL_F16] = squares_f16, [TWILL_BF16] = squares_bf16},
    .encode =
        {[TWILL_I8] = encode_i8, [TWILL_F8E4M3] = encode_f8e4m3, [TWILL_F8E5M2] = encode_f8e5m2},
    .decode =
        {[TWILL_I8] = decode_i8, [TWILL_F8E4M3] = decode_f8e4m3, [TWILL_F8E5M2] = decode_f8e5m2},
    .narrow = {[TWILL_F32] = feedback_f32,
               [TWILL_F16] = feedback_f16,
               [TWILL_BF16] = feedback_bf16,
               [TWILL_F8E4M3] = feedback_f8e4m3,
               [TWILL_F8E5M2] = feedback_f8e5m2},
    .histogram = histogram_f32,
    .count = count_f32,
    .collect = collect_f32,
    .multiply = multiply_factors};
