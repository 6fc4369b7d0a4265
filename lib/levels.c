/* SPDX-License-Identifier: Apache-2.0 */
/* Which tile, L3 cache, NUMA domain and package each rank is in, and which group its node: found,
 * or declared by variables. The same on all ranks, because all have the same cards. */
#include "lib/levels.h"

#include <stdlib.h>
#include <string.h>

void twill_levels_describe(const struct twill_context *context, struct twill_level_card *card)
{
    struct twill_units units;
    twill_topology_units(context->topology, NULL, &units);
    card->unit[TWILL_LEVEL_TILE] = (int16_t)units.tile;
    card->unit[TWILL_LEVEL_L3] = (int16_t)units.l3;
    card->unit[TWILL_LEVEL_NUMA] = (int16_t)units.numa;
    card->unit[TWILL_LEVEL_PACKAGE] = (int16_t)units.package;
}

static twill_status unreadable(struct twill_context *context, const char *text, const char *at)
{
    return TWILL_FAIL(&context->error, TWILL_ERR_CONFIG,
                      "TWILL_UNITS=%s: cannot be read at \"%s\"; write ranks of each, such as "
                      "l3=2,numa=4,package=8",
                      text, at);
}

static bool is_name(twill_level level, const char *text, size_t length)
{
    const char *name = twill_level_name(level);
    return strlen(name) == length && strncmp(name, text, length) == 0;
}

/* Ranks of each unit of a level, as declared; 0: not declared. */
static twill_status parse_units(struct twill_context *context, const char *text,
                                uint32_t ranks[TWILL_LEVEL_NODE])
{
    for (const char *at = text; *at != '\0';) {
        size_t length = strcspn(at, "=");
        unsigned level = 0;
        while (level < TWILL_LEVEL_NODE && !is_name((twill_level)level, at, length))
            level++;
        if (level == TWILL_LEVEL_NODE || at[length] != '=')
            return unreadable(context, text, at);
        char *end;
        const char *number = at + length + 1;
        long value = *number >= '0' && *number <= '9' ? strtol(number, &end, 10) : 0;
        if (value < 1 || value > TWILL_WORLD_MAX_RANKS || (*end != ',' && *end != '\0') ||
            (*end == ',' && end[1] == '\0'))
            return unreadable(context, text, number);
        ranks[level] = (uint32_t)value;
        at = *end == ',' ? end + 1 : end;
    }
    uint32_t inner = 1;
    for (unsigned level = 0; level < TWILL_LEVEL_NODE; level++) {
        if (ranks[level] != 0 && ranks[level] % inner != 0)
            return TWILL_FAIL(&context->error, TWILL_ERR_CONFIG,
                              "TWILL_UNITS=%s: %u ranks of a %s are no multiple of %u of a smaller "
                              "part",
                              text, ranks[level], twill_level_name((twill_level)level), inner);
        inner = ranks[level] != 0 ? ranks[level] : inner;
    }
    return TWILL_OK;
}

/* A level is known if each rank knows its own. */
static twill_status set_found(struct twill_context *context, const struct twill_level_card *card,
                              twill_level level, uint32_t *label)
{
    for (uint32_t r = 0; r < context->world.size; r++) {
        if (card[r].unit[level] < 0)
            return TWILL_OK;
        label[r] = (uint32_t)card[r].unit[level];
    }
    return twill_world_set_level(&context->world, level, label, &context->error);
}

static twill_status set_units(struct twill_context *context, const struct twill_level_card *card,
                              uint32_t *label)
{
    uint32_t ranks[TWILL_LEVEL_NODE] = {0};
    const char *declared = twill_config_text(&context->config, TWILL_VARIABLE_UNITS);
    if (declared != NULL)
        TWILL_TRY(&context->error, parse_units(context, declared, ranks));
    for (unsigned level = TWILL_LEVEL_NODE; level-- > 0;) { /* a unit lies in one of the next */
        if (declared == NULL) {
            TWILL_TRY(&context->error, set_found(context, card, (twill_level)level, label));
            continue;
        }
        for (uint32_t r = 0; ranks[level] != 0 && r < context->world.size; r++)
            label[r] = context->world.local[r] / ranks[level];
        if (ranks[level] != 0)
            TWILL_TRY(&context->error, twill_world_set_level(&context->world, (twill_level)level,
                                                             label, &context->error));
    }
    return TWILL_OK;
}

static twill_status set_groups(struct twill_context *context, uint32_t *label)
{
    struct twill_world *world = &context->world;
    const char *declared = twill_config_text(&context->config, TWILL_VARIABLE_GROUPS);
    if (declared == NULL)
        return TWILL_OK;
    uint32_t *group = calloc(world->nodes, sizeof(*group));
    if (group == NULL)
        return TWILL_FAIL(&context->error, TWILL_ERR_MEMORY, "out of memory");
    twill_status status = twill_world_parse_groups(declared, world->nodes, group, &context->error);
    for (uint32_t r = 0; status == TWILL_OK && r < world->size; r++)
        label[r] = group[world->node[r]];
    free(group);
    TWILL_TRY(&context->error, status);
    return twill_world_set_level(world, TWILL_LEVEL_GROUP, label, &context->error);
}

twill_status twill_levels_set(struct twill_context *context, const struct twill_level_card *card)
{
    uint32_t *label = calloc(context->world.size, sizeof(*label));
    if (label == NULL)
        return TWILL_FAIL(&context->error, TWILL_ERR_MEMORY, "out of memory");
    twill_status status = set_groups(context, label);
    if (status == TWILL_OK)
        status = set_units(context, card, label);
    free(label);
    return status;
}
