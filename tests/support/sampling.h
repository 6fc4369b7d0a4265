/* SPDX-License-Identifier: Apache-2.0 */
/* What tests do a sample of, drawn by the day: see CONTRIBUTING.md. */
#ifndef TWILL_SAMPLING_H
#define TWILL_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

/* Return TEST_SEED, or 1. */
uint64_t test_seed(void);
/* Return whether TEST_WHOLE asks for all that is otherwise sampled. */
bool test_whole(void);
/* Return a random number below `below`. */
uint32_t test_draw(uint64_t *state, uint32_t below);

#endif
