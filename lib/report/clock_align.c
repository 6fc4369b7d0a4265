/* SPDX-License-Identifier: Apache-2.0 */
/* How far the clocks of ranks are apart. */
#include "lib/report/clock_align.h"
#include "lib/comm/comm.h"

#include <stdlib.h>

#define ROUNDS 16u

/* What a rank contributes to a round: when it began this one, and when it ended the one before. */
struct clock_round {
    uint64_t begun, ended;
};

/* The narrowest bounds of this clock minus that of rank 0 so far. */
struct clock_bounds {
    int64_t least, most;
};

/* Tighten the bounds by one allgather: mine and rank 0's readings before and after it. */
static void tighten(struct clock_bounds *bounds, const struct clock_round *mine,
                    const struct clock_round *theirs)
{
    int64_t least = (int64_t)(mine->begun - theirs->ended),
            most = (int64_t)(mine->ended - theirs->begun);
    bounds->least = least > bounds->least ? least : bounds->least;
    bounds->most = most < bounds->most ? most : bounds->most;
}

static twill_status measure(twill_comm *comm, struct clock_round *all, struct clock_bounds *bounds)
{
    struct clock_round last = {0}, zero = {0}; /* readings of the round before */
    uint64_t ended = 0;
    for (unsigned i = 0; i <= ROUNDS; i++) {
        struct clock_round own = {twill_now(), ended};
        twill_status status =
            twill_allgather(comm, &own, all, sizeof(own) / sizeof(uint64_t), TWILL_U64);
        if (status != TWILL_OK)
            return status;
        ended = twill_now();
        if (i > 1) { /* the first makes connections */
            last.ended = own.ended;
            zero.ended = all[0].ended;
            tighten(bounds, &last, &zero);
        }
        last.begun = own.begun;
        zero.begun = all[0].begun;
    }
    return TWILL_OK;
}

twill_status twill_clock_align(struct twill_comm *comm, struct twill_clock_offset *offset)
{
    struct clock_bounds bounds = {INT64_MIN, INT64_MAX};
    *offset = (struct twill_clock_offset){.at = twill_now()};
    if (comm->world->size == 1)
        return TWILL_OK;
    struct clock_round *all = calloc(comm->world->size, sizeof(*all));
    if (all == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory for a timeline");
    twill_status status = measure(comm, all, &bounds);
    free(all);
    offset->at = twill_now();
    if (status != TWILL_OK || (bounds.least <= 0 && bounds.most >= 0))
        return status;
    offset->offset = bounds.least + (bounds.most - bounds.least) / 2;
    offset->error = (bounds.most - bounds.least) / 2 + 1;
    return TWILL_OK;
}
