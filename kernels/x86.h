/* SPDX-License-Identifier: Apache-2.0 */
/* The primitives that differ between AVX2 and AVX-512F only in their prefix. The including file
 * defines MM(name) and BITS(name) for its width, and the rest: half (with HALF and HALF_BITS),
 * load_ store_ stream_half and _quarter, or_but_and, choose_less, bytes_of, narrow_bits_bf16,
 * canonical_f32 _f64, min_ max_ of 64-bit integers, div_i32, truth_u64 and the load_tail_
 * store_tail_ of 32 and 64 bits. */
#include "kernels/convert.h"
#include "kernels/x86_bytes.h"

typedef vector_i32 vector_u32;
typedef vector_i64 vector_u64;

enum {
    lanes_f32 = sizeof(vector_f32) / 4,
    lanes_f64 = sizeof(vector_f64) / 8,
    lanes_i32 = sizeof(vector_i32) / 4,
    lanes_u32 = lanes_i32,
    lanes_i64 = sizeof(vector_i64) / 8,
    lanes_u64 = lanes_i64
};

/* bytes from which aligning the destination outweighs its cost */
#define TWILL_ALIGN_FROM 4096

/* Registers per source in flight: enough to hide the latency of loads and additions. */
#define TWILL_REGISTERS 4u

#define add_f32          MM(add_ps)
#define add_f64          MM(add_pd)
#define add_i32          MM(add_epi32)
#define add_i64          MM(add_epi64)
#define mul_f32          MM(mul_ps)
#define mul_f64          MM(mul_pd)
#define mul_i32          MM(mullo_epi32)
#define min_i32          MM(min_epi32)
#define max_i32          MM(max_epi32)
#define add_u32          add_i32
#define add_u64          add_i64
#define min_u32          MM(min_epu32)
#define max_u32          MM(max_epu32)
#define and_u32          BITS(and)
#define or_u32           BITS(or)
#define xor_u32          BITS(xor)
#define xor_u64          BITS(xor)
#define or_u64           BITS(or)
#define and_u64          BITS(and)
#define truth_u32(v)     MM(min_epu32)(v, MM(set1_epi32)(1))
#define canonical_i32(v) (v)
#define canonical_i64(v) (v)

#define load_f32(p)      MM(loadu_ps)((const void *)(p))
#define load_f64(p)      MM(loadu_pd)((const void *)(p))
#define load_i32(p)      BITS(loadu)((const void *)(p))
#define load_u32         load_i32
#define load_i64         load_i32
#define load_u64         load_i32
#define store_f32(p, v)  MM(storeu_ps)((void *)(p), v)
#define store_f64(p, v)  MM(storeu_pd)((void *)(p), v)
#define store_i32(p, v)  BITS(storeu)((void *)(p), v)
#define store_u32        store_i32
#define store_i64        store_i32
#define store_u64        store_i32
#define stream_f32(p, v) MM(stream_ps)((void *)(p), v)
#define stream_f64(p, v) MM(stream_pd)((void *)(p), v)
#define stream_i32(p, v) BITS(stream)((void *)(p), v)
#define stream_u32       stream_i32
#define stream_i64       stream_i32
#define stream_u64       stream_i32
#define load_tail_u32    load_tail_i32
#define load_tail_u64    load_tail_i64
#define store_tail_u32   store_tail_i32
#define store_tail_u64   store_tail_i64

#define load_f16(p)         MM(cvtph_ps)(load_half(p))
#define load_bf16(p)        widen_bits_bf16(load_half(p))
#define load_f8e4m3(p)      widen_bits_f8e4m3(load_quarter(p))
#define load_f8e5m2(p)      widen_bits_f8e5m2(load_quarter(p))
#define store_f16(p, v)     store_half(p, narrow_bits_f16(v))
#define store_bf16(p, v)    store_half(p, narrow_bits_bf16(v))
#define store_f8e4m3(p, v)  store_quarter(p, bytes_of(narrow_bits_f8e4m3(v)))
#define store_f8e5m2(p, v)  store_quarter(p, bytes_of(narrow_bits_f8e5m2(v)))
#define stream_f16(p, v)    stream_half(p, narrow_bits_f16(v))
#define stream_bf16(p, v)   stream_half(p, narrow_bits_bf16(v))
#define stream_f8e4m3(p, v) stream_quarter(p, bytes_of(narrow_bits_f8e4m3(v)))
#define stream_f8e5m2(p, v) stream_quarter(p, bytes_of(narrow_bits_f8e5m2(v)))
#define stream_end()        _mm_sfence()

