/* SPDX-License-Identifier: Apache-2.0 */
/* The composer builds collectives over a hierarchy of levels. Internal to algorithms/. */
#ifndef TWILL_COMPOSE_H
#define TWILL_COMPOSE_H

#include "algorithms/collectives/cores.h"
#include "algorithms/compose/hierarchy.h"

/* Return the function that emits an allreduce at the top, and the number of copies of the blocks in
 * TMP that it needs among `members` ranks. `how` must not be TWILL_BY_DIRECT. */
twill_emit_allreduce_fn twill_compose_allreduce(unsigned how);
uint32_t twill_compose_copies(unsigned how, uint32_t members);

/* Emit an allreduce, reduce-scatter, allgather or broadcast over levels, in STAGED or MAPPED.
 * `choice` is ascending and ends with the whole world. In a broadcast there are at least two
 * levels, all of which are `direct`. */
void twill_compose(struct twill_emitter *e, const struct twill_shape *shape,
                   const struct twill_level_choice *choice, uint32_t choices);

/* Emit two levels, the ranks of a node and the nodes. They are composed if each rank has a shard,
 * else one leader per node communicates. Emits an allreduce, a barrier with RECURSIVE_DOUBLING or
 * BRUCK, or, if composed, a reduce-scatter or allgather. */
void twill_emit_two_levels(struct twill_emitter *e, const struct twill_shape *shape,
                           enum twill_how how);

#endif
