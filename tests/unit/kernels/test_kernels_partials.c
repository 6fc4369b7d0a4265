/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions of raw and partial elements in any mix, and scaling: every table against the oracle,
 * with lengths around WIDE_COUNT (480), misaligned, in place, in any floating-point environment, on
 * threads. */
#include "kernels/kernels.h"
#include "tests/support/numbers.h"
#include "tests/support/pool.h"

enum {
    SOURCES = TWILL_KERNEL_MAX_SOURCES,
    MOST = 1500, /* elements: more than 3 WIDE_COUNT */
    PERIOD = 61, /* elements repeat after this many, as the oracle is slow */
    MARGIN = 64,
    BUFFER = MOST * 16 + 4 * MARGIN
};

static char raw[SOURCES][BUFFER] TWILL_ALIGNED(64);
static char partial[SOURCES][BUFFER] TWILL_ALIGNED(64);
static char target[BUFFER] TWILL_ALIGNED(64);
static char expected[BUFFER] TWILL_ALIGNED(64);

/* A reduction of the sweep. */
struct sample {
    struct twill_reduction reduction;
    unsigned nsrc;
    const void *src[SOURCES];
};

static size_t source_bytes(const struct twill_reduction *reduction, unsigned s)
{
    return twill_test_element(reduction->type, reduction->op, reduction->partial_sources >> s & 1);
}

static size_t result_bytes(const struct twill_reduction *reduction)
{
    return twill_test_element(reduction->type, reduction->op, reduction->partial_result);
}

static char *source_buffer(const struct sample *sample, unsigned s)
{
    return sample->reduction.partial_sources >> s & 1 ? partial[s] : raw[s];
}

static void repeat(char *elements, size_t bytes)
{
    for (size_t i = PERIOD * bytes; i < MOST * bytes; i++)
        elements[i] = elements[i - PERIOD * bytes];
}

static void fill_arrays(twill_type type, twill_op op)
{
    for (unsigned s = 0; s < SOURCES; s++) {
        twill_test_fill_for(type, op, false, raw[s] + MARGIN, PERIOD, 5 + s);
        twill_test_fill_for(type, op, true, partial[s] + MARGIN, PERIOD, 50 + s);
        repeat(raw[s] + MARGIN, twill_test_element(type, op, false));
        repeat(partial[s] + MARGIN, twill_test_element(type, op, true));
    }
}

/* Check a reduction into a separate buffer (alias < 0) or into source number `alias`, with all
 * buffers off by `off` elements. */
static void check_sample(const struct twill_kernels *kernels, const struct sample *sample,
                         size_t count, size_t off, int alias)
{
    static char before[BUFFER];
    const struct twill_reduction *reduction = &sample->reduction;
    const size_t bytes = result_bytes(reduction);
    const void *src[SOURCES];
    char *buffer = alias < 0 ? target : source_buffer(sample, (unsigned)alias);
    char *dst = buffer + MARGIN + off * bytes;
    for (unsigned s = 0; s < sample->nsrc; s++)
        src[s] = source_buffer(sample, s) + MARGIN + off * source_bytes(reduction, s);
    const size_t used = (size_t)(dst - buffer) + count * bytes + MARGIN;
    memcpy(before, buffer, used);
    twill_kernels_reduce(kernels, reduction, dst, src, sample->nsrc, count);
    memcpy(before + (dst - buffer), expected + off * bytes, count * bytes);
    for (size_t i = 0; memcmp(before, buffer, used) != 0 && i < used; i++)
        if (before[i] != buffer[i])
            fail_msg(
                "%s %s %s of %u (partial %#x to %s), %zu elements from %zu in place of %d: byte "
                "%td is %#x, not %#x",
                kernels->isa, twill_type_name(reduction->type), twill_op_name(reduction->op),
                sample->nsrc, reduction->partial_sources,
                reduction->partial_result ? "partial" : "final", count, off, alias,
                (ptrdiff_t)i - (dst - buffer), (unsigned char)buffer[i], (unsigned char)before[i]);
}

