/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives of "direct", for two or more ranks that share a node. Internal to algorithms/. */
#ifndef TWILL_DIRECT_H
#define TWILL_DIRECT_H

#include "algorithms/schedule/emit.h"

/* Emit the collective with the protocol and the root of the shape. */
void twill_emit_direct_allreduce(struct twill_emitter *e, const struct twill_shape *shape);
void twill_emit_direct_reduce(struct twill_emitter *e, const struct twill_shape *shape);
void twill_emit_direct_reduce_scatter(struct twill_emitter *e, const struct twill_shape *shape);
void twill_emit_direct_allgather(struct twill_emitter *e, const struct twill_shape *shape);
void twill_emit_direct_gather(struct twill_emitter *e, const struct twill_shape *shape);
void twill_emit_direct_scatter(struct twill_emitter *e, const struct twill_shape *shape);
void twill_emit_direct_alltoall(struct twill_emitter *e, const struct twill_shape *shape);
/* Copy the shard of this rank from SRC to DST. */
void twill_emit_copy_own(struct twill_emitter *e);
/* Copy one block from `space` of each other rank into the shard of DST that belongs to that rank.
 * It is block number `block`, or with TWILL_OF_OWNER the block whose number is that rank. */
#define TWILL_OF_OWNER UINT32_MAX
void twill_emit_copy_from_others(struct twill_emitter *e, unsigned space, uint32_t block);
/* Emit any of these collectives with FETCHED. */
void twill_emit_direct_fetched(struct twill_emitter *e, const struct twill_shape *shape);

#endif
