/* SPDX-License-Identifier: Apache-2.0 */
/* The training step of a model, with its computing played (--list with --overlap). A step is a
 * backward pass, which yields the gradients of the last tensor first, their reduction by a gradient
 * set (twill_train.h), and the forward pass that follows. It is measured in the five ways of enum
 * twill_bench_way, alternately. */
#include "bench/tools/bench/steps/played_step.h"
#include "bench/tools/bench/bench_run.h"

#include <stdlib.h>
#include <string.h>

const char *twill_bench_played_mistake(const struct twill_bench_options *options)
{
    bool plays = options->list != NULL && options->measures.overlap;
    bool summed = options->op == TWILL_SUM || options->op == TWILL_AVG;
    if (plays && (options->measures.times || options->measures.energy ||
                  options->measures.narrow >= 0 || options->split != NULL))
        return "--list with --overlap cannot be combined with --times, --energy, --narrow or "
               "--split";
    if (options->settings.gradients != NULL && !plays)
        return "--gradients needs --list and --overlap";
    if (options->played.given && !plays)
        return "--batch, --device, --device-gflops, --bucket and --priority need --list and "
               "--overlap";
    if (plays && (options->collective != TWILL_BENCH_ALLREDUCE || !summed || options->report.each ||
                  options->type == TWILL_BENCH_ALL))
        return "--list with --overlap is for allreduce of one type, sum or avg, without -I";
    return NULL;
}

/* Print the message of the set if `status` is an error. Returns `status`. */
static twill_status fail_set(struct twill_bench_step *play, twill_status status)
{
    const char *message = twill_gradients_message(play->set);
    if (status != TWILL_OK && message[0] != '\0')
        fprintf(stderr, "twill-bench: %s\n", message);
    return status;
}

/* Register the tensors of the list, in memory of the set or, with --memory malloc, of the run. */
static twill_status add_tensors(struct twill_bench_step *play, twill_type type)
{
    const struct twill_bench_run *run = play->run;
    for (size_t key = 0; key < run->list.keys; key++) {
        char name[24];
        char *own = run->memory.buffers[1] + run->list.offsets[key] * twill_type_size(type);
        snprintf(name, sizeof(name), "%zu", key);
        twill_tensor tensor = {.name = name,
                               .count = (size_t)run->list.elements[key],
                               .type = type,
                               .gradient = run->options.calls.placed ? NULL : own,
                               .priority = (int)key};
        TWILL_BENCH_TRY(twill_gradients_add(play->set, &tensor, NULL));
    }
    return TWILL_OK;
}

twill_status twill_bench_create_set(struct twill_bench_step *play, twill_type type, twill_op op,
                                    size_t bucket)
{
    twill_gradients_options options;
    twill_gradients_defaults(&options);
    options.op = op;
    if (play->run->options.played.priority)
        options.order = TWILL_BUCKETS_BY_PRIORITY;
    if (bucket != SIZE_MAX)
        options.bucket_bytes = bucket;
    if (options.first_bucket_bytes > options.bucket_bytes)
        options.first_bucket_bytes = options.bucket_bytes;
    TWILL_BENCH_TRY(twill_gradients_create(&play->set, play->run->comm, &options));
    twill_status status = add_tensors(play, type);
    if (status == TWILL_OK)
        status = twill_gradients_commit(play->set);
    return fail_set(play, status);
}

/* Advance the reductions of `of`, a struct twill_bench_step. Returns non-zero on failure. */
static int test_set(void *of)
{
    struct twill_bench_step *play = of;
    int done;
    play->status = twill_gradients_test(play->set, 0, &done);
    return play->status != TWILL_OK;
}

/* Note in play->hidden how long the set had waited (seconds_exposed) when the device finished the
 * backward pass. By how much this rank notices that too late is subtracted. Fails if the set has
 * failed. */
static twill_status note_hidden(struct twill_bench_step *play)
{
    twill_gradients_counters counters;
    TWILL_BENCH_TRY(twill_gradients_count(play->set, &counters));
    double late = twill_compare_now() - play->compute.due;
    play->hidden = counters.seconds_exposed - (late > 0 ? late : 0);
    return TWILL_OK;
}

