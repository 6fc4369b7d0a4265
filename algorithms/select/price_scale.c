/* SPDX-License-Identifier: Apache-2.0 */
/* Extrapolates the price on a large world from prices on smaller ones, its samples. See price.h. */
#include "algorithms/select/price_state.h"

#include <stdlib.h>
#include <string.h>

/* Least units and ranks of the first sample: its quarter still has 2 units that communicate. */
#define SAMPLE_LEAST 8u
#define SAMPLE_RANKS 128u

uint32_t twill_price_units(const struct twill_world *world)
{
    return world->nodes > 1 ? world->nodes : world->size;
}

static bool is_power(uint32_t n)
{
    return (n & (n - 1)) == 0;
}

/* Return half the units. What is no power of two stays so, as algorithms then do more work. */
static uint32_t halve(uint32_t units)
{
    uint32_t half = units / 2;
    return half + (!is_power(units) && is_power(half) && half + 1 < units);
}

/* Return whether unit i is one of `units` evenly spaced ones of `of`. */
static bool is_picked(uint64_t i, uint32_t units, uint32_t of)
{
    return i == 0 || i * units / of != (i - 1) * units / of;
}

twill_status twill_price_shrink(struct twill_world *small, const struct twill_world *world,
                                uint32_t units, struct twill_error *error)
{
    uint32_t size = 0;
    twill_status status = TWILL_ERR_MEMORY;
    uint32_t *picked = calloc(world->size, sizeof(*picked));
    uint32_t *label = calloc(world->size, sizeof(*label));
    for (uint32_t r = 0; r < world->size && picked != NULL; r++)
        if (world->nodes > 1 ? is_picked(world->node[r], units, world->nodes)
                             : is_picked(r, units, world->size))
            picked[size++] = r;
    if (picked != NULL && label != NULL) {
        for (uint32_t i = 0; i < size; i++)
            label[i] = world->node[picked[i]];
        status = twill_world_create(small, size, label, error);
    }
    for (unsigned level = TWILL_LEVEL_COUNT; level-- > 0 && status == TWILL_OK;) {
        if (world->unit[level] == NULL || level == TWILL_LEVEL_NODE)
            continue;
        for (uint32_t i = 0; i < size; i++)
            label[i] = world->unit[level][picked[i]];
        status = twill_world_set_level(small, (twill_level)level, label, error);
    }
    free(picked);
    free(label);
    return status;
}

/* --- samples ---------------------------------------------------------------------------------- */

static twill_status prepare_sample(struct twill_pricing **sample,
                                   const struct twill_algorithm *algorithm,
                                   const struct twill_world *world, uint32_t units,
                                   const struct twill_shape *shape, uint64_t steps,
                                   struct twill_error *error)
{
    return steps > 0
               ? twill_price_prepare(sample, algorithm, NULL, world, units, shape, steps, error)
               : twill_price_prepare_alone(sample, algorithm, NULL, world, units, shape, error);
}

/* Prepare the first sample, the smallest that has enough units and ranks. */
static twill_status prepare_first(struct twill_price_scale *scale,
                                  const struct twill_algorithm *algorithm,
                                  const struct twill_world *world, const struct twill_shape *shape,
                                  uint64_t steps, struct twill_error *error)
{
    uint32_t units = scale->units, next;
    uint64_t each = world->size / scale->units;
    scale->halvings = 0;
    while ((next = halve(units)) >= SAMPLE_LEAST && next * each >= SAMPLE_RANKS) {
        units = next;
        scale->halvings++;
    }
    scale->of[0] = units;
    /* A grid's sides divide the number of ranks: other numbers of ranks say nothing about it. */
    bool grid = algorithm->parameters == 2;
    return scale->halvings > 0 && !grid
               ? prepare_sample(&scale->sample[0], algorithm, world, units, shape, steps, error)
               : TWILL_PENDING;
}

/* Prepare half of the first sample, and if possible half of that. */
static twill_status prepare_others(struct twill_price_scale *scale,
                                   const struct twill_algorithm *algorithm,
                                   const struct twill_world *world, const struct twill_shape *shape,
                                   uint64_t steps, struct twill_error *error)
{
    twill_status status = TWILL_OK;
    for (scale->samples = 1; scale->samples < TWILL_ARRAY_LENGTH(scale->sample); scale->samples++) {
        uint32_t last = scale->of[scale->samples - 1], units = halve(last);
        if (units < 2 || units == last)
            break;
        scale->of[scale->samples] = units;
        status = prepare_sample(&scale->sample[scale->samples], algorithm, world, units, shape,
                                steps, error);
        if (status != TWILL_OK)
            break;
    }
    if (status < 0 || scale->samples < 2)
        return status < 0 ? status : TWILL_PENDING;
    scale->by_unit = 5 * (uint64_t)scale->sample[0]->schedules.most_steps >
                     8 * (uint64_t)scale->sample[1]->schedules.most_steps;
    return TWILL_OK;
}

/* Estimate what leaves a node, in 1024ths of the message: the least that one of three ranks of the
 * middle node sends to other nodes, times the ranks of the node. */
