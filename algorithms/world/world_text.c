/* SPDX-License-Identifier: Apache-2.0 */
/* Parses worlds such as "2x2" and "48x2x4x8", which need not exist, and prints levels. */
#include "algorithms/world/world.h"
#include "lib/base/lists.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *twill_level_name(twill_level level)
{
#define LEVEL_NAME(NOUN, name, noun, with) [TWILL_LEVEL_##NOUN] = #name,
    static const char *const names[] = {TWILL_LEVELS(LEVEL_NAME, )};
    return (unsigned)level < TWILL_LEVEL_COUNT ? names[level] : "?";
}

/* Parse a number of ranks or units, at least 1. Returns 0 if there is no number, or if it is 0 or
 * too large. Sets *end to the first character after its digits. */
static uint32_t read_count(const char *text, const char **end)
{
    uint64_t value = 0;
    for (*end = text; **end >= '0' && **end <= '9'; ++*end)
        value = twill_min(value * 10 + (uint64_t)(**end - '0'), TWILL_WORLD_MAX_RANKS + 1);
    return value <= TWILL_WORLD_MAX_RANKS ? (uint32_t)value : 0;
}

/* Parse a text such as "2x2" or "4+2" into label[size], the unit of each rank or node. `variable`,
 * `container` and `each` are for messages, such as "TWILL_LAYOUT=nodes", "node" and "rank". Returns
 * TWILL_ERR_CONFIG if it is malformed or does not add up to `size`. */
static twill_status parse_shape(const char *variable, const char *container, const char *each,
                                const char *text, uint32_t size, uint32_t *label,
                                struct twill_error *error)
{
    const char *at = text;
    uint64_t total = 0;
    for (uint32_t node = 0;;) {
        uint32_t times = 1, ranks = read_count(at, &at);
        if (node == 0 && *at == 'x') {
            at++;
            times = ranks;
            ranks = read_count(at, &at);
        }
        bool only = times != 1 || (at != text && memchr(text, 'x', (size_t)(at - text)) != NULL);
        if (ranks == 0 || times == 0 || (*at != '\0' && (only || *at != '+')))
            return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                              "%s=%s: cannot be read at \"%s\"; write %ss x %ss, such "
                              "as 2x4, or %ss of each %s, such as 4+2+1",
                              variable, text, at, container, each, each, container);
        for (uint32_t t = 0; t < times; t++, node++, total += ranks)
            for (uint32_t r = 0; r < ranks && total + r < size; r++)
                label[total + r] = node;
        if (*at == '\0')
            break;
        at++;
    }
    if (total != size)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "%s=%s: describes %llu %ss, but there are %u",
                          variable, text, (unsigned long long)total, each, size);
    return TWILL_OK;
}

/* Deal the ranks to the nodes cyclically, where each node keeps its number of ranks. On entry
 * label[size] has the node of each rank, ascending. On return it has the new nodes. `count` is
 * scratch with a number for each node, which must be zeros. */
static void deal_ranks(uint32_t size, uint32_t *label, uint32_t *count)
{
    uint32_t nodes = label[size - 1] + 1;
    for (uint32_t r = 0; r < size; r++)
        count[label[r]]++;
    for (uint32_t r = 0, node = 0; r < size; node = (node + 1) % nodes)
        if (count[node] > 0) {
            count[node]--;
            label[r++] = node;
        }
}

twill_status twill_world_parse_nodes(const char *text, uint32_t size, uint32_t *label,
                                     struct twill_error *error)
{
    static const char variable[] = "TWILL_LAYOUT=nodes", cyclic[] = ":cyclic";
    size_t length = strlen(text), end = sizeof(cyclic) - 1;
    if (length <= end || strcmp(text + length - end, cyclic) != 0)
        return parse_shape(variable, "node", "rank", text, size, label, error);
    char *shape = strndup(text, length - end);
    uint32_t *count = calloc(size, sizeof(*count));
    twill_status status =
        shape == NULL || count == NULL
            ? TWILL_FAIL(error, TWILL_ERR_MEMORY, "%s: no memory for %u ranks", variable, size)
            : parse_shape(variable, "node", "rank", shape, size, label, error);
    if (status == TWILL_OK)
        deal_ranks(size, label, count);
    free(count);
    free(shape);
    return status;
}

