/* SPDX-License-Identifier: Apache-2.0 */
/* The composer: an allreduce over any number of levels is a reduce-scatter down the levels, an
 * allreduce at the top, and an allgather back up.
 *
 * The buffer is cut into shards. At each level below the top the members of a unit share out among
 * themselves the shards that they hold partials of, so that each shard has one owner in the unit;
 * at the top the owners of a shard allreduce it. Levels of a node go through memory (direct): the
 * lowest reads what the ranks bring (MAPPED: SRC where it lies, STAGED: out of SHARED), the next
 * ones partials in SHARED. Levels by messages hand a shard's partial round the unit to its owner
 * (ring). Back up the complete shards go the same ways.
 *
 *     node 0:  0   1          node and all: shard 0 is folded by 0, 2 and 4, shard 1 by 1, 3 and 4,
 *     node 1:  2   3          which then allreduce it between them, and give it back on their nodes
 *     node 2:  4
 *
 * Bytes that leave a unit are its message divided by its ranks, as if it were one rank: with equal
 * nodes of L ranks 2(n/L)(G-1)/G per rank, ring on top. The cut depends on the world alone: nodes
 * may use different flavours. Ranks that own several shards take them in ascending order
 * everywhere, so that the lowest one under way can always go on. */
#include "algorithms/compose.h"

#include <stdlib.h>

static twill_operand at(unsigned space, uint32_t block)
{
    return twill_operand_make(space, block);
}

static uint32_t block_of(const struct twill_compose *c, uint32_t s)
{
    return s * c->each;
}

/* Where the partials of a rung that reads memory are: own place in SHARED. STAGED has the hand-back
 * and what ranks bring in the first copy, MAPPED needs neither. */
static uint32_t shared_copy(const struct twill_compose *c, uint32_t rung)
{
    uint32_t copy = c->mapped ? 0 : 1;
    for (uint32_t j = 1; j < rung; j++)
        copy += c->ladder.rung[j].choice.how == TWILL_BY_DIRECT;
    return copy;
}

/* Where a rung reads shard s of its members from. */
static twill_operand source_of(const struct twill_compose *c, uint32_t rung, uint32_t s)
{
    if (c->ladder.rung[rung].choice.how != TWILL_BY_DIRECT)
        return at(rung == 0 ? TWILL_SRC : TWILL_TMP, block_of(c, s));
    if (rung == 0)
        return at(c->mapped ? TWILL_SRC : TWILL_SHARED, block_of(c, s));
    return at(TWILL_SHARED, shared_copy(c, rung) * c->e.blocks + block_of(c, s));
}

/* Where a rung leaves shard s: where the next one reads it, or complete. */
static twill_operand target_of(const struct twill_compose *c, uint32_t rung, uint32_t s)
{
    if (rung + 1 == c->ladder.count)
        return at(c->final, block_of(c, s));
    return source_of(c, rung + 1, s);
}

/* Await the signals of those marked, which come down or back up at this rung; clears the marks. */
static void await_marked(struct twill_compose *c, uint32_t rung, bool up)
{
    const struct twill_group node = twill_group_node(&c->e);
    for (uint32_t ordinal = 1; ordinal <= 2 * TWILL_RUNGS; ordinal++) {
        struct twill_group g = {.rank = c->list, .size = 1};
        c->list[0] = c->e.rank;
        for (uint32_t i = 1; i < node.size; i++) {
            uint32_t peer = node.rank[(node.me + i) % node.size];
            if (c->marked[peer] && twill_ladder_ordinal(&c->ladder, rung, up, peer) == ordinal) {
                c->list[g.size++] = peer;
                c->marked[peer] = false;
            }
        }
        twill_emit_await(&c->e, &g, ordinal, 0);
    }
}

/* Down a rung, through memory: fold the shards that fall to this rank. */
static void down_direct(struct twill_compose *c, uint32_t rung)
{
    const struct twill_ladder *l = &c->ladder;
    const struct twill_rung *r = &l->rung[rung];
    unsigned flags = rung > 0 ? TWILL_STEP_PARTIAL : c->mapped ? 0 : TWILL_STEP_OWN_SRC;
    if (rung + 1 == l->count)
        flags |= TWILL_STEP_FINAL;
    for (uint32_t s = 0; s < l->shards; s++)
        for (uint32_t m = 0; m < r->fan && twill_ladder_owns(l, rung + 1, s); m++)
            c->marked[twill_ladder_owner(l, rung, c->e.rank, m, s)] = m != r->me;
    twill_emit_signal(&c->e);
    await_marked(c, rung, false);
    for (uint32_t s = 0; s < l->shards; s++) {
        if (!twill_ladder_owns(l, rung + 1, s))
            continue;
        struct twill_group g = {.rank = c->list, .size = r->fan, .me = r->me};
        for (uint32_t m = 0; m < r->fan; m++)
            c->list[m] = twill_ladder_owner(l, rung, c->e.rank, m, s);
        twill_emit_fold(&c->e, &g, target_of(c, rung, s),
                        source_of(c, rung, s) | (uint32_t)TWILL_PEER << TWILL_BLOCK_BITS, c->each,
                        flags);
    }
}

