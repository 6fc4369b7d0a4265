/* SPDX-License-Identifier: Apache-2.0 */
/* Sufficient factors of dense layers, with their choice, all-gather and product. */
#include "kernels/training/factors.h"
#include "lib/train/compression/compression.h"

#include <string.h>

#define TIMED_REDUCTIONS 3u
#define TIMED_REDUCTION  ((size_t)4 << 20) /* most bytes of the reduction that is timed */

/* Set *million to the ps that a million multiplications take on the slowest rank. Collective.
 * Returns TWILL_OK or the error. */
static twill_status time_products(struct twill_gradients *set, uint64_t *million)
{
    uint64_t mine = twill_factors_time(set->process.kernels);
    if (mine == 0)
        return TWILL_FAIL(&set->error, TWILL_ERR_MEMORY, "out of memory to time a product");
    return twill_set_check(set, set->comm,
                           twill_allreduce(set->comm, &mine, million, 1, TWILL_U64, TWILL_MAX));
}

/* Time reductions of `bytes` bytes, of which the first only connects. Sets *ns to the nanoseconds
 * of the fastest, on the slowest rank. Collective. Returns TWILL_OK or the error. */
static twill_status time_reductions(struct twill_gradients *set, size_t bytes, uint64_t *ns)
{
    struct twill_comm *comm = set->comm;
    void *memory = NULL;
    twill_status status = twill_set_allocate(set, &memory, bytes, "to time a reduction");
    if (status != TWILL_OK)
        return status;
    memset(memory, 0, bytes);
    uint64_t mine = UINT64_MAX;
    for (unsigned i = 0; i <= TIMED_REDUCTIONS && status == TWILL_OK; i++) {
        uint64_t from = twill_now();
        status = twill_allreduce(comm, memory, memory, bytes / sizeof(float), TWILL_F32, TWILL_SUM);
        if (i > 0)
            mine = twill_min(mine, twill_now() - from);
    }
    (void)twill_free(set->process.context, memory);
    if (status == TWILL_OK)
        status = twill_allreduce(comm, &mine, ns, 1, TWILL_U64, TWILL_MAX);
    return twill_set_check(set, comm, status);
}

/* Set *rates to what prices of dense layers need. Time multiplications. If prices decide
 * (options.factors), also time an allreduce of at most `bytes` bytes, to compare the time with its
 * price by `pricing`. Collective. Returns TWILL_OK or the error. */
static twill_status measure_rates(struct twill_gradients *set,
                                  const struct twill_dense_pricing *pricing, size_t bytes,
                                  struct twill_dense_rates *rates)
{
    uint64_t ns = 0, ps = 0;
    rates->reality = 1;
    rates->threads = set->process.rank_threads;
    TWILL_TRY(NULL, time_products(set, &rates->million));
    if (set->options.factors != TWILL_FACTORS_BY_PRICE || twill_comm_size(set->parent) == 1)
        return TWILL_OK;
    bytes = twill_min(bytes, TIMED_REDUCTION);
    TWILL_TRY(&set->error,
              twill_dense_price_collective(&ps, pricing, TWILL_ALLREDUCE, bytes, &set->error));
    TWILL_TRY(NULL, time_reductions(set, bytes, &ns));
    rates->reality = (double)ns * 1000 / (double)twill_max(ps, 1);
    return TWILL_OK;
}

/* Set dense->gathers, whether ranks gather a layer's factors (errors and activations) instead of
 * reducing its gradient. Unless options.factors decides, the cheaper way is taken, priced by
 * `pricing` and the measured `rates`. Returns TWILL_OK or the error. */
static twill_status price_layer(struct twill_gradients *set,
                                const struct twill_dense_pricing *pricing,
                                struct twill_dense *dense, const struct twill_dense_rates *rates)
{
    TWILL_TRY(&set->error,
              twill_dense_price(dense, pricing, rates, set->update != NULL, &set->error));
    if (set->options.factors != TWILL_FACTORS_BY_PRICE)
        dense->gathers = set->options.factors == TWILL_FACTORS_GATHERED;
    return TWILL_OK;
}

twill_status twill_dense_choose(struct twill_gradients *set)
{
    struct twill_dense_pricing pricing = {NULL, twill_extend_comm(set->comm).world,
                                          set->process.timings};
    struct twill_dense_rates rates;
    twill_status status = TWILL_OK;
    for (uint32_t t = 0; status == TWILL_OK && t < set->tensors; t++) {
        if (set->tensor[t].dense == NULL)
            continue;
        if (pricing.chooser == NULL) {
            TWILL_TRY(&set->error, twill_extend_chooser(&pricing.chooser, set->comm, &set->error));
            status = measure_rates(set, &pricing, set->tensor[t].bytes, &rates);
        }
        if (status == TWILL_OK)
            status = price_layer(set, &pricing, set->tensor[t].dense, &rates);
    }
    if (pricing.chooser != NULL)
        twill_chooser_destroy(pricing.chooser);
    return status;
}

twill_status twill_dense_prepare(struct twill_gradients *set)
{
    for (uint32_t b = 0; b < set->buckets; b++) {
        struct twill_bucket *bucket = &set->bucket[b];
        const struct twill_dense *dense = twill_bucket_tensor(set, bucket, 0)->dense;
        if (dense == NULL || !dense->gathers)
            continue;
        size_t bytes =
            twill_dense_floats(dense) * sizeof(float) * (size_t)twill_comm_size(set->parent);
        void *memory = NULL;
        TWILL_TRY(&set->error, twill_set_allocate(set, &memory, bytes, "for factors"));
        bucket->dense = dense;
        bucket->factors = memory;
    }
    return TWILL_OK;
}

twill_status twill_dense_request(twill_comm *comm, const struct twill_bucket *bucket,
                                 twill_request **request)
{
    size_t floats = twill_dense_floats(bucket->dense);
    const float *mine = bucket->factors + floats * (size_t)twill_comm_rank(comm);
    return twill_allgather_init(comm, mine, bucket->factors, floats, TWILL_F32, request);
}

void twill_dense_rebuild(struct twill_gradients *set, const struct twill_bucket *bucket,
                         size_t first, size_t count)
{
    const struct twill_dense *dense = bucket->dense;
    if (count == 0)
        return;
    int size = twill_comm_size(set->parent);
    double scale = set->options.scale;
    if (set->update == NULL && set->options.op == TWILL_AVG)
        scale /= size;
    const struct twill_factors factors = {.errors = bucket->factors,
                                          .activations =
                                              bucket->factors + dense->samples * dense->rows,
                                          .parts = (size_t)size,
                                          .stride = twill_dense_floats(dense),
                                          .samples = dense->samples,
                                          .rows = dense->rows,
                                          .columns = dense->columns,
                                          .scale = (float)scale};
    size_t row = first / dense->columns, end = (first + count - 1) / dense->columns + 1;
    twill_factors_multiply(set->process.kernels, &factors, bucket->memory, row, end - row,
                           set->process.pool);
}
