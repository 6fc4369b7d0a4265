/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/select/candidates.h"
#include "lib/base/lists.h"

#include <stdlib.h>
#include <string.h>

/* Message sizes at which prices are computed. In between they are nearly linear. */
static const size_t steps_at[] = {0,         512,     8 << 10,  64 << 10,
                                  512 << 10, 4 << 20, 64 << 20, (size_t)1 << 30};
enum {
    CURVE_STEPS = TWILL_ARRAY_LENGTH(steps_at),
    MEASURED_MOST = TWILL_CURVE_POINTS - TWILL_ARRAY_LENGTH(steps_at) - 1
};
/* Assumed bytes of a shard in gather, scatter and alltoall with vector (total unknown). */
#define GUESSED_SHARD ((size_t)4 << 10)
#define SHARING_RANKS 8 /* see price_most() */
/* See aggregated_most(). At 4 MiB, 64 ranks write and read some 2 GiB. */
#define AGGREGATED_SHARD ((size_t)4 << 10)
#define AGGREGATED_LEAST ((size_t)512 << 10)
#define AGGREGATED_MOST  ((size_t)4 << 20)

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

/* Set the rates between the points of a candidate's curve. Beyond the last point the curve rises at
 * the preceding rate, or if that is a fall, it stays level. */
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

/* Append a point, without its rate, to the curve of a candidate, which must have room for it. */
static void add_point(struct twill_candidate *c, size_t bytes, uint64_t picoseconds)
{
    c->point[c->points++] = (struct twill_curve_point){.bytes = bytes, .picoseconds = picoseconds};
}

/* Return the price of a message of `bytes` bytes with its toll, or TWILL_PRICE_NEVER. */
static uint64_t price_with_toll(struct twill_pricing *pricing,
                                const struct twill_machine_model *model, size_t bytes,
                                struct twill_element_kind elements)
{
    uint64_t price = twill_pricing_at(pricing, model, bytes, elements);
    return price == TWILL_PRICE_NEVER ? price : price + twill_pricing_toll(pricing, model, bytes);
}

uint64_t twill_pricing_cost(struct twill_pricing *pricing, const struct twill_machine_model *model,
                            const struct twill_select_request *like, size_t bytes, uint64_t most)
{
    const struct twill_element_kind elements = twill_request_elements(like);
    const bool sized = like->collective != TWILL_BARRIER;
    struct twill_candidate near = {.points = 0};
    unsigned low = 0;
    bool above = true;
    while (sized && low + 2 < CURVE_STEPS && steps_at[low + 1] <= bytes)
        low++;
    twill_pricing_limit(pricing, most);
    for (unsigned i = 0; i < (sized ? 2 : 1); i++) {
        uint64_t price = price_with_toll(pricing, model, steps_at[low + i], elements);
        add_point(&near, steps_at[low + i], price);
        above = above && price > most;
    }
    twill_pricing_limit(pricing, TWILL_PRICE_NEVER);
    if (above)
        return TWILL_PRICE_NEVER;
    for (unsigned i = 0; i < near.points; i++)
        if (near.point[i].picoseconds == TWILL_PRICE_NEVER)
            near.point[i].picoseconds =
                price_with_toll(pricing, model, near.point[i].bytes, elements);
    compute_rates(&near);
    return twill_candidate_cost(&near, bytes);
}

/* Return `price` times the ratio of `measured` to `priced`, which is taken as 256 if it is larger.
 * All are times in picoseconds. */
static uint64_t scaled(uint64_t price, uint64_t measured, uint64_t priced)
{
    uint64_t scale = twill_min((size_t)(measured * 256 / (priced + 1)), 1u << 16);
    return price / 256 * scale + price % 256 * scale / 256;
}

/* Build the curve of a candidate from its `count` measurements, thinned out if they do not fit, and
 * from scaled prices beyond their sizes. Without measurements the curve is the prices, which are at
 * the first `steps` sizes of steps_at. Also sets c->measured. */
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

/* Return the most bytes of a call for which an algorithm that packs is chosen. All ranks of a node
 * copy at once then, and prices do not know that they share its memory. With longer shards than
 * AGGREGATED_SHARD these copies are estimated to cost more than the messages that they save. */
static size_t aggregated_most(const struct twill_world *world)
{
    return twill_max(AGGREGATED_LEAST, twill_min(AGGREGATED_MOST, AGGREGATED_SHARD * world->size));
}

/* Set the least and the most bytes for which a candidate can be used in requests like `like`. They
 * depend on its algorithm and protocol. SIZE_MAX means no limit. */
