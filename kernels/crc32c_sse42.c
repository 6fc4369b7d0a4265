/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C by the crc32 instruction of SSE4.2, which takes 8 bytes a cycle with a latency of three.
 * Long data is therefore read as three streams, whose remainders are joined by PCLMULQDQ (Gopal et
 * al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", 2011). A remainder is a
 * polynomial over GF(2) with its bits reversed: bit 31 is the coefficient of x^0. */
#include "kernels/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WORD          8u
#define THREE_STREAMS 1024u /* for shorter data, joining costs more than it saves */

/* Return the 8 bytes at `at`, which need not be aligned, as a number in this machine's order. */
static uint64_t word_at(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof(word));
    return word;
}

/* Return a * b * x, for polynomials over GF(2) with reversed bits, in 64 bits. */
static uint64_t multiply_gf2(uint32_t a, uint32_t b)
{
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)a), _mm_cvtsi32_si128((int)b), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

/* Return x^n modulo the polynomial. crc32 multiplies by x^32, so that the square of x^m becomes
 * x^(2m + 33), or x^(2m + 32) if it is shifted. */
static uint32_t power_of_x(uint64_t n)
{
    uint64_t odd = 0;
    unsigned squares = 0;
    for (; n > 191; n = n / 2 - 16, squares++)
        odd = odd << 1 | (n & 1);
    uint32_t power = UINT32_C(1) << 31 >> (n & 31);
    for (n /= 32; n > 0; n--)
        power = _mm_crc32_u32(power, 0);
    for (; squares > 0; squares--, odd >>= 1)
        power = (uint32_t)_mm_crc32_u64(0, multiply_gf2(power, power) << ((odd & 1) != 0 ? 0 : 1));
    return power;
}

/* Return the remainder of a stream, whose remainder is `crc`, after `bytes` more bytes of zeros,
 * which are 8 or more. */
static uint32_t append_zeros(uint32_t crc, size_t bytes)
{
    return (uint32_t)_mm_crc32_u64(0, multiply_gf2(crc, power_of_x(8 * (uint64_t)bytes - 33)));
}

uint32_t twill_crc32c_sse42(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint64_t first = ~crc;
    if (bytes >= THREE_STREAMS) {
        size_t stream = bytes / (3 * WORD) * WORD;
        uint64_t second = 0, third = 0;
        for (const unsigned char *end = at + stream; at < end; at += WORD) {
            first = _mm_crc32_u64(first, word_at(at));
            second = _mm_crc32_u64(second, word_at(at + stream));
            third = _mm_crc32_u64(third, word_at(at + 2 * stream));
        }
        first = append_zeros((uint32_t)first, 2 * stream) ^ append_zeros((uint32_t)second, stream) ^
                (uint32_t)third;
        at += 2 * stream;
        bytes -= 3 * stream;
    }
    for (; bytes >= WORD; bytes -= WORD, at += WORD)
        first = _mm_crc32_u64(first, word_at(at));
    uint32_t rest = (uint32_t)first;
    for (; bytes > 0; bytes--)
        rest = _mm_crc32_u8(rest, *at++);
    return ~rest;
}
#endif