/* Check all tables and lengths. A source that was the destination is restored after each check. */
static void check_lengths(const struct sample *sample)
{
    static const size_t counts[] = {0, 1, 2, 7, 33, 64, 479, 480, 481, 959, 960, 977, MOST - 3};
    static char kept[BUFFER];
    const struct twill_kernels *kernels;
    for (size_t k = 0; (kernels = twill_test_next_table(&k));) {
        for (size_t c = 0; c < TWILL_ARRAY_LENGTH(counts); c++) {
            const size_t off = c % 4;
            check_sample(kernels, sample, counts[c], off, -1);
            for (unsigned s = c % 2; s < sample->nsrc; s += 2) {
                if (source_bytes(&sample->reduction, s) != result_bytes(&sample->reduction))
                    continue;
                memcpy(kept, source_buffer(sample, s), sizeof(kept));
                check_sample(kernels, sample, counts[c], off, (int)s);
                memcpy(source_buffer(sample, s), kept, sizeof(kept));
            }
        }
    }
}

/* Check mixes: all raw, all partial, one of either kind, some of both. */
static void check_mixes(twill_type type, twill_op op, unsigned nsrc)
{
    const uint32_t all = (1u << nsrc) - 1, last = 1u << (nsrc - 1);
    const uint32_t masks[] = {0, all, 1, last, all & ~1u, all & ~last, 0xa5 & all, ~0u};
    static const uint32_t divisors[] = {1, 3, 7, 64, 1000003, 0xffffffff};
    const bool wider = twill_test_element(type, op, true) != twill_test_element(type, op, false);
    for (size_t m = 0; m < (wider ? 2 * TWILL_ARRAY_LENGTH(masks) : 4); m++) {
        struct sample sample = {.nsrc = nsrc};
        sample.reduction =
            (struct twill_reduction){.type = type,
                                     .op = op,
                                     .divisor = divisors[(nsrc + m) % TWILL_ARRAY_LENGTH(divisors)],
                                     .partial_sources = masks[m / 2],
                                     .partial_result = m % 2,
                                     .flags = m / 2 % 2 ? TWILL_KERNEL_STREAM : 0};
        for (unsigned s = 0; s < nsrc; s++)
            sample.src[s] = source_buffer(&sample, s) + MARGIN;
        twill_test_reduce(&sample.reduction, expected, sample.src, nsrc, PERIOD);
        repeat(expected, result_bytes(&sample.reduction));
        check_lengths(&sample);
    }
}

/* All numbers of sources for types whose partials are wider, fewer for the others. Under sanitizers
 * fewer, of every other type and operation by TEST_SEED. */
TWILL_TEST(any_mix_gives_the_oracles_bits)
{
    twill_type type;
    twill_op op;
    for (int cell = 0; twill_test_next_cell(&type, &op, &cell);) {
        if (TEST_FEWER && ((uint64_t)type + op + test_seed()) % 2 != 0)
            continue;
        bool wider = twill_test_element(type, op, true) != twill_test_element(type, op, false);
        fill_arrays(type, op);
        for (unsigned nsrc = 1; nsrc <= SOURCES; nsrc += nsrc < 3 || (wider && !TEST_FEWER) ? 1 : 5)
            check_mixes(type, op, nsrc);
    }
}

/* A final result of narrow floats that is multiplied before it is rounded. */
TWILL_TEST(a_result_is_multiplied)
{
    static const float factors[] = {1, 0.125F, -3.1F, 0x1p-24F, 0x1p100F, 0};
    for (int t = 0; t < TWILL_TYPE_COUNT; t++) {
        if (twill_test_element((twill_type)t, TWILL_SUM, true) == twill_type_size((twill_type)t))
            continue;
        fill_arrays((twill_type)t, TWILL_SUM);
        for (unsigned i = 0; i < 2 * TWILL_ARRAY_LENGTH(factors); i++) {
            struct sample sample = {.nsrc = i == 0 ? SOURCES : 1 + i % 3};
            sample.reduction = (struct twill_reduction){
                .type = (twill_type)t,
                .op = TWILL_SUM,
                .divisor = 1,
                .partial_sources = i % 2 ? 0xa5 : 0,
                .after = &factors[i / 2],
            };
            for (unsigned s = 0; s < sample.nsrc; s++)
                sample.src[s] = source_buffer(&sample, s) + MARGIN;
            twill_test_reduce(&sample.reduction, expected, sample.src, sample.nsrc, PERIOD);
            repeat(expected, result_bytes(&sample.reduction));
            check_lengths(&sample);
        }
    }
}

