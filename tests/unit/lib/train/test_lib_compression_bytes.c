/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed gradient sets: exact bytes, small gradients, sums, options. */
#include "lib/train/gradients.h"
#include "tests/support/gradient_sets.h"
#include "tests/support/unit.h"

enum { EVEN = 256 * 120 }; /* elements: whole blocks for 2 to 5 ranks */

struct bytes_case {
    const char *world, *settings;
    uint64_t sent[2]; /* by rank 0's transports in a step: f32, compressed */
    uint64_t exchanged;
    unsigned at;
};

static void rank_bytes(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct bytes_case *c = user;
    struct twill_test_set m = {NULL, NULL, NULL};
    const char *settings[] = {TWILL_TEST_PATIENT, "TWILL_ALGORITHM=allreduce:ring;allgather:ring",
                              c->at == 0 ? "TWILL_GRADIENTS=" : c->settings, NULL};
    bool ok = twill_test_connect(&m.context, &m.comm, bootstrap, c->world, NULL, settings) &&
              twill_gradients_create(&m.set, m.comm, NULL) == TWILL_OK &&
              twill_test_set_add(&m, 0, EVEN, TWILL_F32, NULL, NULL) && twill_test_set_commit(&m);
    twill_counters before = {0}, after = {0};
    twill_gradients_counters counters = {0};
    for (unsigned step = 0; ok && step < 2; step++) {
        (void)twill_comm_counters(m.set->reducer[0].comm, &before);
        float *memory = twill_gradients_memory(m.set, 0);
        for (size_t i = 0; i < EVEN; i++)
            memory[i] = (float)(i % 7) - 3;
        ok = twill_gradients_ready(m.set, 0) == TWILL_OK &&
             twill_gradients_wait_all(m.set) == TWILL_OK;
        (void)twill_comm_counters(m.set->reducer[0].comm, &after);
    }
    (void)TWILL_NOTE(ok, "%s", twill_gradients_message(m.set));
    if (ok && rank == 0) {
        (void)twill_gradients_count(m.set, &counters);
        c->sent[c->at] = after.bytes_sent - before.bytes_sent;
        c->exchanged = counters.bytes_exchanged / 2;
        TWILL_CHECK(counters.bytes == 2 * EVEN * sizeof(float));
        TWILL_CHECK(counters.bytes_converted == (c->at == 0 ? 0 : 2 * counters.bytes));
        TWILL_CHECK(counters.bytes_copied == 0);
    }
    twill_test_set_close(&m, bootstrap);
}

/* f16 sends half of f32's bytes, blocks 260 of 1024; a list of k entries from each rank 8 k. */
TWILL_TEST(test_bytes)
{
    static const char *const spread[] = {"2x1", "4x1", "5x1"};
    static const struct {
        const char *settings;
        uint64_t bytes; /* of EVEN elements */
        bool sparse;
    } rows[] = {{"TWILL_GRADIENTS=compress=f16", EVEN * 2, false},
                {"TWILL_GRADIENTS=compress=bf16", EVEN * 2, false},
                {"TWILL_GRADIENTS=compress=int8", EVEN / 256 * 260, false},
                {"TWILL_GRADIENTS=compress=f8e5m2", EVEN / 256 * 260, false},
                {"TWILL_GRADIENTS=compress=top_k", 308 * 8, true},
                {"TWILL_GRADIENTS=compress=threshold,threshold=2,ratio=0.1", 3072 * 8 + 8, true}};
    for (unsigned w = 0; w < TWILL_ARRAY_LENGTH(spread); w++)
        for (unsigned k = 0; k < TWILL_ARRAY_LENGTH(rows); k++) {
            struct bytes_case c = {.world = spread[w], .settings = rows[k].settings};
            int size = twill_test_size(spread[w]);
            for (c.at = 0; c.at < 2; c.at++)
                twill_test_run_ranks(size, rank_bytes, &c);
            assert_int_equal(c.exchanged, rows[k].bytes);
            if (rows[k].sparse)
                assert_int_equal(c.sent[1], (uint64_t)(size - 1) * rows[k].bytes);
            else
                assert_int_equal(c.sent[1] * (EVEN * sizeof(float)), c.sent[0] * rows[k].bytes);
        }
}

/* --- small cases on one and on four ranks
 * ----------------------------------------------------- */

struct small_case {
    twill_gradients_options options;
    const float *gradient; /* [count] of each rank, in each step */
    size_t count;
    unsigned steps;
    double sum[256]; /* delivered to rank 0 in all steps */
};

