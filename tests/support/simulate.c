/* SPDX-License-Identifier: Apache-2.0 */
/* A simulation of schedules, independent of the verifier and simpler: it runs all ranks over small
 * arrays in a random order of steps. Each element is a sum (is each contribution in it once?), a
 * word that depends on the order of reductions (equal on all ranks?), and a count of divisions.
 * Posted messages move at any time before their WAIT; some ranks are made slow. */
#include "tests/support/schedules.h"

#include <stdlib.h>
#include <string.h>

#define RUNS    3
#define COPIES  2
#define GARBAGE (-1000000007)

struct value {
    int64_t sum;
    uint64_t order;
    uint32_t divided;
    bool partial;
};

struct simulated_message {
    struct simulated_message *next;
    uint32_t blocks;
    struct value value[];
};

struct lane {
    uint32_t run, at, end, posted; /* first step posted since the last WAIT */
    bool *moved;                   /* [steps]: this posted step has happened */
    uint64_t flag;                 /* run * 1000 + ordinal */
    uint64_t imm[COPIES];          /* run + 1 of the line */
};

struct world {
    const struct twill_schedule *schedules;
    const struct twill_world *world;
    const struct twill_shape *shape;
    bool in_place;
    uint64_t random;
    uint32_t blocks, shard_blocks;
    struct value **memory;            /* [rank * spaces + space] */
    struct lane *lane;                /* [rank * lanes + lane] */
    struct simulated_message **queue; /* [(lane * ranks + from) * ranks + to] */
    uint32_t *run, *running;          /* [rank] */
    struct value *result;             /* [run * blocks] */
    const char *why;
};

static uint32_t draw_world(struct world *w, uint32_t below)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((w->random >> 33) % below);
}

static struct value input(uint32_t run, uint32_t rank, uint32_t block)
{
    uint64_t x = ((uint64_t)run * 8191 + rank) * 131071 + block + 1;
    x *= 0x9e3779b97f4a7c15u;
    return (struct value){.sum = (int64_t)(x >> 40), .order = x};
}

static struct value *cell(const struct world *w, uint32_t rank, uint32_t run, unsigned lane,
                          unsigned space, uint32_t block)
{
    const struct twill_schedule *s = &w->schedules[rank];
    if (space == TWILL_SRC && w->in_place &&
        twill_shape_holds_dst(w->shape, rank, block / w->shard_blocks))
        space = TWILL_DST;
    size_t at = block;
    if (space == TWILL_SHARED)
        at += (size_t)(run % COPIES) * s->shared_blocks;
    if (space == TWILL_IMM)
        at = run % COPIES * TWILL_SCHEDULE_LANES + lane;
    return &w->memory[rank * TWILL_SPACE_COUNT + space][at];
}

static struct value *operand_value(const struct world *w, uint32_t rank,
                                   const struct twill_step *step, twill_operand o, unsigned k,
                                   uint32_t i)
{
    uint32_t run = w->run[rank], owner = twill_operand_is_peer(o) ? step->peer[k] : rank;
    unsigned space = twill_operand_space(o);
    if (twill_operand_is_peer(o) && owner == rank && (step->flags & TWILL_STEP_OWN_SRC))
        space = TWILL_SRC;
    return cell(w, owner, run, step->lane, space, twill_operand_block(o) + i);
}

static struct value reduce_two(struct value a, struct value b)
{
    return (struct value){.partial = true,
                          .sum = a.sum + b.sum,
                          .order = (a.order ^ 0xabcdef) * 0x100000001b3u + b.order,
                          .divided = a.divided + b.divided};
}

static void finish_value(struct value *value, const struct twill_step *step)
{
    bool final = (step->flags & TWILL_STEP_FINAL) != 0;
    value->divided += final;
    value->partial = !final;
}

/* Return whether the value is a partial, or not, as the step's flags say. */
static void check_flag(struct world *w, bool partial, const struct twill_step *step, unsigned flag)
{
    if (partial != ((step->flags & flag) != 0))
        w->why = "a partial is taken for a value, or a value for a partial";
}

static void put_cell(struct world *w, uint32_t rank, const struct twill_step *step, uint32_t i,
                     struct value value)
{
    if (value.partial && twill_operand_space(step->dst) == TWILL_DST)
        w->why = "a partial is put where only values may be";
    *operand_value(w, rank, step, step->dst, 0, i) = value;
}

static struct simulated_message **queue_of(const struct world *w, unsigned lane, uint32_t from,
                                           uint32_t to)
{
    return &w->queue[((size_t)lane * w->world->size + from) * w->world->size + to];
}

