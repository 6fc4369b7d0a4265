/* SPDX-License-Identifier: Apache-2.0 */
#include "learning_rate.h"

#include <math.h>

double example_rate_scaled(const struct example_rate *rate, size_t samples)
{
    double times = (double)samples / (double)rate->samples;
    return rate->scaling == EXAMPLE_RATE_LINEAR ? rate->base * times
           : rate->scaling == EXAMPLE_RATE_SQRT ? rate->base * sqrt(times)
                                                : rate->base;
}

double example_rate_at(const struct example_rate *rate, size_t samples, size_t epoch, size_t batch,
                       size_t batches)
{
    double scaled = example_rate_scaled(rate, samples);
    double done = (double)(epoch - 1) * (double)batches + (double)batch;
    double all = (double)rate->warm_up * (double)batches;
    double now = done < all ? rate->base + (scaled - rate->base) * (done / all) : scaled;
    for (size_t i = 0; i < rate->n_steps; i++)
        if (epoch > rate->steps[i])
            now /= 10;
    return now;
}
