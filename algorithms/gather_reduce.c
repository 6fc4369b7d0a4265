/* SPDX-License-Identifier: Apache-2.0 */
/* Allreduce in the least number of rounds for any number of ranks: an allgather by Bruck's
 * algorithm (bruck.c) of what all members contribute, which each of them then reduces.
 *
 * Recursive doubling takes two rounds more where the number of members is no power of two; here it
 * is ceil(lg P) always, for n(P-1) bytes instead of n lg P. All members reduce in the order of the
 * group, so all get the same bits.
 *
 *     P = 3:  0 <- 1, 1 <- 2, 2 <- 0; then 0 <- 2, 1 <- 0, 2 <- 1; all have three, and reduce them
 *
 * TMP: copy d of the blocks has the contribution of the member d to the right, copy 0 this rank's
 * own unless that is raw in SRC. Where the group has all blocks, copies lie in a row and travel in
 * one message. */
#include "algorithms/emit.h"

/* What allgather() and reduce() work on. */
struct gathering {
    struct twill_emitter *e;
    const struct twill_group *g;
    enum twill_space from;
    unsigned partial; /* TWILL_STEP_PARTIAL if contributions are partials */
};

/* The contribution of the member `distance` to the right. */
static twill_operand contribution(const struct gathering *a, uint32_t distance)
{
    return distance == 0 ? at(a->from, a->g->first)
                         : at(TWILL_TMP, distance * a->e->blocks + a->g->first);
}

/* How many contributions from `distance` on, at most `count`, are one message. */
static uint32_t run_of(const struct gathering *a, uint32_t distance, uint32_t count)
{
    if (a->g->blocks == 0)
        return count;
    bool in_a_row = a->g->blocks == a->e->blocks && (distance > 0 || a->from == TWILL_TMP);
    return in_a_row ? count : 1;
}

static void allgather(const struct gathering *a)
{
    const struct twill_group *g = a->g;
    uint32_t size = g->size;
    for (uint32_t have = 1; have < size; have *= 2) {
        uint32_t count = (uint32_t)twill_min(have, size - have), run;
        uint32_t left = g->rank[(g->me + size - have) % size];
        uint32_t right = g->rank[(g->me + have) % size];
        for (uint32_t d = 0; d < count; d += run) {
            /* The sender's own contribution may not lie beside its others. */
            run = run_of(a, d, count - d);
            twill_emit_send(a->e, left, contribution(a, d), run * g->blocks, a->partial);
            twill_emit_recv(a->e, right, contribution(a, have + d), run * g->blocks, a->partial);
        }
        /* What the last round sends may all have come before this round. */
        if (!(2 * have < size && size <= 3 * have))
            twill_emit_wait(a->e);
    }
}

/* In the order of the group, into the place of its first member's contribution. */
static void reduce(const struct gathering *a)
{
    const struct twill_group *g = a->g;
    uint32_t size = g->size, first = (size - g->me) % size;
    twill_operand sum = at(TWILL_TMP, first * a->e->blocks + g->first);
    if (first == 0 && a->from == TWILL_SRC)
        twill_emit_copy(a->e, sum, contribution(a, 0), 0, g->blocks, 0);
    for (uint32_t i = 1; i < size; i++)
        twill_emit_accumulate(a->e, sum, contribution(a, (first + i) % size), g->blocks,
                              a->partial | (i > 1 || a->partial != 0 ? TWILL_STEP_PARTIAL_OWN : 0));
    twill_emit_complete(a->e, at(TWILL_DST, g->first), sum, g->blocks);
}

bool twill_emit_gather_reduce(struct twill_emitter *e, const struct twill_group *g,
                              enum twill_space from)
{
    const struct gathering a = {e, g, from,
                                from == TWILL_TMP && g->blocks > 0 ? TWILL_STEP_PARTIAL : 0};
    if (g->size == 1) {
        twill_emit_alone(e, g, from);
        return false;
    }
    allgather(&a);
    if (g->blocks > 0)
        reduce(&a);
    return false;
}
