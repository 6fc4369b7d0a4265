/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules as plain data. This file has the table of what each operation may contain, the division
 * of a buffer into blocks, and the release of schedules. */
#include "algorithms/schedule/schedule.h"
#include "algorithms/schedule/step_table.h"

#include <stdlib.h>
#include <string.h>

enum {
    SRC = 1 << TWILL_SRC,
    DST = 1 << TWILL_DST,
    TMP = 1 << TWILL_TMP,
    SHARED = 1 << TWILL_SHARED,
    IMM = 1 << TWILL_IMM,
    WRITABLE = DST | TMP | SHARED,
    READABLE = SRC | WRITABLE,
    BOTH_PARTIAL = TWILL_STEP_PARTIAL | TWILL_STEP_PARTIAL_OWN
};

const struct twill_step_shape *twill_step_shape(unsigned op)
{
    static const struct twill_step_shape shapes[TWILL_STEP_OP_COUNT] = {
        [TWILL_STEP_SEND] = {.name = "send",
                             .peers = "to",
                             .src = READABLE,
                             .flags = TWILL_STEP_PARTIAL,
                             .posts = true},
        [TWILL_STEP_RECV] = {.name = "recv",
                             .peers = "from",
                             .dst = WRITABLE,
                             .flags = TWILL_STEP_PARTIAL,
                             .posts = true},
        [TWILL_STEP_RECV_REDUCE] = {.name = "recv_reduce",
                                    .peers = "from",
                                    .dst = WRITABLE,
                                    .src = READABLE,
                                    .flags = TWILL_STEP_FINAL | TWILL_STEP_FIRST | BOTH_PARTIAL,
                                    .posts = true},
        [TWILL_STEP_REDUCE] = {.name = "reduce",
                               .peers = "of",
                               .dst = WRITABLE,
                               .src = READABLE | IMM,
                               .src_peer = SRC | DST | SHARED | IMM,
                               .flags = TWILL_STEP_FINAL | TWILL_STEP_ACC | TWILL_STEP_FIRST |
                                        TWILL_STEP_OWN_SRC | BOTH_PARTIAL},
        [TWILL_STEP_COPY] = {.name = "copy",
                             .peers = "of",
                             .dst = WRITABLE,
                             .src = READABLE | IMM,
                             .dst_peer = DST | SHARED,
                             .src_peer = SRC | DST | SHARED | IMM,
                             .flags = TWILL_STEP_PARTIAL},
        [TWILL_STEP_PUT_IMM] = {.name = "put_imm", .src = READABLE, .flags = TWILL_STEP_PARTIAL},
        [TWILL_STEP_WAIT] = {.name = "wait"},
        [TWILL_STEP_SIGNAL] = {.name = "signal"},
        [TWILL_STEP_AWAIT] = {.name = "await", .peers = "of", .flags = TWILL_STEP_IMM},
    };
    return &shapes[op];
}

const char *twill_space_name(unsigned space)
{
    static const char *const names[TWILL_SPACE_COUNT] = {"SRC", "DST", "TMP", "SHARED", "IMM"};
    return space < TWILL_SPACE_COUNT ? names[space] : "?";
}

unsigned twill_step_peers(const struct twill_step *step)
{
    const struct twill_step_shape *shape = twill_step_shape(step->op);
    bool operand = twill_operand_is_peer(step->src) || twill_operand_is_peer(step->dst);
    if (shape->posts)
        return 1;
    if (step->op == TWILL_STEP_AWAIT)
        return step->nsrc;
    if (!operand)
        return 0;
    return step->op == TWILL_STEP_REDUCE ? step->nsrc : 1;
}

void twill_schedule_derive(struct twill_schedule *schedule)
{
    schedule->most_posted = 0;
    schedule->uses_imm = false;
    for (uint32_t l = 0; l < schedule->lanes; l++) {
        uint32_t posted = 0;
        for (uint32_t i = schedule->lane_first[l]; i < schedule->lane_first[l + 1]; i++) {
            const struct twill_step *step = &schedule->steps[i];
            posted = step->op == TWILL_STEP_WAIT ? 0 : posted + twill_step_shape(step->op)->posts;
            if (posted > schedule->most_posted)
                schedule->most_posted = posted;
            if (step->op == TWILL_STEP_PUT_IMM || (step->flags & TWILL_STEP_IMM) != 0)
                schedule->uses_imm = true;
        }
    }
}

/* Match AWAITs of the `ordinal`-th SIGNAL, from step i of lane 0 on, until they have named all
 * other ranks once in the order of twill_emit_await(). Returns the step after them, or 0. */
static uint32_t behind_awaits(const struct twill_schedule *schedule, uint32_t i, uint32_t ordinal,
                              uint32_t rank, uint32_t size)
{
    uint32_t others = 0;
    for (; i < schedule->lane_first[1] && others < size - 1; i++) {
        const struct twill_step *step = &schedule->steps[i];
        if (step->op != TWILL_STEP_AWAIT || step->ordinal != ordinal)
            return 0;
        for (unsigned p = 0; p < step->nsrc; p++)
            if (step->peer[p] != (rank + ++others) % size)
                return 0;
    }
    return others == size - 1 ? i : 0;
}

uint32_t twill_schedule_entry_steps(const struct twill_schedule *schedule, uint32_t rank,
                                    uint32_t size)
{
    if (schedule->lanes != 1 || schedule->count == 0 || size < 2 ||
        schedule->steps[0].op != TWILL_STEP_SIGNAL)
        return 0;
    uint32_t behind = behind_awaits(schedule, 1, 1, rank, size);
    if (behind == 0)
        return 0;
    for (uint32_t i = behind; i < schedule->count; i++)
        if (schedule->steps[i].op == TWILL_STEP_AWAIT)
            return behind_awaits(schedule, i, 2, rank, size) != 0 ? behind : 0;
    return 0;
}

void twill_schedule_destroy(struct twill_schedule *schedule)
{
    free(schedule->steps);
    memset(schedule, 0, sizeof(*schedule));
}

void twill_block_range(size_t count, size_t element, uint32_t blocks, uint32_t i, size_t *first,
                       size_t *length)
{
    /* A block has whole cache lines if there are enough for every block, else elements. */
    size_t unit = element > 0 && element < TWILL_CACHE_LINE ? TWILL_CACHE_LINE / element : 1;
    size_t units = count / unit + (count % unit != 0);
    if (units < blocks) {
        unit = 1;
        units = count;
    }
    size_t each = units / blocks, more = units % blocks;
    size_t begin = (i * each + twill_min(i, more)) * unit;
    size_t end = ((i + 1) * each + twill_min((size_t)i + 1, more)) * unit;
    *first = begin;
    *length = twill_min(end, count) - begin;
}
