/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of codes and narrow codes: bounds of the error, what the residual keeps, numbers that are
 * none; every table against the scalar one, bit for bit. */
#include "kernels/convert.h"
#include "kernels/training/quantize.h"
#include "tests/support/numbers.h"
#include "tests/support/pool.h"

#define MOST    ((size_t)2100) /* elements */
#define BLOCKS  ((size_t)70)   /* of the smallest size, and two more */
#define PAD     ((size_t)8)
#define SOURCES 8

static const struct {
    struct twill_block_format format;
    double largest;            /* code */
    double relative, absolute; /* bounds of the error: of the value; of the scale */
} block_formats[] = {
    {{TWILL_I8, 256}, 127, 0, 0.501},
    {{TWILL_I8, 32}, 127, 0, 0.501},
    {{TWILL_F8E4M3, 256}, 448, 0x1.00001p-4, 0x1.00001p-10},
    {{TWILL_F8E5M2, 1024}, 57344, 0x1.00001p-3, 0x1.00001p-17},
};

static const twill_type plain_types[] = {TWILL_F32, TWILL_F16, TWILL_BF16};
static const twill_type code_types[] = {TWILL_F16, TWILL_BF16, TWILL_F8E4M3, TWILL_F8E5M2};

static size_t bytes_of(twill_type type)
{
    return twill_test_element(type, TWILL_SUM, false);
}

/* Fill with numbers of many magnitudes: (-1, 1) times 2^0 .. 2^-15. */
static void fill_magnitudes(twill_type type, void *array, size_t count, uint64_t seed)
{
    uint64_t state = seed;
    for (size_t i = 0; i < count; i++) {
        double value = (double)(int64_t)twill_test_random(&state) * 0x1p-63;
        twill_test_put_float(type, array, i,
                             (float)ldexp(value, -(int)(twill_test_random(&state) % 16)));
    }
}

/* What a call reads and writes, and what is around it. */
struct coded_arrays {
    float gradient[MOST + 2 * PAD], residual[MOST + 2 * PAD], plain[MOST + 2 * PAD];
    unsigned char blocks[BLOCKS * (TWILL_BLOCK_LEAST + 4) + TWILL_BLOCK_MOST];
};

static void fill_arrays(struct coded_arrays *arrays, twill_type type, uint64_t seed, bool difficult)
{
    memset(arrays, 0x55, sizeof(*arrays));
    fill_magnitudes(TWILL_F32, arrays->residual, MOST + 2 * PAD, seed);
    if (difficult)
        twill_test_fill(type, arrays->gradient, MOST, seed);
    else
        fill_magnitudes(type, arrays->gradient, MOST, seed + 1);
}

/* Return what the block of element i says it is. */
static double decoded(struct twill_block_format format, const unsigned char *blocks, size_t i,
                      double *scale)
{
    const unsigned char *block = blocks + i / format.elements * twill_block_bytes(format);
    float factor;
    memcpy(&factor, block, sizeof(factor));
    *scale = (double)factor;
    const unsigned char *codes = block + sizeof(factor);
    double code = format.code == TWILL_I8
                      ? (double)(int8_t)codes[i % format.elements]
                      : (double)twill_test_float(format.code, codes, i % format.elements);
    return code * (double)factor;
}

/* Compare codes with what was encoded, residuals with what codes lack, and the rest of the arrays
 * with what was there. */
static void check_codes(size_t f, const struct coded_arrays *before,
                        const struct coded_arrays *after, twill_type type, size_t offset,
                        size_t count, float prescale)
{
    const struct twill_block_format format = block_formats[f].format;
    size_t padded = twill_block_count(format, count) * format.elements;
    for (size_t i = 0; i < padded; i++) {
        double scale, value = decoded(format, after->blocks, i, &scale);
        float v = i < count ? twill_test_float(type, before->gradient, offset + i) * prescale +
                                  before->residual[offset + i]
                            : 0;
        double most =
            fmax(block_formats[f].relative * fabs((double)v), block_formats[f].absolute * scale);
        if (!(fabs((double)v - value) <= most))
            fail_msg("format %zu: %g became %g, scale %g", f, (double)v, value, scale);
        if (i < count)
            assert_int_equal(twill_f32_bits(after->residual[offset + i]),
                             twill_f32_bits(v - (float)value));
    }
    assert_memory_equal(before->gradient, after->gradient, sizeof(before->gradient));
    assert_memory_equal(before->residual, after->residual, offset * sizeof(float));
    assert_memory_equal(before->residual + offset + count, after->residual + offset + count,
                        (MOST + 2 * PAD - offset - count) * sizeof(float));
    size_t written = twill_block_count(format, count) * twill_block_bytes(format);
    for (size_t i = written; i < sizeof(after->blocks); i++)
        assert_int_equal(after->blocks[i], 0x55);
}

