/* SPDX-License-Identifier: Apache-2.0 */
/* 16-bit floats: every value, every boundary between two values, against the oracle. */
#include "kernels/convert.h"
#include "kernels/kernels.h"
#include "tests/support/numbers.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct half {
    twill_type type;
    float (*widen)(uint16_t);
    uint16_t (*narrow)(float);
    uint16_t nan, infinity;
} halves[] = {{TWILL_F16, twill_f32_from_f16, twill_f16_from_f32, TWILL_NAN_F16, 0x7c00},
              {TWILL_BF16, twill_f32_from_bf16, twill_bf16_from_f32, TWILL_NAN_BF16, 0x7f80}};

static bool is_nan(const struct half *h, uint32_t bits)
{
    return (bits & 0x7fff) > h->infinity;
}

static void every_value_widens_exactly_and_comes_back(void **state)
{
    (void)state;
    for (size_t h = 0; h < TWILL_ARRAY_LENGTH(halves); h++) {
        for (uint32_t bits = 0; bits <= 0xffff; bits++) {
            float value = halves[h].widen((uint16_t)bits);
            if (is_nan(&halves[h], bits)) {
                assert_true(value != value);
                assert_int_equal(halves[h].narrow(value), halves[h].nan);
                continue;
            }
            assert_int_equal(twill_f32_bits(value),
                             twill_test_convert(TWILL_F32, halves[h].type, bits));
            assert_int_equal(halves[h].narrow(value), bits);
        }
    }
}

/* Between two neighbours: halfway, and one f32 to either side of it; and past the largest. */
static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    for (size_t h = 0; h < TWILL_ARRAY_LENGTH(halves); h++) {
        for (uint32_t bits = 0; bits < halves[h].infinity; bits++) {
            float low = halves[h].widen((uint16_t)bits);
            float high = bits + 1 < halves[h].infinity ? halves[h].widen((uint16_t)(bits + 1))
                                                       : (h == 0 ? 65536.0f : 0x1.fffffep127f);
            uint32_t middle = twill_f32_bits((float)(((double)low + (double)high) / 2));
            for (uint32_t at = middle ? middle - 1 : 0; at <= middle + 1; at++) {
                for (uint32_t sign = 0; sign <= 1; sign++) {
                    uint32_t value = at | sign << 31;
                    assert_int_equal(halves[h].narrow(twill_f32_from_bits(value)),
                                     twill_test_convert(halves[h].type, TWILL_F32, value));
                }
            }
        }
    }
}

static void random_values_round_like_the_oracle(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint32_t bits = (uint32_t)twill_test_random(&seed);
        for (size_t h = 0; h < TWILL_ARRAY_LENGTH(halves); h++)
            assert_int_equal(halves[h].narrow(twill_f32_from_bits(bits)),
                             twill_test_convert(halves[h].type, TWILL_F32, bits));
    }
}

/* All 65536 values through each kernel, one source: the value itself, or the one NaN. */
static void every_value_passes_every_kernel(void **state)
{
    static uint16_t in[0x10000], out[0x10000];
    const void *src[] = {in};
    const struct twill_kernels *kernels;
    (void)state;
    for (uint32_t bits = 0; bits <= 0xffff; bits++)
        in[bits] = (uint16_t)bits;
    for (size_t k = 0; (kernels = twill_kernels_at(k)); k++) {
        if (!kernels->supported())
            continue;
        for (size_t h = 0; h < TWILL_ARRAY_LENGTH(halves); h++) {
            for (int op = 0; op < TWILL_OP_COUNT; op++) {
                kernels->reduce[halves[h].type][op](out, src, 1, 0x10000, 1, 0);
                for (uint32_t bits = 0; bits <= 0xffff; bits++)
                    assert_int_equal(out[bits], is_nan(&halves[h], bits) ? halves[h].nan : bits);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_widens_exactly_and_comes_back),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(random_values_round_like_the_oracle),
        cmocka_unit_test(every_value_passes_every_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
