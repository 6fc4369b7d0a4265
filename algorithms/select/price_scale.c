/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the call that is priced, and extrapolates the price on a large world from prices on smaller
 * ones, its samples. See price.h. */
#include "algorithms/schedule/emit.h"
#include "algorithms/select/price_internal.h"
#include "lib/base/lists.h"

#include <stdlib.h>
#include <string.h>

#define RATE_SCALE UINT64_C(1024000000) /* RATE_SCALE / x is MB/s at x picoseconds per KiB */
/* Bytes for each thread of the longest step that is cut for them, as in kernels/thread_pool.h. */
#define THREAD_BYTES ((size_t)256 << 10)
/* Least units and ranks of the first sample. Its quarter still has 2 units that communicate. */
#define SAMPLE_LEAST 8u
#define SAMPLE_RANKS 128u
/* Most ranks of a sample that leaves out whole groups. */
#define SAMPLE_GROUPED_RANKS 1024u

/* Set the core of each simulated rank. If `crowd` is above 1, about that many ranks of a node share
 * a core. With c cores on the node, they are the local ranks l, l + c, l + 2c and so on. Otherwise
 * every rank has its own core. */
static void place_on_cores(struct twill_pricing *p, uint64_t crowd)
{
    const struct twill_world *w = p->world;
    if (w->nodes == 1) /* a sample has as many cores as the world */
        crowd = crowd * w->size / p->facts.ranks;
    for (uint32_t i = 0; i < p->size; i++) {
        uint32_t rank = p->rank[i].rank, node = w->node[rank], size = w->node_size[node];
        uint64_t cores = crowd > 1 ? (size + crowd - 1) / crowd : size;
        uint32_t first = twill_world_member(w, node, (uint32_t)(w->local[rank] % cores));
        p->rank[i].core = twill_price_place(p, i, first);
    }
}

/* Return `a` and `b` mixed in proportion to where `n` lies between `low` and `low * 2`. */
static uint64_t between(uint64_t a, uint64_t b, uint64_t n, uint64_t low)
{
    return (a * (2 * low - n) + b * (n - low)) / low;
}

/* Set the table of threads of the call, that of the job or one made of the model's costs. Of a
 * number of threads that is no power of two the costs are mixed from those of the two next to it.
 */
static void set_threads(struct twill_price_call *call)
{
    const struct twill_machine_model *model = call->model;
    const struct twill_thread_cost *to = model->thread;
    struct twill_thread_rates *rates = &call->rates;
    call->alone = false;
    call->piece = SIZE_MAX;
    rates->steps = 0;
    if (model->threads < 2)
        return;
    memset(call->shared, 0, sizeof(call->shared));
    *rates = model->measured;
    if (rates->steps < 2)
        rates->steps = 0;
    for (uint64_t low = 0, n = 1; model->threads > 1 && model->measured.steps < 2 &&
                                  low < model->threads && to < model->thread + TWILL_THREAD_COSTS;
         low = n, n = twill_min(2 * low, model->threads), to++) {
        const struct twill_thread_cost *from = low > 0 ? to - 1 : to;
        if (to->copy == 0 || to->reduce == 0)
            break;
        uint32_t copy = RATE_SCALE / between(from->copy, to->copy, n, twill_max(low, 1)),
                 reduce = RATE_SCALE / between(from->reduce, to->reduce, n, twill_max(low, 1));
        rates->step[rates->steps++] = (struct twill_thread_rate){
            .threads = (uint32_t)n,
            .fork_join_ns = (uint32_t)(between(from->fork, to->fork, n, twill_max(low, 1)) / 1000),
            .copy_mbs = {copy, copy},
            .reduce_mbs = {reduce, reduce}};
    }
}

size_t twill_price_piece(struct twill_pricing *p)
{
    struct twill_price_call *call = &p->call;
    uint64_t threads = call->model->threads;
    if (call->piece == SIZE_MAX)
        call->piece = twill_thread_piece(&call->rates, (unsigned)threads, threads * THREAD_BYTES);
    return call->piece;
}

