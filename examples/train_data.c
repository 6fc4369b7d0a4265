/* SPDX-License-Identifier: Apache-2.0 */
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int example_reduce(struct training *t, void *values, size_t count, twill_type type, twill_op op)
{
    twill_status status = twill_allreduce(t->comm, values, values, count, type, op);
    if (status != TWILL_OK)
        snprintf(t->message, sizeof(t->message), "%s", twill_comm_message(t->comm));
    return status == TWILL_OK ? 0 : -1;
}

int example_agree(struct training *t, int failed)
{
    int32_t any = failed != 0;
    if (example_reduce(t, &any, 1, TWILL_I32, TWILL_MAX) != 0)
        return -1;
    return failed || any ? -1 : 0;
}

/* Return how many of n samples are this rank's shard, and set *from to the first of them. */
static size_t shard(const struct training *t, size_t n, size_t *from)
{
    size_t size = (size_t)t->size, rank = (size_t)t->rank;
    *from = n * rank / size;
    return n * (rank + 1) / size - *from;
}

size_t example_batch_samples(const struct training *t, size_t batch)
{
    size_t left = t->samples - batch * t->options.batch;
    return left < t->options.batch ? left : t->options.batch;
}

/* Load this rank's shard of every mini-batch, and of the held-out samples. */
static int load_shards(struct training *t, const size_t *order)
{
    size_t *mine = malloc(t->samples * sizeof(*mine)), from, n = 0;
    t->first = malloc((t->batches + 1) * sizeof(*t->first));
    if (mine == NULL || t->first == NULL) {
        snprintf(t->message, sizeof(t->message), "no memory");
        free(mine);
        return -1;
    }
    for (size_t batch = 0; batch < t->batches; batch++) {
        size_t samples = shard(t, example_batch_samples(t, batch), &from);
        t->first[batch] = n;
        for (size_t i = 0; i < samples; i++)
            mine[n++] = order[batch * t->options.batch + from + i];
    }
    t->first[t->batches] = n;
    int failed = example_load(&t->file, mine, n, &t->train, t->message, sizeof(t->message));
    free(mine);
    n = shard(t, t->file.samples - t->samples, &from);
    return failed || example_load(&t->file, order + t->samples + from, n, &t->held_out, t->message,
                                  sizeof(t->message));
}

int example_load_shards(struct training *t)
{
    const struct train_options *options = &t->options;
    size_t *order = NULL;
    int failed =
        example_file_open(&t->file, options->data, options->format, t->message, sizeof(t->message));
    if (!failed) {
        order = example_split(&t->file, options->seed, &t->samples);
        t->batches = (t->samples + options->batch - 1) / options->batch;
        failed = order == NULL || load_shards(t, order) != 0;
    }
    free(order);
    return example_agree(t, failed);
}

int example_preprocess(struct training *t)
{
    size_t features = t->file.features;
    const struct example_set *set = &t->train;
    double *mean = calloc(features, sizeof(*mean)), *scale = calloc(features, sizeof(*scale));
    int failed = mean == NULL || scale == NULL;
    if (failed)
        snprintf(t->message, sizeof(t->message), "no memory");
    failed = example_agree(t, failed);
    for (size_t i = 0; !failed && i < set->count; i++)
        for (size_t j = 0; j < features; j++)
            mean[j] += (double)set->values[i * features + j];
    failed = failed || example_reduce(t, mean, features, TWILL_F64, TWILL_SUM) != 0;
    for (size_t j = 0; !failed && j < features; j++)
        mean[j] /= (double)t->samples;
    for (size_t i = 0; !failed && i < set->count; i++)
        for (size_t j = 0; j < features; j++) {
            double distance = (double)set->values[i * features + j] - mean[j];
            scale[j] += distance * distance;
        }
    failed = failed || example_reduce(t, scale, features, TWILL_F64, TWILL_SUM) != 0;
    for (size_t j = 0; !failed && j < features; j++)
        scale[j] = scale[j] > 0 ? 1 / sqrt(scale[j] / (double)t->samples) : 1;
    for (size_t j = 0; !failed && j < features; j++) {
        example_standardise(&t->train, j, mean[j], scale[j]);
        example_standardise(&t->held_out, j, mean[j], scale[j]);
    }
    free(mean);
    free(scale);
    return failed;
}
