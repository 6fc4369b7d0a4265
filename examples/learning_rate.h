/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates of data-parallel training as by Goyal et al., "Accurate, Large Minibatch SGD"
 * (2017). They are scaled with the mini-batch, warmed up gradually and lowered in steps. The paper
 * reaches a rate of 0.1 k n / 256 for k workers of n samples after 5 epochs. */
#ifndef TWILL_LEARNING_RATE_EXAMPLE_H
#define TWILL_LEARNING_RATE_EXAMPLE_H

#include <stddef.h>

enum example_rate_scaling { EXAMPLE_RATE_FIXED, EXAMPLE_RATE_LINEAR, EXAMPLE_RATE_SQRT };
enum { EXAMPLE_RATE_STEPS = 16 };

/* A schedule of learning rates. */
struct example_rate {
    double base;                       /* the rate for mini-batches of `samples` samples */
    size_t samples;                    /* above 0 */
    enum example_rate_scaling scaling; /* how the rate grows with the samples of a mini-batch */
    size_t warm_up;                    /* number of epochs, or 0 for none */
    size_t steps[EXAMPLE_RATE_STEPS];  /* after each of these epochs the rate is divided by 10 */
    size_t n_steps;                    /* how many of them are given */
};

/* Return the rate after the warm-up for mini-batches of `samples` samples on all ranks together. */
double example_rate_scaled(const struct example_rate *rate, size_t samples);

/* Return the rate of mini-batch `batch` (from 0) of `batches` in an epoch (from 1). It has
 * `samples` samples. In the warm-up the rate grows by equal amounts from the base, in the first
 * mini-batch, to the scaled rate. */
double example_rate_at(const struct example_rate *rate, size_t samples, size_t epoch, size_t batch,
                       size_t batches);

#endif
