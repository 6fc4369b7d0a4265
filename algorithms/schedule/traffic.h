/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the bytes that move between ranks according to their schedules.
 *
 * A message moves its bytes from the sender to the receiver. An operand in the memory of a peer
 * moves its bytes from that peer when it is read, and to that peer when it is written. The SRC,
 * DST, SHARED and IMM of a rank are in its own NUMA node, because it touched them first. Caches may
 * save transfers (of a line that a neighbour has already fetched) or add some (a line that is
 * fetched to be written). Neither is counted, and flags are not counted either. */
#ifndef TWILL_TRAFFIC_H
#define TWILL_TRAFFIC_H

#include "algorithms/algorithms.h"
#include "algorithms/select/machine_model.h"

typedef void (*twill_traffic_fn)(void *user, uint32_t from, uint32_t to, uint64_t bytes);
/* Call fn for every move of bytes between ranks in the schedule of one rank. The message has
 * `count` elements in shards of one size. Only the schedule of the sender reports a message. */
void twill_traffic_each(const struct twill_schedule *schedule, uint32_t rank, size_t count,
                        struct twill_element_kind elements, twill_traffic_fn fn, void *user);

/* Add to bytes[class of link] the bytes that one rank moves by its schedule. These are the messages
 * that it sends, and what it reads from or writes to the memory of peers. Messages that it receives
 * count for their sender only. */
void twill_traffic_by_class(uint64_t bytes[TWILL_LINK_COUNT], const struct twill_schedule *schedule,
                            const struct twill_world *world, uint32_t rank, size_t count,
                            struct twill_element_kind elements);

#endif
