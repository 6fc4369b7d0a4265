/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives of "direct", for two or more ranks that share a node. Internal to algorithms/. */
#ifndef TWILL_DIRECT_H
#define TWILL_DIRECT_H

#include "algorithms/schedule/emit.h"

/* Emit an allreduce through the memory of a node's ranks, by the shape's protocol, which is not
 * FETCHED. */
void twill_emit_direct_allreduce(struct twill_emitter *e, const struct twill_shape *shape);
/* Emit a reduce to the root through the memory of a node's ranks, by the shape's protocol, which is
 * not FETCHED. */
void twill_emit_direct_reduce(struct twill_emitter *e, const struct twill_shape *shape);
/* Emit a reduce-scatter through the memory of a node's ranks, by the shape's protocol, which is not
 * FETCHED. */
void twill_emit_direct_reduce_scatter(struct twill_emitter *e, const struct twill_shape *shape);
/* Emit an allgather through the memory of a node's ranks, by the shape's protocol, which is not
 * FETCHED. */
void twill_emit_direct_allgather(struct twill_emitter *e, const struct twill_shape *shape);
/* Emit a gather to the root through the memory of a node's ranks, by the shape's protocol, which is
 * not FETCHED. */
void twill_emit_direct_gather(struct twill_emitter *e, const struct twill_shape *shape);
/* Emit a scatter from the root through the memory of a node's ranks, by the shape's protocol, which
 * is not FETCHED. */
void twill_emit_direct_scatter(struct twill_emitter *e, const struct twill_shape *shape);
/* Emit an alltoall through the memory of a node's ranks, by the shape's protocol, which is not
 * FETCHED. */
void twill_emit_direct_alltoall(struct twill_emitter *e, const struct twill_shape *shape);
/* Append the copy of the shard of this rank from SRC to DST. */
void twill_emit_copy_own(struct twill_emitter *e);
#define TWILL_OF_OWNER UINT32_MAX
/* Copy one block from `space` of each other rank into the shard of DST that belongs to that rank.
 * It is block number `block`, or with TWILL_OF_OWNER the block whose number is that rank. */
void twill_emit_copy_from_others(struct twill_emitter *e, unsigned space, uint32_t block);
/* Emit the collective of the shape with FETCHED. Ranks of a node read each other's memory. */
void twill_emit_direct_fetched(struct twill_emitter *e, const struct twill_shape *shape);

#endif
