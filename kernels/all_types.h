/* SPDX-License-Identifier: Apache-2.0 */
/* Instantiates the template for every type, and defines the rows of the table. Included at the end
 * of each instruction set's file, after its primitives. */

/* Sums and products use the functions of the signed type. */
#define TWILL_OPS_UNSIGNED(X, with)                                                                \
    X(MIN, min, with)                                                                              \
    X(MAX, max, with)                                                                              \
    X(AVG, avg, with)                                                                              \
    TWILL_OPS_LOGICAL(X, with)
#define TWILL_OPS_BITS(X, with)                                                                    \
    TWILL_OPS_UNSIGNED(X, with)                                                                    \
    TWILL_OPS_BITWISE(X, with)

#define ELEMENT f32
#define MATH    f32
#define OPS     TWILL_OPS_ARITHMETIC
#define HOT
#define FINITE
#include "kernels/template.h"
#define ELEMENT f64
#define MATH    f64
#define OPS     TWILL_OPS_ARITHMETIC
#define HOT
#define FINITE
#include "kernels/template.h"
#define ELEMENT i8
#define MATH    i8
#define OPS     TWILL_OPS_ARITHMETIC
#include "kernels/template.h"
#define ELEMENT i16
#define MATH    i16
#define OPS     TWILL_OPS_ARITHMETIC
#include "kernels/template.h"
#define ELEMENT i32
#define MATH    i32
#define OPS     TWILL_OPS_ARITHMETIC
#define HOT
#include "kernels/template.h"
#define ELEMENT i64
#define MATH    i64
#define OPS     TWILL_OPS_ARITHMETIC
#define HOT
#include "kernels/template.h"
#define ELEMENT f16
#define MATH    f32
#define OPS     TWILL_OPS_ARITHMETIC
#define NARROW
#define HOT
#define FINITE
#include "kernels/template.h"
#define ELEMENT bf16
#ifdef TWILL_BF16_IN_PAIRS
#define MATH   pair
#define STORED bf16_pairs
#else
#define MATH f32
#endif
#define OPS TWILL_OPS_ARITHMETIC
#define NARROW
#define HOT
#define FINITE
#include "kernels/template.h"
#define ELEMENT f8e4m3
#define MATH    f32
#define OPS     TWILL_OPS_ARITHMETIC
#define NARROW
#include "kernels/template.h"
#define ELEMENT f8e5m2
#define MATH    f32
#define OPS     TWILL_OPS_ARITHMETIC
#define NARROW
#include "kernels/template.h"
#define ELEMENT u8
#define MATH    u8
#define OPS     TWILL_OPS_BITS
#define LOGIC
#include "kernels/template.h"
#define ELEMENT u16
#define MATH    u16
#define OPS     TWILL_OPS_UNSIGNED
#define LOGIC
#include "kernels/template.h"
#define ELEMENT u32
#define MATH    u32
#define OPS     TWILL_OPS_BITS
#define LOGIC
#include "kernels/template.h"
#define ELEMENT u64
#define MATH    u64
#define OPS     TWILL_OPS_UNSIGNED
#define LOGIC
#include "kernels/template.h"

/* Bitwise operations ignore where elements end. Reduce 2 bytes as two of 1, and 8 as two of 4. */
#define TWILL_TWICE(stem, wide, half)                                                              \
    static void reduce_##stem##_##wide(void *dst, const void *const *src, unsigned nsrc,           \
                                       size_t count, uint32_t divisor, unsigned flags)             \
    {                                                                                              \
        reduce_##stem##_##half(dst, src, nsrc, 2 * count, divisor, flags);                         \
    }
#define TWILL_TWICE_BOTH(NOUN, stem, with) TWILL_TWICE(stem, u16, u8) TWILL_TWICE(stem, u64, u32)
TWILL_OPS_BITWISE(TWILL_TWICE_BOTH, )

/* Return whether some float is not finite. The bits of its magnitude, as an integer, exceed those
 * of the largest finite one. */
#define TWILL_EXCEEDS(type, bits, largest)                                                         \
    static bool exceeds_##type(const void *src, size_t count)                                      \
    {                                                                                              \
        const element_u##bits *from = src;                                                         \
        int##bits##_t most = 0;                                                                    \
        for (size_t i = 0; i < count; i++) {                                                       \
            int##bits##_t magnitude = (int##bits##_t)(from[i] & INT##bits##_MAX);                  \
            most = magnitude > most ? magnitude : most;                                            \
        }                                                                                          \
        return most > (largest);                                                                   \
    }
TWILL_EXCEEDS(f32, 32, 0x7f7fffff)
TWILL_EXCEEDS(f64, 64, INT64_C(0x7fefffffffffffff))
TWILL_EXCEEDS(f16, 16, 0x7bff)
TWILL_EXCEEDS(bf16, 16, 0x7f7f)
TWILL_EXCEEDS(f8e4m3, 8, 0x7e)
TWILL_EXCEEDS(f8e5m2, 8, 0x7b)

