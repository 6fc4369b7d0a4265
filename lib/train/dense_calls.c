/* SPDX-License-Identifier: Apache-2.0 */
/* The calls for dense layers: twill_gradients_add_dense(), twill_gradients_ready_factors(). */
#include "kernels/training/factors.h"
#include "lib/base/plural.h"
#include "lib/train/gradients.h"

#include <stdlib.h>
#include <string.h>

twill_status twill_gradients_add_dense(twill_gradients *set, const twill_tensor *tensor,
                                       size_t rows, size_t columns, size_t samples, int *index)
{
    if (set == NULL)
        return TWILL_ERR_ARGUMENT;
    const char *name = tensor != NULL && tensor->name != NULL ? tensor->name : "?";
    if (rows == 0 || columns == 0 || samples == 0 || rows > SIZE_MAX / 16 / columns ||
        samples > SIZE_MAX / 16 / (rows + columns))
        return TWILL_SET_REFUSE(set, "tensor '%s': %zu row%s, %zu column%s, %zu sample%s", name,
                                rows, TWILL_PLURAL(rows), columns, TWILL_PLURAL(columns), samples,
                                TWILL_PLURAL(samples));
    if (tensor != NULL && (tensor->count != rows * columns || tensor->type != TWILL_F32))
        return TWILL_SET_REFUSE(set,
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
        return TWILL_SET_REFUSE(set,
                                "tensor '%s' is no dense layer: twill_gradients_ready() marks "
                                "it ready",
                                tensor->name);
    if (samples > dense->samples)
        return TWILL_SET_REFUSE(set, "tensor '%s': %zu sample%s, registered for at most %zu",
                                tensor->name, samples, TWILL_PLURAL(samples), dense->samples);
    if (samples > 0 && (errors == NULL || activations == NULL))
        return TWILL_SET_REFUSE(set, "tensor '%s': its factors are NULL", tensor->name);
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
