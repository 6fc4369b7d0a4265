/* SPDX-License-Identifier: Apache-2.0 */
/* The composer over a ladder of levels. Internal to this room. */
#ifndef TWILL_COMPOSE_H
#define TWILL_COMPOSE_H

#include "algorithms/ladder.h"

/* A schedule in the making. */
struct twill_compose {
    struct twill_emitter e;
    struct twill_ladder ladder;
    uint32_t each;          /* blocks of a shard */
    bool mapped;            /* the flavour of what goes through memory; else STAGED */
    enum twill_space final; /* where a top that goes through memory leaves complete shards */
    uint32_t *list;         /* [size + 1] ranks */
    bool *marked;           /* [size] */
};

/* Allreduce over levels: ascending, the whole world last. STAGED or MAPPED. */
twill_status twill_compose_allreduce(struct twill_schedule *schedule,
                                     const struct twill_world *world, uint32_t rank,
                                     enum twill_flavour flavour,
                                     const struct twill_rung_choice *choice, uint32_t choices,
                                     struct twill_error *error);

#endif
