/* SPDX-License-Identifier: Apache-2.0 */
/* The interface with which algorithms are written. It has a growing list of steps per lane, groups
 * of ranks, and the functions that append steps. Internal to algorithms/. Emitting functions return
 * no status. A failed allocation is recorded in `no_memory` and reported at the end. */
#ifndef TWILL_EMIT_H
#define TWILL_EMIT_H

#include "algorithms/registry.h"

/* The steps of one lane so far, which grow by appending. The emitter owns them. */
struct twill_step_list {
    struct twill_step *steps;
    size_t count, capacity;
};

/* The schedule of one rank under construction. It starts without steps and with one block. It is on
 * the stack of twill_schedule_emit_unchecked(). */
struct twill_emitter {
    const struct twill_world *world;
    uint32_t rank;
    uint32_t lane; /* the lane to which steps are appended */
    struct twill_step_list lanes[TWILL_SCHEDULE_LANES];
    /* These members are copied into the schedule. The size of the scratch is declared, not derived
     * from the steps, so that it is equal on all ranks, as segment lengths depend on it. */
    uint32_t shards; /* 1, or set to world->size */
    uint32_t blocks, tmp_blocks, shared_blocks;
    bool uses_peer_src, uses_peer_dst, eager;
    bool no_memory; /* an allocation has failed */
};

/* Some ranks in an order, and the blocks that they communicate. A plain value. The same emitting
 * function serves the whole world, the ranks of one node, or the owners of one shard on all
 * nodes. */
struct twill_group {
    const uint32_t *rank; /* [size] the members, which the world or the caller owns */
    uint32_t size;
    uint32_t me;            /* position of the emitting rank in `rank` */
    uint32_t first, blocks; /* the range of blocks that they communicate */
    /* [size] the number of the shard of each member, where the blocks are divided into one shard
     * per member. NULL means that it is the position of the member. It is the same array as `rank`
     * if the message itself has one shard per rank. */
    const uint32_t *shard;
};

/* Return the number of the first block of the shard of the member at this position, modulo size. */
uint32_t twill_group_block(const struct twill_group *g, uint32_t position);

/* A range of positions in a group. A plain value. */
struct twill_range {
    uint32_t first, length;
};
/* Store in `range` the `length` positions that start at `first` on a ring of `size` positions,
 * split where they wrap around. Returns the number of ranges, 1 or 2, or 0 if `length` is 0. */
uint32_t twill_ring_ranges(struct twill_range range[2], uint32_t size, uint32_t first,
                           uint32_t length);

/* Return the group of all ranks in world->order, in which neighbours are close in the machine. They
 * communicate the first `blocks` blocks of the message. */
struct twill_group twill_group_world(const struct twill_emitter *e, uint32_t blocks);
/* Return the group of all ranks in ascending order, for reductions that are not in TWILL_ORDER_ANY.
 * They communicate the first `blocks` blocks of the message. */
struct twill_group twill_group_ranks(const struct twill_emitter *e, uint32_t blocks);
/* Return the ranks of the node of the emitting rank, ascending, with all blocks of the emitter. */
struct twill_group twill_group_node(const struct twill_emitter *e);

/* Return true. It is the applies() of algorithms without conditions. */
bool twill_applies_everywhere(const struct twill_world *world, const struct twill_shape *shape);

/* Emit the schedule of one rank for a shape to which the algorithm applies, without
 * twill_schedule_check() of the result. The caller frees it with twill_schedule_destroy(). Returns
 * TWILL_OK, or TWILL_ERR_MEMORY with a schedule of zeros and *error set. */
twill_status twill_schedule_emit_unchecked(struct twill_schedule *schedule,
                                           const struct twill_algorithm *algorithm,
                                           const struct twill_world *world, uint32_t rank,
                                           const struct twill_shape *shape,
                                           struct twill_error *error);

/* Return the operand that starts at this block of a space, which may include the PEER bit. */
static inline twill_operand data_at(unsigned space, uint32_t block)
{
    return twill_operand_make(space, block);
}

/* Append a SEND of blocks from `src` on. `flags` is PARTIAL or 0. Blocks of several shards form one
 * message if shards have one size and the call is one segment, else each shard is one. */
void twill_emit_send(struct twill_emitter *e, uint32_t peer, twill_operand src, uint32_t blocks,
                     unsigned flags);
/* Append a RECV into `dst` of what rank `peer` sends by twill_emit_send(). `blocks` and `flags`
 * (PARTIAL or 0) must be those of the sender. */
void twill_emit_recv(struct twill_emitter *e, uint32_t peer, twill_operand dst, uint32_t blocks,
                     unsigned flags);
/* Append a RECV_REDUCE of what rank `peer` sends. It stores dst = src op message, or with FIRST in
 * `flags`, dst = message op src. `flags` may also contain FINAL, PARTIAL if the message is a
 * partial, and PARTIAL_OWN if `src` is one. */
void twill_emit_recv_reduce(struct twill_emitter *e, uint32_t peer, twill_operand dst,
                            twill_operand src, uint32_t blocks, unsigned flags);
/* Append a REDUCE of one operand, dst = src, which makes a partial of raw data. A rank that has
 * nothing to reduce its data with needs it where the other ranks contribute partials. */
