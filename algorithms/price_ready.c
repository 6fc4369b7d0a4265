/* SPDX-License-Identifier: Apache-2.0 */
/* The price of a schedule: emitting, and finding what each step waits for. See price.h. */
#include "algorithms/price_state.h"
#include "algorithms/step.h"

#include <stdlib.h>
#include <string.h>

void twill_pricing_destroy(struct twill_pricing *p)
{
    if (p == NULL)
        return;
    for (uint32_t r = 0; p->schedule != NULL && r < p->world->size; r++)
        twill_schedule_destroy(&p->schedule[r]);
    twill_pricing_destroy(p->half);
    twill_pricing_destroy(p->quarter);
    twill_world_destroy(&p->own);
    void *const all[] = {p->schedule, p->base,     p->step,  p->match,    p->link, p->raised,
                         p->put,      p->lane,     p->heap,  p->when,     p->sent, p->core,
                         p->waiter,   p->node_out, p->crowd, p->port_out, p};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(all); i++)
        free(all[i]);
}

/* As many steps of each kind. */
static bool are_alike(const struct twill_schedule *a, const struct twill_schedule *b)
{
    uint32_t more[TWILL_STEP_OP_COUNT] = {0};
    for (uint32_t i = 0; i < a->count && a->count == b->count; i++) {
        more[a->steps[i].op]++;
        more[b->steps[i].op]--;
    }
    for (unsigned op = 0; op < TWILL_STEP_OP_COUNT; op++)
        if (more[op] != 0)
            return false;
    return a->count == b->count;
}

/* The representatives, and if it takes them all others. TWILL_PENDING: it would take too many. */
static twill_status emit_all(struct twill_pricing *p, const struct twill_algorithm *algorithm,
                             const struct twill_shape *shape, struct twill_error *error)
{
    uint32_t size = p->world->size, most = 0;
    const uint32_t representative[] = {0, size / 2, size - 1};
    bool alike = true;
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(representative); i++) {
        struct twill_schedule *schedule = &p->schedule[representative[i]];
        if (schedule->blocks == 0)
            TWILL_TRY(error, twill_schedule_emit(schedule, algorithm, p->world, representative[i],
                                                 shape, error));
        most = (uint32_t)twill_max(most, schedule->count);
        alike = alike && are_alike(&p->schedule[0], schedule);
    }
    p->blocks = p->schedule[0].blocks;
    uint64_t all = (uint64_t)most * size;
    p->whole = all <= TWILL_PRICE_ALIKE || (!alike && all <= TWILL_PRICE_STEPS);
    if (!p->whole && !alike)
        return TWILL_PENDING;
    for (uint32_t r = 0; r < size && p->whole; r++)
        if (p->schedule[r].blocks == 0)
            TWILL_TRY(error,
                      twill_schedule_emit(&p->schedule[r], algorithm, p->world, r, shape, error));
    return TWILL_OK;
}

static bool make_room(struct twill_pricing *p)
{
    size_t size = p->world->size, nodes = p->world->nodes, steps = 0;
    p->base = calloc(size + 1, sizeof(*p->base));
    for (uint32_t r = 0; r < size && p->base != NULL; r++)
        p->base[r + 1] = (uint32_t)(steps += p->schedule[r].count);
    p->step = malloc((steps + 1) * sizeof(*p->step));
    p->match = malloc((steps + 1) * sizeof(*p->match));
    p->link = malloc(steps + 1);
    p->when = malloc((steps + 1) * sizeof(*p->when));
    p->sent = calloc(steps + 1, sizeof(*p->sent));
    p->waiter = malloc((steps + 1) * sizeof(*p->waiter));
    p->raised = malloc(size * TWILL_SCHEDULE_LANES * sizeof(*p->raised));
    p->put = malloc(size * TWILL_SCHEDULE_LANES * sizeof(*p->put));
    p->lane = malloc(size * TWILL_SCHEDULE_LANES * sizeof(*p->lane));
    p->heap = malloc(size * TWILL_SCHEDULE_LANES * sizeof(*p->heap));
    p->core = malloc(size * 5 * sizeof(*p->core));
    p->node_out = malloc(nodes * 3 * sizeof(*p->node_out));
    p->crowd = calloc(size * TWILL_LEVEL_NODE, sizeof(*p->crowd));
    p->port_out = malloc(size * TWILL_LEVEL_NODE * 4 * sizeof(*p->port_out));
    if (p->base == NULL || p->step == NULL || p->match == NULL || p->link == NULL ||
        p->when == NULL || p->sent == NULL || p->waiter == NULL || p->raised == NULL ||
        p->put == NULL || p->lane == NULL || p->heap == NULL || p->core == NULL ||
        p->node_out == NULL || p->crowd == NULL || p->port_out == NULL)
        return false;
    p->out = p->core + size;
    p->in = p->out + size;
    p->busy = p->in + size;
    p->busy_out = p->busy + size;
    p->node_in = p->node_out + nodes;
    p->busy_node = p->node_in + nodes;
    p->port_in = p->port_out + size * TWILL_LEVEL_NODE;
    p->busy_port_out = p->port_in + size * TWILL_LEVEL_NODE;
    p->busy_port_in = p->busy_port_out + size * TWILL_LEVEL_NODE;
    for (size_t i = 0; i < size * TWILL_LEVEL_NODE; i++)
        if (p->world->unit[i / size] != NULL)
            p->crowd[i / size * size + p->world->unit[i / size][i % size]]++;
    for (uint32_t r = 0; r < size; r++)
        if (p->schedule[r].count > 0)
            memcpy(&p->step[p->base[r]], p->schedule[r].steps,
                   p->schedule[r].count * sizeof(*p->step));
    return true;
}

