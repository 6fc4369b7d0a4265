/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the algorithms in this folder that other algorithms and the composer use. Internal to
 * algorithms/. */
#ifndef TWILL_CORES_H
#define TWILL_CORES_H

#include "algorithms/schedule/emit.h"

/* An allreduce of the group's blocks. The contribution is in `from`: SRC, raw, or TMP, a partial.
 * The result is in DST, FINAL. Returns whether a WAIT is due before the result is used, because the
 * last messages are still posted. */
typedef bool (*twill_emit_allreduce_fn)(struct twill_emitter *e, const struct twill_group *g,
                                        enum twill_space from);
/* TMP: one copy of the blocks. */
bool twill_emit_ring(struct twill_emitter *e, const struct twill_group *g, enum twill_space from);
/* TMP: two copies of the blocks. */
bool twill_emit_recursive_doubling(struct twill_emitter *e, const struct twill_group *g,
                                   enum twill_space from);
/* TMP: one copy of the blocks per member. Returns false. */
bool twill_emit_gather_reduce(struct twill_emitter *e, const struct twill_group *g,
                              enum twill_space from);
/* The halves of the ring over the group's shards. Reduce-scatter: this rank's own shard, FINAL into
 * DST, or, if `to` is TMP, a partial into TMP. TMP: one copy of the blocks. Return whether a WAIT
 * is due. */
bool twill_emit_ring_reduce_scatter(struct twill_emitter *e, const struct twill_group *g,
                                    enum twill_space from, enum twill_space to);
/* Like twill_emit_ring_reduce_scatter(), but FINAL also if `to` is TMP: for ranks without a DST. */
bool twill_emit_ring_reduce_scatter_final(struct twill_emitter *e, const struct twill_group *g,
                                          enum twill_space from, enum twill_space to);
/* From the own shard in `from` (SRC or DST), all shards into DST. */
bool twill_emit_ring_allgather(struct twill_emitter *e, const struct twill_group *g,
                               enum twill_space from);

/* The halves of halving_doubling over the group's shards; size > 1. Reduce-scatter: from SRC, or
 * partials in TMP, this rank's own shard into DST, FINAL. Allgather: from DST to all members. Both
 * end with nothing posted. TMP: one copy of the blocks. */
void twill_emit_circulant_reduce_scatter(struct twill_emitter *e, const struct twill_group *g,
                                         enum twill_space from);
void twill_emit_circulant_allgather(struct twill_emitter *e, const struct twill_group *g);
/* A twill_emit_allreduce_fn of both halves; returns false. */
bool twill_emit_circulant(struct twill_emitter *e, const struct twill_group *g,
                          enum twill_space from);

/* A binomial tree broadcast from the group's member number `root`, in two halves, so that a node
 * can be served while messages are posted: receive into DST; post the sends (returns whether a WAIT
 * is due). Other trees: patterns/knomial.h. */
void twill_emit_tree_receive(struct twill_emitter *e, const struct twill_group *g, uint32_t root);
bool twill_emit_tree_send(struct twill_emitter *e, const struct twill_group *g, uint32_t root,
                          enum twill_space from);

/* Emit broadcast, reduce, gather or scatter by a tree of any radix; from world->size on that is the
 * linear algorithm. */
void twill_tree_emit(struct twill_emitter *e, const struct twill_shape *shape, uint32_t radix,
                     uint32_t credit);

#endif
