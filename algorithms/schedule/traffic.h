/* SPDX-License-Identifier: Apache-2.0 */
/* Which data moves between which ranks: bytes that cross each class of link, and each single link,
 * counted from schedules.
 *
 * A message moves its bytes from its sender to its receiver. An operand in a peer's memory moves
 * them from that peer when it is read, to it when it is written: SRC, DST, SHARED and IMM of a rank
 * are in the NUMA domain that the rank is in, because it touched them first. What caches save (a
 * line that a neighbour has fetched already) or add (a line that is fetched to be written) is not
 * counted, nor are flags. */
#ifndef TWILL_TRAFFIC_H
#define TWILL_TRAFFIC_H

#include "algorithms/algorithms.h"
#include "algorithms/select/machine_model.h"

/* Every move that one rank's schedule makes of `count` elements, all parts (of one size) together:
 * of a message, who sends it tells. Partials of narrow floats are f32. */
typedef void (*twill_traffic_fn)(void *user, uint32_t from, uint32_t to, uint64_t bytes);
void twill_traffic_each(const struct twill_schedule *schedule, uint32_t rank, size_t count,
                        twill_type type, twill_traffic_fn fn, void *user);

/* Add what a rank's schedule moves to bytes by class of link, both ways together. */
void twill_traffic_by_class(uint64_t bytes[TWILL_LINK_COUNT], const struct twill_schedule *schedule,
                            const struct twill_world *world, uint32_t rank, size_t count,
                            twill_type type);
/* To bytes[units * units]: from unit i of a level to unit j at i * units + j, on the diagonal what
 * stays in. `unit` is as in struct twill_world, and says 0 to units - 1. */
void twill_traffic_by_link(uint64_t *bytes, uint32_t units, const uint32_t *unit,
                           const struct twill_schedule *schedule, uint32_t rank, size_t count,
                           twill_type type);

#endif