/* Encode and decode by every table. */
static void check_blocks(size_t f, twill_type type, size_t offset, size_t count, bool difficult)
{
    static struct coded_arrays before, first, other;
    const struct twill_block_format format = block_formats[f].format;
    const struct twill_kernels *kernels;
    fill_arrays(&before, type, f + count, difficult);
    for (size_t table = 0; (kernels = twill_test_next_table(&table));) {
        struct coded_arrays *arrays = table == 1 ? &first : &other;
        const void *const blocks[] = {arrays->blocks};
        memcpy(arrays, &before, sizeof(before));
        twill_quantize(kernels, format, arrays->blocks, type,
                       (char *)arrays->gradient + offset * bytes_of(type),
                       arrays->residual + offset, 0.75f, count, NULL);
        if (table == 1 && !difficult)
            check_codes(f, &before, &first, type, offset, count, 0.75f);
        twill_dequantize(kernels, format, type, (char *)arrays->plain + offset * bytes_of(type),
                         blocks, 1, 0.5f, count, NULL);
        if (table > 1)
            assert_memory_equal(&first, &other, sizeof(first));
    }
    for (size_t i = 0; !difficult && i < count; i++) {
        double scale, value = decoded(format, first.blocks, i, &scale);
        float want;
        twill_test_put_float(type, &want, 0, (float)value * 0.5f);
        assert_int_equal(twill_test_get(type, first.plain, offset + i),
                         twill_test_get(type, &want, 0));
    }
    assert_memory_equal((char *)before.plain + (offset + count) * bytes_of(type),
                        (char *)first.plain + (offset + count) * bytes_of(type), PAD);
}

TWILL_TEST(blocks_are_as_exact_as_documented)
{
    static const size_t counts[] = {0, 1, 31, 256, 257, 1000, 2049};
    for (size_t f = 0; f < TWILL_ARRAY_LENGTH(block_formats); f++)
        for (size_t t = 0; t < TWILL_ARRAY_LENGTH(plain_types); t++)
            for (size_t c = 0; c < TWILL_ARRAY_LENGTH(counts); c++) {
                check_blocks(f, plain_types[t], c % 3, counts[c], false);
                check_blocks(f, plain_types[t], c % 3, counts[c], true);
            }
}

/* Add up to eight arrays of blocks: the sum has the error of one more encoding. */
TWILL_TEST(sums_are_encoded_anew)
{
    static float values[MOST], sum[MOST];
    static unsigned char blocks[SOURCES][BLOCKS * 36], first[BLOCKS * 36], added[BLOCKS * 36];
    const void *src[SOURCES];
    const struct twill_kernels *kernels, *scalar = twill_kernels_at(0);
    for (size_t f = 0; f < TWILL_ARRAY_LENGTH(block_formats); f++)
        for (unsigned sources = 1; sources <= SOURCES; sources += 1 + sources / 2) {
            const struct twill_block_format format = block_formats[f].format;
            size_t n = 2048, count = n / format.elements, bytes = count * twill_block_bytes(format);
            for (unsigned s = 0; s < sources; s++) {
                fill_magnitudes(TWILL_F32, values, n, s + 1);
                twill_quantize(scalar, format, blocks[s], TWILL_F32, values, NULL, 1, n, NULL);
                src[s] = blocks[s];
            }
            twill_dequantize(scalar, format, TWILL_F32, sum, src, sources, 1, n, NULL);
            for (size_t i = 0; i < n; i++) {
                double scale;
                float want = (float)decoded(format, blocks[0], i, &scale);
                for (unsigned s = 1; s < sources; s++)
                    want += (float)decoded(format, blocks[s], i, &scale);
                assert_int_equal(twill_f32_bits(sum[i]), twill_f32_bits(want));
            }
            for (size_t table = 0; (kernels = twill_test_next_table(&table));) {
                twill_quantized_add(kernels, format, table == 1 ? first : added, src, sources,
                                    count, NULL);
                if (table > 1)
                    assert_memory_equal(first, added, bytes);
            }
            for (size_t i = 0; i < n; i++) {
                double scale, value = decoded(format, first, i, &scale);
                double most = fmax(block_formats[f].relative * fabs((double)sum[i]),
                                   block_formats[f].absolute * scale);
                assert_true(fabs((double)sum[i] - value) <= most);
            }
            twill_quantized_add(scalar, format, blocks[0], src, sources, count,
                                NULL); /* in place */
            assert_memory_equal(first, blocks[0], bytes);
        }
}

