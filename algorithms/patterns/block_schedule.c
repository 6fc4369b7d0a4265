/* SPDX-License-Identifier: Apache-2.0 */
/* The receive schedule of a position is found by a search from the root, as the paper describes it.
 * Each number is a sum of distinct skips. The smallest skip of the greedy sum, its base, says which
 * of the first blocks the root sends towards the position. In each of the last `period` rounds the
 * position receives a different block. The block of round k comes along the largest path (a sum of
 * skips) that ends at least skip[k], but not skip[k + 1], to the left of the position, and whose
 * first skip no earlier round uses. What a position sends is what the receiver expects of it. */
#include "algorithms/patterns/block_schedule.h"

#include <stdlib.h>

/* The search for a receive schedule. The skips that are still unused form a list, by their indices,
 * from the largest to the smallest. A local variable of find_receives(). */
struct block_search {
    const struct twill_block_schedule *s;
    uint32_t target;                        /* the position, plus the number of positions */
    uint32_t below;                         /* paths end before this */
    int32_t next[TWILL_BLOCK_ROUNDS + 2];   /* entry e + 1 is the next smaller index, or -1 */
    int32_t before[TWILL_BLOCK_ROUNDS + 2]; /* entry e + 1 is the next larger index, or -1 */
    int32_t found[TWILL_BLOCK_ROUNDS + 1];  /* by round, the index of the first skip */
};

/* Take an index out of the list of unused skips. */
static void use_skip(struct block_search *at, int32_t index)
{
    at->next[at->before[index + 1] + 1] = at->next[index + 1];
    at->before[at->next[index + 1] + 1] = at->before[index + 1];
}

/* Return whether a path may end at `end` so that the block arrives in round k or later. */
static bool path_reaches(const struct block_search *at, uint32_t end, uint32_t k)
{
    return k <= at->s->period && end + at->s->skip[k] <= at->target;
}

/* Find the blocks of round k and later from paths that begin with `path` and continue with an
 * unused skip, of at most index `e`. Returns the first round whose block is still unknown. */
static uint32_t search_from(struct block_search *at, uint32_t path, int32_t e, uint32_t k)
{
    for (; e >= 0; e = at->next[e + 1]) {
        uint32_t end = path + at->s->skip[e];
        if (!path_reaches(at, end, k) || end >= at->below)
            continue;
        if (path_reaches(at, end, k + 1))
            k = search_from(at, end, e, k);
        if (!path_reaches(at, path, k + 1))
            return k;
        at->below = end;
        at->found[k++] = e;
        use_skip(at, e);
    }
    return k;
}

/* Return the index of the smallest skip of the greedy sum of a position, or the period for 0. */
static int32_t base_of(const struct twill_block_schedule *s, uint32_t position)
{
    for (uint32_t k = s->period; k-- > 0;) {
        if (s->skip[k] == position)
            return (int32_t)k;
        if (s->skip[k] < position)
            position -= s->skip[k];
    }
    return (int32_t)s->period;
}

/* Store in receives[period] the block that the position receives in each round. */
static void find_receives(int32_t *receives, const struct twill_block_schedule *s,
                          uint32_t position)
{
    int32_t period = (int32_t)s->period, base = base_of(s, position);
    struct block_search at = {.s = s, .target = s->size + position, .below = 2 * s->size};
    for (int32_t e = -1; e <= period; e++) {
        at.next[e + 1] = e < 0 ? period : e - 1;
        at.before[e + 1] = e < period ? e + 1 : -1;
    }
    use_skip(&at, base);
    search_from(&at, 0, at.next[0], 0);
    for (int32_t k = 0; k < period; k++)
        receives[k] = at.found[k] == period ? base : at.found[k] - period;
}

struct twill_block_schedule twill_block_schedule_of(uint32_t size, uint32_t position)
{
    struct twill_block_schedule s = {.size = size};
    while ((1u << s.period) < size)
        s.period++;
    s.skip[s.period] = size;
    for (uint32_t k = s.period; k-- > 0;)
        s.skip[k] = (s.skip[k + 1] + 1) / 2;
    find_receives(s.receives, &s, position);
    for (uint32_t k = 0; k < s.period; k++) {
        int32_t expected[TWILL_BLOCK_ROUNDS];
        find_receives(expected, &s, (position + s.skip[k]) % size);
        s.sends[k] = expected[k];
    }
    return s;
}

uint32_t twill_block_rounds(const struct twill_block_schedule *s, uint32_t blocks)
{
    return s->period > 0 ? blocks - 1 + s->period : 0;
}

bool twill_block_at(const struct twill_block_schedule *s, uint32_t position, uint32_t blocks,
                    uint32_t round, bool sends, struct twill_block_message *message)
{
    /* The last round ends a period, so the first one is inside a period of fewer rounds. */
    uint32_t missing = (s->period - (blocks - 1) % s->period) % s->period;
    uint32_t k = (round + missing) % s->period;
    int64_t number = (int64_t)(sends ? s->sends : s->receives)[k] + round - k;
    uint32_t peer = (position + (sends ? s->skip[k] : s->size - s->skip[k])) % s->size;
    *message = (struct twill_block_message){
        .block = number < 0 ? 0 : (uint32_t)twill_min((size_t)number, blocks - 1), .peer = peer};
    return number >= 0 && (sends ? peer : position) != 0;
}

/* A broadcast or reduction as this rank sees it. A local variable of the emitting functions. */
struct block_view {
    const struct twill_block_flow *flow;
    struct twill_block_schedule schedule;
    uint32_t position; /* of this rank, counted from that of the root */
    uint32_t rounds;
    uint32_t each; /* blocks of the message in each block that is sent */
};

