/* SPDX-License-Identifier: Apache-2.0 */
/* Text that describes a world's levels. In world->order the ranks of each unit of each level are
 * contiguous, so a unit is a range of it. */
#include "algorithms/world/world_levels.h"
#include "lib/base/lists.h"

#include <stdio.h>
#include <string.h>

enum { MOST_LINES = 24, FEW_UNITS = 16, LIST_BYTES = 64 };

#define LEVEL_TEXT(NOUN, name, noun, with) [TWILL_LEVEL_##NOUN] = (noun),
static const char *const names[] = {TWILL_LEVELS(LEVEL_TEXT, )};

/* The tree of levels that is printed, and the text so far. */
struct tree {
    const struct twill_world *world;
    unsigned level[TWILL_LEVEL_COUNT], levels; /* levels that divide something, outermost first */
    const uint32_t
        *unit[TWILL_LEVEL_COUNT + 1]; /* unit of each rank; the last entry is the rank itself */
    bool whole;                       /* also units with equal structure are printed one by one */
    char *text;
    size_t bytes, used, lines;
};

static void TWILL_PRINTF(2, 3) print_tree(struct tree *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = twill_print_list(t->text + t->used, t->bytes - t->used, format, arguments);
    va_end(arguments);
    t->used = twill_min(t->used + (length > 0 ? (size_t)length : 0), t->bytes - 1);
}

/* Return the unit at a depth of the i-th rank of the order; at the last depth, the rank. */
static uint32_t unit_at(const struct tree *t, unsigned depth, uint32_t i)
{
    return t->unit[depth][t->world->order[i]];
}

static struct tree open_tree(const struct twill_world *world, char *text, size_t bytes)
{
    struct tree t = {.world = world, .text = text, .bytes = bytes};
    uint32_t above = 1, all = 0;
    text[0] = '\0';
    for (unsigned level = TWILL_LEVEL_COUNT; level-- > 0;) {
        const uint32_t *unit = level == TWILL_LEVEL_NODE ? world->node : world->unit[level];
        uint32_t units = 0;
        for (uint32_t r = 0; unit != NULL && r < world->size; r++)
            units = unit[r] >= units ? unit[r] + 1 : units;
        bool divides = units > above && (level > TWILL_LEVEL_TILE || units < world->size);
        if (unit == NULL || (!divides && level != TWILL_LEVEL_NODE))
            continue;
        t.level[t.levels] = level;
        t.unit[t.levels++] = unit;
        above = units;
        all += units;
    }
    t.unit[t.levels] = world->by_rank;
    t.whole = all <= FEW_UNITS;
    return t;
}

/* Return the end of the unit that starts at i. */
static uint32_t end_of(const struct tree *t, unsigned depth, uint32_t i, uint32_t last)
{
    uint32_t unit = unit_at(t, depth, i);
    while (i < last && unit_at(t, depth, i) == unit)
        i++;
    return i;
}

/* Return whether two ranges of one length are divided alike. */
static bool alike(const struct tree *t, unsigned depth, uint32_t a, uint32_t b, uint32_t length)
{
    for (; depth < t->levels; depth++)
        for (uint32_t i = 1; i < length; i++)
            if ((unit_at(t, depth, a + i) == unit_at(t, depth, a + i - 1)) !=
                (unit_at(t, depth, b + i) == unit_at(t, depth, b + i - 1)))
                return false;
    return true;
}

/* Print "0-3,8-11", cut off with dots. */
static void list_ranks(const struct tree *t, uint32_t first, uint32_t last, char text[LIST_BYTES])
{
    size_t used = 0;
    while (first < last) {
        uint32_t from = t->world->order[first], to = from;
        for (first++; first < last && t->world->order[first] == to + 1; first++)
            to++;
        if (used > LIST_BYTES - 20) {
            snprintf(text + used, LIST_BYTES - used, ",...");
            return;
        }
        used += (size_t)snprintf(text + used, LIST_BYTES - used, to > from ? "%s%u-%u" : "%s%u",
                                 used > 0 ? "," : "", from, to);
    }
}

/* Print one unit, or `same` units with equal structure, the last of which starts at `final`. */
static void put_units(struct tree *t, unsigned depth, uint32_t number, uint32_t same,
                      uint32_t first, uint32_t end, uint32_t final)
{
    char list[LIST_BYTES], last[LIST_BYTES];
    const char *name = names[t->level[depth]];
    print_tree(t, "%*s", 2 * (int)depth, "");
    if (same == 1)
        print_tree(t, "%s %u", name, number);
    else
        print_tree(t, "%u %ss", same, name);
    if (depth + 1 == t->levels) {
        list_ranks(t, first, end, list);
        list_ranks(t, final, final + (end - first), last);
        if (same == 1)
            print_tree(t, " (rank%s %s)", end - first > 1 ? "s" : "", list);
        else
            print_tree(t, " of %u rank%s each (%s to %s)", end - first, end - first > 1 ? "s" : "",
                       list, last);
    } else if (same > 1) {
        print_tree(t, ", each");
    }
    print_tree(t, "\n");
}

/* Print the units of a range and what is inside them. Recursive: as deep as there are levels. */
static void put_range(struct tree *t, unsigned depth, uint32_t first, uint32_t last)
{
    uint32_t number = 0;
    for (uint32_t next; first < last && depth < t->levels && depth < TWILL_LEVEL_COUNT;
         first = next) {
        uint32_t end = end_of(t, depth, first, last), same = 1, final = first;
        next = end;
        while (!t->whole && next < last && end_of(t, depth, next, last) - next == end - first &&
               alike(t, depth + 1, first, next, end - first)) {
            final = next;
            next += end - first;
            same++;
        }
        if (t->lines++ == MOST_LINES - 1)
            print_tree(t, "...\n");
        if (t->lines >= MOST_LINES)
            return;
        bool node = t->level[depth] == TWILL_LEVEL_NODE;
        put_units(t, depth, node ? unit_at(t, depth, first) : number, same, first, end, final);
        number += same;
        put_range(t, depth + 1, first, end);
    }
}

void twill_world_describe(const struct twill_world *world, char text[TWILL_WORLD_TEXT_BYTES])
{
    struct tree t = open_tree(world, text, TWILL_WORLD_TEXT_BYTES);
    put_range(&t, 0, 0, world->size);
}

/* Compute the least and most units of a depth (ranks at the last) in one unit of the depth above.
 */
static void count_units(const struct tree *t, unsigned depth, uint32_t *least, uint32_t *most)
{
    uint32_t here = 0;
    *least = UINT32_MAX;
    *most = 0;
    for (uint32_t i = 0; i < t->world->size; i++) {
        bool ends = i + 1 == t->world->size;
        here += ends || unit_at(t, depth, i) != unit_at(t, depth, i + 1);
        if (!ends && (depth == 0 || unit_at(t, depth - 1, i) == unit_at(t, depth - 1, i + 1)))
            continue;
        *least = here < *least ? here : *least;
        *most = here > *most ? here : *most;
        here = 0;
    }
}

bool twill_world_summarize(const struct twill_world *world, char *text, size_t bytes)
{
    struct tree t = open_tree(world, text, bytes);
    for (unsigned depth = 0; depth <= t.levels; depth++) {
        uint32_t least, most;
        count_units(&t, depth, &least, &most);
        print_tree(&t, depth > 0 ? " x %u" : "%u", least);
        if (most > least)
            print_tree(&t, "-%u", most);
        print_tree(&t, " %s%s", depth < t.levels ? names[t.level[depth]] : "rank",
                   most > 1 ? "s" : "");
    }
    return t.levels > 1;
}
