/* SPDX-License-Identifier: Apache-2.0 */
/* Find why a mutant is equivalent to the original: see mutants.h. */
#include "algorithms/schedule/step_table.h"
#include "tests/support/mutants.h"

#include <string.h>

const char *test_rule_name(enum test_rule rule)
{
    static const char *const names[TEST_RULES] = {
        "none",           "commutes",   "waits earlier", "signals later",
        "orders nothing", "paces",      "known anyway",  "relayed",
        "pair on node",   "same value", "order free",    "copies more"};

    return names[rule];
}

/* The memory that a step accesses, space by space. */
struct touch {
    uint32_t rank, first, blocks;
    unsigned space;
    bool write;
};

static unsigned touches(const struct twill_step *step, uint32_t rank, struct touch *out)
{
    const struct twill_step_shape *shape = twill_step_shape(step->op);
    unsigned count = 0, sources = shape->src == 0 ? 0 : step->nsrc > 1 ? step->nsrc : 1;
    for (unsigned k = 0; k <= sources; k++) {
        bool write = k == sources;
        twill_operand o = write ? step->dst : step->src;
        if (step->blocks == 0 || (write && shape->dst == 0))
            continue;
        uint32_t owner = twill_operand_is_peer(o) ? step->peer[write ? 0 : k] : rank;
        bool own = !write && owner == rank && (step->flags & TWILL_STEP_OWN_SRC) != 0;
        out[count++] = (struct touch){.rank = owner,
                                      .first = twill_operand_block(o),
                                      .blocks = step->blocks,
                                      .space = own ? TWILL_SRC : twill_operand_space(o),
                                      .write = write};
    }
    return count;
}

/* Return whether two accesses overlap and one of them writes. In place SRC is DST where both are
 * held; there a copy from one to the other writes nothing. */
static bool conflict(const struct test_scene *scene, const struct touch *x, const struct touch *y)
{
    const struct twill_shape *shape = &scene->test->shape;
    uint32_t shard_blocks = scene->whole->blocks / scene->whole->shards;
    uint32_t first = x->first > y->first ? x->first : y->first;
    uint32_t end =
        x->first + x->blocks < y->first + y->blocks ? x->first + x->blocks : y->first + y->blocks;
    if ((!x->write && !y->write) || x->rank != y->rank || first >= end)
        return false;
    if (x->space == y->space)
        return true;
    bool buffers =
        x->space + y->space == TWILL_SRC + TWILL_DST && shape->collective != TWILL_ALLTOALL;
    for (uint32_t b = first; b < end && buffers; b++)
        if (twill_shape_holds_src(shape, x->rank, b / shard_blocks) &&
            twill_shape_holds_dst(shape, x->rank, b / shard_blocks))
            return true;
    return false;
}

/* Return whether the step copies blocks onto themselves, in place. */
static bool stays(const struct twill_step *step)
{
    return step->op == TWILL_STEP_COPY && step->src >> TWILL_BLOCK_BITS == TWILL_SRC &&
           step->dst >> TWILL_BLOCK_BITS == TWILL_DST;
}

static bool disjoint(const struct test_scene *scene, const struct twill_step *a,
                     const struct twill_step *b)
{
    struct touch x[TWILL_STEP_PEERS + 1], y[TWILL_STEP_PEERS + 1];
    unsigned m = touches(a, scene->rank, x), n = touches(b, scene->rank, y);
    for (unsigned i = 0; i < m; i++) {
        for (unsigned j = 0; j < n; j++) {
            bool nothing = (x[i].write && stays(a) && x[i].space != y[j].space) ||
                           (y[j].write && stays(b) && x[i].space != y[j].space);
            if (!nothing && conflict(scene, &x[i], &y[j]))
                return false;
        }
    }
    return true;
}

/* Return whether all that a step accesses is its own rank's memory that no other rank accesses, or
 * that others only read. */
