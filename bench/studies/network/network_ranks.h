/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as actors of SimGrid, which run schedules: what a core does takes the time of the machine
 * model, what a message takes SimGrid finds out. */
#ifndef TWILL_NETWORK_RANKS_H
#define TWILL_NETWORK_RANKS_H

#include "algorithms/algorithms.h"
#include "algorithms/select/machine_model.h"

/* One collective to simulate. */
struct simulated_call {
    const struct twill_algorithm *algorithm;
    const struct twill_world *world;
    struct twill_shape shape;
    const struct twill_machine_model *model;
    size_t bytes;    /* of f32 */
    uint64_t copies; /* picoseconds per KiB for which each end copies a message besides; 0: it does
                        not */
    double detours;  /* a second in which something else runs on a core; 0: none */
    double detour;   /* seconds that it takes */
    uint64_t seed;   /* of when */
    bool lines;      /* inside a node, what a KNL takes for cache lines in place of the model */
};

/* Run the call on the platform that is loaded. Returns seconds until the last rank ends, or below 0
 * with the error. */
double network_run(const struct simulated_call *call, struct twill_error *error);

#endif
