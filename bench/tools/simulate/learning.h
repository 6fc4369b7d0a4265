/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that the simulated server and its workers have, and the function they minimise. */
#ifndef TWILL_LEARNING_H
#define TWILL_LEARNING_H

#include "bench/tools/simulate/simulation.h"

struct learning {
    const struct simulation_problem *problem;
    double *curvature, *values, *sums; /* of dimensions; sums: gradients times rates, so far */
    double *copies;                    /* of actors and dimensions: values when they were read */
};

/* A range of dimensions. */
struct learning_range {
    uint32_t first, end;
};

/* Returns false without memory; free it even then. The problem must outlive it. */
bool learning_create(struct learning *learning, const struct simulation_problem *problem,
                     uint32_t actors);
void learning_free(struct learning *learning);
/* An actor reads these values. */
void learning_read(struct learning *learning, uint32_t actor, struct learning_range range);
/* Add an actor's gradient, the mean of `members` workers', to the next update of a range. */
void learning_add(struct learning *learning, uint32_t actor, struct learning_range range,
                  uint32_t members, uint64_t staleness, struct random_source *random);
/* Update a range by the mean of this many gradients that were added. */
void learning_update(struct learning *learning, struct learning_range range, uint32_t gradients);
double learning_loss(const struct learning *learning);

#endif
