/* SPDX-License-Identifier: Apache-2.0 */
/* A set in words. */
#include "lib/base/plural.h"
#include "lib/train/gradients.h"

#include <stdio.h>
#include <string.h>

static void describe_options(const struct twill_gradients *set, char *text, size_t bytes)
{
    static const char *const choices[] = {[TWILL_WIRE_PRICED] = "; compressed where it pays",
                                          [TWILL_WIRE_ALL] = "",
                                          [TWILL_WIRE_NONE] = "; not compressed: does not pay"};
    const twill_gradients_options *o = &set->options;
    const struct twill_searches *searches = set->searches;
    bool tunes = searches != NULL && searches->sizes.candidates > 0;
    size_t used = (size_t)snprintf(text, bytes, "TWILL_GRADIENTS=");
    used += twill_set_entries_describe(set, text + used, bytes - used);
    used += (size_t)twill_print(text + used, bytes - used, " (op %s, scale %g%s)",
                                twill_op_name(o->op), o->scale,
                                !tunes                                   ? ""
                                : twill_search_is_over(&searches->sizes) ? "; autotuned"
                                                                         : "; autotuning");
    if (set->compressor != NULL && searches != NULL)
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%s", choices[set->compressor->choice],
                             twill_search_is_over(&searches->codes) ? "" : "; in a trial");
    if (set->generations > 1)
        used += (size_t)snprintf(text + used, bytes - used, "; %s",
                                 set->late.on ? "one step late" : "not late at present");
    if (set->update != NULL)
        twill_print(text + used, bytes - used, "; %s on shards, rate %g, %zu bytes of state here",
                    twill_optimizer_name(set->update->optimizer.rule), set->update->optimizer.rate,
                    set->update->state_bytes);
}

static void describe_bucket(const struct twill_gradients *set, uint32_t b, char *text, size_t bytes)
{
    char compressed[128] = "";
    if (set->bucket[b].wire.used)
        snprintf(compressed, sizeof(compressed), " compressed to %zu",
                 twill_wire_bytes(set, &set->bucket[b]));
    const struct twill_bucket *bucket = &set->bucket[b];
    const struct twill_dense *dense = twill_bucket_tensor(set, bucket, 0)->dense;
    if (dense != NULL)
        twill_print(compressed, sizeof(compressed),
                    " of %zu x %zu, %s (%.0f us by factors, %.0f by a reduction)", dense->rows,
                    dense->columns, dense->gathers ? "factors gathered" : "reduced",
                    (double)dense->gather_ps * 1e-6, (double)dense->reduce_ps * 1e-6);
    const uint32_t *member = &set->backward[bucket->first];
    char reducer[40] = "";
    if (set->reducers > 1)
        snprintf(reducer, sizeof(reducer), ", reducer %u", bucket->reducer);
    snprintf(text, bytes, "bucket %u%s: %u tensor%s, %zu bytes of %s%s%s, '%.60s' to '%.60s'", b,
             reducer, bucket->tensors, TWILL_PLURAL(bucket->tensors), twill_bucket_bytes(bucket),
             twill_type_name(bucket->type), compressed, bucket->copies ? ", copied" : "",
             set->tensor[member[bucket->tensors - 1]].name, set->tensor[member[0]].name);
}

const char *twill_gradients_describe(twill_gradients *set, size_t index)
{
    size_t threads = set != NULL && set->options.threads > 0 ? set->reducers : 0;
    if (set == NULL || index > twill_buckets_of_step(set) + threads)
        return NULL;
    if (index == 0)
        describe_options(set, set->line, sizeof(set->line));
    else if (index > twill_buckets_of_step(set))
        twill_reducer_describe(&set->reducer[index - 1 - twill_buckets_of_step(set)], set->line,
                               sizeof(set->line));
    else
        describe_bucket(set, (uint32_t)index - 1, set->line, sizeof(set->line));
    return set->line;
}
