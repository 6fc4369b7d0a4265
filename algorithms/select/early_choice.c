/* SPDX-License-Identifier: Apache-2.0 */
/* The first call of a shape waits for its choice, and pricing all candidates at all sizes takes 0.1
 * s for 64 ranks. But most of them are far from the best. This file prices one form (an algorithm
 * with a protocol and a parameter) after the other, at the sizes around the request only. It skips
 * a form if the work of the first or the middle rank alone takes longer than the best so far. The
 * result is what all candidates would give. They are the forms considered here, without those whose
 * parameter does not pay, and those whose schedules repeat an earlier form. So where the cheapest
 * form has no parameter and repeats none, it is the cheapest candidate. In other cases, and where
 * something was measured, nothing is decided. */
#include "algorithms/select/candidates.h"
#include "lib/base/lists.h"

/* The largest size at which candidates are priced. */
#define LARGEST ((size_t)1 << 30)
/* With fewer ranks, all prices take no longer than a few early choices. */
#define RANKS_LEAST 16

/* The state of search_forms(), on its stack. It looks for the cheapest form, which is an algorithm
 * with a protocol and a parameter. */
struct early_search {
    const struct twill_world *world;
    const struct twill_tuning *tuning;
    const struct twill_select_request *request;
    size_t bytes;
    struct twill_candidate best; /* the cheapest form so far, without a curve */
    uint64_t cost; /* its cost in picoseconds, TWILL_PRICE_NEVER if there is none yet */
    bool certain;  /* twill_candidates_create() would certainly keep `best` as a candidate */
};

/* Return whether a form can be used for the request, with its size, buffers and root. */
static bool form_applies(const struct early_search *s, const struct twill_candidate *c)
{
    struct twill_shape shape = c->shape;
    shape.root = s->request->root;
    return twill_candidate_takes(c, s->bytes, twill_request_access(s->world, s->request)) &&
           twill_algorithm_applies(c->algorithm, s->world, &shape);
}

/* Set *cost to the predicted picoseconds of a form. It is TWILL_PRICE_NEVER if the form has no
 * price, and may be so if the cost is above the best so far. */
static twill_status price_form(uint64_t *cost, const struct early_search *s,
                               const struct twill_candidate *c, struct twill_error *error)
{
    struct twill_pricing *pricing;
    struct twill_error why = {.status = TWILL_OK};
    twill_status status =
        twill_pricing_create(&pricing, c->algorithm, s->world, &c->shape, TWILL_PRICE_STEPS, &why);
    *cost = TWILL_PRICE_NEVER;
    if (status != TWILL_OK)
        return status == TWILL_ERR_UNSUPPORTED ? TWILL_OK
                                               : TWILL_FAIL(error, status, "%s", why.message);
    *cost = twill_pricing_cost(pricing, &s->tuning->model, s->request, s->bytes, s->cost);
    twill_pricing_destroy(pricing);
    return TWILL_OK;
}

/* Return whether a form, an algorithm with a protocol and a parameter, surely costs more than the
 * best so far. It does if the first or the middle rank works for longer. Where ranks share a core,
 * the last rank replaces the middle one. All ranks of the core work at least as long as the less
 * busy of the two. */
static bool is_dearer(const struct early_search *s, const struct twill_candidate *c)
{
    const struct twill_machine_model *model = &s->tuning->model;
    uint64_t others = model->crowd > 1 ? model->crowd - 1 : 0, work[2] = {0}, least = 0;
    const uint32_t rank[] = {0, others > 0 ? s->world->size - 1 : s->world->size / 2};
    for (unsigned i = 0; i < 2 && s->cost != TWILL_PRICE_NEVER && least <= s->cost; i++) {
        if (twill_price_least(&work[i], c->algorithm, s->world, rank[i], &c->shape, model, s->bytes,
                              twill_request_elements(s->request), NULL) != TWILL_OK)
            return false; /* price_form() will say why */
        least = model->start + twill_max(work[0], work[1]) + twill_min(work[0], work[1]) * others;
    }
    return least > s->cost;
}

/* Price a form, an algorithm with a protocol and a parameter, if it can be used for the request of
 * the search `user`. If it is the cheapest so far, make it `best`, and update `certain`. Returns an
 * error only if the form cannot be priced for lack of memory or a fault. */
static twill_status try_form(void *user, const struct twill_candidate *c, struct twill_error *error)
{
    struct early_search *s = user;
    uint64_t cost;
    if (!form_applies(s, c) || is_dearer(s, c))
        return TWILL_OK;
    TWILL_TRY(error, price_form(&cost, s, c, error));
    if (cost < s->cost) {
        s->best = *c;
        s->cost = cost;
        s->certain = c->shape.parameter[0] == 0;
    } else if (cost == s->cost && cost != TWILL_PRICE_NEVER) {
        /* Among equals the first of the registry is chosen, unless it repeats an earlier one. */
        s->certain &= twill_candidate_place(c) >= twill_candidate_place(&s->best);
    }
    return TWILL_OK;
}

/* Search for the choice. Sets words[0] to the index of its algorithm in the registry plus 1 and
 * words[1] to its protocol, as ranks share it, or leaves words[0] at 0 if nothing is decided. */
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

/* Return whether twill_choose_early() saves time and is exact for this world and size. Below
 * RANKS_LEAST ranks it saves none. With several nodes it is exact only for small messages without
 * mapped buffers (see price_most(), map_instead()), on one node up to LARGEST. */
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
