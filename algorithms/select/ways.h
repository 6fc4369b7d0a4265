/* SPDX-License-Identifier: Apache-2.0 */
/* Two ways to do a reduction, compared by the prices and measurements that choose algorithms: in
 * f32 or converted to a narrower float, and for a dense layer's gradient, gathered factors or a
 * reduced gradient. Pure, and the same on all ranks. */
#ifndef TWILL_WAYS_H
#define TWILL_WAYS_H

#include "algorithms/select/tuning_file.h"

/* Get the cost in picoseconds of what is chosen for a request: measured, else the price. */
twill_status twill_cost_of_choice(uint64_t *picoseconds, struct twill_chooser *chooser,
                                  const struct twill_world *world,
                                  const struct twill_tuning *tuning,
                                  const struct twill_select_request *request,
                                  struct twill_error *error);

/* What a reduction of f32 costs as it is, and narrowed. Picoseconds. */
struct twill_narrowing {
    uint64_t wide;       /* f32 */
    uint64_t narrow;     /* as many elements of the type, as of twill_op_create_narrow() */
    uint64_t conversion; /* of this rank's input and result */
    bool pays;           /* narrow and conversion take less than 15/16 of wide */
};

/* Compare a reduction of f32, `request`, whose bytes are those of f32, with one in a type of 8 or
 * 16 bits. conversion_rate: picoseconds per KiB of f32, there and back; 0: that of the machine
 * model. Where the chooser is for a world that the model is not exact for, so is the answer.
 * TWILL_ERR_ARGUMENT: the request is not of f32, or the type is not narrower. */
twill_status twill_narrowing_pays(struct twill_narrowing *narrowing, struct twill_chooser *chooser,
                                  const struct twill_world *world,
                                  const struct twill_tuning *tuning,
                                  const struct twill_select_request *request, twill_type type,
                                  uint64_t conversion_rate, struct twill_error *error);

/* A dense layer has two ways: the factors of all ranks are gathered and every rank computes the sum
 * of the gradients from them, or each rank computes its gradient, and these are reduced. */

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
