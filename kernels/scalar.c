/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels in plain C: the reference for all other instruction sets, and the only ones if the
 * machine is not x86-64. They ignore the hint to stream. */
#include "kernels/convert.h"
#include "kernels/isa.h"

typedef float vector_f32;
typedef double vector_f64;
typedef uint8_t vector_i8;
typedef uint8_t vector_u8;
typedef uint16_t vector_i16;
typedef uint16_t vector_u16;
typedef uint32_t vector_i32;
typedef uint32_t vector_u32;
typedef uint64_t vector_i64;
typedef uint64_t vector_u64;

enum {
    lanes_f32 = 1,
    lanes_f64 = 1,
    lanes_i8 = 1,
    lanes_u8 = 1,
    lanes_i16 = 1,
    lanes_u16 = 1,
    lanes_i32 = 1,
    lanes_u32 = 1,
    lanes_i64 = 1,
    lanes_u64 = 1
};
#define TWILL_ALIGN_FROM       SIZE_MAX
#define TWILL_REGISTERS        1u
#define TWILL_STREAM_REGISTERS 1u
#define stream_end()           ((void)0)

/* Define the functions that load a register of type `math` from memory of type `type`, converted by
 * widen(), and store it, converted by narrow(). A register is one element, so the functions for
 * tails are never called. */
#define MEMORY(type, math, widen, narrow)                                                          \
    TWILL_INLINE vector_##math load_##type(const element_##type *p)                                \
    {                                                                                              \
        return widen(*p);                                                                          \
    }                                                                                              \
    TWILL_INLINE void store_##type(element_##type *p, vector_##math v)                             \
    {                                                                                              \
        *p = narrow(v);                                                                            \
    }                                                                                              \
    TWILL_INLINE void stream_##type(element_##type *p, vector_##math v)                            \
    {                                                                                              \
        *p = narrow(v);                                                                            \
    }                                                                                              \
    TWILL_INLINE vector_##math load_tail_##type(const element_##type *p, size_t n)                 \
    {                                                                                              \
        (void)n;                                                                                   \
        return widen(*p);                                                                          \
    }                                                                                              \
    TWILL_INLINE void store_tail_##type(element_##type *p, vector_##math v, size_t n)              \
    {                                                                                              \
        (void)n;                                                                                   \
        *p = narrow(v);                                                                            \
    }
MEMORY(f32, f32, , )
MEMORY(f64, f64, , )
MEMORY(i8, i8, , )
MEMORY(u8, u8, , )
MEMORY(i16, i16, , )
MEMORY(u16, u16, , )
MEMORY(i32, i32, , )
MEMORY(u32, u32, , )
MEMORY(i64, i64, , )
MEMORY(u64, u64, , )
MEMORY(f16, f32, twill_f32_from_f16, twill_f16_from_f32)
MEMORY(bf16, f32, twill_f32_from_bf16, twill_bf16_from_f32)
MEMORY(f8e4m3, f32, twill_f32_from_f8e4m3, twill_f8e4m3_from_f32)
MEMORY(f8e5m2, f32, twill_f32_from_f8e5m2, twill_f8e5m2_from_f32)

/* Define stem_type(a, b) for registers of this type, which returns the value of `expression`. */
#define ARITHMETIC(type, stem, expression)                                                         \
    TWILL_INLINE vector_##type stem##_##type(vector_##type a, vector_##type b)                     \
    {                                                                                              \
        return expression;                                                                         \
    }
