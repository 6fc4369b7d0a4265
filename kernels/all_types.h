/* SPDX-License-Identifier: Apache-2.0 */
/* The template for every type, and the rows of the table. Included once, at the end of an
 * instruction set's file, after its primitives. */

#define ELEMENT f32
#define MATH    f32
#include "kernels/template.h"
#define ELEMENT f64
#define MATH    f64
#include "kernels/template.h"
#define ELEMENT i32
#define MATH    i32
#include "kernels/template.h"
#define ELEMENT i64
#define MATH    i64
#include "kernels/template.h"
#define ELEMENT f16
#define MATH    f32
#include "kernels/template.h"
#define ELEMENT bf16
#define MATH    f32
#include "kernels/template.h"

#define TWILL_KERNELS_ROW(type)                                                                    \
    {                                                                                              \
        [TWILL_SUM] = reduce_sum_##type, [TWILL_PROD] = reduce_prod_##type,                        \
        [TWILL_MIN] = reduce_min_##type, [TWILL_MAX] = reduce_max_##type,                          \
        [TWILL_AVG] = reduce_avg_##type                                                            \
    }
#define TWILL_KERNELS_ROWS                                                                         \
    {                                                                                              \
        [TWILL_F32] = TWILL_KERNELS_ROW(f32), [TWILL_F64] = TWILL_KERNELS_ROW(f64),                \
        [TWILL_I32] = TWILL_KERNELS_ROW(i32), [TWILL_I64] = TWILL_KERNELS_ROW(i64),                \
        [TWILL_F16] = TWILL_KERNELS_ROW(f16), [TWILL_BF16] = TWILL_KERNELS_ROW(bf16)               \
    }
