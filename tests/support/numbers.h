/* SPDX-License-Identifier: Apache-2.0 */
/* Elements as bits, hard ones among them, and a slow oracle of what a reduction must give. */
#ifndef TWILL_TEST_NUMBERS_H
#define TWILL_TEST_NUMBERS_H

#include "lib/base.h"

/* How a floating-point type is laid out; mantissa 0 for an integer. */
struct twill_test_layout {
    unsigned bits, mantissa;
    int bias;
};

const struct twill_test_layout *twill_test_layout(twill_type type);

/* A pseudo-random number; *state is any number to begin with. */
uint64_t twill_test_random(uint64_t *state);

uint64_t twill_test_get(twill_type type, const void *array, size_t index);
void twill_test_put(twill_type type, void *array, size_t index, uint64_t bits);

/* Fill with numbers near one, random bits, and special values: zeros, denormals, the largest,
 * infinities, NaNs with payloads, integer extremes. */
void twill_test_fill(twill_type type, void *array, size_t count, uint64_t seed);

/* Value of the layout, rounded to nearest even from another layout's bits. */
uint64_t twill_test_convert(twill_type to, twill_type from, uint64_t bits);

/* The bits a reduction of these nsrc elements must give, computed in 128-bit floats and integers.
 */
uint64_t twill_test_reduce(twill_type type, twill_op op, const uint64_t *elements, unsigned nsrc,
                           uint32_t divisor);

#endif
