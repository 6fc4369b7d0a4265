/* SPDX-License-Identifier: Apache-2.0 */
/* Count from schedules the bytes that move between ranks.
 *
 * A message moves its bytes from sender to receiver. An operand in a peer's memory moves them from
 * that peer when it is read, and to it when it is written: SRC, DST, SHARED and IMM of a rank are
 * in the rank's NUMA node, because it touched them first. What caches save (a line that a
 * neighbour has fetched already) or add (a line that is fetched to be written) is not counted, nor
 * are flags. */
#ifndef TWILL_TRAFFIC_H
#define TWILL_TRAFFIC_H

#include "algorithms/algorithms.h"
#include "algorithms/select/machine_model.h"

/* Call fn for every move of one rank's schedule of `count` elements, all shards together, shards of
 * one size. A message is reported by its sender's schedule only. */
typedef void (*twill_traffic_fn)(void *user, uint32_t from, uint32_t to, uint64_t bytes);
void twill_traffic_each(const struct twill_schedule *schedule, uint32_t rank, size_t count,
                        struct twill_element_kind elements, twill_traffic_fn fn, void *user);

/* Add the bytes that a rank's schedule moves, in both directions, to bytes[class of link]. */
void twill_traffic_by_class(uint64_t bytes[TWILL_LINK_COUNT], const struct twill_schedule *schedule,
                            const struct twill_world *world, uint32_t rank, size_t count,
                            struct twill_element_kind elements);

#endif
