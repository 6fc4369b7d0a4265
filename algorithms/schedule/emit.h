/* SPDX-License-Identifier: Apache-2.0 */
/* What algorithms are written with: a list of steps per lane that grows, groups of ranks, and the
 * functions that append steps. Internal to algorithms/.
 *
 * Emitting functions return no status: an allocation failure is remembered in
 * `no_memory`, and reported in the end. */
#ifndef TWILL_EMIT_H
#define TWILL_EMIT_H

#include "algorithms/registry.h"

/* The steps of one lane so far; grown by appending. */
struct twill_step_list {
    struct twill_step *steps;
    size_t count, capacity;
};

/* A schedule under construction, for one rank: at first without steps, of one block. */
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

/* Emit a rank's schedule for a shape that the algorithm applies to, without checking it. */
twill_status twill_schedule_emit_unchecked(struct twill_schedule *schedule,
                                           const struct twill_algorithm *algorithm,
                                           const struct twill_world *world, uint32_t rank,
                                           const struct twill_shape *shape,
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

/* Reduce over this rank alone: DST = SRC, or DST = the partial in TMP, FINAL. */
void twill_emit_alone(struct twill_emitter *e, const struct twill_group *g, enum twill_space from);

#endif
