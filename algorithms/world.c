/* SPDX-License-Identifier: Apache-2.0 */
/* Building the world from node labels, and reading a declared shape such as "2x2". */
#include "algorithms/world.h"

#include <stdlib.h>
#include <string.h>

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* For each rank the lowest rank with the same label, into leader. */
static void find_leaders(uint32_t *leader, uint64_t *sorted, uint32_t size, const uint32_t *label)
{
    for (uint32_t r = 0; r < size; r++)
        sorted[r] = (uint64_t)label[r] << 32 | r;
    qsort(sorted, size, sizeof(*sorted), compare_u64);
    uint32_t first = 0;
    for (uint32_t i = 0; i < size; i++) {
        if (i == 0 || sorted[i] >> 32 != sorted[i - 1] >> 32)
            first = (uint32_t)sorted[i];
        leader[(uint32_t)sorted[i]] = first;
    }
}

/* Number the nodes by lowest rank and place every rank; world->node holds leaders on entry. */
static void place(struct twill_world *world)
{
    world->nodes = 0;
    for (uint32_t r = 0; r < world->size; r++) {
        bool leads = world->node[r] == r; /* a leader comes before all of its node */
        uint32_t node = leads ? world->nodes++ : world->node[world->node[r]];
        world->node[r] = node;
        world->local[r] = world->node_size[node]++;
    }
    for (uint32_t r = 0; r < world->size; r++)
        world->everyone[r] = r;
    for (uint32_t n = 0; n < world->nodes; n++)
        world->node_first[n + 1] = world->node_first[n] + world->node_size[n];
    for (uint32_t r = 0; r < world->size; r++)
        world->member[world->node_first[world->node[r]] + world->local[r]] = r;
}

twill_status twill_world_create(struct twill_world *world, uint32_t size, const uint32_t *label,
                                struct twill_error *error)
{
    memset(world, 0, sizeof(*world));
    if (size == 0 || size > TWILL_WORLD_MAX_RANKS)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "world: size is %u, must be 1 to %u", size,
                          TWILL_WORLD_MAX_RANKS);
    uint64_t *sorted = malloc(size * sizeof(*sorted));
    world->size = size;
    world->node = calloc(size, sizeof(uint32_t));
    world->local = calloc(size, sizeof(uint32_t));
    world->node_size = calloc(size, sizeof(uint32_t));
    world->node_first = calloc((size_t)size + 1, sizeof(uint32_t));
    world->member = calloc(size, sizeof(uint32_t));
    world->everyone = calloc(size, sizeof(uint32_t));
    if (sorted == NULL || world->node == NULL || world->local == NULL || world->node_size == NULL ||
        world->node_first == NULL || world->member == NULL || world->everyone == NULL) {
        free(sorted);
        twill_world_destroy(world);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "world: no memory for %u ranks", size);
    }
    find_leaders(world->node, sorted, size, label);
    place(world);
    free(sorted);
    return TWILL_OK;
}

/* Labels of each rank's unit at a level, refined by what lies above. */
static uint64_t refined(const struct twill_world *world, const uint32_t *label, uint32_t above,
                        uint32_t rank)
{
    const uint32_t *outer = above == TWILL_LEVEL_NODE ? world->node : world->unit[above];
    return (uint64_t)(outer != NULL ? outer[rank] : 0) << 32 | label[rank];
}

twill_status twill_world_set_level(struct twill_world *world, twill_level level,
                                   const uint32_t *label, struct twill_error *error)
{
    uint32_t size = world->size, above = (uint32_t)level + 1, units = 0;
    while (above < TWILL_LEVEL_NODE && world->unit[above] == NULL)
        above++;
    uint64_t *seen = malloc(size * sizeof(*seen));
    uint32_t *unit = calloc(size, sizeof(*unit));
    if (seen == NULL || unit == NULL) {
        free(seen);
        free(unit);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "world: no memory for %u ranks", size);
    }
    for (uint32_t r = 0; r < size; r++) {
        /* A group holds whole nodes: a rank is where the first of its node is. */
        uint32_t of = level == TWILL_LEVEL_GROUP ? twill_world_member(world, world->node[r], 0) : r;
        uint64_t key = level == TWILL_LEVEL_GROUP ? label[of] : refined(world, label, above, of);
        uint32_t u = 0;
        while (u < units && seen[u] != key)
            u++;
        if (u == units)
            seen[units++] = key;
        unit[r] = u;
    }
    free(seen);
    free(world->unit[level]);
    world->unit[level] = unit;
    return TWILL_OK;
}

void twill_world_destroy(struct twill_world *world)
{
    free(world->node);
    free(world->local);
    free(world->node_size);
    free(world->node_first);
    free(world->member);
    free(world->everyone);
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

/* Read a number of ranks or nodes; moves *text past it. 0: there is none, or it is too big. */
static uint32_t read_number(const char **text)
{
    uint64_t value = 0;
    for (; **text >= '0' && **text <= '9'; ++*text)
        if (value <= TWILL_WORLD_MAX_RANKS)
            value = value * 10 + (uint64_t)(**text - '0');
    return value <= TWILL_WORLD_MAX_RANKS ? (uint32_t)value : 0;
}

/* A shape: how many of each there are, of what the variable calls `each`, in what it calls `part`.
 */
static twill_status parse_shape(const char *variable, const char *part, const char *each,
                                const char *text, uint32_t size, uint32_t *label,
                                struct twill_error *error)
{
    const char *at = text;
    uint64_t total = 0;
    for (uint32_t node = 0;;) {
        uint32_t times = 1, ranks = read_number(&at);
        if (node == 0 && *at == 'x') {
            at++;
            times = ranks;
            ranks = read_number(&at);
        }
        bool only = times != 1 || (at != text && memchr(text, 'x', (size_t)(at - text)) != NULL);
        if (ranks == 0 || times == 0 || (*at != '\0' && (only || *at != '+')))
            return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                              "%s=%s: cannot be read at \"%s\"; write %ss x %ss, such "
                              "as 2x4, or %ss of each %s, such as 4+2+1",
                              variable, text, at, part, each, each, part);
        for (uint32_t t = 0; t < times; t++, node++)
            for (uint32_t r = 0; r < ranks; r++, total++)
                if (total < size)
                    label[total] = node;
        if (*at == '\0')
            break;
        at++;
    }
    if (total != size)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "%s=%s: describes %llu %ss, but there are %u",
                          variable, text, (unsigned long long)total, each, size);
    return TWILL_OK;
}

twill_status twill_world_parse_nodes(const char *text, uint32_t size, uint32_t *label,
                                     struct twill_error *error)
{
    return parse_shape("TWILL_NODES", "node", "rank", text, size, label, error);
}

twill_status twill_world_parse_groups(const char *text, uint32_t nodes, uint32_t *label,
                                      struct twill_error *error)
{
    return parse_shape("TWILL_GROUPS", "group", "node", text, nodes, label, error);
}