/* One NaN or infinity makes a block NaN, sums with it too; its residual stays. */
TWILL_TEST(a_nan_is_not_lost)
{
    static float values[512], residual[512], sum[512];
    unsigned char bad[2 * 260], good[2 * 260];
    const void *const both[] = {good, bad};
    const float wrong[] = {NAN, INFINITY, -INFINITY};
    for (size_t f = 0; f < TWILL_ARRAY_LENGTH(block_formats); f++)
        for (size_t w = 0; w < TWILL_ARRAY_LENGTH(wrong); w++) {
            struct twill_block_format format = {block_formats[f].format.code, 256};
            const struct twill_kernels *kernels = twill_kernels_at(0);
            for (size_t i = 0; i < 512; i++)
                values[i] = residual[i] = (float)i;
            twill_quantize(kernels, format, good, TWILL_F32, values, NULL, 1, 512, NULL);
            values[17 + w] = wrong[w];
            twill_quantize(kernels, format, bad, TWILL_F32, values, residual, 1, 512, NULL);
            for (size_t i = 0; i < 256; i++)
                assert_true(residual[i] >= (float)i && residual[i] <= (float)i);
            twill_quantized_add(kernels, format, bad, both, 2, 2, NULL);
            twill_dequantize(kernels, format, TWILL_F32, sum, both, 2, 1, 512, NULL);
            for (size_t i = 0; i < 512; i++)
                assert_int_equal(twill_f32_bits(sum[i]) == 0x7fc00000, i < 256);
        }
}

/* Without a scale that f32 can hold well, everything goes to the residual. */
TWILL_TEST(tiny_values_go_to_the_residual)
{
    float values[40], residual[40] = {0};
    unsigned char block[260];
    static const unsigned char zeros[260];
    for (size_t i = 0; i < 40; i++)
        values[i] = (float)i * 0x1p-120f;
    twill_quantize(twill_kernels_at(0), (struct twill_block_format){TWILL_I8, 256}, block,
                   TWILL_F32, values, residual, 1, 40, NULL);
    assert_memory_equal(block, zeros, sizeof(block));
    assert_memory_equal(values, residual, sizeof(values));
}

/* Narrow codes are the conversion of prescale * gradient + residual; the residual is the rest. */
static void check_narrow(twill_type code, twill_type type, size_t offset, size_t count,
                         bool difficult)
{
    static struct coded_arrays before, first, other;
    const struct twill_kernels *kernels;
    fill_arrays(&before, type, (uint64_t)code + count, difficult);
    for (size_t table = 0; (kernels = twill_test_next_table(&table));) {
        struct coded_arrays *arrays = table == 1 ? &first : &other;
        memcpy(arrays, &before, sizeof(before));
        twill_narrow(kernels, code, (char *)arrays->plain + offset * bytes_of(code), type,
                     (char *)arrays->gradient + offset * bytes_of(type), arrays->residual + offset,
                     0.75f, count, NULL);
        if (table > 1)
            assert_memory_equal(&first, &other, sizeof(first));
    }
    for (size_t i = offset; i < offset + count; i++) {
        float v = twill_test_float(type, before.gradient, i) * 0.75f + before.residual[i], want;
        float sent = twill_test_float(code, first.plain, i), left = before.residual[i];
        twill_test_put_float(code, &want, 0, v);
        assert_int_equal(twill_test_get(code, first.plain, i), twill_test_get(code, &want, 0));
        if (isfinite(sent))
            left = v - sent;
        assert_int_equal(twill_f32_bits(first.residual[i]), twill_f32_bits(left));
    }
    assert_memory_equal((char *)before.plain + (offset + count) * bytes_of(code),
                        (char *)first.plain + (offset + count) * bytes_of(code), PAD);
    assert_memory_equal(before.residual + offset + count, first.residual + offset + count,
                        PAD * sizeof(float));
}

TWILL_TEST(narrow_codes_leave_the_rest)
{
    static const size_t counts[] = {0, 1, 15, 16, 33, 500};
    for (size_t n = 0; n < TWILL_ARRAY_LENGTH(code_types); n++)
        for (size_t t = 0; t < TWILL_ARRAY_LENGTH(plain_types); t++)
            for (size_t c = 0; c < TWILL_ARRAY_LENGTH(counts); c++) {
                check_narrow(code_types[n], plain_types[t], c % 3, counts[c], false);
                check_narrow(code_types[n], plain_types[t], c % 3, counts[c], true);
            }
}

