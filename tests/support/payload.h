/* SPDX-License-Identifier: Apache-2.0 */
/* Elements that tell ranks and positions apart, and their serial fold.
 *
 * Values are chosen so that every order of folding is exact in what the library promises to fold in
 * (f32 for 8- and 16-bit floats), while narrow results must be rounded: a result that was rounded
 * on its way, not once at its end, is wrong. */
#ifndef TWILL_PAYLOAD_H
#define TWILL_PAYLOAD_H

#include "lib/base.h"

/* Operations that a caller makes, beside the library's own: sums of which each rank's input is
 * multiplied by test_payload_factor(); a function on the bits of any type's elements, which
 * commutes; and one that does not, on opaque elements (maps x -> a x + b, one after the other). */
#define TEST_OP_SCALED ((twill_op)TWILL_OP_COUNT)
#define TEST_OP_XOR    ((twill_op)(TWILL_OP_COUNT + 1))
#define TEST_OP_AFFINE ((twill_op)(TWILL_OP_COUNT + 2))
enum { TEST_OP_COUNT = TWILL_OP_COUNT + 3 };

struct test_affine {
    uint32_t a, b;
};

static inline int test_payload_factor(int rank)
{
    return 1 + rank % 2;
}

/* Do they go together, and the bytes of an element. */
bool test_payload_takes(twill_type type, twill_op op);
size_t test_payload_element(twill_type type, twill_op op);

/* `count` elements of a rank's payload from position `first` on. */
void test_payload(void *buffer, size_t count, uint64_t first, twill_type type, twill_op op,
                  int rank);
/* Their fold over ranks 0 .. size-1. */
void test_payload_reduced(void *buffer, size_t count, uint64_t first, twill_type type, twill_op op,
                          int size);

#endif