static void set_limits(struct twill_candidate *c, const struct twill_world *world,
                       const struct twill_select_request *like)
{
    bool limited = c->algorithm->packs && like->collective == TWILL_ALLTOALL;
    c->most = limited ? aggregated_most(world) : SIZE_MAX;
    if (c->algorithm->protocols == 0 || like->collective == TWILL_BARRIER)
        return;
    if (c->shape.protocol == TWILL_PROTOCOL_IMM)
        c->most = twill_imm_most(world, like);
    if (c->shape.protocol >= TWILL_PROTOCOL_MAPPED)
        c->least = TWILL_MAPPED_BYTES;
}

/* Indices into steps_at of a size where latency dominates, and of one where bandwidth does. */
enum { SMALL_STEP = 1, LARGE_STEP = 4 };

/* The predicted times of a candidate, in picoseconds. An element of gathering->priced[], or a local
 * variable. Ranks exchange it as words. */
struct priced {
    /* if 1, the world is too large for the fields of a schedule, and nothing else is set */
    uint64_t unsupported;
    uint64_t fingerprint;        /* hash of its schedules */
    uint64_t price[CURVE_STEPS]; /* at the sizes steps_at, 0 where none was computed */
};
_Static_assert(sizeof(struct priced) <= TWILL_PRICE_WORDS * sizeof(uint64_t), "fits a record");

/* The candidates during twill_candidates_create(), which owns it. */
struct gathering {
    struct twill_candidates *all;
    struct priced *priced; /* [all->count] */
    const struct twill_world *world;
    const struct twill_tuning *tuning;
    const struct twill_select_request *like;
    const struct twill_price_records *records; /* shared with other ranks, or NULL */
    uint64_t key; /* hash of everything on which the prices here depend */
};

/* Return the largest message, in bytes, for which a candidate may be chosen by its cost, or
 * SIZE_MAX. It is TWILL_FLAT_MOST in an allreduce for an unmeasured candidate that ignores nodes,
 * if 8 or more ranks share an interface slower than memory. A hierarchical candidate for larger
 * messages must exist, which costs about as much. */
static size_t price_most(const struct gathering *g, const struct twill_candidate *c)
{
    const struct twill_world *world = g->world;
    const struct twill_machine_model *model = &g->tuning->model;
    uint32_t least = twill_world_narrowest(world);
    uint64_t memory = model->link[TWILL_LINK_NODE].shared / least;
    bool shared = world->nodes > 1 && least >= SHARING_RANKS && model->interface > memory;
    if (c->algorithm->protocols != 0 || c->measured > 0 || !shared ||
        g->all->collective != TWILL_ALLREDUCE)
        return SIZE_MAX;
    for (size_t i = 0; i < g->all->count; i++)
        if (g->all->candidate[i].algorithm->protocols != 0 &&
            twill_candidate_takes(&g->all->candidate[i], TWILL_FLAT_MOST + 1, 0))
            return TWILL_FLAT_MOST;
    return SIZE_MAX;
}

/* Return whether a candidate with parameters, whose prices are passed, costs at least what the same
 * algorithm and protocol cost with default parameters. This must be so at both the small and the
 * large size at which parameters are tried. Returns false for default parameters, and for a
 * barrier. */
static bool is_beaten(const struct gathering *g, const struct twill_algorithm *algorithm,
                      const struct twill_shape *shape, const struct priced *priced)
{
    if (shape->parameter[0] == 0 || shape->collective == TWILL_BARRIER)
        return false;
    for (size_t i = 0; i < g->all->count; i++) {
        const struct twill_candidate *own = &g->all->candidate[i];
        if (own->algorithm == algorithm && own->shape.parameter[0] == 0 &&
            own->shape.protocol == shape->protocol)
            return priced->price[SMALL_STEP] >= g->priced[i].price[SMALL_STEP] &&
                   priced->price[LARGE_STEP] >= g->priced[i].price[LARGE_STEP];
    }
    return false;
}

/* Return whether the algorithm, with this protocol and its default parameter, takes more than twice
 * the time of the fastest candidate so far. This must be so at both the small and the large size.
 * Then no parameter makes it the best. Candidates with a largest size, or that need access to
 * buffers of peers, are not compared with it. */
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
        if (!needs && g->priced[i].price[SMALL_STEP] < small && c->most == SIZE_MAX)
            small = g->priced[i].price[SMALL_STEP];
        if (!needs && g->priced[i].price[LARGE_STEP] < large && c->most == SIZE_MAX)
            large = g->priced[i].price[LARGE_STEP];
    }
    return own != NULL && own->price[SMALL_STEP] / 2 > small && own->price[LARGE_STEP] / 2 > large;
}

