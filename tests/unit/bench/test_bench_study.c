/* SPDX-License-Identifier: Apache-2.0 */
/* The formulas of twill-bench train, with the figures that were published. The tool is not a
 * library, so its source is included. */
#include "bench/tools/bench/train/study_formulas.c"
#include "tests/support/unit.h"

static void check_value(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-9 * (1 + fabs(expected))))
        fail_msg("%.12g, not %.12g", value, expected);
}

/* Weak: T(1) / T(n), n times that as speed-up. Strong: T(1) / T(n), over n as efficiency. */
TWILL_TEST(test_scaling)
{
    struct twill_study_step weak = {.ranks = 8, .batch = 32, .seconds = 0.5, .alone = 0.45};
    struct twill_study_step strong = {
        .strong = true, .ranks = 8, .batch = 32, .seconds = 0.1, .alone = 0.4};
    double speedup, efficiency, overhead;
    assert_true(twill_study_speedup(&weak, &speedup, &efficiency));
    check_value(efficiency, 0.9);
    check_value(speedup, 7.2);
    check_value(twill_study_throughput(&weak), 512);
    assert_true(twill_study_overhead(&weak, &overhead));
    check_value(overhead, 0.05);
    assert_true(twill_study_speedup(&strong, &speedup, &efficiency));
    check_value(speedup, 4);
    check_value(efficiency, 0.5);
    check_value(twill_study_throughput(&strong), 320);
    assert_true(twill_study_overhead(&strong, &overhead));
    check_value(overhead, 0.05); /* of a rank's 4 samples, 0.05 s alone */
}

/* PowerAI DDL: 16 days on one GPU, 7 hours on 64: 54.9 times, 86 %. */
TWILL_TEST(test_published)
{
    struct twill_study_step days = {
        .strong = true, .ranks = 64, .batch = 64, .seconds = 7 * 3600, .alone = 16 * 24 * 3600.0};
    double speedup, efficiency;
    assert_true(twill_study_speedup(&days, &speedup, &efficiency));
    assert_true(fabs(speedup - 54.9) < 0.05 && fabs(efficiency - 0.86) < 0.005);
    /* 28 % of an epoch for synchronisation: without it at most 1.39 times as fast. */
    check_value(twill_study_share(0.28, 1), 0.28);
    check_value(twill_study_limit(0.28, 1), 1 / 0.72);
}

TWILL_TEST(test_without_one_rank)
{
    struct twill_study_step step = {.ranks = 4, .batch = 8, .seconds = 1, .alone = -1};
    double speedup = 7, efficiency = 7, overhead = 7;
    assert_false(twill_study_speedup(&step, &speedup, &efficiency));
    assert_false(twill_study_overhead(&step, &overhead));
    assert_true(speedup > 6.9 && efficiency > 6.9 && overhead > 6.9);
}

/* Dresden's net: 750,000 samples in batches of 75 on one rank are 10,000 synchronisations, and on P
 * ranks a P-th. */
TWILL_TEST(test_epochs)
{
    static const struct {
        bool strong;
        size_t ranks, batch, samples, steps;
    } rows[] = {{false, 1, 75, 750000, 10000}, {false, 4, 75, 750000, 2500},
                {true, 4, 75, 750000, 10000},  {false, 3, 75, 750000, 3334},
                {false, 7, 32, 224, 1},        {false, 7, 32, 225, 2}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++) {
        struct twill_study_step step = {
            .strong = rows[i].strong, .ranks = rows[i].ranks, .batch = rows[i].batch};
        assert_int_equal(twill_study_steps(&step, rows[i].samples), rows[i].steps);
    }
    assert_int_equal(twill_study_rank_batch(true, 3, 32), 11);
    assert_int_equal(twill_study_rank_batch(false, 3, 32), 32);
}

/* NT3 and the net of 613,764 bytes: a root moves P times what a ring's rank sends. */
TWILL_TEST(test_bytes)
{
    check_value(twill_study_root_bytes(613764, 4), 3682584);
    check_value(twill_study_ring_bytes(613764, 4), 920646);
    check_value(twill_study_root_bytes(100, 1), 0);
    check_value(twill_study_apart(9, 10), 10);
    check_value(twill_study_apart(10, 9), 10);
    check_value(twill_study_apart(0, 0), 0);
}

/* Buckets are reduced one after the other, none before it is ready. */
TWILL_TEST(test_prediction)
{
    const struct twill_study_bucket hidden[] = {{1, 2}, {4, 3}, {9, 1}};
    const struct twill_study_bucket queued[] = {{1, 9}, {2, 5}, {10, 1}};
    const struct twill_study_bucket last = {10, 4};
    check_value(twill_study_predict_exposed(hidden, 3, 10), 0);
    check_value(twill_study_predict_exposed(queued, 3, 10), 6);
    check_value(twill_study_predict_exposed(&last, 1, 10), 4);
    check_value(twill_study_predict_exposed(&last, 0, 10), 0);
}
