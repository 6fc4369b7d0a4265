/* SPDX-License-Identifier: Apache-2.0 */
/* Does the verifier notice? Every step of every schedule is dropped and altered in turn. */
#include "algorithms/step.h"
#include "tests/support/schedules.h"
#include "tests/support/simulate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum kind {
    DROP,       /* the step is gone */
    DROP_PEER,  /* AWAIT, REDUCE: one rank fewer */
    ALTER_PEER, /* another rank */
    ALTER_DST,  /* the next block */
    ALTER_SRC,
    ALTER_DST_SPACE, /* the next space */
    ALTER_SRC_SPACE,
    ALTER_LENGTH,  /* one block more or fewer */
    ALTER_FLAG,    /* each bit */
    ALTER_ORDINAL, /* one more or fewer */
    ALTER_OP,      /* each other operation */
    ALTER_LANE,    /* to the end of another lane */
    TWICE,         /* once more */
    SWAP,          /* with the next step */
    KINDS
};

static const char *const kind_names[KINDS] = {
    "drop step",       "drop peer",       "alter peer",   "alter dst",  "alter src",
    "alter dst space", "alter src space", "alter length", "alter flag", "alter ordinal",
    "alter operation", "alter lane",      "twice",        "swap"};

/* Mutants that are as good as the original, by the rule that says why. */
enum rule {
    NO_RULE,
    COMMUTES,      /* neighbours that touch nothing in common, and order nothing */
    WAITS_EARLIER, /* stricter, if it ends */
    TELLS_LATER,
    NOTHING_TOLD, /* WAIT for SENDs only: nothing is learnt by it */
    PACES,      /* a WAIT between messages that have nothing in common: a bound on what is posted */
    HEARD,      /* AWAIT of a first SIGNAL, which says but that its rank has begun: heard anyway */
    PAIR,       /* of two on a node, who tells whom first is all one */
    SAME_VALUE, /* of two places that one is a copy of */
    ORDER_FREE, /* one rank alone folds this: any order gives all the same */
    MORE_COPIED, /* where nobody reads before it is written again */
    RULES
};

static const char *const rule_names[RULES] = {
    "none",         "commutes",     "waits earlier", "tells later", "learns nothing", "paces",
    "heard anyway", "pair on node", "same value",    "order free",  "copies more"};

/* One algorithm's. */
struct score {
    unsigned mutants[KINDS], killed[KINDS], by_rule[RULES];
    unsigned simulated, noticed; /* dropped steps: does the simulation see them, too? */
};

#define MOST_ALGORITHMS 64

struct scores {
    struct score of[MOST_ALGORITHMS];
    struct test_seen seen;
    uint64_t random;
    uint32_t keep; /* mutants to try of a case, about */
    unsigned complaints, shown[KINDS];
};

static size_t index_of(const struct twill_algorithm *algorithm)
{
    size_t a = 0;
    while (twill_algorithm_at(a) != algorithm)
        a++;
    assert_true(a < MOST_ALGORITHMS);
    return a;
}

/* Put a copy of step `at` at `to` of a lane; there is room for it. */
static void insert(struct twill_schedule *s, uint32_t lane, uint32_t at, uint32_t to)
{
    struct twill_step step = s->steps[at];
    step.lane = (uint8_t)lane;
    memmove(&s->steps[to + 1], &s->steps[to], (s->count - to) * sizeof(step));
    s->steps[to] = step;
    s->count++;
    for (uint32_t l = lane + 1; l <= TWILL_SCHEDULE_LANES; l++)
        s->lane_first[l]++;
}

static void drop(struct twill_schedule *s, uint32_t at)
{
    uint32_t lane = s->steps[at].lane;
    memmove(&s->steps[at], &s->steps[at + 1], (s->count - at - 1) * sizeof(*s->steps));
    s->count--;
    for (uint32_t l = lane + 1u; l <= TWILL_SCHEDULE_LANES; l++)
        s->lane_first[l]--;
}

