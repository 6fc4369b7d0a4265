/* SPDX-License-Identifier: Apache-2.0 */
/* Compares two ways to do a reduction by the prices and measurements that choose algorithms. A
 * reduction may be in f32 or converted to a narrower float, and a dense layer may gather factors or
 * reduce its gradient. The functions are pure, and give the same on all ranks. */
#ifndef TWILL_WAYS_H
#define TWILL_WAYS_H

#include "algorithms/select/tuning_file.h"

/* Get the cost in picoseconds of the algorithm chosen for a request, as measured, else by price. */
twill_status twill_cost_of_choice(uint64_t *picoseconds, struct twill_chooser *chooser,
                                  const struct twill_world *world,
                                  const struct twill_tuning *tuning,
                                  const struct twill_select_request *request,
                                  struct twill_error *error);

/* The cost of a reduction of f32 as it is, and narrowed, in picoseconds. */
struct twill_narrowing {
    uint64_t wide; /* f32 */
    /* of the same number of elements of the type, as with twill_op_create_narrow() */
    uint64_t narrow;
    uint64_t conversion; /* of the input and result of this rank */
    bool pays;           /* narrow and conversion together take less than 15/16 of wide */
};

/* Compare a reduction of f32, `request`, whose bytes are those of f32, with one in a type of 8 or
 * 16 bits. conversion_rate is in picoseconds per KiB of f32, in both directions, or 0 for that of
 * the machine model. The answer is only as exact as the model is for the world of the chooser.
 * Returns TWILL_ERR_ARGUMENT if the request is not of f32, or the type is not narrower. */
twill_status twill_narrowing_pays(struct twill_narrowing *narrowing, struct twill_chooser *chooser,
                                  const struct twill_world *world,
                                  const struct twill_tuning *tuning,
                                  const struct twill_select_request *request, twill_type type,
                                  uint64_t conversion_rate, struct twill_error *error);

/* A dense layer has two ways. Either the factors of all ranks are gathered and every rank computes
 * the sum of the gradients from them, or each rank computes its gradient, and these are reduced. */

/* The tensor of a dense layer. Constant after the commit. */
struct twill_dense {
    size_t rows, columns, samples; /* `samples` is the largest number of a rank */
    bool gathers;
    uint64_t gather_ps, reduce_ps; /* prices, products included */
};

/* Return the number of floats that a rank contributes. */
size_t twill_dense_floats(const struct twill_dense *dense);

/* The sources of prices. */
struct twill_dense_pricing {
    struct twill_chooser *chooser; /* for the world */
    const struct twill_world *world;
    const struct twill_tuning *tuning;
};

/* Measured rates, equal on all ranks. */
struct twill_dense_rates {
    uint64_t million; /* picoseconds of a million multiplications */
    double reality; /* time of a reduction over its price, as the model may not know the network */
};

/* Get the price of a collective whose buffers are memory of twill_alloc(). */
twill_status twill_dense_price_collective(uint64_t *picoseconds,
                                          const struct twill_dense_pricing *pricing,
                                          enum twill_collective collective, size_t bytes,
                                          struct twill_error *error);
/* Set both prices of a layer, and `gathers` if that is cheaper. updates: there is an optimizer. */
twill_status twill_dense_price(struct twill_dense *dense, const struct twill_dense_pricing *pricing,
                               const struct twill_dense_rates *rates, bool updates,
                               struct twill_error *error);

#endif
