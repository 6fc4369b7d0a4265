/* SPDX-License-Identifier: Apache-2.0 */
/* Allreduce in the minimum number of rounds for any number of ranks. It is an allgather by the
 * algorithm of Bruck (bruck.c) of the contributions of all members, which each member then reduces.
 * Recursive doubling takes more rounds where the number of members is not a power of two. Here it
 * is always ceil(lg P), for n(P-1) bytes instead of n lg P. All members reduce in the order of the
 * group, so all get the same bits.
 *
 *     P = 3:  0 <- 1, 1 <- 2, 2 <- 0; then 0 <- 2, 1 <- 0, 2 <- 1; all have three, and reduce them
 *
 * In TMP, copy d of the blocks has the contribution of the member d to the right, and copy 0 that
 * of this rank. Each contribution is a separate message, because copies are not contiguous. */
#include "algorithms/collectives/cores.h"

/* Return where the contribution of the member `distance` to the right is in TMP. */
static twill_operand contribution(const struct twill_emitter *e, const struct twill_group *g,
                                  uint32_t distance)
{
    return data_at(TWILL_TMP, distance * e->blocks + g->first);
}

/* Gather the contributions of all members in TMP by messages. On entry, copy 0 of the blocks in TMP
 * has the contribution of this rank. On return, copy d has that of the member d positions to the
 * right. `partial` is PARTIAL if the contributions are partials, else 0. */
static void allgather_operands(struct twill_emitter *e, const struct twill_group *g,
                               unsigned partial)
{
    uint32_t size = g->size;
    for (uint32_t have = 1; have < size; have *= 2) {
        uint32_t count = g->blocks > 0 ? (uint32_t)twill_min(have, size - have) : 1;
        uint32_t left = g->rank[(g->me + size - have) % size];
        uint32_t right = g->rank[(g->me + have) % size];
        for (uint32_t d = 0; d < count; d++) {
            twill_emit_send(e, left, contribution(e, g, d), g->blocks, partial);
            twill_emit_recv(e, right, contribution(e, g, have + d), g->blocks, partial);
        }
        /* All that the last round sends may have arrived before this round. */
        if (!(2 * have < size && size <= 3 * have))
            twill_emit_wait(e);
    }
}

/* Reduce the contributions of all members, which are in TMP, in the order of the group. The copy of
 * the blocks that has the contribution of member 0 becomes the sum, which then goes to DST, FINAL.
 * `partial` is PARTIAL if the contributions are partials, else 0. */
static void reduce_operands(struct twill_emitter *e, const struct twill_group *g, unsigned partial)
{
    uint32_t size = g->size, first = (size - g->me) % size;
    twill_operand sum = contribution(e, g, first);
    for (uint32_t i = 1; i < size; i++)
        twill_emit_accumulate(e, sum, contribution(e, g, (first + i) % size), g->blocks,
                              partial | (i > 1 || partial != 0 ? TWILL_STEP_PARTIAL_OWN : 0));
    twill_emit_complete(e, data_at(TWILL_DST, g->first), sum, g->blocks);
}

bool twill_emit_gather_reduce(struct twill_emitter *e, const struct twill_group *g,
                              enum twill_space from)
{
    unsigned partial = from == TWILL_TMP && g->blocks > 0 ? TWILL_STEP_PARTIAL : 0;
    if (g->size == 1) {
        twill_emit_alone(e, g, from);
        return false;
    }
    if (g->blocks > 0 && from == TWILL_SRC)
        twill_emit_copy(e, contribution(e, g, 0), data_at(from, g->first), 0, g->blocks, 0);
    allgather_operands(e, g, partial);
    if (g->blocks > 0)
        reduce_operands(e, g, partial);
    return false;
}
