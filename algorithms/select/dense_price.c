/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of a dense layer's two ways. */
#include "algorithms/select/dense_price.h"

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
    double product = (double)dense->samples * (double)elements * 1e-6 * (double)rates->million;
    /* An update needs the sum of this rank's shard only. */
    double shares = updates ? 1 : (double)ranks;
    dense->reduce_ps = (uint64_t)((double)reduce * rates->reality + product);
    dense->gather_ps = (uint64_t)((double)gather * rates->reality + product * shares);
    dense->gathers = dense->gather_ps < dense->reduce_ps;
    return TWILL_OK;
}
