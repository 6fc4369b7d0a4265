/* SPDX-License-Identifier: Apache-2.0 */
/* Make mutants: see mutants.h. */
#include "tests/support/mutants.h"
#include "algorithms/schedule/step_table.h"

#include <string.h>

const char *test_mutation_name(enum test_mutation kind)
{
    static const char *const names[TEST_MUTATIONS] = {
        "drop step",       "drop peer",       "alter peer",   "alter dst",  "alter src",
        "alter dst space", "alter src space", "alter length", "alter flag", "alter ordinal",
        "alter operation", "alter lane",      "twice",        "swap"};
    return names[kind];
}

/* Insert a copy of step `at` at `to` of a lane; `steps` must have capacity for it. */
static void insert_step(struct twill_schedule *s, uint32_t lane, uint32_t at, uint32_t to)
{
    struct twill_step step = s->steps[at];
    step.lane = (uint8_t)lane;
    memmove(&s->steps[to + 1], &s->steps[to], (s->count - to) * sizeof(step));
    s->steps[to] = step;
    s->count++;
    for (uint32_t l = lane + 1; l <= TWILL_SCHEDULE_LANES; l++)
        s->lane_first[l]++;
}

static void drop_step(struct twill_schedule *s, uint32_t at)
{
    uint32_t lane = s->steps[at].lane;
    memmove(&s->steps[at], &s->steps[at + 1], (s->count - at - 1) * sizeof(*s->steps));
    s->count--;
    for (uint32_t l = lane + 1u; l <= TWILL_SCHEDULE_LANES; l++)
        s->lane_first[l]--;
}

/* Move to the end of lane v, but before a WAIT that ends it. */
static bool move_to(struct twill_schedule *s, uint32_t at, uint32_t v)
{
    uint32_t lane = s->steps[at].lane;
    if (v >= s->lanes || v == lane)
        return false;
    uint32_t to = s->lane_first[v + 1];
    to -= to > s->lane_first[v] && s->steps[to - 1].op == TWILL_STEP_WAIT;
    insert_step(s, v, at, to);
    drop_step(s, to <= at ? at + 1 : at);
    return true;
}

static bool mutate_peer(struct twill_step *step, const struct twill_world *world,
                        enum test_mutation kind, uint32_t v)
{
    unsigned peers = twill_step_peers(step);
    if (kind == ALTER_PEER) {
        if (v >= 2 * peers)
            return false;
        step->peer[v / 2] = (uint16_t)((step->peer[v / 2] + 1 + v % 2) % world->size);
        return true;
    }
    if (v >= peers || step->nsrc < 2)
        return false;
    memmove(&step->peer[v], &step->peer[v + 1], (peers - v - 1) * sizeof(step->peer[0]));
    step->peer[--step->nsrc] = 0;
    return true;
}

static bool mutate_operand(struct twill_step *step, enum test_mutation kind, uint32_t v)
{
    const struct twill_step_shape *shape = twill_step_shape(step->op);
    bool dst = kind == ALTER_DST || kind == ALTER_DST_SPACE;
    twill_operand *o = dst ? &step->dst : &step->src;
    if ((dst ? shape->dst : shape->src) == 0)
        return false;
    if (kind == ALTER_DST || kind == ALTER_SRC) {
        *o ^= 1;
        return v == 0;
    }
    *o = twill_operand_make(v / 2 | (v % 2 ? TWILL_PEER : 0u), twill_operand_block(*o));
    return v < 2 * TWILL_SPACE_COUNT;
}

bool test_mutate(struct twill_schedule *s, const struct twill_world *world, uint32_t at,
                 enum test_mutation kind, uint32_t v)
{
    struct twill_step *step = &s->steps[at], other = *step;
    const struct twill_step_shape *shape = twill_step_shape(step->op);
    switch (kind) {
    case DROP:
        drop_step(s, at);
        return v == 0;
    case DROP_PEER:
    case ALTER_PEER:
        return mutate_peer(step, world, kind, v);
    case ALTER_DST:
    case ALTER_SRC:
    case ALTER_DST_SPACE:
    case ALTER_SRC_SPACE:
        return mutate_operand(step, kind, v);
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
        /* Most other steps may be repeated without effect. */
        if (v > 0 || (!shape->posts && step->op != TWILL_STEP_PUT_IMM &&
                      (step->flags & TWILL_STEP_ACC) == 0))
            return false;
        insert_step(s, step->lane, at, at);
        return true;
    default:
        if (v > 0 || at + 1 >= s->lane_first[step->lane + 1])
            return false;
        *step = step[1];
        step[1] = other;
        return true;
    }
}
