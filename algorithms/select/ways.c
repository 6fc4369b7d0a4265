/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the ways of a reduction by their prices: see ways.h. */
#include "algorithms/select/ways.h"
#include "algorithms/select/candidates.h"
#include "lib/base/lists.h"

#include <string.h>

twill_status twill_cost_of_choice(uint64_t *picoseconds, struct twill_chooser *chooser,
                                  const struct twill_world *world,
                                  const struct twill_tuning *tuning,
                                  const struct twill_select_request *request,
                                  struct twill_error *error)
{
    const size_t bytes = twill_request_bytes(world, request);
    const struct twill_candidates *all;
    struct twill_choice choice;
    TWILL_TRY(error, twill_select(&choice, chooser, request, error));
    TWILL_TRY(error, twill_chooser_candidates(chooser, request, NULL, &all, error));
    for (size_t i = 0; i < all->count; i++)
        if (twill_candidate_is(&all->candidate[i], &choice)) {
            *picoseconds = twill_candidate_cost(&all->candidate[i], bytes);
            return TWILL_OK;
        }
    return twill_price(picoseconds, choice.algorithm, world, &choice.shape, &tuning->model, bytes,
                       twill_request_elements(request), error);
}

/* Return the bytes of f32 that a rank converts, the mean of what it holds of source and result. */
static uint64_t converted_bytes(const struct twill_world *world,
                                const struct twill_select_request *request)
{
    const struct twill_collective_facts *facts = twill_collective_facts(request->collective);
    const uint64_t bytes = twill_request_bytes(world, request);
    return facts->dst == TWILL_HOLDS_OWN ? (bytes + bytes / world->size) / 2 : bytes;
}

/* Return the picoseconds of work on memory that one thread of a rank does in `work`, if the threads
 * of the rank share it. */
static uint64_t shared_work(const struct twill_machine_model *model, uint64_t work)
{
    uint64_t least = work, one = model->thread[0].copy;
    for (unsigned i = 1; i < TWILL_THREAD_COSTS && UINT64_C(1) << i <= model->threads; i++)
        if (one > 0 && model->thread[i].copy > 0)
            least = twill_min(least, model->thread[i].fork + work / one * model->thread[i].copy);
    return least;
}

twill_status twill_narrowing_pays(struct twill_narrowing *narrowing, struct twill_chooser *chooser,
                                  const struct twill_world *world,
                                  const struct twill_tuning *tuning,
                                  const struct twill_select_request *request, twill_type type,
                                  uint64_t conversion_rate, struct twill_error *error)
{
    struct twill_select_request narrow = *request;
    *narrowing = (struct twill_narrowing){.pays = false};
    if (request->type != TWILL_F32 || !twill_type_is_narrow(type) ||
        !twill_collective_facts(request->collective)->reduces)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "narrowing is for reductions of f32, to floats of 8 or 16 bits");
    narrow.type = type;
    narrow.narrow = true;
    narrow.bytes = request->bytes / sizeof(float) * twill_type_size(type);
    TWILL_TRY(error,
              twill_cost_of_choice(&narrowing->wide, chooser, world, tuning, request, error));
    TWILL_TRY(error,
              twill_cost_of_choice(&narrowing->narrow, chooser, world, tuning, &narrow, error));
    narrowing->conversion =
        shared_work(&tuning->model,
                    twill_rate_time(conversion_rate > 0 ? conversion_rate : tuning->model.convert,
                                    converted_bytes(world, request)));
    narrowing->pays = narrowing->narrow + narrowing->conversion <
                      /* less is within the error of a price */
                      narrowing->wide - narrowing->wide / 16;
    return TWILL_OK;
}

size_t twill_dense_floats(const struct twill_dense *dense)
{
    return dense->samples * (dense->rows + dense->columns);
}

twill_status twill_dense_price_collective(uint64_t *picoseconds,
                                          const struct twill_dense_pricing *pricing,
                                          enum twill_collective collective, size_t bytes,
                                          struct twill_error *error)
{
    const struct twill_select_request request = {.collective = collective,
                                                 .bytes = bytes,
                                                 .mapped = pricing->world->nodes == 1,
                                                 .type = TWILL_F32};
    return twill_cost_of_choice(picoseconds, pricing->chooser, pricing->world, pricing->tuning,
                                &request, error);
}

twill_status twill_dense_price(struct twill_dense *dense, const struct twill_dense_pricing *pricing,
                               const struct twill_dense_rates *rates, bool updates,
                               struct twill_error *error)
{
    uint64_t ranks = pricing->world->size, reduce = 0, gather = 0;
    size_t elements = dense->rows * dense->columns,
           factors = twill_dense_floats(dense) * sizeof(float) * ranks;
    TWILL_TRY(error, twill_dense_price_collective(&reduce, pricing, TWILL_ALLREDUCE,
                                                  elements * sizeof(float), error));
    TWILL_TRY(error,
              twill_dense_price_collective(&gather, pricing, TWILL_ALLGATHER, factors, error));
    double product = (double)dense->samples * (double)elements * 1e-6 * (double)rates->million /
                     (double)twill_max(rates->threads, 1);
    /* An update needs the sum of only the shard of this rank. */
    double shares = updates ? 1 : (double)ranks;
    dense->reduce_ps = (uint64_t)((double)reduce * rates->reality + product);
    dense->gather_ps = (uint64_t)((double)gather * rates->reality + product * shares);
    dense->gathers = dense->gather_ps < dense->reduce_ps;
    return TWILL_OK;
}

/* Return the least predicted picoseconds of all candidates for a call of `bytes` bytes. */
static uint64_t least_cost(const struct twill_candidates *all, size_t bytes)
{
    uint64_t least = TWILL_PRICE_NEVER;
    for (size_t i = 0; i < all->count; i++)
        if (twill_candidate_competes(&all->candidate[i], bytes, 0))
            least = twill_min(least, twill_candidate_cost(&all->candidate[i], bytes));
    return least;
}

/* Slots that are tried, the largest first, and the least ranks for which they are. */
static const size_t slots_tried[] = {256, 64};
enum { SLOT_RANKS = 64, SLOT_GAIN = 4, SLOT_SHARE = 8 };

twill_status twill_slot_pays(size_t *bytes, struct twill_chooser *chooser,
                             const struct twill_world *world, const struct twill_tuning *tuning,
                             enum twill_collective collective, struct twill_error *error)
{
    struct twill_select_request request = {
        .collective = collective, .vector = true, .type = TWILL_U8};
    const struct twill_candidates *all;
    uint64_t part;
    *bytes = 0;
    if (world->nodes == 1 || world->size < SLOT_RANKS)
        return TWILL_OK;
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(slots_tried) && *bytes == 0; i++) {
        struct twill_select_request slots = request;
        slots.vector = false;
        slots.bytes = slots_tried[i] * world->size;
        twill_status status = twill_cost_of_choice(&part, chooser, world, tuning, &slots, error);
        if (status == TWILL_ERR_CONFIG) { /* TWILL_ALGORITHM is not for calls without counts */
            twill_error_clear(error);
            return TWILL_OK;
        }
        TWILL_TRY(error, status);
        TWILL_TRY(error, twill_chooser_candidates(chooser, &request, NULL, &all, error));
        if (part <= least_cost(all, slots.bytes) / SLOT_GAIN &&
            part <= least_cost(all, twill_request_bytes(world, &request)) / SLOT_SHARE)
            *bytes = slots_tried[i];
    }
    return TWILL_OK;
}
