/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of "direct": one function for each collective, for two ranks and more that share a
 * node. Internal to this room. */
#ifndef TWILL_DIRECT_H
#define TWILL_DIRECT_H

#include "algorithms/schedule/emit.h"

void twill_emit_direct_allreduce(struct twill_emitter *e, const struct twill_shape *shape);
void twill_emit_direct_reduce(struct twill_emitter *e, const struct twill_shape *shape);
void twill_emit_direct_reduce_scatter(struct twill_emitter *e, const struct twill_shape *shape);
void twill_emit_direct_allgather(struct twill_emitter *e, const struct twill_shape *shape);
void twill_emit_direct_gather(struct twill_emitter *e, const struct twill_shape *shape);
void twill_emit_direct_scatter(struct twill_emitter *e, const struct twill_shape *shape);
void twill_emit_direct_alltoall(struct twill_emitter *e, const struct twill_shape *shape);
/* This rank's part, from SRC to DST. */
void twill_emit_keep_own(struct twill_emitter *e);
/* From all others: this block of their `space`, or the one of their own number, into the block of
 * their number. */
#define TWILL_OF_OWNER UINT32_MAX
void twill_emit_take_others(struct twill_emitter *e, unsigned space, uint32_t block);
/* FETCHED, all that there are: see direct_fetch.c. */
void twill_emit_direct_fetched(struct twill_emitter *e, const struct twill_shape *shape);

#endif