void twill_price_count_sharers(struct twill_price_facts *facts, const struct twill_world *world)
{
    facts->widest[TWILL_LINK_NODE] = twill_world_widest(world);
    for (unsigned level = 0; level < TWILL_LEVEL_NODE; level++) {
        uint32_t count = 0, *unit = world->unit[level];
        for (uint32_t at = 0; unit != NULL && at < world->size; at++) {
            bool same = at > 0 && unit[world->order[at]] == unit[world->order[at - 1]];
            count = same ? count + 1 : 1;
            facts->widest[level] = (uint32_t)twill_max(facts->widest[level], count);
        }
    }
}

/* Return the time of what passes between cores of a unit with `ranks` ranks, in 256ths of that with
 * two. It grows with every doubling of the ranks that run at once, one on each core. */
static uint64_t contention_of(const struct twill_machine_model *model, uint64_t ranks)
{
    uint64_t low = 2, doublings = 0, crowd = twill_max(model->crowd, 1);
    ranks = (ranks + crowd - 1) / crowd;
    for (; 2 * low <= ranks; low *= 2)
        doublings++;
    uint64_t more = ranks > 2 ? model->contention * (ranks - low) / low : 0;
    return 256 + model->contention * doublings + more;
}

/* Set contended[] and `own` of the call. What passes from one unit to another meets what other
 * ranks pass in both. */
static void set_contention(struct twill_pricing *p)
{
    struct twill_price_call *call = &p->call;
    call->own = TWILL_LINK_NODE;
    for (unsigned link = TWILL_LINK_NETWORK; link-- > 0;) {
        unsigned inner = twill_link_leaves(p->world, (enum twill_link_class)link);
        bool leaves = inner < TWILL_LEVEL_COUNT;
        uint64_t one = contention_of(call->model, p->facts.widest[leaves ? inner : link]);
        call->contended[link] = leaves ? 2 * one - 256 : one;
        if (p->facts.widest[link] > 0)
            call->own = (enum twill_link_class)link;
    }
}

bool twill_price_set_call(struct twill_pricing *p, const struct twill_machine_model *model,
                          struct twill_element_kind elements)
{
    struct twill_price_call *call = &p->call;
    if ((unsigned)elements.type >= TWILL_TYPE_COUNT)
        elements.type = TWILL_U8;
    if (call->model == model && call->elements.type == elements.type &&
        call->elements.narrow == elements.narrow)
        return false;
    call->model = model;
    call->elements = elements;
    call->widen = twill_partial_width(elements);
    call->reduce_cost = model->reduce[elements.type];
    set_threads(call);
    call->ports = false;
    for (unsigned link = 0; link < TWILL_LINK_NETWORK; link++)
        call->ports |= model->link[link].port > 0 &&
                       twill_link_leaves(p->world, (enum twill_link_class)link) < TWILL_LEVEL_COUNT;
    call->takes[TWILL_PRICE_NO_TURN] = model->crowd > 1;
    call->takes[TWILL_PRICE_TURN] = true;
    call->takes[TWILL_PRICE_AT_PORT] = model->crowd > 1 || call->ports;
    set_contention(p);
    p->one = 0;
    if (p->rank != NULL)
        place_on_cores(p, model->crowd);
    return true;
}

void twill_price_set_bytes(struct twill_pricing *p, size_t bytes)
{
    p->call.each = bytes / p->facts.blocks;
    p->call.rest = bytes % p->facts.blocks;
}

/* Return whether n is a power of two (or 0). */
static bool is_power(uint32_t n)
{
    return (n & (n - 1)) == 0;
}

/* Return half of `units`, rounded down. If only the half is a power of two, return one more,
 * because algorithms do more work where the number is no power of two. */
static uint32_t halve(uint32_t units)
{
    uint32_t half = units / 2;
    return half + (!is_power(units) && is_power(half) && half + 1 < units);
}

