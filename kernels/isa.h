/* SPDX-License-Identifier: Apache-2.0 */
/* Internal to kernels/: the tables of the instruction sets, and the types of elements. */
#ifndef TWILL_ISA_H
#define TWILL_ISA_H

#include "kernels/kernels.h"

#include <string.h>

extern const struct twill_kernels twill_kernels_scalar;
#if defined(__x86_64__)
extern const struct twill_kernels twill_kernels_avx2;
extern const struct twill_kernels twill_kernels_avx512f;
#endif

bool twill_cpu_runs_baseline(void);
bool twill_cpu_runs_avx2(void);
bool twill_cpu_runs_avx512f(void);

/* Elements in memory. Integers are unsigned, so that they wrap. */
typedef float element_f32;
typedef double element_f64;
typedef uint8_t element_i8;
typedef uint8_t element_u8;
typedef uint16_t element_i16;
typedef uint16_t element_u16;
typedef uint32_t element_i32;
typedef uint32_t element_u32;
typedef uint64_t element_i64;
typedef uint64_t element_u64;
typedef uint16_t element_f16;
typedef uint16_t element_bf16;
typedef uint8_t element_f8e4m3;
typedef uint8_t element_f8e5m2;

/* Kernels for pairs, which every table uses. */
#define TWILL_PAIRS_DECLARE(stem)                                                                  \
    void twill_##stem(void *dst, const void *const *src, unsigned nsrc, size_t count,              \
                      uint32_t divisor, unsigned flags);
TWILL_PAIRS_DECLARE(minloc_f32)
TWILL_PAIRS_DECLARE(maxloc_f32)
TWILL_PAIRS_DECLARE(minloc_f64)
TWILL_PAIRS_DECLARE(maxloc_f64)
TWILL_PAIRS_DECLARE(minloc_i16)
TWILL_PAIRS_DECLARE(maxloc_i16)
TWILL_PAIRS_DECLARE(minloc_i32)
TWILL_PAIRS_DECLARE(maxloc_i32)
TWILL_PAIRS_DECLARE(minloc_i64)
TWILL_PAIRS_DECLARE(maxloc_i64)

#define TWILL_INLINE static inline __attribute__((always_inline))
/* Unroll a short loop of constant length, even at -O2, so that its array is kept in registers. */
#if defined(__clang__)
#define TWILL_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TWILL_UNROLL _Pragma("GCC unroll 8")
#endif

#define TWILL_PASTE_(a, b) a##_##b
#define TWILL_PASTE(a, b)  TWILL_PASTE_(a, b)

#endif
