/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of one node communicate through memory, in each protocol. Internal to algorithms/. */
#ifndef TWILL_INTRA_NODE_H
#define TWILL_INTRA_NODE_H

#include "algorithms/schedule/emit.h"

/* Append a SIGNAL to all ranks of the node, and AWAITs of the `ordinal`-th SIGNAL of each other
 * one. */
void twill_emit_node_barrier(struct twill_emitter *e, uint32_t ordinal);

/* The division of blocks among the ranks of a node. Shard s, of `count`, has the `each` blocks from
 * (`first` + s) * `each` on, and local rank s % size owns it. */
struct twill_shards {
    uint32_t count, each, first;
};
/* Reduce SRC of all ranks of the node into `to` of the owners of the shards. With FINAL in `flags`
 * the values are final, and `to` is twill_node_final_space(), or TMP or SHARED. With 0 they are
 * partials in TMP or SHARED. Only for STAGED and MAPPED with several ranks. Begins with
 * twill_emit_node_barrier() number 1, before which STAGED copies SRC to SHARED. */
void twill_emit_node_reduce_scatter(struct twill_emitter *e, enum twill_protocol protocol,
                                    struct twill_shards shards, enum twill_space to,
                                    unsigned flags);
/* Return the space in which each rank of a node reduces its shards to final ones, with STAGED or
 * MAPPED. It is DST if one step can reduce the operands of all ranks, at most TWILL_STEP_PEERS.
 * Otherwise several steps accumulate partials, which must not be in DST. Then it is SHARED with
 * STAGED and TMP with MAPPED. `ranks` is the number of ranks that reduce. */
enum twill_space twill_node_final_space(enum twill_protocol protocol, uint32_t ranks);
/* Copy the final shards, which are in `from` of their owners, into DST of all ranks. It has
 * twill_emit_node_barrier() number 2, and must follow twill_emit_node_reduce_scatter() in the same
 * schedule. */
void twill_emit_node_allgather(struct twill_emitter *e, enum twill_protocol protocol,
                               struct twill_shards shards, enum twill_space from);
/* Emit an allreduce of the node in which every rank reduces everything. Each rank copies its SRC to
 * its IMM line or SHARED, awaits all other ranks, and reduces the data of all into its DST, FINAL.
 * Only for IMM and FLAT. */
void twill_emit_node_reduce_all(struct twill_emitter *e, enum twill_protocol protocol);
/* Emit a reduction of SRC of all ranks of the node on rank `root`. The other ranks copy their SRC
 * to their IMM line or SHARED, and do nothing else. `root` awaits them and reduces. With FINAL in
 * `flags` the result goes to its DST, and with 0 a partial goes to its TMP. Only for IMM and FLAT.
 * Makes the schedule eager. */
void twill_emit_node_reduce_root(struct twill_emitter *e, enum twill_protocol protocol,
                                 uint32_t root, unsigned flags);
/* Emit a reduction of SRC of all ranks of the node into a partial in TMP of rank `root`, with all
 * SIGNALs and AWAITs. With IMM and FLAT only `root` reduces, and the schedule becomes eager. With
 * STAGED and MAPPED each rank reduces the shards that it owns by `shards`. `root` does so in its
 * TMP, and copies the others' from their SHARED, which the schedule must have. */
void twill_emit_node_reduce(struct twill_emitter *e, enum twill_protocol protocol,
                            struct twill_shards shards, uint32_t root);
/* Emit a reduction of SRC of all ranks of the node into a partial in TMP of local rank 0, with all
 * SIGNALs and AWAITs. The other ranks only copy their SRC to their IMM line or SHARED. Only for IMM
 * and FLAT. */
void twill_emit_node_reduce_leader(struct twill_emitter *e, enum twill_protocol protocol);
/* Let local rank 0 give the result in its DST to the other ranks of its node, which copy it into
 * theirs. Only for IMM and FLAT. */
void twill_emit_node_return_result(struct twill_emitter *e, enum twill_protocol protocol);
/* Emit the first half of a barrier of the node. Its leader (local rank 0) awaits the first SIGNAL
 * of each other rank, and the other ranks only send theirs. */
void twill_emit_node_gather_signals(struct twill_emitter *e);
/* Emit the second half of a barrier of the node. Its leader (local rank 0) sends its first SIGNAL,
 * which the other ranks await. */
void twill_emit_node_release(struct twill_emitter *e);
/* Broadcast all blocks from `from` (SRC or DST) of local rank `from_local` into DST of the other
 * ranks of its node. The protocol is IMM, STAGED or MAPPED. With MAPPED the sender waits until they
 * have read. Makes the schedule eager. Does nothing on a node of one rank. */
void twill_emit_node_broadcast(struct twill_emitter *e, enum twill_protocol protocol,
                               uint32_t from_local, enum twill_space from);

#endif