/* a comes before b, and -0 before +0. */
#define BEFORE(a, b) ((a) < (b) || ((a) == (b) && __builtin_signbit(a)))
/* a + b turns a NaN into a NaN, which canonical() then makes the canonical one. */
#define FLOATS(type, one_nan)                                                                      \
    ARITHMETIC(type, add, a + b)                                                                   \
    ARITHMETIC(type, mul, a *b)                                                                    \
    ARITHMETIC(type, min, __builtin_isunordered(a, b) ? a + b : BEFORE(a, b) ? a : b)              \
    ARITHMETIC(type, max, __builtin_isunordered(a, b) ? a + b : BEFORE(a, b) ? b : a)              \
    TWILL_INLINE vector_##type div_##type(vector_##type v, uint32_t divisor)                       \
    {                                                                                              \
        return v / (vector_##type)divisor;                                                         \
    }                                                                                              \
    TWILL_INLINE vector_##type canonical_##type(vector_##type v)                                   \
    {                                                                                              \
        return __builtin_isnan(v) ? (one_nan) : v;                                                 \
    }                                                                                              \
    TWILL_INLINE bool is_finite_##type(vector_##type v)                                            \
    {                                                                                              \
        return __builtin_isfinite(v);                                                              \
    }
FLOATS(f32, __builtin_nanf(""))
FLOATS(f64, __builtin_nan(""))

/* Computed in 64 bits and truncated, as it could overflow when promoted to int. */
#define INTEGERS(type, as_compared)                                                                \
    ARITHMETIC(type, add, (vector_##type)((uint64_t)a + b))                                        \
    ARITHMETIC(type, min, (as_compared)a < (as_compared)b ? a : b)                                 \
    ARITHMETIC(type, max, (as_compared)a < (as_compared)b ? b : a)
#define SIGNED(type, as_signed)                                                                    \
    INTEGERS(type, as_signed)                                                                      \
    ARITHMETIC(type, mul, (vector_##type)((uint64_t)a * b))                                        \
    TWILL_INLINE vector_##type canonical_##type(vector_##type v)                                   \
    {                                                                                              \
        return v;                                                                                  \
    }                                                                                              \
    TWILL_INLINE vector_##type div_##type(vector_##type v, uint32_t divisor)                       \
    {                                                                                              \
        return (vector_##type)((as_signed)v / (int64_t)divisor);                                   \
    }
#define UNSIGNED(type)                                                                             \
    INTEGERS(type, vector_##type)                                                                  \
    ARITHMETIC(type, and, a &b)                                                                    \
    ARITHMETIC(type, or, a | b)                                                                    \
    ARITHMETIC(type, xor, a ^ b)                                                                   \
    TWILL_INLINE vector_##type truth_##type(vector_##type v)                                       \
    {                                                                                              \
        return v != 0;                                                                             \
    }                                                                                              \
    TWILL_INLINE vector_##type div_##type(vector_##type v, uint32_t divisor)                       \
    {                                                                                              \
        return (vector_##type)(v / divisor);                                                       \
    }
SIGNED(i8, int8_t)
SIGNED(i16, int16_t)
SIGNED(i32, int32_t)
SIGNED(i64, int64_t)
UNSIGNED(u8)
UNSIGNED(u16)
UNSIGNED(u32)
UNSIGNED(u64)

#include "kernels/all_types.h"

/* Batches of 16, which the compiler turns into vectors unless gcc unrolls the loops first. */
#define TWILL_STEP_REGISTERS 16u
#if defined(__clang__)
#define EACH_REGISTER
#else
#define EACH_REGISTER _Pragma("GCC unroll 1")
#endif
#define splat_f32(x)            ((float)(x))
#define splat_i32(x)            ((uint32_t)(x))
#define sqrt_f32                __builtin_sqrtf
#define bits_of_f32             twill_f32_bits
#define f32_of_bits             twill_f32_from_bits
#define choose_less(a, b, x, y) ((int32_t)(a) < (int32_t)(b) ? (x) : (y))
#define add_square(sums, v)     ((void)(*(sums) += (double)(v) * (double)(v)))
#define widen_bytes(p)          ((float)(int8_t) * (p))
#define store_low_bytes(p, v)   (*(p) = (unsigned char)(v))
#define lanes_in(v, low, last)  ((unsigned)((v) >= (low) && (v) <= (last)))
#define lanes_count(hits)       ((size_t)(hits))

#include "kernels/training/training_template.h"

/* Copy bytes, or do nothing if dst is src. Ignores the hint to stream. */
static void copy(void *dst, const void *src, size_t bytes, unsigned flags)
{
    (void)flags;
    if (dst != src && bytes > 0)
        memcpy(dst, src, bytes);
}

const struct twill_kernels twill_kernels_scalar = {.isa = "scalar",
                                                   .supported = twill_cpu_runs_baseline,
                                                   .crc32c = twill_crc32c_plain,
                                                   TWILL_KERNELS_MEMBERS};
