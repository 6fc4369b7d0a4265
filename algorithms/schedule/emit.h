/* SPDX-License-Identifier: Apache-2.0 */
/* What algorithms are written with: a list of steps per lane that grows, groups of ranks, and the
 * patterns (patterns/) that several algorithms share. Internal to algorithms/.
 *
 * Emitting functions return no status: an allocation failure is remembered, and
 * twill_emitter_finish() reports it. */
#ifndef TWILL_EMIT_H
#define TWILL_EMIT_H

#include "algorithms/registry.h"

/* The steps of one lane so far; grown by appending. */
struct twill_step_list {
    struct twill_step *steps;
    size_t count, capacity;
};

/* A schedule under construction, for one rank. On the stack of emit(), from twill_emitter_begin()
 * to twill_emitter_finish(). */
struct twill_emitter {
    const struct twill_world *world;
    uint32_t rank;
    uint32_t lane; /* lane that steps are appended to */
    struct twill_step_list lanes[TWILL_SCHEDULE_LANES];
    /* Copied into the schedule. Scratch is declared, not derived, so that it is equal on all ranks
     * even where only some use it: segment lengths follow from it. */
    uint32_t shards; /* 1, or set to world->size */
    uint32_t blocks, tmp_blocks, shared_blocks;
    bool uses_peer_src, uses_peer_dst, eager;
    bool no_memory;
};

/* Some ranks, in an order, and the blocks that they communicate. The same emitting function serves
 * the whole world, the ranks of one node, or the owners of one shard across the nodes. */
struct twill_group {
    const uint32_t *rank; /* [size] */
    uint32_t size;
    uint32_t me; /* position of the emitting rank in `rank` */
    uint32_t first, blocks;
    /* Where the blocks are divided into one equal shard per member: [size] the number of each
     * member's shard; NULL: its position. For shards of the message: `rank`. */
    const uint32_t *shard;
};

/* Return the first block of the shard of the member at this position, which is taken modulo size.
 */
uint32_t twill_group_block(const struct twill_group *g, uint32_t position);

/* A range of positions. twill_ring_ranges() splits `length` positions from `first` on of a ring of
 * `size` where they wrap round, and returns the number of ranges: 1 or 2. */
struct twill_range {
    uint32_t first, length;
};
uint32_t twill_ring_ranges(struct twill_range range[2], uint32_t size, uint32_t first,
                           uint32_t length);

/* The whole world in world->order, so that neighbours in the group are near each other in the
 * machine. */
struct twill_group twill_group_world(const struct twill_emitter *e, uint32_t blocks);
/* The whole world by rank: for orders other than TWILL_ORDER_ANY. */
struct twill_group twill_group_ranks(const struct twill_emitter *e, uint32_t blocks);
/* The ranks of the emitting rank's node. */
struct twill_group twill_group_node(const struct twill_emitter *e);

/* An applies() that always returns true. */
bool twill_applies_everywhere(const struct twill_world *world, const struct twill_shape *shape);

void twill_emitter_begin(struct twill_emitter *e, const struct twill_world *world, uint32_t rank,
                         uint32_t blocks);
/* Move the steps into the schedule and free what else the emitter holds, also on failure. */
twill_status twill_emitter_finish(struct twill_emitter *e, struct twill_schedule *schedule,
                                  struct twill_error *error);

static inline twill_operand data_at(unsigned space, uint32_t block)
{
    return twill_operand_make(space, block);
}

/* Append a message. flags: PARTIAL or 0. Blocks of several shards are one message where shards have
 * one size and the call is one segment, and one message per shard otherwise: alike on both sides.
 */
void twill_emit_send(struct twill_emitter *e, uint32_t peer, twill_operand src, uint32_t blocks,
                     unsigned flags);
void twill_emit_recv(struct twill_emitter *e, uint32_t peer, twill_operand dst, uint32_t blocks,
                     unsigned flags);
void twill_emit_recv_reduce(struct twill_emitter *e, uint32_t peer, twill_operand dst,
                            twill_operand src, uint32_t blocks, unsigned flags);
