/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients that all programs of this folder exchange, and a check of the parameters. */
#ifndef TWILL_EXCHANGE_VALUES_H
#define TWILL_EXCHANGE_VALUES_H

#include "bench/common/gradient_list.h"

#include <math.h>
#include <stdio.h>

#define EXCHANGE_RATE 0.125f /* The learning rate of SGD. All parameters begin at 0. */

/* Return the gradient that a worker pushes for an element of any key. It is the same each time. */
static inline float exchange_gradient(int worker, size_t element)
{
    return (float)((element + (size_t)worker * 3) % 8);
}

/* Return whether a parameter is not that of `updates` SGD steps by the workers' mean gradient. */
static inline bool exchange_is_wrong(float parameter, size_t element, int first_worker, int workers,
                                     size_t updates)
{
    double sum = 0;
    for (int worker = 0; worker < workers; worker++)
        sum += exchange_gradient(first_worker + worker, element);
    double expected = -EXCHANGE_RATE * sum / workers * (double)updates;
    return fabs(parameter - expected) > 1e-4 * (1 + fabs(expected));
}

/* Fill a worker's gradients of all keys, in one array at the offsets of the list. */
static inline void exchange_fill(const struct twill_bench_list *list, float *gradient, int worker)
{
    for (size_t k = 0; k < list->keys; k++)
        for (size_t i = 0; i < list->elements[k]; i++)
            gradient[list->offsets[k] + i] = exchange_gradient(worker, i);
}

/* Apply one step of SGD to `count` parameters with the mean gradient, which is sum / ranks. */
static inline void exchange_update(float *parameters, const float *sum, size_t count, int ranks)
{
    float scale = EXCHANGE_RATE / (float)ranks;
    for (size_t i = 0; i < count; i++)
        parameters[i] -= scale * sum[i];
}

/* Print the speed of `steps` exchanges, which followed two, and how many parameters are wrong. */
static inline void exchange_report(const struct twill_bench_list *list, const float *parameters,
                                   int ranks, int steps, double seconds)
{
    size_t wrong = 0;
    for (size_t k = 0; k < list->keys; k++)
        for (size_t i = 0; i < list->elements[k]; i++)
            wrong +=
                exchange_is_wrong(parameters[list->offsets[k] + i], i, 0, ranks, (size_t)steps + 2);
    printf("%.3f exchanges/s  %.3f GB/s aggregated  %zu wrong\n", steps / seconds,
           4.0 * (double)list->total * ranks * steps / seconds / 1e9, wrong);
}

#endif
