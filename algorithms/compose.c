/* SPDX-License-Identifier: Apache-2.0 */
/* The composer: an allreduce over any number of levels is a reduce-scatter down the levels, an
 * allreduce at the top, and an allgather back up. Each half is a collective of its own, with the
 * ranks' parts for shards.
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

/* The number of the signal that a rank gives on its way down at a rung, or back up. Where there is
 * no way down, MAPPED has one to begin with: others write its DST. */
static uint32_t ordinal_of(const struct twill_compose *c, uint32_t rung, bool up, uint32_t rank)
{
    const struct twill_ladder *l = &c->ladder;
    if (!up)
        return twill_ladder_signals(l, rank, 0, rung + 1);
    return (c->down ? twill_ladder_signals(l, rank, 0, l->count) + !c->up : c->mapped) +
           twill_ladder_signals(l, rank, rung, l->count);
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
            if (c->marked[peer] && ordinal_of(c, rung, up, peer) == ordinal) {
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

/* WAIT if anything is being received (or sent, when `all`). What is sent lies where nobody writes
 * before the next WAIT, so that the next round need not wait for it. */
static void settle(struct twill_emitter *e, bool all)
{
    const struct twill_step_list *list = &e->lanes[e->lane];
    bool waits = false;
    for (size_t i = list->count; i-- > 0 && list->steps[i].op != TWILL_STEP_WAIT && !waits;)
        waits = list->steps[i].op == TWILL_STEP_RECV ||
                list->steps[i].op == TWILL_STEP_RECV_REDUCE ||
                (all && list->steps[i].op == TWILL_STEP_SEND);
    if (waits)
        twill_emit_wait(e);
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
        if (rung + 1 == l->count && hop + 1 == r->fan)
            own |= TWILL_STEP_FINAL;
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
        settle(&c->e, false);
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

/* Nobody writes the DST of who may not have begun. */
static void await_begun(struct twill_compose *c, uint32_t rung)
{
    const struct twill_ladder *l = &c->ladder;
    const struct twill_rung *r = &l->rung[rung];
    for (uint32_t s = 0; s < l->shards; s++)
        for (uint32_t m = 0; m < r->fan && twill_ladder_owns(l, rung + 1, s); m++)
            c->marked[twill_ladder_owner(l, rung, c->e.rank, m, s)] = m != r->me;
    await_marked(c, l->count, true);
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
        settle(&c->e, false);
    }
}

/* The last messages of one shard may still be under way when the next begins, and those sent when
 * others go back up. */
static void emit_top(struct twill_compose *c)
{
    const struct twill_ladder *l = &c->ladder;
    const struct twill_rung *r = &l->rung[l->count - 1];
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
        if (r->choice.how == TWILL_BY_RING)
            twill_emit_ring(&c->e, &g, from);
        else
            twill_emit_recursive_doubling(&c->e, &g, from);
    }
    settle(&c->e, false);
}

/* SRC into SHARED, but for the shards that this rank itself folds. */
static void stage(struct twill_compose *c)
{
    uint32_t from = 0, shards = c->ladder.shards;
    for (uint32_t s = 0; s <= shards; s++) {
        if (s < shards && !twill_ladder_owns(&c->ladder, 1, s))
            continue;
        if (s > from)
            twill_emit_copy(&c->e, at(TWILL_SHARED, block_of(c, from)),
                            at(TWILL_SRC, block_of(c, from)), 0, block_of(c, s - from), 0);
        from = s + 1;
    }
}

static void go_down(struct twill_compose *c)
{
    const struct twill_ladder *l = &c->ladder;
    if (l->scatters > 0 && l->rung[0].choice.how == TWILL_BY_DIRECT && !c->mapped)
        stage(c);
    for (uint32_t j = 0; j < l->scatters; j++) {
        if (l->rung[j].fan == 1)
            down_alone(c, j);
        else if (l->rung[j].choice.how == TWILL_BY_DIRECT)
            down_direct(c, j);
        else
            down_ring(c, j);
    }
}

static void go_up(struct twill_compose *c)
{
    const struct twill_ladder *l = &c->ladder;
    for (uint32_t j = l->scatters; j-- > 0;) {
        if (l->rung[j].fan > 1 && l->rung[j].choice.how == TWILL_BY_DIRECT)
            up_direct(c, j);
        else if (l->rung[j].fan > 1)
            up_ring(c, j);
    }
}

/* The end of a reduce-scatter, when nobody comes back up: the part may have to be moved to DST, and
 * MAPPED may not go before the others have read its SRC, which they did at the lowest rung. */
static void end_down(struct twill_compose *c)
{
    struct twill_ladder *l = &c->ladder;
    const struct twill_rung *low = &l->rung[0];
    uint32_t me = c->e.rank;
    if (c->final != TWILL_DST)
        twill_emit_copy(&c->e, at(TWILL_DST, me), at(c->final, me), 0, 1, 0);
    if (!c->mapped || low->fan == 1 || low->choice.how != TWILL_BY_DIRECT)
        return;
    twill_emit_signal(&c->e);
    for (uint32_t m = 0; m < low->fan; m++)
        c->marked[twill_ladder_owner(l, 0, me, m, 0)] = m != low->me;
    await_marked(c, l->count, true);
}

/* An allgather begins: own part, and MAPPED: nobody writes another's DST before it is there. */
static void begin_up(struct twill_compose *c)
{
    const struct twill_ladder *l = &c->ladder;
    uint32_t me = c->e.rank;
    if (c->mapped && twill_ladder_signals(l, me, 0, l->count) > 0)
        twill_emit_signal(&c->e);
    twill_emit_copy(&c->e, at(TWILL_DST, me), at(TWILL_SRC, me), 0, 1, 0);
}

static void emit_all(struct twill_compose *c)
{
    if (c->ladder.count == 0) {
        twill_emit_copy(&c->e, at(TWILL_DST, 0), at(TWILL_SRC, 0), 0, 1, 0);
        return;
    }
    if (c->down)
        go_down(c);
    else
        begin_up(c);
    if (c->ladder.scatters < c->ladder.count)
        emit_top(c);
    if (c->up)
        go_up(c);
    else
        end_down(c);
    settle(&c->e, true);
}

/* What the schedule needs: the same on all ranks. */
static void declare(struct twill_compose *c, enum twill_flavour flavour)
{
    const struct twill_ladder *l = &c->ladder;
    uint32_t messages = 0, shared = 0;
    for (uint32_t j = 0; j < l->count; j++) {
        bool direct = l->rung[j].choice.how == TWILL_BY_DIRECT;
        messages += !direct;
        shared += direct && (j > 0 || !c->mapped) && c->down;
        c->e.uses_peer_dst = c->e.uses_peer_dst || (direct && c->mapped && c->up);
        c->e.uses_peer_src = c->e.uses_peer_src || (direct && c->mapped && j == 0 && c->down);
    }
    if (l->count == 0)
        return;
    const struct twill_rung *top = &l->rung[l->count - 1];
    bool direct_top = top->choice.how == TWILL_BY_DIRECT;
    if (top->choice.how == TWILL_BY_RING && !l->parts)
        c->each = top->fan;
    if (!c->mapped && messages < l->count && l->rung[0].choice.how != TWILL_BY_DIRECT)
        shared++; /* the first copy is there all the same: the way back goes through it */
    else if (!c->mapped && messages < l->count && !c->down)
        shared = 1;
    c->e.blocks = l->shards * c->each;
    c->e.parts = l->parts ? l->world->size : 1;
    c->e.shared_blocks = shared * c->e.blocks;
    c->final = TWILL_DST;
    if (c->down && direct_top && (c->up || top->fan > TWILL_STEP_PEERS))
        c->final = twill_node_final_space(flavour, top->fan);
    if (top->choice.how == TWILL_BY_RECURSIVE_DOUBLING)
        c->e.tmp_blocks = 2 * c->e.blocks;
    else if (c->down && (messages > 0 || c->final == TWILL_TMP))
        c->e.tmp_blocks = c->e.blocks;
}

twill_status twill_compose(struct twill_schedule *schedule, const struct twill_world *world,
                           uint32_t rank, const struct twill_shape *shape,
                           const struct twill_rung_choice *choice, uint32_t choices,
                           struct twill_error *error)
{
    struct twill_compose c = {.each = 1,
                              .down = shape->collective != TWILL_ALLGATHER,
                              .up = shape->collective != TWILL_REDUCE_SCATTER,
                              .mapped = shape->flavour == TWILL_FLAVOUR_MAPPED};
    bool parts = twill_collective_facts(shape->collective)->parts;
    twill_emitter_begin(&c.e, world, rank, 1);
    c.list = calloc((size_t)world->size + 1, sizeof(*c.list));
    c.marked = calloc(world->size, sizeof(*c.marked));
    if (c.list == NULL || c.marked == NULL ||
        !twill_ladder_open(&c.ladder, world, rank, parts, choice, choices)) {
        c.e.no_memory = true;
    } else {
        declare(&c, shape->flavour);
        emit_all(&c);
    }
    twill_ladder_close(&c.ladder);
    free(c.list);
    free(c.marked);
    return twill_emitter_finish(&c.e, schedule, error);
}
