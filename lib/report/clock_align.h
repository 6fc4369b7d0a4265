/* SPDX-License-Identifier: Apache-2.0 */
/* How far the clocks of ranks are apart, for timelines. */
#ifndef TWILL_CLOCK_ALIGN_H
#define TWILL_CLOCK_ALIGN_H

#include "lib/base/base.h"

struct twill_comm;

/* The difference between this rank's clock and that of rank 0 (twill_now()), at one time. Both are
 * in ns; offset is this clock minus the other, true within error. */
struct twill_clock_offset {
    uint64_t at; /* twill_now() of this rank; 0: not measured */
    int64_t offset, error;
};

/* Measure it by some allgathers. Collective; costs some round trips.
 *
 * No rank can end an allgather before every rank has begun it. So what a rank reads at its end is
 * later than what rank 0 read at its begin, and the reverse: each allgather bounds the offset from
 * both sides, as in Cristian's algorithm, and the offset is the middle of the narrowest bounds.
 * Where 0 is within them, the clocks are taken for the same one: they are on ranks of one host. */
twill_status twill_clock_align(struct twill_comm *comm, struct twill_clock_offset *offset);

#endif
