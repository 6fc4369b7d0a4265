/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of one node through memory, in each protocol. Internal to algorithms/. */
#ifndef TWILL_INTRA_NODE_H
#define TWILL_INTRA_NODE_H

#include "algorithms/schedule/emit.h"

/* Signal all ranks of the node, and await the `ordinal`-th signal of each. */
void twill_emit_node_barrier(struct twill_emitter *e, uint32_t ordinal);

/* The division of the blocks among the ranks of a node: shard s is the `each` blocks from s * each
 * on; its owner is local rank s % size. */
struct twill_shards {
    uint32_t count, each;
};
/* Reduce all ranks' SRC into the owners' `to`: the final value with FINAL (in
 * twill_node_final_space(), or in DST if one pass suffices), else partials (TMP). STAGED and
 * MAPPED, size > 1. STAGED may reduce into SHARED, because own shards are not staged there. */
void twill_emit_node_reduce_scatter(struct twill_emitter *e, enum twill_protocol protocol,
                                    struct twill_shards shards, enum twill_space to,
                                    unsigned flags);
/* Return the space to reduce final shards into. DST holds no partial, so several passes need
 * another one. */
enum twill_space twill_node_final_space(enum twill_protocol protocol, uint32_t ranks);
/* Copy the owners' final shards, which are in `from`, into DST of all ranks. Follows
 * twill_emit_node_reduce_scatter() in one schedule. */
void twill_emit_node_allgather(struct twill_emitter *e, enum twill_protocol protocol,
                               struct twill_shards shards, enum twill_space from);
/* IMM and FLAT: all ranks reduce everything. */
void twill_emit_node_reduce_all(struct twill_emitter *e, enum twill_protocol protocol);
/* IMM and FLAT: rank `root` alone reduces; the others only contribute. flags: FINAL: into DST; 0: a
 * partial into TMP. */
void twill_emit_node_reduce_root(struct twill_emitter *e, enum twill_protocol protocol,
                                 uint32_t root, unsigned flags);
/* All protocols: reduce the node's contributions into a partial in TMP of rank `root`. STAGED and
 * MAPPED need SHARED. */
void twill_emit_node_reduce(struct twill_emitter *e, enum twill_protocol protocol,
                            struct twill_shards shards, uint32_t root);
/* IMM and FLAT: local rank 0 reduces everything into a partial in TMP; later it gives the result in
 * its DST to the others. */
void twill_emit_node_reduce_leader(struct twill_emitter *e, enum twill_protocol protocol);
void twill_emit_node_return_result(struct twill_emitter *e, enum twill_protocol protocol);
/* A barrier of the node in two halves, between which the leader (local rank 0) may communicate with
 * other nodes: it has the signals of all others after the first half, and they continue after the
 * second. */
void twill_emit_node_gather_signals(struct twill_emitter *e);
void twill_emit_node_release(struct twill_emitter *e);
/* Broadcast to the node from local rank `from_local`, whose data are in space `from`. Emits nothing
 * if it is alone. */
void twill_emit_node_broadcast(struct twill_emitter *e, enum twill_protocol protocol,
                               uint32_t from_local, enum twill_space from);

#endif