/* Return whether a candidate gathered so far, which can be used for all sizes, has the same
 * schedules as the one whose prices are passed. It compares their hashes. */
static bool candidate_is_known(const struct gathering *g, const struct priced *priced)
{
    for (size_t i = 0; i < g->all->count; i++)
        if (g->priced[i].fingerprint == priced->fingerprint && g->all->candidate[i].least == 0 &&
            g->all->candidate[i].most == SIZE_MAX)
            return true;
    return false;
}

/* Make room for one more candidate and its prices, without counting it. Returns TWILL_OK or
 * TWILL_ERR_MEMORY. */
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

/* Return the number of sizes, from the start of steps_at, at which a candidate needs prices. The
 * last of them is the first that is not below its limit `most`, or the end of steps_at. A barrier
 * has one. */
static unsigned count_steps(const struct twill_candidate *c, enum twill_collective collective)
{
    unsigned steps = 1;
    while (steps < CURVE_STEPS && collective != TWILL_BARRIER && steps_at[steps - 1] < c->most)
        steps++;
    return steps;
}

/* Compute the prices of a candidate into *priced. If it repeats the schedules of another, or costs
 * no less than with the default parameter, the remaining prices stay 0. If it cannot be priced,
 * only `unsupported` is set. Returns TWILL_OK in these cases as well. */
static twill_status compute_prices(struct priced *priced, const struct gathering *g,
                                   const struct twill_candidate *c, struct twill_error *error)
{
    struct twill_pricing *pricing;
    struct twill_error why = {.status = TWILL_OK};
    const struct twill_machine_model *model = &g->tuning->model;
    const struct twill_element_kind elements = twill_request_elements(g->like);
    const bool sized = g->like->collective != TWILL_BARRIER;
    twill_status status =
        twill_pricing_create(&pricing, c->algorithm, g->world, &c->shape, TWILL_PRICE_STEPS, &why);
    *priced = (struct priced){.unsupported = status == TWILL_ERR_UNSUPPORTED};
    if (status != TWILL_OK)
        return priced->unsupported ? TWILL_OK : TWILL_FAIL(error, status, "%s", why.message);
    priced->fingerprint = twill_pricing_fingerprint(pricing);
    bool needed = !candidate_is_known(g, priced);
    for (unsigned i = SMALL_STEP; needed && sized && i <= LARGE_STEP; i += LARGE_STEP - SMALL_STEP)
        priced->price[i] = price_with_toll(pricing, model, steps_at[i], elements);
    needed = needed && !is_beaten(g, c->algorithm, &c->shape, priced);
    for (unsigned i = 0; needed && i < count_steps(c, g->like->collective); i++)
        if (!sized || (i != SMALL_STEP && i != LARGE_STEP))
            priced->price[i] = price_with_toll(pricing, model, steps_at[i], elements);
    twill_pricing_destroy(pricing);
    return TWILL_OK;
}

size_t twill_candidate_place(const struct twill_candidate *c)
{
    size_t place = 0;
    while (twill_algorithm_at(place) != c->algorithm)
        place++;
    return place;
}

/* Return the key, never 0, under which ranks share the prices of a candidate. */
static uint64_t price_key(const struct gathering *g, const struct twill_candidate *c)
{
    uint64_t key = twill_hash_mix(g->key, twill_candidate_place(c) << 8 | c->shape.protocol);
    for (unsigned p = 0; p < TWILL_PARAMETERS; p++)
        key = twill_hash_mix(key, c->shape.parameter[p]);
    return key | 1;
}

/* Get the prices of a candidate. Either another rank has computed them, or they are computed here
 * and given to the others. If another rank is computing them now, wait for it, or if `helping`,
 * return without prices, which are not needed yet. If that rank fails or takes long, they are
 * computed here, as all ranks compute the same. */
static twill_status find_prices(struct priced *priced, const struct gathering *g,
                                const struct twill_candidate *c, bool helping,
                                struct twill_error *error)
{
    uint64_t words[TWILL_PRICE_WORDS] = {0}, key = price_key(g, c);
    if (g->records == NULL)
        return compute_prices(priced, g, c, error);
    enum twill_price_record found = g->records->ask(g->records->user, key, !helping, words);
    if (found == TWILL_RECORD_THERE)
        memcpy(priced, words, sizeof(*priced));
    if (found == TWILL_RECORD_THERE || (found != TWILL_RECORD_MINE && helping))
        return TWILL_OK;
    twill_status status = compute_prices(priced, g, c, error);
    memcpy(words, priced, sizeof(*priced));
    if (found == TWILL_RECORD_MINE)
        g->records->give(g->records->user, key, status == TWILL_OK ? words : NULL);
    return status;
}

