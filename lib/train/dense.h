/* SPDX-License-Identifier: Apache-2.0 */
/* Dense layers, whose gradient is the product of sufficient factors: the errors and activations of
 * the samples. Either the factors of all ranks are gathered, and every rank computes the sum of the
 * gradients from them, or each computes its own, which is reduced; by price. */
#ifndef TWILL_TRAIN_DENSE_H
#define TWILL_TRAIN_DENSE_H

#include "algorithms/select/dense_price.h"
#include "lib/twill_train.h"

struct twill_gradients;
struct twill_train_tensor;
struct twill_bucket;
struct twill_lane;

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