static bool is_private(const struct test_scene *scene, const struct twill_step *step)
{
    struct touch x[TWILL_STEP_PEERS + 1], y[TWILL_STEP_PEERS + 1];
    unsigned m = touches(step, scene->rank, x);
    m -= m > 0 && stays(step) && scene->test->shape.collective != TWILL_ALLTOALL;
    if (m == 0)
        return false;
    for (uint32_t r = 0; r < scene->test->world->size; r++) {
        for (uint32_t s = 0; r != scene->rank && s < scene->schedules[r].count; s++) {
            unsigned n = touches(&scene->schedules[r].steps[s], r, y);
            for (unsigned i = 0; i < m * n; i++)
                if (conflict(scene, &x[i / n], &y[i % n]))
                    return false;
        }
    }
    for (unsigned i = 0; i < m; i++) /* a peer's SHARED or IMM is ready when the peer says so */
        if (x[i].rank != scene->rank)
            return false;
    return true;
}

/* Return the rule for steps a, b that became b, a. */
static enum test_rule explain_swap(const struct test_scene *scene)
{
    const struct twill_step *steps = scene->whole->steps;
    const struct twill_world *world = scene->test->world;
    uint32_t at = scene->at, rank = scene->rank;
    const struct twill_step *a = &steps[at], *b = &steps[at + 1];
    bool a_signals = a->op == TWILL_STEP_SIGNAL || a->op == TWILL_STEP_PUT_IMM;
    bool b_signals = b->op == TWILL_STEP_SIGNAL || b->op == TWILL_STEP_PUT_IMM;
    bool both_add = a->op == TWILL_STEP_REDUCE && b->op == TWILL_STEP_REDUCE && a->dst == b->dst &&
                    (a->flags & b->flags & TWILL_STEP_ACC) != 0;
    if (both_add && scene->test->shape.order == TWILL_ORDER_ANY)
        return ORDER_FREE;
    bool a_moves = a->op == TWILL_STEP_COPY || a->op == TWILL_STEP_REDUCE;
    bool b_moves = b->op == TWILL_STEP_COPY || b->op == TWILL_STEP_REDUCE;
    if ((a_moves && is_private(scene, a) && (b_signals || b->op == TWILL_STEP_AWAIT)) ||
        (b_moves && is_private(scene, b) && (a_signals || a->op == TWILL_STEP_AWAIT)))
        return COMMUTES;
    bool a_waits = a->op == TWILL_STEP_WAIT || a->op == TWILL_STEP_AWAIT;
    bool b_waits = b->op == TWILL_STEP_WAIT || b->op == TWILL_STEP_AWAIT;
    if (!a_signals && !b_signals && !a_waits && !b_waits)
        return disjoint(scene, a, b) ? COMMUTES : NO_RULE;
    if (b_waits)
        return WAITS_EARLIER;
    /* a grant to send, given before what was waited for has arrived */
    if (a->op == TWILL_STEP_WAIT && b->op == TWILL_STEP_SEND && b->blocks == 0 &&
        scene->test->shape.collective != TWILL_BARRIER)
        return PACES;
    if (a_signals)
        return SIGNALS_LATER;
    if (b_signals && twill_step_shape(a->op)->posts)
        return disjoint(scene, a, b) ? COMMUTES
                                     : NO_RULE; /* may be signalled before its WAIT anyway */
    if (a->op == TWILL_STEP_AWAIT && b_signals && world->node_size[world->node[rank]] == 2)
        return PAIR;
    if (a->op == TWILL_STEP_AWAIT && b->op == TWILL_STEP_RECV)
        return COMMUTES; /* a RECV accesses its own memory, and completes only at its WAIT */
    bool learns = a->op != TWILL_STEP_WAIT, apart = true, own = true;
    for (uint32_t i = at; i-- > 0 && steps[i].op != TWILL_STEP_WAIT;) {
        bool posts = twill_step_shape(steps[i].op)->posts;
        learns = learns || steps[i].op == TWILL_STEP_RECV || steps[i].op == TWILL_STEP_RECV_REDUCE;
        apart = apart && (!posts || disjoint(scene, &steps[i], b));
        own = own && (!posts || is_private(scene, &steps[i]));
    }
    /* Signals show ranks of the node which memory of the node is no longer in use. */
    if (a->op == TWILL_STEP_WAIT && b_signals && own)
        return COMMUTES;
    /* A WAIT shows a COPY or REDUCE that messages have arrived or left; ranks of the node
     * synchronise by AWAIT. */
    if (a->op == TWILL_STEP_WAIT && apart &&
        (b_moves || (twill_step_shape(b->op)->posts && is_private(scene, b))))
        return COMMUTES;
    return !learns && apart ? NOTHING_SIGNALLED : NO_RULE;
}

