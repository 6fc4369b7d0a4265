/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of algorithms that other algorithms and the composer use. Internal to algorithms/. */
#ifndef TWILL_CORES_H
#define TWILL_CORES_H

#include "algorithms/schedule/emit.h"

/* Emit an allreduce of the blocks of the group. The contribution is in `from`, which is SRC (raw)
 * or TMP (a partial). The result is in DST, FINAL. Returns whether a WAIT is due before the result
 * is used, because the last messages are still posted. */
typedef bool (*twill_emit_allreduce_fn)(struct twill_emitter *e, const struct twill_group *g,
                                        enum twill_space from);
/* Emit an allreduce of the blocks of the group by a ring. The contribution is in `from`, which is
 * SRC (raw) or TMP (a partial), and the result in DST, FINAL. Uses one copy of the blocks in TMP.
 * Returns whether the caller must append a WAIT before the result is used, as the last messages are
 * still posted. */
bool twill_emit_ring(struct twill_emitter *e, const struct twill_group *g, enum twill_space from);
/* Emit an allreduce of the blocks of the group by recursive doubling. The contribution is in
 * `from`, which is SRC (raw) or TMP (a partial, in the first copy of the blocks). The result is in
 * DST, FINAL. Uses at most two copies of the blocks in TMP. Returns whether the caller must append
 * a WAIT before the result is used, as the last messages are still posted. */
bool twill_emit_recursive_doubling(struct twill_emitter *e, const struct twill_group *g,
                                   enum twill_space from);
/* Emit an allreduce of the blocks of the group, in which each member gathers the contributions of
 * all (Bruck) and reduces them itself. The contribution of this rank is in `from`, which is SRC
 * (raw) or TMP (a partial, in the first copy of the blocks). The result is in DST, FINAL. Uses one
 * copy of the blocks per member in TMP. Always returns false, as no WAIT is due. */
bool twill_emit_gather_reduce(struct twill_emitter *e, const struct twill_group *g,
                              enum twill_space from);
/* Emit a reduce-scatter by a ring over the shards of the group. The contribution is in `from`,
 * which is SRC (raw) or TMP (a partial). The shard of this rank ends in `to`, which is DST, where
 * it is FINAL, or TMP, where it is a partial. Uses one copy of the blocks in TMP. Returns whether
 * the caller must append a WAIT before the result is used, as the last messages are still
 * posted. */
bool twill_emit_ring_reduce_scatter(struct twill_emitter *e, const struct twill_group *g,
                                    enum twill_space from, enum twill_space to);
/* Emit the same reduce-scatter as twill_emit_ring_reduce_scatter(), but with a result that is FINAL
 * also if `to` is TMP, which ranks without a DST use. Returns whether the caller must append a WAIT
 * before the result is used, as the last messages are still posted. */
bool twill_emit_ring_reduce_scatter_final(struct twill_emitter *e, const struct twill_group *g,
                                          enum twill_space from, enum twill_space to);
/* Emit the second half of a ring, from the shard of this rank in `from` (SRC or DST) to all shards
 * in DST. Returns whether a WAIT is due. */
bool twill_emit_ring_allgather(struct twill_emitter *e, const struct twill_group *g,
                               enum twill_space from);

/* Emit the reduce-scatter of halving and doubling over the shards of a group of several members. It
 * takes SRC, or partials in TMP, and leaves the shard of this rank in `to`, FINAL in DST or a
 * partial in TMP. It uses one copy of the blocks in TMP and ends with nothing posted. */
void twill_emit_circulant_reduce_scatter(struct twill_emitter *e, const struct twill_group *g,
                                         enum twill_space from, enum twill_space to);
/* Emit the allgather of halving and doubling, from the shard of this rank in DST to all shards
 * there. It ends with nothing posted. */
void twill_emit_circulant_allgather(struct twill_emitter *e, const struct twill_group *g);
/* A group divided into rows of equal length, each within one group of nodes, and columns. A column
 * has one member of each row, and the blocks that are its shard in the row. A local variable. */
struct twill_rows {
    struct twill_group row, column; /* those of the emitting rank */
    uint32_t *ranks;                /* the members of the column, to be freed */
};
#define TWILL_ROW_BLOCKS 2 /* into which a column divides what it broadcasts or reduces */
/* Divide a group into its longest rows, with `whole` only if each is a whole group of nodes.
 * Returns false if there is one row, or one rank in each, or if memory is missing, of which it
 * tells the emitter. Otherwise the caller frees rows->ranks. */
bool twill_rows_open(struct twill_rows *rows, struct twill_emitter *e, const struct twill_group *g,
                     bool whole);

/* Emit an allreduce of the blocks of the group by halving and doubling, by rows and columns if the
 * group has them. The contribution is in
 * `from`, which is SRC (raw) or TMP (a partial), and the result in DST, FINAL. Always returns
 * false, because it ends with nothing posted, so that no WAIT is due. */
bool twill_emit_circulant(struct twill_emitter *e, const struct twill_group *g,
                          enum twill_space from);

/* Emit the receive into DST, if any, and its WAIT, of a binomial broadcast from member `root`. */
void twill_emit_tree_receive(struct twill_emitter *e, const struct twill_group *g, uint32_t root);
/* Post the sends to the children of this rank in a binomial broadcast from member `root`. They send
 * the blocks of the group from the space `from`. Returns whether the caller must append a WAIT, as
 * the last sends are still posted. */
bool twill_emit_tree_send(struct twill_emitter *e, const struct twill_group *g, uint32_t root,
                          enum twill_space from);

/* Emit a broadcast, reduce, gather or scatter by a tree of any radix. With a radix of world->size
 * or more it is the linear algorithm. In a reduce or gather, `credit` children of a rank may send
 * at once while its other children wait, or all if it is 0. */
void twill_tree_emit(struct twill_emitter *e, const struct twill_shape *shape, uint32_t radix,
                     uint32_t credit);

#endif
