/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of twill-bench: sizes, bandwidth factors, statistics, number formats, and the
 * payload's oracle. The tool is no library, so its sources are included. */
#include "bench/payload.c"
#include "bench/report.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define LENGTH(a) (sizeof(a) / sizeof((a)[0]))

static void assert_near(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-12 * fabs(b));
}

static void test_sizes(void **state)
{
    static const struct {
        const char *text;
        size_t bytes;
    } good[] = {{"0", 0},           {"8", 8},           {"1K", 1024},
                {"1k", 1024},       {"3M", 3u << 20},   {"1.5M", 3u << 19},
                {"0.5g", 1u << 29}, {"3G", 3ull << 30}, {"2T", 2ull << 40}};
    static const char *const bad[] = {"",    "K",    "-1",  "x",   "8Q",          "8KB",
                                      "1e3", "0x10", "nan", "inf", "9999999999G", "1 K"};
    size_t bytes;
    (void)state;
    for (size_t i = 0; i < LENGTH(good); i++) {
        assert_true(twill_bench_parse_size(good[i].text, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < LENGTH(bad); i++)
        assert_false(twill_bench_parse_size(bad[i], &bytes));
}

static void test_steps(void **state)
{
    (void)state;
    assert_int_equal(twill_bench_next_size(8, 16, 1), 24);
    assert_int_equal(twill_bench_next_size(8, 16, 0), 24);
    assert_int_equal(twill_bench_next_size(8, 16, 4), 32);
    assert_int_equal(twill_bench_next_size(0, 16, 2), 1);
    assert_true(twill_bench_next_size(SIZE_MAX / 2, 1, 4) == SIZE_MAX);
    assert_true(twill_bench_next_size(SIZE_MAX - 1, 9, 1) == SIZE_MAX);
    assert_int_equal(twill_bench_count_sizes(8, 1 << 20, 1, 8), 6);
    assert_int_equal(twill_bench_count_sizes(100, 1000, 100, 1), 10);
    assert_int_equal(twill_bench_count_sizes(5, 5, 1, 1), 1);
}

/* nccl-tests' doc/PERFORMANCE.md: allreduce 2(n-1)/n, broadcast 1. GB is 1e9 bytes. */
static void test_bandwidth(void **state)
{
    static const struct {
        enum twill_bench_collective collective;
        int ranks;
        double factor;
    } table[] = {
        {TWILL_BENCH_ALLREDUCE, 1, 0},       {TWILL_BENCH_ALLREDUCE, 2, 1},
        {TWILL_BENCH_ALLREDUCE, 4, 1.5},     {TWILL_BENCH_ALLREDUCE, 8, 1.75},
        {TWILL_BENCH_ALLREDUCE, 400, 1.995}, {TWILL_BENCH_BROADCAST, 1, 1},
        {TWILL_BENCH_BROADCAST, 8, 1},       {TWILL_BENCH_BARRIER, 8, 0},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(table); i++)
        assert_near(twill_bench_bus_factor(table[i].collective, table[i].ranks), table[i].factor);
    assert_near(twill_bench_bandwidth(2000000000, 0.5), 4);
    assert_near(twill_bench_bandwidth(8, 0), 0);
}

static void test_statistics(void **state)
{
    double hundred[100], one = 3, four[] = {4, 1, 3, 2};
    (void)state;
    for (int i = 0; i < 100; i++)
        hundred[i] = 100 - i;
    struct twill_bench_statistics s = twill_bench_statistics(hundred, 100);
    assert_near(s.min, 1);
    assert_near(s.max, 100);
    assert_near(s.mean, 50.5);
    assert_near(s.median, 50.5);
    assert_near(s.p99, 99);
    assert_near(s.cv, 100 * sqrt(83325.0 / 99) / 50.5);
    s = twill_bench_statistics(&one, 1);
    assert_near(s.p99, 3);
    assert_near(s.median, 3);
    assert_near(s.cv, 0);
    s = twill_bench_statistics(four, 4);
    assert_near(s.median, 2.5);
    assert_near(s.p99, 4);
}

static void test_numbers(void **state)
{
    static const struct {
        double value;
        int width;
        const char *text;
    } table[] = {{12.9, 7, "  12.90"},     {0, 6, "  0.00"},         {1234.567, 7, "1234.57"},
                 {12345.67, 7, "12345.7"}, {123456.7, 7, " 123457"}, {1234567, 7, "1234567"},
                 {12345678, 7, "1.2e+07"}, {999.5, 6, "999.50"},     {12345.6, 6, " 12346"}};
    char text[32];
    (void)state;
    for (size_t i = 0; i < LENGTH(table); i++) {
        twill_bench_format_number(table[i].value, table[i].width, text, sizeof(text));
        assert_string_equal(text, table[i].text);
    }
}

/* The row of ANCHORS: 8 bytes, two floats, 12.90 us. */
static void test_row(void **state)
{
    struct twill_bench_timing timing = {.seconds = 12.9e-6, .algorithm_bandwidth = 8 / 12.9e3};
    struct twill_bench_row row = {8, 2, "float", "sum", -1, timing, timing};
    char text[256] = "";
    (void)state;
    FILE *out = fmemopen(text, sizeof(text), "w");
    assert_non_null(out);
    row.in_place.wrong = -1;
    twill_bench_print_row(out, &row, false);
    fclose(out);
    assert_string_equal(
        text,
        "           8             2     float     sum      -1    12.90    0.00    0.00       0"
        "    12.90    0.00    0.00     N/A\n");
}

static void test_halves(void **state)
{
    static const struct {
        double value;
        uint16_t half, bfloat;
    } table[] = {{1, 0x3C00, 0x3F80},   {-2, 0xC000, 0xC000}, {0, 0, 0},
                 {31, 0x4FC0, 0x41F8},  {-7, 0xC700, 0xC0E0}, {0.5, 0x3800, 0x3F00},
                 {4096, 0x6C00, 0x4580}};
    (void)state;
    for (size_t i = 0; i < LENGTH(table); i++) {
        assert_int_equal(encode_16(table[i].value, 5, 10), table[i].half);
        assert_int_equal(encode_16(table[i].value, 8, 7), table[i].bfloat);
        assert_true(decode_16(table[i].half, 5, 10) == table[i].value);
        assert_true(decode_16(table[i].bfloat, 8, 7) == table[i].value);
    }
    assert_true(decode_16(1, 5, 10) == 0x1p-24);
    assert_true(isinf(decode_16(0x7C00, 5, 10)));
    assert_true(isnan(decode_16(0x7FC1, 8, 7)));
}

/* What a library would make of the payloads, reduced the plain way in the type itself. */
#define REDUCE(T, wide)                                                                            \
    static void reduce_##T(T *sum, const T *more, size_t n, twill_op op)                           \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            if (op == TWILL_MIN)                                                                   \
                sum[i] = more[i] < sum[i] ? more[i] : sum[i];                                      \
            else if (op == TWILL_MAX)                                                              \
                sum[i] = more[i] > sum[i] ? more[i] : sum[i];                                      \
            else if (op == TWILL_PROD)                                                             \
                sum[i] = (T)((wide)sum[i] * (wide)more[i]);                                        \
            else                                                                                   \
                sum[i] = (T)((wide)sum[i] + (wide)more[i]);                                        \
        }                                                                                          \
    }                                                                                              \
    static void divide_##T(T *sum, size_t n, int ranks)                                            \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            sum[i] /= (T)ranks;                                                                    \
    }
