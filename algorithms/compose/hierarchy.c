/* SPDX-License-Identifier: Apache-2.0 */
/* The units of the levels of a hierarchy, and the rank that owns each shard. */
#include "algorithms/compose/hierarchy.h"

#include <stdlib.h>
#include <string.h>

/* Return the unit of each rank at a level, or NULL if it is the whole world or unknown. */
static const uint32_t *units_of(const struct twill_world *w, unsigned level)
{
    if (level == TWILL_LEVEL_ALL)
        return NULL;
    if (level == TWILL_LEVEL_NODE)
        return w->node;
    return w->unit[level];
}

/* Return whether a level has units. NODE and the levels above always have, where GROUP is one unit
 * if the world does not know it. Unknown levels below NODE have none. */
static bool level_is_known(const struct twill_world *w, unsigned level)
{
    return level >= TWILL_LEVEL_NODE || w->unit[level] != NULL;
}

/* Find the members of the units of a level, which are the units of the level `below` or, if NULL,
 * ranks. Sets `units`, `widest`, first[] and member[], with members ordered by their lowest rank,
 * and allocates place[]. Returns false if out of memory. The caller frees the arrays in any
 * case. */
static bool deal_members(struct twill_hierarchy_level *level,
                         const struct twill_hierarchy_level *below, const struct twill_world *w)
{
    level->first = calloc((size_t)w->size + 2, sizeof(uint32_t));
    level->member = calloc(w->size, sizeof(uint32_t));
    level->place = calloc(w->size, sizeof(uint32_t));
    if (level->first == NULL || level->member == NULL || level->place == NULL)
        return false;
    for (int fill = 0; fill < 2; fill++) {
        uint32_t members = 0;
        for (uint32_t r = 0; r < w->size; r++) {
            uint32_t unit = twill_level_unit(level, r);
            uint32_t member = below == NULL ? r : twill_level_unit(below, r);
            if (member != members) /* seen before, so this is not its lowest rank */
                continue;
            members++;
            if (unit >= level->units)
                level->units = unit + 1;
            if (fill)
                level->member[level->first[unit + 1]++] = member;
            else
                level->first[unit + 2]++;
        }
        /* The start of unit u is kept at first[u + 1] until the second pass has filled it. */
        for (uint32_t u = 0; u < level->units && !fill; u++) {
            if (level->first[u + 2] > level->widest)
                level->widest = level->first[u + 2];
            level->first[u + 2] += level->first[u + 1];
        }
    }
    return true;
}

/* Free the arrays of a level, first[], member[] and place[]. */
static void release_level(struct twill_hierarchy_level *level)
{
    free(level->first);
    free(level->member);
    free(level->place);
}

/* Set place[] of a level, the index of the member that contains each rank among the members of its
 * unit. Also sets `fanout` and `me`, for the unit of `rank`. `below` is the next lower level, or
 * NULL. Returns false if out of memory. */
static bool members_find(struct twill_hierarchy_level *level,
                         const struct twill_hierarchy_level *below, const struct twill_world *w,
                         uint32_t rank)
{
    uint32_t *of_member = calloc(w->size, sizeof(*of_member));
    if (of_member == NULL)
        return false;
    for (uint32_t u = 0; u < level->units; u++)
        for (uint32_t i = level->first[u]; i < level->first[u + 1]; i++)
            of_member[level->member[i]] = i - level->first[u];
    for (uint32_t r = 0; r < w->size; r++)
        level->place[r] = of_member[below == NULL ? r : twill_level_unit(below, r)];
    free(of_member);
    uint32_t unit = twill_level_unit(level, rank);
    level->fanout = level->first[unit + 1] - level->first[unit];
    level->me = level->place[rank];
    return true;
}

/* Compute the number of shards of the hierarchy (one per rank if `sharded`), and `weight` of each
 * level. The weight is the number of consecutive shards that one member of a unit gets before the
 * next member's begin. */