twill_status twill_world_parse_groups(const char *text, uint32_t nodes, uint32_t *label,
                                      struct twill_error *error)
{
    return parse_shape("TWILL_LAYOUT=groups", "group", "node", text, nodes, label, error);
}

enum {
    DECLARED_RANKS = TWILL_LEVEL_COUNT,
    KEYS
}; /* the key after the levels, for the number of ranks in the smallest unit */

/* A world as a text declares it. For each key that is given, it has the number of units inside one
 * unit of the next larger given key, else 0. A local variable of twill_world_declare(). */
struct declared {
    uint32_t count[KEYS];
};

/* Record that a declared world is wrong from `at` on, and return TWILL_ERR_ARGUMENT. */
static twill_status refuse_declaration(const char *text, const char *at, struct twill_error *error)
{
    const char *quote = *at != '\0' ? "\"" : "";
    return TWILL_FAIL(
        error, TWILL_ERR_ARGUMENT,
        "\"%s\" is not a valid world at %s%s%s; examples: 24x8 (nodes x ranks), 24x2x8 (nodes "
        "x packages x ranks), 24x2x4x8 (nodes x packages x L3 caches x ranks), 4+2 "
        "(ranks of each node) or groups=2,nodes=12,packages=2,numa=2,l3=2,tiles=2,"
        "ranks=2; at most %u ranks",
        text, quote, *at != '\0' ? at : "its end", quote, TWILL_WORLD_MAX_RANKS);
}

/* Parse `text`, such as "48x2x4x8", into *d. *at becomes the end of the text. If the text is
 * malformed, *at becomes the place of the fault, and the function returns false. */
static bool read_sizes(struct declared *d, const char *text, const char **at)
{
    static const unsigned keys[3][4] = {
        {TWILL_LEVEL_NODE, DECLARED_RANKS},
        {TWILL_LEVEL_NODE, TWILL_LEVEL_PACKAGE, DECLARED_RANKS},
        {TWILL_LEVEL_NODE, TWILL_LEVEL_PACKAGE, TWILL_LEVEL_L3, DECLARED_RANKS},
    };
    uint32_t number[4] = {0};
    unsigned numbers = 0;
    for (*at = text; numbers < TWILL_ARRAY_LENGTH(number);) {
        const char *from = *at;
        number[numbers] = read_count(from, at);
        if (number[numbers] == 0) {
            *at = from;
            return false;
        }
        numbers++;
        if (**at != 'x')
            break;
        ++*at;
    }
    for (unsigned i = 0; i < numbers && numbers > 1; i++)
        d->count[keys[numbers - 2][i]] = number[i];
    return numbers > 1 && **at == '\0';
}

/* Return the key with this name, singular or plural, or KEYS if there is none. */
static unsigned find_shape_key(const char *name, size_t length)
{
    for (unsigned key = 0; key < KEYS; key++) {
        const char *known = key == DECLARED_RANKS ? "rank" : twill_level_name((twill_level)key);
        size_t whole = strlen(known);
        if (strncmp(known, name, whole) == 0 &&
            (length == whole || (length == whole + 1 && name[whole] == 's')))
            return key;
    }
    return KEYS;
}

/* Parse `text`, such as "nodes=48,ranks=8", into *d. *at becomes the end of the text. If the text
 * is malformed, *at becomes the start of the wrong item, and the function returns false. */
