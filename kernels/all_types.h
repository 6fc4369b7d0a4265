/* SPDX-License-Identifier: Apache-2.0 */
/* Instantiates the template for every type, and defines the rows of the table. Included at the end
 * of each instruction set's file, after its primitives. */

#define TWILL_OPS_ARITHMETIC(X)                                                                    \
    X(sum, TWILL_SUM)                                                                              \
    X(prod, TWILL_PROD)                                                                            \
    X(min, TWILL_MIN)                                                                              \
    X(max, TWILL_MAX)                                                                              \
    X(avg, TWILL_AVG)
/* Sums and products are those of the signed type. */
#define TWILL_OPS_UNSIGNED(X)                                                                      \
    X(min, TWILL_MIN)                                                                              \
    X(max, TWILL_MAX)                                                                              \
    X(avg, TWILL_AVG)                                                                              \
    X(land, TWILL_LAND)                                                                            \
    X(lor, TWILL_LOR)                                                                              \
    X(lxor, TWILL_LXOR)
#define TWILL_OPS_BITS(X)                                                                          \
    TWILL_OPS_UNSIGNED(X)                                                                          \
    X(band, TWILL_BAND)                                                                            \
    X(bor, TWILL_BOR)                                                                              \
    X(bxor, TWILL_BXOR)

#define ELEMENT f32
#define MATH    f32
#define OPS     TWILL_OPS_ARITHMETIC
#define HOT
#include "kernels/template.h"
#define ELEMENT f64
#define MATH    f64
#define OPS     TWILL_OPS_ARITHMETIC
#define HOT
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

/* Bitwise operations ignore where elements end: reduce those of 2 bytes as twice as many of 1,
 * those of 8 as twice as many of 4. */
#define TWILL_TWICE(stem, wide, half)                                                              \
    static void reduce_##stem##_##wide(void *dst, const void *const *src, unsigned nsrc,           \
                                       size_t count, uint32_t divisor, unsigned flags)             \
    {                                                                                              \
        reduce_##stem##_##half(dst, src, nsrc, 2 * count, divisor, flags);                         \
    }
TWILL_TWICE(band, u16, u8)
TWILL_TWICE(bor, u16, u8)
TWILL_TWICE(bxor, u16, u8)
TWILL_TWICE(band, u64, u32)
TWILL_TWICE(bor, u64, u32)
TWILL_TWICE(bxor, u64, u32)

#define TWILL_ROW(type)                                                                            \
    [TWILL_SUM] = reduce_sum_##type, [TWILL_PROD] = reduce_prod_##type,                            \
    [TWILL_MIN] = reduce_min_##type, [TWILL_MAX] = reduce_max_##type,                              \
    [TWILL_AVG] = reduce_avg_##type
/* `type` is as_signed or as_unsigned. */
#define TWILL_INTEGER_ROW(type, as_signed, as_unsigned)                                            \
    [TWILL_SUM] = reduce_sum_##as_signed, [TWILL_PROD] = reduce_prod_##as_signed,                  \
    [TWILL_MIN] = reduce_min_##type, [TWILL_MAX] = reduce_max_##type,                              \
    [TWILL_AVG] = reduce_avg_##type, [TWILL_BAND] = reduce_band_##as_unsigned,                     \
    [TWILL_BOR] = reduce_bor_##as_unsigned, [TWILL_BXOR] = reduce_bxor_##as_unsigned,              \
    [TWILL_LAND] = reduce_land_##as_unsigned, [TWILL_LOR] = reduce_lor_##as_unsigned,              \
    [TWILL_LXOR] = reduce_lxor_##as_unsigned
#define TWILL_PAIRS(type) [TWILL_MINLOC] = twill_minloc_##type, [TWILL_MAXLOC] = twill_maxloc_##type
#define TWILL_KERNELS_ROWS                                                                         \
    {                                                                                              \
        [TWILL_F32] = {TWILL_ROW(f32), TWILL_PAIRS(f32)},                                          \
        [TWILL_F64] = {TWILL_ROW(f64), TWILL_PAIRS(f64)}, [TWILL_F16] = {TWILL_ROW(f16)},          \
        [TWILL_BF16] = {TWILL_ROW(bf16)}, [TWILL_F8E4M3] = {TWILL_ROW(f8e4m3)},                    \
        [TWILL_F8E5M2] = {TWILL_ROW(f8e5m2)}, [TWILL_I8] = {TWILL_INTEGER_ROW(i8, i8, u8)},        \
        [TWILL_U8] = {TWILL_INTEGER_ROW(u8, i8, u8)},                                              \
        [TWILL_I16] = {TWILL_INTEGER_ROW(i16, i16, u16), TWILL_PAIRS(i16)},                        \
        [TWILL_U16] = {TWILL_INTEGER_ROW(u16, i16, u16)},                                          \
        [TWILL_I32] = {TWILL_INTEGER_ROW(i32, i32, u32), TWILL_PAIRS(i32)},                        \
        [TWILL_U32] = {TWILL_INTEGER_ROW(u32, i32, u32)},                                          \
        [TWILL_I64] = {TWILL_INTEGER_ROW(i64, i64, u64), TWILL_PAIRS(i64)}, [TWILL_U64] = {        \
            TWILL_INTEGER_ROW(u64, i64, u64)                                                       \
        }                                                                                          \
    }
/* For hot types only. Sums and products of unsigned integers are those of the signed type. */
#define TWILL_SPREAD_ROW(type)                                                                     \
    [TWILL_SUM] = spread_sum_##type, [TWILL_PROD] = spread_prod_##type,                            \
    [TWILL_MIN] = spread_min_##type, [TWILL_MAX] = spread_max_##type,                              \
    [TWILL_AVG] = spread_avg_##type
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
        [TWILL_F16] = stem##_f16, [TWILL_BF16] = stem##_bf16, [TWILL_F8E4M3] = stem##_f8e4m3,      \
        [TWILL_F8E5M2] = stem##_f8e5m2                                                             \
    }
/* The members that every table initialises in this way. */
#define TWILL_KERNELS_MEMBERS                                                                      \
    .reduce = TWILL_KERNELS_ROWS, .spread = TWILL_KERNELS_SPREAD,                                  \
    .widen = TWILL_KERNELS_CONVERT(widen), .narrow = TWILL_KERNELS_CONVERT(narrow), .copy = copy
