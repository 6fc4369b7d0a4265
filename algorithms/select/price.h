/* SPDX-License-Identifier: Apache-2.0 */
/* The price of a schedule is the picoseconds that it takes according to a machine model. It uses
 * integers only, so that all ranks compute the same price. Only the table of threads has doubles.
 *
 * The schedules of a unit are run against simulated clocks, after LogGP (Alexandrov, Ionescu,
 * Schauser and Scheiman 1995). A message costs the core of the sender the overhead. Between nodes
 * its bytes then occupy the link of the sender, the interfaces of both nodes and the link of the
 * receiver. On a node the core moves them. The message arrives a latency later, after those whose
 * receives the rank posted earlier, and costs the core of the receiver the overhead and the
 * reduction. A core does one thing at a time, however many lanes it runs. Reads and writes of
 * memory in another unit of the node (NUMA node, package) share the port of that unit. Messages
 * between groups share the links of each group, at the rate of all of them together. Of lanes that
 * use what others use as well, that with the earliest clock goes next. The price is the time at
 * which the last lane ends.
 *
 * The unit is the whole world if its schedules have at most TWILL_PRICE_STEPS steps. In a larger
 * world it is the last node, or the last rank. The others are assumed to do the same at the same
 * time, so a message that leaves the unit comes back in as the message of the unit equally far away
 * on the other side. This is exact where units act alike, as in rings, in exchanges with the unit d
 * away, and in everything that is first divided within nodes. The ranks of the unit are first
 * compared with some of other units. Where block numbers wrap around, a node may send in two
 * messages what another sends in one, and the last node sends most. A single rank has its share of
 * the core, ports and interface.
 *
 * Where units do not act alike, such as in trees, the price is extrapolated from three worlds that
 * can be run. Each leaves out every second node (or group, if there are many) of the next larger
 * one, except that a number that is not a power of two never becomes one. The price of no bytes,
 * and the addition for the bytes, each grow with every doubling of nodes by a constant (trees), by
 * twice the preceding amount (chains), by sqrt(2) times it (squares), or by less and less (a shard
 * for each rank). The price is at least the time that the bytes leaving a node take on its
 * interface. tests/unit/algorithms/test_algorithms_price_large.c compares these with running all
 * ranks.
 *
 * Threads of a rank share steps as in the executor, which decides by the same table and function,
 * lib/base/thread_rates.h. What they save is the ratio of the table's times.
 *
 * If ranks of a node only contribute and end early, every third call is taken as one that follows
 * at once. It finds their part done, and takes only as long as the busiest core works.
 *
 * A message longer than a segment costs one segment from end to end. Each further one costs the
 * time of the busiest resource, or that of a segment divided by the window if it is longer. */
#ifndef TWILL_PRICE_H
#define TWILL_PRICE_H

#include "algorithms/algorithms.h"
#include "algorithms/select/machine_model.h"

/* Most steps that are run, and the price of what is not priced or never ends. */
#define TWILL_PRICE_STEPS 8192u
#define TWILL_PRICE_NEVER UINT64_MAX

struct twill_pricing;
/* Create *pricing, with which the time of an algorithm on a world can be predicted for many message
 * sizes. It is not thread-safe, and the world must outlive it. The caller destroys it. `steps`, the
 * most steps that are simulated, is normally TWILL_PRICE_STEPS, while UINT64_MAX simulates all
 * ranks. On failure *pricing is NULL. TWILL_ERR_UNSUPPORTED means that it cannot be priced. */
twill_status twill_pricing_create(struct twill_pricing **pricing,
                                  const struct twill_algorithm *algorithm,
                                  const struct twill_world *world, const struct twill_shape *shape,
                                  uint64_t steps, struct twill_error *error);
/* Return the price, the predicted picoseconds, of a message of `bytes` bytes, all shards together.
 * Returns TWILL_PRICE_NEVER if it exceeds the limit of the pricing or the schedules never end. */
uint64_t twill_pricing_at(struct twill_pricing *pricing, const struct twill_machine_model *model,
                          size_t bytes, struct twill_element_kind elements);
/* Return the picoseconds for which a message of `bytes` bytes keeps the links between groups busy,
 * 0 without groups. Other jobs use these links as well and wait that long. */
uint64_t twill_pricing_toll(const struct twill_pricing *pricing,
                            const struct twill_machine_model *model, size_t bytes);
/* Let twill_pricing_at() return TWILL_PRICE_NEVER if it finds out early that the price is above
 * `most` picoseconds. A new pricing has the limit TWILL_PRICE_NEVER, which is none. */
void twill_pricing_limit(struct twill_pricing *pricing, uint64_t most);
/* Return a hash of the schedules. Two pricings on one world with equal hashes have equal steps,
 * hence equal prices. Different algorithms may have the same schedules on a small world. */
uint64_t twill_pricing_fingerprint(const struct twill_pricing *pricing);
/* Free a pricing, which may be NULL. */
void twill_pricing_destroy(struct twill_pricing *pricing);

/* Set *picoseconds to the predicted time of one call, or to TWILL_PRICE_NEVER if the algorithm does
 * not apply or the price cannot be computed. Only the latter is an error. */
twill_status twill_price(uint64_t *picoseconds, const struct twill_algorithm *algorithm,
                         const struct twill_world *world, const struct twill_shape *shape,
                         const struct twill_machine_model *model, size_t bytes,
                         struct twill_element_kind elements, struct twill_error *error);
/* Set *picoseconds to how long the core of one rank works in a call, without waiting for anything.
 * The price by twill_price() is not less than that, and takes far longer to compute. */
twill_status twill_price_least(uint64_t *picoseconds, const struct twill_algorithm *algorithm,
                               const struct twill_world *world, uint32_t rank,
                               const struct twill_shape *shape,
                               const struct twill_machine_model *model, size_t bytes,
                               struct twill_element_kind elements, struct twill_error *error);

#endif
