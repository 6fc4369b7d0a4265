/* SPDX-License-Identifier: Apache-2.0 */
/* "levels" is the composer (compose.c) over levels of the machine that the user names.
 *
 *     levels=tile:direct/numa:direct/node:direct/group:ring/all:recursive_doubling
 *
 * The text says, from the inside out, how the members of each unit communicate. These are the ranks
 * of a tile (or of an L3 cache, l3:), the tiles of a NUMA node, the NUMA nodes of a node, the nodes
 * of a group, and the groups. Levels that are not named are skipped. The last level named becomes
 * that of the whole world, unless it is `direct`, which is possible within a node only. Then a ring
 * is added on top. Without a list there is `direct` within the node and rings above. */
#include "algorithms/compose/compose.h"
#include "lib/base/lists.h"

#include <string.h>

#define LEVEL_WORD(NOUN, name, noun, with) [TWILL_LEVEL_##NOUN] = #name,
static const char *const level_names[] = {TWILL_LEVELS(LEVEL_WORD, )[TWILL_LEVEL_ALL] = "all"};
_Static_assert(TWILL_ARRAY_LENGTH(level_names) == TWILL_MAX_LEVELS, "a name for each");
static const char *const methods[] = {"direct", "ring", "recursive_doubling", "halving_doubling",
                                      "bruck"};
_Static_assert(TWILL_ARRAY_LENGTH(methods) == TWILL_BY_COUNT, "a name for each");

/* Return the index of the name that equals the text, or `count` if there is none. */
static uint32_t name_find(const char *const *names, uint32_t count, const char *text, size_t length)
{
    uint32_t i = 0;
    while (i < count && (strlen(names[i]) != length || memcmp(names[i], text, length) != 0))
        i++;
    return i;
}

/* Parse a text such as "node:direct/all:ring". Stores one number per level, the level in the upper
 * byte and the method in the lower, both from 1. Later entries stay as they are. Returns false if
 * it is malformed, levels are not from the inside out, or `direct` is above nodes. */
static bool parse(const char *text, size_t length, uint16_t parameter[TWILL_PARAMETERS])
{
    uint32_t next = 0;
    for (unsigned i = 0; i < TWILL_PARAMETERS; i++) {
        const char *slash = memchr(text, '/', length);
        size_t item = slash == NULL ? length : (size_t)(slash - text);
        const char *colon = memchr(text, ':', item);
        if (colon == NULL)
            return false;
        size_t name = (size_t)(colon - text);
        uint32_t level = name_find(level_names, TWILL_MAX_LEVELS, text, name);
        uint32_t how = name_find(methods, TWILL_BY_COUNT, colon + 1, item - name - 1);
        if (level < next || level == TWILL_MAX_LEVELS || how == TWILL_BY_COUNT ||
            (how == TWILL_BY_DIRECT && level > TWILL_LEVEL_NODE))
            return false;
        parameter[i] = (uint16_t)((level + 1) << 8 | (how + 1));
        next = level + 1;
        if (slash == NULL)
            return true;
        text = slash + 1;
        length -= item + 1;
    }
    return false; /* too many */
}

/* Store the levels of the shape, or the default ones, in `choice` and return their number. The last
 * entry is always TWILL_LEVEL_ALL. It is appended, by ring, after the default levels or a last
 * level by DIRECT, and otherwise replaces the name of the last level. */
static uint32_t read_choices(const struct twill_shape *shape,
                             struct twill_level_choice choice[TWILL_MAX_LEVELS])
{
    uint32_t count = 0;
    for (; count < TWILL_PARAMETERS && shape->parameter[count] != 0; count++) {
        choice[count].level = (uint8_t)((shape->parameter[count] >> 8) - 1);
        choice[count].how = (uint8_t)((shape->parameter[count] & 0xff) - 1);
    }
    if (count == 0)
        for (; count <= TWILL_LEVEL_GROUP; count++)
            choice[count] = (struct twill_level_choice){
                .level = (uint8_t)count,
                .how = count <= TWILL_LEVEL_NODE ? TWILL_BY_DIRECT : TWILL_BY_RING};
    if (choice[count - 1].how == TWILL_BY_DIRECT || shape->parameter[0] == 0)
        choice[count++] =
            (struct twill_level_choice){.level = TWILL_LEVEL_ALL, .how = TWILL_BY_RING};
    choice[count - 1].level = TWILL_LEVEL_ALL;
    return count;
}

