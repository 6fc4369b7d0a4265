/* SPDX-License-Identifier: Apache-2.0 */
/* Round-optimal broadcast of blocks on a circulant graph, and the reduction that mirrors it. A root
 * sends B blocks to P - 1 other ranks in B - 1 + ceil(lg P) rounds, the least possible if a rank
 * sends and receives one block at a time (Traeff, "Optimal broadcast schedules in logarithmic time
 * with applications to broadcast, all-broadcast, reduction and all-reduction", arXiv 2407.18004).
 * Internal. */
#ifndef TWILL_BLOCK_SCHEDULE_H
#define TWILL_BLOCK_SCHEDULE_H

#include "algorithms/schedule/emit.h"

#define TWILL_BLOCK_ROUNDS 16 /* ceil(lg TWILL_WORLD_MAX_RANKS) */

/* Which block a position receives and sends in each round. Positions count from that of the root.
 * A plain value. In round i a position sends to the one `skip[i % period]` to its right, and
 * receives from the one as far to its left. Each position but the root receives every block once,
 * and sends only what it has received in an earlier round. */
struct twill_block_schedule {
    uint32_t size, period;                 /* number of positions, and ceil(lg size) */
    uint32_t skip[TWILL_BLOCK_ROUNDS + 1]; /* ascending from 1, skip[period] is `size` */
    /* by round of the first period, the block received and sent, from -period to period - 1. In
     * each further period they are larger by `period`. Negative ones are no messages. */
    int32_t receives[TWILL_BLOCK_ROUNDS], sends[TWILL_BLOCK_ROUNDS];
};
/* Return the schedule of a position, from 0 to `size` - 1. It takes O(lg^2 size) steps. */
struct twill_block_schedule twill_block_schedule_of(uint32_t size, uint32_t position);
/* Return the number of rounds in which `blocks` blocks, at least 1, are broadcast. */
uint32_t twill_block_rounds(const struct twill_block_schedule *s, uint32_t blocks);
/* A message of one round, a plain value. */
struct twill_block_message {
    uint32_t block;
    uint32_t peer; /* the position to which it goes, or from which it comes */
};
/* Set *message to what the position receives (or with `sends`, sends) in a round of a broadcast of
 * `blocks` blocks. The rounds count from 0. Returns false if there is no such message, as there is
 * none to the root. */
bool twill_block_at(const struct twill_block_schedule *s, uint32_t position, uint32_t blocks,
                    uint32_t round, bool sends, struct twill_block_message *message);

/* A broadcast or a reduction of the blocks of a group. A plain value. */
struct twill_block_flow {
    const struct twill_group *group;
    uint32_t root;         /* position in the group */
    uint32_t blocks;       /* into which those of the group are divided, each of as many of them */
    enum twill_space from; /* that of the root in a broadcast, of this rank in a reduction */
    /* In a reduction, the positions of members whose operands are partials, and whether the result
     * is one, too. */
    struct twill_range partials;
    bool unfinished;
};
/* Append what a rank does with `count` blocks of the message from `block` on, which it has now. It
 * is called while further messages are posted, but no longer any of these blocks at the root. */
typedef void (*twill_block_done_fn)(struct twill_emitter *e, uint32_t block, uint32_t count,
                                    void *user);
/* Broadcast from the space `from` of the root into the space `to` of the other members, from which
 * they also send. All members call `done` with `user` for all blocks, the root in order, the others
 * in the order of their receives. It may be NULL. Ends with nothing posted. */
void twill_emit_block_broadcast(struct twill_emitter *e, const struct twill_block_flow *f,
                                enum twill_space to, twill_block_done_fn done, void *user);
/* Reduce the operands in `from`, SRC (raw) or TMP (partials), of several members, in any order,
 * into the space `to` of the root, FINAL or, if the flow says so, a partial. Uses one copy of the
 * blocks in TMP if there are more than two members. Ends with nothing posted. */
void twill_emit_block_reduce(struct twill_emitter *e, const struct twill_block_flow *f,
                             enum twill_space to);

#endif