/* A row of the table, by the type's kind. as_signed and as_unsigned are integers of its size. */
#define TWILL_CELL(NOUN, stem, type)                     [TWILL_##NOUN] = reduce_##stem##_##type,
#define TWILL_LOCATING(NOUN, stem, type)                 [TWILL_##NOUN] = twill_##stem##_##type,
#define TWILL_CELLS_FLOAT(type, as_signed, as_unsigned)  TWILL_OPS_ARITHMETIC(TWILL_CELL, type)
#define TWILL_CELLS_NARROW(type, as_signed, as_unsigned) TWILL_OPS_ARITHMETIC(TWILL_CELL, type)
#define TWILL_CELLS_SIGNED(type, as_signed, as_unsigned)                                           \
    [TWILL_SUM] = reduce_sum_##as_signed, [TWILL_PROD] = reduce_prod_##as_signed,                  \
    [TWILL_MIN] = reduce_min_##type, [TWILL_MAX] = reduce_max_##type,                              \
    [TWILL_AVG] = reduce_avg_##type,                                                               \
    TWILL_OPS_BITWISE(TWILL_CELL, as_unsigned) TWILL_OPS_LOGICAL(TWILL_CELL, as_unsigned)
#define TWILL_CELLS_UNSIGNED TWILL_CELLS_SIGNED
#define TWILL_PAIRS_ALONE(type)
#define TWILL_PAIRS_PAIRED(type) TWILL_OPS_LOCATING(TWILL_LOCATING, type)
#define TWILL_ROW(NOUN, type, bits, kind, pairs, with)                                             \
    [TWILL_##NOUN] = {TWILL_CELLS_##kind(type, i##bits, u##bits) TWILL_PAIRS_##pairs(type)},
#define TWILL_KERNELS_ROWS                                                                         \
    {                                                                                              \
        TWILL_TYPES(TWILL_ROW, )                                                                   \
    }
/* Only for hot types. Sums and products of unsigned integers are those of the signed type. */
#define TWILL_SPREAD_CELL(NOUN, stem, type) [TWILL_##NOUN] = spread_##stem##_##type,
#define TWILL_SPREAD_ROW(type)              TWILL_OPS_ARITHMETIC(TWILL_SPREAD_CELL, type)
#define TWILL_KERNELS_SPREAD                                                                       \
    {                                                                                              \
        [TWILL_F32] = {TWILL_SPREAD_ROW(f32)}, [TWILL_F64] = {TWILL_SPREAD_ROW(f64)},              \
        [TWILL_F16] = {TWILL_SPREAD_ROW(f16)}, [TWILL_BF16] = {TWILL_SPREAD_ROW(bf16)},            \
        [TWILL_I32] = {TWILL_SPREAD_ROW(i32)}, [TWILL_I64] = {TWILL_SPREAD_ROW(i64)},              \
        [TWILL_U32] = {[TWILL_SUM] = spread_sum_i32, [TWILL_PROD] = spread_prod_i32},              \
        [TWILL_U64] = {[TWILL_SUM] = spread_sum_i64, [TWILL_PROD] = spread_prod_i64},              \
    }
#define TWILL_KERNELS_CONVERT(stem)                                                                \
    {                                                                                              \
        TWILL_TYPES(TWILL_CONVERT, stem)                                                           \
    }
#define TWILL_CONVERT(NOUN, type, bits, kind, pairs, stem) TWILL_CONVERT_##kind(NOUN, type, stem)
#define TWILL_CONVERT_NARROW(NOUN, type, stem)             [TWILL_##NOUN] = stem##_##type,
#define TWILL_CONVERT_FLOAT(NOUN, type, stem)
#define TWILL_CONVERT_SIGNED(NOUN, type, stem)
#define TWILL_CONVERT_UNSIGNED(NOUN, type, stem)
/* The members that every table initialises in the same way. */
#define TWILL_KERNELS_MEMBERS                                                                      \
    .reduce = TWILL_KERNELS_ROWS, .spread = TWILL_KERNELS_SPREAD,                                  \
    .widen = TWILL_KERNELS_CONVERT(widen), .narrow = TWILL_KERNELS_CONVERT(narrow), .copy = copy,  \
    .training = &training_kernels,                                                                 \
    .finite = {[TWILL_F32] = finite_f32,                                                           \
               [TWILL_F64] = finite_f64,                                                           \
               [TWILL_F16] = finite_f16,                                                           \
               [TWILL_BF16] = finite_bf16},                                                        \
    .exceeds = {[TWILL_F32] = exceeds_f32,       [TWILL_F64] = exceeds_f64,                        \
                [TWILL_F16] = exceeds_f16,       [TWILL_BF16] = exceeds_bf16,                      \
                [TWILL_F8E4M3] = exceeds_f8e4m3, [TWILL_F8E5M2] = exceeds_f8e5m2}
