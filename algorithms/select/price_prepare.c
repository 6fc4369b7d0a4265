/* SPDX-License-Identifier: Apache-2.0 */
/* Creates pricings: emits the schedules and unpacks them into the steps that price.c runs. */
#include "algorithms/schedule/step_table.h"
#include "algorithms/select/price_state.h"

#include <stdlib.h>
#include <string.h>

/* Factor on the budget of steps where not even a few nodes can be run within it. */
#define PRICE_PATIENCE 32u
/* Ranks whose schedules the total number of steps is estimated from. */
#define SAMPLE 13u

static void drop_schedules(struct twill_pricing *p)
{
    for (uint32_t r = 0; p->schedules.list != NULL && r < p->schedules.count; r++)
        twill_schedule_destroy(&p->schedules.list[r]);
    free(p->schedules.list);
    p->schedules.list = NULL;
}

/* Release all but the world that the pricing is on, to prepare it in another way. */
static void unmake(struct twill_pricing *p)
{
    drop_schedules(p);
    twill_world_destroy(&p->worlds.one);
    void *const all[] = {p->lanes.first,     p->steps.base,        p->steps.step,
                         p->steps.match,     p->steps.link,        p->steps.hop,
                         p->steps.raised,    p->steps.put,         p->lanes.lane,
                         p->queue.heap,      p->times.when,        p->times.sent,
                         p->resources.core,  p->times.waiter,      p->resources.node_out,
                         p->resources.crowd, p->resources.port_out};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(all); i++)
        free(all[i]);
    p->steps = (struct twill_price_steps){.base = NULL};
    p->lanes = (struct twill_price_lanes){.lane = NULL};
    p->queue = (struct twill_price_queue){.heap = NULL};
    p->times = (struct twill_price_times){.when = NULL};
    p->resources = (struct twill_price_resources){.core = NULL};
    p->mode = TWILL_PRICE_WHOLE;
    p->worlds.run = p->worlds.truth;
}

void twill_pricing_destroy(struct twill_pricing *p)
{
    if (p == NULL)
        return;
    unmake(p);
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(p->scale.sample); i++)
        twill_pricing_destroy(p->scale.sample[i]);
    twill_world_destroy(&p->worlds.own);
    free(p);
}

/* --- schedules -------------------------------------------------------------------------------- */

twill_status twill_price_emit(struct twill_pricing *p, const struct twill_price_query *a,
                              uint32_t rank, struct twill_schedule *schedule)
{
    if (schedule->blocks != 0)
        return TWILL_OK;
    /* One is enough: schedules are checked again before they are executed. */
    if (p->schedules.checked)
        return a->algorithm->emit(schedule, p->worlds.truth, rank, a->shape, a->error);
    p->schedules.checked = true;
    return twill_schedule_emit(schedule, a->algorithm, p->worlds.truth, rank, a->shape, a->error);
}

bool twill_price_make_schedules(struct twill_pricing *p, uint32_t count)
{
    drop_schedules(p);
    p->schedules.count = count;
    p->schedules.list = calloc(count, sizeof(*p->schedules.list));
    return p->schedules.list != NULL;
}

twill_status twill_price_emit_all(struct twill_pricing *p, const struct twill_price_query *a)
{
    uint32_t size = p->worlds.run->size;
    uint64_t steps = 0, most = a->steps < INT32_MAX ? a->steps : INT32_MAX;
    for (uint32_t i = 0; i < size; i++) {
        uint32_t rank = p->mode == TWILL_PRICE_ONE_NODE
                            ? twill_world_member(p->worlds.truth, p->worlds.node, i)
                            : i;
        TWILL_TRY(a->error, twill_price_emit(p, a, rank, &p->schedules.list[i]));
        steps += p->schedules.list[i].count;
        if (steps > most)
            return TWILL_PENDING;
    }
    return TWILL_OK;
}

/* Estimate the steps of all ranks from a few of them. The longest, such as a root's, is counted
 * once: it says nothing about others. */
static twill_status guess_steps(struct twill_pricing *p, const struct twill_price_query *a,
                                uint64_t *steps)
{
    uint32_t size = p->worlds.run->size, some = size < SAMPLE ? size : SAMPLE;
    uint64_t sum = 0, most = 0;
    for (uint32_t i = 0; i < some; i++) {
        uint32_t rank = (uint32_t)((uint64_t)i * (size - 1) / (some > 1 ? some - 1 : 1));
        TWILL_TRY(a->error, twill_price_emit(p, a, rank, &p->schedules.list[rank]));
        sum += p->schedules.list[rank].count;
        most = p->schedules.list[rank].count > most ? p->schedules.list[rank].count : most;
        if (i == 2 && (sum - most) / 2 * size / 4 > a->steps) /* too many by far */
            some = i + 1;
    }
    *steps = some > 1 ? (sum - most) * (size - 1) / (some - 1) + most : sum;
    return TWILL_OK;
}