/* Down a rung, by messages: shard s starts at the member after its winner and goes round to it. */
static void down_ring(struct twill_compose *c, uint32_t rung)
{
    const struct twill_ladder *l = &c->ladder;
    const struct twill_rung *r = &l->rung[rung];
    uint32_t right = (r->me + 1) % r->fan, left = (r->me + r->fan - 1) % r->fan;
    for (uint32_t hop = 1; hop < r->fan; hop++) {
        unsigned moved = rung > 0 || hop > 1 ? TWILL_STEP_PARTIAL : 0;
        unsigned own = rung > 0 ? TWILL_STEP_PARTIAL_OWN : 0;
        for (uint32_t s = 0; s < l->shards; s++) {
            if (!twill_ladder_owns(l, rung, s))
                continue;
            uint32_t from = (twill_ladder_winner(l, rung, s) + hop) % r->fan;
            twill_operand tmp = at(TWILL_TMP, block_of(c, s)), source = source_of(c, rung, s);
            if (from == r->me)
                twill_emit_send(&c->e, twill_ladder_owner(l, rung, c->e.rank, right, s),
                                hop == 1 ? source : tmp, c->each, moved);
            if (from == left)
                twill_emit_recv_reduce(&c->e, twill_ladder_owner(l, rung, c->e.rank, left, s),
                                       hop + 1 == r->fan ? target_of(c, rung, s) : tmp, source,
                                       c->each, moved | own | TWILL_STEP_FIRST);
        }
        twill_emit_wait(&c->e);
    }
}