/* Return the number of groups of nodes, or 0 if there are none. */
static uint32_t count_groups(const struct twill_world *world)
{
    const uint32_t *group = world->unit[TWILL_LEVEL_GROUP];
    uint32_t groups = 0;
    for (uint32_t r = 0; r < world->size && group != NULL; r++)
        groups = group[r] >= groups ? group[r] + 1 : groups;
    return groups;
}

/* Return the number of units that samples leave out, and set *unit to the unit of each rank. Units
 * are groups if there are enough, so that their links to others remain. Otherwise they are nodes,
 * or ranks if there is one node. */
static uint32_t units_of(const uint32_t **unit, const struct twill_world *world)
{
    uint32_t groups = count_groups(world);
    bool grouped = groups >= 2 * SAMPLE_LEAST &&
                   world->size / groups * 2 * SAMPLE_LEAST <= SAMPLE_GROUPED_RANKS;
    *unit = grouped            ? world->unit[TWILL_LEVEL_GROUP]
            : world->nodes > 1 ? world->node
                               : world->by_rank;
    return grouped ? groups : world->nodes > 1 ? world->nodes : world->size;
}

/* Return whether a sample of `units` of the `all` units of a world has unit number `unit`. They are
 * evenly spaced, in pairs of neighbours if otherwise each group would have one node. */
static bool sample_has(uint32_t unit, uint64_t units, uint64_t all, bool pairs)
{
    uint32_t each = pairs ? 2 : 1, first = unit / each;
    units /= each;
    all /= each;
    return first == 0 || first * units / all != (first - 1) * units / all;
}

/* Create *small of `units` evenly spaced units of the world, which are those of units_of(). It has
 * one in 2^thin ranks of a node. */
static twill_status shrink(struct twill_world *small, const struct twill_world *world,
                           uint32_t units, unsigned thin, struct twill_error *error)
{
    uint32_t size = 0;
    twill_status status = TWILL_ERR_MEMORY;
    const uint32_t *unit;
    uint64_t all = units_of(&unit, world);
    bool pairs =
        unit == world->node && units <= count_groups(world) && all % 2 == 0 && units % 2 == 0;
    uint32_t *picked = calloc(world->size, sizeof(*picked));
    uint32_t *label = calloc(world->size, sizeof(*label));
    for (uint32_t r = 0; r < world->size && picked != NULL; r++)
        if ((world->local[r] & ((1u << thin) - 1)) == 0 && sample_has(unit[r], units, all, pairs))
            picked[size++] = r;
    if (picked != NULL && label != NULL) {
        for (uint32_t i = 0; i < size; i++)
            label[i] = world->node[picked[i]];
        status = twill_world_create(small, size, label, error);
    }
    for (unsigned level = TWILL_LEVEL_COUNT; level-- > 0 && status == TWILL_OK;) {
        for (uint32_t i = 0; i < size && world->unit[level] != NULL; i++)
            label[i] = world->unit[level][picked[i]];
        if (world->unit[level] != NULL)
            status = twill_world_set_level(small, (twill_level)level, label, error);
    }
    free(picked);
    free(label);
    return status;
}

/* Prepare scale->sample[], the pricings of three smaller worlds, in at most `steps` steps each. The
 * first has the units (nodes or ranks) halved while SAMPLE_LEAST units and SAMPLE_RANKS ranks
 * remain. The others have half and a quarter of these. Returns TWILL_PENDING if the world is too
 * small or one cannot be priced. The caller frees them in any case. */