/* What was sent and the last residual add up to all gradients; without feedback they do not: a
 * gradient of less than half a code is never sent. */
TWILL_TEST(nothing_is_lost_with_feedback)
{
    enum { STEPS = 200, COUNT = 256 };
    static float gradient[COUNT], residual[COUNT], got[COUNT];
    double sent = 0, bare = 0;
    unsigned char block[260];
    const void *const blocks[] = {block};
    const struct twill_block_format format = {TWILL_I8, 256};
    const struct twill_kernels *kernels = twill_kernels_at(0);
    for (size_t i = 0; i < COUNT; i++)
        gradient[i] = i == 0 ? 1 : 0.001f; /* a code is worth 1 / 127 */
    for (int step = 0; step < STEPS; step++) {
        twill_quantize(kernels, format, block, TWILL_F32, gradient, residual, 1, COUNT, NULL);
        twill_dequantize(kernels, format, TWILL_F32, got, blocks, 1, 1, COUNT, NULL);
        sent += (double)got[9];
        twill_quantize(kernels, format, block, TWILL_F32, gradient, NULL, 1, COUNT, NULL);
        twill_dequantize(kernels, format, TWILL_F32, got, blocks, 1, 1, COUNT, NULL);
        bare += (double)got[9];
    }
    assert_true(fabs(sent + (double)residual[9] - 0.2) < 1e-5);
    assert_true(fabs(sent - 0.2) < 0.005);
    assert_true(fabs(bare) < 1e-9);
}

/* Large enough for three threads, which give the same bits. */
TWILL_TEST(threads_change_nothing)
{
    enum { COUNT = 300007 };
    const struct twill_block_format format = {TWILL_I8, 256};
    size_t blocks = twill_block_count(format, COUNT), bytes = blocks * twill_block_bytes(format);
    float *gradient = malloc(COUNT * sizeof(float)), *residual[2], *plain[2];
    unsigned char *coded[2];
    const struct twill_kernels *kernels;
    struct twill_thread_pool *pools[2] = {NULL, twill_test_pool(3, 1 << 16)};
    assert_int_equal(twill_kernels_select(&kernels, NULL, NULL), TWILL_OK);
    fill_magnitudes(TWILL_F32, gradient, COUNT, 1);
    for (int i = 0; i < 2; i++) {
        coded[i] = malloc(bytes);
        residual[i] = calloc(COUNT, sizeof(float));
        plain[i] = malloc(COUNT * sizeof(float));
        const void *const both[] = {coded[i], coded[i]};
        twill_quantize(kernels, format, coded[i], TWILL_F32, gradient, residual[i], 1, COUNT,
                       pools[i]);
        twill_quantized_add(kernels, format, coded[i], both, 2, blocks, pools[i]);
        twill_dequantize(kernels, format, TWILL_F32, plain[i], both, 2, 1, COUNT, pools[i]);
        twill_narrow(kernels, TWILL_BF16, gradient, TWILL_F32, plain[i], residual[i], 1, COUNT,
                     pools[i]);
        fill_magnitudes(TWILL_F32, gradient, COUNT, 1);
    }
    assert_memory_equal(coded[0], coded[1], bytes);
    assert_memory_equal(residual[0], residual[1], COUNT * sizeof(float));
    assert_memory_equal(plain[0], plain[1], COUNT * sizeof(float));
    for (int i = 0; i < 2; i++) {
        free(coded[i]);
        free(residual[i]);
        free(plain[i]);
    }
    free(gradient);
    twill_thread_pool_close(pools[1]);
}

TWILL_TEST(formats_out_of_range_are_refused)
{
    for (size_t f = 0; f < TWILL_ARRAY_LENGTH(block_formats); f++)
        assert_true(twill_block_format_valid(block_formats[f].format));
    assert_false(twill_block_format_valid((struct twill_block_format){TWILL_F16, 256}));
    assert_false(twill_block_format_valid((struct twill_block_format){TWILL_I8, 0}));
    assert_false(twill_block_format_valid((struct twill_block_format){TWILL_I8, 48}));
    assert_false(twill_block_format_valid((struct twill_block_format){TWILL_I8, 2048}));
    assert_int_equal(twill_block_count((struct twill_block_format){TWILL_I8, 256}, 257), 2);
}