/* Emit the schedules of all ranks. TWILL_PENDING: too many steps. */
static twill_status emit_whole(struct twill_pricing *p, const struct twill_price_query *a)
{
    uint64_t steps = 0;
    if (p->worlds.run->size > a->steps)
        return TWILL_PENDING;
    if (!twill_price_make_schedules(p, p->worlds.run->size))
        return TWILL_ERR_MEMORY;
    TWILL_TRY(a->error, guess_steps(p, a, &steps));
    return steps > a->steps ? TWILL_PENDING : twill_price_emit_all(p, a);
}

/* --- steps and lanes -------------------------------------------------------------------------- */

static bool allocate_steps(struct twill_pricing *p)
{
    size_t size = p->worlds.run->size, nodes = p->worlds.run->nodes, steps = 0;
    p->steps.base = calloc(size + 1, sizeof(*p->steps.base));
    p->lanes.count = 0;
    for (uint32_t r = 0; r < size && p->steps.base != NULL; r++) {
        p->steps.base[r + 1] = (uint32_t)(steps += p->schedules.list[r].count);
        p->lanes.count += p->schedules.list[r].lanes;
    }
    p->steps.step = malloc((steps + 1) * sizeof(*p->steps.step));
    p->steps.match = malloc((steps + 1) * sizeof(*p->steps.match));
    p->steps.link = malloc(steps + 1);
    p->steps.hop =
        p->mode == TWILL_PRICE_ONE_NODE ? malloc((steps + 1) * sizeof(*p->steps.hop)) : NULL;
    p->times.when = malloc((steps + 1) * sizeof(*p->times.when));
    p->times.sent = calloc(steps + 1, sizeof(*p->times.sent));
    p->times.waiter = malloc((steps + 1) * sizeof(*p->times.waiter));
    p->steps.raised = malloc(size * TWILL_SCHEDULE_LANES * sizeof(*p->steps.raised));
    p->steps.put = malloc(size * TWILL_SCHEDULE_LANES * sizeof(*p->steps.put));
    p->lanes.first = malloc((p->lanes.count + 1) * sizeof(*p->lanes.first));
    p->lanes.lane = malloc((p->lanes.count + 1) * sizeof(*p->lanes.lane));
    p->queue.heap = malloc((p->lanes.count + 1) * sizeof(*p->queue.heap));
    p->resources.core = malloc(size * 5 * sizeof(*p->resources.core));
    p->resources.node_out = malloc(nodes * 5 * sizeof(*p->resources.node_out));
    p->resources.crowd = calloc(size * (TWILL_LEVEL_NODE + 1), sizeof(*p->resources.crowd));
    p->resources.port_out = malloc(size * TWILL_LEVEL_NODE * 4 * sizeof(*p->resources.port_out));
    return (p->mode != TWILL_PRICE_ONE_NODE || p->steps.hop != NULL) && p->steps.base != NULL &&
           p->steps.step != NULL && p->steps.match != NULL && p->steps.link != NULL &&
           p->times.when != NULL && p->times.sent != NULL && p->times.waiter != NULL &&
           p->steps.raised != NULL && p->steps.put != NULL && p->lanes.first != NULL &&
           p->lanes.lane != NULL && p->queue.heap != NULL && p->resources.core != NULL &&
           p->resources.node_out != NULL && p->resources.crowd != NULL &&
           p->resources.port_out != NULL;
}