static void classify_links(struct twill_pricing *p)
{
    for (uint32_t r = 0; r < p->world->size; r++)
        for (uint32_t i = p->base[r]; i < p->base[r + 1]; i++)
            p->link[i] = (uint8_t)(twill_step_shape(p->step[i].op)->posts
                                       ? twill_link_between(p->world, r, p->step[i].peer[0])
                                       : TWILL_LINK_NODE);
}

/* Lists of a lane's flags: match leads from each to the next. */
static void link_flags(struct twill_pricing *p)
{
    memset(p->raised, 0xff, (size_t)p->world->size * TWILL_SCHEDULE_LANES * sizeof(*p->raised));
    memset(p->put, 0xff, (size_t)p->world->size * TWILL_SCHEDULE_LANES * sizeof(*p->put));
    for (uint32_t r = 0; r < p->world->size; r++) {
        for (uint32_t i = p->base[r + 1]; i-- > p->base[r];) {
            uint32_t lane = r * TWILL_SCHEDULE_LANES + p->step[i].lane;
            bool puts = p->step[i].op == TWILL_STEP_PUT_IMM;
            if (!puts && p->step[i].op != TWILL_STEP_SIGNAL)
                continue;
            int32_t *first = puts ? &p->put[lane] : &p->raised[lane];
            p->match[i] = *first;
            *first = (int32_t)i;
        }
    }
}

struct channel {
    uint64_t key; /* from, to and lane, plus 1; 0: free */
    int32_t first;
};

static struct channel *channel_of(struct channel *table, size_t mask, uint32_t from, uint32_t to,
                                  uint32_t lane)
{
    uint64_t key = ((uint64_t)from << 32 | (uint64_t)to << 8 | lane) + 1;
    size_t at = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & mask;
    while (table[at].key != 0 && table[at].key != key)
        at = (at + 1) & mask;
    if (table[at].key == 0)
        table[at] = (struct channel){.key = key, .first = TWILL_PRICE_NONE};
    return &table[at];
}

/* Which SEND each RECV gets: the first to the first of a (from, to, lane), and so on. */
static bool match_messages(struct twill_pricing *p)
{
    uint32_t steps = p->base[p->world->size];
    size_t room = 64;
    while (room < 2 * (size_t)steps)
        room *= 2;
    struct channel *table = calloc(room, sizeof(*table));
    if (table == NULL)
        return false;
    for (uint32_t r = p->world->size; r-- > 0;) {
        for (uint32_t i = p->base[r + 1]; i-- > p->base[r];) {
            if (p->step[i].op != TWILL_STEP_SEND)
                continue;
            struct channel *c = channel_of(table, room - 1, r, p->step[i].peer[0], p->step[i].lane);
            p->match[i] = c->first;
            c->first = (int32_t)i;
        }
    }
    for (uint32_t r = 0; r < p->world->size; r++) {
        for (uint32_t i = p->base[r]; i < p->base[r + 1]; i++) {
            if (p->step[i].op == TWILL_STEP_SEND || !twill_step_shape(p->step[i].op)->posts)
                continue;
            struct channel *c = channel_of(table, room - 1, p->step[i].peer[0], r, p->step[i].lane);
            p->match[i] = c->first;
            c->first = c->first != TWILL_PRICE_NONE ? p->match[c->first] : TWILL_PRICE_NONE;
        }
    }
    free(table);
    return true;
}

/* The first `size` ranks of a world. */
static twill_status shrink(struct twill_world *small, const struct twill_world *world,
                           uint32_t size, struct twill_error *error)
{
    TWILL_TRY(error, twill_world_create(small, size, world->node, error));
    for (unsigned level = TWILL_LEVEL_COUNT; level-- > 0;)
        if (world->unit[level] != NULL && level != TWILL_LEVEL_NODE)
            TWILL_TRY(error,
                      twill_world_set_level(small, (twill_level)level, world->unit[level], error));
    return TWILL_OK;
}