static bool read_names(struct declared *d, const char *text, const char **at)
{
    for (*at = text;;) {
        size_t length = strcspn(*at, "=");
        unsigned key = (*at)[length] == '=' ? find_shape_key(*at, length) : KEYS;
        const char *end = *at + length + 1;
        if (key == KEYS || d->count[key] != 0)
            return false;
        d->count[key] = read_count(end, &end);
        if (d->count[key] == 0 || (*end != ',' && *end != '\0'))
            return false;
        *at = end;
        if (*end == '\0')
            return true;
        ++*at;
    }
}

/* Create a world from a text such as "4+2+1". Returns TWILL_ERR_ARGUMENT if it is malformed. */
static twill_status create_uneven(struct twill_world *world, const char *text,
                                  struct twill_error *error)
{
    uint64_t ranks = 0;
    for (const char *at = text; *at != '\0'; at += *at == '+') {
        uint32_t more = read_count(at, &at);
        ranks += more;
        if (more == 0 || (*at != '+' && *at != '\0') || ranks > TWILL_WORLD_MAX_RANKS)
            return refuse_declaration(text, at, error);
    }
    if (ranks == 0)
        return refuse_declaration(text, text, error);
    uint32_t *label = calloc(ranks, sizeof(*label));
    if (label == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "world: no memory for %u ranks",
                          (unsigned)ranks);
    twill_status status = twill_world_parse_nodes(text, (uint32_t)ranks, label, error);
    if (status == TWILL_OK)
        status = twill_world_create(world, (uint32_t)ranks, label, error);
    free(label);
    return status;
}

/* Create the world of a declaration. `label` is scratch for `ranks` numbers. */
static twill_status create_declared(struct twill_world *world, const struct declared *d,
                                    uint32_t ranks, uint32_t *label, struct twill_error *error)
{
    uint32_t in[TWILL_LEVEL_COUNT]; /* ranks in one unit of each level */
    uint32_t below = twill_max(d->count[DECLARED_RANKS], 1);
    for (unsigned level = 0; level < TWILL_LEVEL_COUNT; level++) {
        in[level] = below;
        below *= (uint32_t)twill_max(d->count[level], 1);
    }
    for (uint32_t r = 0; r < ranks; r++)
        label[r] = r / in[TWILL_LEVEL_NODE];
    TWILL_TRY(error, twill_world_create(world, ranks, label, error));
    for (unsigned level = 0; level < TWILL_LEVEL_COUNT; level++) {
        if (level == TWILL_LEVEL_NODE || d->count[level] == 0)
            continue;
        for (uint32_t r = 0; r < ranks; r++)
            label[r] = r / in[level];
        TWILL_TRY(error, twill_world_set_level(world, (twill_level)level, label, error));
    }
    return TWILL_OK;
}

twill_status twill_world_declare(struct twill_world *world, const char *text,
                                 struct twill_error *error)
{
    struct declared d = {{0}};
    const char *at = text;
    uint64_t ranks = 1;
    bool names = strchr(text, '=') != NULL;
    memset(world, 0, sizeof(*world));
    if (!names && strchr(text, 'x') == NULL)
        return create_uneven(world, text, error);
    if (!(names ? read_names(&d, text, &at) : read_sizes(&d, text, &at)))
        return refuse_declaration(text, at, error);
    for (unsigned key = 0; key < KEYS && ranks <= TWILL_WORLD_MAX_RANKS; key++)
        ranks *= twill_max(d.count[key], 1);
    if (ranks > TWILL_WORLD_MAX_RANKS)
        return refuse_declaration(text, text, error);
    uint32_t *label = calloc(ranks, sizeof(*label));
    if (label == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "world: no memory for %u ranks",
                          (unsigned)ranks);
    twill_status status = create_declared(world, &d, (uint32_t)ranks, label, error);
    free(label);
    if (status != TWILL_OK)
        twill_world_destroy(world);
    return status;
}

/* In world->order the ranks of each unit of each level are contiguous, so a unit is a range. */

enum { MOST_LINES = 24, FEW_UNITS = 16, LIST_BYTES = 64 };

