/* SPDX-License-Identifier: Apache-2.0 */
/* The emitter. It appends steps, splits those that exceed a field, and makes the schedule. */
#include "algorithms/schedule/emit.h"
#include "algorithms/schedule/step_table.h"

#include <stdlib.h>
#include <string.h>

struct twill_group twill_group_world(const struct twill_emitter *e, uint32_t blocks)
{
    return (struct twill_group){.rank = e->world->order,
                                .size = e->world->size,
                                .me = e->world->position[e->rank],
                                .blocks = blocks};
}

struct twill_group twill_group_ranks(const struct twill_emitter *e, uint32_t blocks)
{
    return (struct twill_group){
        .rank = e->world->by_rank, .size = e->world->size, .me = e->rank, .blocks = blocks};
}

struct twill_group twill_group_node(const struct twill_emitter *e)
{
    const struct twill_world *w = e->world;
    uint32_t node = w->node[e->rank];
    return (struct twill_group){.rank = w->member + w->node_first[node],
                                .size = w->node_size[node],
                                .me = w->local[e->rank],
                                .blocks = e->blocks};
}

uint32_t twill_ring_ranges(struct twill_range range[2], uint32_t size, uint32_t first,
                           uint32_t length)
{
    uint32_t head = (uint32_t)twill_min(length, size - first);
    range[0] = (struct twill_range){.first = first, .length = head};
    range[1] = (struct twill_range){.first = 0, .length = length - head};
    return (head > 0) + (head < length);
}

uint32_t twill_group_block(const struct twill_group *g, uint32_t position)
{
    uint32_t i = position % g->size;
    return g->first + (g->shard == NULL ? i : g->shard[i]) * (g->blocks / g->size);
}

bool twill_applies_everywhere(const struct twill_world *world, const struct twill_shape *shape)
{
    (void)world;
    (void)shape;
    return true;
}

/* Append one step to the current lane, or set no_memory. */
static void append_step(struct twill_emitter *e, struct twill_step step)
{
    struct twill_step_list *list = &e->lanes[e->lane];
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 32;
        struct twill_step *steps = realloc(list->steps, capacity * sizeof(*steps));
        if (steps == NULL) {
            e->no_memory = true;
            return;
        }
        list->steps = steps;
        list->capacity = capacity;
    }
    step.lane = (uint8_t)e->lane;
    list->steps[list->count++] = step;
}

/* Move the steps into `schedule`. Frees everything else that the emitter holds, also on failure.
 * Returns TWILL_ERR_MEMORY if an allocation failed here or earlier. */
static twill_status finish(struct twill_emitter *e, struct twill_schedule *schedule,
                           struct twill_error *error)
{
    size_t count = 0;
    uint32_t lanes = 1;
    for (uint32_t l = 0; l < TWILL_SCHEDULE_LANES; l++) {
        count += e->lanes[l].count;
        if (e->lanes[l].count > 0)
            lanes = l + 1;
    }
    memset(schedule, 0, sizeof(*schedule));
    struct twill_step *steps = malloc((count + 1) * sizeof(*steps)); /* never 0 bytes */
    bool fits = steps != NULL && !e->no_memory && count <= UINT32_MAX;
    uint32_t at = 0;
    for (uint32_t l = 0; l < TWILL_SCHEDULE_LANES; l++) {
        schedule->lane_first[l] = at;
        if (fits && e->lanes[l].count > 0)
            memcpy(steps + at, e->lanes[l].steps, e->lanes[l].count * sizeof(*steps));
        at += (uint32_t)e->lanes[l].count;
        free(e->lanes[l].steps);
    }
    schedule->lane_first[TWILL_SCHEDULE_LANES] = at;
    if (!fits) {
        free(steps);
        memset(schedule, 0, sizeof(*schedule));
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rank %u: no memory for a schedule of %zu steps",
                          e->rank, count);
    }
    schedule->steps = steps;
    schedule->lanes = lanes;
    schedule->count = at;
    schedule->shards = e->shards;
    schedule->blocks = e->blocks;
    schedule->tmp_blocks = e->tmp_blocks;
    schedule->shared_blocks = e->shared_blocks;
    schedule->uses_peer_src = e->uses_peer_src;
    schedule->uses_peer_dst = e->uses_peer_dst;
    schedule->eager = e->eager;
    twill_schedule_derive(schedule);
    return TWILL_OK;
}

