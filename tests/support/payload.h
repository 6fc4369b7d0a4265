/* SPDX-License-Identifier: Apache-2.0 */
/* Elements that differ by rank and position, and their serial reduction.
 *
 * Values are chosen so that every order of reduction is exact in the type that the library
 * guarantees to accumulate in (f32 for 8- and 16-bit floats), while narrow results must be rounded:
 * a result that was rounded before the end is wrong. Of TEST_OP_NARROW partial sums are exact in
 * the type itself. */
#ifndef TWILL_PAYLOAD_H
#define TWILL_PAYLOAD_H

#include "lib/base/base.h"

/* User-defined operations, beyond the library's: a sum of inputs that are multiplied by
 * test_payload_factor(); a commutative function on the bits of any type; a non-commutative one on
 * opaque elements (composition of maps x -> a x + b); and a sum with narrow partials, of inputs
 * multiplied in the same way, doubled in the end. */
#define TEST_OP_SCALED ((twill_op)TWILL_OP_COUNT)
#define TEST_OP_XOR    ((twill_op)(TWILL_OP_COUNT + 1))
#define TEST_OP_AFFINE ((twill_op)(TWILL_OP_COUNT + 2))
#define TEST_OP_NARROW ((twill_op)(TWILL_OP_COUNT + 3))
enum { TEST_OP_COUNT = TWILL_OP_COUNT + 4 };

struct test_affine {
    uint32_t a, b;
};

static inline int test_payload_factor(int rank)
{
    return 1 + rank % 2;
}
/* Return the factor of TEST_OP_NARROW. */
int test_payload_before(twill_type type, int rank);

/* Return whether type and operation exist together, and the bytes of an element. */
bool test_payload_takes(twill_type type, twill_op op);
size_t test_payload_element(twill_type type, twill_op op);

/* Write `count` elements of a rank's payload from position `first` on. */
void test_payload(void *buffer, size_t count, uint64_t first, twill_type type, twill_op op,
                  int rank);
/* Write the reduction of these elements over ranks 0 .. size-1. */
void test_payload_reduced(void *buffer, size_t count, uint64_t first, twill_type type, twill_op op,
                          int size);

#endif
