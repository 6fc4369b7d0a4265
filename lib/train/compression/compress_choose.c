/* SPDX-License-Identifier: Apache-2.0 */
/* options.compression_automatic: which buckets are compressed, if any.
 *
 * The price of a bucket's reduction as it is, and of its codes with the time to encode and decode
 * them, give a first answer for each bucket. A price knows neither how much of a reduction the
 * backward pass hides nor what else uses the machine, so three choices are then tried, for some
 * steps each, as autotuning tries bucket sizes: all buckets, those with a good price, and none. All
 * ranks agree on the choice whose slowest rank is fastest; compression has to be faster by more
 * than the noise, as it costs accuracy. */
#include "algorithms/select/narrowing.h"
#include "lib/train/gradients.h"

#define GAIN_LEAST 0.97 /* of the time without compression: at most this */

/* Estimates: encoding and decoding a list take as long as this many conversions, and adding one of
 * its entries is a miss of the cache. A trial of some steps decides in the end. */
#define SPARSE_CONVERSIONS 2u
#define ENTRY_PICOSECONDS  2000u

static const char *const choice_names[TWILL_WIRE_CHOICES] = {"buckets where the price says it pays",
                                                             "all buckets", "no bucket"};

/* --- prices ----------------------------------------------------------------------------------- */

static uint64_t coding_time(struct twill_gradients *set, const struct twill_bucket *bucket)
{
    const struct twill_compressor *c = &set->compressor;
    uint64_t once =
        twill_rate_time(set->process.timings->model.convert, bucket->count * sizeof(float));
    if (c->kind != TWILL_CODING_SPARSE)
        return once;
    uint64_t entries = bucket->wire.units * (uint64_t)twill_comm_size(set->parent);
    return SPARSE_CONVERSIONS * once + entries * ENTRY_PICOSECONDS;
}

twill_status twill_wire_pays(struct twill_gradients *set, const struct twill_bucket *bucket,
                             bool *pays)
{
    const struct twill_compressor *c = &set->compressor;
    const struct twill_world *world = twill_extend_world(set->lane[0].comm);
    const struct twill_tuning *tuning = set->process.timings;
    uint64_t plain = 0, coded = 0;
    struct twill_select_request request = {.collective = TWILL_ALLREDUCE,
                                           .bytes = bucket->count * sizeof(float),
                                           .mapped = world->nodes == 1,
                                           .type = TWILL_F32};
    TWILL_TRY(&set->error,
              twill_cost_of_choice(&plain, c->chooser, world, tuning, &request, &set->error));
    request.bytes = twill_wire_bytes(set, bucket);
    request.type = TWILL_U8;
    if (c->kind == TWILL_CODING_SPARSE) {
        request.collective = TWILL_ALLGATHER;
        request.bytes *= world->size;
    } else if (c->kind == TWILL_CODING_NARROW) {
        request.type = c->format.code;
        request.narrow = true;
    }
    TWILL_TRY(&set->error,
              twill_cost_of_choice(&coded, c->chooser, world, tuning, &request, &set->error));
    *pays = coded + coding_time(set, bucket) < plain;
    return TWILL_OK;
}

/* --- the trial -------------------------------------------------------------------------------- */

twill_status twill_wire_trial_begin(struct twill_gradients *set)
{
    struct twill_compressor *c = &set->compressor;
    c->choice = TWILL_WIRE_PRICED;
    TWILL_TRY(&set->error, twill_search_begin(&c->trial, TWILL_WIRE_CHOICES, &set->error));
    return twill_extend_chooser(&c->chooser, set->lane[0].comm, &set->error);
}

static twill_status use_choice(struct twill_gradients *set, enum twill_wire_choice choice)
{
    if (choice == set->compressor.choice)
        return TWILL_OK;
    set->compressor.choice = choice;
    return twill_gradients_prepare(set);
}

/* Agree on the fastest choice. */
static twill_status agree_on_choice(struct twill_gradients *set)
{
    struct twill_step_search *trial = &set->compressor.trial;
    const double *seconds = trial->seconds;
    TWILL_TRY(NULL, twill_gradients_agree(set, trial));
    unsigned best = twill_search_fastest(trial, TWILL_WIRE_NONE);
    if (seconds[best] > GAIN_LEAST * seconds[TWILL_WIRE_NONE])
        best = TWILL_WIRE_NONE;
    twill_say(set->process.log,
              twill_log_once(TWILL_LOG_INFO, twill_comm_rank(set->lane[0].comm) == 0),
              "gradient set: compression by %s of %s (%.6f s a step; of all buckets %.6f s, where "
              "the price says it pays %.6f s, of none %.6f s)",
              twill_compression_name(set->options.compression), choice_names[best], seconds[best],
              seconds[TWILL_WIRE_ALL], seconds[TWILL_WIRE_PRICED], seconds[TWILL_WIRE_NONE]);
    return use_choice(set, (enum twill_wire_choice)best);
}

twill_status twill_wire_trial_end_step(struct twill_gradients *set)
{
    struct twill_step_search *trial = &set->compressor.trial;
    if (twill_search_is_over(trial) || !twill_search_is_over(&set->autotuning.search))
        return TWILL_OK;
    if (!twill_search_end_step(trial, twill_gradients_may_divide(set)))
        return TWILL_OK;
    TWILL_TRY(NULL, !twill_search_is_over(trial)
                        ? use_choice(set, (enum twill_wire_choice)trial->at)
                        : agree_on_choice(set));
    twill_search_restart(trial);
    return TWILL_OK;
}