twill_status twill_schedule_emit_unchecked(struct twill_schedule *schedule,
                                           const struct twill_algorithm *algorithm,
                                           const struct twill_world *world, uint32_t rank,
                                           const struct twill_shape *shape,
                                           struct twill_error *error)
{
    struct twill_emitter e = {.world = world, .rank = rank, .shards = 1, .blocks = 1};
    algorithm->emit(&e, shape);
    return finish(&e, schedule, error);
}

/* Append a step of `blocks` blocks. If its 16-bit field cannot hold that number, append several
 * steps for consecutive ranges of blocks. Sender and receiver of a message split it at the same
 * places, so that the parts match. With 0 blocks it is one step without operands. */
static void append_split(struct twill_emitter *e, struct twill_step step, uint32_t blocks)
{
    if (blocks == 0) /* a message without data has no operand */
        step.dst = step.src = 0;
    do {
        step.blocks = (uint16_t)twill_min(blocks, UINT16_MAX);
        append_step(e, step);
        step.dst += step.op == TWILL_STEP_SEND ? 0 : step.blocks;
        step.src += step.op == TWILL_STEP_RECV ? 0 : step.blocks;
        blocks -= step.blocks;
    } while (blocks > 0);
}

void twill_emit_send(struct twill_emitter *e, uint32_t peer, twill_operand src, uint32_t blocks,
                     unsigned flags)
{
    append_split(
        e,
        (struct twill_step){
            .op = TWILL_STEP_SEND, .flags = (uint8_t)flags, .src = src, .peer = {(uint16_t)peer}},
        blocks);
}

void twill_emit_recv(struct twill_emitter *e, uint32_t peer, twill_operand dst, uint32_t blocks,
                     unsigned flags)
{
    append_split(
        e,
        (struct twill_step){
            .op = TWILL_STEP_RECV, .flags = (uint8_t)flags, .dst = dst, .peer = {(uint16_t)peer}},
        blocks);
}

void twill_emit_recv_reduce(struct twill_emitter *e, uint32_t peer, twill_operand dst,
                            twill_operand src, uint32_t blocks, unsigned flags)
{
    append_split(e,
                 (struct twill_step){.op = TWILL_STEP_RECV_REDUCE,
                                     .flags = (uint8_t)flags,
                                     .dst = dst,
                                     .src = src,
                                     .peer = {(uint16_t)peer}},
                 blocks);
}

void twill_emit_widen(struct twill_emitter *e, twill_operand dst, twill_operand src,
                      uint32_t blocks)
{
    append_split(e, (struct twill_step){.op = TWILL_STEP_REDUCE, .nsrc = 1, .dst = dst, .src = src},
                 blocks);
}

void twill_emit_accumulate(struct twill_emitter *e, twill_operand dst, twill_operand src,
                           uint32_t blocks, unsigned flags)
{
    append_split(e,
                 (struct twill_step){.op = TWILL_STEP_REDUCE,
                                     .nsrc = 1,
                                     .flags = (uint8_t)(flags | TWILL_STEP_ACC),
                                     .dst = dst,
                                     .src = src},
                 blocks);
}

void twill_emit_reduce(struct twill_emitter *e, const struct twill_group *g, twill_operand dst,
                       twill_operand src, uint32_t blocks, unsigned flags)
{
    for (uint32_t first = 0, n; first < g->size; first += n) {
        struct twill_step step = {.op = TWILL_STEP_REDUCE, .dst = dst, .src = src};
        /* A kernel takes 8 sources, the accumulator included. */
        n = (uint32_t)twill_min(g->size - first, TWILL_STEP_PEERS - (first > 0));
        step.nsrc = (uint8_t)n;
        for (uint32_t i = 0; i < n; i++)
            step.peer[i] = (uint16_t)g->rank[first + i];
        if (first > 0)
            step.flags |= TWILL_STEP_ACC | TWILL_STEP_PARTIAL_OWN;
        step.flags |= (uint8_t)(flags & TWILL_STEP_PARTIAL);
        if (first + n == g->size)
            step.flags |= (uint8_t)(flags & TWILL_STEP_FINAL);
        if (g->me >= first && g->me < first + n)
            step.flags |= (uint8_t)(flags & TWILL_STEP_OWN_SRC);
        append_split(e, step, blocks);
    }
}