/* Set the pointers into arrays that are allocated together, and what depends on the world. */
static void divide_memory(struct twill_pricing *p)
{
    size_t size = p->worlds.run->size;
    p->resources.core_of = p->resources.crowd + size * TWILL_LEVEL_NODE;
    p->resources.out = p->resources.core + size;
    p->resources.in = p->resources.out + size;
    p->resources.busy = p->resources.in + size;
    p->resources.busy_out = p->resources.busy + size;
    p->resources.node_in = p->resources.node_out + p->worlds.run->nodes;
    p->resources.busy_node = p->resources.node_in + p->worlds.run->nodes;
    p->resources.node_idle = p->resources.busy_node + p->worlds.run->nodes;
    p->resources.node_idle_end = p->resources.node_idle + p->worlds.run->nodes;
    p->resources.port_in = p->resources.port_out + size * TWILL_LEVEL_NODE;
    p->resources.busy_port_out = p->resources.port_in + size * TWILL_LEVEL_NODE;
    p->resources.busy_port_in = p->resources.busy_port_out + size * TWILL_LEVEL_NODE;
    for (size_t i = 0; i < size * TWILL_LEVEL_NODE; i++)
        if (p->worlds.run->unit[i / size] != NULL)
            p->resources.crowd[i / size * size + p->worlds.run->unit[i / size][i % size]]++;
    for (unsigned link = 0; link < TWILL_LINK_COUNT; link++)
        p->facts.leaves[link] =
            (uint8_t)twill_link_leaves(p->worlds.run, (enum twill_link_class)link);
}

static uint64_t mix_steps(uint64_t hash, const struct twill_schedule *s)
{
    uint64_t word[sizeof(*s->steps) / sizeof(uint64_t)];
    for (uint32_t i = 0; i < s->count; i++) {
        memcpy(word, &s->steps[i], sizeof(word));
        for (size_t w = 0; w < TWILL_ARRAY_LENGTH(word); w++)
            hash = twill_hash_mix(hash, word[w]);
    }
    return hash;
}

/* Copy steps and lanes out of the schedules, hash them, and release the schedules. */
static void unpack_schedules(struct twill_pricing *p)
{
    uint32_t lanes = 0;
    uint64_t hash = twill_hash_mix(twill_hash_mix(twill_hash_mix(1, p->mode), p->facts.segments),
                                   (uint64_t)p->facts.blocks << 1 | p->facts.fetches);
    for (uint32_t r = 0; r < p->worlds.run->size; r++) {
        const struct twill_schedule *s = &p->schedules.list[r];
        if (s->count > 0)
            memcpy(&p->steps.step[p->steps.base[r]], s->steps, s->count * sizeof(*p->steps.step));
        if (s->count > p->schedules.most_steps)
            p->schedules.most_steps = s->count;
        hash = twill_hash_mix(hash, (uint64_t)s->shared_blocks << 32 | s->count);
        hash = mix_steps(hash, s);
        for (uint32_t l = 0; l < s->lanes; l++) {
            uint32_t at = p->steps.base[r] + s->lane_first[l],
                     end = p->steps.base[r] + s->lane_first[l + 1];
            p->lanes.first[lanes++] =
                (struct twill_price_lane){.rank = r, .at = at, .end = end, .posted = at};
            hash = twill_hash_mix(hash, end);
        }
    }
    p->facts.fingerprint = hash;
    drop_schedules(p);
}

/* Return the class of link from a rank to the peers of its step, itself excepted, or MIXED. */
static uint8_t step_class(const struct twill_pricing *p, uint32_t rank,
                          const struct twill_step *step)
{
    uint8_t class = TWILL_LINK_NODE;
    bool found = false;
    for (unsigned n = 0; n < twill_step_peers(step); n++) {
        if (step->peer[n] == rank)
            continue;
        uint8_t one = (uint8_t)twill_link_between(p->worlds.truth, rank, step->peer[n]);
        if (found && one != class)
            return TWILL_PRICE_MIXED;
        class = one;
        found = true;
    }
    return class;
}

static void classify_links(struct twill_pricing *p)
{
    for (uint32_t r = 0; r < p->worlds.run->size; r++) {
        uint32_t rank = p->mode == TWILL_PRICE_ONE_NODE
                            ? twill_world_member(p->worlds.truth, p->worlds.node, r)
                            : r;
        for (uint32_t i = p->steps.base[r]; i < p->steps.base[r + 1]; i++)
            p->steps.link[i] = step_class(p, rank, &p->steps.step[i]);
    }
    if (p->mode == TWILL_PRICE_ONE_NODE)
        twill_price_map_peers(p);
}

/* Return whether exchanging the buffers' addresses costs a barrier of its own. A schedule that
 * begins with a barrier on the node exchanges them in that. */
static bool exchanges(const struct twill_pricing *p)
{
    const struct twill_schedule *first = &p->schedules.list[0];
    if (!first->uses_peer_src && !first->uses_peer_dst)
        return false;
    return p->worlds.truth->nodes > 1 ||
           twill_schedule_entry_steps(first, 0, p->worlds.run->size) == 0;
}

