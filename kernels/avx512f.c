/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for AVX-512 F and nothing beyond, so that Knights Landing runs them. They use no VL
 * (512 bits or VEX only), no BW (no 16-bit lanes) and no DQ (no vandps, no vpmullq). */
#include "kernels/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

typedef __m512 vector_f32;
typedef __m512d vector_f64;
typedef __m512i vector_i32;
typedef __m512i vector_i64;
typedef __m256i half; /* as many 16-bit elements as vector_f32 holds */

#define MM(name)        _mm512_##name
#define BITS(name)      _mm512_##name##_si512
#define HALF(name)      _mm256_##name
#define HALF_BITS(name) _mm256_##name##_si256

/* Streamed registers in a row. On Zen 5 (100 MiB, two sources) 1 gives 58 GB/s, 4 give 52. */
#define TWILL_STREAM_REGISTERS 1u

/* Return a OR b, but a AND b where mask is set: the truth table of (a, b, mask). */
#define or_but_and(a, b, mask) _mm512_ternarylogic_epi32(a, b, mask, 0xd4)
#define _mm512_set1_epi64x     _mm512_set1_epi64

#define min_i64                  _mm512_min_epi64
#define max_i64                  _mm512_max_epi64
#define min_u64                  _mm512_min_epu64
#define max_u64                  _mm512_max_epu64
#define truth_u64(v)             _mm512_min_epu64(v, _mm512_set1_epi64(1))
#define bytes_of                 _mm512_cvtepi32_epi8
#define load_quarter(p)          _mm_loadu_si128((const void *)(p))
#define store_quarter(p, v)      _mm_storeu_si128((void *)(p), v)
#define stream_quarter(p, v)     _mm_stream_si128((void *)(p), v)
#define load_tail_half(p, n)     load_tail_32(p, 2 * (n))
#define store_tail_half(p, v, n) store_tail_32(p, v, 2 * (n))
#define load_half(p)             _mm256_loadu_si256((const void *)(p))
#define store_half(p, v)         _mm256_storeu_si256((void *)(p), v)
#define stream_half(p, v)        _mm256_stream_si256((void *)(p), v)
#define load_tail_f32(p, n)      _mm512_maskz_loadu_ps(first(n), p)
#define load_tail_f64(p, n)      _mm512_maskz_loadu_pd((__mmask8)first(n), p)
#define load_tail_i32(p, n)      _mm512_maskz_loadu_epi32(first(n), p)
#define load_tail_i64(p, n)      _mm512_maskz_loadu_epi64((__mmask8)first(n), p)
#define store_tail_f32(p, v, n)  _mm512_mask_storeu_ps(p, first(n), v)
#define store_tail_f64(p, v, n)  _mm512_mask_storeu_pd(p, (__mmask8)first(n), v)
#define store_tail_i32(p, v, n)  _mm512_mask_storeu_epi32(p, first(n), v)
#define store_tail_i64(p, v, n)  _mm512_mask_storeu_epi64(p, (__mmask8)first(n), v)

/* Return a < b ? x : y for each signed 32-bit element. */
TWILL_INLINE __m512i choose_less(__m512i a, __m512i b, __m512i x, __m512i y)
{
    return _mm512_mask_mov_epi32(y, _mm512_cmplt_epi32_mask(a, b), x);
}

/* Return the mask of the first n elements. */
TWILL_INLINE __mmask16 first(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}

#include "kernels/x86.h"

/* Round floats to bf16, to nearest even. A NaN must be the canonical one. */
TWILL_INLINE __m256i narrow_bits_bf16(__m512 v)
{
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_bf16(v), 16));
}

/* VFIXUPIMM's table maps NaN to the first operand (0) and other numbers to themselves (1). */
#define NAN_FROM_FIRST 0x11111100

/* Return v, with the canonical quiet NaN for any NaN. */
TWILL_INLINE __m512 canonical_f32(__m512 v)
{
    return _mm512_fixupimm_ps((__m512)_mm512_set1_epi32(TWILL_NAN_F32), v,
                              _mm512_set1_epi32(NAN_FROM_FIRST), 0);
}

/* Return v, with the canonical quiet NaN for any NaN. */
TWILL_INLINE __m512d canonical_f64(__m512d v)
{
    return _mm512_fixupimm_pd((__m512d)_mm512_set1_epi64(TWILL_NAN_F64), v,
                              _mm512_set1_epi64(NAN_FROM_FIRST), 0);
}

/* Return whether no element is a NaN or infinity, which have an exponent of ones. */
TWILL_INLINE bool is_finite_f32(__m512 v)
{
    const __m512i ones = _mm512_set1_epi32(0x7f800000);
    return _mm512_cmpeq_epi32_mask(_mm512_and_si512((__m512i)v, ones), ones) == 0;
}

/* Return whether no element is a NaN or infinity. */
TWILL_INLINE bool is_finite_f64(__m512d v)
{
    const __m512i ones = _mm512_set1_epi64(0x7ff0000000000000);
    return _mm512_cmpeq_epi64_mask(_mm512_and_si512((__m512i)v, ones), ones) == 0;
}

/* 32 bf16 while they are reduced, those at even positions in one register, those at odd positions
 * in another. This takes half of the instructions of keeping their order, as nothing crosses lanes,
 * and the upper half of 32 bits, with zeros below, is the number itself. */
typedef struct {
    __m512 even, odd;
} vector_pair;
enum { lanes_pair = 32 };
#define TWILL_BF16_IN_PAIRS

