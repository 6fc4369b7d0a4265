/* SPDX-License-Identifier: Apache-2.0 */
/* The ladder of levels: which units there are, and which rank has which shard. */
#include "algorithms/compose/hierarchy.h"

#include <stdlib.h>
#include <string.h>

static const uint32_t *units_of(const struct twill_world *w, unsigned level)
{
    if (level == TWILL_LEVEL_ALL)
        return NULL;
    if (level == TWILL_LEVEL_NODE)
        return w->node;
    return w->unit[level];
}

/* A level that is not known: below the node nobody has company, above it all are one. */
static bool is_known(const struct twill_world *w, unsigned level)
{
    return level >= TWILL_LEVEL_NODE || w->unit[level] != NULL;
}

/* Deal the units of the rung below (NULL: the ranks) to the units of this one. Units are numbered
 * by their lowest ranks. */
static bool deal_members(struct twill_rung *rung, const struct twill_rung *below,
                         const struct twill_world *w)
{
    rung->first = calloc((size_t)w->size + 2, sizeof(uint32_t));
    rung->member = calloc(w->size, sizeof(uint32_t));
    rung->place = calloc(w->size, sizeof(uint32_t));
    if (rung->first == NULL || rung->member == NULL || rung->place == NULL)
        return false;
    for (int fill = 0; fill < 2; fill++) {
        uint32_t members = 0;
        for (uint32_t r = 0; r < w->size; r++) {
            uint32_t unit = twill_rung_unit(rung, r);
            uint32_t member = below == NULL ? r : twill_rung_unit(below, r);
            if (member != members) /* seen: not the lowest rank of it */
                continue;
            members++;
            if (unit >= rung->units)
                rung->units = unit + 1;
            if (fill)
                rung->member[rung->first[unit + 1]++] = member;
            else
                rung->first[unit + 2]++;
        }
        /* Where a unit begins is kept one place further on until the second round has filled it. */
        for (uint32_t u = 0; u < rung->units && !fill; u++) {
            if (rung->first[u + 2] > rung->widest)
                rung->widest = rung->first[u + 2];
            rung->first[u + 2] += rung->first[u + 1];
        }
    }
    return true;
}

static void release(struct twill_rung *rung)
{
    free(rung->first);
    free(rung->member);
    free(rung->place);
}

/* Which member of its unit is each rank in, and this one? */
static bool find_places(struct twill_rung *rung, const struct twill_rung *below,
                        const struct twill_world *w, uint32_t rank)
{
    uint32_t *of_member = calloc(w->size, sizeof(*of_member));
    if (of_member == NULL)
        return false;
    for (uint32_t u = 0; u < rung->units; u++)
        for (uint32_t i = rung->first[u]; i < rung->first[u + 1]; i++)
            of_member[rung->member[i]] = i - rung->first[u];
    for (uint32_t r = 0; r < w->size; r++)
        rung->place[r] = of_member[below == NULL ? r : twill_rung_unit(below, r)];
    free(of_member);
    uint32_t unit = twill_rung_unit(rung, rank);
    rung->fan = rung->first[unit + 1] - rung->first[unit];
    rung->me = rung->place[rank];
    return true;
}

/* Into how many shards, and how many of them in a row one member has. */
static void weigh(struct twill_ladder *l)
{
    l->shards = 1;
    for (uint32_t j = l->scatters; j-- > 0;) {
        l->rung[j].weight = l->shards;
        l->shards = (uint32_t)twill_min((size_t)l->shards * l->rung[j].widest, UINT32_MAX);
    }
    if (l->parts)
        l->shards = l->world->size;
}

void twill_ladder_drop_top(struct twill_ladder *l)
{
    l->scatters--;
    weigh(l);
}

bool twill_ladder_open(struct twill_ladder *l, const struct twill_world *world, uint32_t rank,
                       bool parts, const struct twill_rung_choice *choice, uint32_t choices)
{
    memset(l, 0, sizeof(*l));
    l->world = world;
    l->parts = parts;
    for (uint32_t i = 0; i < choices; i++) {
        struct twill_rung *rung = &l->rung[l->count];
        const struct twill_rung *below = l->count > 0 ? rung - 1 : NULL;
        if (!is_known(world, choice[i].level))
            continue;
        *rung = (struct twill_rung){.choice = choice[i], .unit = units_of(world, choice[i].level)};
        if (!deal_members(rung, below, world) || !find_places(rung, below, world, rank)) {
            l->count++;
            return false;
        }
        if (rung->widest < 2)
            release(rung);
        else
            l->count++;
    }
    bool all = l->count == 0 || l->parts || l->rung[l->count - 1].choice.how == TWILL_BY_DIRECT;
    l->scatters = l->count - !all;
    weigh(l);
    return true;
}

void twill_ladder_close(struct twill_ladder *l)
{
    for (uint32_t j = 0; j < l->count; j++)
        release(&l->rung[j]);
}

/* Which of `fan` members at a rung has shard s. */
static uint32_t member_of(const struct twill_ladder *l, const struct twill_rung *rung, uint32_t fan,
                          uint32_t s)
{
    if (l->parts)
        return rung->place[s] % fan;
    return s / rung->weight % rung->widest * fan / rung->widest;
}

uint32_t twill_ladder_owner(const struct twill_ladder *l, uint32_t rung, uint32_t rank, uint32_t m,
                            uint32_t s)
{
    uint32_t unit = twill_rung_unit(&l->rung[rung], rank);
    uint32_t member = l->rung[rung].member[l->rung[rung].first[unit] + m];
    while (rung-- > 0) {
        const struct twill_rung *r = &l->rung[rung];
        uint32_t fan = r->first[member + 1] - r->first[member];
        member = r->member[r->first[member] + member_of(l, r, fan, s)];
    }
    return member;
}

uint32_t twill_ladder_winner(const struct twill_ladder *l, uint32_t rung, uint32_t s)
{
    return member_of(l, &l->rung[rung], l->rung[rung].fan, s);
}

bool twill_ladder_owns(const struct twill_ladder *l, uint32_t rungs, uint32_t s)
{
    for (uint32_t j = 0; j < rungs; j++)
        if (twill_ladder_winner(l, j, s) != l->rung[j].me)
            return false;
    return true;
}

uint32_t twill_ladder_signals(const struct twill_ladder *l, uint32_t rank, uint32_t low,
                              uint32_t high)
{
    uint32_t signals = 0;
    for (uint32_t j = low; j < high && j < l->scatters; j++) {
        const struct twill_rung *r = &l->rung[j];
        uint32_t unit = twill_rung_unit(r, rank);
        signals += r->choice.how == TWILL_BY_DIRECT && r->first[unit + 1] - r->first[unit] > 1;
    }
    return signals;
}

uint64_t twill_ladder_blocks(const struct twill_ladder *l)
{
    const struct twill_rung *top = l->count > 0 ? &l->rung[l->count - 1] : NULL;
    if (top == NULL || l->parts)
        return l->shards;
    uint32_t copies = top->choice.how == TWILL_BY_BRUCK ? top->widest : 1;
    return (uint64_t)l->shards * copies * (twill_how_divides(top->choice.how) ? top->fan : 1);
}