#define load_tail_f16(p, n)        MM(cvtph_ps)(load_tail_half(p, n))
#define load_tail_bf16(p, n)       widen_bits_bf16(load_tail_half(p, n))
#define load_tail_f8e4m3(p, n)     widen_bits_f8e4m3(load_tail_16(p, n))
#define load_tail_f8e5m2(p, n)     widen_bits_f8e5m2(load_tail_16(p, n))
#define store_tail_f16(p, v, n)    store_tail_half(p, narrow_bits_f16(v), n)
#define store_tail_bf16(p, v, n)   store_tail_half(p, narrow_bits_bf16(v), n)
#define store_tail_f8e4m3(p, v, n) store_tail_16(p, bytes_of(narrow_bits_f8e4m3(v)), n)
#define store_tail_f8e5m2(p, v, n) store_tail_16(p, bytes_of(narrow_bits_f8e5m2(v)), n)

#define narrow_bits_f16(v) MM(cvtps_ph)(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

/* Widen bf16 numbers to floats. */
TWILL_INLINE vector_f32 widen_bits_bf16(half v)
{
    return (vector_f32)MM(slli_epi32)(MM(cvtepu16_epi32)(v), 16);
}

/* Widen f8e5m2 numbers to floats. One is the upper half of an f16. */
TWILL_INLINE vector_f32 widen_bits_f8e5m2(__m128i v)
{
    return MM(cvtph_ps)(HALF(slli_epi16)(HALF(cvtepu8_epi16)(v), 8));
}

/* Widen the first numbers of v, as many f8e4m3 as vector_f32 has elements, to floats. Shifted to
 * the exponent and mantissa of an f16, they are 2^8 too small. That holds for denormals as well, so
 * all are multiplied by 2^8. All ones are NaN, so they get an exponent of all ones. */
TWILL_INLINE vector_f32 widen_bits_f8e4m3(__m128i v)
{
    half wide = HALF(cvtepi8_epi16)(v), all = HALF(set1_epi16)(0x7f);
    half rest = HALF_BITS(and)(wide, all), sign = HALF_BITS(andnot)(HALF(set1_epi16)(0x7fff), wide);
    half nan = HALF_BITS(and)(HALF(cmpeq_epi16)(rest, all), HALF(set1_epi16)(0x7c00));
    half bits = HALF_BITS(or)(HALF_BITS(or)(sign, nan), HALF(slli_epi16)(rest, 7));
    return MM(mul_ps)(MM(cvtph_ps)(bits), MM(set1_ps)(256));
}

/* Round the magnitude `rest` to nearest even, to a code of this many bits of mantissa and this
 * bias. If it is too large, the code is past the format's largest. If it becomes denormal, it is
 * added to the number whose last bit is worth the least denormal, and the addition rounds. */
TWILL_INLINE vector_i32 narrow_magnitude(vector_i32 rest, int mantissa, int bias)
{
    const int drop = 23 - mantissa;
    vector_i32 odd = BITS(and)(MM(srli_epi32)(rest, drop), MM(set1_epi32)(1));
    vector_i32 up = MM(set1_epi32)((1 << (drop - 1)) - 1 - ((127 - bias) << 23));
    vector_i32 normal = MM(srli_epi32)(add_i32(rest, add_i32(odd, up)), drop);
    vector_i32 unit = MM(set1_epi32)((151 - bias - mantissa) << 23);
    vector_i32 denormal =
        MM(sub_epi32)((vector_i32)MM(add_ps)((vector_f32)rest, (vector_f32)unit), unit);
    return choose_less(rest, MM(set1_epi32)((128 - bias) << 23), denormal, normal);
}

