/* SPDX-License-Identifier: Apache-2.0 */
/* What twill-bench sends, and what must arrive: every value depends on the rank, the position and
 * the round, and the expected result is computed serially from the same rule, never received. */
#ifndef TWILL_BENCH_PAYLOAD_H
#define TWILL_BENCH_PAYLOAD_H

#include "lib/twill.h"

#include <stddef.h>
#include <stdint.h>

struct twill_bench_payload {
    twill_type type;
    twill_op op; /* of a reduction; not read for a broadcast */
    int ranks;
    int root; /* -1: a reduction over all ranks; else a broadcast from this one */
    unsigned round;
};

/* What this rank contributes. */
void twill_bench_fill(const struct twill_bench_payload *payload, int rank, void *buffer,
                      size_t count);

/* How many elements are not what they must be. Exact, except where the type has to round. */
size_t twill_bench_count_wrong(const struct twill_bench_payload *payload, const void *buffer,
                               size_t count);

#endif
