/* SPDX-License-Identifier: Apache-2.0 */
/* Costs of a collective, of all ranks together. */
#ifndef TWILL_COSTS_H
#define TWILL_COSTS_H

#include "tests/support/schedules.h"

/* Sum and maximum over all ranks. */
struct test_costs {
    struct twill_schedule_cost sum, most;
    uint32_t crossing; /* ranks that send to other nodes */
};

/* Return the costs for count elements of 4 bytes. */
struct test_costs test_cost_of(const char *name, struct twill_world *world,
                               const struct twill_shape *shape, size_t count);
/* Create a world of `nodes` nodes of `ranks` ranks each. */
void test_grid(struct twill_world *world, uint32_t nodes, uint32_t ranks);
uint32_t test_floor_log(uint32_t n);
uint32_t test_ceil_log(uint32_t n);

#endif