/* Return the segments that the executor uses: large ones across the network and for messages, small
 * ones through SHARED, none if buffers are mapped or fetched, unless there is scratch. */
static enum twill_price_segments segments_of(const struct twill_algorithm *algorithm,
                                             const struct twill_world *world,
                                             const struct twill_shape *shape,
                                             const struct twill_schedule *schedule)
{
    if (world->nodes > 1 || algorithm->protocols == 0)
        return TWILL_PRICE_SEGMENTS_NET;
    return shape->protocol >= TWILL_PROTOCOL_MAPPED && schedule->tmp_blocks == 0
               ? TWILL_PRICE_SEGMENTS_NONE
               : TWILL_PRICE_SEGMENTS_SHARED;
}

/* Build the state from the schedules. TWILL_PENDING: one node on its own would not end. */
static twill_status finish_pricing(struct twill_pricing *p, const struct twill_price_query *a,
                                   const struct twill_world *of)
{
    p->facts.blocks = p->schedules.list[0].blocks;
    p->facts.whole = p->mode != TWILL_PRICE_ALONE && p->mode != TWILL_PRICE_LEAST;
    p->facts.segments = segments_of(a->algorithm, of, a->shape, &p->schedules.list[0]);
    p->facts.fetches = a->algorithm->protocols != 0 &&
                       a->shape->protocol == TWILL_PROTOCOL_FETCHED &&
                       (p->schedules.list[0].uses_peer_src || p->schedules.list[0].uses_peer_dst);
    p->facts.exchanges = exchanges(p);
    if (!allocate_steps(p))
        return TWILL_ERR_MEMORY;
    divide_memory(p);
    unpack_schedules(p);
    classify_links(p);
    twill_status status = p->facts.whole ? twill_price_match(p) : TWILL_OK;
    if (status == TWILL_OK && p->mode == TWILL_PRICE_ONE_NODE &&
        twill_price_run(p, twill_machine_model_at(0), 0, twill_wide_elements(TWILL_U8)) ==
            TWILL_PRICE_NEVER)
        status = TWILL_PENDING;
    return status;
}

static twill_status fail_pricing(struct twill_pricing **pricing, const struct twill_price_query *a,
                                 twill_status status)
{
    twill_pricing_destroy(*pricing);
    *pricing = NULL;
    return status == TWILL_ERR_MEMORY
               ? TWILL_FAIL(a->error, status, "out of memory for the price of %s",
                            a->algorithm->name)
               : status;
}

/* Allocate a pricing on `world` or, if that is NULL, on `units` of the units of `of`. */
static twill_status begin_pricing(struct twill_pricing **pricing, const struct twill_world *world,
                                  const struct twill_world *of, uint32_t units,
                                  struct twill_error *error)
{
    struct twill_pricing *p = *pricing = calloc(1, sizeof(*p));
    if (p == NULL)
        return TWILL_ERR_MEMORY;
    p->worlds.run = p->worlds.truth = world != NULL ? world : &p->worlds.own;
    p->worlds.ranks = (world != NULL ? world : of)->size;
    p->call.most = TWILL_PRICE_NEVER;
    return world != NULL ? TWILL_OK : twill_price_shrink(&p->worlds.own, of, units, error);
}

twill_status twill_price_prepare(struct twill_pricing **pricing,
                                 const struct twill_algorithm *algorithm,
                                 const struct twill_world *world, const struct twill_world *of,
                                 uint32_t units, const struct twill_shape *shape, uint64_t steps,
                                 struct twill_error *error)
{
    const struct twill_price_query query = {algorithm, shape, steps, error};
    struct twill_pricing *p;
    twill_status status = begin_pricing(&p, world, of, units, error);
    bool applies = status == TWILL_OK && twill_algorithm_applies(algorithm, p->worlds.truth, shape);
    *pricing = p;
    of = world != NULL ? world : of;
    if (status == TWILL_OK)
        status =
            applies && steps < UINT64_MAX ? twill_price_emit_one_node(p, &query) : TWILL_PENDING;
    if (status == TWILL_OK)
        status = finish_pricing(p, &query, of);
    if (status == TWILL_PENDING && applies) {
        unmake(p);
        status = emit_whole(p, &query);
        if (status == TWILL_OK)
            status = finish_pricing(p, &query, of);
    }
    return status == TWILL_OK ? status : fail_pricing(pricing, &query, status);
}