static twill_status find_leaving(uint64_t *leaving, const struct twill_algorithm *algorithm,
                                 const struct twill_world *world, const struct twill_shape *shape,
                                 struct twill_error *error)
{
    uint32_t node = world->nodes / 2, size = world->node_size[node];
    const uint32_t local[] = {0, size / 2, size - 1};
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(local); i++) {
        struct twill_schedule s;
        uint32_t rank = twill_world_member(world, node, local[i]);
        uint64_t blocks = 0;
        TWILL_TRY(error, twill_schedule_emit(&s, algorithm, world, rank, shape, error));
        for (uint32_t k = 0; k < s.count; k++)
            if (s.steps[k].op == TWILL_STEP_SEND && world->node[s.steps[k].peer[0]] != node)
                blocks += s.steps[k].blocks;
        least = s.blocks > 0 && blocks * 1024 / s.blocks < least ? blocks * 1024 / s.blocks : least;
        twill_schedule_destroy(&s);
    }
    *leaving = least == UINT64_MAX ? 0 : least * size;
    return TWILL_OK;
}

twill_status twill_price_prepare_scaled(struct twill_pricing **pricing,
                                        const struct twill_algorithm *algorithm,
                                        const struct twill_world *world,
                                        const struct twill_shape *shape, uint64_t steps,
                                        struct twill_error *error)
{
    struct twill_shape small = *shape;
    struct twill_pricing *p = *pricing = calloc(1, sizeof(*p));
    if (p == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for the price of %s",
                          algorithm->name);
    small.root = 0; /* a sample may lack the root, and the price hardly depends on it */
    p->mode = TWILL_PRICE_SCALED;
    p->worlds.run = p->worlds.truth = world;
    p->scale.units = twill_price_units(world);
    twill_status status = prepare_first(&p->scale, algorithm, world, &small, steps, error);
    if (status == TWILL_OK)
        status = prepare_others(&p->scale, algorithm, world, &small, steps, error);
    if (status == TWILL_OK)
        status = find_leaving(&p->scale.leaving, algorithm, world, &small, error);
    if (status != TWILL_OK) {
        twill_pricing_destroy(p);
        *pricing = NULL;
        return status;
    }
    p->facts.fingerprint =
        p->scale.sample[0]->facts.fingerprint ^ p->scale.sample[1]->facts.fingerprint << 1;
    return TWILL_OK;
}

/* --- prices ----------------------------------------------------------------------------------- */

/* Rates of growth, in 256ths: what a doubling adds, relative to the doubling before it. Prices of
 * small worlds are too uneven to measure the rate, so the nearest of these is taken. */
enum {
    GROWTH_LESS = 128,
    GROWTH_LITTLE_LESS = 181,
    GROWTH_SAME = 256,
    GROWTH_SQUARE = 362,
    GROWTH_TWICE = 512
};

/* Return the rate for the price of no bytes: a chain of twice as many ranks takes twice as long. */
static uint64_t rate_of_rounds(uint64_t now, uint64_t before)
{
    return 5 * now > 8 * before     ? GROWTH_TWICE
           : 10 * now > 13 * before ? GROWTH_SQUARE
                                    : GROWTH_SAME;
}

/* Return the rate for what the bytes add, from what the last doubling added and the one before it
 * (0: not known). `rounds` is the rate of rate_of_rounds(). */
static uint64_t rate_of_bytes(uint64_t last, uint64_t before, uint64_t rounds)
{
    static const struct {
        unsigned below, rate;
    } rates[] = {
        {152, GROWTH_LESS}, {215, GROWTH_LITTLE_LESS}, {304, GROWTH_SAME}, {431, GROWTH_SQUARE}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rates) && before > 0; i++)
        if (last < before / 256 * rates[i].below + before % 256 * rates[i].below / 256)
            return rates[i].rate < rounds || rounds > GROWTH_SAME ? rates[i].rate : rounds;
    return before > 0 ? rounds : GROWTH_SAME;
}

/* Return a - b, at least 0. */
static uint64_t more(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Return what is added from the first sample to the world, by the samples' prices `at`. */
static uint64_t growth(const struct twill_price_scale *scale, const uint64_t at[3], uint64_t rate)
{
    uint64_t sum = 0, last = more(at[0], at[1]);
    if (rate == GROWTH_SAME && scale->samples == 3)
        last = more(at[0], at[2]) / 2;
    if (rate == GROWTH_TWICE) /* linear in the units */
        return last / (scale->of[0] - scale->of[1]) * (scale->units - scale->of[0]);
    for (unsigned i = 0; i < scale->halvings; i++) {
        last = last / 256 * rate + last % 256 * rate / 256;
        sum += last;
    }
    return sum;
}

uint64_t twill_price_scaled_at(struct twill_price_scale *scale,
                               const struct twill_machine_model *model, size_t bytes,
                               struct twill_element_kind elements)
{
    uint64_t at[3] = {0}, *empty = scale->empty;
    bool three = scale->samples == 3;
    for (unsigned i = 0; i < scale->samples; i++) {
        if (scale->model != model || !twill_elements_match(scale->elements, elements))
            empty[i] = twill_pricing_at(scale->sample[i], model, 0, elements);
        at[i] = bytes == 0 ? empty[i] : twill_pricing_at(scale->sample[i], model, bytes, elements);
        at[i] = more(at[i], empty[i]);
    }
    scale->model = model;
    scale->elements = elements;
    uint64_t rounds = three            ? rate_of_rounds(empty[0], empty[1])
                      : scale->by_unit ? GROWTH_TWICE
                                       : GROWTH_SAME;
    uint64_t rate = rate_of_bytes(more(at[0], at[1]), three ? more(at[1], at[2]) : 0, rounds);
    uint64_t price = empty[0] + growth(scale, empty, rounds) + at[0] + growth(scale, at, rate);
    uint64_t least = model->interface * (bytes / 1024) / 1024 * scale->leaving;
    return price > least ? price : least;
}