static void move_send(struct world *w, uint32_t rank, const struct twill_step *step)
{
    struct simulated_message **at = queue_of(w, step->lane, rank, step->peer[0]);
    struct simulated_message *m = calloc(1, sizeof(*m) + step->blocks * sizeof(m->value[0]));
    while (*at != NULL)
        at = &(*at)->next;
    *at = m;
    m->blocks = step->blocks;
    for (uint32_t i = 0; i < step->blocks; i++) {
        m->value[i] = *operand_value(w, rank, step, step->src, 0, i);
        check_flag(w, m->value[i].partial, step, TWILL_STEP_PARTIAL);
    }
}

static bool move_recv(struct world *w, uint32_t rank, const struct twill_step *step)
{
    struct simulated_message **queue = queue_of(w, step->lane, step->peer[0], rank), *m = *queue;
    if (m == NULL)
        return false;
    *queue = m->next;
    if (m->blocks != step->blocks)
        w->why = "lengths of a message differ";
    for (uint32_t i = 0; i < step->blocks && w->why == NULL; i++) {
        struct value got = m->value[i];
        check_flag(w, got.partial, step, TWILL_STEP_PARTIAL);
        if (step->op == TWILL_STEP_RECV_REDUCE) {
            struct value mine = *operand_value(w, rank, step, step->src, 0, i);
            check_flag(w, mine.partial, step, TWILL_STEP_PARTIAL_OWN);
            got = step->flags & TWILL_STEP_FIRST ? reduce_two(got, mine) : reduce_two(mine, got);
            finish_value(&got, step);
        }
        put_cell(w, rank, step, i, got);
    }
    free(m);
    return true;
}

/* Complete one posted message of the lane, the oldest of its channel. */
static bool move_posted(struct world *w, uint32_t rank, struct lane *lane)
{
    const struct twill_step *steps = w->schedules[rank].steps;
    uint32_t count = lane->at - lane->posted, skip = count > 0 ? draw_world(w, count) : 0;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t at = lane->posted + (skip + k) % count, older = lane->posted;
        const struct twill_step *step = &steps[at];
        if (lane->moved[at] || step->op > TWILL_STEP_RECV_REDUCE)
            continue;
        while (older < at &&
               (lane->moved[older] || steps[older].op > TWILL_STEP_RECV_REDUCE ||
                steps[older].peer[0] != step->peer[0] ||
                (steps[older].op == TWILL_STEP_SEND) != (step->op == TWILL_STEP_SEND)))
            older++;
        if (older < at)
            continue;
        if (step->op == TWILL_STEP_SEND)
            move_send(w, rank, step);
        else if (!move_recv(w, rank, step))
            continue;
        return lane->moved[at] = true;
    }
    return false;
}

/* Operand k of a REDUCE or COPY. */
static struct value source(struct world *w, uint32_t rank, const struct twill_step *step,
                           unsigned k, uint32_t i)
{
    struct value value = *operand_value(w, rank, step, step->src, k, i);
    bool own = (step->flags & TWILL_STEP_OWN_SRC) != 0 && step->peer[k] == rank;
    check_flag(w, value.partial || (own && (step->flags & TWILL_STEP_PARTIAL) != 0), step,
               TWILL_STEP_PARTIAL);
    return value;
}

static void reduce_step(struct world *w, uint32_t rank, const struct twill_step *step)
{
    for (uint32_t i = 0; i < step->blocks; i++) {
        struct value *dst = operand_value(w, rank, step, step->dst, 0, i);
        struct value sum = source(w, rank, step, 0, i);
        bool acc = step->flags & TWILL_STEP_ACC, last = step->flags & TWILL_STEP_FIRST;
        if (acc)
            check_flag(w, dst->partial, step, TWILL_STEP_PARTIAL_OWN);
        if (acc && !last)
            sum = reduce_two(*dst, sum);
        for (unsigned k = 1; k < step->nsrc; k++)
            sum = reduce_two(sum, source(w, rank, step, k, i));
        if (acc && last)
            sum = reduce_two(sum, *dst);
        if (step->op == TWILL_STEP_REDUCE)
            finish_value(&sum, step);
        put_cell(w, rank, step, i, sum);
    }
}

static bool message_is_there(const struct world *w, const struct twill_step *step, uint32_t run)
{
    for (unsigned k = 0; k < step->nsrc; k++) {
        const struct lane *peer = &w->lane[step->peer[k] * TWILL_SCHEDULE_LANES + step->lane];
        if (step->flags & TWILL_STEP_IMM ? peer->imm[run % COPIES] != run + 1
                                         : peer->flag < run * 1000ull + 1000 + step->ordinal)
            return false;
    }
    return true;
}