/* Price a candidate, and append it with its curve to the gathering `user`. Leave it out if it can
 * never be the best, repeats the schedules of another, or cannot be priced, which is no error. */
static twill_status add_candidate(void *user, const struct twill_candidate *new,
                                  struct twill_error *error)
{
    struct gathering *g = user;
    const struct twill_measured *measured;
    struct priced priced;
    if (new->shape.parameter[0] != 0 && is_hopeless(g, new->algorithm, new->shape.protocol))
        return TWILL_OK;
    TWILL_TRY(error, find_prices(&priced, g, new, false, error));
    if (priced.unsupported || candidate_is_known(g, &priced) ||
        is_beaten(g, new->algorithm, &new->shape, &priced))
        return TWILL_OK;
    TWILL_TRY(error, grow_candidates(g, error));
    struct twill_candidate *c = &g->all->candidate[g->all->count];
    *c = *new;
    size_t count = twill_tuning_find(g->tuning, c->algorithm, &c->shape, g->world, &measured);
    blend(c, priced.price, count_steps(c, g->like->collective), measured, count);
    c->price_most = price_most(g, c);
    c->fingerprint = priced.fingerprint;
    g->priced[g->all->count++] = priced;
    return TWILL_OK;
}

/* Get *candidate, the first measured with this protocol. Returns its prices, or NULL for none. */
static const struct priced *measured_of(const struct gathering *g, enum twill_protocol protocol,
                                        const struct twill_candidate **candidate)
{
    for (size_t i = 0; i < g->all->count; i++) {
        *candidate = &g->all->candidate[i];
        if ((*candidate)->measured > 0 && (*candidate)->algorithm->protocols != 0 &&
            (*candidate)->shape.protocol == protocol)
            return &g->priced[i];
    }
    return NULL;
}

/* Correct the prices of candidates without measurements by the ratio of cost to price of a
 * candidate measured with the same protocol, because the model errs alike for all algorithms of a
 * protocol. They become an eighth dearer, so measured ones win unless these are far cheaper. */
static void correct_prices(const struct gathering *g)
{
    for (size_t i = 0; i < g->all->count; i++) {
        const struct twill_candidate *known;
        struct twill_candidate *c = &g->all->candidate[i];
        const struct priced *priced = measured_of(g, c->shape.protocol, &known);
        if (c->measured > 0 || c->algorithm->protocols == 0 || priced == NULL)
            continue;
        for (unsigned p = 0; p < c->points; p++) /* at steps_at, as there are no measurements */
            c->point[p].picoseconds =
                scaled(c->point[p].picoseconds / 8 * 9,
                       twill_candidate_cost(known, c->point[p].bytes), priced->price[p]);
        compute_rates(c);
    }
}

/* Parameters to try for algorithms that take one number, where 0 is their default. */
static const uint16_t tried_parameters[] = {0, 2, 4, 8};

/* Call fn for an algorithm with each protocol and parameter that applies, until one call fails. */
static twill_status visit_algorithm(const struct twill_algorithm *a,
                                    const struct twill_world *world,
                                    const struct twill_select_request *like, twill_candidate_fn fn,
                                    void *user, struct twill_error *error)
{
    bool protocols = a->protocols != 0 && like->collective != TWILL_BARRIER;
    bool tries = a->parameters == 1 && a->parse == NULL;
    unsigned values = tries ? TWILL_ARRAY_LENGTH(tried_parameters) : 1;
    for (unsigned f = 0; f < (protocols ? TWILL_PROTOCOL_COUNT : 1); f++) {
        for (unsigned v = 0; v < values; v++) {
            struct twill_candidate c = {.algorithm = a,
                                        .shape = {.collective = like->collective,
                                                  .protocol = (enum twill_protocol)f,
                                                  .vector = like->vector,
                                                  .order = like->order,
                                                  .parameter = {tried_parameters[v]}}};
            set_limits(&c, world, like);
            if (twill_algorithm_applies(a, world, &c.shape))
                TWILL_TRY(error, fn(user, &c, error));
        }
    }
    return TWILL_OK;
}

