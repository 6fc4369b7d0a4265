/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels in AVX-512 F and nothing above, so that Knights Landing runs them: no VL (512 bits
 * or VEX only), no BW (no 16-bit lanes), no DQ (no vandps, no vpmullq). */
#include "kernels/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

typedef __m512 vector_f32;
typedef __m512d vector_f64;
typedef __m512i vector_i32;
typedef __m512i vector_i64;
typedef __m256i half; /* as many 16-bit elements as vector_f32 holds */

#define MM(name)   _mm512_##name
#define BITS(name) _mm512_##name##_si512

/* Streamed registers in a row. Measured on Zen 5, 100 MiB, two sources: 1 gives 58 GB/s, 4 give 52.
 */
#define TWILL_STREAM_REGISTERS 1u

/* a OR b; where mask is set, a AND b: the truth table of (a, b, mask) */
#define or_but_and(a, b, mask) _mm512_ternarylogic_epi32(a, b, mask, 0xd4)
#define _mm512_set1_epi64x     _mm512_set1_epi64

#define min_i64                 _mm512_min_epi64
#define max_i64                 _mm512_max_epi64
#define load_half(p)            _mm256_loadu_si256((const void *)(p))
#define store_half(p, v)        _mm256_storeu_si256((void *)(p), v)
#define stream_half(p, v)       _mm256_stream_si256((void *)(p), v)
#define load_part_f32(p, n)     _mm512_maskz_loadu_ps(first(n), p)
#define load_part_f64(p, n)     _mm512_maskz_loadu_pd((__mmask8)first(n), p)
#define load_part_i32(p, n)     _mm512_maskz_loadu_epi32(first(n), p)
#define load_part_i64(p, n)     _mm512_maskz_loadu_epi64((__mmask8)first(n), p)
#define store_part_f32(p, v, n) _mm512_mask_storeu_ps(p, first(n), v)
#define store_part_f64(p, v, n) _mm512_mask_storeu_pd(p, (__mmask8)first(n), v)
#define store_part_i32(p, v, n) _mm512_mask_storeu_epi32(p, first(n), v)
#define store_part_i64(p, v, n) _mm512_mask_storeu_epi64(p, (__mmask8)first(n), v)

/* The mask of the first n elements. */
TWILL_INLINE __mmask16 first(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}

#include "kernels/x86.h"

TWILL_INLINE __m256i load_part_half(const uint16_t *p, size_t n)
{
    if (n <= 8)
        return _mm256_zextsi128_si256(load_part_16(p, n));
    return _mm256_set_m128i(load_part_16(p + 8, n - 8), load_part_16(p, 8));
}

TWILL_INLINE void store_part_half(uint16_t *p, __m256i v, size_t n)
{
    if (n <= 8) {
        store_part_16(p, _mm256_castsi256_si128(v), n);
        return;
    }
    _mm_storeu_si128((void *)p, _mm256_castsi256_si128(v));
    store_part_16(p + 8, _mm256_extracti128_si256(v, 1), n - 8);
}

TWILL_INLINE __m256i narrow_bf16(__m512 v)
{
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_bf16(v), 16));
}

TWILL_INLINE __m512 canonical_f32(__m512 v)
{
    return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q),
                              (__m512)_mm512_set1_epi32(TWILL_NAN_F32));
}

TWILL_INLINE __m512d canonical_f64(__m512d v)
{
    return _mm512_mask_mov_pd(v, _mm512_cmp_pd_mask(v, v, _CMP_UNORD_Q),
                              (__m512d)_mm512_set1_epi64(TWILL_NAN_F64));
}

/* A quotient of 32-bit integers that is no integer is at least 2^-31 (relative) off the nearest
 * one, so the double truncates to the right side. */
TWILL_INLINE __m512i div_i32(__m512i v, uint32_t divisor)
{
    __m512d by = _mm512_set1_pd((double)divisor);
    __m512d low = _mm512_cvtepi32_pd(_mm512_castsi512_si256(v));
    __m512d high = _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(v, 1));
    __m512i quotient = _mm512_castsi256_si512(_mm512_cvttpd_epi32(_mm512_div_pd(low, by)));
    return _mm512_inserti64x4(quotient, _mm512_cvttpd_epi32(_mm512_div_pd(high, by)), 1);
}

#include "kernels/all_types.h"

const struct twill_kernels twill_kernels_avx512f = {.isa = "avx512f",
                                                    .supported = twill_cpu_runs_avx512f,
                                                    .reduce = TWILL_KERNELS_ROWS,
                                                    .copy = copy};
#endif