/* The nouns for levels in the text, while names are those of twill_level_name(). */
#define LEVEL_TEXT(NOUN, name, noun, with) [TWILL_LEVEL_##NOUN] = (noun),
static const char *const nouns[] = {TWILL_LEVELS(LEVEL_TEXT, )};

/* The tree of levels that is printed, and the text so far. A local variable of the function that
 * prints, which open_tree() sets. */
struct tree {
    const struct twill_world *world;
    unsigned level[TWILL_LEVEL_COUNT], levels;   /* levels that divide something, outermost first */
    const uint32_t *unit[TWILL_LEVEL_COUNT + 1]; /* units of the ranks, at last the ranks */
    bool whole; /* units with equal structure are also printed one by one */
    char *text;
    size_t bytes, used, lines; /* bytes of `text` and of those in use, and the lines printed */
};

/* Append to the text, which is cut if it is full. */
static void TWILL_PRINTF(2, 3) print_tree(struct tree *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = twill_print_list(t->text + t->used, t->bytes - t->used, format, arguments);
    va_end(arguments);
    t->used = twill_min(t->used + (length > 0 ? (size_t)length : 0), t->bytes - 1);
}

/* Return the unit to which the rank at index i of world->order belongs, in the level at this depth
 * of the tree. Depth 0 is the outermost level. At the last depth, it is the rank itself. */
static uint32_t unit_at(const struct tree *t, unsigned depth, uint32_t i)
{
    return t->unit[depth][t->world->order[i]];
}

/* Return the levels of a world for printing to text[bytes], which is emptied. These are the nodes
 * and all levels with more units than the next level outside them, from the outermost on. The
 * result points into the world and owns nothing. */
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

/* Return the index in world->order after the last rank of the unit, at this depth of the tree, that
 * starts at index i. It is at most `last`. */
static uint32_t end_of(const struct tree *t, unsigned depth, uint32_t i, uint32_t last)
{
    uint32_t unit = unit_at(t, depth, i);
    while (i < last && unit_at(t, depth, i) == unit)
        i++;
    return i;
}

/* Return whether two ranges of `length` ranks are divided in the same way in the levels from this
 * depth down. They begin at indices a and b of world->order. */
static bool alike(const struct tree *t, unsigned depth, uint32_t a, uint32_t b, uint32_t length)
{
    for (; depth < t->levels; depth++)
        for (uint32_t i = 1; i < length; i++)
            if ((unit_at(t, depth, a + i) == unit_at(t, depth, a + i - 1)) !=
                (unit_at(t, depth, b + i) == unit_at(t, depth, b + i - 1)))
                return false;
    return true;
}

/* Print to `text` the ranks at indices `first` to `last` - 1 of world->order, such as "0-3,8-11".
 * The list is cut off with dots if there are too many. */
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

/* Print a line about unit `number` of the level at this depth or, if `same` is above 1, about that
 * many units from it on. The ranks of the first unit are at indices `first` to before `end` of
 * world->order. Those of the last unit begin at index `final`. */
static void put_units(struct tree *t, unsigned depth, uint32_t number, uint32_t same,
                      uint32_t first, uint32_t end, uint32_t final)
{
    char list[LIST_BYTES], last[LIST_BYTES];
    const char *name = nouns[t->level[depth]];
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

/* Print the units at a depth of the tree and everything inside them. They are those of the ranks at
 * indices `first` to `last` - 1 of world->order. After MOST_LINES - 1 lines, dots replace the rest.
 * Recursive, as deep as there are levels. */
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

/* Set *least and *most to the smallest and the largest number of units of this depth inside one
 * unit of the depth above it. At the last depth they are numbers of ranks. */
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
        print_tree(&t, " %s%s", depth < t.levels ? nouns[t.level[depth]] : "rank",
                   most > 1 ? "s" : "");
    }
    return t.levels > 1;
}