/* The destinations of a spread, and what they must contain. */
static struct {
    char buffer[TWILL_KERNEL_MAX_DESTINATIONS][BUFFER] TWILL_ALIGNED(64);
    char before[TWILL_KERNEL_MAX_DESTINATIONS][BUFFER];
} places;

/* Check a spread to ndst destinations, of which with `own` the second is the last source. Number d
 * is off by d * off elements, so that they are aligned differently if that is odd. */
static void check_places(const struct twill_kernels *kernels,
                         const struct twill_reduction *reduction, const void *const *src,
                         unsigned nsrc, unsigned ndst, size_t count, size_t off, bool own)
{
    const size_t bytes = result_bytes(reduction);
    const void *from[SOURCES];
    void *dst[TWILL_KERNEL_MAX_DESTINATIONS];
    memcpy(from, src, nsrc * sizeof(*from));
    twill_kernels_reduce(kernels, reduction, expected, src, nsrc, count);
    memset(places.buffer, 0x5a, sizeof(places.buffer));
    for (unsigned d = 0; d < ndst; d++)
        dst[d] = places.buffer[d] + MARGIN + d * off * bytes;
    if (own) {
        memcpy(dst[1], src[nsrc - 1], count * bytes);
        from[nsrc - 1] = dst[1];
    }
    memcpy(places.before, places.buffer, sizeof(places.before));
    for (unsigned d = 0; d < ndst; d++)
        memcpy(places.before[d] + MARGIN + d * off * bytes, expected, count * bytes);
    twill_kernels_spread(kernels, reduction, dst, ndst, from, nsrc, count);
    if (memcmp(places.before, places.buffer, sizeof(places.before)) != 0)
        fail_msg("%s %s %s of %u to %u places, %zu elements, off by %zu, flags %u, own %d",
                 kernels->isa, twill_type_name(reduction->type), twill_op_name(reduction->op), nsrc,
                 ndst, count, off, reduction->flags, own);
}

/* Every table, type and operation, raw and partial. */
TWILL_TEST(a_result_goes_to_several_places)
{
    static const size_t counts[] = {0, 1, 15, 31, 33, 200, 481, 1300};
    const struct twill_kernels *kernels;
    unsigned turn = 0;
    struct twill_reduction reduction = {.divisor = 3};
    for (int cell = 0; twill_test_next_cell(&reduction.type, &reduction.op, &cell);) {
        fill_arrays(reduction.type, reduction.op);
        for (size_t k = 0; (kernels = twill_test_next_table(&k));) {
            for (unsigned i = 0; i < 48; i++, turn++) {
                const void *src[SOURCES];
                const unsigned nsrc = 1 + turn % 3 + (turn % 7 == 0 ? 4 : 0);
                const unsigned ndst = turn % 5 == 0 ? 8 : 2 + i % 2;
                reduction.partial_result = i % 4 == 3;
                reduction.partial_sources = i % 3 == 2 ? 0xa6 : 0;
                reduction.flags = i % 2 ? TWILL_KERNEL_STREAM : i % 4 == 2 ? TWILL_KERNEL_FETCH : 0;
                for (unsigned s = 0; s < nsrc; s++)
                    src[s] = source_buffer(&(struct sample){.reduction = reduction}, s) + MARGIN;
                bool own =
                    turn % 2 && source_bytes(&reduction, nsrc - 1) == result_bytes(&reduction);
                check_places(kernels, &reduction, src, nsrc, ndst,
                             counts[turn % TWILL_ARRAY_LENGTH(counts)], turn % 3, own);
            }
        }
    }
}