/* Sort candidates by the order of the registry, stable within an algorithm. */
static void sort_candidates(struct twill_candidates *all)
{
    for (size_t i = 1; i < all->count; i++) {
        struct twill_candidate c = all->candidate[i];
        size_t at = i;
        for (; at > 0 && twill_candidate_place(&all->candidate[at - 1]) > twill_candidate_place(&c);
             at--)
            all->candidate[at] = all->candidate[at - 1];
        all->candidate[at] = c;
    }
}

/* The arguments of look_for_measurements(), and whether it has found some. */
struct measurements {
    const struct twill_world *world;
    const struct twill_tuning *tuning;
    bool found;
};

/* Set `found` of the struct measurements `user` if the candidate has one. Returns TWILL_OK. */
static twill_status look_for_measurements(void *user, const struct twill_candidate *c,
                                          struct twill_error *error)
{
    struct measurements *m = user;
    const struct twill_measured *first;
    (void)error;
    m->found |= twill_tuning_find(m->tuning, c->algorithm, &c->shape, m->world, &first) > 0;
    return TWILL_OK;
}

bool twill_candidates_are_measured(const struct twill_world *world,
                                   const struct twill_tuning *tuning,
                                   const struct twill_select_request *like,
                                   const struct twill_algorithm *only)
{
    struct measurements m = {.world = world, .tuning = tuning};
    return twill_candidates_visit(world, like, only, look_for_measurements, &m, NULL) == TWILL_OK &&
           m.found;
}

uint64_t twill_candidates_hash(const struct twill_tuning *tuning,
                               const struct twill_select_request *like)
{
    uint64_t hash = twill_hash_mix(twill_tuning_hash(tuning), (uint64_t)like->collective);
    hash = twill_hash_mix(hash, (uint64_t)like->order << 2 | like->vector << 1 | like->narrow);
    return twill_hash_mix(hash, (uint64_t)like->type);
}

/* Compute and share the prices of a candidate of the gathering `user`, unless another rank has
 * computed them or is computing them. Do nothing if its parameter is not the default one, because
 * such prices are often not needed. */
static twill_status help_candidate(void *user, const struct twill_candidate *c,
                                   struct twill_error *error)
{
    struct priced unused;
    return c->shape.parameter[0] == 0 ? find_prices(&unused, user, c, true, error) : TWILL_OK;
}

/* Compute and share prices that no other rank computes. Ranks begin at different algorithms. */
static twill_status help_others(struct gathering *g, struct twill_error *error)
{
    size_t count = 0;
    while (twill_algorithm_at(count) != NULL)
        count++;
    for (size_t i = 0; i < count; i++) {
        const struct twill_algorithm *a = twill_algorithm_at((i + g->records->rank) % count);
        if (g->all->only == NULL || g->all->only == a)
            TWILL_TRY(error, visit_algorithm(a, g->world, g->like, help_candidate, g, error));
    }
    return TWILL_OK;
}

twill_status twill_candidates_visit(const struct twill_world *world,
                                    const struct twill_select_request *like,
                                    const struct twill_algorithm *only, twill_candidate_fn fn,
                                    void *user, struct twill_error *error)
{
    const struct twill_algorithm *a;
    for (unsigned pass = 0; pass < 2; pass++)
        for (size_t i = 0; (a = twill_algorithm_at(i)) != NULL; i++)
            if ((a->protocols != 0 && twill_world_widest(world) > 1) == (pass == 0) &&
                (only == NULL || only == a))
                TWILL_TRY(error, visit_algorithm(a, world, like, fn, user, error));
    return TWILL_OK;
}

twill_status
twill_candidates_create(struct twill_candidates **candidates, const struct twill_world *world,
                        const struct twill_tuning *tuning, const struct twill_select_request *like,
                        const struct twill_algorithm *only,
                        const struct twill_price_records *records, struct twill_error *error)
{
    struct twill_candidates *all = *candidates = calloc(1, sizeof(*all));
    if (all == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for the choice of algorithms");
    all->collective = like->collective;
    all->vector = like->vector;
    all->order = like->order;
    all->elements = twill_request_elements(like);
    all->only = only;
    struct gathering g = {
        .all = all, .world = world, .tuning = tuning, .like = like, .records = records};
    g.key = twill_hash_mix(twill_candidates_hash(tuning, like), only != NULL);
    twill_status status = records != NULL ? help_others(&g, error) : TWILL_OK;
    if (status == TWILL_OK)
        status = twill_candidates_visit(world, like, only, add_candidate, &g, error);
    if (like->collective != TWILL_BARRIER)
        correct_prices(&g);
    free(g.priced);
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
