/* SPDX-License-Identifier: Apache-2.0 */
/* What all programs of this folder exchange, so that their results are known. */
#ifndef TWILL_EXCHANGE_VALUES_H
#define TWILL_EXCHANGE_VALUES_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#define EXCHANGE_RATE 0.125f /* of SGD, on parameters that begin as 0 */

/* Return the gradient that a worker pushes for an element of a key, in each exchange. */
static inline float exchange_gradient(int worker, size_t element)
{
    return (float)((element + (size_t)worker * 3) % 8);
}

/* Return whether a parameter is not what that number of updates by the workers' mean makes of it.
 */
static inline bool exchange_is_wrong(float parameter, size_t element, int first_worker, int workers,
                                     size_t updates)
{
    double sum = 0;
    for (int worker = 0; worker < workers; worker++)
        sum += exchange_gradient(first_worker + worker, element);
    double expected = -EXCHANGE_RATE * sum / workers * (double)updates;
    return fabs(parameter - expected) > 1e-4 * (1 + fabs(expected));
}

#endif