/* Return how many elements of src[0] a reduction to itself and `other` does, having checked them
 * and that it leaves the others. */
static size_t check_finite(const struct twill_kernels *kernels,
                           const struct twill_reduction *reduction, void *other, char *const *src,
                           unsigned nsrc, size_t count)
{
    static char before[BUFFER];
    const size_t bytes = result_bytes(reduction);
    const void *const *from = (const void *const *)src;
    void *const dst[] = {src[0], other};
    twill_kernels_reduce(kernels, reduction, expected, from, nsrc, count);
    memcpy(before, src[0], count * bytes);
    memset(other, 0x5a, count * bytes);
    size_t done =
        twill_kernels_spread_finite(kernels, reduction, dst, 1 + count % 2, from, nsrc, count);
    assert_memory_equal(src[0], expected, done * bytes);
    assert_memory_equal(src[0] + done * bytes, before + done * bytes, (count - done) * bytes);
    if (count % 2 == 1)
        assert_memory_equal(other, expected, done * bytes);
    for (size_t i = count % 2 == 1 ? done * bytes : 0; i < count * bytes; i++)
        assert_int_equal(((char *)other)[i], 0x5a);
    memcpy(src[0], before, count * bytes);
    return done;
}

/* A reduction in place stops before the batch whose result has a NaN or infinity, for every table,
 * type and operation. A batch has at most 128 elements. */
TWILL_TEST(a_reduction_stops_at_a_nan)
{
    static const float values[] = {NAN, INFINITY, -INFINITY};
    const struct twill_kernels *kernels;
    struct twill_reduction reduction = {.divisor = 3};
    for (int cell = 0; twill_test_next_cell(&reduction.type, &reduction.op, &cell);) {
        const twill_type type = reduction.type;
        const twill_op op = reduction.op;
        const bool stops =
            type == TWILL_F32 || type == TWILL_F64 || type == TWILL_F16 || type == TWILL_BF16;
        for (size_t k = 0; (kernels = twill_test_next_table(&k));) {
            for (unsigned turn = 0; turn < 40; turn++) {
                char *src[SOURCES];
                const unsigned nsrc = 1 + turn % 3 + (turn % 7 == 0 ? 4 : 0);
                const size_t count = MOST - turn, at = turn * 37 % count;
                reduction.flags = turn % 4 < 2 ? 0 : TWILL_KERNEL_FETCH;
                for (unsigned s = 0; s < nsrc; s++) {
                    src[s] = raw[s] + MARGIN + s * result_bytes(&reduction);
                    for (size_t i = 0; stops && i < count; i++)
                        twill_test_put_float(type, src[s], i, (float)(i % 3) - 1);
                }
                if (!stops || (op != TWILL_SUM && op != TWILL_PROD && op != TWILL_AVG)) {
                    assert_int_equal(check_finite(kernels, &reduction, target, src, nsrc, count),
                                     0);
                    continue;
                }
                size_t done = check_finite(kernels, &reduction, target, src, nsrc, count);
                assert_in_range(done, count - 127, count);
                twill_test_put_float(type, src[turn % nsrc], at, values[turn / nsrc % 3]);
                done = check_finite(kernels, &reduction, target, src, nsrc, count);
                assert_in_range(done, at > 127 ? at - 127 : 0, at);
            }
        }
    }
}

/* Reducing in two steps with partials, finished once, equals reducing all at once. */
TWILL_TEST(partials_carry_on)
{
    static char half[2][BUFFER] TWILL_ALIGNED(64);
    const struct twill_kernels *kernels;
    struct twill_reduction reduction = {.divisor = 5};
    assert_int_equal(twill_kernels_select(&kernels, NULL, NULL), TWILL_OK);
    for (int cell = 0; twill_test_next_cell(&reduction.type, &reduction.op, &cell);) {
        const void *src[SOURCES];
        fill_arrays(reduction.type, reduction.op);
        for (unsigned s = 0; s < 5; s++)
            src[s] = raw[s] + MARGIN;
        const void *on[] = {half[0], src[3], src[4]}, *end[] = {half[1]};
        reduction.partial_sources = 0;
        twill_kernels_reduce(kernels, &reduction, expected, src, 5, MOST);
        reduction.partial_result = true;
        twill_kernels_reduce(kernels, &reduction, half[0], src, 3, MOST);
        reduction.partial_sources = 1;
        twill_kernels_reduce(kernels, &reduction, half[1], on, 3, MOST);
        reduction.partial_result = false;
        twill_kernels_reduce(kernels, &reduction, target, end, 1, MOST);
        assert_memory_equal(target, expected, MOST * result_bytes(&reduction));
    }
}