/* To the end of lane v, but before a WAIT that ends it. */
static bool move_to(struct twill_schedule *s, uint32_t at, uint32_t v)
{
    uint32_t lane = s->steps[at].lane;
    if (v >= s->lanes || v == lane)
        return false;
    uint32_t to = s->lane_first[v + 1];
    to -= to > s->lane_first[v] && s->steps[to - 1].op == TWILL_STEP_WAIT;
    insert(s, v, at, to);
    drop(s, to <= at ? at + 1 : at);
    return true;
}

/* Variant v of a mutation of step at; false: there are no more, or it changes nothing. */
static bool mutate(struct twill_schedule *s, const struct twill_world *world, uint32_t at,
                   enum kind kind, uint32_t v)
{
    struct twill_step *step = &s->steps[at], other = *step;
    unsigned peers = twill_step_peers(step);
    const struct twill_step_shape *shape = twill_step_shape(step->op);
    switch (kind) {
    case DROP:
        drop(s, at);
        return v == 0;
    case DROP_PEER:
        if (v >= peers || step->nsrc < 2)
            return false;
        memmove(&step->peer[v], &step->peer[v + 1], (peers - v - 1) * sizeof(step->peer[0]));
        step->peer[--step->nsrc] = 0;
        return true;
    case ALTER_PEER:
        if (v >= 2 * peers)
            return false;
        step->peer[v / 2] = (uint16_t)((step->peer[v / 2] + 1 + v % 2) % world->size);
        return true;
    case ALTER_DST:
        if (shape->dst == 0 || v > 0)
            return false;
        step->dst ^= 1;
        return true;
    case ALTER_SRC:
        if (shape->src == 0 || v > 0)
            return false;
        step->src ^= 1;
        return true;
    case ALTER_DST_SPACE:
    case ALTER_SRC_SPACE: {
        twill_operand *o = kind == ALTER_DST_SPACE ? &step->dst : &step->src;
        if ((kind == ALTER_DST_SPACE ? shape->dst : shape->src) == 0 || v >= 2 * TWILL_SPACE_COUNT)
            return false;
        *o = twill_operand_make(v / 2 | (v % 2 ? TWILL_PEER : 0u), twill_operand_block(*o));
        return true;
    }
    case ALTER_LENGTH:
        step->blocks = (uint16_t)(v == 0 ? step->blocks + 1 : step->blocks - 1);
        return v < 2 && (shape->dst != 0 || shape->src != 0);
    case ALTER_FLAG:
        step->flags ^= (uint8_t)(1u << v);
        return v < 7;
    case ALTER_ORDINAL:
        step->ordinal = (uint16_t)(v == 0 ? step->ordinal + 1 : step->ordinal - 1);
        return v < 2 && step->op == TWILL_STEP_AWAIT;
    case ALTER_OP:
        step->op = (uint8_t)v;
        return v < TWILL_STEP_OP_COUNT;
    case ALTER_LANE:
        return move_to(s, at, v);
    case TWICE:
        /* Most others may as well be done twice. */
        if (v > 0 || (!shape->posts && step->op != TWILL_STEP_PUT_IMM &&
                      (step->flags & TWILL_STEP_ACC) == 0))
            return false;
        insert(s, step->lane, at, at);
        return true;
    default:
        if (v > 0 || at + 1 >= s->lane_first[step->lane + 1])
            return false;
        *step = step[1];
        step[1] = other;
        return true;
    }
}

/* What mutants are explained by: the case, its schedules, and where the step is. */
struct scene {
    const struct test_case *test;
    const struct twill_schedule *schedules; /* of all ranks; those of `rank` altered */
    const struct twill_schedule *whole;     /* that rank's as it was */
    uint32_t rank, at;
};

/* What a step touches, space by space. */
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

/* Do two touches meet in memory, one of them writing? In place SRC is DST where both are held;
 * there a copy from one to the other writes nothing. */
