/* SPDX-License-Identifier: Apache-2.0 */
/* The primitives that AVX2 and AVX-512F spell alike but for the prefix, written once.
 * The including file defines MM(name) and BITS(name) for its width and what differs:
 * half, load_half, store_half, stream_half, narrow_bf16, canonical_*, max_f32, max_f64 and parts.
 */
#include "kernels/convert.h"

enum {
    lanes_f32 = sizeof(vector_f32) / 4,
    lanes_f64 = sizeof(vector_f64) / 8,
    lanes_i32 = sizeof(vector_i32) / 4,
    lanes_i64 = sizeof(vector_i64) / 8
};

/* From here on aligning the destination first pays for the extra part. */
#define TWILL_ALIGN_FROM 4096

/* In flight per source: hides the latency of loads and additions. */
#define TWILL_REGISTERS 4u

#define add_f32           MM(add_ps)
#define add_f64           MM(add_pd)
#define add_i32           MM(add_epi32)
#define add_i64           MM(add_epi64)
#define mul_f32           MM(mul_ps)
#define mul_f64           MM(mul_pd)
#define mul_i32           MM(mullo_epi32)
#define min_i32           MM(min_epi32)
#define max_i32           MM(max_epi32)
#define load_f32(p)       MM(loadu_ps)(p)
#define load_f64(p)       MM(loadu_pd)(p)
#define load_i32(p)       BITS(loadu)((const void *)(p))
#define load_i64(p)       BITS(loadu)((const void *)(p))
#define load_f16(p)       MM(cvtph_ps)(load_half(p))
#define load_bf16(p)      widen_bf16(load_half(p))
#define store_f32         MM(storeu_ps)
#define store_f64         MM(storeu_pd)
#define store_i32(p, v)   BITS(storeu)((void *)(p), v)
#define store_i64(p, v)   BITS(storeu)((void *)(p), v)
#define store_f16(p, v)   store_half(p, narrow_f16(v))
#define store_bf16(p, v)  store_half(p, narrow_bf16(v))
#define stream_f32        MM(stream_ps)
#define stream_f64        MM(stream_pd)
#define stream_i32(p, v)  BITS(stream)((void *)(p), v)
#define stream_i64(p, v)  BITS(stream)((void *)(p), v)
#define stream_f16(p, v)  stream_half(p, narrow_f16(v))
#define stream_bf16(p, v) stream_half(p, narrow_bf16(v))
#define stream_end()      _mm_sfence()

#define load_part_f16(p, n)      MM(cvtph_ps)(load_part_half(p, n))
#define load_part_bf16(p, n)     widen_bf16(load_part_half(p, n))
#define store_part_f16(p, v, n)  store_part_half(p, narrow_f16(v), n)
#define store_part_bf16(p, v, n) store_part_half(p, narrow_bf16(v), n)

#define narrow_f16(v) MM(cvtps_ph)(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

TWILL_INLINE vector_f32 widen_bf16(half v)
{
    return (vector_f32)MM(slli_epi32)(MM(cvtepu16_epi32)(v), 16);
}

/* To nearest even, left in the upper half of each 32 bits; NaN is canonical here and stays. */
TWILL_INLINE vector_i32 round_bf16(vector_f32 v)
{
    vector_i32 bits = (vector_i32)v;
    vector_i32 odd = BITS(and)(MM(srli_epi32)(bits, 16), MM(set1_epi32)(1));
    return MM(add_epi32)(bits, MM(add_epi32)(odd, MM(set1_epi32)(0x7fff)));
}

/* The instruction returns its second operand for two zeros and for NaN. Both orders together, OR
 * keeps a minus sign and keeps NaN a NaN; where neither occurs they agree. */
TWILL_INLINE vector_f32 min_f32(vector_f32 a, vector_f32 b)
{
    return (vector_f32)BITS(or)((vector_i32)MM(min_ps)(a, b), (vector_i32)MM(min_ps)(b, a));
}

TWILL_INLINE vector_f64 min_f64(vector_f64 a, vector_f64 b)
{
    return (vector_f64)BITS(or)((vector_i64)MM(min_pd)(a, b), (vector_i64)MM(min_pd)(b, a));
}

/* For the maximum the sign wants AND (+0 wins), the other bits OR (NaN wins). */
TWILL_INLINE vector_f32 max_f32(vector_f32 a, vector_f32 b)
{
    return (vector_f32)or_but_and((vector_i32)MM(max_ps)(a, b), (vector_i32)MM(max_ps)(b, a),
                                  MM(set1_epi32)(INT32_MIN));
}

TWILL_INLINE vector_f64 max_f64(vector_f64 a, vector_f64 b)
{
    return (vector_f64)or_but_and((vector_i64)MM(max_pd)(a, b), (vector_i64)MM(max_pd)(b, a),
                                  MM(set1_epi64x)(INT64_MIN));
}

