/* SPDX-License-Identifier: Apache-2.0 */
/* "direct" by collective, for two or more ranks that share a node. Internal to algorithms/. */
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
/* Copy this rank's shard from SRC to DST. */
void twill_emit_copy_own(struct twill_emitter *e);
/* Copy one block from `space` of each other rank into the shard of DST that belongs to that rank:
 * block number `block`, or, with TWILL_OF_OWNER, the block of that rank's number. */
#define TWILL_OF_OWNER UINT32_MAX
void twill_emit_copy_from_others(struct twill_emitter *e, unsigned space, uint32_t block);
/* All collectives with FETCHED. */
void twill_emit_direct_fetched(struct twill_emitter *e, const struct twill_shape *shape);

#endif
