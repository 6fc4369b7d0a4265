/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates of data-parallel training: scaled with the mini-batch, warmed up gradually,
 * lowered in steps, as by Goyal et al., "Accurate, Large Minibatch SGD" (2017): their rate is 0.1 *
 * k n / 256 for k workers of n samples, reached after 5 epochs. */
#ifndef TWILL_LEARNING_RATE_EXAMPLE_H
#define TWILL_LEARNING_RATE_EXAMPLE_H

#include <stddef.h>

enum example_rate_scaling { EXAMPLE_RATE_FIXED, EXAMPLE_RATE_LINEAR, EXAMPLE_RATE_SQRT };
enum { EXAMPLE_RATE_STEPS = 16 };

struct example_rate {
    double base;                       /* for mini-batches of `samples` samples */
    size_t samples;                    /* above 0 */
    enum example_rate_scaling scaling; /* with the samples of a mini-batch */
    size_t warm_up;                    /* epochs; 0: none */
    size_t steps[EXAMPLE_RATE_STEPS];  /* the epochs after which the rate is a tenth; */
    size_t n_steps;                    /* these are given */
};

/* Return the rate for mini-batches of all ranks together that have `samples` samples. */
double example_rate_scaled(const struct example_rate *rate, size_t samples);

/* Return the rate of a mini-batch of `samples` samples, the `batch`th (from 0) of `batches` in this
 * epoch (from 1). In the warm-up it grows by equal amounts from the base, which is that of the
 * first mini-batch, to the scaled rate. */
double example_rate_at(const struct example_rate *rate, size_t samples, size_t epoch, size_t batch,
                       size_t batches);

#endif
