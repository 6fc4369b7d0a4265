/* SPDX-License-Identifier: Apache-2.0 */
/* The composer (compose.c), back up the rungs: complete shards from their owners to everybody. */
#include "algorithms/compose.h"

static twill_operand at(unsigned space, uint32_t block)
{
    return twill_operand_make(space, block);
}

/* Do owners store a shard with those who want it? Else they show it in their own SHARED, where the
 * others fetch it: STAGED, with no contributions to give back the lines of (node.c). */
static bool gives(const struct twill_compose *c)
{
    return c->mapped || c->down;
}

/* Has this rank shown the complete shard to others at a rung above? */
static bool is_shown(const struct twill_compose *c, uint32_t rung, uint32_t s)
{
    const struct twill_ladder *l = &c->ladder;
    for (uint32_t j = rung + 1; j < l->scatters; j++)
        if (l->rung[j].choice.how == TWILL_BY_DIRECT && l->rung[j].fan > 1 &&
            twill_ladder_owns(l, j + 1, s))
            return true;
    return false;
}

/* Back up a rung, at its owner. */
static void hand_out(struct twill_compose *c, uint32_t rung, uint32_t s, enum twill_space from)
{
    const struct twill_ladder *l = &c->ladder;
    const struct twill_rung *r = &l->rung[rung];
    uint32_t first = twill_compose_block(c, s);
    unsigned to = (c->mapped ? TWILL_DST : TWILL_SHARED) | TWILL_PEER;
    if (!gives(c) && !is_shown(c, rung, s))
        twill_emit_copy(&c->e, at(TWILL_SHARED, first), at(from, first), 0, c->each, 0);
    if (from != TWILL_DST)
        twill_emit_copy(&c->e, at(TWILL_DST, first), at(from, first), 0, c->each, 0);
    for (uint32_t i = 1; i < r->fan && gives(c); i++)
        twill_emit_copy(&c->e, at(to, first), at(from, first),
                        twill_ladder_owner(l, rung, c->e.rank, (r->me + i) % r->fan, s), c->each,
                        0);
}

/* Nobody writes the DST of who may not have begun. */
static void await_begun(struct twill_compose *c, uint32_t rung)
{
    const struct twill_ladder *l = &c->ladder;
    const struct twill_rung *r = &l->rung[rung];
    for (uint32_t s = 0; s < l->shards; s++)
        for (uint32_t m = 0; m < r->fan && twill_ladder_owns(l, rung + 1, s); m++)
            c->marked[twill_ladder_owner(l, rung, c->e.rank, m, s)] = m != r->me;
    twill_compose_await(c, l->count, true);
}

static void up_direct(struct twill_compose *c, uint32_t rung)
{
    const struct twill_ladder *l = &c->ladder;
    enum twill_space from = rung + 1 == l->count ? c->final : TWILL_DST;
    if (!c->down && c->mapped)
        await_begun(c, rung);
    for (uint32_t s = 0; s < l->shards; s++) {
        if (twill_ladder_owns(l, rung + 1, s))
            hand_out(c, rung, s, from);
        else if (twill_ladder_owns(l, rung, s))
            c->marked[twill_ladder_owner(l, rung, c->e.rank, twill_ladder_winner(l, rung, s), s)] =
                true;
    }
    twill_emit_signal(&c->e);
    twill_compose_await(c, rung, true);
    for (uint32_t s = 0; s < l->shards && !c->mapped; s++) {
        uint32_t winner = twill_ladder_winner(l, rung, s), first = twill_compose_block(c, s);
        if (!twill_ladder_owns(l, rung, s) || winner == l->rung[rung].me)
            continue;
        twill_emit_copy(&c->e, at(TWILL_DST, first),
                        at(gives(c) ? TWILL_SHARED : TWILL_SHARED | TWILL_PEER, first),
                        twill_ladder_owner(l, rung, c->e.rank, winner, s), c->each, 0);
    }
}

/* Back up a rung, by messages: the shard goes on round the unit. */
static void up_ring(struct twill_compose *c, uint32_t rung)
{
    const struct twill_ladder *l = &c->ladder;
    const struct twill_rung *r = &l->rung[rung];
    uint32_t right = (r->me + 1) % r->fan, left = (r->me + r->fan - 1) % r->fan;
    for (uint32_t hop = 1; hop < r->fan; hop++) {
        for (uint32_t s = 0; s < l->shards; s++) {
            if (!twill_ladder_owns(l, rung, s))
                continue;
            uint32_t to = (twill_ladder_winner(l, rung, s) + hop) % r->fan;
            twill_operand dst = at(TWILL_DST, twill_compose_block(c, s));
            if (to == right)
                twill_emit_send(&c->e, twill_ladder_owner(l, rung, c->e.rank, right, s), dst,
                                c->each, 0);
            if (to == r->me)
                twill_emit_recv(&c->e, twill_ladder_owner(l, rung, c->e.rank, left, s), dst,
                                c->each, 0);
        }
        twill_compose_settle(&c->e, false);
    }
}

void twill_compose_up(struct twill_compose *c)
{
    const struct twill_ladder *l = &c->ladder;
    for (uint32_t j = l->scatters; j-- > 0;) {
        if (l->rung[j].fan > 1 && l->rung[j].choice.how == TWILL_BY_DIRECT)
            up_direct(c, j);
        else if (l->rung[j].fan > 1)
            up_ring(c, j);
    }
}

/* An allgather begins: own part, and MAPPED: nobody writes another's DST before it is there. */
void twill_compose_begin_up(struct twill_compose *c)
{
    const struct twill_ladder *l = &c->ladder;
    uint32_t me = c->e.rank;
    if (c->mapped && twill_ladder_signals(l, me, 0, l->count) > 0)
        twill_emit_signal(&c->e);
    twill_emit_copy(&c->e, at(TWILL_DST, me), at(TWILL_SRC, me), 0, 1, 0);
}