/* Return whether this rank's block in one space is a copy of the one in the other. */
static bool holds_same(const struct twill_step *steps, uint32_t at, unsigned one, unsigned other,
                       uint32_t block)
{
    while (at-- > 0) {
        const struct twill_step *step = &steps[at];
        bool puts = step->op == TWILL_STEP_PUT_IMM;
        unsigned to = puts ? TWILL_IMM : step->dst >> TWILL_BLOCK_BITS;
        unsigned from = step->src >> TWILL_BLOCK_BITS;
        uint32_t first = twill_operand_block(step->dst);
        bool writes = puts || twill_step_shape(step->op)->dst != 0;
        if (!writes || (to != one && to != other) || block < first || block >= first + step->blocks)
            continue;
        return (step->op == TWILL_STEP_COPY || puts) && from == (to == one ? other : one);
    }
    return false;
}

/* One more block is written, which no rank reads before it is overwritten. (Ranks that read it do
 * so after that, or they would read what was never written.) */
static bool copies_more(const struct test_scene *scene, const struct twill_step *now)
{
    const struct twill_step *was = &scene->whole->steps[scene->at];
    bool moves = now->op == TWILL_STEP_COPY || now->op == TWILL_STEP_REDUCE;
    bool peers = twill_operand_is_peer(now->dst);
    if (!moves || now->blocks < was->blocks)
        return false;
    struct touch y[TWILL_STEP_PEERS + 1];
    struct touch extra = {.rank = peers ? now->peer[0] : scene->rank,
                          .first = twill_operand_block(now->dst) + now->blocks - 1u,
                          .blocks = 1,
                          .space = twill_operand_space(now->dst),
                          .write = true};
    for (uint32_t r = 0; r < scene->test->world->size; r++) {
        for (uint32_t i = 0; r != scene->rank && i < scene->schedules[r].count; i++) {
            unsigned n = touches(&scene->schedules[r].steps[i], r, y);
            if (n > 0 && y[n - 1].write && conflict(scene, &extra, &y[n - 1]))
                return false;
        }
    }
    for (uint32_t i = scene->at + 1; i < scene->whole->count; i++) {
        const struct twill_step *step = &scene->schedules[scene->rank].steps[i];
        unsigned n = touches(step, scene->rank, y);
        bool writes = false, reads = (step->flags & TWILL_STEP_ACC) != 0;
        for (unsigned k = 0; k < n; k++) {
            /* What is copied onto itself in place does not change. */
            bool hit = (!stays(now) || y[k].space == extra.space) && conflict(scene, &extra, &y[k]);
            writes = writes || (hit && y[k].write);
            reads = reads || (hit && !y[k].write);
        }
        if (writes || (reads && (step->flags & TWILL_STEP_ACC) == 0))
            return writes && !reads;
    }
    return !peers;
}

/* Return whether this WAIT is between messages that access nothing in common, and copies of memory
 * that no other rank uses. */
