/* SPDX-License-Identifier: Apache-2.0 */
/* Halving and doubling on a circulant graph, for any number of members. Internal to algorithms/. */
#ifndef TWILL_CIRCULANT_H
#define TWILL_CIRCULANT_H

#include "algorithms/schedule/emit.h"

/* The halves of halving_doubling over the group's shards; size > 1. Reduce-scatter: from SRC, or
 * partials in TMP, this rank's own shard into DST, FINAL. Allgather: from DST to all members. Both
 * end with nothing posted. TMP: one copy of the blocks. */
void twill_emit_circulant_reduce_scatter(struct twill_emitter *e, const struct twill_group *g,
                                         enum twill_space from);
void twill_emit_circulant_allgather(struct twill_emitter *e, const struct twill_group *g);
/* A twill_emit_allreduce_fn of both halves; returns false. */
bool twill_emit_circulant(struct twill_emitter *e, const struct twill_group *g,
                          enum twill_space from);

#endif
