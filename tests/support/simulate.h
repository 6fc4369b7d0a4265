/* SPDX-License-Identifier: Apache-2.0 */
/* A second opinion on schedules: runs all ranks over small arrays in a random order of steps, twice
 * as dumb as the verifier and independent of it. */
#ifndef TWILL_SIMULATE_H
#define TWILL_SIMULATE_H

#include "algorithms/algorithms.h"

/* Run three times over, interleaved by seed. NULL: every rank got the right values, the same
 * ones, in every run; else what went wrong. */
const char *test_simulate(const struct twill_schedule *schedules, const struct twill_world *world,
                          const struct twill_shape *shape, bool in_place, uint32_t seed);

#endif
