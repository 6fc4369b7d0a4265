/* SPDX-License-Identifier: Apache-2.0 */
/* Recursive doubling (Thakur, Rabenseifner and Gropp 2005), for any number of ranks.
 *
 * In round k a rank exchanges all it has with the rank whose number differs in bit k, and folds.
 * With P not a power of two, of the first 2(P - 2^k) ranks each even one gives its data to the
 * next rank before, and gets the result after. Rounds lg P (+2), bytes sent n lg P.
 *
 *     0 1 2 3 4      fold in: 0 -> 1, then 1 2 3 4 exchange at distance 1 and 2:
 *      \| | | |      1-2 3-4, 1-3 2-4, then 1 -> 0
 *
 * The lower rank's operand goes first on both sides, so both get the same bits; every rank's last
 * fold is a complete one and divides. Messages land in TMP, as DST is being sent meanwhile. */
#include "algorithms/emit.h"

/* Position in the group of participant p, when the first `extra` pairs are folded. */
static uint32_t position(uint32_t p, uint32_t extra)
{
    return p < extra ? 2 * p + 1 : p + extra;
}

static void exchange(struct twill_emitter *e, const struct twill_group *g, uint32_t peer,
                     unsigned final)
{
    twill_operand dst = twill_operand_make(TWILL_DST, g->first);
    twill_operand tmp = twill_operand_make(TWILL_TMP, g->first);
    twill_emit_send(e, g->rank[peer], dst, g->blocks, 0);
    twill_emit_recv(e, g->rank[peer], tmp, g->blocks, 0);
    twill_emit_wait(e);
    if (g->blocks > 0)
        twill_emit_accumulate(e, dst, tmp, g->blocks,
                              (peer < g->me ? TWILL_STEP_FIRST : 0) | final);
}

/* The rank that only gives, then gets. */
static void stand_by(struct twill_emitter *e, const struct twill_group *g, enum twill_space from)
{
    uint32_t peer = g->rank[g->me + 1];
    twill_emit_send(e, peer, twill_operand_make(from, g->first), g->blocks, 0);
    if (g->blocks > 0) /* in place the result goes where the data come from */
        twill_emit_wait(e);
    twill_emit_recv(e, peer, twill_operand_make(TWILL_DST, g->first), g->blocks, 0);
}

bool twill_emit_recursive_doubling(struct twill_emitter *e, const struct twill_group *g,
                                   enum twill_space from)
{
    uint32_t power = 1;
    while (2 * power <= g->size)
        power *= 2;
    uint32_t extra = g->size - power;
    bool paired = g->me < 2 * extra;
    if (paired && g->me % 2 == 0) {
        stand_by(e, g, from);
        return true;
    }
    twill_operand dst = twill_operand_make(TWILL_DST, g->first);
    twill_operand src = twill_operand_make(from, g->first);
    if (paired) {
        /* A message of nothing has nothing to fold: a RECV. */
        if (g->blocks > 0)
            twill_emit_recv_reduce(e, g->rank[g->me - 1], dst, src, g->blocks, TWILL_STEP_FIRST);
        else
            twill_emit_recv(e, g->rank[g->me - 1], dst, 0, 0);
        twill_emit_wait(e);
    } else if (g->blocks > 0 && from != TWILL_DST) {
        twill_emit_copy(e, dst, src, 0, g->blocks, 0);
    }
    uint32_t me = paired ? g->me / 2 : g->me - extra;
    for (uint32_t bit = 1; bit < power; bit *= 2)
        exchange(e, g, position(me ^ bit, extra), 2 * bit == power ? TWILL_STEP_FINAL : 0);
    if (paired)
        twill_emit_send(e, g->rank[g->me - 1], dst, g->blocks, 0);
    return paired;
}

static twill_status emit(struct twill_schedule *schedule, const struct twill_world *world,
                         uint32_t rank, const struct twill_shape *shape, struct twill_error *error)
{
    struct twill_emitter e;
    bool barrier = shape->collective == TWILL_BARRIER;
    twill_emitter_begin(&e, world, rank, 1);
    e.tmp_blocks = barrier || world->size == 1 ? 0 : 1;
    struct twill_group g = twill_group_world(&e, barrier ? 0 : 1);
    if (twill_emit_recursive_doubling(&e, &g, TWILL_SRC))
        twill_emit_wait(&e);
    return twill_emitter_finish(&e, schedule, error);
}

const struct twill_algorithm twill_algorithm_recursive_doubling = {
    .name = "recursive_doubling",
    .help = "exchange everything at distance 1, 2, 4, ...: lg P rounds (+2 unless P is a power of "
            "two), n lg P bytes (Thakur, Rabenseifner and Gropp 2005)",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_BARRIER,
    .applies = twill_applies_everywhere,
    .emit = emit,
};
