/* SPDX-License-Identifier: Apache-2.0 */
/* Elements as bits, hard ones among them, and a slow oracle of what a reduction must give. */
#ifndef TWILL_NUMBERS_H
#define TWILL_NUMBERS_H

#include "kernels/kernels.h"
#include "lib/base.h"

/* How a type is laid out; mantissa 0 for an integer. */
struct twill_test_layout {
    unsigned bits, mantissa;
    int bias;
    bool is_unsigned; /* of integers */
    bool finite;      /* no infinity: only all ones is NaN */
};

const struct twill_test_layout *twill_test_layout(twill_type type);

/* What twill.h says an operation takes, and the bytes of its elements (pairs!), raw or partial;
 * told independently of the kernels. */
bool twill_test_takes(twill_type type, twill_op op);
size_t twill_test_element(twill_type type, twill_op op, bool partial);

/* A pseudo-random number; *state is any number to begin with. */
uint64_t twill_test_random(uint64_t *state);

/* The bits of an element that is no pair. */
uint64_t twill_test_get(twill_type type, const void *array, size_t index);
void twill_test_put(twill_type type, void *array, size_t index, uint64_t bits);

/* Fill with numbers near one, random bits, and special values: zeros, denormals, the largest,
 * infinities, NaNs with payloads, integer extremes. */
void twill_test_fill(twill_type type, void *array, size_t count, uint64_t seed);
/* Likewise with elements of the operation: pairs with many equal values, half of them zero if only
 * truth counts. Partials, where they are wider, are f32. */
void twill_test_fill_for(twill_type type, twill_op op, bool partial, void *array, size_t count,
                         uint64_t seed);

/* Value of the layout, rounded to nearest even from another layout's bits. */
uint64_t twill_test_convert(twill_type to, twill_type from, uint64_t bits);

/* An operation on integers that hold the exact values; a product is modulo 2^128. AVG adds. */
__int128 twill_test_combine(twill_op op, __int128 a, __int128 b);

/* What twill_kernels_reduce must give, from left to right in 128-bit floats and integers that are
 * rounded, or wrap, after each operation. nsrc is not limited; only the first 32 may be partials.
 */
void twill_test_reduce(const struct twill_reduction *reduction, void *dst, const void *const *src,
                       unsigned nsrc, size_t count);

#endif
