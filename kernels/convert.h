/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of 8- and 16-bit floats to f32 (exact) and back (to nearest even), in portable C. On
 * the way back a NaN becomes the canonical quiet NaN. */
#ifndef TWILL_CONVERT_H
#define TWILL_CONVERT_H

#include <stdint.h>
#include <string.h>

#define TWILL_NAN_F32    0x7fc00000u
#define TWILL_NAN_F64    0x7ff8000000000000u
#define TWILL_NAN_F16    0x7e00u
#define TWILL_NAN_BF16   0x7fc0u
#define TWILL_NAN_F8E4M3 0x7fu
#define TWILL_NAN_F8E5M2 0x7eu

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

/* Round to bf16, to nearest even. A NaN becomes the canonical one. */
static inline uint16_t twill_bf16_from_f32(float value)
{
    uint32_t bits = twill_f32_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return TWILL_NAN_BF16;
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

/* Widen a finite magnitude, the bits `rest`, of a format with this mantissa (bits) and bias. */
static inline float twill_widen_magnitude(uint32_t rest, unsigned mantissa, unsigned bias)
{
    if (rest >> mantissa) /* normal: rebias to 127 */
        return twill_f32_from_bits((rest << (23 - mantissa)) + ((127 - bias) << 23));
    return (float)rest * twill_f32_from_bits((128 - bias - mantissa) << 23); /* denormal: exact */
}

/* Round a magnitude to the nearest number, ties to even, of a format with `mantissa` bits of
 * mantissa and this bias of the exponent. `rest` has the bits of an f32 without its sign, not a
 * NaN. Returns the number's code without a sign. If the magnitude is too large for the format, the
 * code is above that of its largest number. */
static inline uint32_t twill_narrow_magnitude(uint32_t rest, unsigned mantissa, unsigned bias)
{
    uint32_t digits = rest & 0x7fffffu, shift = 23 - mantissa, exponent = rest >> 23;
    if (exponent > 127 - bias) {
        digits |= (exponent - (127 - bias)) << 23;
    } else { /* denormal: the hidden bit becomes visible, shifted further down */
        digits |= 0x800000u;
        shift += 128 - bias - exponent;
    }
    if (shift > 24) /* below half of the least denormal */
        return 0;
    return (digits + (1u << (shift - 1)) - 1 + (digits >> shift & 1)) >> shift;
}

/* Return a magnitude with `sign`, which is 0 or the sign bit of an f32. */
static inline float twill_with_sign(float magnitude, uint32_t sign)
{
    return twill_f32_from_bits(twill_f32_bits(magnitude) | sign); /* on bits, because of -0 */
}

static inline float twill_f32_from_f16(uint16_t value)
{
    uint32_t sign = (uint32_t)(value & 0x8000u) << 16;
    uint32_t rest = value & 0x7fffu;
    if (rest >= 0x7c00u) /* infinity and NaN: all ones stay all ones */
        return twill_f32_from_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    return twill_with_sign(twill_widen_magnitude(rest, 10, 15), sign);
}

/* Round to f16, to nearest even. A NaN becomes the canonical one, too large a value infinity. */
static inline uint16_t twill_f16_from_f32(float value)
{
    uint32_t bits = twill_f32_bits(value), rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u)
        return TWILL_NAN_F16;
    uint32_t code = twill_narrow_magnitude(rest, 10, 15);
    return (uint16_t)((bits >> 16 & 0x8000u) | (code < 0x7c00u ? code : 0x7c00u));
}

static inline float twill_f32_from_f8e4m3(uint8_t value)
{
    uint32_t sign = (uint32_t)(value & 0x80u) << 24;
    if ((value & 0x7fu) == 0x7fu)
        return twill_f32_from_bits(sign | TWILL_NAN_F32);
    return twill_with_sign(twill_widen_magnitude(value & 0x7fu, 3, 7), sign);
}

/* Round to f8e4m3, to nearest even. NaN and codes past the largest, 0x7e, become 0x7f, its NaN. */
static inline uint8_t twill_f8e4m3_from_f32(float value)
{
    uint32_t bits = twill_f32_bits(value), rest = bits & 0x7fffffffu;
    uint32_t code = rest > 0x7f800000u ? TWILL_NAN_F8E4M3 : twill_narrow_magnitude(rest, 3, 7);
    return (uint8_t)(code < TWILL_NAN_F8E4M3 ? (bits >> 24 & 0x80u) | code : TWILL_NAN_F8E4M3);
}

/* Widen an f8e5m2, which is the upper half of an f16. */
static inline float twill_f32_from_f8e5m2(uint8_t value)
{
    return twill_f32_from_f16((uint16_t)(value << 8));
}

/* Round to f8e5m2, to nearest even. A NaN becomes the canonical one, too large a value infinity. */
static inline uint8_t twill_f8e5m2_from_f32(float value)
{
    uint32_t bits = twill_f32_bits(value), rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u)
        return TWILL_NAN_F8E5M2;
    uint32_t code = twill_narrow_magnitude(rest, 2, 15);
    return (uint8_t)((bits >> 24 & 0x80u) | (code < 0x7cu ? code : 0x7cu));
}

#endif