/* Make the backward pass, if `way` has one, and the reductions, if it has them, in that pass or
 * after it. Waits for the reductions, unless `way` is by tensor. Returns the error of a test or
 * wait. */
static twill_status run_backward(struct twill_bench_step *play, enum twill_bench_way way)
{
    bool overlaps = way >= TWILL_BENCH_OVERLAPPED;
    played_launch(&play->compute);
    for (size_t key = play->run->list.keys; key-- > 0;) {
        if (way != TWILL_BENCH_REDUCE_ALONE &&
            played_for(&play->compute, 2 * play->forward[key]) != 0)
            return play->status;
        if (overlaps && key == 0 && play->compute.device)
            TWILL_BENCH_TRY(note_hidden(play));
        if (overlaps)
            TWILL_BENCH_TRY(twill_gradients_ready(play->set, (int)key));
    }
    for (size_t key = play->run->list.keys;
         (way == TWILL_BENCH_REDUCE_ALONE || way == TWILL_BENCH_REDUCE_AFTER) && key-- > 0;)
        TWILL_BENCH_TRY(twill_gradients_ready(play->set, (int)key));
    return way == TWILL_BENCH_COMPUTE_ALONE || way == TWILL_BENCH_WAIT_BY_TENSOR
               ? TWILL_OK
               : twill_gradients_wait_all(play->set);
}

/* Make the forward pass, if `way` has one. If `way` is by tensor, wait before each layer for the
 * reduction of its tensor. */
static twill_status run_forward(struct twill_bench_step *play, enum twill_bench_way way)
{
    played_launch(&play->compute);
    for (size_t key = 0; key < play->run->list.keys; key++) {
        if (way == TWILL_BENCH_WAIT_BY_TENSOR) {
            TWILL_BENCH_TRY(twill_gradients_wait(play->set, (int)key));
            played_launch(&play->compute);
        }
        if (way != TWILL_BENCH_REDUCE_ALONE && played_for(&play->compute, play->forward[key]) != 0)
            return play->status;
    }
    return way == TWILL_BENCH_WAIT_BY_TENSOR ? twill_gradients_wait_all(play->set) : TWILL_OK;
}

twill_status twill_bench_make_step(struct twill_bench_step *play, enum twill_bench_way way,
                                   double *seconds)
{
    TWILL_BENCH_TRY(twill_barrier(play->run->comm));
    play->compute.test =
        way >= TWILL_BENCH_OVERLAPPED && play->run->options.measures.tests ? test_set : NULL;
    double from = twill_bench_now();
    TWILL_BENCH_TRY(run_backward(play, way));
    TWILL_BENCH_TRY(run_forward(play, way));
    *seconds = twill_bench_now() - from;
    return TWILL_OK;
}

/* Set *seconds to the median over iterations of the slowest rank's time. Collective. */
static twill_status take_median(struct twill_bench_step *play, int way, double *seconds)
{
    const struct twill_bench_run *run = play->run;
    double *samples = play->samples[way];
    size_t n = run->options.repeats.iterations;
    TWILL_BENCH_TRY(twill_allreduce(run->comm, samples, samples, n, TWILL_F64, TWILL_MAX));
    *seconds = twill_bench_statistics(samples, n).median;
    return TWILL_OK;
}

/* Make a step in the way TWILL_BENCH_OVERLAPPED. Store in the row the number of buckets, and the
 * reductions, reduced bytes and copied bytes of the step on this rank. */
static twill_status count_step(struct twill_bench_step *play, struct twill_bench_played *row)
{
    twill_gradients_counters before, after;
    double seconds;
    TWILL_BENCH_TRY(twill_gradients_count(play->set, &before));
    TWILL_BENCH_TRY(twill_bench_make_step(play, TWILL_BENCH_OVERLAPPED, &seconds));
    TWILL_BENCH_TRY(twill_gradients_count(play->set, &after));
    row->buckets = after.buckets;
    row->operations = after.operations - before.operations;
    row->bytes = after.bytes - before.bytes;
    row->bytes_copied = after.bytes_copied - before.bytes_copied;
    return TWILL_OK;
}

/* Time steps in each way of enum twill_bench_way, alternately, and store the median seconds of each
 * in the row. Collective. */