REDUCE(float, float)
REDUCE(double, double)
REDUCE(int32_t, uint32_t)
REDUCE(int64_t, uint64_t)

enum { COUNT = 1031 };

static void reduce_all(const struct twill_bench_payload *payload, void *sum)
{
    int64_t more[COUNT];
    twill_bench_fill(payload, 0, sum, COUNT);
    for (int rank = 1; rank < payload->ranks; rank++) {
        twill_bench_fill(payload, rank, more, COUNT);
        if (payload->type == TWILL_F32)
            reduce_float(sum, (const float *)more, COUNT, payload->op);
        else if (payload->type == TWILL_F64)
            reduce_double(sum, (const double *)more, COUNT, payload->op);
        else if (payload->type == TWILL_I32)
            reduce_int32_t(sum, (const int32_t *)more, COUNT, payload->op);
        else
            reduce_int64_t(sum, (const int64_t *)more, COUNT, payload->op);
    }
    if (payload->op != TWILL_AVG)
        return;
    if (payload->type == TWILL_F32)
        divide_float(sum, COUNT, payload->ranks);
    else if (payload->type == TWILL_F64)
        divide_double(sum, COUNT, payload->ranks);
    else if (payload->type == TWILL_I32)
        divide_int32_t(sum, COUNT, payload->ranks);
    else
        divide_int64_t(sum, COUNT, payload->ranks);
}