twill_status twill_price_prepare_alone(struct twill_pricing **pricing,
                                       const struct twill_algorithm *algorithm,
                                       const struct twill_world *world,
                                       const struct twill_world *of, uint32_t units,
                                       const struct twill_shape *shape, struct twill_error *error)
{
    const struct twill_price_query query = {algorithm, shape, 0, error};
    struct twill_pricing *p;
    twill_status status = begin_pricing(&p, world, of, units, error);
    *pricing = p;
    if (status == TWILL_OK)
        status = twill_price_emit_alone(p, &query);
    if (status == TWILL_OK)
        status = finish_pricing(p, &query, world != NULL ? world : of);
    return status == TWILL_OK ? status : fail_pricing(pricing, &query, status);
}

/* Check that schedules can be emitted, by the root's. TWILL_PENDING: it alone has too many steps.
 */
static twill_status try_one(const struct twill_algorithm *algorithm,
                            const struct twill_world *world, const struct twill_shape *shape,
                            uint64_t steps, struct twill_error *error)
{
    struct twill_schedule one;
    TWILL_TRY(error, twill_schedule_emit(&one, algorithm, world, shape->root, shape, error));
    twill_status status = one.count > steps ? TWILL_PENDING : TWILL_OK;
    twill_schedule_destroy(&one);
    return status;
}

twill_status twill_pricing_create_within(struct twill_pricing **pricing,
                                         const struct twill_algorithm *algorithm,
                                         const struct twill_world *world,
                                         const struct twill_shape *shape, uint64_t steps,
                                         struct twill_error *error)
{
    *pricing = NULL;
    twill_status status = try_one(algorithm, world, shape, steps, error);
    if (status == TWILL_OK)
        status = twill_price_prepare(pricing, algorithm, world, NULL, 0, shape, steps, error);
    for (unsigned i = 0; i < 3 && status == TWILL_PENDING; i++)
        status = twill_price_prepare_scaled(pricing, algorithm, world, shape,
                                            i == 1   ? 0
                                            : i == 0 ? steps
                                                     : steps * PRICE_PATIENCE,
                                            error);
    if (status == TWILL_PENDING)
        status = twill_price_prepare_alone(pricing, algorithm, world, NULL, 0, shape, error);
    if (status == TWILL_PENDING)
        status = twill_price_prepare(pricing, algorithm, world, NULL, 0, shape,
                                     steps * PRICE_PATIENCE, error);
    return status != TWILL_PENDING
               ? status
               : TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED, "%s has no price", algorithm->name);
}

twill_status twill_pricing_create(struct twill_pricing **pricing,
                                  const struct twill_algorithm *algorithm,
                                  const struct twill_world *world, const struct twill_shape *shape,
                                  struct twill_error *error)
{
    return twill_pricing_create_within(pricing, algorithm, world, shape, TWILL_PRICE_STEPS, error);
}

twill_status twill_pricing_create_least(struct twill_pricing **pricing,
                                        const struct twill_algorithm *algorithm,
                                        const struct twill_world *world, uint32_t rank,
                                        const struct twill_shape *shape, struct twill_error *error)
{
    const struct twill_price_query query = {algorithm, shape, 0, error};
    struct twill_pricing *p;
    twill_status status = begin_pricing(&p, world, NULL, 0, error);
    *pricing = p;
    if (status == TWILL_OK) {
        p->mode = TWILL_PRICE_LEAST;
        status = twill_price_make_schedules(p, world->size) ? TWILL_OK : TWILL_ERR_MEMORY;
    }
    if (status == TWILL_OK) /* the first rank's has the facts of all */
        status = twill_price_emit(p, &query, 0, &p->schedules.list[0]);
    if (status == TWILL_OK)
        status = twill_price_emit(p, &query, rank, &p->schedules.list[rank]);
    if (status == TWILL_OK)
        status = finish_pricing(p, &query, world);
    return status == TWILL_OK ? status : fail_pricing(pricing, &query, status);
}

twill_status twill_price(uint64_t *picoseconds, const struct twill_algorithm *algorithm,
                         const struct twill_world *world, const struct twill_shape *shape,
                         const struct twill_machine_model *model, size_t bytes,
                         struct twill_element_kind elements, struct twill_error *error)
{
    struct twill_pricing *pricing;
    *picoseconds = TWILL_PRICE_NEVER;
    if (!twill_algorithm_applies(algorithm, world, shape))
        return TWILL_OK;
    TWILL_TRY(error, twill_pricing_create(&pricing, algorithm, world, shape, error));
    *picoseconds = twill_pricing_at(pricing, model, bytes, elements);
    twill_pricing_destroy(pricing);
    return TWILL_OK;
}
