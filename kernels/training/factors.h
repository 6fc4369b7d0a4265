/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of a dense layer from its sufficient factors: the sum over samples of the outer
 * product of an error and an activation (Chilimbi et al. 2014, Project Adam; Xie et al. 2014). An
 * element is summed in f32 in the order of parts and samples, with each product and each sum
 * rounded once. The bits are the same by every instruction set and for any number of threads. */
#ifndef TWILL_FACTORS_H
#define TWILL_FACTORS_H

#include "kernels/kernels.h"

/* Factors of several ranks, a variable of the caller, who owns the arrays. Part p has errors[p *
 * stride + sample * rows + row] and activations[p * stride + sample * columns + column]. */
struct twill_factors {
    const void *errors, *activations; /* of f32 */
    size_t parts, stride;
    size_t samples; /* of each part (those that a rank lacks are zeros) */
    size_t rows, columns;
    float scale; /* factor of the sums */
};

/* Compute rows `first` to `first` + `count` - 1 of a gradient of f32 that begins at `gradient`. */
void twill_factors_multiply(const struct twill_kernels *kernels,
                            const struct twill_factors *factors, void *gradient, size_t first,
                            size_t count, struct twill_thread_pool *pool);
/* Time a product of fixed size, on one thread. Returns picoseconds per million multiplications, or
 * 0 if out of memory. */
uint64_t twill_factors_time(const struct twill_kernels *kernels);

#endif