static void test_oracle(void **state)
{
    int64_t sum[COUNT], own[COUNT];
    (void)state;
    for (int type = TWILL_F32; type <= TWILL_I64; type++)
        for (int op = 0; op < TWILL_OP_COUNT; op++)
            for (int ranks = 1; ranks <= 9; ranks++) {
                struct twill_bench_payload payload = {(twill_type)type, (twill_op)op, ranks, -1, 5};
                reduce_all(&payload, sum);
                assert_int_equal(twill_bench_count_wrong(&payload, sum, COUNT), 0);
                ((unsigned char *)sum)[(COUNT / 2) * twill_type_size(payload.type) + 1] ^= 0x80;
                bool rounds = tolerance(&payload) > 0;
                if (!rounds)
                    assert_int_equal(twill_bench_count_wrong(&payload, sum, COUNT), 1);
                /* a rank that kept its own values: found, though one value may fit by chance */
                twill_bench_fill(&payload, ranks - 1, own, COUNT);
                if (ranks > 1)
                    assert_true(twill_bench_count_wrong(&payload, own, COUNT) > COUNT / 10);
            }
}

/* Only averages over no power of two, and 16-bit sums over very many ranks, may be off at all. */
static void test_tolerance(void **state)
{
    (void)state;
    for (int type = 0; type < TWILL_TYPE_COUNT; type++)
        for (int op = 0; op < TWILL_OP_COUNT; op++)
            for (int ranks = 1; ranks <= 36; ranks++) {
                struct twill_bench_payload payload = {(twill_type)type, (twill_op)op, ranks, -1, 1};
                bool odd = op == TWILL_AVG && (ranks & (ranks - 1)) != 0;
                assert_int_equal(tolerance(&payload) > 0, odd);
                assert_true(tolerance(&payload) < 0.2 * (double)facts[type].magnitude);
            }
    struct twill_bench_payload many = {TWILL_BF16, TWILL_SUM, 64, -1, 1};
    assert_true(tolerance(&many) > 0);
}

/* Every value depends on rank, position and round, and a broadcast is the root's. */
static void test_broadcast(void **state)
{
    int64_t values[COUNT];
    (void)state;
    for (int type = 0; type < TWILL_TYPE_COUNT; type++) {
        struct twill_bench_payload payload = {(twill_type)type, TWILL_SUM, 3, 2, 9};
        twill_bench_fill(&payload, 2, values, COUNT);
        assert_int_equal(twill_bench_count_wrong(&payload, values, COUNT), 0);
        payload.root = 1;
        assert_true(twill_bench_count_wrong(&payload, values, COUNT) > COUNT / 2);
        payload.root = 2;
        payload.round++;
        assert_true(twill_bench_count_wrong(&payload, values, COUNT) > COUNT / 2);
        memset(values, 0xFF, sizeof(values)); /* NaN, or -1 */
        assert_true(twill_bench_count_wrong(&payload, values, COUNT) > COUNT * 9 / 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),     cmocka_unit_test(test_steps),
        cmocka_unit_test(test_bandwidth), cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_numbers),   cmocka_unit_test(test_row),
        cmocka_unit_test(test_halves),    cmocka_unit_test(test_oracle),
        cmocka_unit_test(test_tolerance), cmocka_unit_test(test_broadcast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
