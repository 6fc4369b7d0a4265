/* SPDX-License-Identifier: Apache-2.0 */
/* Create declared worlds, which need not exist: "48x2x4x8" or
 * "groups=2,nodes=24,packages=2,l3=4,ranks=8". */
#include "algorithms/world/world.h"

#include <stdlib.h>
#include <string.h>

enum {
    DECLARED_RANKS = TWILL_LEVEL_COUNT,
    KEYS
}; /* beyond the levels: ranks of the smallest unit */

/* The number of each inside one of the next larger; 0: not given. */
struct declared {
    uint32_t count[KEYS];
};

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

/* "48x2x4x8" */
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
        number[numbers] = twill_world_read_count(from, at);
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

/* Return the key that a name, singular or plural, stands for; KEYS if none. */
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

/* "nodes=48,ranks=8" */
static bool read_names(struct declared *d, const char *text, const char **at)
{
    for (*at = text;;) {
        size_t length = strcspn(*at, "=");
        unsigned key = (*at)[length] == '=' ? find_shape_key(*at, length) : KEYS;
        const char *end = *at + length + 1;
        if (key == KEYS || d->count[key] != 0)
            return false;
        d->count[key] = twill_world_read_count(end, &end);
        if (d->count[key] == 0 || (*end != ',' && *end != '\0'))
            return false;
        *at = end;
        if (*end == '\0')
            return true;
        ++*at;
    }
}

/* "4+2+1" */
static twill_status create_uneven(struct twill_world *world, const char *text,
                                  struct twill_error *error)
{
    uint64_t ranks = 0;
    for (const char *at = text; *at != '\0'; at += *at == '+') {
        uint32_t more = twill_world_read_count(at, &at);
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

static twill_status create_declared(struct twill_world *world, const struct declared *d,
                                    uint32_t ranks, uint32_t *label, struct twill_error *error)
{
    uint32_t in[TWILL_LEVEL_COUNT]; /* ranks in one of each */
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
