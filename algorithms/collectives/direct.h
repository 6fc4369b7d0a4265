/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives of "direct", for two or more ranks that share a node. Internal to algorithms/. */
#ifndef TWILL_DIRECT_H
#define TWILL_DIRECT_H

#include "algorithms/schedule/emit.h"

/* Emit an allreduce with the protocol of the shape among ranks that access each other's memory. */
void twill_emit_direct_allreduce(struct twill_emitter *e, const struct twill_shape *shape);
/* Emit a reduce in the same way, to the root of the shape. */
void twill_emit_direct_reduce(struct twill_emitter *e, const struct twill_shape *shape);
/* Emit a reduce-scatter in the same way. */
void twill_emit_direct_reduce_scatter(struct twill_emitter *e, const struct twill_shape *shape);
/* Emit an allgather in the same way. */
void twill_emit_direct_allgather(struct twill_emitter *e, const struct twill_shape *shape);
/* Emit a gather in the same way, to the root of the shape. */
void twill_emit_direct_gather(struct twill_emitter *e, const struct twill_shape *shape);
/* Emit a scatter in the same way, from the root of the shape. */
void twill_emit_direct_scatter(struct twill_emitter *e, const struct twill_shape *shape);
/* Emit an alltoall in the same way. */
void twill_emit_direct_alltoall(struct twill_emitter *e, const struct twill_shape *shape);
/* Append the copy of the shard of this rank from SRC to DST. */
void twill_emit_copy_own(struct twill_emitter *e);
#define TWILL_OF_OWNER UINT32_MAX
/* Copy one block from `space` of each other rank into the shard of DST that belongs to that rank.
 * It is block number `block`, or with TWILL_OF_OWNER the block whose number is that rank. */
void twill_emit_copy_from_others(struct twill_emitter *e, unsigned space, uint32_t block);
/* Emit any of these collectives with FETCHED. */
void twill_emit_direct_fetched(struct twill_emitter *e, const struct twill_shape *shape);

#endif
