/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a set: defaults and checks. */
#include "lib/train/gradients.h"

#define SEGMENT_LEAST     4096u
#define BUCKET_BYTES_MOST ((size_t)1 << 40)

void twill_gradients_defaults(twill_gradients_options *options)
{
    if (options != NULL)
        *options = (twill_gradients_options){.bytes = sizeof(*options),
                                             .op = TWILL_AVG,
                                             .scale = 1,
                                             .bucket_bytes = (size_t)8 << 20,
                                             .first_bucket_bytes = (size_t)1 << 20,
                                             .segment_bytes = (size_t)1 << 20,
                                             .error_feedback = 1,
                                             .compression_ratio = 0.01};
}

/* --- checks ---------------------------------------------------------------------------------- */

static twill_status check_compression(const twill_gradients_options *o, struct twill_error *error)
{
    TWILL_TRY(error, twill_compression_check(o->compression, o->compression_ratio,
                                             o->compression_threshold, error));
    if (o->compression == TWILL_COMPRESS_THRESHOLD && o->compression_threshold == 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.compression_threshold is 0: compression by threshold needs one");
    return TWILL_OK;
}

static twill_status check_options(const twill_gradients_options *o, struct twill_error *error)
{
    if (o->op != TWILL_AVG && o->op != TWILL_SUM)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.op %d is neither sum nor avg",
                          (int)o->op);
    if (!(o->scale > -1e30 && o->scale < 1e30) || o->scale == 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.scale %g is not a factor", o->scale);
    if ((unsigned)o->order > TWILL_BUCKETS_BY_PRIORITY)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.order %d is not a twill_bucket_order",
                          (int)o->order);
    if (o->bucket_bytes > BUCKET_BYTES_MOST || o->first_bucket_bytes > BUCKET_BYTES_MOST)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options: buckets of %zu and %zu bytes",
                          o->bucket_bytes, o->first_bucket_bytes);
    if (o->segment_bytes < SEGMENT_LEAST)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.segment_bytes %zu is less than %u",
                          o->segment_bytes, SEGMENT_LEAST);
    if (o->threads < 0 || o->threads > (int)TWILL_REDUCERS_MOST)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.threads %d is outside 0 .. %u",
                          o->threads, TWILL_REDUCERS_MOST);
    if ((unsigned)o->factors > TWILL_FACTORS_REDUCED)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.factors %d is not a twill_factors_choice", (int)o->factors);
    if (o->check_every < 0 || o->report_every < 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.%s %d is negative",
                          o->check_every < 0 ? "check_every" : "report_every",
                          o->check_every < 0 ? o->check_every : o->report_every);
    return check_compression(o, error);
}

twill_status twill_gradients_set_options(struct twill_gradients *set,
                                         const twill_gradients_options *options,
                                         struct twill_error *error)
{
    twill_gradients_defaults(&set->options);
    if (options != NULL) {
        TWILL_TRY(error, twill_options_check_bytes(options->bytes, sizeof(*options),
                                                   "twill_gradients_defaults", error));
        set->options = *options;
    }
    if (set->process.gradients != NULL)
        TWILL_TRY(error, twill_entries_apply(&set->options, set->process.gradients, error));
    return check_options(&set->options, error);
}
