/* SPDX-License-Identifier: Apache-2.0 */
/* The first call of a shape waits for its choice, and to price all candidates at all sizes takes
 * 0.1 s for 64 ranks. But most of them are far from the best: this prices one form (an algorithm
 * with a protocol and a parameter) after the other, at the sizes around the request only, unless
 * the own work of the first or the middle rank takes longer than the best so far.
 *
 * The result is what all candidates would give. They are the forms that are looked at here, without
 * those whose parameter does not pay, and those whose schedules repeat an earlier form's. So where
 * the cheapest form has no parameter, and repeats none, it is the cheapest candidate. In other
 * cases, and where something was measured, nothing is decided. */
#include "algorithms/select/early_choice.h"

/* The largest size that candidates are priced at. */
#define LARGEST ((size_t)1 << 30)
/* Below this many ranks, all prices take no longer than a few early choices. */
#define RANKS_LEAST 16
/* In place of a rank. */
#define ALL UINT32_MAX

struct early_search {
    const struct twill_world *world;
    const struct twill_tuning *tuning;
    const struct twill_select_request *request;
    size_t bytes;
    struct twill_candidate best; /* the cheapest so far, without points */
    uint64_t cost;               /* its cost in picoseconds; TWILL_PRICE_NEVER: none yet */
    bool certain;                /* it is a candidate */
};

static bool form_applies(const struct early_search *s, const struct twill_candidate *c)
{
    struct twill_shape shape = c->shape;
    shape.root = s->request->root;
    return twill_candidate_takes(c, s->bytes, twill_request_access(s->world, s->request)) &&
           twill_algorithm_applies(c->algorithm, s->world, &shape);
}

/* Compute what a form costs, or by a rank's own work costs at least unless `rank` is ALL. *cost may
 * be TWILL_PRICE_NEVER where that is above the best so far, or the form has no price. */
static twill_status price_form(uint64_t *cost, const struct early_search *s,
                               const struct twill_candidate *c, uint32_t rank,
                               struct twill_error *error)
{
    struct twill_pricing *pricing;
    struct twill_error why = {.status = TWILL_OK};
    twill_status status =
        rank == ALL
            ? twill_pricing_create(&pricing, c->algorithm, s->world, &c->shape, &why)
            : twill_pricing_create_least(&pricing, c->algorithm, s->world, rank, &c->shape, &why);
    *cost = TWILL_PRICE_NEVER;
    if (status != TWILL_OK)
        return status == TWILL_ERR_UNSUPPORTED ? TWILL_OK
                                               : TWILL_FAIL(error, status, "%s", why.message);
    /* A seventh more: lanes that share a core may be run in a better order than `least` does. */
    uint64_t most = s->cost + (rank == ALL ? 0 : s->cost / 7);
    *cost = twill_pricing_cost(pricing, &s->tuning->model, s->request, s->bytes, most);
    twill_pricing_destroy(pricing);
    return TWILL_OK;
}

static twill_status try_form(void *user, const struct twill_candidate *c, struct twill_error *error)
{
    struct early_search *s = user;
    uint64_t cost = 0;
    /* The last rank has the least to do in most trees, so on shared cores it represents the others.
     */
    uint32_t other = s->tuning->model.crowd > 1 ? s->world->size - 1 : s->world->size / 2;
    if (!form_applies(s, c))
        return TWILL_OK;
    for (unsigned i = 0; i < 2 && s->cost != TWILL_PRICE_NEVER && cost / 8 * 7 <= s->cost; i++)
        TWILL_TRY(error, price_form(&cost, s, c, i * other, error));
    if (cost / 8 * 7 <= s->cost)
        TWILL_TRY(error, price_form(&cost, s, c, ALL, error));
    if (cost < s->cost) {
        s->best = *c;
        s->cost = cost;
        s->certain = c->shape.parameter[0] == 0;
    } else if (cost == s->cost && cost != TWILL_PRICE_NEVER) {
        /* Of equals the first of the registry is chosen, unless it repeats an earlier one. */
        s->certain &= twill_candidate_place(c) >= twill_candidate_place(&s->best);
    }
    return TWILL_OK;
}

/* Search for the choice. words: the place of its algorithm plus 1, and its protocol, as ranks share
 * it; 0: not decided. */
static twill_status search_forms(uint64_t words[TWILL_PRICE_WORDS], const struct twill_world *world,
                                 const struct twill_tuning *tuning,
                                 const struct twill_select_request *request,
                                 struct twill_error *error)
{
    struct early_search s = {.world = world,
                             .tuning = tuning,
                             .request = request,
                             .bytes = twill_request_bytes(world, request),
                             .cost = TWILL_PRICE_NEVER};
    if (!twill_candidates_are_measured(world, tuning, request, NULL))
        TWILL_TRY(error, twill_candidates_visit(world, request, NULL, try_form, &s, error));
    if (s.certain) {
        words[0] = 1 + twill_candidate_place(&s.best);
        words[1] = s.best.shape.protocol;
    }
    return TWILL_OK;
}

/* Return whether this pays, and the choice is the cheapest by the prices around this size. With
 * several nodes there is more to it (price_most(), map_instead()), and above LARGEST prices are
 * extrapolated. */
static bool can_decide(const struct twill_world *world, const struct twill_select_request *request)
{
    size_t bytes = twill_request_bytes(world, request);
    return world->size >= RANKS_LEAST &&
           (world->nodes == 1 ? bytes <= LARGEST : !request->mapped && bytes <= TWILL_FLAT_MOST);
}

twill_status twill_choose_early(struct twill_choice *choice, bool *decided,
                                const struct twill_world *world, const struct twill_tuning *tuning,
                                const struct twill_select_request *request,
                                const struct twill_price_records *records,
                                struct twill_error *error)
{
    uint64_t words[TWILL_PRICE_WORDS] = {0};
    uint64_t key = twill_hash_mix(twill_candidates_hash(tuning, request), request->bytes);
    key = twill_hash_mix(key, (uint64_t)request->root << 2 | twill_request_access(world, request));
    enum twill_price_record found = TWILL_RECORD_NONE;
    *decided = false;
    if (!can_decide(world, request))
        return TWILL_OK;
    if (records != NULL)
        found = records->ask(records->user, key | 1, true, words);
    twill_status status = TWILL_OK;
    if (found != TWILL_RECORD_THERE)
        status = search_forms(words, world, tuning, request, error);
    if (found == TWILL_RECORD_MINE)
        records->give(records->user, key | 1, status == TWILL_OK ? words : NULL);
    if (status != TWILL_OK || words[0] == 0)
        return status;
    choice->algorithm = twill_algorithm_at(words[0] - 1);
    choice->shape.protocol = (enum twill_protocol)words[1];
    *decided = choice->algorithm != NULL;
    return TWILL_OK;
}
