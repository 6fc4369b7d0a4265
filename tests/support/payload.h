/* SPDX-License-Identifier: Apache-2.0 */
/* Elements that tell ranks and positions apart, and their serial fold.
 *
 * Values are chosen so that every order of folding is exact in what the library promises to fold in
 * (f32 for 8- and 16-bit floats), while narrow results must be rounded: a result that was rounded
 * on its way, not once at its end, is wrong. */
#ifndef TWILL_TEST_PAYLOAD_H
#define TWILL_TEST_PAYLOAD_H

#include "lib/base.h"

/* `count` elements of a rank's payload from position `first` on. */
void test_payload(void *buffer, size_t count, uint64_t first, twill_type type, twill_op op,
                  int rank);
/* Their fold over ranks 0 .. size-1. */
void test_payload_folded(void *buffer, size_t count, uint64_t first, twill_type type, twill_op op,
                         int size);

#endif
