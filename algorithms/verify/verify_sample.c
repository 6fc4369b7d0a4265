/* SPDX-License-Identifier: Apache-2.0 */
/* What makes large worlds small: columns that are followed, and steps that are emitted when they
 * are needed. */
#include "algorithms/verify/verify.h"

#include <stdlib.h>
#include <string.h>

static uint64_t draw(uint64_t *state)
{
    uint64_t h = *state += 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

/* Set before[c + 1] to 1 for each column c that is drawn. */
static void draw_columns(struct twill_columns *c, uint64_t seed)
{
    uint32_t left = c->count;
    for (uint32_t at = 0; at < c->blocks; at++) {
        bool drawn = draw(&seed) % (c->blocks - at) < left;
        c->before[at + 1] = drawn;
        left -= drawn;
    }
}

bool twill_columns_open(struct twill_columns *c, uint32_t blocks, uint32_t count, uint64_t seed)
{
    *c = (struct twill_columns){.blocks = blocks, .count = blocks};
    if (count == 0 || count >= blocks)
        return true;
    c->count = count;
    c->before = calloc((size_t)blocks + 1, sizeof(*c->before));
    c->next = calloc(blocks, sizeof(*c->next));
    if (c->before == NULL || c->next == NULL)
        return false;
    draw_columns(c, seed);
    /* Twice, as a step may wrap round from the last column to the first. */
    uint32_t distance = 0;
    for (uint32_t at = 2 * blocks; at-- > 0; distance++) {
        distance = c->before[at % blocks + 1] != 0 ? 0 : distance;
        c->next[at % blocks] = distance;
    }
    for (uint32_t at = 0; at < blocks; at++)
        c->before[at + 1] += c->before[at];
    return true;
}

void twill_columns_close(struct twill_columns *c)
{
    free(c->before);
    free(c->next);
}

twill_status twill_checker_hold(struct twill_checker *c, struct twill_process *p)
{
    if (p->at < p->last_step)
        return TWILL_OK;
    struct twill_schedule schedule;
    TWILL_TRY(c->error, c->source->emit(&schedule, p->rank, c->source->user, c->error));
    p->first_step = p->posted;
    p->last_step = p->end - p->at < c->held_steps ? p->end : p->at + c->held_steps;
    size_t bytes = (p->last_step - p->first_step) * sizeof(*p->held);
    free(p->held);
    p->held = malloc(bytes);
    if (p->held != NULL)
        memcpy(p->held, &schedule.steps[p->first_step], bytes);
    p->steps = p->held;
    twill_schedule_destroy(&schedule);
    return p->held != NULL ? TWILL_OK
                           : TWILL_FAIL(c->error, TWILL_ERR_MEMORY, "no memory to verify");
}