#define PAIR_OF(stem)                                                                              \
    TWILL_INLINE vector_pair stem##_pair(vector_pair a, vector_pair b)                             \
    {                                                                                              \
        return (vector_pair){stem##_f32(a.even, b.even), stem##_f32(a.odd, b.odd)};                \
    }
PAIR_OF(add)
PAIR_OF(mul)
PAIR_OF(min)
PAIR_OF(max)

/* Divide both registers of a pair, 32 bf16 held as f32, by the divisor. */
TWILL_INLINE vector_pair div_pair(vector_pair v, uint32_t divisor)
{
    return (vector_pair){div_f32(v.even, divisor), div_f32(v.odd, divisor)};
}

/* Return v, a pair of registers, with the canonical quiet NaN for any NaN. */
TWILL_INLINE vector_pair canonical_pair(vector_pair v)
{
    return (vector_pair){canonical_f32(v.even), canonical_f32(v.odd)};
}

/* Return whether no element of a pair of registers is a NaN or infinity. */
TWILL_INLINE bool is_finite_pair(vector_pair v)
{
    return is_finite_f32(v.even) && is_finite_f32(v.odd);
}

#define UPPER_HALVES _mm512_set1_epi32(-0x10000)

/* Widen 32 bf16 to floats. In the result, `even` has those at positions 0, 2, 4 and so on, and
 * `odd` has the others. */
TWILL_INLINE vector_pair pair_of(__m512i v)
{
    return (vector_pair){(__m512)_mm512_slli_epi32(v, 16),
                         (__m512)_mm512_and_si512(v, UPPER_HALVES)};
}

/* Round floats to bf16, in the upper halves, with one instruction less than round_bf16(): add half
 * of the last place, or just less than half if the last bit is 0. */
TWILL_INLINE __m512i round_half(__m512 v)
{
    __m512i bits = (__m512i)v, less = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    return _mm512_mask_add_epi32(less, odd, bits, _mm512_set1_epi32(0x8000));
}

/* Round a pair to bf16, and pack it with those of the even register below those of the odd one. */
TWILL_INLINE __m512i bits_of_pair(vector_pair v)
{
    return _mm512_ternarylogic_epi32(_mm512_srli_epi32(round_half(v.even), 16), round_half(v.odd),
                                     UPPER_HALVES, 0xd8);
}

#define load_bf16_pairs(p)      pair_of(_mm512_loadu_si512(p))
#define store_bf16_pairs(p, v)  _mm512_storeu_si512(p, bits_of_pair(v))
#define stream_bf16_pairs(p, v) _mm512_stream_si512((void *)(p), bits_of_pair(v))

/* Load the first n (below 32) bf16, two at a time, and the last one of an odd number separately. */
TWILL_INLINE vector_pair load_tail_bf16_pairs(const element_bf16 *p, size_t n)
{
    __m512i v = _mm512_maskz_loadu_epi32(first(n / 2), p);
    return pair_of(n % 2 ? _mm512_mask_set1_epi32(v, (__mmask16)(1u << n / 2), p[n - 1]) : v);
}

/* Round a pair to bf16, and store the first n (below 32) of them. */
TWILL_INLINE void store_tail_bf16_pairs(element_bf16 *p, vector_pair v, size_t n)
{
    __m512i bits = bits_of_pair(v);
    _mm512_mask_storeu_epi32(p, first(n / 2), bits);
    if (n % 2) {
        __m512i last = _mm512_maskz_compress_epi32((__mmask16)(1u << n / 2), bits);
        p[n - 1] = (element_bf16)_mm_cvtsi128_si32(_mm512_castsi512_si128(last));
    }
}

/* Divide 32-bit integers, towards zero. A quotient that is not an integer differs from the nearest
 * one by at least 2^-31 (relative), so the double truncates correctly. */
TWILL_INLINE __m512i div_i32(__m512i v, uint32_t divisor)
{
    __m512d by = _mm512_set1_pd((double)divisor);
    __m512d low = _mm512_cvtepi32_pd(_mm512_castsi512_si256(v));
    __m512d high = _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(v, 1));
    __m512i quotient = _mm512_castsi256_si512(_mm512_cvttpd_epi32(_mm512_div_pd(low, by)));
    return _mm512_inserti64x4(quotient, _mm512_cvttpd_epi32(_mm512_div_pd(high, by)), 1);
}

#include "kernels/all_types.h"

#define TWILL_STEP_REGISTERS 4u
#define lower_f32(v)         _mm512_castps512_ps256(v)
#define upper_f32(v)         ((__m256)_mm512_extractf64x4_pd((__m512d)(v), 1))

/* Return a mask of the elements of v, all >= 0, that are in [low, last]: bit i for element i. */
TWILL_INLINE unsigned lanes_in(__m512i v, uint32_t low, uint32_t last)
{
    __mmask16 above = _mm512_cmpge_epi32_mask(v, _mm512_set1_epi32((int)low));
    return _mm512_mask_cmple_epi32_mask(above, v, _mm512_set1_epi32((int)last));
}

#include "kernels/training/training_x86.h"

#include "kernels/training/training_template.h"

const struct twill_kernels twill_kernels_avx512f = {.isa = "avx512f",
                                                    .supported = twill_cpu_runs_avx512f,
                                                    .crc32c = twill_crc32c_sse42,
                                                    TWILL_KERNELS_MEMBERS};
#endif
