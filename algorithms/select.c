/* SPDX-License-Identifier: Apache-2.0 */
/* Which algorithm for which call: fixed thresholds, or what the user wants. Integers only, and
 * only what all ranks know alike, so that all choose alike. */
#include "algorithms/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Everybody folding everything synchronises once instead of twice, but reads (L-1)n per rank: worth
 * it while all of that is little, and the more the more ranks there are to synchronise. Measured
 * with 2 ranks on 2 cores and 4 on 2; what it costs with many is an estimate. */
#define FLAT_MOST     ((size_t)8 << 10)  /* of a message */
#define FLAT_PER_RANK ((size_t)4 << 10)  /* of it, for each other rank */
#define FLAT_READ     ((size_t)24 << 10) /* of all messages */
/* Between nodes: below, lg G latencies of n bytes beat 2(G-1) latencies of n/G bytes, at latencies
 * of 10 us and 1 to 10 GB/s. */
#define DOUBLING_MOST ((size_t)32 << 10)

/* One entry of `wanted`. */
struct wish {
    const char *name; /* not terminated */
    int length;
    int flavour;    /* -1: any */
    int collective; /* -1: all that the algorithm does */
};

static bool is_flat(const struct twill_world *world, size_t bytes)
{
    size_t others = twill_world_widest(world) - 1;
    return bytes <= FLAT_MOST && bytes <= FLAT_PER_RANK * others && bytes * others <= FLAT_READ;
}

static enum twill_flavour flavour_for(const struct twill_world *world,
                                      enum twill_collective collective, size_t bytes, bool mapped)
{
    if (bytes <= TWILL_IMM_BYTES)
        return TWILL_FLAVOUR_IMM;
    if (collective == TWILL_ALLREDUCE && is_flat(world, bytes))
        return TWILL_FLAVOUR_FLAT;
    return mapped && bytes >= TWILL_MAPPED_BYTES ? TWILL_FLAVOUR_MAPPED : TWILL_FLAVOUR_STAGED;
}

static const struct twill_algorithm *automatic(const struct twill_world *world,
                                               enum twill_collective collective, size_t bytes,
                                               enum twill_flavour flavour)
{
    uint32_t widest = twill_world_widest(world);
    if (world->nodes == 1)
        return &twill_algorithm_direct;
    if (collective == TWILL_BROADCAST)
        return widest == 1 ? &twill_algorithm_tree : &twill_algorithm_hierarchical_tree;
    size_t between = widest > 1 && twill_flavour_is_sharded(flavour) ? bytes / widest : bytes;
    bool doubling = collective == TWILL_BARRIER || between <= DOUBLING_MOST;
    if (widest == 1)
        return doubling ? &twill_algorithm_recursive_doubling : &twill_algorithm_ring;
    return doubling ? &twill_algorithm_hierarchical_recursive_doubling
                    : &twill_algorithm_hierarchical_ring;
}

/* Name of a collective or flavour to its number, or -1. */
static int lookup(const char *text, int length, const char *(*name)(unsigned), unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (strlen(name(i)) == (size_t)length && memcmp(name(i), text, (size_t)length) == 0)
            return (int)i;
    return -1;
}

static const char *collective_name(unsigned i)
{
    return twill_collective_name((enum twill_collective)i);
}

static const char *flavour_name(unsigned i)
{
    return twill_flavour_name((enum twill_flavour)i);
}

static const struct twill_algorithm *find(const struct wish *wish)
{
    const struct twill_algorithm *a;
    for (size_t i = 0; (a = twill_algorithm_at(i)) != NULL; i++)
        if (strlen(a->name) == (size_t)wish->length &&
            memcmp(a->name, wish->name, (size_t)wish->length) == 0)
            return a;
    return NULL;
}

/* List the algorithms that apply here, with a suggestion if a name came close. */
static twill_status refuse(const struct wish *wish, const struct twill_world *world,
                           const struct twill_shape *shape, const char *why,
                           struct twill_error *error)
{
    char names[256] = "";
    size_t used = 0;
    const struct twill_algorithm *a, *nearest = NULL;
    unsigned best = 5; /* farther is no slip of the hand */
    for (size_t i = 0; (a = twill_algorithm_at(i)) != NULL; i++) {
        struct twill_shape any = *shape;
        bool applies = false;
        for (unsigned f = 0; f < TWILL_FLAVOUR_COUNT; f++) {
            any.flavour = (enum twill_flavour)f;
            applies = applies || twill_algorithm_applies(a, world, &any);
        }
        unsigned d = twill_text_distance(wish->name, (size_t)wish->length, a->name);
        if (find(wish) == NULL && d < best) {
            best = d;
            nearest = a;
        }
        if (applies && used < sizeof(names))
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                                     used > 0 ? ", " : "", a->name);
    }
    return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                      "TWILL_ALGORITHM: \"%.*s\" %s%s%s%s; for %s with %u ranks on %u nodes there "
                      "are: %s",
                      wish->length, wish->name, why, nearest ? ", did you mean \"" : "",
                      nearest ? nearest->name : "", nearest ? "\"" : "",
                      twill_collective_name(shape->collective), world->size, world->nodes, names);
}

