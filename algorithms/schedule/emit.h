/* SPDX-License-Identifier: Apache-2.0 */
/* What emitters are written with: a growing list of steps per lane, groups of ranks, and the
 * pieces that algorithms share. Internal to this room.
 *
 * Emitters return nothing: want of memory is remembered and told by twill_emitter_finish(). */
#ifndef TWILL_EMIT_H
#define TWILL_EMIT_H

#include "algorithms/registry.h"

struct twill_step_list {
    struct twill_step *steps;
    size_t count, capacity;
};

struct twill_emitter {
    const struct twill_world *world;
    uint32_t rank;
    uint32_t lane; /* where steps go */
    struct twill_step_list lanes[TWILL_SCHEDULE_LANES];
    /* Facts of the schedule. Scratch is declared, not derived, so that all ranks agree on it even
     * where only some use it: segment lengths follow from it. */
    uint32_t shards; /* 1 unless the emitter says world->size */
    uint32_t blocks, tmp_blocks, shared_blocks;
    bool uses_peer_src, uses_peer_dst, eager;
    bool no_memory;
};

/* Some ranks, in an order, and the blocks they deal with together. The same emitter serves the
 * whole world, the ranks of one node, or the owners of one shard across the nodes. */
struct twill_group {
    const uint32_t *rank; /* [size] */
    uint32_t size;
    uint32_t me; /* position of the emitting rank */
    uint32_t first, blocks;
    /* Where every member has a part of the blocks, as large as the others': [size] the number of
     * its part; NULL: its position. For parts of the message: `rank`. */
    const uint32_t *shard;
};

/* First block of the part of the member at this position, which is taken modulo size. */
uint32_t twill_group_block(const struct twill_group *g, uint32_t position);

/* `length` places from `first` on of a ring of `size`: one range, or two where they pass the end.
 * Returns how many. */
struct twill_range {
    uint32_t first, length;
};
uint32_t twill_ring_ranges(struct twill_range range[2], uint32_t size, uint32_t first,
                           uint32_t length);

/* The whole world, so that neighbours in the group are neighbours in the machine: a rank is at its
 * world->position. */
struct twill_group twill_group_world(const struct twill_emitter *e, uint32_t blocks);
/* The whole world by rank, for orders other than ANY. */
struct twill_group twill_group_ranks(const struct twill_emitter *e, uint32_t blocks);
/* The ranks of the emitting rank's node. */
struct twill_group twill_group_node(const struct twill_emitter *e);

/* For algorithms that any world suits. */
bool twill_applies_everywhere(const struct twill_world *world, const struct twill_shape *shape);

void twill_emitter_begin(struct twill_emitter *e, const struct twill_world *world, uint32_t rank,
                         uint32_t blocks);
/* Hand the steps over to the schedule and release what is left. */
twill_status twill_emitter_finish(struct twill_emitter *e, struct twill_schedule *schedule,
                                  struct twill_error *error);

/* Short, because every step has some. */
static inline twill_operand data_at(unsigned space, uint32_t block)
{
    return twill_operand_make(space, block);
}

/* flags: PARTIAL or 0. Blocks that belong to several parts are one message where the parts are even
 * and the call is one slice, else one message for each part: on both sides alike. */
void twill_emit_send(struct twill_emitter *e, uint32_t peer, twill_operand src, uint32_t blocks,
                     unsigned flags);
void twill_emit_recv(struct twill_emitter *e, uint32_t peer, twill_operand dst, uint32_t blocks,
                     unsigned flags);
void twill_emit_recv_reduce(struct twill_emitter *e, uint32_t peer, twill_operand dst,
                            twill_operand src, uint32_t blocks, unsigned flags);
/* dst = src as a partial: what takes part in a fold alone. */
void twill_emit_widen(struct twill_emitter *e, twill_operand dst, twill_operand src,
                      uint32_t blocks);
/* Store the partial `src`, which now has all operands, as the FINAL result `dst`. */
void twill_emit_complete(struct twill_emitter *e, twill_operand dst, twill_operand src,
                         uint32_t blocks);
/* dst = dst op src, or with FIRST src op dst. */
void twill_emit_accumulate(struct twill_emitter *e, twill_operand dst, twill_operand src,
                           uint32_t blocks, unsigned flags);
/* dst = fold over the group of src, in the group's order, in as many passes as it takes. FINAL
 * holds for the last pass, OWN_SRC for the one that has this rank. */
void twill_emit_reduce(struct twill_emitter *e, const struct twill_group *g, twill_operand dst,
                       twill_operand src, uint32_t blocks, unsigned flags);
/* dst = the complete fold, FINAL. DST holds no partial: more than one pass accumulates in scratch.
 */
void twill_emit_reduce_complete(struct twill_emitter *e, const struct twill_group *g,
                                twill_operand dst, twill_operand scratch, twill_operand src,
                                uint32_t blocks, unsigned flags);
/* peer: read only if an operand has the PEER bit. */
void twill_emit_copy(struct twill_emitter *e, twill_operand dst, twill_operand src, uint32_t peer,
                     uint32_t blocks, unsigned flags);
