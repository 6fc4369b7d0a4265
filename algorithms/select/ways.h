/* SPDX-License-Identifier: Apache-2.0 */
/* Compares two ways to do a reduction by the prices and measurements that choose algorithms. A
 * reduction may be in f32 or converted to a narrower float, and a dense layer may gather factors or
 * reduce its gradient. The functions are pure, and give the same on all ranks. */
#ifndef TWILL_WAYS_H
#define TWILL_WAYS_H

#include "algorithms/select/tuning_file.h"

/* Set *picoseconds to the time of the algorithm that twill_select() chooses for a request. The time
 * is from measurements in `tuning` if there are some, else what its machine model predicts. */
twill_status twill_cost_of_choice(uint64_t *picoseconds, struct twill_chooser *chooser,
                                  const struct twill_world *world,
                                  const struct twill_tuning *tuning,
                                  const struct twill_select_request *request,
                                  struct twill_error *error);

/* The result of twill_narrowing_pays(), a plain value of its caller, with times in picoseconds. */
struct twill_narrowing {
    uint64_t wide;       /* of the reduction of f32 as it is */
    uint64_t narrow;     /* of as many elements of the type, as with twill_op_create_narrow() */
    uint64_t conversion; /* of the input and result of this rank */
    bool pays;           /* narrow and conversion together take less than 15/16 of wide */
};

/* Fill in *narrowing by comparing the reduction of f32 `request`, whose bytes are those of f32,
 * with one in `type`, a float of 8 or 16 bits. conversion_rate is the picoseconds to convert 1 KiB
 * of f32 to the type and back, or 0 for that of the machine model. Returns TWILL_ERR_ARGUMENT if
 * the request does not reduce f32, or the type is no such float. */
twill_status twill_narrowing_pays(struct twill_narrowing *narrowing, struct twill_chooser *chooser,
                                  const struct twill_world *world,
                                  const struct twill_tuning *tuning,
                                  const struct twill_select_request *request, twill_type type,
                                  uint64_t conversion_rate, struct twill_error *error);

/* The weight matrix of a dense layer. Its gradient is summed over ranks in one of two ways. Either
 * the factors of all ranks are gathered and every rank computes the sum of the gradients from them,
 * or each rank computes its gradient, and these are reduced. The owner sets the first three members
 * and twill_dense_price() the others. It is constant once the gradient set is committed. */
struct twill_dense {
    size_t rows, columns, samples; /* `samples` are those of a step, on the rank with most */
    bool gathers;                  /* the way is the gathering of factors */
    uint64_t gather_ps, reduce_ps; /* predicted times of both ways, products included */
};

/* Return the number of floats that a rank contributes if the factors are gathered. */
size_t twill_dense_floats(const struct twill_dense *dense);

/* The sources of the times that twill_dense_price() and twill_dense_price_collective() predict. The
 * caller owns them. */
struct twill_dense_pricing {
    struct twill_chooser *chooser; /* for the world */
    const struct twill_world *world;
    const struct twill_tuning *tuning;
};

/* Speeds measured by the caller, equal on all ranks. A plain value. */
struct twill_dense_rates {
    uint64_t million; /* picoseconds of a million multiplications */
    uint64_t threads; /* of a rank, which share the products; 0 or 1 for one */
    double reality;   /* time of a reduction over the predicted one, as the model may be wrong */
};

/* Get the time, as by twill_cost_of_choice(), of a collective of f32 in memory of twill_alloc().
 * `bytes` is the size of the whole message, in an allgather that of the shards of all ranks
 * together. */
twill_status twill_dense_price_collective(uint64_t *picoseconds,
                                          const struct twill_dense_pricing *pricing,
                                          enum twill_collective collective, size_t bytes,
                                          struct twill_error *error);
/* Set gather_ps and reduce_ps of a layer, and whether it gathers, the cheaper way. With `updates`
 * an optimizer uses the gradient, and each rank needs the sum only for its shard of the layer. */
twill_status twill_dense_price(struct twill_dense *dense, const struct twill_dense_pricing *pricing,
                               const struct twill_dense_rates *rates, bool updates,
                               struct twill_error *error);

#endif