static twill_status prepare_samples(struct twill_price_scale *scale, const struct twill_pricing *p,
                                    const struct twill_price_query *q, uint64_t steps)
{
    uint32_t units = scale->units, each = (p->world->size / units) >> scale->thin, next;
    /* The sides of a grid divide the number of ranks, so other numbers say nothing about it. */
    if (q->algorithm->parameters == 2)
        return TWILL_PENDING;
    for (; (next = halve(units)) >= SAMPLE_LEAST && next * each >= SAMPLE_RANKS; units = next)
        scale->halvings++;
    if (scale->halvings == 0)
        return TWILL_PENDING;
    scale->halvings += scale->thin;
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(scale->sample); i++, units = halve(units)) {
        struct twill_pricing *s = scale->sample[i] = calloc(1, sizeof(*s));
        if (s == NULL)
            return TWILL_ERR_MEMORY;
        scale->of[i] = units;
        s->world = &s->own;
        s->facts.ranks = p->facts.ranks;
        memcpy(s->facts.widest, p->facts.widest, sizeof(s->facts.widest));
        s->call.most = TWILL_PRICE_NEVER;
        twill_status status = shrink(&s->own, p->world, units, scale->thin, q->error);
        if (status == TWILL_OK)
            status = twill_price_prepare(s, q, steps);
        if (status != TWILL_OK)
            return status;
    }
    return TWILL_OK;
}

/* Return the least bytes that must pass the interface of the root's node, in 1024ths of the
 * message. They are the shards of all other nodes or the whole message. Returns 0 if there is no
 * root. */
static uint64_t through_root(const struct twill_world *world, const struct twill_shape *shape)
{
    const struct twill_collective_facts *facts = twill_collective_facts(shape->collective);
    uint64_t here = facts->sharded ? world->node_size[world->node[shape->root]] : 0;
    return facts->rooted && world->nodes > 1 ? (world->size - here) * 1024 / world->size : 0;
}

/* Estimate the bytes that pass the interface of a node, in 1024ths of the message. Take the first,
 * the middle and the last rank of the middle node. The estimate is the least that one of them sends
 * to other nodes, times the ranks of the node. It is not less than through_root(). */
static twill_status find_leaving(uint64_t *leaving, const struct twill_world *world,
                                 const struct twill_price_query *q)
{
    uint32_t node = world->nodes / 2, size = world->node_size[node];
    const uint32_t local[] = {0, size / 2, size - 1};
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(local); i++) {
        struct twill_schedule s = {.steps = NULL};
        uint32_t rank = twill_world_member(world, node, local[i]);
        uint64_t blocks = 0;
        TWILL_TRY(q->error,
                  twill_schedule_emit_unchecked(&s, q->algorithm, world, rank, q->shape, q->error));
        for (uint32_t k = 0; k < s.count; k++)
            if (s.steps[k].op == TWILL_STEP_SEND && world->node[s.steps[k].peer[0]] != node)
                blocks += s.steps[k].blocks;
        if (s.blocks > 0 && blocks * 1024 / s.blocks < least)
            least = blocks * 1024 / s.blocks;
        twill_schedule_destroy(&s);
    }
    *leaving =
        twill_price_later(least == UINT64_MAX ? 0 : least * size, through_root(world, q->shape));
    return TWILL_OK;
}

twill_status twill_price_prepare_scaled(struct twill_pricing *p, const struct twill_price_query *q,
                                        uint64_t steps, unsigned thin)
{
    struct twill_shape shape = *q->shape;
    const struct twill_price_query small = {q->algorithm, &shape, q->error};
    struct twill_price_scale *scale = &p->scale;
    const uint32_t *unused;
    shape.root = 0; /* a sample may lack the root, and the price hardly depends on it */
    *scale = (struct twill_price_scale){.units = units_of(&unused, p->world), .thin = thin};
    p->unit = TWILL_PRICE_SCALED;
    twill_status status = prepare_samples(scale, p, &small, steps);
    if (status == TWILL_OK)
        status = find_leaving(&scale->leaving, p->world, &small);
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(scale->sample); i++) {
        if (status == TWILL_OK) {
            p->facts.fingerprint ^= twill_pricing_fingerprint(scale->sample[i]) << i;
            continue;
        }
        twill_pricing_destroy(scale->sample[i]);
        scale->sample[i] = NULL;
    }
    return status;
}