/* Execute the lane's next step, if it can proceed. */
static bool do_step(struct world *w, uint32_t rank, struct lane *lane)
{
    const struct twill_step *step = &w->schedules[rank].steps[lane->at];
    uint32_t run = w->run[rank];
    switch (step->op) {
    case TWILL_STEP_WAIT:
        for (uint32_t i = lane->posted; i < lane->at; i++)
            if (!lane->moved[i] && w->schedules[rank].steps[i].op <= TWILL_STEP_RECV_REDUCE)
                return false;
        lane->posted = lane->at + 1;
        break;
    case TWILL_STEP_AWAIT:
        if (!message_is_there(w, step, run))
            return false;
        break;
    case TWILL_STEP_SIGNAL:
        lane->flag = (lane->flag < run * 1000ull + 1000 ? run * 1000ull + 1000 : lane->flag) + 1;
        break;
    case TWILL_STEP_PUT_IMM:
        *cell(w, rank, run, step->lane, TWILL_IMM, 0) =
            *operand_value(w, rank, step, step->src, 0, 0);
        lane->imm[run % COPIES] = run + 1;
        break;
    case TWILL_STEP_REDUCE:
    case TWILL_STEP_COPY:
        reduce_step(w, rank, step);
        break;
    default:
        lane->moved[lane->at] = false;
        break;
    }
    lane->at++;
    return true;
}

static bool cell_holds(const struct world *w, uint32_t rank, unsigned space, uint32_t block)
{
    uint32_t shard = block / w->shard_blocks;
    return space == TWILL_SRC ? twill_shape_holds_src(w->shape, rank, shard)
                              : twill_shape_holds_dst(w->shape, rank, shard);
}

static void scribble(struct world *w, uint32_t rank, unsigned space)
{
    for (uint32_t b = 0; b < w->blocks; b++)
        if (cell_holds(w, rank, space, b))
            *cell(w, rank, 0, 0, space, b) = (struct value){.sum = GARBAGE};
}

static void begin_rank(struct world *w, uint32_t rank)
{
    const struct twill_schedule *s = &w->schedules[rank];
    for (uint32_t b = 0; b < w->blocks; b++)
        if (cell_holds(w, rank, TWILL_DST, b) && cell(w, rank, 0, 0, TWILL_DST, b)->sum != GARBAGE)
            w->why = "a buffer was written after the end";
    scribble(w, rank, TWILL_DST);
    for (uint32_t b = 0; b < w->blocks; b++)
        if (cell_holds(w, rank, TWILL_SRC, b))
            *cell(w, rank, 0, 0, TWILL_SRC, b) = input(w->run[rank], rank, b);
    for (uint32_t l = 0; l < s->lanes; l++) {
        struct lane *lane = &w->lane[rank * TWILL_SCHEDULE_LANES + l];
        lane->at = lane->posted = s->lane_first[l];
        lane->end = s->lane_first[l + 1];
    }
    w->running[rank] = 1;
}

/* Return the sum that a block of DST should have. */
static int64_t expected_sum(const struct world *w, uint32_t rank, uint32_t run, uint32_t block)
{
    uint32_t shard = block / w->shard_blocks;
    bool reduces = twill_collective_facts(w->shape->collective)->reduces;
    if (w->shape->collective == TWILL_ALLTOALL)
        return input(run, shard, rank * w->shard_blocks + block % w->shard_blocks).sum;
    int64_t sum = 0;
    for (uint32_t r = 0; r < w->world->size; r++)
        if (reduces || cell_holds(w, r, TWILL_SRC, block))
            sum += input(run, r, block).sum;
    return sum;
}

static void check_rank(struct world *w, uint32_t rank)
{
    uint32_t run = w->run[rank];
    bool reduces = twill_collective_facts(w->shape->collective)->reduces && w->world->size > 1;
    for (uint32_t b = 0; b < w->blocks; b++) {
        if (!cell_holds(w, rank, TWILL_DST, b))
            continue;
        const struct value *got = cell(w, rank, run, 0, TWILL_DST, b);
        struct value *same = &w->result[run * w->blocks + b];
        if (got->sum != expected_sum(w, rank, run, b))
            w->why = "a value is wrong";
        else if (got->divided != reduces)
            w->why = "a value is not divided once";
        else if (reduces && same->order != 0 && same->order != got->order)
            w->why = "ranks differ";
        *same = *got;
    }
    scribble(w, rank, TWILL_SRC);
    scribble(w, rank, TWILL_DST);
    w->running[rank] = 0;
    w->run[rank]++;
}

/* Return whether the next run may start: with eager schedules all ranks of the node must have
 * started the run COPIES - 1 before it. */
