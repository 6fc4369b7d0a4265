/* SPDX-License-Identifier: Apache-2.0 */
/* The composer over a ladder of levels. Internal to this room. */
#ifndef TWILL_COMPOSE_H
#define TWILL_COMPOSE_H

#include "algorithms/ladder.h"

/* A schedule in the making: an allreduce goes down and up, a reduce-scatter down, an allgather up.
 */
struct twill_compose {
    struct twill_emitter e;
    struct twill_ladder ladder;
    uint32_t each; /* blocks of a shard */
    bool down, up;
    bool mapped;            /* the flavour of what goes through memory; else STAGED */
    enum twill_space final; /* where a top that goes through memory leaves complete shards */
    uint32_t *list;         /* [size + 1] ranks */
    bool *marked;           /* [size] */
};

/* Allreduce, reduce-scatter or allgather over levels: ascending, the whole world last. STAGED or
 * MAPPED. Recursive doubling only at the top of an allreduce. */
twill_status twill_compose(struct twill_schedule *schedule, const struct twill_world *world,
                           uint32_t rank, const struct twill_shape *shape,
                           const struct twill_rung_choice *choice, uint32_t choices,
                           struct twill_error *error);

#endif