void twill_emit_put_imm(struct twill_emitter *e, twill_operand src, unsigned flags);
void twill_emit_wait(struct twill_emitter *e);
void twill_emit_signal(struct twill_emitter *e);
/* Await everybody else in the group; flags 0 or IMM. */
void twill_emit_await(struct twill_emitter *e, const struct twill_group *g, uint32_t ordinal,
                      unsigned flags);
void twill_emit_await_one(struct twill_emitter *e, uint32_t peer, uint32_t ordinal, unsigned flags);

/* Where the lane's next step will be. */
size_t twill_emit_mark(const struct twill_emitter *e);
/* A WAIT at the mark if a step from there on needs it: it touches what the messages posted before
 * may still write, or writes what they may still read; or there are TWILL_EMIT_POSTED of them. */
void twill_emit_insert_wait(struct twill_emitter *e, size_t mark);
#define TWILL_EMIT_POSTED 16 /* enough to overlap, few enough not to flood anyone */

/* Does `rank` hear, by the algorithm's messages, that `other` has begun? */
typedef bool (*twill_emit_knows_fn)(const void *user, uint32_t rank, uint32_t other);
/* Nobody leaves before all ranks of the node have come, by SIGNAL and AWAIT where messages do not
 * tell it. Join first, part last, in a lane without other SIGNALs. */
void twill_emit_join(struct twill_emitter *e, twill_emit_knows_fn knows, const void *user);
void twill_emit_await_join(struct twill_emitter *e, twill_emit_knows_fn knows, const void *user);

/* For algorithms that only exchange messages: nobody leaves before all ranks of the node have come.
 * enter first and leave last, in lane 0; nothing where a rank is alone on its node. No other
 * SIGNALs in lane 0. */
void twill_emit_enter(struct twill_emitter *e);
void twill_emit_leave(struct twill_emitter *e);

/* Allreduce of g's blocks over g. The contribution is in `from`: SRC, raw, or TMP, a partial. The
 * result is in DST and FINAL. True: the last messages are still under way, a WAIT is due before the
 * result is used. */
typedef bool (*twill_emit_allreduce_fn)(struct twill_emitter *e, const struct twill_group *g,
                                        enum twill_space from);
/* TMP: one copy of the blocks. */
bool twill_emit_ring(struct twill_emitter *e, const struct twill_group *g, enum twill_space from);
/* TMP: one copy. Returns false: both halves below, which end with nothing posted. */
bool twill_emit_circulant(struct twill_emitter *e, const struct twill_group *g,
                          enum twill_space from);
/* TMP: two copies. */
bool twill_emit_recursive_doubling(struct twill_emitter *e, const struct twill_group *g,
                                   enum twill_space from);
/* TMP: as many copies as the group has members. Returns false: ends with nothing posted.
 */
bool twill_emit_gather_reduce(struct twill_emitter *e, const struct twill_group *g,
                              enum twill_space from);
/* The halves of the ring, each over the parts of the group. Everybody's own part: FINAL into DST,
 * or, if `to` is TMP, a partial into TMP. TMP: one copy of the blocks. */
bool twill_emit_ring_reduce_scatter(struct twill_emitter *e, const struct twill_group *g,
                                    enum twill_space from, enum twill_space to);
/* The same, FINAL also if `to` is TMP: for ranks that have no DST. */
bool twill_emit_ring_reduce_scatter_final(struct twill_emitter *e, const struct twill_group *g,
                                          enum twill_space from, enum twill_space to);
/* Own part in `from` (SRC or DST), all parts into DST. */
bool twill_emit_ring_allgather(struct twill_emitter *e, const struct twill_group *g,
                               enum twill_space from);
/* What a reduction over this rank alone is: DST = SRC, or FINAL of a partial in TMP. */
void twill_emit_alone(struct twill_emitter *e, const struct twill_group *g, enum twill_space from);

/* The halves of halving_doubling over the shards of a group of more than one rank. Reduce-scatter:
 * from SRC, or partials in TMP, to this rank's own shard in DST, FINAL. Allgather: that shard to
 * all members. Both end with nothing posted. TMP: one copy of the blocks. */
void twill_emit_circulant_reduce_scatter(struct twill_emitter *e, const struct twill_group *g,
                                         enum twill_space from);
void twill_emit_circulant_allgather(struct twill_emitter *e, const struct twill_group *g);

/* A rank's place in a tree that chunks travel along. */
struct twill_pipe_tree {
    uint32_t depth, height; /* of this rank, 0: the root; of the deepest rank */
    uint32_t parent;        /* its rank, unless depth is 0 */
    uint32_t children;
    struct {
        uint32_t rank;
        bool first;   /* its operand comes before this rank's */
        bool partial; /* has children of its own */
    } child[2];
};
/* Pipeline of `chunks` blocks from `first`: folded up a tree, then sent down a tree, either of
 * which may be NULL. The root of `up`, which has one child at most, leaves FINAL in `result`, and
 * the root of `down` sends what is in `result`; all others get it in DST. TMP: one copy of the
 * blocks, two where a rank has two children. Ends with nothing posted. */
