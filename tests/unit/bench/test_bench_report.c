/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of twill-bench: sizes, bandwidth factors, statistics, number formats, and expected
 * payloads. The tool is not a library, so its sources are included. */
#include "bench/common/option_names.c"
#include "bench/common/progress_line.c"
#include "bench/common/report.c"
#include "bench/tools/bench/bench_collective.c"
#include "bench/tools/bench/bench_payload.c"
#include "bench/tools/bench/bench_table.c"
#include "tests/support/numbers.h"
#include "tests/support/unit.h"

static void assert_near(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-12 * fabs(b));
}

TWILL_TEST(test_sizes)
{
    static const struct {
        const char *text;
        size_t bytes;
    } good[] = {{"0", 0},           {"8", 8},           {"1K", 1024},         {"1k", 1024},
                {"3M", 3u << 20},   {"1.5M", 3u << 19}, {"0.5g", 1u << 29},   {"3G", 3ull << 30},
                {"2T", 2ull << 40}, {"8MB", 8u << 20},  {"64KiB", 64u << 10}, {"512B", 512}};
    static const char *const bad[] = {"",    "K",   "-1",          "x",  "8Q",  "8KBB",
                                      "8Ki", "8iB", "8KX",         "B",  "1e3", "0x10",
                                      "nan", "inf", "9999999999G", "1 K"};
    size_t bytes;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(good); i++) {
        assert_true(twill_bench_parse_size(good[i].text, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(bad); i++)
        assert_false(twill_bench_parse_size(bad[i], &bytes));
}

/* The bar, and the time that is left if the rest takes as long for each part. */
TWILL_TEST(test_progress)
{
    static const struct {
        size_t done, total;
        double elapsed;
        const char *text;
    } rows[] = {
        {0, 10, 0, "[                              ]   0%  x, 0 s"},
        {1, 10, 0.5, "[###                           ]  10%  x, 0 s"},
        {1, 10, 2, "[###                           ]  10%  x, 2 s, 18 s left"},
        {1, 4, 200, "[#######                       ]  25%  x, 200 s, 10 min left"},
        {1, 100, 720, "[                              ]   1%  x, 720 s, 19.8 h left"},
        {4, 4, 60, "[##############################] 100%  x, 60 s, 0 s left"},
        {9, 4, 60, "[##############################] 100%  x, 60 s, 0 s left"},
        {5, 0, 7, "x, 7 s"},
    };
    char text[LINE_BYTES];
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++) {
        twill_bench_progress_text(text, sizeof(text), rows[i].done, rows[i].total, "x",
                                  rows[i].elapsed);
        assert_string_equal(text, rows[i].text);
    }
}

/* Names as other programs spell them. */
TWILL_TEST(test_names)
{
    static const struct {
        const char *text, *name;
    } collectives[] = {{"allreduce", "allreduce"},
                       {"all_reduce", "allreduce"},
                       {"AllReduce", "allreduce"},
                       {"all_reduce_perf", "allreduce"},
                       {"bcast", "broadcast"},
                       {"all-gather", "allgather"},
                       {"reducescatter", "reduce_scatter"},
                       {"reduce_scatter_perf", "reduce_scatter"},
                       {"all_to_all", "alltoall"},
                       {"alltoallv", "alltoallv"},
                       {"perf", "perf"},
                       {"allreduced", "allreduced"}};
    static const struct {
        const char *text;
        int type;
    } types[] = {{"f32", TWILL_F32},
                 {"float", TWILL_F32},
                 {"fp32", TWILL_F32},
                 {"Float32", TWILL_F32},
                 {"fp64", TWILL_F64},
                 {"bf16", TWILL_BF16},
                 {"bfloat16", TWILL_BF16},
                 {"fp16", TWILL_F16},
                 {"int", TWILL_I32},
                 {"fp8_e4m3", TWILL_F8E4M3},
                 {"uint64", TWILL_U64},
                 {"u64", TWILL_U64},
                 {"floats", -1},
                 {"", -1},
                 {"all", -1}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(collectives); i++)
        assert_string_equal(twill_bench_collective_name(collectives[i].text), collectives[i].name);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(types); i++)
        assert_int_equal(twill_bench_type_parse(types[i].text), types[i].type);
    for (int i = 0; i < TWILL_BENCH_COLLECTIVE_COUNT; i++) {
        const char *name = twill_bench_facts((enum twill_bench_collective)i)->name;
        assert_string_equal(twill_bench_collective_name(name), name);
        assert_int_equal(twill_bench_find_collective(name), i);
    }
}

