/* SPDX-License-Identifier: Apache-2.0 */
/* A set in words. */
#include "lib/train/gradients.h"

#include <stdio.h>

static void describe_options(const struct twill_gradients *set, char *text, size_t bytes)
{
    const twill_gradients_options *o = &set->options;
    const struct twill_autotuning *tuning = &set->autotuning;
    snprintf(text, bytes,
             "TWILL_GRADIENTS=bucket=%zu,first=%zu,segment=%zu,order=%s (op %s, scale %g%s)",
             o->bucket_bytes, o->first_bucket_bytes, o->segment_bytes,
             o->order == TWILL_BUCKETS_BY_PRIORITY ? "priority" : "backward", twill_op_name(o->op),
             o->scale,
             tuning->candidates == 0            ? ""
             : tuning->at == tuning->candidates ? "; autotuned"
                                                : "; autotuning");
}

static void describe_bucket(const struct twill_gradients *set, uint32_t b, char *text, size_t bytes)
{
    const struct twill_bucket *bucket = &set->bucket[b];
    const uint32_t *member = &set->backward[bucket->first];
    snprintf(text, bytes, "bucket %u: %u tensor%s, %zu bytes of %s%s, '%.60s' to '%.60s'", b,
             bucket->tensors, bucket->tensors == 1 ? "" : "s",
             bucket->count * twill_type_size(bucket->type), twill_type_name(bucket->type),
             bucket->copies ? ", copied" : "", set->tensor[member[bucket->tensors - 1]].name,
             set->tensor[member[0]].name);
}

const char *twill_gradients_describe(twill_gradients *set, size_t index)
{
    if (set == NULL || index > set->buckets)
        return NULL;
    if (index == 0)
        describe_options(set, set->line, sizeof(set->line));
    else
        describe_bucket(set, (uint32_t)index - 1, set->line, sizeof(set->line));
    return set->line;
}