static bool paces(const struct test_scene *scene)
{
    const struct twill_step *steps = scene->whole->steps;
    uint32_t first = scene->at, end = scene->at + 1, lane = steps[scene->at].lane;
    if (steps[scene->at].op != TWILL_STEP_WAIT)
        return false;
    while (first > scene->whole->lane_first[lane] && steps[first - 1].op != TWILL_STEP_WAIT)
        first--;
    while (end < scene->whole->lane_first[lane + 1] && steps[end].op != TWILL_STEP_WAIT) {
        bool copies = steps[end].op == TWILL_STEP_COPY && is_private(scene, &steps[end]);
        if (!twill_step_shape(steps[end].op)->posts && steps[end].op != TWILL_STEP_AWAIT && !copies)
            return false;
        end++;
    }
    for (uint32_t i = first; i < scene->at; i++)
        for (uint32_t j = scene->at + 1; j < end; j++)
            if (twill_step_shape(steps[i].op)->posts && !disjoint(scene, &steps[i], &steps[j]))
                return false;
    return true;
}

/* Return whether all ranks that the AWAIT named, and that `now` (or NULL) does not name, have the
 * SIGNAL as their first step. */
static bool already_known(const struct test_scene *scene, const struct twill_step *now)
{
    const struct twill_step *was = &scene->whole->steps[scene->at];
    if (was->op != TWILL_STEP_AWAIT || was->ordinal != 1)
        return false;
    for (unsigned i = 0; i < was->nsrc; i++) {
        bool named = false;
        for (unsigned k = 0; now != NULL && k < now->nsrc; k++)
            named = named || now->peer[k] == was->peer[i];
        const struct twill_schedule *peer = &scene->schedules[was->peer[i]];
        if (!named && peer->steps[peer->lane_first[was->lane]].op != TWILL_STEP_SIGNAL)
            return false;
    }
    return true;
}

/* Return whether a rank awaits the SIGNAL of `of` that the step names before it sends its own of
 * that number. */
static bool relays_signal(const struct test_scene *scene, const struct twill_step *step,
                          uint32_t by, uint32_t of)
{
    const struct twill_schedule *s = &scene->schedules[by];
    uint32_t signals = 0;
    for (uint32_t i = s->lane_first[step->lane]; i < s->lane_first[step->lane + 1]; i++) {
        const struct twill_step *at = &s->steps[i];
        signals += at->op == TWILL_STEP_SIGNAL;
        if (signals == step->ordinal)
            return false;
        for (unsigned k = 0; at->op == TWILL_STEP_AWAIT && k < at->nsrc; k++)
            if (at->peer[k] == of && at->ordinal >= step->ordinal)
                return true;
    }
    return false;
}

/* Return whether `now` awaits, instead of some ranks that the AWAIT named, others that have awaited
 * them. */
static bool relayed(const struct test_scene *scene, const struct twill_step *now)
{
    const struct twill_step *was = &scene->whole->steps[scene->at];
    bool all = was->op == TWILL_STEP_AWAIT && (was->flags & TWILL_STEP_IMM) == 0;
    for (unsigned i = 0; i < was->nsrc && all; i++) {
        bool known = false;
        for (unsigned k = 0; k < now->nsrc; k++)
            known = known || now->peer[k] == was->peer[i] ||
                    relays_signal(scene, was, now->peer[k], was->peer[i]);
        all = known;
    }
    return all;
}

/* Return whether the step is a SIGNAL that no rank awaits, because more came before. */
static bool signals_idly(const struct test_scene *scene)
{
    const struct twill_step *was = &scene->whole->steps[scene->at];
    uint32_t before = 0;
    for (uint32_t i = scene->whole->lane_first[was->lane]; i < scene->at; i++)
        before += scene->whole->steps[i].op == TWILL_STEP_SIGNAL;
    for (uint32_t r = 0; r < scene->test->world->size; r++) {
        for (uint32_t i = 0; i < scene->schedules[r].count; i++) {
            const struct twill_step *step = &scene->schedules[r].steps[i];
            for (unsigned k = 0; step->op == TWILL_STEP_AWAIT && k < step->nsrc; k++)
                if (step->lane == was->lane && step->peer[k] == scene->rank &&
                    step->ordinal > before)
                    return false;
        }
    }
    return true;
}

