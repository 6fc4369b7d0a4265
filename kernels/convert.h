/* SPDX-License-Identifier: Apache-2.0 */
/* 16-bit floats to f32 (exact) and back (to nearest even), in portable C.
 * A NaN becomes the canonical quiet NaN on the way back. */
#ifndef TWILL_KERNELS_CONVERT_H
#define TWILL_KERNELS_CONVERT_H

#include <stdint.h>
#include <string.h>

#define TWILL_NAN_F32  0x7fc00000u
#define TWILL_NAN_F64  0x7ff8000000000000u
#define TWILL_NAN_F16  0x7e00u
#define TWILL_NAN_BF16 0x7fc0u

static inline float twill_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t twill_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float twill_f32_from_bf16(uint16_t value)
{
    return twill_f32_from_bits((uint32_t)value << 16);
}

static inline uint16_t twill_bf16_from_f32(float value)
{
    uint32_t bits = twill_f32_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return TWILL_NAN_BF16;
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

static inline float twill_f32_from_f16(uint16_t value)
{
    uint32_t sign = (uint32_t)(value & 0x8000u) << 16;
    uint32_t rest = value & 0x7fffu;
    if (rest >= 0x7c00u) /* infinity and NaN: all ones stay all ones */
        return twill_f32_from_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    if (rest >= 0x0400u) /* normal: rebias 15 to 127 */
        return twill_f32_from_bits(sign | ((rest << 13) + ((127u - 15u) << 23)));
    /* Denormal: rest * 2^-24, exact; the sign goes in as bits because of -0. */
    return twill_f32_from_bits(sign | twill_f32_bits((float)rest * 0x1p-24f));
}

static inline uint16_t twill_f16_from_f32(float value)
{
    uint32_t bits = twill_f32_bits(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u)
        return TWILL_NAN_F16;
    if (rest >= 0x47800000u) /* 65536 and up; 65520..65535 carry into infinity below */
        return (uint16_t)(sign | 0x7c00u);
    if (rest < 0x33000000u) /* below half of the least denormal */
        return (uint16_t)sign;
    uint32_t mantissa = rest & 0x7fffffu, shift = 13, exponent = rest >> 23;
    if (exponent > 127 - 15) {
        mantissa |= (exponent - (127 - 15)) << 23;
    } else { /* denormal: the hidden bit becomes visible, shifted further down */
        mantissa |= 0x800000u;
        shift += 127 - 14 - exponent;
    }
    uint32_t up = (1u << (shift - 1)) - 1 + (mantissa >> shift & 1);
    return (uint16_t)(sign | (mantissa + up) >> shift);
}

#endif