static void shards_count(struct twill_hierarchy *l)
{
    l->shards = 1;
    for (uint32_t j = l->scatters; j-- > 0;) {
        l->level[j].weight = l->shards;
        l->shards = (uint32_t)twill_min((size_t)l->shards * l->level[j].widest, UINT32_MAX);
    }
    if (l->sharded)
        l->shards = l->world->size;
}

void twill_hierarchy_drop_top(struct twill_hierarchy *l)
{
    l->scatters--;
    shards_count(l);
}

bool twill_hierarchy_open(struct twill_hierarchy *l, const struct twill_world *world, uint32_t rank,
                          bool sharded, const struct twill_level_choice *choice, uint32_t choices)
{
    memset(l, 0, sizeof(*l));
    l->world = world;
    l->sharded = sharded;
    for (uint32_t i = 0; i < choices; i++) {
        struct twill_hierarchy_level *level = &l->level[l->count];
        const struct twill_hierarchy_level *below = l->count > 0 ? level - 1 : NULL;
        if (!level_is_known(world, choice[i].level))
            continue;
        *level = (struct twill_hierarchy_level){.choice = choice[i],
                                                .unit = units_of(world, choice[i].level)};
        if (!deal_members(level, below, world) || !members_find(level, below, world, rank)) {
            l->count++;
            return false;
        }
        if (level->widest < 2)
            release_level(level);
        else
            l->count++;
    }
    bool all = l->count == 0 || l->sharded || l->level[l->count - 1].choice.how == TWILL_BY_DIRECT;
    l->scatters = l->count - !all;
    shards_count(l);
    return true;
}

void twill_hierarchy_close(struct twill_hierarchy *l)
{
    for (uint32_t j = 0; j < l->count; j++)
        release_level(&l->level[j]);
}

/* Return the index, from 0 to `fanout` - 1, of the member that owns shard s in a unit of this level
 * with `fanout` members. */
static uint32_t member_of(const struct twill_hierarchy *l,
                          const struct twill_hierarchy_level *level, uint32_t fanout, uint32_t s)
{
    if (l->sharded)
        return level->place[s] % fanout;
    return s / level->weight % level->widest * fanout / level->widest;
}

uint32_t twill_hierarchy_owner_rank(const struct twill_hierarchy *l, uint32_t level, uint32_t rank,
                                    uint32_t m, uint32_t s)
{
    uint32_t unit = twill_level_unit(&l->level[level], rank);
    uint32_t member = l->level[level].member[l->level[level].first[unit] + m];
    while (level-- > 0) {
        const struct twill_hierarchy_level *r = &l->level[level];
        uint32_t fanout = r->first[member + 1] - r->first[member];
        member = r->member[r->first[member] + member_of(l, r, fanout, s)];
    }
    return member;
}

uint32_t twill_hierarchy_owner(const struct twill_hierarchy *l, uint32_t level, uint32_t s)
{
    return member_of(l, &l->level[level], l->level[level].fanout, s);
}

bool twill_hierarchy_owns(const struct twill_hierarchy *l, uint32_t levels, uint32_t s)
{
    for (uint32_t j = 0; j < levels; j++)
        if (twill_hierarchy_owner(l, j, s) != l->level[j].me)
            return false;
    return true;
}

uint32_t twill_hierarchy_signals(const struct twill_hierarchy *l, uint32_t rank, uint32_t low,
                                 uint32_t high)
{
    uint32_t signals = 0;
    for (uint32_t j = low; j < high && j < l->scatters; j++) {
        const struct twill_hierarchy_level *r = &l->level[j];
        uint32_t unit = twill_level_unit(r, rank);
        signals += r->choice.how == TWILL_BY_DIRECT && r->first[unit + 1] - r->first[unit] > 1;
    }
    return signals;
}

uint64_t twill_hierarchy_blocks(const struct twill_hierarchy *l)
{
    const struct twill_hierarchy_level *top = l->count > 0 ? &l->level[l->count - 1] : NULL;
    if (top == NULL || l->sharded)
        return l->shards;
    uint32_t copies = top->choice.how == TWILL_BY_BRUCK ? top->widest : 1;
    return (uint64_t)l->shards * copies * (twill_how_divides(top->choice.how) ? top->fanout : 1);
}