static bool meet(const struct scene *scene, const struct touch *x, const struct touch *y)
{
    const struct twill_shape *shape = &scene->test->shape;
    uint32_t pieces = scene->whole->blocks / scene->whole->parts;
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
        if (twill_shape_holds_src(shape, x->rank, b / pieces) &&
            twill_shape_holds_dst(shape, x->rank, b / pieces))
            return true;
    return false;
}

/* Does the step copy blocks onto themselves, in place? */
static bool stays(const struct twill_step *step)
{
    return step->op == TWILL_STEP_COPY && step->src >> TWILL_BLOCK_BITS == TWILL_SRC &&
           step->dst >> TWILL_BLOCK_BITS == TWILL_DST;
}

static bool disjoint(const struct scene *scene, const struct twill_step *a,
                     const struct twill_step *b)
{
    struct touch x[TWILL_STEP_PEERS + 1], y[TWILL_STEP_PEERS + 1];
    unsigned m = touches(a, scene->rank, x), n = touches(b, scene->rank, y);
    for (unsigned i = 0; i < m; i++) {
        for (unsigned j = 0; j < n; j++) {
            bool nothing = (x[i].write && stays(a) && x[i].space != y[j].space) ||
                           (y[j].write && stays(b) && x[i].space != y[j].space);
            if (!nothing && meet(scene, &x[i], &y[j]))
                return false;
        }
    }
    return true;
}

/* Is all that a step touches memory of its own rank that no other touches, or only reads as it
 * does? */
static bool is_private(const struct scene *scene, const struct twill_step *step)
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
                if (meet(scene, &x[i / n], &y[i % n]))
                    return false;
        }
    }
    for (unsigned i = 0; i < m; i++) /* a peer's SHARED or IMM is there when it says so */
        if (x[i].rank != scene->rank)
            return false;
    return true;
}

/* Steps a, b that became b, a. */
static enum rule explain_swap(const struct scene *scene)
{
    const struct twill_step *steps = scene->whole->steps;
    const struct twill_world *world = scene->test->world;
    uint32_t at = scene->at, rank = scene->rank;
    const struct twill_step *a = &steps[at], *b = &steps[at + 1];
    bool a_tells = a->op == TWILL_STEP_SIGNAL || a->op == TWILL_STEP_PUT_IMM;
    bool b_tells = b->op == TWILL_STEP_SIGNAL || b->op == TWILL_STEP_PUT_IMM;
    bool both_add = a->op == TWILL_STEP_REDUCE && b->op == TWILL_STEP_REDUCE && a->dst == b->dst &&
                    (a->flags & b->flags & TWILL_STEP_ACC) != 0;
    if (both_add && scene->test->shape.order == TWILL_ORDER_ANY)
        return ORDER_FREE;
    bool a_moves = a->op == TWILL_STEP_COPY || a->op == TWILL_STEP_REDUCE;
    bool b_moves = b->op == TWILL_STEP_COPY || b->op == TWILL_STEP_REDUCE;
    if ((a_moves && is_private(scene, a) && (b_tells || b->op == TWILL_STEP_AWAIT)) ||
        (b_moves && is_private(scene, b) && (a_tells || a->op == TWILL_STEP_AWAIT)))
        return COMMUTES;
    bool a_waits = a->op == TWILL_STEP_WAIT || a->op == TWILL_STEP_AWAIT;
    bool b_waits = b->op == TWILL_STEP_WAIT || b->op == TWILL_STEP_AWAIT;
    if (!a_tells && !b_tells && !a_waits && !b_waits)
        return disjoint(scene, a, b) ? COMMUTES : NO_RULE;
    if (b_waits)
        return WAITS_EARLIER;
    if (a_tells)
        return TELLS_LATER;
    if (b_tells && twill_step_shape(a->op)->posts)
        return disjoint(scene, a, b) ? COMMUTES : NO_RULE; /* told of before its WAIT anyway */
    if (a->op == TWILL_STEP_AWAIT && b_tells && world->node_size[world->node[rank]] == 2)
        return PAIR;
    if (a->op == TWILL_STEP_AWAIT && b->op == TWILL_STEP_RECV)
        return COMMUTES; /* a RECV touches memory of its own, and learns nothing before its WAIT */
    bool learns = a->op != TWILL_STEP_WAIT, apart = true;
    for (uint32_t i = at; i-- > 0 && steps[i].op != TWILL_STEP_WAIT;) {
        learns = learns || steps[i].op == TWILL_STEP_RECV || steps[i].op == TWILL_STEP_RECV_REDUCE;
        apart = apart && (!twill_step_shape(steps[i].op)->posts || disjoint(scene, &steps[i], b));
    }
    /* What a WAIT teaches a COPY or REDUCE is that messages are there or gone: ranks of the node
     * learn of each other by AWAIT. */
    if (a->op == TWILL_STEP_WAIT && apart &&
        (b_moves || (twill_step_shape(b->op)->posts && is_private(scene, b))))
        return COMMUTES;
    return !learns && apart ? NOTHING_TOLD : NO_RULE;
}