/* Rates of growth, in 256ths, which are what a doubling adds relative to the preceding doubling.
 * Prices of small worlds are too uneven to measure the rate, so the nearest of these is taken. */
enum {
    GROWTH_LESS = 128,
    GROWTH_LITTLE_LESS = 181,
    GROWTH_SAME = 256,
    GROWTH_SQUARE = 362,
    GROWTH_TWICE = 512
};

/* Return the rate of growth, in 256ths, of the price of a message of no bytes. `now` is that price
 * on the largest sample, and `before` on the sample of half as many ranks. A chain of twice as many
 * ranks takes twice as long, and its rate is GROWTH_TWICE. */
static uint64_t rate_of_rounds(uint64_t now, uint64_t before)
{
    return 5 * now > 8 * before     ? GROWTH_TWICE
           : 10 * now > 13 * before ? GROWTH_SQUARE
                                    : GROWTH_SAME;
}

/* Return the rate of growth, in 256ths, of what the bytes of a message add to its price. `last` is
 * how much the last doubling of ranks has added to that, and `before` the doubling before. It is
 * the constant nearest to last / before, or GROWTH_SAME if `before` is 0. `rounds`, from
 * rate_of_rounds(), replaces GROWTH_TWICE. If it is GROWTH_SAME, the rate is not higher. */
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

/* Return a - b, or 0 if b is larger. */
static uint64_t more(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Return by how many picoseconds a part of the price grows from the first sample to the world. The
 * array `at` has that part for the three samples. Each doubling adds `rate` 256ths of what the
 * preceding one added. */
static uint64_t growth(const struct twill_price_scale *scale, const uint64_t at[3], uint64_t rate)
{
    uint64_t sum = 0, last = rate == GROWTH_SAME ? more(at[0], at[2]) / 2 : more(at[0], at[1]);
    if (rate == GROWTH_TWICE) /* linear in the units */
        return last / (scale->of[0] - scale->of[1]) *
               (((uint64_t)scale->units << scale->thin) - scale->of[0]);
    for (unsigned i = 0; i < scale->halvings; i++) {
        last = last / 256 * rate + last % 256 * rate / 256;
        sum += last;
    }
    return sum;
}

/* Return the extrapolated price. If `alone`, it is that of ranks with one thread. Sets *helped to
 * whether threads have shared a step. */
static uint64_t extrapolate(struct twill_pricing *p, size_t bytes, bool alone, bool *helped)
{
    struct twill_price_scale *scale = &p->scale;
    uint64_t at[3], *empty = scale->empty;
    *helped = false;
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(at); i++) {
        struct twill_pricing *s = scale->sample[i];
        s->one = s->call.alone == alone ? s->one : 0;
        s->call.alone = alone;
        s->call.helped = false;
        at[i] = bytes > 0
                    ? more(twill_pricing_at(s, p->call.model, bytes, p->call.elements), empty[i])
                    : 0;
        *helped |= s->call.helped;
    }
    uint64_t rounds = rate_of_rounds(empty[0], empty[1]);
    uint64_t rate = rate_of_bytes(more(at[0], at[1]), more(at[1], at[2]), rounds);
    uint64_t price = empty[0] + growth(scale, empty, rounds) + at[0] + growth(scale, at, rate);
    return twill_price_later(price,
                             p->call.model->interface * (bytes / 1024) / 1024 * scale->leaving);
}

/* Where threads help, small samples can grow at a higher rate than without them, which is no truth.
 * So the price is at most that of one thread. */
uint64_t twill_price_scaled_at(struct twill_pricing *p, const struct twill_machine_model *model,
                               size_t bytes, struct twill_element_kind elements)
{
    bool helped, unused;
    bool known = !twill_price_set_call(p, model, elements);
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(p->scale.sample) && !known; i++)
        p->scale.empty[i] = twill_pricing_at(p->scale.sample[i], model, 0, elements);
    uint64_t price = extrapolate(p, bytes, false, &helped);
    return helped ? twill_min(price, extrapolate(p, bytes, true, &unused)) : price;
}
