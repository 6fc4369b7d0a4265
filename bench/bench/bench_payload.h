/* SPDX-License-Identifier: Apache-2.0 */
/* What twill-bench sends, and what must arrive: every value depends on the rank, the position and
 * the round, and the expected result is computed serially from the same rule, never received. */
#ifndef TWILL_BENCH_PAYLOAD_H
#define TWILL_BENCH_PAYLOAD_H

#include "lib/twill.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct twill_bench_payload {
    twill_type type;
    twill_op op; /* of a reduction; else not read */
    int ranks;
    int from; /* -1: a reduction over all ranks; else the rank whose values these are */
    unsigned round;
};

/* Can the bench check this operation on this type? Those on pairs are not benched. */
bool twill_bench_op_takes(twill_op op, twill_type type);

/* What a rank contributes at positions `first` and on. */
void twill_bench_fill(const struct twill_bench_payload *payload, int rank, uint64_t first,
                      void *buffer, size_t count);

/* How many elements, from position `first` on, are not what they must be. Exact, except where f32
 * or f64 have to round. */
size_t twill_bench_count_wrong(const struct twill_bench_payload *payload, uint64_t first,
                               const void *buffer, size_t count);

#endif