/* Is what this rank has of the block in one space a copy of what it has in the other? */
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

/* One block more, that nobody reads before it is written again. (Others that read it do so after
 * that, or they would have read what nobody wrote.) */
static bool copies_more(const struct scene *scene, const struct twill_step *now)
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
            if (n > 0 && y[n - 1].write && meet(scene, &extra, &y[n - 1]))
                return false;
        }
    }
    for (uint32_t i = scene->at + 1; i < scene->whole->count; i++) {
        const struct twill_step *step = &scene->schedules[scene->rank].steps[i];
        unsigned n = touches(step, scene->rank, y);
        bool writes = false, reads = (step->flags & TWILL_STEP_ACC) != 0;
        for (unsigned k = 0; k < n; k++) {
            /* What is copied onto itself in place is as it was. */
            bool met = (!stays(now) || y[k].space == extra.space) && meet(scene, &extra, &y[k]);
            writes = writes || (met && y[k].write);
            reads = reads || (met && !y[k].write);
        }
        if (writes || (reads && (step->flags & TWILL_STEP_ACC) == 0))
            return writes && !reads;
    }
    return !peers;
}

/* Is this WAIT between messages only, none of which touches what another does? */
static bool paces(const struct scene *scene)
{
    const struct twill_step *steps = scene->whole->steps;
    uint32_t first = scene->at, end = scene->at + 1, lane = steps[scene->at].lane;
    if (steps[scene->at].op != TWILL_STEP_WAIT)
        return false;
    while (first > scene->whole->lane_first[lane] && steps[first - 1].op != TWILL_STEP_WAIT)
        first--;
    while (end < scene->whole->lane_first[lane + 1] && steps[end].op != TWILL_STEP_WAIT) {
        if (!twill_step_shape(steps[end].op)->posts && steps[end].op != TWILL_STEP_AWAIT)
            return false;
        end++;
    }
    for (uint32_t i = first; i < scene->at; i++)
        for (uint32_t j = scene->at + 1; j < end; j++)
            if (twill_step_shape(steps[i].op)->posts && !disjoint(scene, &steps[i], &steps[j]))
                return false;
    return true;
}

/* Are all ranks that the AWAIT named, and that `now` (or NULL) does not, awaited for their very
 * first step? */
static bool heard(const struct scene *scene, const struct twill_step *now)
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

/* Is the step a SIGNAL one that nobody awaits, so many came before? */
static bool signals_idly(const struct scene *scene)
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