void twill_emit_pipeline(struct twill_emitter *e, const struct twill_pipe_tree *up,
                         const struct twill_pipe_tree *down, uint32_t first, uint32_t blocks,
                         enum twill_space result);

/* Everybody with everybody: the turns of a rank, each with a peer to send to and one to receive
 * from, in windows that are under way at once. By rank: with 0, 1, 2, ..., x and y in window
 * (x + y) / TWILL_EXCHANGE_WINDOW, so that the same go together on all ranks. Else k to the right
 * and from k to the left in turn k - 1. */
#define TWILL_EXCHANGE_WINDOW 4
struct twill_turn {
    uint32_t to, from; /* positions in the group */
    uint32_t operand;  /* number of what comes from there, if the own is in its place, or is 0 */
    bool last;         /* of its window */
};
struct twill_turn twill_turn_at(const struct twill_group *g, bool by_rank, uint32_t k);
/* From SRC: every member's part to that member. From DST: the own part to everybody. Into the
 * sender's part of DST; the own one is there already. Ends with nothing posted. */
void twill_emit_exchange(struct twill_emitter *e, const struct twill_group *g,
                         enum twill_space from);

/* Fold what all ranks of a group contribute, which comes raw, one operand after the other. */
struct twill_intake {
    uint32_t first, blocks; /* what is folded; FINAL into DST */
    bool by_rank;           /* operands in the order of the group; else own first, then leftwards */
    enum { TWILL_GIVE_NOTHING, TWILL_GIVE_SHARD, TWILL_GIVE_ALL } give; /* of SRC, to each other */
    /* Where to work in TMP, TWILL_INTAKE_COPIES times the blocks and a `stride` apart. */
    uint32_t tmp, stride;
};
#define TWILL_INTAKE_COPIES (2u * TWILL_EXCHANGE_WINDOW + 1)
void twill_emit_intake(struct twill_emitter *e, const struct twill_group *g,
                       const struct twill_intake *in);

/* Binomial tree from the group's member number `root`, in two halves, so that a node can be served
 * while messages are under way: receive into DST; post the sends (true: a WAIT is due). More of
 * trees: tree.h. */
void twill_emit_tree_receive(struct twill_emitter *e, const struct twill_group *g, uint32_t root);
bool twill_emit_tree_send(struct twill_emitter *e, const struct twill_group *g, uint32_t root,
                          enum twill_space from);

/* Signal all of the node, and await all: the `ordinal`-th signal of each. */
void twill_emit_node_barrier(struct twill_emitter *e, uint32_t ordinal);

/* On a node. Shard s is the `each` blocks from s * each, owned by local rank s % size. */
struct twill_shards {
    uint32_t count, each;
};
/* Everybody's SRC into the owners' `to`: with FINAL complete (in twill_node_final_space(), or in
 * DST if one pass does it), else as partials (TMP). STAGED and MAPPED, size > 1. STAGED may fold
 * into SHARED, where there is room: own shards need not be staged. */
void twill_emit_node_reduce_scatter(struct twill_emitter *e, enum twill_protocol protocol,
                                    struct twill_shards shards, enum twill_space to,
                                    unsigned flags);
/* Where complete shards are best folded to: DST holds no partial, hence not several passes. */
enum twill_space twill_node_final_space(enum twill_protocol protocol, uint32_t ranks);
/* The owners' complete shards, which are in `from`, into everybody's DST. Comes after the above in
 * the same schedule. */
void twill_emit_node_allgather(struct twill_emitter *e, enum twill_protocol protocol,
                               struct twill_shards shards, enum twill_space from);
/* IMM and FLAT: everybody folds everything. */
void twill_emit_node_reduce_all(struct twill_emitter *e, enum twill_protocol protocol);
/* IMM and FLAT: only rank `root` folds, the others wait until all have come. flags: FINAL into DST,
 * or 0: a partial into TMP. */
void twill_emit_node_reduce_root(struct twill_emitter *e, enum twill_protocol protocol,
                                 uint32_t root, unsigned flags);
/* All flavours: the node's fold, a partial, into TMP of rank `root`. The sharded ones need SHARED,
 * MAPPED too. */
void twill_emit_node_reduce(struct twill_emitter *e, enum twill_protocol protocol,
                            struct twill_shards shards, uint32_t root);
/* IMM and FLAT: local rank 0 folds everything into TMP, a partial; later it hands the result back,
 * from DST. */
void twill_emit_node_reduce_leader(struct twill_emitter *e, enum twill_protocol protocol);
void twill_emit_node_hand_back(struct twill_emitter *e, enum twill_protocol protocol);
/* Nobody goes on before all of the node have come. release: between the two a leader (local rank
 * 0) may talk to other nodes. */
void twill_emit_node_gather_signals(struct twill_emitter *e);
void twill_emit_node_release(struct twill_emitter *e);
/* From local rank `from_local`, whose data are in space `from`. */
void twill_emit_node_broadcast(struct twill_emitter *e, enum twill_protocol protocol,
                               uint32_t from_local, enum twill_space from);

#endif