void twill_emit_widen(struct twill_emitter *e, twill_operand dst, twill_operand src,
                      uint32_t blocks);
/* Append dst = src of `blocks` blocks, where `src` is a partial that contains the operands of all
 * ranks. The step has the flag FINAL, which makes it the final value (AVG divides here). */
void twill_emit_complete(struct twill_emitter *e, twill_operand dst, twill_operand src,
                         uint32_t blocks);
/* Append a REDUCE with ACC, dst = dst op src, or dst = src op dst if `flags` contains FIRST.
 * `flags` may also contain FINAL, PARTIAL if `src` is a partial, and PARTIAL_OWN if `dst` already
 * is one. */
void twill_emit_accumulate(struct twill_emitter *e, twill_operand dst, twill_operand src,
                           uint32_t blocks, unsigned flags);
/* Append dst = the reduction of `src` of all members, in the order of the group. These are several
 * steps if there are more operands than one step takes. `flags` may contain PARTIAL if `src` is a
 * partial, and FINAL, which the last step gets, if the result is complete. With OWN_SRC, the
 * operand of this rank is read from its SRC, not from `src`. */
void twill_emit_reduce(struct twill_emitter *e, const struct twill_group *g, twill_operand dst,
                       twill_operand src, uint32_t blocks, unsigned flags);
/* Append dst = the reduction of `src` of all members, FINAL, in the order of the group. If there
 * are more operands than one step takes, the steps accumulate in `scratch`, which is then copied to
 * `dst`. `flags` may contain PARTIAL and OWN_SRC, as in twill_emit_reduce(). */
void twill_emit_reduce_complete(struct twill_emitter *e, const struct twill_group *g,
                                twill_operand dst, twill_operand scratch, twill_operand src,
                                uint32_t blocks, unsigned flags);
/* Append dst = src for `blocks` blocks. An operand with the PEER bit is in the memory of rank
 * `peer`, which is ignored if there is none. `flags` is PARTIAL if `src` is a partial, else 0. */
void twill_emit_copy(struct twill_emitter *e, twill_operand dst, twill_operand src, uint32_t peer,
                     uint32_t blocks, unsigned flags);
/* Append a PUT_IMM of the block at `src`. `flags` is PARTIAL or 0. */
void twill_emit_put_imm(struct twill_emitter *e, twill_operand src, unsigned flags);
/* Append a WAIT for all that is posted in the lane. */
void twill_emit_wait(struct twill_emitter *e);
/* Append a SIGNAL to all ranks of the node. */
void twill_emit_signal(struct twill_emitter *e);
/* Append AWAITs of all other members. They wait until each has sent `ordinal` SIGNALs in this lane
 * since the start of the schedule. With IMM in `flags`, `ordinal` is 0, and they wait for its
 * PUT_IMM. */
void twill_emit_await(struct twill_emitter *e, const struct twill_group *g, uint32_t ordinal,
                      unsigned flags);
/* Append an AWAIT of rank `peer`. It waits until that rank has sent `ordinal` SIGNALs in this lane
 * since the start of the schedule. With IMM in `flags`, `ordinal` is 0, and it waits for the
 * PUT_IMM. */
void twill_emit_await_one(struct twill_emitter *e, uint32_t peer, uint32_t ordinal, unsigned flags);

/* Return the index that the step which is appended next will have in the current lane. It marks a
 * place for twill_emit_insert_wait(). */
size_t twill_emit_mark(const struct twill_emitter *e);
/* Insert a WAIT at the mark if one of the steps since then reads what an earlier posted message may
 * still write. Also insert it if one writes what such a message may still access, or at least
 * TWILL_EMIT_POSTED messages are posted at the mark. The first step that needs the WAIT is moved to
 * directly after it, unless messages with its peer would then no longer match. Nothing is done if
 * no step has been appended since the mark. */
void twill_emit_insert_wait(struct twill_emitter *e, size_t mark);
#define TWILL_EMIT_POSTED 16 /* enough to overlap, few enough not to overrun a receiver */

/* Return whether the messages prove to `rank`, when it ends, that `other` has started. */
typedef bool (*twill_emit_knows_fn)(const void *user, uint32_t rank, uint32_t other);
/* Append a SIGNAL unless messages prove to all other ranks of the node that this rank has started.
 * It calls `knows` with `user` for each of these ranks to find out. Call it before all other steps,
 * in a lane without SIGNALs, and twill_emit_await_join() after them. */
void twill_emit_join(struct twill_emitter *e, twill_emit_knows_fn knows, const void *user);
/* Append AWAITs of those ranks of the node that messages do not prove to this rank to have started.
 * It calls `knows` with `user` for each of them to find out. With twill_emit_join(), no rank ends
 * before all ranks of its node have started. */
void twill_emit_await_join(struct twill_emitter *e, twill_emit_knows_fn knows, const void *user);

/* Emit a reduction of the blocks of the group over this rank alone into DST. From SRC it is a copy,
 * from TMP a partial becomes final, and from DST there is no step. */
void twill_emit_alone(struct twill_emitter *e, const struct twill_group *g, enum twill_space from);

#endif