/* 64 bits from 32-bit products: low * low, and the two crosswise ones shifted up. */
TWILL_INLINE vector_i64 mul_i64(vector_i64 a, vector_i64 b)
{
    vector_i64 cross = MM(add_epi64)(MM(mul_epu32)(MM(srli_epi64)(a, 32), b),
                                     MM(mul_epu32)(a, MM(srli_epi64)(b, 32)));
    return MM(add_epi64)(MM(mul_epu32)(a, b), MM(slli_epi64)(cross, 32));
}

TWILL_INLINE vector_f32 div_f32(vector_f32 v, uint32_t divisor)
{
    return MM(div_ps)(v, MM(set1_ps)((float)divisor));
}

TWILL_INLINE vector_f64 div_f64(vector_f64 v, uint32_t divisor)
{
    return MM(div_pd)(v, MM(set1_pd)((double)divisor));
}

/* No vector divides 64-bit integers. The barrier keeps the lanes in memory: gcc 12 would else take
 * them out of the register by vextracti64x2, a DQ instruction, also when told that there is no DQ.
 */
TWILL_INLINE vector_i64 div_i64(vector_i64 v, uint32_t divisor)
{
    int64_t lanes[lanes_i64] TWILL_ALIGNED(64);
    BITS(store)((void *)lanes, v);
    __asm__("" : "+m"(lanes));
    for (unsigned i = 0; i < lanes_i64; i++)
        lanes[i] /= (int64_t)divisor;
    return BITS(load)((void *)lanes);
}

TWILL_INLINE vector_i32 canonical_i32(vector_i32 v)
{
    return v;
}

TWILL_INLINE vector_i64 canonical_i64(vector_i64 v)
{
    return v;
}

/* The first n (1..8) of eight 16-bit elements, for which there is no masked load below BW. Through
 * registers: a store to a small buffer and a wider load from it would stall. */
TWILL_INLINE __m128i load_part_16(const uint16_t *p, size_t n)
{
    __m128i v = _mm_setzero_si128();
    switch (n) {
    case 8:
        return _mm_loadu_si128((const void *)p);
    case 7:
        v = _mm_insert_epi16(v, p[6], 6); /* fall through */
    case 6:
        v = _mm_insert_epi16(v, p[5], 5); /* fall through */
    case 5:
        v = _mm_insert_epi16(v, p[4], 4); /* fall through */
    case 4:
        v = _mm_insert_epi16(v, p[3], 3); /* fall through */
    case 3:
        v = _mm_insert_epi16(v, p[2], 2); /* fall through */
    case 2:
        v = _mm_insert_epi16(v, p[1], 1); /* fall through */
    default:
        return _mm_insert_epi16(v, p[0], 0);
    }
}

TWILL_INLINE void store_part_16(uint16_t *p, __m128i v, size_t n)
{
    switch (n) {
    case 8:
        p[7] = (uint16_t)_mm_extract_epi16(v, 7); /* fall through */
    case 7:
        p[6] = (uint16_t)_mm_extract_epi16(v, 6); /* fall through */
    case 6:
        p[5] = (uint16_t)_mm_extract_epi16(v, 5); /* fall through */
    case 5:
        p[4] = (uint16_t)_mm_extract_epi16(v, 4); /* fall through */
    case 4:
        p[3] = (uint16_t)_mm_extract_epi16(v, 3); /* fall through */
    case 3:
        p[2] = (uint16_t)_mm_extract_epi16(v, 2); /* fall through */
    case 2:
        p[1] = (uint16_t)_mm_extract_epi16(v, 1); /* fall through */
    default:
        p[0] = (uint16_t)_mm_extract_epi16(v, 0);
    }
}

/* A copy past the caches. The rest, and the ragged ends, are memcpy's. */
static void copy(void *dst, const void *src, size_t bytes, unsigned flags)
{
    char *to = dst;
    const char *from = src;
    const size_t width = sizeof(vector_i32), step = 4 * width;
    if (dst == src || bytes == 0)
        return;
    if (!(flags & TWILL_KERNEL_STREAM) || bytes < 2 * step) {
        memcpy(dst, src, bytes);
        return;
    }
    size_t head = -(uintptr_t)to % width;
    memcpy(to, from, head);
    size_t at = head;
    for (; bytes - at >= step; at += step) {
        vector_i32 v[4];
        TWILL_UNROLL
        for (unsigned i = 0; i < 4; i++)
            v[i] = load_i32(from + at + i * width);
        TWILL_UNROLL
        for (unsigned i = 0; i < 4; i++)
            stream_i32(to + at + i * width, v[i]);
    }
    stream_end();
    memcpy(to + at, from + at, bytes - at);
}
