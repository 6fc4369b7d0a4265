/* SPDX-License-Identifier: Apache-2.0 */
/* Dense layers, whose gradient is the product of sufficient factors: the errors and activations of
 * the samples. Either the factors of all ranks are gathered, and every rank computes the sum of the
 * gradients from them, or each computes its own, which is reduced; by price. */
#ifndef TWILL_TRAIN_DENSE_H
#define TWILL_TRAIN_DENSE_H

#include "algorithms/select/narrowing.h"
#include "kernels/training/factors.h"
#include "lib/twill_train.h"

struct twill_gradients;
struct twill_train_tensor;
struct twill_bucket;
struct twill_lane;

/* A dense layer's tensor. Constant after the commit. */
struct twill_dense {
    size_t rows, columns, samples; /* samples: most of a rank */
    bool gathers;
    uint64_t gather_ps, reduce_ps; /* prices, products included */
};

/* --- lib/train/dense_price.c --- */

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

/* Time a product in this thread: the picoseconds of a million multiplications. */
twill_status twill_dense_time_product(uint64_t *million, const struct twill_kernels *kernels,
                                      struct twill_error *error);
/* Find the price of a collective, in memory of twill_alloc(). */
twill_status twill_dense_price_collective(uint64_t *picoseconds,
                                          const struct twill_dense_pricing *pricing,
                                          enum twill_collective collective, size_t bytes,
                                          struct twill_error *error);
/* Set both prices of a layer, and `gathers` to the lower one. updates: the set has an optimizer. */
twill_status twill_dense_price(struct twill_dense *dense, const struct twill_dense_pricing *pricing,
                               const struct twill_dense_rates *rates, bool updates,
                               struct twill_error *error);

/* --- lib/train/dense.c --- */

/* Choose for each dense layer. Collective. */
twill_status twill_dense_choose(struct twill_gradients *set);
/* Allocate the factors of buckets that gather them. Between steps. */
twill_status twill_dense_prepare(struct twill_gradients *set);
/* Prepare the all-gather of a bucket's factors. */
twill_status twill_dense_request(struct twill_lane *lane, const struct twill_bucket *bucket,
                                 twill_request **request);
/* Compute the sum of the gradients from the gathered factors, if the bucket has such: elements
 * first .. first + count - 1 at least. */
void twill_dense_rebuild(struct twill_gradients *set, const struct twill_bucket *bucket,
                         size_t first, size_t count);

#endif