/* dst = src as a partial: for a rank that enters a reduction of partials with its own data only. */
void twill_emit_widen(struct twill_emitter *e, twill_operand dst, twill_operand src,
                      uint32_t blocks);
/* dst = src, FINAL: `src` is a partial that has all operands. */
void twill_emit_complete(struct twill_emitter *e, twill_operand dst, twill_operand src,
                         uint32_t blocks);
/* dst = dst op src, or with FIRST src op dst. */
void twill_emit_accumulate(struct twill_emitter *e, twill_operand dst, twill_operand src,
                           uint32_t blocks, unsigned flags);
/* dst = the reduction of the group's src, in the group's order, in as many passes as the number of
 * operands needs. FINAL applies to the last pass, OWN_SRC to the one with this rank. */
void twill_emit_reduce(struct twill_emitter *e, const struct twill_group *g, twill_operand dst,
                       twill_operand src, uint32_t blocks, unsigned flags);
/* Like twill_emit_reduce() with FINAL; several passes accumulate in `scratch`, because DST holds no
 * partial. */
void twill_emit_reduce_complete(struct twill_emitter *e, const struct twill_group *g,
                                twill_operand dst, twill_operand scratch, twill_operand src,
                                uint32_t blocks, unsigned flags);
/* `peer` is ignored unless an operand has the PEER bit. */
void twill_emit_copy(struct twill_emitter *e, twill_operand dst, twill_operand src, uint32_t peer,
                     uint32_t blocks, unsigned flags);
void twill_emit_put_imm(struct twill_emitter *e, twill_operand src, unsigned flags);
void twill_emit_wait(struct twill_emitter *e);
void twill_emit_signal(struct twill_emitter *e);
/* Await all other members of the group. flags: 0 or IMM. */
void twill_emit_await(struct twill_emitter *e, const struct twill_group *g, uint32_t ordinal,
                      unsigned flags);
void twill_emit_await_one(struct twill_emitter *e, uint32_t peer, uint32_t ordinal, unsigned flags);

/* Return the index of the lane's next step. */
size_t twill_emit_mark(const struct twill_emitter *e);
/* Insert a WAIT at the mark if a step from there on needs it, because it accesses what a message
 * posted before may still write, or writes what one may still read; or if TWILL_EMIT_POSTED
 * messages are posted. */
void twill_emit_insert_wait(struct twill_emitter *e, size_t mark);
#define TWILL_EMIT_POSTED 16 /* enough to overlap, few enough not to overrun a receiver */

/* Return whether the algorithm's messages prove to `rank`, when it ends, that `other` has started.
 */
typedef bool (*twill_emit_knows_fn)(const void *user, uint32_t rank, uint32_t other);
/* Ensure that no rank ends before all ranks of its node have started, by SIGNAL and AWAIT where
 * messages do not prove it. Join first and await last, in a lane without other SIGNALs. */
void twill_emit_join(struct twill_emitter *e, twill_emit_knows_fn knows, const void *user);
void twill_emit_await_join(struct twill_emitter *e, twill_emit_knows_fn knows, const void *user);

/* Ensure the same for an algorithm that only exchanges messages: enter first and leave last, in
 * lane 0, without other SIGNALs there. Emits nothing where a rank is alone on its node. */
void twill_emit_enter(struct twill_emitter *e);
void twill_emit_leave(struct twill_emitter *e);

/* An allreduce of the group's blocks. The contribution is in `from`: SRC, raw, or TMP, a partial.
 * The result is in DST, FINAL. Returns whether a WAIT is due before the result is used, because the
 * last messages are still posted. */
typedef bool (*twill_emit_allreduce_fn)(struct twill_emitter *e, const struct twill_group *g,
                                        enum twill_space from);
/* TMP: one copy of the blocks. */
bool twill_emit_ring(struct twill_emitter *e, const struct twill_group *g, enum twill_space from);
/* TMP: one copy of the blocks. Both halves below; returns false. */
bool twill_emit_circulant(struct twill_emitter *e, const struct twill_group *g,
                          enum twill_space from);
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
/* Reduce over this rank alone: DST = SRC, or DST = the partial in TMP, FINAL. */
void twill_emit_alone(struct twill_emitter *e, const struct twill_group *g, enum twill_space from);

