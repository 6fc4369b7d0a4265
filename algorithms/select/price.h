/* SPDX-License-Identifier: Apache-2.0 */
/* The price of a schedule: the picoseconds it takes according to a machine model. Integers only, so
 * that all ranks compute the same price.
 *
 * The schedules of a unit are run against simulated clocks, after LogGP (Alexandrov, Ionescu,
 * Schauser and Scheiman 1995). A message costs the sender's core the overhead. Between nodes its
 * bytes then occupy the sender's link, both nodes' interfaces and the receiver's link; on a node
 * the core moves them. It arrives a latency later, behind what its rank has posted a receive for
 * before, and costs the receiver's core the overhead and the reduction. A core does one thing at a
 * time, however many lanes it runs. Reads and writes of memory in another unit of the node (NUMA
 * node, package) share that unit's port. The lane with the earliest clock goes next. The price is
 * the time at which the last lane ends.
 *
 * The unit is the whole world if its schedules have at most TWILL_PRICE_STEPS steps. In a larger
 * world it is the last node, or the last rank: the others are taken to do the same at the same
 * time, so a message that leaves the unit comes back in as the message of the unit equally far away
 * on the other side. This is exact where units act alike: rings, exchanges with the unit d away,
 * whatever is divided within nodes first. The unit's ranks are compared with some of other units
 * first. Where block numbers wrap round, a node may send in two messages what another sends in one;
 * the last node sends most. A single rank has its share of the core, ports and interface.
 *
 * Where units do not act alike, such as in trees, the price is extrapolated from three worlds that
 * can be run. In each, every second node of the larger world is left out, except that a number of
 * nodes that is no power of two never becomes one. The price of no bytes, and what the bytes add,
 * each grow with every doubling of nodes by a constant (trees), by twice as much as before
 * (chains), by sqrt(2) times as much (squares), or by less and less (a shard for each rank). The
 * price is at least the time that the bytes leaving a node, estimated from three of its ranks, take
 * on the node's interface.
 *
 * tests/unit/algorithms/test_algorithms_price_large.c compares these with running all ranks.
 *
 * A message longer than a segment costs one segment from end to end, and for each further one the
 * time of the busiest resource, or the segment's time divided by the window if that is longer. */
#ifndef TWILL_PRICE_H
#define TWILL_PRICE_H

#include "algorithms/algorithms.h"
#include "algorithms/select/machine_model.h"

#define TWILL_PRICE_STEPS 8192u
#define TWILL_PRICE_NEVER UINT64_MAX

/* An algorithm's schedules on a world, prepared to be priced at many sizes. Not thread-safe. The
 * world must outlive it. Normally `steps`, the most that are run, is TWILL_PRICE_STEPS; with
 * UINT64_MAX all ranks are run. Returns TWILL_ERR_UNSUPPORTED if no way to price it was found. */
struct twill_pricing;
twill_status twill_pricing_create(struct twill_pricing **pricing,
                                  const struct twill_algorithm *algorithm,
                                  const struct twill_world *world, const struct twill_shape *shape,
                                  uint64_t steps, struct twill_error *error);
/* Return the price in picoseconds of a message of `bytes`, counted as in twill_select_request. */
uint64_t twill_pricing_at(struct twill_pricing *pricing, const struct twill_machine_model *model,
                          size_t bytes, struct twill_element_kind elements);
/* Let twill_pricing_at() return TWILL_PRICE_NEVER where it finds out early that the price is above
 * `most`. At first that is TWILL_PRICE_NEVER. */
void twill_pricing_limit(struct twill_pricing *pricing, uint64_t most);
/* Return a hash of the schedules. Two pricings on one world with equal hashes have equal steps,
 * hence equal prices: an algorithm may have no choice on a small world. */
uint64_t twill_pricing_fingerprint(const struct twill_pricing *pricing);
void twill_pricing_destroy(struct twill_pricing *pricing);

/* Price a schedule once: TWILL_PRICE_NEVER if the algorithm does not apply. */
twill_status twill_price(uint64_t *picoseconds, const struct twill_algorithm *algorithm,
                         const struct twill_world *world, const struct twill_shape *shape,
                         const struct twill_machine_model *model, size_t bytes,
                         struct twill_element_kind elements, struct twill_error *error);
/* Compute what one rank's core does in a call, without waiting for anything. The price is no less,
 * and takes far longer to compute. */
twill_status twill_price_least(uint64_t *picoseconds, const struct twill_algorithm *algorithm,
                               const struct twill_world *world, uint32_t rank,
                               const struct twill_shape *shape,
                               const struct twill_machine_model *model, size_t bytes,
                               struct twill_element_kind elements, struct twill_error *error);

#endif