TWILL_TEST(test_steps)
{
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

/* nccl-tests' doc/PERFORMANCE.md. GB is 1e9 bytes. */
TWILL_TEST(test_bandwidth)
{
    static const struct {
        enum twill_bench_collective collective;
        int ranks;
        double factor;
    } table[] = {
        {TWILL_BENCH_ALLREDUCE, 1, 0},        {TWILL_BENCH_ALLREDUCE, 2, 1},
        {TWILL_BENCH_ALLREDUCE, 4, 1.5},      {TWILL_BENCH_ALLREDUCE, 8, 1.75},
        {TWILL_BENCH_ALLREDUCE, 400, 1.995},  {TWILL_BENCH_BROADCAST, 1, 1},
        {TWILL_BENCH_BROADCAST, 8, 1},        {TWILL_BENCH_BARRIER, 8, 0},
        {TWILL_BENCH_REDUCE, 8, 1},           {TWILL_BENCH_SENDRECV, 8, 1},
        {TWILL_BENCH_ALLGATHER, 8, 0.875},    {TWILL_BENCH_ALLGATHERV, 4, 0.75},
        {TWILL_BENCH_REDUCE_SCATTER, 2, 0.5}, {TWILL_BENCH_REDUCE_SCATTERV, 2, 0.5},
        {TWILL_BENCH_GATHER, 8, 0.875},       {TWILL_BENCH_GATHERV, 8, 0.875},
        {TWILL_BENCH_SCATTER, 8, 0.875},      {TWILL_BENCH_SCATTERV, 8, 0.875},
        {TWILL_BENCH_ALLTOALL, 8, 0.875},     {TWILL_BENCH_ALLTOALLV, 8, 0.875},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++)
        assert_near(twill_bench_bus_factor(table[i].collective, table[i].ranks), table[i].factor);
    assert_near(twill_bench_bandwidth(2000000000, 0.5), 4);
    assert_near(twill_bench_bandwidth(8, 0), 0);
}

TWILL_TEST(test_statistics)
{
    double hundred[100], one = 3, four[] = {4, 1, 3, 2};
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

TWILL_TEST(test_numbers)
{
    static const struct {
        double value;
        int width;
        const char *text;
    } table[] = {{12.9, 7, "  12.90"},     {0, 6, "  0.00"},         {1234.567, 7, "1234.57"},
                 {12345.67, 7, "12345.7"}, {123456.7, 7, " 123457"}, {1234567, 7, "1234567"},
                 {12345678, 7, "1.2e+07"}, {999.5, 6, "999.50"},     {12345.6, 6, " 12346"}};
    char text[32];
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++) {
        twill_bench_format_number(table[i].value, table[i].width, text, sizeof(text));
        assert_string_equal(text, table[i].text);
    }
}

/* A row of 8 bytes, two floats, 12.90 us. */
TWILL_TEST(test_row)
{
    struct twill_bench_timing timing = {.seconds = 12.9e-6, .algorithm_bandwidth = 8 / 12.9e3};
    struct twill_bench_row row = {8, 2, "float", "sum", -1, timing, timing};
    const struct twill_bench_columns plain = {.each = false};
    char text[256] = "";
    FILE *out = fmemopen(text, sizeof(text), "w");
    assert_non_null(out);
    row.in_place.wrong = -1;
    twill_bench_print_row(out, &row, plain);
    fclose(out);
    assert_string_equal(
        text,
        "           8             2     float     sum      -1    12.90    0.00    0.00       0"
        "    12.90    0.00    0.00     N/A\n");
}

/* Bits of small floats, including ties and subnormals. */
TWILL_TEST(test_encode)
{
    static const struct {
        twill_type type;
        double value;
        uint64_t bits;
    } table[] = {{TWILL_F16, 1, 0x3C00},
                 {TWILL_F16, -2, 0xC000},
                 {TWILL_F16, 2049, 0x6800},
                 {TWILL_F16, 2051, 0x6802},
                 {TWILL_F16, 0x1p-24, 1},
                 {TWILL_BF16, 31, 0x41F8},
                 {TWILL_BF16, 257, 0x4380},
                 {TWILL_BF16, 259, 0x4382},
                 {TWILL_F8E4M3, 1, 0x38},
                 {TWILL_F8E4M3, -17, 0xD8},
                 {TWILL_F8E4M3, 19, 0x5A},
                 {TWILL_F8E4M3, 0x1p-9, 1},
                 {TWILL_F8E5M2, 1, 0x3C},
                 {TWILL_F8E5M2, 9, 0x48},
                 {TWILL_F8E5M2, 11, 0x4A},
                 {TWILL_F32, 1, 0x3F800000},
                 {TWILL_F64, -0.5, 0xBFE0000000000000u}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++)
        assert_true(encode_float(&facts[table[i].type], table[i].value) == table[i].bits);
    assert_true(decode_float(&facts[TWILL_F16], 1) == 0x1p-24);
    assert_true(decode_float(&facts[TWILL_F32], 0xC0000000) == -2);
    assert_true(isnan(decode_float(&facts[TWILL_BF16], 0x7FC1)));
}

enum { REPORT_COUNT = 509, REPORT_RANKS = 9 };

/* What the tests' reference of reductions makes of the payloads, in rank order or another, is what
 * is expected. */
TWILL_TEST(test_oracle)
{
    static unsigned char rows[REPORT_RANKS][REPORT_COUNT * 8], result[REPORT_COUNT * 8];
    const void *sources[REPORT_RANKS];
    for (int type = 0; type < TWILL_TYPE_COUNT; type++) {
        for (int cell = 0; cell < (TWILL_LXOR + 1) * (REPORT_RANKS - 1); cell++) {
            struct twill_bench_payload payload = {(twill_type)type,
                                                  (twill_op)(cell / (REPORT_RANKS - 1)),
                                                  cell % (REPORT_RANKS - 1) + 2, -1, 5};
            const struct twill_reduction reduction = {
                .type = payload.type, .op = payload.op, .divisor = (uint32_t)payload.ranks};
            if (!twill_bench_op_takes(payload.op, payload.type))
                continue;
            for (int r = 0; r < payload.ranks; r++) {
                twill_bench_fill(&payload, r, 70, rows[r], REPORT_COUNT);
                sources[(r + cell % 2) % payload.ranks] = rows[r];
            }
            twill_test_reduce(&reduction, result, sources, (unsigned)payload.ranks, REPORT_COUNT);
            assert_int_equal(twill_bench_count_wrong(&payload, 70, result, REPORT_COUNT), 0);
            size_t size = facts[type].bits / 8;
            result[(REPORT_COUNT / 2) * size + size - 1] ^= 0x40;
            assert_int_equal(twill_bench_count_wrong(&payload, 70, result, REPORT_COUNT), 1);
            /* a rank that kept its input is detected in most elements */
            if (payload.op == TWILL_SUM)
                assert_true(twill_bench_count_wrong(&payload, 70, rows[0], REPORT_COUNT) >
                            REPORT_COUNT / 10);
        }
    }
}

/* Only f32 and f64 over very many ranks may be inexact. */
TWILL_TEST(test_tolerance)
{
    for (int type = 0; type < TWILL_TYPE_COUNT; type++)
        for (int ranks = 1; ranks <= 36; ranks++) {
            struct twill_bench_payload payload = {(twill_type)type, TWILL_AVG, ranks, -1, 1};
            assert_true(is_exact(&payload));
        }
    struct twill_bench_payload many = {TWILL_F32, TWILL_SUM, 4096, -1, 1};
    assert_false(is_exact(&many));
}

/* Every value depends on rank, position and round, and a moved value is that of its rank. */
TWILL_TEST(test_moved)
{
    static unsigned char values[REPORT_COUNT * 8];
    for (int type = 0; type < TWILL_TYPE_COUNT; type++) {
        struct twill_bench_payload payload = {(twill_type)type, TWILL_SUM, 3, 2, 9};
        twill_bench_fill(&payload, 2, 5, values, REPORT_COUNT);
        assert_int_equal(twill_bench_count_wrong(&payload, 5, values, REPORT_COUNT), 0);
        assert_true(twill_bench_count_wrong(&payload, 6, values, REPORT_COUNT) > REPORT_COUNT / 2);
        payload.from = 1;
        assert_true(twill_bench_count_wrong(&payload, 5, values, REPORT_COUNT) > REPORT_COUNT / 2);
        payload.from = 2;
        payload.round++;
        assert_true(twill_bench_count_wrong(&payload, 5, values, REPORT_COUNT) > REPORT_COUNT / 2);
        memset(values, 0xFF, sizeof(values)); /* NaN, or -1 */
        assert_true(twill_bench_count_wrong(&payload, 5, values, REPORT_COUNT) >
                    REPORT_COUNT * 3 / 4);
    }
}

/* What one rank sends, the other expects; shards of a buffer do not overlap, and fit. */
TWILL_TEST(test_shards)
{
    for (int c = 0; c < TWILL_BENCH_COLLECTIVE_COUNT; c++) {
        for (int ranks = 1; ranks <= 9; ranks++) {
            struct twill_bench_subject a = {
                .collective = (enum twill_bench_collective)c, .ranks = ranks, .count = 7};
            const struct twill_bench_facts *about = twill_bench_facts(a.collective);
            for (int r = 0; r < ranks * ranks; r++) {
                int rank = r / ranks, shard = r % ranks;
                size_t end = twill_bench_shard_first(&a, rank, shard) +
                             twill_bench_shard_count(&a, rank, shard);
                if (c == TWILL_BENCH_ALLTOALLV)
                    assert_int_equal(twill_bench_shard_count(&a, rank, shard),
                                     twill_bench_shard_count(&a, shard, rank));
                if (shard + 1 < ranks)
                    assert_int_equal(end, twill_bench_shard_first(&a, rank, shard + 1));
                size_t all = (about->sharded ? (size_t)ranks : 1) * a.count;
                if (about->sharded)
                    assert_true(end <= twill_bench_buffer_bytes(about, all));
            }
        }
    }
}

TWILL_TEST(test_overlap)
{
    assert_near(twill_bench_overlap(10, 10, 10), 100);
    assert_near(twill_bench_overlap(20, 10, 10), 0);
    assert_near(twill_bench_overlap(15, 10, 10), 50);
    assert_near(twill_bench_overlap(30, 10, 10), 0);
    assert_near(twill_bench_overlap(5, 10, 10), 100);
    assert_near(twill_bench_overlap(5, 10, 0), 0);
}
