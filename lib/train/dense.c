/* SPDX-License-Identifier: Apache-2.0 */
/* Sufficient factors of dense layers: the choice, the all-gather, the product. */
#include "kernels/training/factors.h"
#include "lib/base/plural.h"
#include "lib/train/gradients.h"

#include <stdlib.h>
#include <string.h>

#define TIMED_REDUCTIONS 3u
/* The reduction that is timed at a commit, at most. */
#define TIMED_REDUCTION ((size_t)4 << 20)

/* --- the choice ------------------------------------------------------------------------------ */

/* Time a product on all ranks. Stores the picoseconds of a million multiplications by the slowest.
 */
static twill_status time_products(struct twill_gradients *set, uint64_t *million)
{
    uint64_t mine = twill_factors_time(set->process.kernels);
    if (mine == 0)
        return TWILL_FAIL(&set->error, TWILL_ERR_MEMORY, "out of memory to time a product");
    struct twill_comm *comm = set->lane[0].comm;
    twill_status status = twill_allreduce(comm, &mine, million, 1, TWILL_U64, TWILL_MAX);
    return status == TWILL_OK ? TWILL_OK : twill_gradients_fail(&set->lane[0], comm, status);
}

static struct twill_dense_pricing pricing_of(struct twill_gradients *set,
                                             struct twill_chooser *chooser)
{
    return (struct twill_dense_pricing){chooser, twill_extend_world(set->lane[0].comm),
                                        set->process.timings};
}

/* Time reductions of `bytes`, the first of which connects. Stores the nanoseconds of the fastest by
 * the slowest rank. */
static twill_status time_reductions(struct twill_gradients *set, size_t bytes, uint64_t *ns)
{
    struct twill_comm *comm = set->lane[0].comm;
    void *memory = NULL;
    twill_status status = twill_alloc(set->context, &memory, bytes);
    if (status != TWILL_OK)
        return TWILL_FAIL(&set->error, status, "%zu bytes to time a reduction: %s", bytes,
                          twill_context_message(set->context));
    memset(memory, 0, bytes);
    uint64_t mine = UINT64_MAX;
    for (unsigned i = 0; i <= TIMED_REDUCTIONS && status == TWILL_OK; i++) {
        uint64_t from = twill_now();
        status = twill_allreduce(comm, memory, memory, bytes / sizeof(float), TWILL_F32, TWILL_SUM);
        if (i > 0)
            mine = twill_min(mine, twill_now() - from);
    }
    (void)twill_free(set->context, memory);
    if (status == TWILL_OK)
        status = twill_allreduce(comm, &mine, ns, 1, TWILL_U64, TWILL_MAX);
    return status == TWILL_OK ? TWILL_OK : twill_gradients_fail(&set->lane[0], comm, status);
}

static twill_status measure_rates(struct twill_gradients *set, struct twill_chooser *chooser,
                                  size_t bytes, struct twill_dense_rates *rates)
{
    const struct twill_dense_pricing pricing = pricing_of(set, chooser);
    uint64_t ns = 0, ps = 0;
    rates->reality = 1;
    TWILL_TRY(NULL, time_products(set, &rates->million));
    if (set->options.factors != TWILL_FACTORS_BY_PRICE || twill_comm_size(set->parent) == 1)
        return TWILL_OK;
    bytes = twill_min(bytes, TIMED_REDUCTION);
    TWILL_TRY(&set->error,
              twill_dense_price_collective(&ps, &pricing, TWILL_ALLREDUCE, bytes, &set->error));
    TWILL_TRY(NULL, time_reductions(set, bytes, &ns));
    rates->reality = (double)ns * 1000 / (double)twill_max(ps, 1);
    return TWILL_OK;
}

/* Price both ways for a layer. */
static twill_status price_layer(struct twill_gradients *set, struct twill_chooser *chooser,
                                struct twill_dense *dense, const struct twill_dense_rates *rates)
{
    const struct twill_dense_pricing pricing = pricing_of(set, chooser);
    TWILL_TRY(&set->error,
              twill_dense_price(dense, &pricing, rates, set->update != NULL, &set->error));
    if (set->options.factors != TWILL_FACTORS_BY_PRICE)
        dense->gathers = set->options.factors == TWILL_FACTORS_GATHERED;
    return TWILL_OK;
}

twill_status twill_dense_choose(struct twill_gradients *set)
{
    struct twill_chooser *chooser = NULL;
    struct twill_dense_rates rates;
    twill_status status = TWILL_OK;
    for (uint32_t t = 0; status == TWILL_OK && t < set->tensors; t++) {
        if (set->tensor[t].dense == NULL)
            continue;
        if (chooser == NULL) {
            TWILL_TRY(&set->error, twill_extend_chooser(&chooser, set->lane[0].comm, &set->error));
            status = measure_rates(set, chooser, set->tensor[t].bytes, &rates);
        }
        if (status == TWILL_OK)
            status = price_layer(set, chooser, set->tensor[t].dense, &rates);
    }
    if (chooser != NULL)
        twill_chooser_destroy(chooser);
    return status;
}

/* --- buckets --------------------------------------------------------------------------------- */

