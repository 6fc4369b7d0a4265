/* SPDX-License-Identifier: Apache-2.0 */
/* 8- and 16-bit integers, 256 bits wide for both instruction sets, as AVX-512F has none (they came
 * with BW). And loads and stores of a number of bytes, for which it has no masks. */
#ifndef TWILL_X86_BYTES_H
#define TWILL_X86_BYTES_H

#include "kernels/isa.h"

#include <immintrin.h>

typedef __m256i vector_i8;
typedef __m256i vector_u8;
typedef __m256i vector_i16;
typedef __m256i vector_u16;

enum { lanes_i8 = 32, lanes_u8 = 32, lanes_i16 = 16, lanes_u16 = 16 };

/* Load the first n (0 to 16) bytes, then zeros, by general registers, as other ways would stall. */
TWILL_INLINE __m128i load_tail_16(const void *p, size_t n)
{
    const unsigned char *from = p;
    uint64_t low = 0, tail = 0;
    uint32_t four;
    uint16_t two;
    if (n & 16)
        return _mm_loadu_si128(p);
    if (n & 1)
        tail = from[--n];
    if (n & 2) {
        memcpy(&two, from + (n -= 2), 2);
        tail = tail << 16 | two;
    }
    if (n & 4) {
        memcpy(&four, from + (n -= 4), 4);
        tail = tail << 32 | four;
    }
    if (n == 0)
        return _mm_cvtsi64_si128((long long)tail);
    memcpy(&low, from, 8);
    return _mm_set_epi64x((long long)tail, (long long)low);
}

/* Store the first n (0 to 16) bytes. */
TWILL_INLINE void store_tail_16(void *p, __m128i v, size_t n)
{
    unsigned char *to = p;
    uint64_t rest = (uint64_t)_mm_cvtsi128_si64(v);
    if (n & 16) {
        _mm_storeu_si128(p, v);
        return;
    }
    if (n & 8) {
        memcpy(to, &rest, 8);
        rest = (uint64_t)_mm_extract_epi64(v, 1);
        to += 8;
    }
    if (n & 4) {
        memcpy(to, &rest, 4);
        rest >>= 32;
        to += 4;
    }
    if (n & 2) {
        memcpy(to, &rest, 2);
        rest >>= 16;
        to += 2;
    }
    if (n & 1)
        *to = (unsigned char)rest;
}

/* Load the first n (0 to 32) bytes, with zeros behind them. */
TWILL_INLINE __m256i load_tail_32(const void *p, size_t n)
{
    if (n <= 16)
        return _mm256_zextsi128_si256(load_tail_16(p, n));
    return _mm256_set_m128i(load_tail_16((const char *)p + 16, n - 16), _mm_loadu_si128(p));
}

/* Store the first n (0 to 32) bytes. */
TWILL_INLINE void store_tail_32(void *p, __m256i v, size_t n)
{
    if (n <= 16) {
        store_tail_16(p, _mm256_castsi256_si128(v), n);
        return;
    }
    _mm_storeu_si128(p, _mm256_castsi256_si128(v));
    store_tail_16((char *)p + 16, _mm256_extracti128_si256(v, 1), n - 16);
}

#define load_i8(p)              _mm256_loadu_si256((const void *)(p))
#define load_u8                 load_i8
#define load_i16                load_i8
#define load_u16                load_i8
#define store_i8(p, v)          _mm256_storeu_si256((void *)(p), v)
#define store_u8                store_i8
#define store_i16               store_i8
#define store_u16               store_i8
#define stream_i8(p, v)         _mm256_stream_si256((void *)(p), v)
#define stream_u8               stream_i8
#define stream_i16              stream_i8
#define stream_u16              stream_i8
#define load_tail_i8            load_tail_32
#define load_tail_u8            load_tail_32
#define load_tail_i16(p, n)     load_tail_32(p, 2 * (n))
#define load_tail_u16           load_tail_i16
#define store_tail_i8           store_tail_32
#define store_tail_u8           store_tail_32
#define store_tail_i16(p, v, n) store_tail_32(p, v, 2 * (n))
#define store_tail_u16          store_tail_i16

#define add_i8           _mm256_add_epi8
#define add_u8           _mm256_add_epi8
#define add_i16          _mm256_add_epi16
#define add_u16          _mm256_add_epi16
#define mul_i16          _mm256_mullo_epi16
#define min_i8           _mm256_min_epi8
#define max_i8           _mm256_max_epi8
#define min_u8           _mm256_min_epu8
#define max_u8           _mm256_max_epu8
#define min_i16          _mm256_min_epi16
#define max_i16          _mm256_max_epi16
#define min_u16          _mm256_min_epu16
#define max_u16          _mm256_max_epu16
#define and_u8           _mm256_and_si256
#define or_u8            _mm256_or_si256
#define xor_u8           _mm256_xor_si256
#define and_u16          _mm256_and_si256
#define or_u16           _mm256_or_si256
#define xor_u16          _mm256_xor_si256
#define truth_u8(v)      _mm256_min_epu8(v, _mm256_set1_epi8(1))
#define truth_u16(v)     _mm256_min_epu16(v, _mm256_set1_epi16(1))
#define canonical_i8(v)  (v)
#define canonical_i16(v) (v)

/* Multiply 32 bytes, the even and the odd ones in 16 bits, and keep the lower 8 bits of each
 * product. */
TWILL_INLINE __m256i mul_i8(__m256i a, __m256i b)
{
    __m256i even = _mm256_mullo_epi16(a, b);
    __m256i odd = _mm256_mullo_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
    return _mm256_or_si256(_mm256_and_si256(even, _mm256_set1_epi16(0xff)),
                           _mm256_slli_epi16(odd, 8));
}

#endif