static bool same_touches(const struct test_scene *scene, const struct twill_step *was,
                         const struct twill_step *now)
{
    struct touch x[TWILL_STEP_PEERS + 1], y[TWILL_STEP_PEERS + 1];
    unsigned m = touches(was, scene->rank, x), n = touches(now, scene->rank, y);
    bool same = m == n;
    for (unsigned i = 0; i < m && same; i++)
        same = x[i].rank == y[i].rank && x[i].space == y[i].space && x[i].first == y[i].first &&
               x[i].write == y[i].write;
    return same;
}

/* Return whether the COPY writes `block` of this space of `owner`. */
static bool writes_block(const struct twill_step *step, uint32_t rank, uint32_t owner,
                         unsigned space, uint32_t block)
{
    uint32_t first = twill_operand_block(step->dst);
    return step->op == TWILL_STEP_COPY && twill_operand_space(step->dst) == space &&
           (twill_operand_is_peer(step->dst) ? step->peer[0] : rank) == owner && block >= first &&
           block < first + step->blocks;
}

/* Return the last COPY of a rank's schedule that writes this block, or NULL. */
static const struct twill_step *last_copy(const struct test_scene *scene, uint32_t r,
                                          const struct touch *place, uint32_t block)
{
    const struct twill_schedule *s = &scene->schedules[r];
    for (uint32_t i = s->count; i-- > 0;)
        if (writes_block(&s->steps[i], r, place->rank, place->space, block))
            return &s->steps[i];
    return NULL;
}

/* Return where a COPY of rank r reads what it writes to the block. */
static struct touch copy_source(const struct twill_step *copy, uint32_t r, uint32_t block)
{
    return (struct touch){.rank = twill_operand_is_peer(copy->src) ? copy->peer[0] : r,
                          .first = twill_operand_block(copy->src) + block -
                                   twill_operand_block(copy->dst),
                          .space = twill_operand_space(copy->src)};
}

/* Return whether a rank copies the block to both locations, from one source, or from one of them to
 * the other. */
static bool copied_to_both(const struct test_scene *scene, const struct touch *x,
                           const struct touch *y, uint32_t block)
{
    for (uint32_t r = 0; r < scene->test->world->size; r++) {
        const struct twill_step *one = last_copy(scene, r, x, block);
        const struct twill_step *other = last_copy(scene, r, y, block);
        struct touch from = {.rank = UINT32_MAX}, also = from;
        if (one != NULL)
            from = copy_source(one, r, block);
        if (other != NULL)
            also = copy_source(other, r, block);
        if ((one != NULL && other != NULL && from.rank == also.rank && from.first == also.first &&
             from.space == also.space) ||
            (one != NULL && from.rank == y->rank && from.first == block && from.space == y->space))
            return true;
    }
    return false;
}

/* Return whether the source of the copy, in the original and in the mutant, has copies of the same
 * blocks. */
static bool sources_equal(const struct test_scene *scene, const struct twill_step *was,
                          const struct twill_step *now)
{
    struct touch x[TWILL_STEP_PEERS + 1], y[TWILL_STEP_PEERS + 1];
    if (was->op != TWILL_STEP_COPY || touches(was, scene->rank, x) != 2 ||
        touches(now, scene->rank, y) != 2 || x[0].first != y[0].first)
        return false;
    for (uint32_t b = x[0].first; b < x[0].first + x[0].blocks; b++)
        if (!copied_to_both(scene, &x[0], &y[0], b))
            return false;
    return true;
}

/* Return whether two spaces of this rank have equal contents in any correct schedule: where data
 * only move and the rank ends with its own input, or where a broadcast reaches it twice. */