/* Return whether reducing along the hierarchy keeps the order of ranks. No level may divide a shard
 * among members (twill_how_divides()), and at each level the units must ascend with the ranks. */
static bool keeps_order(const struct twill_hierarchy *l)
{
    for (uint32_t j = 0; j < l->count; j++) {
        if (twill_how_divides(l->level[j].choice.how))
            return false;
        for (uint32_t r = 1; r < l->world->size; r++)
            if (twill_level_unit(&l->level[j], r) < twill_level_unit(&l->level[j], r - 1))
                return false;
    }
    return true;
}

/* Return whether the composer can emit the shape over the hierarchy. A broadcast needs one node and
 * two or more levels, all `direct`. Only the top level may use recursive doubling, halving and
 * doubling or Bruck, and not if the message has one shard per rank. Otherwise shards and blocks
 * have limits. TWILL_ORDER_LEFT is impossible, and TWILL_ORDER_RANKS needs keeps_order(). */
static bool levels_suit(const struct twill_hierarchy *l, const struct twill_shape *shape)
{
    bool broadcasts = shape->collective == TWILL_BROADCAST;
    if (broadcasts && (l->world->nodes > 1 || l->count < 2))
        return false;
    for (uint32_t j = 0; j < l->count; j++) {
        bool top = j + 1 == l->count;
        if ((!top || l->sharded) && twill_how_is_top(l->level[j].choice.how))
            return false;
        if (broadcasts && l->level[j].choice.how != TWILL_BY_DIRECT)
            return false;
    }
    if (!l->sharded && (l->shards > TWILL_MOST_SHARDS || twill_hierarchy_blocks(l) >> 16 != 0))
        return false;
    return shape->order == TWILL_ORDER_ANY || (shape->order == TWILL_ORDER_RANKS && keeps_order(l));
}

/* Return whether the composer can emit the shape over the levels and with the methods that its
 * parameters name. With MAPPED it cannot if shards differ in size (`vector`). levels_suit() has the
 * other conditions. Returns false if out of memory. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    struct twill_level_choice choice[TWILL_MAX_LEVELS];
    struct twill_hierarchy l;
    uint32_t choices = read_choices(shape, choice);
    bool sharded = twill_collective_facts(shape->collective)->sharded;
    if (shape->vector && shape->protocol == TWILL_PROTOCOL_MAPPED)
        return false;
    bool does =
        twill_hierarchy_open(&l, world, 0, sharded, choice, choices) && levels_suit(&l, shape);
    twill_hierarchy_close(&l);
    return does;
}

/* The emit() of a twill_algorithm. Append this rank's steps of the shape's collective, composed of
 * the levels that the shape's parameters name. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    struct twill_level_choice choice[TWILL_MAX_LEVELS];
    twill_compose(e, shape, choice, read_choices(shape, choice));
}

const struct twill_algorithm twill_algorithm_levels = {
    .name = "levels",
    .help = "reduce-scatter down any levels, allreduce at the top, allgather back: "
            "levels=tile:direct/numa:direct/node:direct/all:ring",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_REDUCE_SCATTER | 1u << TWILL_ALLGATHER |
                   1u << TWILL_BROADCAST,
    .protocols = 1u << TWILL_PROTOCOL_STAGED | 1u << TWILL_PROTOCOL_MAPPED,
    .parameters = TWILL_PARAMETERS,
    .applies = applies,
    .parse = parse,
    .examples = "node:ring/all:recursive_doubling;node:direct/all:halving_doubling;tile:direct/"
                "numa:direct/package:direct;"
                "package:ring/node:direct",
    .emit = emit,
};