static bool may_begin(const struct world *w, uint32_t rank)
{
    for (uint32_t r = 0; r < w->world->size && w->schedules[rank].eager; r++)
        if (w->world->node[r] == w->world->node[rank] &&
            w->run[r] + w->running[r] + COPIES - 1 <= w->run[rank])
            return false;
    return true;
}

/* Make one move of a rank; false if it cannot proceed. */
static bool move_rank(struct world *w, uint32_t rank)
{
    if (w->run[rank] == RUNS)
        return false;
    if (w->running[rank] == 0) {
        if (!may_begin(w, rank))
            return false;
        begin_rank(w, rank);
        return true;
    }
    bool ended = true;
    for (uint32_t l = 0; l < w->schedules[rank].lanes; l++) {
        struct lane *lane = &w->lane[rank * TWILL_SCHEDULE_LANES + l];
        ended = ended && lane->at == lane->end;
        bool network_first = draw_world(w, 2) == 0;
        if ((network_first && move_posted(w, rank, lane)) ||
            (lane->at < lane->end && do_step(w, rank, lane)) || move_posted(w, rank, lane))
            return true;
    }
    if (ended)
        check_rank(w, rank);
    return ended;
}

static void run_world(struct world *w)
{
    uint32_t size = w->world->size, left = size * RUNS, slow = draw_world(w, size);
    while (w->why == NULL && left > 0) {
        uint32_t rank = draw_world(w, size), tried = 0;
        /* The slow rank moves rarely, or if no other can. */
        if (rank == slow && draw_world(w, 32) != 0)
            rank = (rank + 1) % size;
        uint32_t before = w->run[rank];
        while (tried < size && !move_rank(w, rank)) {
            rank = (rank + 1) % size;
            before = w->run[rank];
            tried++;
        }
        if (tried == size)
            w->why = "deadlock";
        left -= tried < size ? w->run[rank] - before : 0;
    }
}

static size_t cells_of(const struct world *w, uint32_t rank, unsigned space)
{
    const struct twill_schedule *s = &w->schedules[rank];
    return space == TWILL_TMP      ? s->tmp_blocks
           : space == TWILL_SHARED ? (size_t)COPIES * s->shared_blocks
           : space == TWILL_IMM    ? (size_t)COPIES * TWILL_SCHEDULE_LANES
                                   : w->blocks;
}

const char *test_simulate(const struct twill_schedule *schedules, const struct twill_world *world,
                          const struct twill_shape *shape, bool in_place, uint32_t seed)
{
    size_t size = world->size, lanes = size * TWILL_SCHEDULE_LANES;
    struct world w = {.schedules = schedules,
                      .world = world,
                      .shape = shape,
                      .in_place = in_place && shape->collective != TWILL_ALLTOALL,
                      .random = seed,
                      .blocks = schedules[0].blocks,
                      .shard_blocks = schedules[0].blocks / schedules[0].shards};
    w.memory = calloc(size * TWILL_SPACE_COUNT, sizeof(*w.memory));
    w.lane = calloc(lanes, sizeof(*w.lane));
    w.queue = calloc(lanes * size, sizeof(struct simulated_message *));
    w.run = calloc(size, sizeof(*w.run));
    w.running = calloc(size, sizeof(*w.running));
    w.result = calloc((size_t)RUNS * w.blocks, sizeof(*w.result));
    for (uint32_t i = 0; i < size * TWILL_SPACE_COUNT; i++)
        w.memory[i] = calloc(cells_of(&w, i / TWILL_SPACE_COUNT, i % TWILL_SPACE_COUNT) + 1,
                             sizeof(struct value));
    for (uint32_t i = 0; i < lanes; i++)
        w.lane[i].moved = calloc(schedules[i / TWILL_SCHEDULE_LANES].count + 1, sizeof(bool));
    for (uint32_t r = 0; r < size; r++) {
        scribble(&w, r, TWILL_SRC);
        scribble(&w, r, TWILL_DST);
    }
    run_world(&w);
    for (uint32_t i = 0; i < lanes * size; i++) {
        for (struct simulated_message *m = w.queue[i], *next; m != NULL; m = next) {
            next = m->next;
            free(m);
            w.why = w.why ? w.why : "a message was never received";
        }
    }
    for (uint32_t i = 0; i < size * TWILL_SPACE_COUNT; i++)
        free(w.memory[i]);
    for (uint32_t i = 0; i < lanes; i++)
        free(w.lane[i].moved);
    free(w.memory);
    free(w.lane);
    free(w.queue);
    free(w.run);
    free(w.running);
    free(w.result);
    return w.why;
}