/* Read the entry at text[0..length). */
static struct wish read_wish(const char *text, int length, bool *known_flavour)
{
    struct wish wish = {.name = text, .length = length, .flavour = -1, .collective = -1};
    const char *colon = memchr(text, ':', (size_t)length);
    if (colon != NULL)
        wish.collective =
            lookup(text, (int)(colon - text), collective_name, TWILL_COLLECTIVE_COUNT);
    if (wish.collective >= 0) {
        wish.length -= (int)(colon + 1 - text);
        wish.name = colon + 1;
    }
    const char *at = memchr(wish.name, '@', (size_t)wish.length);
    *known_flavour = true;
    if (at != NULL) {
        int rest = (int)(wish.name + wish.length - (at + 1));
        wish.flavour = lookup(at + 1, rest, flavour_name, TWILL_FLAVOUR_COUNT);
        *known_flavour = wish.flavour >= 0;
        if (*known_flavour)
            wish.length = (int)(at - wish.name);
    }
    return wish;
}

static bool is_auto(const struct wish *wish)
{
    return wish->length == 4 && memcmp(wish->name, "auto", 4) == 0 && wish->flavour < 0;
}

/* The entry that governs this collective, into *chosen (length 0: none). An entry for one
 * collective goes before one for all, a later one before an earlier one. Every entry is checked for
 * spelling, whichever governs. */
static twill_status parse(const char *wanted, const struct twill_world *world,
                          const struct twill_shape *shape, struct wish *chosen,
                          struct twill_error *error)
{
    *chosen = (struct wish){.collective = -1, .flavour = -1};
    for (const char *text = wanted; *text != '\0';) {
        size_t length = strcspn(text, ";");
        bool known_flavour;
        struct wish wish = read_wish(text, (int)twill_min(length, 255), &known_flavour);
        text += length + (text[length] == ';');
        if (length == 0)
            continue;
        if (!known_flavour)
            return refuse(&wish, world, shape, "has an unknown flavour (imm, flat, staged, mapped)",
                          error);
        const struct twill_algorithm *a = find(&wish);
        if (a == NULL && !is_auto(&wish))
            return refuse(&wish, world, shape, "is not the name of an algorithm", error);
        bool meant =
            wish.collective == (int)shape->collective ||
            (wish.collective < 0 && (a == NULL || (a->collectives >> shape->collective & 1) != 0));
        if (meant && wish.collective >= chosen->collective)
            *chosen = wish;
    }
    return TWILL_OK;
}

static twill_status apply(struct twill_choice *choice, const struct wish *wish,
                          const struct twill_world *world, size_t bytes, bool mapped,
                          struct twill_error *error)
{
    struct twill_shape *shape = &choice->shape;
    choice->algorithm = find(wish);
    bool barrier = shape->collective == TWILL_BARRIER;
    if (wish->flavour >= 0 && choice->algorithm->flavours == 0)
        return refuse(wish, world, shape, "has no flavours", error);
    if (wish->flavour >= 0) {
        shape->flavour = (enum twill_flavour)wish->flavour;
    } else if (!twill_algorithm_applies(choice->algorithm, world, shape)) {
        /* Perhaps it is too small for it: the next flavour up. */
        shape->flavour =
            shape->collective == TWILL_ALLREDUCE ? TWILL_FLAVOUR_FLAT : TWILL_FLAVOUR_STAGED;
    }
    if (!twill_algorithm_applies(choice->algorithm, world, shape))
        return refuse(wish, world, shape, "does not apply", error);
    if (!barrier && wish->flavour == TWILL_FLAVOUR_IMM && bytes > TWILL_IMM_BYTES)
        return refuse(wish, world, shape, "@imm takes at most 48 bytes", error);
    if (!barrier && wish->flavour == TWILL_FLAVOUR_MAPPED && !mapped)
        return refuse(wish, world, shape, "@mapped needs buffers from twill_alloc on all ranks",
                      error);
    return TWILL_OK;
}

struct twill_chooser {
    const struct twill_world *world;
    char *wanted;
};

twill_status twill_chooser_create(struct twill_chooser **chooser, const struct twill_world *world,
                                  const struct twill_tuning *tuning, const char *wanted,
                                  struct twill_error *error)
{
    (void)tuning;
    *chooser = calloc(1, sizeof(**chooser));
    if (*chooser == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for the choice of algorithms");
    (*chooser)->world = world;
    if (wanted != NULL && ((*chooser)->wanted = strdup(wanted)) == NULL) {
        twill_chooser_destroy(*chooser);
        *chooser = NULL;
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for the choice of algorithms");
    }
    return TWILL_OK;
}

void twill_chooser_destroy(struct twill_chooser *chooser)
{
    if (chooser == NULL)
        return;
    free(chooser->wanted);
    free(chooser);
}

bool twill_mapping_matters(struct twill_chooser *chooser,
                           const struct twill_select_request *request)
{
    bool flat = chooser->wanted == NULL && request->collective == TWILL_ALLREDUCE &&
                is_flat(chooser->world, request->bytes);
    return request->bytes >= TWILL_MAPPED_BYTES && !flat;
}

twill_status twill_select(struct twill_choice *choice, struct twill_chooser *chooser,
                          const struct twill_select_request *request, struct twill_error *error)
{
    const struct twill_world *world = chooser->world;
    enum twill_flavour flavour =
        flavour_for(world, request->collective, request->bytes, request->mapped);
    *choice = (struct twill_choice){.shape = {.collective = request->collective,
                                              .flavour = flavour,
                                              .root = request->root,
                                              .vector = request->vector,
                                              .order = request->order}};
    struct wish wish = {.length = 0};
    if (chooser->wanted != NULL)
        TWILL_TRY(error, parse(chooser->wanted, world, &choice->shape, &wish, error));
    if (wish.length > 0 && !is_auto(&wish))
        return apply(choice, &wish, world, request->bytes, request->mapped, error);
    choice->algorithm = automatic(world, request->collective, request->bytes, flavour);
    return TWILL_OK;
}
