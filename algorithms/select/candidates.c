/* SPDX-License-Identifier: Apache-2.0 */
/* Creates the candidates and their cost curves. */
#include "algorithms/select/candidates.h"
#include "lib/lists.h"

#include <stdlib.h>
#include <string.h>

/* Message sizes at which prices are computed; in between they are nearly linear. */
static const size_t steps_at[] = {0,         512,     8 << 10,  64 << 10,
                                  512 << 10, 4 << 20, 64 << 20, (size_t)1 << 30};
enum {
    CURVE_STEPS = TWILL_ARRAY_LENGTH(steps_at),
    MEASURED_MOST = TWILL_CURVE_POINTS - TWILL_ARRAY_LENGTH(steps_at) - 1
};
/* Assumed bytes of a shard in gather, scatter and alltoall with vector, whose total no rank knows.
 */
#define GUESSED_SHARD ((size_t)4 << 10)
/* Flat algorithms: see price_most(). */
#define FLAT_MOST     ((size_t)64 << 10)
#define SHARING_RANKS 8

size_t twill_request_bytes(const struct twill_world *world,
                           const struct twill_select_request *request)
{
    struct twill_shape shape = {.collective = request->collective, .vector = request->vector};
    return twill_shape_knows_all(&shape) ? request->bytes : GUESSED_SHARD * world->size;
}

size_t twill_imm_most(const struct twill_world *world, const struct twill_select_request *request)
{
    const struct twill_collective_facts *facts = twill_collective_facts(request->collective);
    size_t most = TWILL_IMM_BYTES;
    if (facts->sharded && !request->vector)
        most *= world->size;
    bool widens = facts->reduces && world->nodes > 1;
    return widens ? most / twill_partial_width(twill_request_elements(request)) : most;
}

/* --- curves ----------------------------------------------------------------------------------- */

uint64_t twill_candidate_cost(const struct twill_candidate *candidate, size_t bytes)
{
    unsigned low = 0, high = candidate->points;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (candidate->point[middle].bytes <= bytes)
            low = middle;
        else
            high = middle;
    }
    const struct twill_curve_point *point = &candidate->point[low];
    uint64_t more = twill_rate_time(point->rate, bytes - point->bytes);
    return point->falls ? point->picoseconds - more : point->picoseconds + more;
}

/* Compute the rates between the points; the last point continues the rate before it. */
static void compute_rates(struct twill_candidate *c)
{
    for (unsigned i = 0; i + 1 < c->points; i++) {
        struct twill_curve_point *a = &c->point[i], *b = &c->point[i + 1];
        uint64_t bytes = b->bytes - a->bytes;
        a->falls = b->picoseconds < a->picoseconds;
        uint64_t difference =
            a->falls ? a->picoseconds - b->picoseconds : b->picoseconds - a->picoseconds;
        a->rate = difference / bytes * 1024 + difference % bytes * 1024 / bytes;
    }
    if (c->points > 1 && !c->point[c->points - 2].falls)
        c->point[c->points - 1].rate = c->point[c->points - 2].rate;
}

static void add_point(struct twill_candidate *c, size_t bytes, uint64_t picoseconds)
{
    c->point[c->points++] = (struct twill_curve_point){.bytes = bytes, .picoseconds = picoseconds};
}

/* Scale a price beyond the measured sizes by measured/priced, both taken at the nearest measured
 * size. */
static uint64_t scaled(uint64_t price, uint64_t measured, uint64_t priced)
{
    uint64_t scale = twill_min((size_t)(measured * 256 / (priced + 1)), 1u << 16);
    return price / 256 * scale + price % 256 * scale / 256;
}

/* Build the curve: prices below the least measured size, the measurements, prices above. */
static void blend(struct twill_candidate *c, const uint64_t price[CURVE_STEPS], unsigned steps,
                  const struct twill_measured *measured, size_t count)
{
    struct twill_candidate priced = {.points = 0};
    for (unsigned i = 0; i < steps; i++)
        add_point(&priced, steps_at[i], price[i]);
    compute_rates(&priced);
    /* Thin out measurements that do not fit. */
    size_t every = count / MEASURED_MOST + 1;
    c->measured = count;
    for (unsigned i = 0; i < steps && (count == 0 || steps_at[i] < measured[0].bytes); i++)
        add_point(c, steps_at[i],
                  count == 0 ? price[i]
                             : scaled(price[i], measured[0].picoseconds,
                                      twill_candidate_cost(&priced, measured[0].bytes)));
    for (size_t i = 0; i < count; i++)
        if (i % every == 0 || i + 1 == count)
            add_point(c, measured[i].bytes, measured[i].picoseconds);
    const struct twill_measured *last = count > 0 ? &measured[count - 1] : NULL;
    for (unsigned i = 0; i < steps && last != NULL; i++)
        if (steps_at[i] > last->bytes)
            add_point(
                c, steps_at[i],
                scaled(price[i], last->picoseconds, twill_candidate_cost(&priced, last->bytes)));
    compute_rates(c);
}