static void rank_small(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct small_case *c = user;
    struct twill_test_set m;
    bool ok = twill_test_set_open(&m, bootstrap, "", TWILL_TEST_PATIENT, NULL, &c->options) &&
              twill_test_set_add(&m, 0, c->count, TWILL_F32, NULL, NULL) &&
              twill_test_set_commit(&m);
    for (unsigned step = 0; ok && step < c->steps; step++) {
        float *memory = twill_gradients_memory(m.set, 0);
        memcpy(memory, c->gradient, c->count * sizeof(float));
        ok = twill_test_set_ok(&m, twill_gradients_ready(m.set, 0)) &&
             twill_test_set_ok(&m, twill_gradients_wait_all(m.set));
        for (size_t i = 0; rank == 0 && i < c->count; i++)
            c->sum[i] += memory[i];
    }
    twill_test_set_close(&m, bootstrap);
}

/* A gradient below half a step of the code gets through with error feedback, and never without.
 */
TWILL_TEST(test_small_values)
{
    static const twill_compression kinds[] = {TWILL_COMPRESS_INT8, TWILL_COMPRESS_F8E4M3,
                                              TWILL_COMPRESS_TOP_K};
    float gradient[256];
    for (size_t i = 0; i < 256; i++)
        gradient[i] = i == 0 ? 1.0F : 0x1p-11F;
    for (unsigned k = 0; k < 2 * TWILL_ARRAY_LENGTH(kinds); k++) {
        struct small_case c = {.gradient = gradient, .count = 256, .steps = 256};
        twill_gradients_defaults(&c.options);
        c.options.compression = kinds[k / 2];
        c.options.error_feedback = k % 2;
        c.options.compression_ratio = 0x1p-4; /* 16 of 256 */
        twill_test_run_ranks(1, rank_small, &c);
        assert_true(fabs(c.sum[0] - 256) < 1.1);
        if (k % 2 == 0 && kinds[k / 2] == TWILL_COMPRESS_F8E4M3)
            continue; /* has smaller codes */
        for (size_t i = 20; i < 256; i++)
            assert_true(k % 2 == 0 ? c.sum[i] == 0 : fabs(c.sum[i] - 0.125) < 0.012);
    }
}

/* Sums of f16 do not overflow where an input does not. */
TWILL_TEST(test_sum)
{
    const float gradient[4] = {60000, -60000, 1, 0};
    struct small_case c = {.gradient = gradient, .count = 4, .steps = 1};
    twill_gradients_defaults(&c.options);
    c.options.compression = TWILL_COMPRESS_F16;
    c.options.op = TWILL_SUM;
    c.options.scale = 0.5;
    twill_test_run_ranks(3, rank_small, &c);
    for (size_t i = 0; i < 4; i++)
        assert_true(fabs(c.sum[i] - 1.5 * (double)gradient[i]) <=
                    fabs((double)gradient[i]) * 0.005);
}

/* --- options
 * ---------------------------------------------------------------------------------- */

static const struct refused_setting {
    const char *settings, *sentence;
} refused_settings[] = {
    {"compress=f12", "must be none, f16, bf16, f8e4m3, f8e5m2, int8, top_k or threshold"},
    {"compress=top_k,ratio=0", "compression_ratio 0 is not above 0 and at most 1"},
    {"ratio=1.5", "compression_ratio 1.5 is not above 0"},
    {"ratio=x", "ratio=x: must be a number"},
    {"compress=threshold", "compression by threshold needs one"},
    {"threshold=-1", "compression_threshold -1 is not a magnitude"},
};

TWILL_TEST_CASES(bad_options, ranks, refused_settings, "1", TWILL_TEST_PATIENT,
                 twill_test_text("TWILL_GRADIENTS=%s", c->settings))
{
    twill_gradients *set;
    TWILL_CHECK(twill_gradients_create(&set, comm, NULL) != TWILL_OK && set == NULL);
    TWILL_CHECK(TWILL_SAYS(twill_comm_message(comm), c->sentence));
}

static const bool exempt[] = {false, true};

TWILL_TEST_CASES(options_that_differ, ranks, exempt, "2", TWILL_TEST_PATIENT)
{
    struct twill_test_set m = {twill_comm_context(comm), comm, NULL};
    twill_gradients_options options;
    twill_gradients_defaults(&options);
    options.compression = *c || rank == 0 ? TWILL_COMPRESS_F16 : TWILL_COMPRESS_BF16;
    const twill_tensor tensor = {.name = "bias", .count = 9, .uncompressed = *c && rank == 1};
    TWILL_CHECK(twill_gradients_create(&m.set, comm, &options) == TWILL_OK);
    TWILL_CHECK(twill_gradients_add(m.set, &tensor, NULL) == TWILL_OK);
    TWILL_CHECK(twill_gradients_commit(m.set) == TWILL_ERR_MISMATCH);
    TWILL_CHECK(twill_test_set_says(
        &m, *c ? "'bias' (9 f32, priority 0, memory of the set, compressed) on rank 0"
               : "compress=bf16"));
    TWILL_CHECK(*c || twill_test_set_says(&m, "compress=f16"));
    twill_gradients_destroy(m.set);
}