static bool means_same(const struct test_scene *scene, const struct twill_step *was,
                       const struct twill_step *now)
{
    const struct twill_shape *shape = &scene->test->shape;
    uint32_t shard = twill_operand_block(was->src) / (scene->whole->blocks / scene->whole->shards);
    unsigned from = was->src >> TWILL_BLOCK_BITS, to = now->src >> TWILL_BLOCK_BITS;
    if (shape->collective == TWILL_BROADCAST && from + to == TWILL_DST + TWILL_TMP &&
        (from == TWILL_DST || from == TWILL_TMP))
        return true;
    return from + to == TWILL_SRC + TWILL_DST && from <= TWILL_DST &&
           !twill_collective_facts(shape->collective)->reduces &&
           shape->collective != TWILL_ALLTOALL &&
           twill_shape_holds_src(shape, scene->rank, shard) &&
           twill_shape_holds_dst(shape, scene->rank, shard);
}

/* A data step on memory that no other step of the rank accesses: any lane will do. */
static bool is_alone(const struct test_scene *scene)
{
    const struct twill_step *was = &scene->whole->steps[scene->at];
    for (uint32_t i = 0; i < scene->whole->count; i++)
        if (i != scene->at && !disjoint(scene, was, &scene->whole->steps[i]))
            return false;
    return is_private(scene, was);
}

static enum test_rule explain_flag(const struct test_scene *scene, const struct twill_step *was,
                                   unsigned changed)
{
    const struct twill_shape *shape = &scene->test->shape;
    unsigned from = was->src >> TWILL_BLOCK_BITS & ~(unsigned)TWILL_PEER;
    /* The simulation also checks that all ranks have the same result. */
    if (changed == TWILL_STEP_FIRST && shape->order == TWILL_ORDER_ANY)
        return ORDER_FREE;
    /* PARTIAL applies to the others' operands, OWN_SRC is raw: here only the own operand is left.
     */
    if (changed == TWILL_STEP_PARTIAL && was->op == TWILL_STEP_REDUCE && was->nsrc == 1 &&
        was->peer[0] == scene->rank && (was->flags & TWILL_STEP_OWN_SRC) != 0)
        return SAME_VALUE;
    if (changed == TWILL_STEP_OWN_SRC &&
        holds_same(scene->whole->steps, scene->at, TWILL_SRC, from, twill_operand_block(was->src)))
        return SAME_VALUE;
    return NO_RULE;
}

enum test_rule test_explain(enum test_mutation kind, const struct test_scene *scene)
{
    const struct twill_step *steps = scene->whole->steps;
    const struct twill_step *now = &scene->schedules[scene->rank].steps[scene->at];
    const struct twill_step *was = &steps[scene->at];
    uint32_t block = twill_operand_block(was->src);
    unsigned from = was->src >> TWILL_BLOCK_BITS, to = now->src >> TWILL_BLOCK_BITS;
    switch (kind) {
    case SWAP:
        return explain_swap(scene);
    case DROP:
    case ALTER_LANE:
        if (kind == ALTER_LANE && is_alone(scene))
            return COMMUTES;
        return paces(scene) ? PACES : already_known(scene, NULL) ? KNOWN : NO_RULE;
    case DROP_PEER:
    case ALTER_PEER:
        return already_known(scene, now) ? KNOWN : relayed(scene, now) ? RELAYED : NO_RULE;
    case ALTER_OP:
        if (now->op != TWILL_STEP_SIGNAL && now->op != TWILL_STEP_WAIT)
            return NO_RULE;
        if (now->op == TWILL_STEP_SIGNAL && !signals_idly(scene))
            return NO_RULE;
        return paces(scene) ? PACES : already_known(scene, NULL) ? KNOWN : NO_RULE;
    case ALTER_ORDINAL:
        return now->ordinal > was->ordinal ? WAITS_EARLIER : NO_RULE;
    case ALTER_SRC_SPACE:
    case ALTER_DST_SPACE:
        return same_touches(scene, was, now) || means_same(scene, was, now) ||
                       sources_equal(scene, was, now) ||
                       holds_same(steps, scene->at, from, to, block)
                   ? SAME_VALUE
                   : NO_RULE;
    case ALTER_FLAG:
        return explain_flag(scene, was, was->flags ^ now->flags);
    case ALTER_LENGTH:
        return copies_more(scene, now) ? MORE_COPIED : NO_RULE;
    default:
        return NO_RULE;
    }
}