/* --- gathering -------------------------------------------------------------------------------- */

/* Set the sizes that a candidate can be used for. */
static void set_limits(struct twill_candidate *c, const struct twill_world *world,
                       const struct twill_select_request *like)
{
    c->most = SIZE_MAX;
    if (c->algorithm->protocols == 0 || like->collective == TWILL_BARRIER)
        return;
    if (c->shape.protocol == TWILL_PROTOCOL_IMM)
        c->most = twill_imm_most(world, like);
    if (c->shape.protocol >= TWILL_PROTOCOL_MAPPED)
        c->least = TWILL_MAPPED_BYTES;
}

/* What is known of a candidate during creation only. */
struct priced {
    uint64_t fingerprint;
    uint64_t small, large;         /* prices at SMALL_STEP and LARGE_STEP */
    struct twill_pricing *pricing; /* of a candidate with measurements, else NULL */
};
/* Indices into steps_at: where latency dominates, and where bandwidth does. */
enum { SMALL_STEP = 1, LARGE_STEP = 4 };

/* The candidates during creation. */
struct gathering {
    struct twill_candidates *all;
    struct priced *priced; /* [all->count] */
};

/* Return the largest message that a candidate may be chosen for by its cost. Where eight ranks or
 * more share an interface slower than their memory, an allreduce above 64 KiB must be hierarchical:
 * flat algorithms, which do not distinguish the ranks of a node, differ from it by less than the
 * model is exact. With measurements there is no limit. */
static size_t price_most(const struct gathering *g, const struct twill_candidate *c,
                         const struct twill_world *world, const struct twill_machine_model *model)
{
    uint32_t least = twill_world_narrowest(world);
    uint64_t memory = model->link[TWILL_LINK_NODE].shared / least;
    bool shared = world->nodes > 1 && least >= SHARING_RANKS && model->interface > memory;
    if (c->algorithm->protocols != 0 || c->measured > 0 || !shared ||
        g->all->collective != TWILL_ALLREDUCE)
        return SIZE_MAX;
    for (size_t i = 0; i < g->all->count; i++)
        if (g->all->candidate[i].algorithm->protocols != 0 &&
            twill_candidate_takes(&g->all->candidate[i], FLAT_MOST + 1, 0))
            return FLAT_MOST;
    return SIZE_MAX;
}

/* Return whether the algorithm with its default parameter is at least as cheap, at the small and at
 * the large size. */
static bool is_beaten(const struct gathering *g, const struct twill_algorithm *algorithm,
                      const struct twill_shape *shape, const struct priced *priced)
{
    if (shape->parameter[0] == 0)
        return false;
    for (size_t i = 0; i < g->all->count; i++) {
        const struct twill_candidate *own = &g->all->candidate[i];
        if (own->algorithm == algorithm && own->shape.parameter[0] == 0 &&
            own->shape.protocol == shape->protocol)
            return priced->small >= g->priced[i].small && priced->large >= g->priced[i].large;
    }
    return false;
}

/* Return whether the algorithm with its default parameter takes more than twice the time of
 * others, at the small and at the large size: then no parameter makes it the best. */
static bool is_hopeless(const struct gathering *g, const struct twill_algorithm *algorithm,
                        enum twill_protocol protocol)
{
    uint64_t small = UINT64_MAX, large = UINT64_MAX;
    const struct priced *own = NULL;
    for (size_t i = 0; i < g->all->count; i++) {
        const struct twill_candidate *c = &g->all->candidate[i];
        bool needs = twill_shape_needs(c->algorithm, &c->shape) != 0;
        if (c->algorithm == algorithm && c->shape.parameter[0] == 0 &&
            c->shape.protocol == protocol)
            own = &g->priced[i];
        if (!needs && g->priced[i].small < small && c->most == SIZE_MAX)
            small = g->priced[i].small;
        if (!needs && g->priced[i].large < large && c->most == SIZE_MAX)
            large = g->priced[i].large;
    }
    return own != NULL && own->small / 2 > small && own->large / 2 > large;
}

