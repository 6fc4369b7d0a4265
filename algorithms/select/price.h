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
 * That takes as long as there are steps: up to TWILL_PRICE_STEPS are run, and where there are more,
 * these shortcuts are tried in turn.
 *
 * Folded: where all nodes have equally many ranks, placed alike, and the schedules of the first,
 * the middle and the last node do alike, one node is run, with all its ranks. A message that leaves
 * it goes round and comes in again, as the one that the node so far away on the other side sends.
 * That is exact where nodes do the same at the same time: rings, exchanges with a rank d nodes on
 * or off, whatever is shared out within the nodes first. Where blocks wrap round, and one node
 * sends in two messages what another sends in one, it is the last node that is run, which sends
 * most.
 *
 * Scaled: every second node is left out, as often as it takes, but a number of nodes that is no
 * power of two never becomes one. Of the prices for so many nodes, for half and a quarter of them
 * those for all are worked out: what no bytes cost and what the bytes add both grow either by the
 * same with each doubling (trees), by twice as much (chains), by the square root of two as much
 * (squares), or by less and less (a part of the message for each rank). It is never less than what
 * leaves a node, by three of its ranks, takes to pass the node's interface.
 *
 * Alone: schedules so long that not even one node's can be run are those of rings over all ranks
 * and the like. Three ranks, the first, the middle and the last, are run each by itself: what it
 * waits for comes as if its peer had been where it is itself, and it has a share of the node's
 * interface.
 *
 * tests/unit/algorithms/test_algorithms_price_large.c compares each of them with all ranks run.
 *
 * A message longer than a slice costs one slice from end to end, and for each other one the busiest
 * resource's time, or its share of the window. */
#ifndef TWILL_PRICE_H
#define TWILL_PRICE_H

#include "algorithms/algorithms.h"
#include "algorithms/select/machine_model.h"

#define TWILL_PRICE_STEPS 8192u
#define TWILL_PRICE_NEVER UINT64_MAX

/* Schedules made ready to be priced at many sizes. The world must outlive it.
 * TWILL_ERR_UNSUPPORTED: it has no price. */
struct twill_pricing;
twill_status twill_pricing_create(struct twill_pricing **pricing,
                                  const struct twill_algorithm *algorithm,
                                  const struct twill_world *world, const struct twill_shape *shape,
                                  struct twill_error *error);
/* Like twill_pricing_create(), running at most `steps`. UINT64_MAX: all, however long it takes. */
twill_status twill_pricing_create_within(struct twill_pricing **pricing,
                                         const struct twill_algorithm *algorithm,
                                         const struct twill_world *world,
                                         const struct twill_shape *shape, uint64_t steps,
                                         struct twill_error *error);
/* Of `bytes`, counted as in a twill_select_request. */
uint64_t twill_pricing_at(struct twill_pricing *pricing, const struct twill_machine_model *model,
                          size_t bytes, twill_type type);
/* Of two on one world the same where the steps are, hence the price: where a world leaves
 * algorithms no choice. */
uint64_t twill_pricing_fingerprint(const struct twill_pricing *pricing);
void twill_pricing_destroy(struct twill_pricing *pricing);

/* Once. TWILL_PRICE_NEVER where the algorithm does not apply. */
twill_status twill_price(uint64_t *picoseconds, const struct twill_algorithm *algorithm,
                         const struct twill_world *world, const struct twill_shape *shape,
                         const struct twill_machine_model *model, size_t bytes, twill_type type,
                         struct twill_error *error);

#endif
