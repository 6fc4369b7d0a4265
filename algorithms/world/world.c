/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/world/world.h"
#include "lib/base/lists.h"

#include <stdlib.h>
#include <string.h>

/* Record that there is no memory for this many ranks, and return TWILL_ERR_MEMORY. */
static twill_status world_no_memory(uint32_t size, struct twill_error *error)
{
    return TWILL_FAIL(error, TWILL_ERR_MEMORY, "world: no memory for %u ranks", size);
}

/* A rank and its label, to be sorted by label and then by rank. A plain value. */
struct labelled {
    uint64_t label;
    uint32_t rank;
};

/* Compare two struct labelled for qsort(), by label, then by rank. */
static int compare_ranks(const void *a, const void *b)
{
    const struct labelled *x = a, *y = b;
    if (x->label != y->label)
        return (x->label > y->label) - (x->label < y->label);
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Store in `leader` for each rank the lowest rank with the same label. Sorts `ranks`. */
static void find_leaders(uint32_t *leader, struct labelled *ranks, uint32_t size)
{
    qsort(ranks, size, sizeof(*ranks), compare_ranks);
    uint32_t first = 0;
    for (uint32_t i = 0; i < size; i++) {
        if (i == 0 || ranks[i].label != ranks[i - 1].label)
            first = ranks[i].rank;
        leader[ranks[i].rank] = first;
    }
}

/* Number the nodes in the order of their lowest ranks. On entry world->node has, for each rank, the
 * lowest rank of its node, and the other arrays of the world are allocated and zero. Sets `nodes`,
 * node[], local[], node_size[], node_first[], member[] and by_rank[]. */
static void ranks_number(struct twill_world *world)
{
    world->nodes = 0;
    for (uint32_t r = 0; r < world->size; r++) {
        bool leads = world->node[r] == r; /* a leader precedes all other ranks of its node */
        uint32_t node = leads ? world->nodes++ : world->node[world->node[r]];
        world->node[r] = node;
        world->local[r] = world->node_size[node]++;
    }
    for (uint32_t r = 0; r < world->size; r++)
        world->by_rank[r] = r;
    for (uint32_t n = 0; n < world->nodes; n++)
        world->node_first[n + 1] = world->node_first[n] + world->node_size[n];
    for (uint32_t r = 0; r < world->size; r++)
        world->member[world->node_first[world->node[r]] + world->local[r]] = r;
}

/* Sort order[] by the units of a level, unit[size], stable within each unit. `first` is scratch for
 * size + 1 numbers, and position[] serves as scratch as well. */
static void arrange_by(struct twill_world *world, const uint32_t *unit, uint32_t *first)
{
    uint32_t *sorted = world->position;
    memset(first, 0, ((size_t)world->size + 1) * sizeof(*first));
    for (uint32_t r = 0; r < world->size; r++)
        first[unit[r] + 1]++;
    for (uint32_t u = 0; u < world->size; u++)
        first[u + 1] += first[u];
    for (uint32_t i = 0; i < world->size; i++)
        sorted[first[unit[world->order[i]]]++] = world->order[i];
    memcpy(world->order, sorted, world->size * sizeof(*sorted));
}

/* Fill in `order` and `position`. The ranks of each unit of each level become contiguous, so that a
 * ring enters and leaves every unit once. `first` is scratch for size + 1 numbers. */
static void arrange_ranks(struct twill_world *world, uint32_t *first)
{
    memcpy(world->order, world->by_rank, world->size * sizeof(*world->order));
    for (unsigned level = 0; level < TWILL_LEVEL_COUNT; level++)
        if (level == TWILL_LEVEL_NODE || world->unit[level] != NULL)
            arrange_by(world, level == TWILL_LEVEL_NODE ? world->node : world->unit[level], first);
    for (uint32_t i = 0; i < world->size; i++)
        world->position[world->order[i]] = i;
}

twill_status twill_world_create(struct twill_world *world, uint32_t size, const uint32_t *label,
                                struct twill_error *error)
{
    memset(world, 0, sizeof(*world));
    if (size == 0 || size > TWILL_WORLD_MAX_RANKS)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "world: size is %u, must be 1 to %u", size,
                          TWILL_WORLD_MAX_RANKS);
    struct labelled *sorted = malloc(size * sizeof(*sorted));
    uint32_t *first = malloc(((size_t)size + 1) * sizeof(*first));
    world->size = size;
    world->node = calloc(size, sizeof(uint32_t));
    world->local = calloc(size, sizeof(uint32_t));
    world->node_size = calloc(size, sizeof(uint32_t));
    world->node_first = calloc((size_t)size + 1, sizeof(uint32_t));
    world->member = calloc(size, sizeof(uint32_t));
    world->by_rank = calloc(size, sizeof(uint32_t));
    world->order = calloc(size, sizeof(uint32_t));
    world->position = calloc(size, sizeof(uint32_t));
    if (sorted == NULL || first == NULL || world->node == NULL || world->local == NULL ||
        world->node_size == NULL || world->node_first == NULL || world->member == NULL ||
        world->by_rank == NULL || world->order == NULL || world->position == NULL) {
        free(sorted);
        free(first);
        twill_world_destroy(world);
        return world_no_memory(size, error);
    }
    for (uint32_t r = 0; r < size; r++)
        sorted[r] = (struct labelled){.label = label[r], .rank = r};
    find_leaders(world->node, sorted, size);
    ranks_number(world);
    arrange_ranks(world, first);
    free(sorted);
    free(first);
    return TWILL_OK;
}