/* Round to f8e4m3, in the lowest byte of each 32 bits. A canonical NaN is also past the largest. */
TWILL_INLINE vector_i32 narrow_bits_f8e4m3(vector_f32 v)
{
    vector_i32 bits = (vector_i32)v, most = MM(set1_epi32)(TWILL_NAN_F8E4M3);
    vector_i32 rest = BITS(and)(bits, MM(set1_epi32)(INT32_MAX));
    vector_i32 sign = MM(slli_epi32)(MM(srli_epi32)(bits, 31), 7);
    vector_i32 code = narrow_magnitude(rest, 3, 7);
    return choose_less(code, most, BITS(or)(sign, code), most);
}

/* Round to f8e5m2, in the lowest byte of each 32 bits. A NaN must be the canonical one. */
TWILL_INLINE vector_i32 narrow_bits_f8e5m2(vector_f32 v)
{
    vector_i32 bits = (vector_i32)v, infinity = MM(set1_epi32)(0x7c);
    vector_i32 rest = BITS(and)(bits, MM(set1_epi32)(INT32_MAX));
    vector_i32 sign = MM(slli_epi32)(MM(srli_epi32)(bits, 31), 7);
    vector_i32 code = MM(min_epi32)(narrow_magnitude(rest, 2, 15), infinity);
    code = choose_less(MM(set1_epi32)(0x7f800000), rest, MM(set1_epi32)(TWILL_NAN_F8E5M2), code);
    return BITS(or)(sign, code);
}

/* Round to bf16, to nearest even, in the upper half of each 32 bits. A canonical NaN stays. */
TWILL_INLINE vector_i32 round_bf16(vector_f32 v)
{
    vector_i32 bits = (vector_i32)v;
    vector_i32 odd = BITS(and)(MM(srli_epi32)(bits, 16), MM(set1_epi32)(1));
    return MM(add_epi32)(bits, MM(add_epi32)(odd, MM(set1_epi32)(0x7fff)));
}

/* Return the minimum, or NaN. The instruction returns its second operand for two zeros and for NaN,
 * so take both orders. OR keeps a minus sign and NaN. In all other cases the two are equal. */
TWILL_INLINE vector_f32 min_f32(vector_f32 a, vector_f32 b)
{
    return (vector_f32)BITS(or)((vector_i32)MM(min_ps)(a, b), (vector_i32)MM(min_ps)(b, a));
}

/* Return the minimum, or NaN if an element is NaN, as min_f32() does. */
TWILL_INLINE vector_f64 min_f64(vector_f64 a, vector_f64 b)
{
    return (vector_f64)BITS(or)((vector_i64)MM(min_pd)(a, b), (vector_i64)MM(min_pd)(b, a));
}

/* Return the maximum, or NaN if an element is NaN. The instruction returns its second operand for
 * two zeros and for NaN, so take both orders. Combine their results by AND of the signs, so that +0
 * wins, and by OR of the other bits. */
TWILL_INLINE vector_f32 max_f32(vector_f32 a, vector_f32 b)
{
    return (vector_f32)or_but_and((vector_i32)MM(max_ps)(a, b), (vector_i32)MM(max_ps)(b, a),
                                  MM(set1_epi32)(INT32_MIN));
}

/* Return the maximum, or NaN if an element is NaN, as max_f32() does. */
TWILL_INLINE vector_f64 max_f64(vector_f64 a, vector_f64 b)
{
    return (vector_f64)or_but_and((vector_i64)MM(max_pd)(a, b), (vector_i64)MM(max_pd)(b, a),
                                  MM(set1_epi64x)(INT64_MIN));
}

/* Multiply 64-bit integers, and keep the lower 64 bits of each product. It is the product of the
 * lower halves plus the two cross products shifted up. */
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