/* Return whether a candidate for all sizes has the same schedules. */
static bool candidate_is_known(const struct gathering *g, const struct twill_pricing *pricing)
{
    for (size_t i = 0; i < g->all->count; i++)
        if (g->priced[i].fingerprint == twill_pricing_fingerprint(pricing) &&
            g->all->candidate[i].least == 0 && g->all->candidate[i].most == SIZE_MAX)
            return true;
    return false;
}

static twill_status grow_candidates(struct gathering *g, struct twill_error *error)
{
    size_t count = g->all->count + 1;
    struct twill_candidate *c = realloc(g->all->candidate, count * sizeof(*c));
    if (c != NULL)
        g->all->candidate = c;
    struct priced *p = realloc(g->priced, count * sizeof(*p));
    if (p != NULL)
        g->priced = p;
    return c != NULL && p != NULL
               ? TWILL_OK
               : TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for the choice of algorithms");
}

/* Compute prices at the sizes that the candidate can be chosen for, and one beyond. Returns how
 * many. */
static unsigned compute_prices(uint64_t price[CURVE_STEPS], const struct priced *priced,
                               struct twill_pricing *pricing, const struct twill_candidate *c,
                               const struct twill_machine_model *model,
                               const struct twill_select_request *like)
{
    unsigned steps = 0;
    while (steps < CURVE_STEPS && (steps == 0 || like->collective != TWILL_BARRIER) &&
           (steps == 0 || steps_at[steps - 1] < c->most)) {
        price[steps] = steps == SMALL_STEP   ? priced->small
                       : steps == LARGE_STEP ? priced->large
                                             : twill_pricing_at(pricing, model, steps_at[steps],
                                                                twill_request_elements(like));
        steps++;
    }
    return steps;
}

/* Add a candidate unless it can never be the best. */
static twill_status add_candidate(struct gathering *g, const struct twill_world *world,
                                  const struct twill_tuning *tuning,
                                  const struct twill_select_request *like,
                                  const struct twill_algorithm *algorithm,
                                  const struct twill_shape *shape, struct twill_error *error)
{
    uint64_t prices[CURVE_STEPS];
    const struct twill_measured *measured;
    struct twill_pricing *pricing;
    struct twill_error why = {.status = TWILL_OK};
    twill_status status = twill_pricing_create(&pricing, algorithm, world, shape, &why);
    if (status == TWILL_ERR_UNSUPPORTED) /* this world is too large for a schedule's fields */
        return TWILL_OK;
    if (status != TWILL_OK)
        return TWILL_FAIL(error, status, "%s", why.message);
    struct priced priced = {.fingerprint = twill_pricing_fingerprint(pricing)};
    bool redundant = candidate_is_known(g, pricing);
    if (!redundant && like->collective != TWILL_BARRIER) {
        priced.small = twill_pricing_at(pricing, &tuning->model, steps_at[SMALL_STEP],
                                        twill_request_elements(like));
        priced.large = twill_pricing_at(pricing, &tuning->model, steps_at[LARGE_STEP],
                                        twill_request_elements(like));
        redundant = is_beaten(g, algorithm, shape, &priced);
    }
    status = redundant ? TWILL_PENDING : grow_candidates(g, error);
    if (status != TWILL_OK) {
        twill_pricing_destroy(pricing);
        return status == TWILL_PENDING ? TWILL_OK : status;
    }
    struct twill_candidate *c = &g->all->candidate[g->all->count];
    *c = (struct twill_candidate){.algorithm = algorithm, .shape = *shape};
    set_limits(c, world, like);
    unsigned steps = compute_prices(prices, &priced, pricing, c, &tuning->model, like);
    size_t count = twill_tuning_find(tuning, algorithm, shape, world, &measured);
    blend(c, prices, steps, measured, count);
    c->price_most = price_most(g, c, world, &tuning->model);
    if (count > 0)
        priced.pricing = pricing;
    else
        twill_pricing_destroy(pricing);
    g->priced[g->all->count++] = priced;
    return TWILL_OK;
}

/* Return the first candidate with measurements of this protocol, and its pricing; or NULL. */
static const struct twill_candidate *
measured_of(const struct gathering *g, enum twill_protocol protocol, struct twill_pricing **pricing)
{
    for (size_t i = 0; i < g->all->count; i++) {
        const struct twill_candidate *c = &g->all->candidate[i];
        *pricing = g->priced[i].pricing;
        if (c->measured > 0 && c->algorithm->protocols != 0 && c->shape.protocol == protocol)
            return c;
    }
    return NULL;
}

