/* SPDX-License-Identifier: Apache-2.0 */
/* The price of a schedule: picoseconds that the model of a machine says it takes. Integers only, so
 * that all ranks get the same.
 *
 * All ranks' schedules are run against clocks, as LogGP has it (Alexandrov, Ionescu, Schauser and
 * Scheiman 1995): a message costs its sender's core the overhead, between nodes occupies the
 * sender's link, both nodes' interfaces and the receiver's link for as long as its bytes take (on a
 * node it is the core that moves them), arrives a latency later, and costs the receiver's core the
 * overhead and the fold. A core does one thing at a time,
 * whatever the lanes; what it reads or writes in another part of the node goes through the one link
 * that all ranks of its own part share; the lane with the earliest clock goes next. The price is
 * when the last lane ends.
 *
 * That takes as long as there are steps. Where there are more than TWILL_PRICE_ALIKE in all and
 * three ranks (first, middle, last) do alike, those stand for the rest, each run alone: what it
 * waits for comes as if its peer had been where it is itself. That is right for rings and pairwise
 * exchange, which are the algorithms with many steps. Where ranks do not do alike, all are run, up
 * to TWILL_PRICE_STEPS. Beyond that the first half of the world is priced instead, or the half of
 * that, and what the last doubling cost is added for each doubling left out: right for trees, and
 * too little for chains, which are out of the question among so many ranks all the same.
 *
 * A message longer than a slice costs one slice from end to end, and for each other one the busiest
 * resource's time, or its share of the window. */
#ifndef TWILL_PRICE_H
#define TWILL_PRICE_H

#include "algorithms/algorithms.h"
#include "algorithms/machine.h"

#define TWILL_PRICE_ALIKE 512u
#define TWILL_PRICE_STEPS 4096u
#define TWILL_PRICE_NEVER UINT64_MAX

/* Schedules made ready to be priced at many sizes. The world must outlive it.
 * TWILL_ERR_UNSUPPORTED: it has no price. */
struct twill_pricing;
twill_status twill_pricing_create(struct twill_pricing **pricing,
                                  const struct twill_algorithm *algorithm,
                                  const struct twill_world *world, const struct twill_shape *shape,
                                  struct twill_error *error);
/* Of `bytes`, counted as in a twill_select_request. */
uint64_t twill_pricing_at(struct twill_pricing *pricing, const struct twill_machine_model *model,
                          size_t bytes, twill_type type);
/* The same steps, hence the same price: where a world leaves algorithms no choice. Of one world. */
bool twill_pricing_same(const struct twill_pricing *a, const struct twill_pricing *b);
void twill_pricing_destroy(struct twill_pricing *pricing);

/* Once. TWILL_PRICE_NEVER where the algorithm does not apply. */
twill_status twill_price(uint64_t *picoseconds, const struct twill_algorithm *algorithm,
                         const struct twill_world *world, const struct twill_shape *shape,
                         const struct twill_machine_model *model, size_t bytes, twill_type type,
                         struct twill_error *error);

#endif