twill_status twill_dense_prepare(struct twill_gradients *set)
{
    for (uint32_t b = 0; b < set->buckets; b++) {
        struct twill_bucket *bucket = &set->bucket[b];
        const struct twill_dense *dense = set->tensor[set->backward[bucket->first]].dense;
        if (dense == NULL || !dense->gathers)
            continue;
        size_t bytes =
            twill_dense_floats(dense) * sizeof(float) * (size_t)twill_comm_size(set->parent);
        void *memory = NULL;
        twill_status status = twill_alloc(set->context, &memory, bytes);
        if (status != TWILL_OK)
            return TWILL_FAIL(&set->error, status, "%zu bytes for factors: %s", bytes,
                              twill_context_message(set->context));
        bucket->dense = dense;
        bucket->factors = memory;
    }
    return TWILL_OK;
}

twill_status twill_dense_request(struct twill_lane *lane, const struct twill_bucket *bucket,
                                 twill_request **request)
{
    size_t floats = twill_dense_floats(bucket->dense);
    const float *mine = bucket->factors + floats * (size_t)twill_comm_rank(lane->set->parent);
    return twill_allgather_init(lane->comm, mine, bucket->factors, floats, TWILL_F32, request);
}

void twill_dense_rebuild(struct twill_gradients *set, const struct twill_bucket *bucket,
                         size_t first, size_t count)
{
    const struct twill_dense *dense = bucket->dense;
    if (dense == NULL || count == 0)
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
                           set->process.threads);
}

/* --- calls ----------------------------------------------------------------------------------- */

twill_status twill_gradients_add_dense(twill_gradients *set, const twill_tensor *tensor,
                                       size_t rows, size_t columns, size_t samples, int *index)
{
    if (set == NULL)
        return TWILL_ERR_ARGUMENT;
    const char *name = tensor != NULL && tensor->name != NULL ? tensor->name : "?";
    if (rows == 0 || columns == 0 || samples == 0 || rows > SIZE_MAX / 16 / columns ||
        samples > SIZE_MAX / 16 / (rows + columns))
        return TWILL_GRADIENTS_REFUSE(set, "tensor '%s': %zu row%s, %zu column%s, %zu sample%s",
                                      name, rows, TWILL_PLURAL(rows), columns,
                                      TWILL_PLURAL(columns), samples, TWILL_PLURAL(samples));
    if (tensor != NULL && (tensor->count != rows * columns || tensor->type != TWILL_F32))
        return TWILL_GRADIENTS_REFUSE(
            set,
            "tensor '%s': a dense layer of %zu x %zu has as many f32, not "
            "%zu %s",
            name, rows, columns, tensor->count, twill_type_name(tensor->type));
    struct twill_dense *dense = calloc(1, sizeof(*dense));
    if (dense == NULL)
        return TWILL_ERR_MEMORY;
    *dense = (struct twill_dense){.rows = rows, .columns = columns, .samples = samples};
    twill_status status = twill_gradients_add(set, tensor, index);
    if (status != TWILL_OK) {
        free(dense);
        return status;
    }
    set->tensor[set->tensors - 1].dense = dense;
    set->tensor[set->tensors - 1].raw = true;
    return TWILL_OK;
}

/* Store this rank's factors where they are gathered from. */
static void store_factors(struct twill_gradients *set, struct twill_bucket *bucket,
                          const float *errors, const float *activations, size_t samples)
{
    const struct twill_dense *d = bucket->dense;
    size_t rest = d->samples - samples;
    float *to = bucket->factors + twill_dense_floats(d) * (size_t)twill_comm_rank(set->parent);
    if (samples > 0)
        memcpy(to, errors, samples * d->rows * sizeof(*to));
    memset(to + samples * d->rows, 0, rest * d->rows * sizeof(*to));
    to += d->samples * d->rows;
    if (samples > 0)
        memcpy(to, activations, samples * d->columns * sizeof(*to));
    memset(to + samples * d->columns, 0, rest * d->columns * sizeof(*to));
    atomic_fetch_add_explicit(&set->usage.bytes_copied,
                              samples * (d->rows + d->columns) * sizeof(*to), memory_order_relaxed);
}

twill_status twill_gradients_ready_factors(twill_gradients *set, int index, const float *errors,
                                           const float *activations, size_t samples)
{
    struct twill_bucket *bucket = NULL;
    TWILL_TRY(NULL,
              twill_gradients_check_ready(set, "twill_gradients_ready_factors", index, &bucket));
    struct twill_train_tensor *tensor = &set->tensor[index];
    const struct twill_dense *dense = tensor->dense;
    if (dense == NULL)
        return TWILL_GRADIENTS_REFUSE(
            set,
            "tensor '%s' is no dense layer: twill_gradients_ready() marks "
            "it ready",
            tensor->name);
    if (samples > dense->samples)
        return TWILL_GRADIENTS_REFUSE(set, "tensor '%s': %zu sample%s, registered for at most %zu",
                                      tensor->name, samples, TWILL_PLURAL(samples), dense->samples);
    if (samples > 0 && (errors == NULL || activations == NULL))
        return TWILL_GRADIENTS_REFUSE(set, "tensor '%s': its factors are NULL", tensor->name);
    const struct twill_factors factors = {.errors = errors,
                                          .activations = activations,
                                          .parts = samples > 0,
                                          .samples = samples,
                                          .rows = dense->rows,
                                          .columns = dense->columns,
                                          .scale = 1};
    if (dense->gathers)
        store_factors(set, bucket, errors, activations, samples);
    else
        twill_factors_multiply(set->process.kernels, &factors, twill_gradients_memory(set, index),
                               0, dense->rows, set->process.threads);
    return twill_gradients_mark(set, index);
}
