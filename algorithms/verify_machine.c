/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier's machine: its parts, put together and taken apart; cells, clocks, failures. */
#include "algorithms/step.h"
#include "algorithms/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Cells of a space of a rank, all copies: SRC, DST and TMP of each instance in flight are memory of
 * their own, SHARED and IMM alternate. */
static size_t cells_of(const struct twill_machine *m, uint32_t rank, unsigned space)
{
    switch (space) {
    case TWILL_TMP:
        return (size_t)m->window * m->schedules[rank].tmp_blocks;
    case TWILL_SHARED:
        return (size_t)m->copies * m->schedules[rank].shared_blocks;
    case TWILL_IMM:
        return (size_t)m->copies * m->window * m->lanes;
    default:
        return (size_t)m->window * m->blocks;
    }
}

static bool open_processes(struct twill_machine *m)
{
    for (uint32_t i = 0; i < m->processes; i++) {
        struct twill_process *p = &m->process[i];
        p->lane = i % m->lanes;
        p->rank = i / m->lanes % m->world->size;
        p->slot = i / m->lanes / m->world->size;
        p->clock = calloc(m->processes, sizeof(*p->clock));
        p->ticket = calloc((size_t)m->schedules[p->rank].most_posted + 1, sizeof(*p->ticket));
        if (p->clock == NULL || p->ticket == NULL)
            return false;
    }
    return true;
}

bool twill_machine_open(struct twill_machine *m)
{
    size_t ranks = m->world->size, cells = 0;
    bool reduces = twill_collective_facts(m->shape->collective)->reduces;
    m->processes = m->window * (uint32_t)ranks * m->lanes;
    m->base = calloc(ranks * TWILL_SPACE_COUNT, sizeof(*m->base));
    m->process = calloc(m->processes, sizeof(*m->process));
    m->channel = calloc(m->processes * ranks, sizeof(*m->channel));
    m->signal = calloc((size_t)m->runs * m->processes, sizeof(*m->signal));
    m->imm = calloc((size_t)m->runs * m->processes, sizeof(*m->imm));
    m->begun = calloc(m->runs * ranks, sizeof(*m->begun));
    m->next_run = calloc(ranks, sizeof(*m->next_run));
    m->lanes_left = calloc(m->window * ranks, sizeof(*m->lanes_left));
    m->result = calloc((size_t)m->runs * m->blocks, sizeof(*m->result));
    if (m->base == NULL || m->process == NULL || m->channel == NULL || m->signal == NULL ||
        m->imm == NULL || m->begun == NULL || m->next_run == NULL || m->lanes_left == NULL ||
        m->result == NULL || !open_processes(m))
        return false;
    for (uint32_t r = 0; r < ranks; r++) {
        for (unsigned space = 0; space < TWILL_SPACE_COUNT; space++) {
            m->base[(size_t)r * TWILL_SPACE_COUNT + space] = cells;
            cells += cells_of(m, r, space);
        }
    }
    return twill_cells_open(&m->memory, cells) &&
           twill_values_open(&m->values, (uint32_t)ranks,
                             reduces ? m->shape->order : TWILL_ORDER_ANY);
}

static void close_marks(struct twill_machine *m, struct twill_marks *marks)
{
    for (size_t i = 0; marks != NULL && i < (size_t)m->runs * m->processes; i++) {
        for (uint32_t k = 0; k < marks[i].count; k++)
            free(marks[i].clock[k]);
        free(marks[i].clock);
    }
    free(marks);
}

static void close_channel(struct twill_channel *channel)
{
    while (channel->first != NULL) {
        struct twill_message *message = channel->first;
        channel->first = message->next;
        free(message->clock);
        free(message);
    }
}

void twill_machine_close(struct twill_machine *m)
{
    for (size_t i = 0; m->channel != NULL && i < (size_t)m->processes * m->world->size; i++)
        close_channel(&m->channel[i]);
    for (uint32_t i = 0; m->process != NULL && i < m->processes; i++) {
        free(m->process[i].clock);
        free(m->process[i].ticket);
    }
    close_marks(m, m->signal);
    close_marks(m, m->imm);
    twill_values_close(&m->values);
    twill_cells_close(&m->memory);
    free(m->base);
    free(m->process);
    free(m->channel);
    free(m->begun);
    free(m->next_run);
    free(m->lanes_left);
    free(m->result);
}

size_t twill_machine_cell(const struct twill_machine *m, const struct twill_process *p,
                          uint32_t rank, unsigned space, uint32_t block)
{
    uint32_t copy = p->run % m->copies, blocks = m->blocks;
    if (space == TWILL_SRC && m->in_place &&
        twill_shape_holds_dst(m->shape, rank, block / m->pieces))
        space = TWILL_DST;
    size_t base = m->base[(size_t)rank * TWILL_SPACE_COUNT + space];
    switch (space) {
    case TWILL_IMM:
        return base + ((size_t)copy * m->window + p->slot) * m->lanes + p->lane;
    case TWILL_SHARED:
        return base + (size_t)copy * m->schedules[rank].shared_blocks + block;
    case TWILL_TMP:
        blocks = m->schedules[rank].tmp_blocks;
        break;
    default:
        break;
    }
    return base + (size_t)p->slot * blocks + block;
}

uint32_t *twill_machine_snapshot(const struct twill_machine *m, const struct twill_process *p,
                                 size_t extra)
{
    uint32_t *clock = malloc((m->processes + extra) * sizeof(*clock));
    if (clock != NULL)
        memcpy(clock, p->clock, m->processes * sizeof(*clock));
    return clock;
}

bool twill_machine_mark(const struct twill_machine *m, struct twill_marks *marks,
                        const struct twill_process *p)
{
    uint32_t **grown = realloc(marks->clock, (marks->count + 1) * sizeof(*grown));
    if (grown == NULL)
        return false;
    marks->clock = grown;
    grown[marks->count] = twill_machine_snapshot(m, p, 0);
    return grown[marks->count] != NULL && ++marks->count > 0;
}

void twill_machine_join(const struct twill_machine *m, struct twill_process *p,
                        const uint32_t *clock)
{
    for (uint32_t i = 0; i < m->processes; i++)
        if (clock[i] > p->clock[i])
            p->clock[i] = clock[i];
}

twill_status twill_machine_fail(const struct twill_machine *m, const struct twill_process *p,
                                const char *why, unsigned space, uint32_t block, uint32_t rank,
                                uint32_t other)
{
    const struct twill_schedule *schedule = &m->schedules[p->rank];
    char where[64] = "", whom[64] = "";
    if (space < TWILL_SPACE_COUNT)
        snprintf(where, sizeof(where), "%s[%u] of rank %u ", twill_space_name(space), block, rank);
    if (other < m->processes)
        snprintf(whom, sizeof(whom), " by rank %u in run %u", m->process[other].rank,
                 m->process[other].run);
    bool ended = p->at >= p->end;
    return TWILL_FAIL(
        m->error, TWILL_ERR_INTERNAL, "schedule of rank %u, lane %u, step %u (%s), run %u: %s%s%s",
        p->rank, p->lane,
        (ended ? schedule->lane_first[p->lane + 1] : p->at) - schedule->lane_first[p->lane],
        ended ? "end" : twill_step_shape(schedule->steps[p->at].op)->name, p->run, where, why,
        whom);
}
