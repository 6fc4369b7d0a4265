/* SPDX-License-Identifier: Apache-2.0 */
/* A simulation of schedules, independent of the verifier and simpler: runs all ranks over small
 * arrays in a random order of steps. */
#ifndef TWILL_SIMULATE_H
#define TWILL_SIMULATE_H

#include "algorithms/algorithms.h"

/* Simulate three runs, interleaved by seed. Returns NULL if every rank got the right values, equal
 * on all ranks, in every run; else what went wrong. */
const char *test_simulate(const struct twill_schedule *schedules, const struct twill_world *world,
                          const struct twill_shape *shape, bool in_place, uint32_t seed);

#endif