/* The halves of halving_doubling over the group's shards; size > 1. Reduce-scatter: from SRC, or
 * partials in TMP, this rank's own shard into DST, FINAL. Allgather: from DST to all members. Both
 * end with nothing posted. TMP: one copy of the blocks. */
void twill_emit_circulant_reduce_scatter(struct twill_emitter *e, const struct twill_group *g,
                                         enum twill_space from);
void twill_emit_circulant_allgather(struct twill_emitter *e, const struct twill_group *g);

/* A rank's position in a tree that blocks are pipelined along. */
struct twill_pipe_tree {
    uint32_t depth, height; /* of this rank, 0: the root; of the deepest rank */
    uint32_t parent;        /* its rank; unset if depth is 0 */
    uint32_t children;
    struct {
        uint32_t rank;
        bool first;   /* its operand precedes this rank's */
        bool partial; /* has children of its own */
    } child[2];
};
/* Pipeline `blocks` blocks from `first` on: reduce them up a tree, then broadcast them down a tree,
 * either of which may be NULL. The root of `up`, which has at most one child, leaves the FINAL
 * value in `result`; the root of `down` sends `result`; all others receive into DST. TMP: one copy
 * of the blocks, two where a rank has two children. Ends with nothing posted. */
void twill_emit_pipeline(struct twill_emitter *e, const struct twill_pipe_tree *up,
                         const struct twill_pipe_tree *down, uint32_t first, uint32_t blocks,
                         enum twill_space result);

/* A total exchange: the turns of a rank, each with a member to send to and one to receive from, in
 * windows that are posted at once. By rank: with members 0, 1, 2, ...; x and y exchange in window
 * (x + y) / TWILL_EXCHANGE_WINDOW, so that windows agree on all ranks. Otherwise turn k - 1 sends k
 * positions to the right and receives from k to the left. */
#define TWILL_EXCHANGE_WINDOW 4
struct twill_turn {
    uint32_t to, from; /* positions in the group */
    uint32_t operand;  /* number of the received operand, where the own one is number `me` (by rank)
                          or 0 */
    bool last;         /* the last turn of its window */
};
struct twill_turn twill_turn_at(const struct twill_group *g, bool by_rank, uint32_t k);
/* Exchange shards. From SRC: each member's shard to that member. From DST: the own shard to all
 * members. Received into the sender's shard of DST; the own one must be there already. Ends with
 * nothing posted. */
void twill_emit_exchange(struct twill_emitter *e, const struct twill_group *g,
                         enum twill_space from);

/* A reduction of what all members of a group contribute, received raw, operand by operand. */
struct twill_intake {
    uint32_t first, blocks; /* blocks to reduce; FINAL into DST */
    bool by_rank;           /* in the order of the group; else the own first, then leftwards */
    enum {
        TWILL_INTAKE_NOTHING,
        TWILL_INTAKE_SHARD,
        TWILL_INTAKE_ALL
    } sends; /* what each member sends of its SRC */
    /* Offset of the scratch in TMP: TWILL_INTAKE_COPIES times the blocks, `stride` blocks apart. */
    uint32_t tmp, stride;
};
#define TWILL_INTAKE_COPIES (2u * TWILL_EXCHANGE_WINDOW + 1)
void twill_emit_intake(struct twill_emitter *e, const struct twill_group *g,
                       const struct twill_intake *in);

/* A binomial tree broadcast from the group's member number `root`, in two halves, so that a node
 * can be served while messages are posted: receive into DST; post the sends (returns whether a WAIT
 * is due). Other trees: tree.h. */
void twill_emit_tree_receive(struct twill_emitter *e, const struct twill_group *g, uint32_t root);
bool twill_emit_tree_send(struct twill_emitter *e, const struct twill_group *g, uint32_t root,
                          enum twill_space from);

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
