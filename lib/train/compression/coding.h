/* SPDX-License-Identifier: Apache-2.0 */
/* The codes by which gradients travel, of sets and of parameter servers. */
#ifndef TWILL_CODING_H
#define TWILL_CODING_H

#include "kernels/training/quantize.h"
#include "lib/twill_train.h"

enum twill_coding { TWILL_CODING_NARROW, TWILL_CODING_BLOCKS, TWILL_CODING_SPARSE };

/* Return how a twill_compression other than none encodes. */
struct twill_coding_choice {
    enum twill_coding kind;
    twill_type code;
} twill_coding_of(twill_compression compression);

#endif