static twill_status time_ways(struct twill_bench_step *play, struct twill_bench_played *row)
{
    struct twill_bench_run *run = play->run;
    double *const medians[TWILL_BENCH_WAYS] = {&row->compute, &row->communication, &row->after,
                                               &row->overlapped, &row->by_tensor};
    size_t warmups = run->options.repeats.warmups;
    for (size_t i = 0; i < warmups + run->options.repeats.iterations; i++) {
        for (int way = 0; way < TWILL_BENCH_WAYS; way++)
            TWILL_BENCH_TRY(
                twill_bench_make_step(play, (enum twill_bench_way)way,
                                      &play->samples[way][i < warmups ? 0 : i - warmups]));
        twill_bench_show_progress(run, "steps", 1);
    }
    for (int way = 0; way < TWILL_BENCH_WAYS; way++)
        TWILL_BENCH_TRY(take_median(play, way, medians[way]));
    return TWILL_OK;
}

/* Fill all tensors with known values, make an overlapped step, and set timing->wrong to the wrong
 * elements of all ranks. Zeroes the tensors at the end. Collective. */
static twill_status check_values(struct twill_bench_step *play, twill_type type, twill_op op,
                                 struct twill_bench_timing *timing)
{
    struct twill_bench_run *run = play->run;
    unsigned round = run->round + 1; /* that of key 0 */
    double seconds;
    int64_t wrong[2] = {0, 0}; /* of this rank, and of all ranks */
    run->round += (unsigned)run->list.keys;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t key = 0; key < run->list.keys; key++) {
            struct twill_bench_payload payload = {.type = type,
                                                  .op = op,
                                                  .ranks = run->size,
                                                  .from = -1,
                                                  .round = round + (unsigned)key};
            void *memory = twill_gradients_memory(play->set, (int)key);
            size_t n = (size_t)run->list.elements[key];
            if (pass == 0)
                twill_bench_fill(&payload, run->rank, 0, memory, n);
            else
                wrong[0] += (int64_t)twill_bench_count_wrong(&payload, 0, memory, n);
            if (pass == 1)
                memset(memory, 0, n * twill_type_size(type));
        }
        if (pass == 0)
            TWILL_BENCH_TRY(twill_bench_make_step(play, TWILL_BENCH_OVERLAPPED, &seconds));
    }
    TWILL_BENCH_TRY(twill_allreduce(run->world, wrong, wrong + 1, 1, TWILL_I64, TWILL_SUM));
    timing->wrong = wrong[1] > wrong[0] ? wrong[1] : wrong[0];
    return TWILL_OK;
}

/* Print the time of a step and the part of it that is not computing. */
static void print_way(FILE *out, const struct twill_bench_played *row, double step)
{
    fprintf(out, " %9.3f %9.3f", step * 1e3, (step - row->compute) * 1e3);
}

/* Print the row of one bucket size in the table of --list with --overlap. Times are in
 * milliseconds. */
static void print_played(FILE *out, const struct twill_bench_played *row)
{
    char bucket[24] = "default";
    double sum = row->compute + row->communication;
    if (row->bucket != SIZE_MAX)
        snprintf(bucket, sizeof(bucket), "%zu", row->bucket);
    fprintf(out, "%10s %7llu %6llu %11llu %9.3f %9.3f %9.3f |", bucket,
            (unsigned long long)row->buckets, (unsigned long long)row->operations,
            (unsigned long long)row->bytes_copied, row->compute * 1e3, row->communication * 1e3,
            sum * 1e3);
    print_way(out, row, row->after);
    fprintf(out, " |");
    print_way(out, row, row->overlapped);
    fprintf(out, " %6.2f |", row->overlapped / sum);
    print_way(out, row, row->by_tensor);
    fprintf(out, " %6.2f", row->by_tensor / sum);
    if (row->wrong < 0)
        fprintf(out, " %7s\n", "N/A");
    else
        fprintf(out, " %7lld\n", (long long)row->wrong);
    fflush(out);
}

/* Return whether a step delivers plain sums, as TWILL_GRADIENTS neither compresses nor delays. */
static bool delivers_sums(const struct twill_bench_options *options)
{
    const char *text = options->settings.gradients != NULL ? options->settings.gradients
                                                           : getenv("TWILL_GRADIENTS");
    return text == NULL || (strchr(text, '@') == NULL && strstr(text, "compress=") == NULL &&
                            strstr(text, "late=") == NULL);
}