/* Return the unit of the next known level above that contains the unit of a rank in this level.
 * Groups contain whole nodes, and no unit contains groups, for which 0 is returned. */
static uint32_t holder_of(const struct twill_world *world, unsigned level, uint32_t rank)
{
    for (unsigned above = level + 1; above < TWILL_LEVEL_NODE; above++)
        if (world->unit[above] != NULL)
            return world->unit[above][rank];
    return level < TWILL_LEVEL_NODE ? world->node[rank] : 0;
}

/* Store in `unit` the unit of each rank in a level. Ranks are in one unit if they have the same
 * label and the same containing unit. Units are numbered by their lowest rank. `sorted` is scratch
 * with an entry for each rank. */
static void number_units(const struct twill_world *world, unsigned level, const uint32_t *label,
                         struct labelled *sorted, uint32_t *unit)
{
    uint32_t units = 0;
    for (uint32_t r = 0; r < world->size; r++) {
        /* A rank is in the group of the first rank of its node. */
        uint32_t of = level == TWILL_LEVEL_GROUP ? twill_world_member(world, world->node[r], 0) : r;
        sorted[r] = (struct labelled){
            .label = (uint64_t)holder_of(world, level, r) << 32 | label[of], .rank = r};
    }
    find_leaders(unit, sorted, world->size);
    for (uint32_t r = 0; r < world->size; r++)
        unit[r] = unit[r] == r ? units++ : unit[unit[r]];
}

twill_status twill_world_set_level(struct twill_world *world, twill_level level,
                                   const uint32_t *label, struct twill_error *error)
{
    if ((unsigned)level >= TWILL_LEVEL_COUNT || level == TWILL_LEVEL_NODE)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "world: level %d cannot be set", (int)level);
    struct labelled *sorted = malloc(world->size * sizeof(*sorted));
    uint32_t *first = malloc(((size_t)world->size + 1) * sizeof(*first));
    uint32_t *unit = calloc(world->size, sizeof(*unit));
    uint32_t *spare = calloc(world->size, sizeof(*spare));
    if (sorted == NULL || first == NULL || unit == NULL || spare == NULL) {
        free(sorted);
        free(first);
        free(unit);
        free(spare);
        return world_no_memory(world->size, error);
    }
    number_units(world, (unsigned)level, label, sorted, unit);
    free(world->unit[level]);
    world->unit[level] = unit;
    /* Split the units of lower levels at the new boundaries. */
    for (unsigned below = (unsigned)level; below-- > 0 && level < TWILL_LEVEL_NODE;) {
        if (world->unit[below] == NULL)
            continue;
        number_units(world, below, world->unit[below], sorted, spare);
        uint32_t *old = world->unit[below];
        world->unit[below] = spare;
        spare = old;
    }
    arrange_ranks(world, first);
    free(sorted);
    free(first);
    free(spare);
    return TWILL_OK;
}

void twill_world_destroy(struct twill_world *world)
{
    free(world->node);
    free(world->local);
    free(world->node_size);
    free(world->node_first);
    free(world->member);
    free(world->by_rank);
    free(world->order);
    free(world->position);
    for (unsigned level = 0; level < TWILL_LEVEL_COUNT; level++)
        free(world->unit[level]);
    memset(world, 0, sizeof(*world));
}

uint32_t twill_world_widest(const struct twill_world *world)
{
    uint32_t widest = 0;
    for (uint32_t n = 0; n < world->nodes; n++)
        if (world->node_size[n] > widest)
            widest = world->node_size[n];
    return widest;
}

uint32_t twill_world_narrowest(const struct twill_world *world)
{
    uint32_t narrowest = world->size;
    for (uint32_t n = 0; n < world->nodes; n++)
        if (world->node_size[n] < narrowest)
            narrowest = world->node_size[n];
    return narrowest;
}