/* There is no vector division of integers. The barrier keeps the lanes in memory. Otherwise gcc 12
 * extracts them with vextracti64x2, a DQ instruction, even with -mno-avx512dq. */
#define DIVIDE_LANES(type, value, quotient)                                                        \
    TWILL_INLINE vector_##type div_##type(vector_##type v, uint32_t divisor)                       \
    {                                                                                              \
        value lane[lanes_##type] TWILL_ALIGNED(64);                                                \
        store_##type(lane, v);                                                                     \
        __asm__("" : "+m"(lane));                                                                  \
        for (unsigned i = 0; i < lanes_##type; i++)                                                \
            lane[i] = (value)(quotient);                                                           \
        return load_##type(lane);                                                                  \
    }
DIVIDE_LANES(i64, int64_t, lane[i] / (int64_t)divisor)
DIVIDE_LANES(u64, uint64_t, lane[i] / divisor)
DIVIDE_LANES(u32, uint32_t, lane[i] / divisor)
/* In f32, as a quotient of 16-bit integers that is not an integer differs from the nearest integer
 * by at least 2^-16 (relative), and a divisor that f32 cannot represent gives 0 either way. */
DIVIDE_LANES(i8, int8_t, (float)lane[i] / (float)divisor)
DIVIDE_LANES(u8, uint8_t, (float)lane[i] / (float)divisor)
DIVIDE_LANES(i16, int16_t, (float)lane[i] / (float)divisor)
DIVIDE_LANES(u16, uint16_t, (float)lane[i] / (float)divisor)

/* Copy four registers. */
TWILL_INLINE void copy_four(char *to, const char *from, bool streams)
{
    vector_i32 v[4];
    TWILL_UNROLL
    for (unsigned i = 0; i < 4; i++)
        v[i] = load_i32((const void *)(from + i * sizeof(v[0])));
    TWILL_UNROLL
    for (unsigned i = 0; i < 4; i++)
        if (streams)
            stream_i32((void *)(to + i * sizeof(v[0])), v[i]);
        else
            store_i32((void *)(to + i * sizeof(v[0])), v[i]);
}

/* Copy a multiple of four registers, and ask ahead for lines of the source to read and of the
 * destination to write, but for none behind their ends, where another core may be writing. */
static void copy_ahead(char *to, const char *from, size_t bytes)
{
    const size_t step = 4 * sizeof(vector_i32);
    for (size_t at = 0; at < bytes; at += step) {
        for (size_t line = at; line < at + step; line += TWILL_CACHE_LINE) {
            if (line + TWILL_SOURCE_AHEAD < bytes)
                __builtin_prefetch(from + line + TWILL_SOURCE_AHEAD, 0, 2);
            if (line + TWILL_DESTINATION_AHEAD < bytes)
                twill_fetch_to_write(to + line + TWILL_DESTINATION_AHEAD, 1);
        }
        copy_four(to + at, from + at, false);
    }
}

/* Copy, with TWILL_KERNEL_STREAM past the caches and with TWILL_KERNEL_FETCH from those of another
 * core, or do nothing if dst is src. memcpy() does small copies and unaligned ends. */
static void copy(void *dst, const void *src, size_t bytes, unsigned flags)
{
    char *to = dst;
    const char *from = src;
    const size_t width = sizeof(vector_i32), step = 4 * width;
    if (dst == src || bytes == 0)
        return;
    bool streams = (flags & TWILL_KERNEL_STREAM) != 0;
    size_t least = streams ? 2 * step : flags & TWILL_KERNEL_FETCH ? TWILL_SOURCE_AHEAD : SIZE_MAX;
    if (bytes < least) {
        memcpy(dst, src, bytes);
        return;
    }
    size_t head = -(uintptr_t)to % width, body = (bytes - head) / step * step;
    memcpy(to, from, head);
    if (!streams)
        copy_ahead(to + head, from + head, body);
    for (size_t at = head; streams && at < head + body; at += step)
        copy_four(to + at, from + at, true);
    if (streams)
        stream_end();
    memcpy(to + head + body, from + head + body, bytes - head - body);
}
