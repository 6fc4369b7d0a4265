/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of a dense layer's two ways: the factors of all ranks are gathered and every rank computes
 * the sum of the gradients from them, or each rank computes its gradient, and these are reduced. */
#ifndef TWILL_DENSE_PRICE_H
#define TWILL_DENSE_PRICE_H

#include "algorithms/select/narrowing.h"

/* A dense layer's tensor. Constant after the commit. */
struct twill_dense {
    size_t rows, columns, samples; /* samples: most of a rank */
    bool gathers;
    uint64_t gather_ps, reduce_ps; /* prices, products included */
};

/* Return the floats that a rank contributes. */
size_t twill_dense_floats(const struct twill_dense *dense);

/* What prices come from. */
struct twill_dense_pricing {
    struct twill_chooser *chooser; /* for the world */
    const struct twill_world *world;
    const struct twill_tuning *tuning;
};

/* What is measured, equal on all ranks. */
struct twill_dense_rates {
    uint64_t million; /* picoseconds of a million multiplications */
    double reality;   /* time of a reduction over its price: the model may not know the network */
};

/* Find the price of a collective, in memory of twill_alloc(). */
twill_status twill_dense_price_collective(uint64_t *picoseconds,
                                          const struct twill_dense_pricing *pricing,
                                          enum twill_collective collective, size_t bytes,
                                          struct twill_error *error);
/* Set both prices of a layer, and `gathers` to the lower one. updates: the set has an optimizer. */
twill_status twill_dense_price(struct twill_dense *dense, const struct twill_dense_pricing *pricing,
                               const struct twill_dense_rates *rates, bool updates,
                               struct twill_error *error);

#endif
