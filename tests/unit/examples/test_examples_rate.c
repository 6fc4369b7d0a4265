/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates of examples/train.c, with the values of the papers. Examples are programs, so the
 * source is included. */
#include "examples/learning_rate.c"
#include "tests/support/unit.h"

static void check_rate(double rate, double expected)
{
    if (fabs(rate - expected) > 1e-12)
        fail_msg("the rate is %.15g, not %.15g", rate, expected);
}

/* k workers of 32 samples: 0.1 * k n / 256. */
TWILL_TEST(test_scaling)
{
    static const struct {
        size_t workers;
        double linear, square_root;
    } rows[] = {{8, 0.1, 0.1},
                {16, 0.2, 0.1414213562373095},
                {32, 0.4, 0.2},
                {256, 3.2, 0.5656854249492381},
                {2, 0.025, 0.05}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct example_rate rate = {.base = 0.1, .samples = 256};
        check_rate(example_rate_scaled(&rate, rows[i].workers * 32), 0.1);
        rate.scaling = EXAMPLE_RATE_LINEAR;
        check_rate(example_rate_scaled(&rate, rows[i].workers * 32), rows[i].linear);
        rate.scaling = EXAMPLE_RATE_SQRT;
        check_rate(example_rate_scaled(&rate, rows[i].workers * 32), rows[i].square_root);
    }
}

/* 8192 samples of 1.28 million: 157 mini-batches an epoch, 5 epochs from 0.1 to 3.2. */
TWILL_TEST(test_warm_up)
{
    enum { BATCHES = 157 };
    struct example_rate rate = {
        .base = 0.1, .samples = 256, .scaling = EXAMPLE_RATE_LINEAR, .warm_up = 5};
    double last = 0, growth = 3.1 / (5 * BATCHES);
    check_rate(example_rate_at(&rate, 8192, 1, 0, BATCHES), 0.1);
    for (size_t epoch = 1; epoch <= 7; epoch++)
        for (size_t batch = 0; batch < BATCHES; batch++) {
            double now = example_rate_at(&rate, 8192, epoch, batch, BATCHES);
            if (epoch <= 5) /* by equal amounts */
                check_rate(now - last, epoch == 1 && batch == 0 ? 0.1 : growth);
            else
                check_rate(now, 3.2);
            last = now;
        }
    /* A small mini-batch has a lower rate than the base: it falls. */
    check_rate(example_rate_at(&rate, 128, 1, 0, 10), 0.1);
    check_rate(example_rate_at(&rate, 128, 3, 5, 10), 0.075);
    check_rate(example_rate_at(&rate, 128, 6, 0, 10), 0.05);
}

/* A tenth after 30, 60 and 80 epochs. */
TWILL_TEST(test_steps)
{
    struct example_rate rate = {.base = 0.4, .samples = 64, .steps = {30, 60, 80}, .n_steps = 3};
    check_rate(example_rate_at(&rate, 64, 1, 0, 7), 0.4);
    check_rate(example_rate_at(&rate, 64, 30, 6, 7), 0.4);
    check_rate(example_rate_at(&rate, 64, 31, 0, 7), 0.04);
    check_rate(example_rate_at(&rate, 64, 60, 6, 7), 0.04);
    check_rate(example_rate_at(&rate, 64, 61, 0, 7), 0.004);
    check_rate(example_rate_at(&rate, 64, 90, 3, 7), 0.0004);
}
