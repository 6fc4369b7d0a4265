/* SPDX-License-Identifier: Apache-2.0 */
/* Elements as bits, including difficult ones, and a slow reference for reductions. */
#ifndef TWILL_NUMBERS_H
#define TWILL_NUMBERS_H

#include "kernels/kernels.h"
#include "lib/base/base.h"

/* The layout of a type; mantissa is 0 for integers. */
struct twill_test_layout {
    unsigned bits, mantissa;
    int bias;
    bool is_unsigned; /* integers */
    bool finite;      /* no infinity: only all ones is NaN */
};

const struct twill_test_layout *twill_test_layout(twill_type type);

/* Return whether an operation takes a type according to twill.h, and the bytes of its elements
 * (also of pairs), raw or partial; independent of the kernels. */
bool twill_test_takes(twill_type type, twill_op op);
size_t twill_test_element(twill_type type, twill_op op, bool partial);

/* Return the next table of kernels that this machine runs, the scalar one first, or NULL. *index is
 * 0 at first. */
const struct twill_kernels *twill_test_next_table(size_t *index);
/* Get the next type and operation that exist together; false: there is none. *index is 0 at first.
 */
bool twill_test_next_cell(twill_type *type, twill_op *op, int *index);

/* Return a pseudo-random number; *state may start with any value. */
uint64_t twill_test_random(uint64_t *state);

/* Get or set the bits of an element that is not a pair. */
uint64_t twill_test_get(twill_type type, const void *array, size_t index);
void twill_test_put(twill_type type, void *array, size_t index, uint64_t bits);

/* Get or set an element of a float type as a float. */
float twill_test_float(twill_type type, const void *array, size_t index);
void twill_test_put_float(twill_type type, void *array, size_t index, float value);

/* Fill with numbers near one, random bits and special values: zeros, denormals, the largest,
 * infinities, NaNs with payloads, integer extremes. */
void twill_test_fill(twill_type type, void *array, size_t count, uint64_t seed);
/* As twill_test_fill(), with elements of an operation: pairs with many equal values; half of them
 * zero for logical operations. Partials of narrow floats are f32. */
void twill_test_fill_for(twill_type type, twill_op op, bool partial, void *array, size_t count,
                         uint64_t seed);

/* Convert bits from one type to another, rounded to nearest even. */
uint64_t twill_test_convert(twill_type to, twill_type from, uint64_t bits);

/* Apply an operation to exact integers; a product is modulo 2^128. AVG adds. */
__int128 twill_test_combine(twill_op op, __int128 a, __int128 b);

/* Compute what twill_kernels_reduce must give, from left to right, rounding or wrapping after each
 * operation. nsrc is not limited; only the first 32 sources may be partials. */
void twill_test_reduce(const struct twill_reduction *reduction, void *dst, const void *const *src,
                       unsigned nsrc, size_t count);

#endif