/* Measure and check steps with this bucket size, and add them to the results. Rank 0 prints the row
 * and adds it to the JSON. The caller destroys play->set. Collective. */
static twill_status measure_bucket(struct twill_bench_step *play, twill_type type, twill_op op,
                                   size_t bucket)
{
    struct twill_bench_run *run = play->run;
    struct twill_bench_timing timing = {.wrong = -1};
    struct twill_bench_played row = {.bucket = bucket};
    TWILL_BENCH_TRY(twill_bench_create_set(play, type, op, bucket));
    TWILL_BENCH_TRY(fail_set(play, time_ways(play, &row)));
    TWILL_BENCH_TRY(fail_set(play, count_step(play, &row)));
    if (run->options.repeats.checks > 0 && delivers_sums(&run->options))
        TWILL_BENCH_TRY(fail_set(play, check_values(play, type, op, &timing)));
    row.wrong = timing.wrong;
    run->results.failures += row.wrong > 0;
    timing.seconds = row.communication;
    twill_bench_rate(run, row.bytes, &timing);
    run->results.bandwidth += timing.bus_bandwidth;
    run->results.measured++;
    if (run->world_rank != 0)
        return TWILL_OK;
    print_played(stdout, &row);
    twill_bench_json_played(run, type, op, &row);
    return TWILL_OK;
}

/* Allocate what the caller frees, and set how long the layers compute. */
static twill_status allocate_play(struct twill_bench_step *play)
{
    const struct twill_bench_run *run = play->run;
    const struct twill_bench_options *options = &run->options;
    play->forward = calloc(run->list.keys, sizeof(*play->forward));
    bool good = play->forward != NULL;
    for (int way = 0; way < TWILL_BENCH_WAYS; way++) {
        play->samples[way] = calloc(options->repeats.iterations, sizeof(double));
        good = good && play->samples[way] != NULL;
    }
    for (size_t key = 0; good && key < run->list.keys; key++)
        play->forward[key] = twill_bench_list_seconds(&run->list, key, options->played.batch,
                                                      (double)options->played.gflops);
    return good ? TWILL_OK : TWILL_ERR_MEMORY;
}

twill_status twill_bench_play_steps(struct twill_bench_run *run, twill_type type, twill_op op)
{
    struct twill_bench_step play = {
        .run = run,
        .compute = {.device = run->options.played.device, .turns_per_second = played_speed()}};
    play.compute.of = &play;
    twill_status status = allocate_play(&play);
    for (size_t i = 0; status == TWILL_OK && i < run->options.played.n_buckets; i++) {
        status = measure_bucket(&play, type, op, run->options.played.buckets[i]);
        twill_gradients_destroy(play.set);
        play.set = NULL;
    }
    free(play.forward);
    for (int way = 0; way < TWILL_BENCH_WAYS; way++)
        free(play.samples[way]);
    return status;
}

void twill_bench_print_played_header(FILE *out, const struct twill_bench_run *run)
{
    const struct twill_bench_options *options = &run->options;
    fprintf(out,
            "# played: batch %zu at %zu Gflop/s by %s, %s, buckets in the order of %s\n"
            "# times in ms: medians over steps of the slowest rank; exposed: step - compute; "
            "ratio: step / sum\n#\n",
            options->played.batch, options->played.gflops,
            options->played.device ? "a device" : "the rank's core",
            options->measures.tests ? "tests between slices" : "no tests",
            options->played.priority ? "priorities" : "the backward pass");
    fprintf(out, "#%9s %7s %6s %11s %9s %9s %9s | %9s %9s | %9s %9s %6s | %9s %9s %6s %7s\n", "",
            "", "", "copied", "compute", "reduce", "sum", "after", "", "overlap", "", "",
            "by tensor", "", "", "");
    fprintf(out, "#%9s %7s %6s %11s %9s %9s %9s | %9s %9s | %9s %9s %6s | %9s %9s %6s %7s\n",
            "bucket", "buckets", "ops", "(B/step)", "alone", "alone", "", "step", "exposed", "step",
            "exposed", "ratio", "step", "exposed", "ratio", "#wrong");
}
