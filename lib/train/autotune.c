/* SPDX-License-Identifier: Apache-2.0 */
/* Search for the fastest bucket sizes in the first steps, as Horovod's autotuning does, but without
 * a model: there are a few sizes only. */
#include "lib/train/gradients.h"

#include <stdlib.h>

static const size_t bucket_sizes[] = {(size_t)256 << 10, (size_t)1 << 20,  (size_t)4 << 20,
                                      (size_t)16 << 20,  (size_t)64 << 20, 0};
static const size_t segment_sizes[] = {(size_t)256 << 10, (size_t)1 << 20, (size_t)4 << 20};
_Static_assert(TWILL_FUSED_TO_MOST == (size_t)64 << 20, "the largest of bucket_sizes");

static void add_candidate(struct twill_autotuning *tuning, size_t bucket, size_t first,
                          size_t segment)
{
    tuning->sizes[tuning->search.candidates++] =
        (struct twill_bucket_sizes){bucket, first, segment};
}

twill_status twill_autotuning_begin(struct twill_gradients *set)
{
    struct twill_autotuning *tuning = &set->autotuning;
    const twill_gradients_options *options = &set->options;
    bool cuts = options->order == TWILL_BUCKETS_BY_PRIORITY;
    size_t segments = cuts ? TWILL_ARRAY_LENGTH(segment_sizes) : 1;
    size_t most = 1 + 2 * TWILL_ARRAY_LENGTH(bucket_sizes) * segments;
    if (!options->autotune)
        return TWILL_OK;
    tuning->sizes = calloc(most, sizeof(*tuning->sizes));
    if (tuning->sizes == NULL)
        return TWILL_FAIL(&set->error, TWILL_ERR_MEMORY, "out of memory for autotuning");
    add_candidate(tuning, options->bucket_bytes, options->first_bucket_bytes,
                  options->segment_bytes);
    for (size_t b = 0; b < TWILL_ARRAY_LENGTH(bucket_sizes); b++)
        for (size_t s = 0; s < segments; s++) {
            size_t bucket = bucket_sizes[b],
                   segment = cuts ? segment_sizes[s] : options->segment_bytes;
            add_candidate(tuning, bucket, bucket, segment);
            if (bucket / 8 > 0)
                add_candidate(tuning, bucket, bucket / 8, segment);
        }
    return twill_search_begin(&tuning->search, tuning->search.candidates, &set->error);
}

/* Divide the tensors anew. */
static twill_status use_sizes(struct twill_gradients *set, const struct twill_bucket_sizes *sizes)
{
    set->options.bucket_bytes = sizes->bucket;
    set->options.first_bucket_bytes = sizes->first;
    set->options.segment_bytes = sizes->segment;
    return twill_gradients_prepare(set);
}

twill_status twill_gradients_agree(struct twill_gradients *set, struct twill_step_search *search)
{
    struct twill_lane *lane = &set->lane[0];
    TWILL_TRY(NULL, twill_gradients_carry(set)); /* late reductions use the same communicator */
    twill_status status = twill_search_agree(search, lane->comm);
    return status == TWILL_OK ? TWILL_OK : twill_gradients_fail(lane, lane->comm, status);
}

/* Agree on the fastest candidate. */
static twill_status choose(struct twill_gradients *set)
{
    struct twill_autotuning *tuning = &set->autotuning;
    unsigned n = tuning->search.candidates;
    TWILL_TRY(NULL, twill_gradients_agree(set, &tuning->search));
    unsigned best = twill_search_fastest(&tuning->search, n);
    const double *seconds = tuning->search.seconds;
    const struct twill_bucket_sizes *sizes = &tuning->sizes[best];
    twill_say(set->process.log,
              twill_log_once(TWILL_LOG_INFO, twill_comm_rank(set->lane[0].comm) == 0),
              "gradient set: TWILL_GRADIENTS=bucket=%zu,first=%zu,segment=%zu is the fastest of %u "
              "(%.6f s a step; at first %.6f s)",
              sizes->bucket, sizes->first, sizes->segment, n, seconds[best], seconds[0]);
    return use_sizes(set, sizes);
}

twill_status twill_autotuning_end_step(struct twill_gradients *set)
{
    struct twill_autotuning *tuning = &set->autotuning;
    struct twill_step_search *search = &tuning->search;
    if (twill_search_is_over(search) ||
        !twill_search_end_step(search, twill_gradients_may_divide(set)))
        return TWILL_OK;
    TWILL_TRY(NULL, !twill_search_is_over(search) ? use_sizes(set, &tuning->sizes[search->at])
                                                  : choose(set));
    twill_search_restart(search);
    return TWILL_OK;
}

void twill_autotuning_free(struct twill_gradients *set)
{
    free(set->autotuning.sizes);
    twill_search_free(&set->autotuning.search);
}
