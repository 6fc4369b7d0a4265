/* SPDX-License-Identifier: Apache-2.0 */
/* The composer builds collectives over a hierarchy of levels. Internal to algorithms/. */
#ifndef TWILL_COMPOSE_H
#define TWILL_COMPOSE_H

#include "algorithms/collectives/cores.h"
#include "algorithms/compose/hierarchy.h"

/* Return the function that emits an allreduce by a method (enum twill_how), which is not DIRECT. */
twill_emit_allreduce_fn twill_compose_allreduce(unsigned how);
/* Return how many copies of the message's blocks in TMP an allreduce among `members` ranks needs as
 * scratch. `how` is its method (enum twill_how). */
uint32_t twill_compose_copies(unsigned how, uint32_t members);

/* Emit an allreduce, reduce-scatter, allgather or broadcast over the levels choice[choices], in
 * STAGED or MAPPED. They are ascending and end with the whole world. In a broadcast there are at
 * least two levels, all of which are `direct`. */
void twill_compose(struct twill_emitter *e, const struct twill_shape *shape,
                   const struct twill_level_choice *choice, uint32_t choices);

/* Emit an allreduce, barrier, reduce-scatter or allgather over two levels. The ranks of a node
 * communicate through memory by the protocol of the shape, and nodes exchange messages by the
 * method `how`. With STAGED and MAPPED each rank exchanges its shard with other nodes. With other
 * protocols, and in a barrier, only one leader per node does. A barrier requires RECURSIVE_DOUBLING
 * or BRUCK, while a reduce-scatter or allgather requires STAGED or MAPPED. */
void twill_emit_two_levels(struct twill_emitter *e, const struct twill_shape *shape,
                           enum twill_how how);

#endif