void twill_emit_reduce_complete(struct twill_emitter *e, const struct twill_group *g,
                                twill_operand dst, twill_operand scratch, twill_operand src,
                                uint32_t blocks, unsigned flags)
{
    bool several = g->size > TWILL_STEP_PEERS;
    twill_emit_reduce(e, g, several ? scratch : dst, src, blocks, flags | TWILL_STEP_FINAL);
    if (several && scratch != dst)
        twill_emit_copy(e, dst, scratch, 0, blocks, 0);
}

void twill_emit_copy(struct twill_emitter *e, twill_operand dst, twill_operand src, uint32_t peer,
                     uint32_t blocks, unsigned flags)
{
    bool names_peer = twill_operand_is_peer(dst) || twill_operand_is_peer(src);
    append_split(e,
                 (struct twill_step){.op = TWILL_STEP_COPY,
                                     .flags = (uint8_t)flags,
                                     .dst = dst,
                                     .src = src,
                                     .peer = {(uint16_t)(names_peer ? peer : 0)}},
                 blocks);
}

void twill_emit_complete(struct twill_emitter *e, twill_operand dst, twill_operand src,
                         uint32_t blocks)
{
    append_split(e,
                 (struct twill_step){.op = TWILL_STEP_REDUCE,
                                     .nsrc = 1,
                                     .flags = TWILL_STEP_PARTIAL | TWILL_STEP_FINAL,
                                     .dst = dst,
                                     .src = src},
                 blocks);
}

void twill_emit_alone(struct twill_emitter *e, const struct twill_group *g, enum twill_space from)
{
    twill_operand dst = data_at(TWILL_DST, g->first);
    twill_operand src = data_at(from, g->first);
    if (g->blocks > 0 && from == TWILL_TMP)
        twill_emit_complete(e, dst, src, g->blocks);
    else if (g->blocks > 0 && from != TWILL_DST)
        twill_emit_copy(e, dst, src, 0, g->blocks, 0);
}

void twill_emit_put_imm(struct twill_emitter *e, twill_operand src, unsigned flags)
{
    append_step(e, (struct twill_step){
                       .op = TWILL_STEP_PUT_IMM, .flags = (uint8_t)flags, .blocks = 1, .src = src});
}

void twill_emit_wait(struct twill_emitter *e)
{
    append_step(e, (struct twill_step){.op = TWILL_STEP_WAIT});
}

void twill_emit_signal(struct twill_emitter *e)
{
    append_step(e, (struct twill_step){.op = TWILL_STEP_SIGNAL});
}

void twill_emit_await(struct twill_emitter *e, const struct twill_group *g, uint32_t ordinal,
                      unsigned flags)
{
    struct twill_step step = {.op = TWILL_STEP_AWAIT, .flags = (uint8_t)flags};
    step.ordinal = (uint16_t)ordinal;
    /* Start with the next rank, so that not all ranks of a node read the same line at once. */
    for (uint32_t i = 1; i < g->size; i++) {
        step.peer[step.nsrc++] = (uint16_t)g->rank[(g->me + i) % g->size];
        if (step.nsrc == TWILL_STEP_PEERS || i + 1 == g->size) {
            append_step(e, step);
            memset(step.peer, 0, sizeof(step.peer));
            step.nsrc = 0;
        }
    }
}

void twill_emit_await_one(struct twill_emitter *e, uint32_t peer, uint32_t ordinal, unsigned flags)
{
    append_step(e, (struct twill_step){.op = TWILL_STEP_AWAIT,
                                       .nsrc = 1,
                                       .flags = (uint8_t)flags,
                                       .ordinal = (uint16_t)ordinal,
                                       .peer = {(uint16_t)peer}});
}

/* --- WAITs by what steps access, AWAITs by what messages prove -------------------------------- */
/* The blocks of this rank that a step accesses through one operand, and whether it writes them.
 * `space` is DST for SRC, because in place they are the same memory. A local variable of its
 * caller. */
struct step_touch {
    unsigned space;
    uint32_t first, blocks;
    bool write;
};