/* Check products that are rounded to the type, in place; those of f32 are in `expected`. */
static void check_rounded(const struct twill_kernels *kernels, twill_type type, const void *src,
                          const void *factor, size_t count)
{
    static char rounded[BUFFER] TWILL_ALIGNED(64);
    const struct twill_reduction round = {
        .type = type, .op = TWILL_PROD, .partial_sources = 1, .divisor = 1};
    const size_t element = twill_test_element(type, TWILL_PROD, false);
    const void *products[] = {expected};
    twill_test_reduce(&round, rounded, products, 1, PERIOD);
    repeat(rounded, element);
    memcpy(target, src, count * element);
    memset(target + count * element, 0x5a, element);
    twill_kernels_scale(kernels, type, target, target, factor, true, count, NULL);
    assert_memory_equal(target, rounded, count * element);
    assert_int_equal(target[count * element], 0x5a);
}

TWILL_TEST(a_scaled_element_is_the_product)
{
    static const size_t counts[] = {0, 1, 479, 480, 481, 1111, MOST - 1};
    const struct twill_kernels *kernels;
    for (int t = 0; t < TWILL_TYPE_COUNT; t++) {
        const struct twill_reduction product = {
            .type = (twill_type)t, .op = TWILL_PROD, .partial_sources = 1, .partial_result = true};
        const size_t wide = result_bytes(&product), narrow = source_bytes(&product, 1);
        fill_arrays(product.type, TWILL_PROD);
        for (size_t f = 0; f < 40; f++) { /* factors */
            const void *src[] = {partial[0] + MARGIN, raw[1] + MARGIN};
            for (size_t i = 1; i < MOST; i++)
                memcpy(partial[0] + MARGIN + i * wide, partial[0] + MARGIN, wide);
            twill_test_reduce(&product, expected, src, 2, PERIOD);
            repeat(expected, wide);
            for (size_t k = 0; (kernels = twill_test_next_table(&k));) {
                size_t count = counts[f % TWILL_ARRAY_LENGTH(counts)];
                memset(target, 0x5a, sizeof(target));
                twill_kernels_scale(kernels, product.type, target + wide, src[1], src[0], false,
                                    count, NULL);
                assert_memory_equal(target + wide, expected, count * wide);
                assert_int_equal(target[wide - 1], 0x5a);
                assert_int_equal(target[wide + count * wide], 0x5a);
                check_rounded(kernels, product.type, src[1], src[0], count);
                if (wide != narrow)
                    continue;
                memcpy(target, src[1], count * wide); /* in place */
                twill_kernels_scale(kernels, product.type, target, target, src[0], false, count,
                                    NULL);
                assert_memory_equal(target, expected, count * wide);
            }
            twill_test_fill_for(product.type, TWILL_PROD, true, partial[0] + MARGIN, 1, 1000 + f);
        }
    }
}