/* Correct the prices of candidates without measurements by the ratio of cost to price of one that
 * was measured with the same protocol: the model errs alike for all algorithms of a protocol. They
 * are made an eighth dearer, so that a measured one wins unless they are clearly cheaper. */
static void correct_prices(const struct gathering *g, const struct twill_machine_model *model,
                           struct twill_element_kind elements)
{
    for (size_t i = 0; i < g->all->count; i++) {
        struct twill_candidate *c = &g->all->candidate[i];
        struct twill_pricing *pricing;
        const struct twill_candidate *known = measured_of(g, c->shape.protocol, &pricing);
        if (c->measured > 0 || c->algorithm->protocols == 0 || known == NULL)
            continue;
        for (unsigned p = 0; p < c->points; p++) {
            size_t bytes = c->point[p].bytes;
            c->point[p].picoseconds =
                scaled(c->point[p].picoseconds / 8 * 9, twill_candidate_cost(known, bytes),
                       twill_pricing_at(pricing, model, bytes, elements));
        }
        compute_rates(c);
    }
}

/* Parameters to try for algorithms that take one number; 0 is their default. */
static const uint16_t tried_parameters[] = {0, 2, 4, 8};

/* Add an algorithm with each protocol and parameter that applies. */
static twill_status add_algorithm(struct gathering *g, const struct twill_world *world,
                                  const struct twill_tuning *tuning,
                                  const struct twill_select_request *like,
                                  const struct twill_algorithm *a, struct twill_error *error)
{
    bool protocols = a->protocols != 0 && like->collective != TWILL_BARRIER;
    unsigned values =
        a->parameters == 1 && a->parse == NULL ? TWILL_ARRAY_LENGTH(tried_parameters) : 1;
    for (unsigned f = 0; f < (protocols ? TWILL_PROTOCOL_COUNT : 1); f++) {
        for (unsigned v = 0; v < values; v++) {
            struct twill_shape shape = {.collective = like->collective,
                                        .protocol = (enum twill_protocol)f,
                                        .vector = like->vector,
                                        .order = like->order,
                                        .parameter = {tried_parameters[v]}};
            if (twill_algorithm_applies(a, world, &shape) &&
                (v == 0 || !is_hopeless(g, a, shape.protocol)))
                TWILL_TRY(error, add_candidate(g, world, tuning, like, a, &shape, error));
        }
    }
    return TWILL_OK;
}

static size_t algorithm_index(const struct twill_candidate *c)
{
    size_t place = 0;
    while (twill_algorithm_at(place) != c->algorithm)
        place++;
    return place;
}

/* Sort by the order of the registry; stable within an algorithm. */
static void sort_candidates(struct twill_candidates *all)
{
    for (size_t i = 1; i < all->count; i++) {
        struct twill_candidate c = all->candidate[i];
        size_t at = i;
        for (; at > 0 && algorithm_index(&all->candidate[at - 1]) > algorithm_index(&c); at--)
            all->candidate[at] = all->candidate[at - 1];
        all->candidate[at] = c;
    }
}

twill_status twill_candidates_create(struct twill_candidates **candidates,
                                     const struct twill_world *world,
                                     const struct twill_tuning *tuning,
                                     const struct twill_select_request *like,
                                     struct twill_error *error)
{
    const struct twill_algorithm *a;
    struct twill_candidates *all = *candidates = calloc(1, sizeof(*all));
    if (all == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for the choice of algorithms");
    all->collective = like->collective;
    all->vector = like->vector;
    all->order = like->order;
    all->elements = twill_request_elements(like);
    struct gathering gathering = {.all = all};
    twill_status status = TWILL_OK;
    /* Algorithms that distinguish the ranks of a node go first: price_most() of others needs them.
     */
    for (unsigned pass = 0; pass < 2; pass++)
        for (size_t i = 0; status == TWILL_OK && (a = twill_algorithm_at(i)) != NULL; i++)
            if ((a->protocols != 0 && twill_world_widest(world) > 1) == (pass == 0))
                status = add_algorithm(&gathering, world, tuning, like, a, error);
    if (like->collective != TWILL_BARRIER)
        correct_prices(&gathering, &tuning->model, all->elements);
    for (size_t i = 0; i < all->count; i++)
        twill_pricing_destroy(gathering.priced[i].pricing);
    free(gathering.priced);
    sort_candidates(all);
    if (status != TWILL_OK) {
        twill_candidates_destroy(all);
        *candidates = NULL;
    }
    return status;
}

void twill_candidates_destroy(struct twill_candidates *candidates)
{
    if (candidates == NULL)
        return;
    free(candidates->candidate);
    free(candidates);
}