/* A unit of one member folds nothing, but what others read has to lie where they look for it. */
static void down_alone(struct twill_compose *c, uint32_t rung)
{
    if (rung == 0) /* all shards are this rank's */
        twill_emit_widen(&c->e, target_of(c, 0, 0), at(TWILL_SRC, 0), c->e.blocks);
    for (uint32_t s = 0; s < c->ladder.shards && rung > 0; s++) {
        twill_operand to = target_of(c, rung, s), from = source_of(c, rung, s);
        if (twill_ladder_owns(&c->ladder, rung + 1, s) && to != from)
            twill_emit_copy(&c->e, to, from, 0, c->each, TWILL_STEP_PARTIAL);
    }
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

/* Back up a rung, at its owner: STAGED shows the shard, MAPPED stores it where it is wanted. */
static void hand_out(struct twill_compose *c, uint32_t rung, uint32_t s, enum twill_space from)
{
    const struct twill_ladder *l = &c->ladder;
    const struct twill_rung *r = &l->rung[rung];
    twill_operand block = at(from, block_of(c, s));
    if (!c->mapped && from != TWILL_SHARED && !is_shown(c, rung, s))
        twill_emit_copy(&c->e, at(TWILL_SHARED, block_of(c, s)), block, 0, c->each, 0);
    if (c->mapped && from != TWILL_DST)
        twill_emit_copy(&c->e, at(TWILL_DST, block_of(c, s)), block, 0, c->each, 0);
    for (uint32_t i = 1; i < r->fan && c->mapped; i++)
        twill_emit_copy(&c->e, at(TWILL_DST | TWILL_PEER, block_of(c, s)), block,
                        twill_ladder_owner(l, rung, c->e.rank, (r->me + i) % r->fan, s), c->each,
                        0);
}

static void up_direct(struct twill_compose *c, uint32_t rung)
{
    const struct twill_ladder *l = &c->ladder;
    enum twill_space from = rung + 1 == l->count ? c->final : TWILL_DST;
    for (uint32_t s = 0; s < l->shards; s++) {
        if (twill_ladder_owns(l, rung + 1, s))
            hand_out(c, rung, s, from);
        else if (twill_ladder_owns(l, rung, s))
            c->marked[twill_ladder_owner(l, rung, c->e.rank, twill_ladder_winner(l, rung, s), s)] =
                true;
    }
    twill_emit_signal(&c->e);
    await_marked(c, rung, true);
    for (uint32_t s = 0; s < l->shards && !c->mapped; s++) {
        uint32_t winner = twill_ladder_winner(l, rung, s);
        if (!twill_ladder_owns(l, rung, s) || (winner == l->rung[rung].me && from == TWILL_DST))
            continue;
        bool own = winner == l->rung[rung].me;
        twill_emit_copy(&c->e, at(TWILL_DST, block_of(c, s)),
                        at(own ? TWILL_SHARED : TWILL_SHARED | TWILL_PEER, block_of(c, s)),
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
            twill_operand dst = at(TWILL_DST, block_of(c, s));
            if (to == right)
                twill_emit_send(&c->e, twill_ladder_owner(l, rung, c->e.rank, right, s), dst,
                                c->each, 0);
            if (to == r->me)
                twill_emit_recv(&c->e, twill_ladder_owner(l, rung, c->e.rank, left, s), dst,
                                c->each, 0);
        }
        twill_emit_wait(&c->e);
    }
}

/* The last messages of one shard may still be under way when the next begins. */
static void emit_top(struct twill_compose *c)
{
    const struct twill_ladder *l = &c->ladder;
    const struct twill_rung *r = &l->rung[l->count - 1];
    bool due = false;
    for (uint32_t s = 0; s < l->shards; s++) {
        if (!twill_ladder_owns(l, l->scatters, s))
            continue;
        struct twill_group g = {.rank = c->list,
                                .size = r->fan,
                                .me = r->me,
                                .first = block_of(c, s),
                                .blocks = c->each};
        for (uint32_t m = 0; m < r->fan; m++)
            c->list[m] = twill_ladder_owner(l, l->count - 1, c->e.rank, m, s);
        enum twill_space from = l->scatters == 0 ? TWILL_SRC : TWILL_TMP;
        due = r->choice.how == TWILL_BY_RING ? twill_emit_ring(&c->e, &g, from)
                                             : twill_emit_recursive_doubling(&c->e, &g, from);
    }
    if (due)
        twill_emit_wait(&c->e);
}

static void emit_all(struct twill_compose *c)
{
    const struct twill_ladder *l = &c->ladder;
    const struct twill_rung *low = &l->rung[0];
    if (l->scatters > 0 && low->choice.how == TWILL_BY_DIRECT && !c->mapped)
        twill_emit_node_stage(&c->e, (struct twill_shards){.count = l->shards, .each = c->each},
                              low->fan, low->me);
    for (uint32_t j = 0; j < l->scatters; j++) {
        if (l->rung[j].fan == 1)
            down_alone(c, j);
        else if (l->rung[j].choice.how == TWILL_BY_DIRECT)
            down_direct(c, j);
        else
            down_ring(c, j);
    }
    if (l->scatters < l->count)
        emit_top(c);
    for (uint32_t j = l->scatters; j-- > 0;) {
        if (l->rung[j].fan > 1 && l->rung[j].choice.how == TWILL_BY_DIRECT)
            up_direct(c, j);
        else if (l->rung[j].fan > 1)
            up_ring(c, j);
    }
    if (l->count == 0)
        twill_emit_copy(&c->e, at(TWILL_DST, 0), at(TWILL_SRC, 0), 0, 1, 0);
}

/* What the schedule needs: the same on all ranks. */
static void declare(struct twill_compose *c, enum twill_flavour flavour)
{
    const struct twill_ladder *l = &c->ladder;
    uint32_t messages = 0, shared = 0;
    for (uint32_t j = 0; j < l->count; j++) {
        bool direct = l->rung[j].choice.how == TWILL_BY_DIRECT;
        messages += !direct;
        shared += direct && (j > 0 || !c->mapped);
        c->e.uses_peer_dst = c->e.uses_peer_dst || (direct && c->mapped);
        c->e.uses_peer_src = c->e.uses_peer_src || (direct && c->mapped && j == 0);
    }
    if (l->count == 0)
        return;
    const struct twill_rung *top = &l->rung[l->count - 1];
    if (top->choice.how == TWILL_BY_RING)
        c->each = top->fan;
    if (shared > 0 && !c->mapped && l->rung[0].choice.how != TWILL_BY_DIRECT)
        shared++; /* for the way back */
    c->e.blocks = l->shards * c->each;
    c->e.shared_blocks = shared * c->e.blocks;
    c->final = twill_node_final_space(flavour, top->fan);
    if (top->choice.how == TWILL_BY_RECURSIVE_DOUBLING)
        c->e.tmp_blocks = 2 * c->e.blocks;
    else if (messages > 0 || c->final == TWILL_TMP)
        c->e.tmp_blocks = c->e.blocks;
}

twill_status twill_compose_allreduce(struct twill_schedule *schedule,
                                     const struct twill_world *world, uint32_t rank,
                                     enum twill_flavour flavour,
                                     const struct twill_rung_choice *choice, uint32_t choices,
                                     struct twill_error *error)
{
    struct twill_compose c = {.each = 1, .mapped = flavour == TWILL_FLAVOUR_MAPPED};
    twill_emitter_begin(&c.e, world, rank, 1);
    c.list = calloc((size_t)world->size + 1, sizeof(*c.list));
    c.marked = calloc(world->size, sizeof(*c.marked));
    if (c.list == NULL || c.marked == NULL ||
        !twill_ladder_open(&c.ladder, world, rank, choice, choices)) {
        c.e.no_memory = true;
    } else {
        declare(&c, flavour);
        emit_all(&c);
    }
    twill_ladder_close(&c.ladder);
    free(c.list);
    free(c.marked);
    return twill_emitter_finish(&c.e, schedule, error);
}