#if defined(__x86_64__)
/* Reduce raw elements and a mix, to a result and to a partial, and scale. */
static void some_of_each(const struct twill_kernels *kernels, twill_type type, twill_op op,
                         char *out, size_t count)
{
    const void *src[] = {raw[0] + MARGIN, partial[1] + MARGIN, raw[2] + MARGIN};
    const void *raw_src[] = {raw[0] + MARGIN, raw[1] + MARGIN};
    const size_t room = count * 16;
    struct twill_reduction mix = {.type = type, .op = op, .divisor = 3, .partial_sources = 2};
    twill_kernels_reduce_raw(kernels, type, op, out, raw_src, 2, count, 3, 0, NULL);
    twill_kernels_reduce(kernels, &mix, out + room, src, 3, count);
    mix.partial_result = true;
    twill_kernels_reduce(kernels, &mix, out + 2 * room, src, 3, count);
    mix = (struct twill_reduction){.type = type, .op = op, .divisor = 3, .partial_sources = 1};
    twill_kernels_reduce(kernels, &mix, out + 3 * room, src + 1, 1, count);
    if (op == TWILL_PROD)
        twill_kernels_scale(kernels, type, out + 4 * room, src[0], src[1], false, count, NULL);
}

TWILL_TEST(the_callers_environment_changes_no_bit_and_is_kept)
{
    enum { COUNT = 600 };
    static const unsigned environments[] = {0x8040, 0x2000, 0x4000, 0xe040};
    static char want[COUNT * 16 * 5], got[COUNT * 16 * 5];
    const unsigned mine = __builtin_ia32_stmxcsr();
    const struct twill_kernels *kernels;
    twill_type type;
    twill_op op;
    for (int cell = 0; twill_test_next_cell(&type, &op, &cell);) {
        fill_arrays(type, op);
        for (size_t k = 0; (kernels = twill_test_next_table(&k));) {
            memset(got, 0, sizeof(got));
            memset(want, 0, sizeof(want));
            some_of_each(kernels, type, op, want, COUNT);
            for (size_t e = 0; e < TWILL_ARRAY_LENGTH(environments); e++) {
                __builtin_ia32_ldmxcsr(mine | environments[e]);
                some_of_each(kernels, type, op, got, COUNT);
                unsigned after = __builtin_ia32_stmxcsr();
                __builtin_ia32_ldmxcsr(mine);
                assert_int_equal(after & 0xffc0, (mine | environments[e]) & 0xffc0);
                assert_memory_equal(got, want, sizeof(want));
            }
        }
    }
}
#endif

/* Reductions long enough to be split, with sources of two widths. */
TWILL_TEST(threads_change_no_bit)
{
    const size_t count = ((size_t)1 << 20) + 17; /* split even with 1-byte elements */
    struct twill_thread_pool *pool = twill_test_pool(4, 1 << 18);
    const struct twill_kernels *kernels;
    char *memory[4], *one = calloc(count, 4), *many = calloc(count, 4);
    assert_true(one && many);
    assert_int_equal(twill_kernels_select(&kernels, NULL, NULL), TWILL_OK);
    for (int i = 0; i < 4; i++)
        assert_non_null(memory[i] = malloc(count * 4));
    for (int t = 0; t < TWILL_TYPE_COUNT; t++) {
        struct twill_reduction reduction = {
            .type = (twill_type)t, .op = TWILL_AVG, .divisor = 3, .partial_sources = 0xa};
        if (twill_test_element(reduction.type, reduction.op, true) !=
            4) /* buffers hold elements of 4 bytes */
            continue;
        for (int i = 0; i < 4; i++)
            twill_test_fill_for(reduction.type, reduction.op, i % 2, memory[i], count,
                                (uint64_t)t + 9);
        for (int to = 0; to < 2; to++) {
            reduction.partial_result = to;
            reduction.pool = NULL;
            twill_kernels_reduce(kernels, &reduction, one, (const void *const *)memory, 4, count);
            reduction.pool = pool;
            twill_kernels_reduce(kernels, &reduction, many, (const void *const *)memory, 4, count);
            assert_int_equal(memcmp(one, many, count * result_bytes(&reduction)), 0);
        }
        twill_kernels_scale(kernels, reduction.type, one, memory[0], memory[1], false, count, NULL);
        twill_kernels_scale(kernels, reduction.type, many, memory[0], memory[1], false, count,
                            pool);
        assert_int_equal(memcmp(one, many, count * 4), 0);
    }
    for (int i = 0; i < 4; i++)
        free(memory[i]);
    free(one);
    free(many);
    twill_thread_pool_close(pool);
}

TWILL_TEST_GROUP(NULL, NULL)