/* Return whether two accesses have a block in common and at least one of them writes. */
static bool touches_overlap(const struct step_touch *a, const struct step_touch *b)
{
    return a->space == b->space && (a->write || b->write) && a->first < b->first + b->blocks &&
           b->first < a->first + a->blocks;
}

/* Return what an operand of a step touches. SRC counts as DST, because in place it is the same
 * memory. An operand in the memory of a peer touches no blocks of this rank. */
static struct step_touch touch_of(const struct twill_step *step, twill_operand operand, bool write)
{
    unsigned space = twill_operand_space(operand);
    return (struct step_touch){.space = space == TWILL_SRC ? TWILL_DST : space,
                               .first = twill_operand_block(operand),
                               .blocks = twill_operand_is_peer(operand) ? 0 : step->blocks,
                               .write = write};
}

/* Store what a step touches in `touch` and return the number of entries used, at most 2. */
static unsigned step_touches(const struct twill_step *step, struct step_touch touch[2])
{
    const struct twill_step_shape *shape = twill_step_shape(step->op);
    unsigned count = 0;
    if (shape->src != 0)
        touch[count++] = touch_of(step, step->src, false);
    if (shape->dst != 0)
        touch[count++] = touch_of(step, step->dst, true);
    return count;
}

/* Return whether two steps touch the same blocks and at least one of them writes. */
static bool steps_conflict(const struct twill_step *a, const struct twill_step *b)
{
    struct step_touch x[2], y[2];
    unsigned n = step_touches(a, x), m = step_touches(b, y);
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < m; k++)
            if (touches_overlap(&x[i], &y[k]))
                return true;
    return false;
}

size_t twill_emit_mark(const struct twill_emitter *e)
{
    return e->lanes[e->lane].count;
}

/* Move step number `step`, which needs the WAIT, forward to index `mark`, so that it comes first
 * after the WAIT that is inserted there. Leave it if it would pass a message in the same direction
 * with the same peer, because these match in order. */
static void move_to_mark(struct twill_step_list *list, size_t mark, size_t step)
{
    struct twill_step first = list->steps[step];
    for (size_t i = mark; i < step; i++)
        if (twill_step_shape(first.op)->posts && list->steps[i].peer[0] == first.peer[0] &&
            (list->steps[i].op == TWILL_STEP_SEND) == (first.op == TWILL_STEP_SEND))
            return;
    memmove(&list->steps[mark + 1], &list->steps[mark], (step - mark) * sizeof(first));
    list->steps[mark] = first;
}

void twill_emit_insert_wait(struct twill_emitter *e, size_t mark)
{
    struct twill_step_list *list = &e->lanes[e->lane];
    size_t posted = 0, end = list->count, needs = list->count; /* first step that needs the WAIT */
    if (mark == end)
        return;
    for (size_t i = mark; i > 0 && list->steps[i - 1].op != TWILL_STEP_WAIT; i--) {
        const struct twill_step *step = &list->steps[i - 1];
        if (!twill_step_shape(step->op)->posts)
            continue;
        posted++;
        for (size_t k = mark; k < needs; k++)
            if (steps_conflict(step, &list->steps[k]))
                needs = k;
    }
    if (needs == end && posted < TWILL_EMIT_POSTED)
        return;
    if (needs < end)
        move_to_mark(list, mark, needs);
    twill_emit_wait(e);
    if (e->no_memory)
        return;
    struct twill_step wait = list->steps[end];
    memmove(&list->steps[mark + 1], &list->steps[mark], (end - mark) * sizeof(wait));
    list->steps[mark] = wait;
}

void twill_emit_join(struct twill_emitter *e, twill_emit_knows_fn knows, const void *user)
{
    struct twill_group node = twill_group_node(e);
    bool needed = false;
    for (uint32_t i = 0; i < node.size; i++)
        needed = needed || (i != node.me && !knows(user, node.rank[i], e->rank));
    if (needed)
        twill_emit_signal(e);
}

void twill_emit_await_join(struct twill_emitter *e, twill_emit_knows_fn knows, const void *user)
{
    struct twill_group node = twill_group_node(e);
    for (uint32_t i = 1; i < node.size; i++) {
        uint32_t other = node.rank[(node.me + i) % node.size];
        if (!knows(user, e->rank, other))
            twill_emit_await_one(e, other, 1, 0);
    }
}