/* As the executor does: what crosses the network, or goes by messages, in large slices, what is
 * staged in small ones, what is mapped or fetched not at all, unless it takes scratch. */
static enum twill_price_cut how_cut(const struct twill_algorithm *algorithm,
                                    const struct twill_world *world,
                                    const struct twill_shape *shape,
                                    const struct twill_schedule *schedule)
{
    if (world->nodes > 1 || algorithm->flavours == 0)
        return TWILL_PRICE_CUT_NET;
    return shape->flavour >= TWILL_FLAVOUR_MAPPED && schedule->tmp_blocks == 0
               ? TWILL_PRICE_UNCUT
               : TWILL_PRICE_CUT_SHARED;
}

/* On world, or if that is NULL on the first `size` ranks of `of`. PENDING: it is too large. */
static twill_status prepare(struct twill_pricing **pricing, const struct twill_algorithm *algorithm,
                            const struct twill_world *world, const struct twill_world *of,
                            uint32_t size, const struct twill_shape *shape,
                            struct twill_error *error)
{
    twill_status status = TWILL_ERR_MEMORY;
    struct twill_pricing *p = *pricing = calloc(1, sizeof(*p));
    if (p == NULL)
        goto fail;
    p->world = world != NULL ? world : &p->own;
    p->ranks = (world != NULL ? world : of)->size;
    if (world == NULL)
        TWILL_TRY_OR_FAIL(error, shrink(&p->own, of, size, error));
    p->schedule = calloc(p->world->size, sizeof(*p->schedule));
    status = p->schedule == NULL ? TWILL_ERR_MEMORY : emit_all(p, algorithm, shape, error);
    if (status != TWILL_OK)
        goto fail;
    p->cut = how_cut(algorithm, world != NULL ? world : of, shape, &p->schedule[0]);
    p->fetches = algorithm->flavours != 0 && shape->flavour == TWILL_FLAVOUR_FETCHED &&
                 (p->schedule[0].uses_peer_src || p->schedule[0].uses_peer_dst);
    status = TWILL_ERR_MEMORY;
    if (!make_room(p))
        goto fail;
    classify_links(p);
    link_flags(p);
    if (!match_messages(p))
        goto fail;
    return TWILL_OK;
fail:
    twill_pricing_destroy(p);
    *pricing = NULL;
    return status == TWILL_ERR_MEMORY
               ? TWILL_FAIL(error, status, "out of memory for the price of %s", algorithm->name)
               : status;
}

/* Half the world as often as it takes, and half of that. */
static twill_status prepare_halves(struct twill_pricing *p, const struct twill_algorithm *algorithm,
                                   const struct twill_world *world, const struct twill_shape *shape,
                                   struct twill_error *error)
{
    twill_status status = TWILL_PENDING;
    uint32_t size = world->size;
    while (status == TWILL_PENDING && size >= 4) {
        size /= 2;
        p->doublings++;
        status = prepare(&p->half, algorithm, NULL, world, size, shape, error);
    }
    if (status == TWILL_OK)
        status = prepare(&p->quarter, algorithm, NULL, world, size / 2, shape, error);
    return status != TWILL_PENDING
               ? status
               : TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED, "%s has no price", algorithm->name);
}

twill_status twill_pricing_create(struct twill_pricing **pricing,
                                  const struct twill_algorithm *algorithm,
                                  const struct twill_world *world, const struct twill_shape *shape,
                                  struct twill_error *error)
{
    twill_status status = prepare(pricing, algorithm, world, NULL, 0, shape, error);
    if (status != TWILL_PENDING)
        return status;
    *pricing = calloc(1, sizeof(**pricing));
    if (*pricing == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for the price of %s",
                          algorithm->name);
    (*pricing)->world = world;
    status = prepare_halves(*pricing, algorithm, world, shape, error);
    if (status != TWILL_OK) {
        twill_pricing_destroy(*pricing);
        *pricing = NULL;
    }
    return status;
}

twill_status twill_price(uint64_t *picoseconds, const struct twill_algorithm *algorithm,
                         const struct twill_world *world, const struct twill_shape *shape,
                         const struct twill_machine_model *model, size_t bytes, twill_type type,
                         struct twill_error *error)
{
    struct twill_pricing *pricing;
    *picoseconds = TWILL_PRICE_NEVER;
    if (!twill_algorithm_applies(algorithm, world, shape))
        return TWILL_OK;
    TWILL_TRY(error, twill_pricing_create(&pricing, algorithm, world, shape, error));
    *picoseconds = twill_pricing_at(pricing, model, bytes, type);
    twill_pricing_destroy(pricing);
    return TWILL_OK;
}
