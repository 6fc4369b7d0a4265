/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of 8- and 16-bit floats, in C and by every table: every value, and every boundary
 * between two values, against the oracle. */
#include "kernels/convert.h"
#include "kernels/kernels.h"
#include "tests/support/numbers.h"
#include "tests/support/unit.h"

/* The conversions of a type in C, from and to bits. */
#define CONVERSIONS(name, bits_type)                                                               \
    static uint32_t widen_##name(uint32_t bits)                                                    \
    {                                                                                              \
        return twill_f32_bits(twill_f32_from_##name((bits_type)bits));                             \
    }                                                                                              \
    static uint32_t narrow_##name(uint32_t bits)                                                   \
    {                                                                                              \
        return twill_##name##_from_f32(twill_f32_from_bits(bits));                                 \
    }
CONVERSIONS(f16, uint16_t)
CONVERSIONS(bf16, uint16_t)
CONVERSIONS(f8e4m3, uint8_t)
CONVERSIONS(f8e5m2, uint8_t)

static const struct narrow {
    twill_type type;
    uint32_t (*widen)(uint32_t);
    uint32_t (*narrow)(uint32_t);
    uint32_t nan, most; /* the NaN; the largest number */
} types[] = {{TWILL_F16, widen_f16, narrow_f16, TWILL_NAN_F16, 0x7bff},
             {TWILL_BF16, widen_bf16, narrow_bf16, TWILL_NAN_BF16, 0x7f7f},
             {TWILL_F8E4M3, widen_f8e4m3, narrow_f8e4m3, TWILL_NAN_F8E4M3, 0x7e},
             {TWILL_F8E5M2, widen_f8e5m2, narrow_f8e5m2, TWILL_NAN_F8E5M2, 0x7b}};

static uint32_t codes(const struct narrow *t)
{
    return 1u << twill_test_layout(t->type)->bits;
}

static uint32_t top(const struct narrow *t)
{
    return codes(t) >> 1;
}

static bool is_nan(const struct narrow *t, uint32_t bits)
{
    return (bits & (top(t) - 1)) > t->most + !twill_test_layout(t->type)->finite;
}

static uint32_t canonical(const struct narrow *t, uint32_t bits)
{
    return is_nan(t, bits) ? t->nan : bits;
}

TWILL_TEST(every_value_widens_exactly_and_comes_back)
{
    for (const struct narrow *t = types; t < types + TWILL_ARRAY_LENGTH(types); t++) {
        for (uint32_t bits = 0; bits < codes(t); bits++) {
            uint32_t value = t->widen(bits);
            if (is_nan(t, bits))
                assert_true((value & 0x7fffffff) > 0x7f800000);
            else
                assert_int_equal(value, twill_test_convert(TWILL_F32, t->type, bits));
            assert_int_equal(t->narrow(value), canonical(t, bits));
        }
    }
}

/* Collect the bits of f32 around which rounding changes: halfway between neighbours of each sign,
 * and one f32 to either side. The largest number's neighbour is what would be next with more
 * exponents. Returns how many. */
static size_t boundaries(const struct narrow *t, uint32_t *values)
{
    size_t n = 0;
    for (uint32_t bits = 0; bits <= t->most; bits++) {
        double low = (double)twill_f32_from_bits(t->widen(bits)), high;
        if (bits < t->most)
            high = (double)twill_f32_from_bits(t->widen(bits + 1));
        else
            high = 2 * low - (double)twill_f32_from_bits(t->widen(bits - 1));
        uint32_t middle = twill_f32_bits((float)((low + high) / 2));
        for (uint32_t at = middle ? middle - 1 : 0; at <= middle + 1; at++)
            for (uint32_t sign = 0; sign <= 1; sign++)
                values[n++] = at | sign << 31;
    }
    return n;
}

enum { RANDOM = 1 << 15, MOST = (6 << 15) + RANDOM };

static size_t boundaries_and_random(const struct narrow *t, uint32_t values[MOST])
{
    size_t n = boundaries(t, values);
    uint64_t seed = 3;
    for (size_t i = 0; i < RANDOM; i++)
        values[n++] = (uint32_t)twill_test_random(&seed);
    return n;
}

TWILL_TEST(rounding_is_to_nearest_even)
{
    static uint32_t values[MOST];
    for (const struct narrow *t = types; t < types + TWILL_ARRAY_LENGTH(types); t++) {
        size_t n = boundaries_and_random(t, values);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(t->narrow(values[i]),
                             twill_test_convert(t->type, TWILL_F32, values[i]));
    }
}

/* Values of the formats from their specifications, independent of our code. */
TWILL_TEST(fp8_is_as_specified)
{
    static const struct {
        int type; /* index of types */
        float value;
        uint32_t bits;
    } known[] = {{2, 448.0f, 0x7e},
                 {2, -448.0f, 0xfe},
                 {2, 0x1p-6f, 0x08},
                 {2, 0x1p-9f, 0x01},
                 {2, 1.0f, 0x38},
                 {2, 464.0f, 0x7e},
                 {2, 464.001f, 0x7f},
                 {2, -1e30f, 0x7f},
                 {2, __builtin_inff(), 0x7f},
                 {2, 0x1p-10f, 0x00},
                 {2, -0x1.8p-10f, 0x81},
                 {2, 240.0f, 0x77},
                 {3, 57344.0f, 0x7b},
                 {3, -57344.0f, 0xfb},
                 {3, 0x1p-14f, 0x04},
                 {3, 0x1p-16f, 0x01},
                 {3, 1.0f, 0x3c},
                 {3, 61440.0f, 0x7c},
                 {3, 61439.0f, 0x7b},
                 {3, __builtin_inff(), 0x7c},
                 {3, -1e30f, 0xfc},
                 {3, 0x1p-17f, 0x00},
                 {3, -0x1.8p-17f, 0x81},
                 {2, __builtin_nanf(""), 0x7f},
                 {3, __builtin_nanf(""), 0x7e}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(known); i++)
        assert_int_equal(types[known[i].type].narrow(twill_f32_bits(known[i].value)),
                         known[i].bits);
    assert_true(twill_f32_from_f8e4m3(0x7e) == 448.0f);
    assert_true(twill_f32_from_f8e5m2(0x7b) == 57344.0f);
    assert_true(twill_f32_from_f8e4m3(0x81) == -0x1p-9f);
    assert_true(twill_f32_from_f8e5m2(0x81) == -0x1p-16f);
}

/* Check each kernel with every value as the only source, and widening and narrowing: the result is
 * the value, or the canonical NaN. */
TWILL_TEST(every_value_passes_every_kernel)
{
    static unsigned char in[0x20000], out[0x20000];
    static uint32_t wide[0x10000];
    const void *src[] = {in};
    const struct twill_kernels *kernels;
    for (size_t k = 0; (kernels = twill_test_next_table(&k));) {
        for (const struct narrow *t = types; t < types + TWILL_ARRAY_LENGTH(types); t++) {
            for (uint32_t bits = 0; bits < codes(t); bits++)
                twill_test_put(t->type, in, bits, bits);
            for (int op = 0; op <= TWILL_AVG; op++) {
                kernels->reduce[t->type][op](out, src, 1, codes(t), 1, 0);
                for (uint32_t bits = 0; bits < codes(t); bits++)
                    assert_int_equal(twill_test_get(t->type, out, bits), canonical(t, bits));
            }
            kernels->widen[t->type](wide, in, codes(t));
            kernels->narrow[t->type](out, wide, codes(t));
            for (uint32_t bits = 0; bits < codes(t); bits++) {
                assert_int_equal(wide[bits], is_nan(t, bits) ? TWILL_NAN_F32 : t->widen(bits));
                assert_int_equal(twill_test_get(t->type, out, bits), canonical(t, bits));
            }
        }
    }
}

/* Check the tables' conversions: every boundary, random bits, any length, nothing written beyond.
 */
TWILL_TEST(tables_round_as_in_c)
{
    static uint32_t values[MOST];
    static unsigned char out[2 * MOST + 64];
    const struct twill_kernels *kernels;
    for (const struct narrow *t = types; t < types + TWILL_ARRAY_LENGTH(types); t++) {
        size_t size = twill_test_layout(t->type)->bits / 8, n = boundaries_and_random(t, values);
        for (size_t k = 0; (kernels = twill_test_next_table(&k));) {
            for (size_t count = 0; count <= n; count = count < 70 ? count + 1 : n + (count == n)) {
                memset(out, 0x5a, (count + 16) * size);
                kernels->narrow[t->type](out, values, count);
                for (size_t i = 0; i < count; i++)
                    assert_int_equal(twill_test_get(t->type, out, i), t->narrow(values[i]));
                for (size_t i = 0; i < 16 * size; i++)
                    assert_int_equal(out[count * size + i], 0x5a);
            }
        }
    }
}
