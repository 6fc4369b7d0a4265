/* SPDX-License-Identifier: Apache-2.0 */
/* The composer: collectives over a hierarchy of levels. Internal to algorithms/. */
#ifndef TWILL_COMPOSE_H
#define TWILL_COMPOSE_H

#include "algorithms/collectives/cores.h"
#include "algorithms/compose/hierarchy.h"

/* Return the function that emits an allreduce at the top, and the number of copies of the blocks in
 * TMP that it needs among `members` ranks. Not for DIRECT. */
twill_emit_allreduce_fn twill_compose_allreduce(unsigned how);
uint32_t twill_compose_copies(unsigned how, uint32_t members);

/* Emit an allreduce, reduce-scatter, allgather or broadcast over levels: ascending, the whole world
 * last. STAGED or MAPPED. In a broadcast all levels, at least two, are `direct`. */
void twill_compose(struct twill_emitter *e, const struct twill_shape *shape,
                   const struct twill_level_choice *choice, uint32_t choices);

/* Emit two levels, the ranks of a node and the nodes: composed if each rank has a shard, else by
 * one leader per node. An allreduce, a barrier with RECURSIVE_DOUBLING or BRUCK, or, composed, a
 * reduce-scatter or allgather. */
void twill_emit_two_levels(struct twill_emitter *e, const struct twill_shape *shape,
                           enum twill_how how);

#endif
