/* SPDX-License-Identifier: Apache-2.0 */
/* What twill-bench sends, and what must arrive. Every value depends on rank, position and round;
 * the expected result is computed serially by the same rule, never received. */
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
    int from; /* -1: a reduction over all ranks; else the rank that the values come from */
    unsigned round;
};

/* Operations that can be checked: the first ones. Those on pairs, the last two, cannot. */
enum { TWILL_BENCH_OPS = TWILL_MINLOC };
_Static_assert(TWILL_MAXLOC == TWILL_BENCH_OPS + 1 && TWILL_OP_COUNT == TWILL_BENCH_OPS + 2,
               "a later operation needs its own place");
/* Return whether an operation on a type can be checked. */
bool twill_bench_op_takes(twill_op op, twill_type type);

/* Write a rank's contribution, from position `first` on. */
void twill_bench_fill(const struct twill_bench_payload *payload, int rank, uint64_t first,
                      void *buffer, size_t count);

/* Return how many elements, from position `first` on, are wrong. Exact, except where f32 or f64
 * must round. */
size_t twill_bench_count_wrong(const struct twill_bench_payload *payload, uint64_t first,
                               const void *buffer, size_t count);

#endif