static struct block_view view_of(const struct twill_block_flow *f)
{
    const struct twill_group *g = f->group;
    uint32_t position = (g->me + g->size - f->root) % g->size;
    struct block_view v = {.flow = f,
                           .schedule = twill_block_schedule_of(g->size, position),
                           .position = position,
                           .each = g->blocks / f->blocks};
    v.rounds = twill_block_rounds(&v.schedule, f->blocks);
    return v;
}

/* Get the message that this rank receives, or sends, in a round of the broadcast. */
static bool message_of(const struct block_view *v, uint32_t round, bool sends,
                       struct twill_block_message *message)
{
    return twill_block_at(&v->schedule, v->position, v->flow->blocks, round, sends, message);
}

/* Return the rank at the other end of a message. */
static uint32_t peer_of(const struct block_view *v, const struct twill_block_message *message)
{
    const struct twill_group *g = v->flow->group;
    return g->rank[(message->peer + v->flow->root) % g->size];
}

/* Return the operand of a block in a space. */
static twill_operand block_in(const struct block_view *v, enum twill_space space, uint32_t block)
{
    return data_at(space, v->flow->group->first + block * v->each);
}

void twill_emit_block_broadcast(struct twill_emitter *e, const struct twill_block_flow *f,
                                enum twill_space to, twill_block_done_fn done, void *user)
{
    struct block_view v = view_of(f);
    bool root = v.position == 0, pending = false;
    uint32_t block = 0; /* if `pending`, this rank has it, and is to be told so */
    for (uint32_t i = 0; i < v.rounds; i++) {
        struct twill_block_message in, out;
        bool receives = message_of(&v, i, false, &in), sends = message_of(&v, i, true, &out);
        if (receives)
            twill_emit_recv(e, peer_of(&v, &in), block_in(&v, to, in.block), v.each, 0);
        if (sends)
            twill_emit_send(e, peer_of(&v, &out), block_in(&v, root ? f->from : to, out.block),
                            v.each, 0);
        if (pending && done != NULL)
            done(e, f->group->first + block * v.each, v.each, user);
        if (receives || sends)
            twill_emit_wait(e);
        /* The root sends block i in round i, and the last one in all further rounds. */
        pending = root ? i + 1 < f->blocks || i + 1 == v.rounds : receives;
        block = root ? (uint32_t)twill_min((size_t)i, f->blocks - 1) : in.block;
    }
    if (pending && done != NULL)
        done(e, f->group->first + block * v.each, v.each, user);
}

/* Return whether the position at the other end of a message sends its block on in the broadcast,
 * which it does within two periods. Then it contributes a partial to the reduction. */
static bool sends_on(const struct block_view *v, const struct twill_block_message *message,
                     uint32_t round)
{
    struct twill_block_schedule s = twill_block_schedule_of(v->schedule.size, message->peer);
    for (uint32_t i = round + 1; i < v->rounds && i <= round + 2 * s.period; i++) {
        struct twill_block_message on;
        if (twill_block_at(&s, message->peer, v->flow->blocks, i, true, &on) &&
            on.block == message->block)
            return true;
    }
    return false;
}

/* Return whether the operand that a message of a reduction brings is a partial. */
static bool brings_partial(const struct block_view *v, const struct twill_block_message *message,
                           uint32_t round)
{
    const struct twill_block_flow *f = v->flow;
    uint32_t member = (message->peer + f->root) % f->group->size;
    return member - f->partials.first < f->partials.length || sends_on(v, message, round);
}

/* Append the receive of an operand of a block in a round of a reduction, into `to` if it completes
 * the block. `own` is where this rank has its operand, in TMP if that is a partial. */
static void receive_operand(struct twill_emitter *e, const struct block_view *v,
                            const struct twill_block_message *m, uint32_t round,
                            enum twill_space own, enum twill_space to)
{
    bool ends = v->position == 0 && round < v->flow->blocks; /* see twill_emit_block_broadcast() */
    bool final = ends && !v->flow->unfinished;
    unsigned flags = (final ? TWILL_STEP_FINAL : 0) |
                     (brings_partial(v, m, round) ? TWILL_STEP_PARTIAL : 0) |
                     (own == TWILL_TMP ? TWILL_STEP_PARTIAL_OWN : 0);
    twill_emit_recv_reduce(e, peer_of(v, m), block_in(v, ends ? to : TWILL_TMP, m->block),
                           block_in(v, own, m->block), v->each, flags);
}

/* The reduction is the broadcast from the last round to the first, with messages in the opposite
 * direction. */
void twill_emit_block_reduce(struct twill_emitter *e, const struct twill_block_flow *f,
                             enum twill_space to)
{
    struct block_view v = view_of(f);
    bool *has = calloc(f->blocks, sizeof(*has)); /* whether a partial of a block is in TMP */
    if (has == NULL)
        e->no_memory = true;
    for (uint32_t i = v.rounds; i-- > 0 && has != NULL;) {
        struct twill_block_message m;
        size_t mark = twill_emit_mark(e);
        if (message_of(&v, i, true, &m)) {
            receive_operand(e, &v, &m, i, has[m.block] ? TWILL_TMP : f->from, to);
            has[m.block] = true;
        }
        if (message_of(&v, i, false, &m)) {
            enum twill_space own = has[m.block] ? TWILL_TMP : f->from;
            twill_emit_send(e, peer_of(&v, &m), block_in(&v, own, m.block), v.each,
                            own == TWILL_TMP ? TWILL_STEP_PARTIAL : 0);
        }
        twill_emit_insert_wait(e, mark);
    }
    twill_emit_wait(e);
    free(has);
}