static bool same_touches(const struct scene *scene, const struct twill_step *was,
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

/* Do two spaces of this rank hold the same in all that is right? Where data only move, and the rank
 * is to have at last what it had at first. */
static bool means_same(const struct scene *scene, const struct twill_step *was,
                       const struct twill_step *now)
{
    const struct twill_shape *shape = &scene->test->shape;
    uint32_t part = twill_operand_block(was->src) / (scene->whole->blocks / scene->whole->parts);
    unsigned from = was->src >> TWILL_BLOCK_BITS, to = now->src >> TWILL_BLOCK_BITS;
    return from + to == TWILL_SRC + TWILL_DST && from <= TWILL_DST &&
           !twill_collective_facts(shape->collective)->reduces &&
           shape->collective != TWILL_ALLTOALL && twill_shape_holds_src(shape, scene->rank, part) &&
           twill_shape_holds_dst(shape, scene->rank, part);
}

/* A data step that nothing else of the rank touches: any lane will do. */
static bool is_alone(const struct scene *scene)
{
    const struct twill_step *was = &scene->whole->steps[scene->at];
    for (uint32_t i = 0; i < scene->whole->count; i++)
        if (i != scene->at && !disjoint(scene, was, &scene->whole->steps[i]))
            return false;
    return is_private(scene, was);
}

static enum rule explain_flag(const struct scene *scene, const struct twill_step *was,
                              unsigned changed)
{
    const struct twill_shape *shape = &scene->test->shape;
    unsigned from = was->src >> TWILL_BLOCK_BITS & ~(unsigned)TWILL_PEER;
    /* The simulation is asked, too, whether all have the same. */
    if (changed == TWILL_STEP_FIRST && shape->order == TWILL_ORDER_ANY)
        return ORDER_FREE;
    if (changed == TWILL_STEP_OWN_SRC &&
        holds_same(scene->whole->steps, scene->at, TWILL_SRC, from, twill_operand_block(was->src)))
        return SAME_VALUE;
    return NO_RULE;
}

static enum rule explain(enum kind kind, const struct scene *scene)
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
        return paces(scene) ? PACES : heard(scene, NULL) ? HEARD : NO_RULE;
    case DROP_PEER:
    case ALTER_PEER:
        return heard(scene, now) ? HEARD : NO_RULE;
    case ALTER_OP:
        if (now->op != TWILL_STEP_SIGNAL && now->op != TWILL_STEP_WAIT)
            return NO_RULE;
        if (now->op == TWILL_STEP_SIGNAL && !signals_idly(scene))
            return NO_RULE;
        return paces(scene) ? PACES : heard(scene, NULL) ? HEARD : NO_RULE;
    case ALTER_ORDINAL:
        return now->ordinal > was->ordinal ? WAITS_EARLIER : NO_RULE;
    case ALTER_SRC_SPACE:
    case ALTER_DST_SPACE:
        return same_touches(scene, was, now) || means_same(scene, was, now) ||
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

static const char *simulate(const struct test_case *test, const struct twill_schedule *schedules,
                            uint32_t seeds)
{
    const char *why = NULL;
    for (uint32_t seed = 0; seed < seeds && why == NULL; seed++)
        why = test_simulate(schedules, test->world, &test->shape, seed % 2 != 0, seed);
    return why;
}

/* A step as text, up to the newline. */
static void print_step(char *text, size_t capacity, const struct twill_schedule *schedule,
                       uint32_t at)
{
    char whole[512];
    struct twill_schedule one = {.lanes = 1, .count = 1, .blocks = 1, .parts = 1};
    snprintf(text, capacity, "(gone)");
    if (at >= schedule->count)
        return;
    one.steps = &schedule->steps[at];
    one.lane_first[1] = 1;
    twill_schedule_print(&one, whole, sizeof(whole));
    char *step = strstr(whole, "lane\n") + strlen("lane\n");
    snprintf(text, capacity, "%.*s", (int)strcspn(step, "\n"), step);
}

static void complain(struct scores *scores, const struct test_case *test,
                     const struct twill_schedule *was, const struct twill_schedule *now,
                     uint32_t rank, uint32_t at, enum kind kind, const char *why)
{
    char before[200], after[200];
    scores->complaints++;
    if (scores->shown[kind]++ >= 8)
        return;
    print_step(before, sizeof(before), was, at);
    print_step(after, sizeof(after), now, at);
    print_error("%s, rank %u, step %u: \"%s\" %s: %s -> %s\n", test->name, rank, at,
                kind_names[kind], why, before, after);
}

static bool is_killed(const struct test_case *test, const struct twill_schedule *schedules)
{
    struct twill_error error = {.status = TWILL_OK};
    for (int in_place = 0; in_place < 2; in_place++)
        if (twill_schedule_verify(schedules, test->world, &test->shape, in_place != 0, &error) !=
            TWILL_OK)
            return true;
    return false;
}

static void judge(const struct test_case *test, struct twill_schedule *schedules, uint32_t rank,
                  uint32_t at, enum kind kind, struct scores *scores,
                  const struct twill_schedule *whole)
{
    struct score *score = &scores->of[index_of(test->algorithm)];
    bool killed = is_killed(test, schedules);
    score->mutants[kind]++;
    score->killed[kind] += killed;
    if (killed && kind == DROP && at % 4 == 0) {
        score->simulated++;
        score->noticed += twill_schedule_check(&schedules[rank], test->world, rank, &test->shape,
                                               NULL) != TWILL_OK ||
                          simulate(test, schedules, 8) != NULL;
    }
    if (killed)
        return;
    struct scene scene = {
        .test = test, .schedules = schedules, .whole = whole, .rank = rank, .at = at};
    enum rule rule = explain(kind, &scene);
    score->by_rule[rule]++;
    if (rule == NO_RULE) {
        complain(scores, test, whole, &schedules[rank], rank, at, kind, "survives");
        return;
    }
    const char *why = simulate(test, schedules, 8);
    if (why != NULL)
        complain(scores, test, whole, &schedules[rank], rank, at, kind, why);
}

static bool differs(const struct twill_schedule *a, const struct twill_schedule *b)
{
    return a->count != b->count ||
           memcmp(a->lane_first, b->lane_first, sizeof(a->lane_first)) != 0 ||
           memcmp(a->steps, b->steps, a->count * sizeof(*a->steps)) != 0;
}

/* All mutations of one step, or those that are drawn. */
static void mutate_step(const struct test_case *test, struct twill_schedule *schedules,
                        uint32_t rank, uint32_t at, uint32_t one_in, struct scores *scores)
{
    struct twill_schedule whole = schedules[rank];
    struct twill_step *steps = malloc((whole.count + 1) * sizeof(*steps));
    assert_non_null(steps);
    for (unsigned kind = 0; kind < KINDS; kind++) {
        for (uint32_t v = 0; v < 16; v++) {
            if (test_draw(&scores->random, one_in) != 0)
                continue;
            schedules[rank] = whole;
            schedules[rank].steps = steps;
            memcpy(steps, whole.steps, whole.count * sizeof(*steps));
            if (!mutate(&schedules[rank], test->world, at, (enum kind)kind, v) ||
                !differs(&schedules[rank], &whole))
                continue;
            twill_schedule_derive(&schedules[rank]);
            judge(test, schedules, rank, at, (enum kind)kind, scores, &whole);
        }
    }
    free(steps);
    schedules[rank] = whole;
}

static void mutate_case(const struct test_case *test, void *user)
{
    struct scores *scores = user;
    uint32_t size = test->world->size, steps = 0;
    struct twill_error error = {.status = TWILL_OK};
    struct twill_schedule *schedules = test_try_emit(test, &error);
    /* What is not right to begin with is the sweep's. */
    if (schedules == NULL || test_is_covered(&scores->seen, test, schedules) ||
        is_killed(test, schedules)) {
        if (schedules != NULL)
            test_schedules_destroy(schedules, size);
        return;
    }
    for (uint32_t rank = 0; rank < size; rank++)
        steps += schedules[rank].count;
    /* Some 25 mutants can be made of a step. */
    uint32_t one_in = test_whole() ? 1 : 25 * steps / scores->keep + 1;
    for (uint32_t rank = 0; rank < size; rank++)
        for (uint32_t at = 0; at < schedules[rank].count; at++)
            mutate_step(test, schedules, rank, at, one_in, scores);
    test_schedules_destroy(schedules, size);
}

static void mutate_world(uint32_t size, unsigned placement, uint32_t roots, struct scores *scores)
{
    struct twill_world world;
    if (!test_world(&world, size, placement, size))
        return;
    test_each_case(&world, roots, mutate_case, scores);
    twill_world_destroy(&world);
}

/* Per algorithm: made, killed, equivalent by rule; and what is left. */
static struct score print_scores(const struct scores *scores)
{
    struct score all = {.simulated = 0};
    print_message("%-32s %8s %8s %10s %9s\n", "algorithm", "mutants", "killed", "equivalent",
                  "survivors");
    for (size_t a = 0; twill_algorithm_at(a) != NULL; a++) {
        const struct score *score = &scores->of[a];
        unsigned made = 0, killed = 0, equivalent = 0;
        for (unsigned kind = 0; kind < KINDS; kind++) {
            made += score->mutants[kind];
            killed += score->killed[kind];
            all.mutants[kind] += score->mutants[kind];
            all.killed[kind] += score->killed[kind];
        }
        for (unsigned rule = 0; rule < RULES; rule++) {
            equivalent += rule == NO_RULE ? 0 : score->by_rule[rule];
            all.by_rule[rule] += score->by_rule[rule];
        }
        all.simulated += score->simulated;
        all.noticed += score->noticed;
        print_message("%-32s %8u %8u %10u %9u\n", twill_algorithm_at(a)->name, made, killed,
                      equivalent, score->by_rule[NO_RULE]);
    }
    for (unsigned kind = 0; kind < KINDS; kind++)
        print_message("%-16s %8u mutants %8u killed\n", kind_names[kind], all.mutants[kind],
                      all.killed[kind]);
    for (unsigned rule = 1; rule < RULES; rule++)
        print_message("equivalent: %-16s %8u\n", rule_names[rule], all.by_rule[rule]);
    print_message("of %u dropped steps the simulation notices %u\n", all.simulated, all.noticed);
    return all;
}

static void test_mutants(void **state)
{
    (void)state;
    struct scores *scores = calloc(1, sizeof(*scores));
    assert_non_null(scores);
    scores->random = test_seed();
    scores->keep = TEST_SLOW ? 8 : 30;
    for (uint32_t size = 1; size <= (TEST_SLOW ? 4 : 6); size++)
        for (unsigned placement = 0; placement < TEST_PLACEMENT_COUNT; placement++)
            mutate_world(size, placement, 2, scores);
    if (!TEST_SLOW) {
        mutate_world(9, TEST_ONE_NODE, 1, scores);
        mutate_world(9, TEST_SQUARE, 1, scores);
        mutate_world(8, TEST_ROUND_ROBIN, 1, scores);
        mutate_world(10, TEST_LONE_AND_MANY, 1, scores);
    }
    struct score all = print_scores(scores);
    unsigned complaints = scores->complaints;
    free(scores);
    assert_int_equal(complaints, 0);
    assert_true(all.noticed * 2 > all.simulated);
}

/* The simulation itself: every schedule right, at more sizes and seeds. */
static void simulate_case(const struct test_case *test, void *user)
{
    unsigned *count = user;
    struct twill_schedule *schedules = test_emit(test);
    const char *why = simulate(test, schedules, 4);
    if (why != NULL)
        fail_msg("%s: %s", test->name, why);
    ++*count;
    test_schedules_destroy(schedules, test->world->size);
}

static void test_second_opinion(void **state)
{
    (void)state;
    unsigned count = 0;
    for (uint32_t size = 1; size <= 33; size += size < 13 ? 1 : 10) {
        for (unsigned placement = 0; placement < TEST_PLACEMENT_COUNT; placement++) {
            struct twill_world world;
            if (!test_world(&world, size, placement, 5))
                continue;
            test_each_case(&world, 2, simulate_case, &count);
            twill_world_destroy(&world);
        }
    }
    assert_true(count > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_second_opinion),
                                       cmocka_unit_test(test_mutants)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
