/* SPDX-License-Identifier: Apache-2.0 */
/* Searches in the first steps of a set.
 *
 * options.autotune searches for the fastest of a few bucket sizes, without a model as in Horovod.
 *
 * options.compression_automatic searches for the buckets to compress, if any. A first answer for
 * each bucket compares the price of its reduction with that of exchanging, encoding and decoding
 * its codes. A price knows neither how much of a reduction the backward pass hides nor what else
 * uses the machine. So three choices are tried for some steps each, namely all buckets, those with
 * a good price, and none. The one whose slowest rank is fastest wins, by more than noise. */
#include "lib/train/gradients.h"

#include <stdlib.h>

#define GAIN_LEAST 0.97 /* compression must take less than this part of the time without */

static const size_t bucket_sizes[] = {(size_t)256 << 10, (size_t)1 << 20,  (size_t)4 << 20,
                                      (size_t)16 << 20,  (size_t)64 << 20, 0};
static const size_t segment_sizes[] = {(size_t)256 << 10, (size_t)1 << 20, (size_t)4 << 20};
_Static_assert(TWILL_FUSED_TO_MOST == (size_t)64 << 20, "the largest of bucket_sizes");

static const char *const choice_names[TWILL_WIRE_CHOICES] = {"buckets where the price says it pays",
                                                             "all buckets", "no bucket"};

static void add_candidate(struct twill_searches *searches, size_t bucket, size_t first,
                          size_t segment)
{
    searches->candidates[searches->sizes.candidates++] =
        (struct twill_bucket_sizes){bucket, first, segment};
}

/* List the candidates, first the options' sizes, and begin the search. Returns the status. */
static twill_status begin_sizes(struct twill_gradients *set)
{
    struct twill_searches *searches = set->searches;
    const twill_gradients_options *options = &set->options;
    bool cuts = options->order == TWILL_BUCKETS_BY_PRIORITY;
    size_t segments = cuts ? TWILL_ARRAY_LENGTH(segment_sizes) : 1;
    size_t most = 1 + 2 * TWILL_ARRAY_LENGTH(bucket_sizes) * segments;
    TWILL_NEW(&set->error, searches->candidates, most, "candidates");
    add_candidate(searches, options->bucket_bytes, options->first_bucket_bytes,
                  options->segment_bytes);
    for (size_t b = 0; b < TWILL_ARRAY_LENGTH(bucket_sizes); b++)
        for (size_t s = 0; s < segments; s++) {
            size_t bucket = bucket_sizes[b],
                   segment = cuts ? segment_sizes[s] : options->segment_bytes;
            add_candidate(searches, bucket, bucket, segment);
            if (bucket / 8 > 0)
                add_candidate(searches, bucket, bucket / 8, segment);
        }
    return twill_search_begin(&searches->sizes, searches->sizes.candidates, &set->error);
}

/* Set the options' sizes to a candidate's and divide the tensors anew. Returns the status. */
static twill_status use_sizes(struct twill_gradients *set, unsigned candidate)
{
    const struct twill_bucket_sizes *sizes = &set->searches->candidates[candidate];
    set->options.bucket_bytes = sizes->bucket;
    set->options.first_bucket_bytes = sizes->first;
    set->options.segment_bytes = sizes->segment;
    return twill_gradients_prepare(set);
}

/* Replace all candidates' seconds by those of the slowest rank, after completing a late result
 * (twill_gradients_carry()). Collective. Returns the status. */
static twill_status agree(struct twill_gradients *set, struct twill_step_search *search)
{
    TWILL_TRY(NULL, twill_gradients_carry(set)); /* late reductions use the same communicator */
    return twill_set_check(set, set->comm, twill_search_agree(search, set->comm));
}

/* Agree with all ranks on the fastest sizes of buckets and segments, log them, and divide the
 * tensors by them. Collective. Returns TWILL_OK or the error. */
static twill_status choose_sizes(struct twill_gradients *set)
{
    struct twill_step_search *search = &set->searches->sizes;
    TWILL_TRY(NULL, agree(set, search));
    unsigned best = twill_search_fastest(search, search->candidates);
    const struct twill_bucket_sizes *sizes = &set->searches->candidates[best];
    twill_say(set->process.log, twill_log_once(TWILL_LOG_INFO, twill_comm_rank(set->comm) == 0),
              "gradient set: TWILL_GRADIENTS=bucket=%zu,first=%zu,segment=%zu is the fastest of %u "
              "(%.6f s a step; at first %.6f s)",
              sizes->bucket, sizes->first, sizes->segment, search->candidates,
              search->seconds[best], search->seconds[0]);
    return use_sizes(set, best);
}

/* Use a choice of compression, dividing the tensors anew if it is another one. */
static twill_status use_choice(struct twill_gradients *set, enum twill_wire_choice choice)
{
    if (choice == set->compressor->choice)
        return TWILL_OK;
    set->compressor->choice = choice;
    return twill_gradients_prepare(set);
}

/* Agree with all ranks whether all buckets, those where the price says it pays, or none are
 * compressed from now on, by the slowest rank. It is none, unless the faster of the others takes
 * less than GAIN_LEAST of its time. Divide the tensors anew if the choice changes. Collective.
 * Returns the status. */
static twill_status agree_on_choice(struct twill_gradients *set)
{
    struct twill_step_search *trial = &set->searches->codes;
    const double *seconds = trial->seconds;
    TWILL_TRY(NULL, agree(set, trial));
    unsigned best = twill_search_fastest(trial, TWILL_WIRE_NONE);
    if (seconds[best] > GAIN_LEAST * seconds[TWILL_WIRE_NONE])
        best = TWILL_WIRE_NONE;
    twill_say(set->process.log, twill_log_once(TWILL_LOG_INFO, twill_comm_rank(set->comm) == 0),
              "gradient set: compression by %s of %s (%.6f s a step; of all buckets %.6f s, where "
              "the price says it pays %.6f s, of none %.6f s)",
              twill_compression_name(set->options.compression), choice_names[best], seconds[best],
              seconds[TWILL_WIRE_ALL], seconds[TWILL_WIRE_PRICED], seconds[TWILL_WIRE_NONE]);
    return use_choice(set, (enum twill_wire_choice)best);
}

twill_status twill_searches_begin(struct twill_gradients *set)
{
    TWILL_NEW(&set->error, set->searches, 1, "list of searches");
    if (set->options.autotune)
        TWILL_TRY(&set->error, begin_sizes(set));
    return set->compressor != NULL && set->options.compression_automatic
               ? twill_search_begin(&set->searches->codes, TWILL_WIRE_CHOICES, &set->error)
               : TWILL_OK;
}

twill_status twill_searches_end_step(struct twill_gradients *set)
{
    struct twill_step_search *sizes = &set->searches->sizes, *codes = &set->searches->codes;
    bool divides = !twill_search_is_over(sizes);
    struct twill_step_search *search = divides ? sizes : codes;
    if (twill_search_is_over(search) || !twill_search_end_step(search, twill_set_may_divide(set)))
        return TWILL_OK;
    bool over = twill_search_is_over(search);
    if (divides)
        TWILL_TRY(NULL, over ? choose_sizes(set) : use_sizes(set, search->at));
    else
        TWILL_TRY(NULL, over ? agree_on_choice(set)
                             : use_choice(set, (enum twill_wire_choice)search->at));
    twill_search_restart(search);
    return TWILL_OK;
}

void twill_searches_free(struct twill_gradients *set)
{
    if (set->searches == NULL)
        return;
    free(set->searches->candidates);
    twill_search_free(&set->searches->sizes);
    twill_search_free(&set->searches->codes);
    free(set->searches);
}
