/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the steps of a scaling study. */
#include "bench/tools/bench/train/study.h"

#include <stdlib.h>
#include <string.h>

/* Return whether this rank is one of those that twill_study_open() selected. */
static bool takes_part(const struct twill_study *study)
{
    return study->play.set != NULL;
}

/* Return whether the pattern with a root was requested. */
static bool has_root(const struct twill_study *study)
{
    return study->options.pattern[TWILL_STUDY_ROOT];
}

void twill_study_close(struct twill_study *study)
{
    struct twill_bench_run *run = &study->run;
    twill_gradients_destroy(study->play.set);
    study->play.set = NULL;
    if (study->model != NULL)
        twill_free(run->context, study->model);
    study->model = NULL;
    if (run->comm != run->world)
        twill_comm_destroy(run->comm);
    run->comm = run->world;
}

twill_status twill_study_open(struct twill_study *study, size_t ranks)
{
    struct twill_bench_run *run = &study->run;
    twill_study_close(study);
    bool member = (size_t)run->world_rank < ranks;
    TWILL_BENCH_TRY(twill_comm_split(&run->comm, run->world, member ? 0 : 1, run->world_rank));
    run->rank = twill_comm_rank(run->comm);
    run->size = twill_comm_size(run->comm);
    if (!member)
        return TWILL_OK;
    TWILL_BENCH_TRY(twill_bench_create_set(&study->play, TWILL_F32, TWILL_AVG, SIZE_MAX));
    if (!has_root(study))
        return TWILL_OK;
    size_t bytes = (size_t)run->list.total * sizeof(float);
    TWILL_BENCH_TRY(twill_alloc(run->context, &study->model, bytes));
    memset(study->model, 0, bytes);
    return TWILL_OK;
}

/* Set study->play.forward[] to the seconds of each tensor's layer in the forward pass, and
 * row->compute to three times their sum, with the backward pass. The time of --compute-us is
 * divided in proportion to multiply-adds, or to elements if the list lacks those. Without it the
 * seconds follow from --device-gflops. */
static void divide_compute(struct twill_study *study, struct twill_study_row *row)
{
    const struct twill_bench_list *list = &study->run.list;
    const struct twill_study_step *step = &row->step;
    size_t mine = twill_study_rank_batch(step->strong, step->ranks, step->batch);
    double share = (double)mine / (double)step->batch;
    row->compute = 0;
    for (size_t key = 0; key < list->keys; key++) {
        double part = list->all_work > 0 ? (double)list->work[key] / (double)list->all_work
                                         : (double)list->elements[key] / (double)list->total;
        double *forward = &study->play.forward[key];
        *forward = row->compute_us > 0
                       ? (double)row->compute_us * 1e-6 * share * part / 3
                       : twill_bench_list_seconds(list, key, mine, (double)study->options.gflops);
        row->compute += 3 * *forward;
    }
}

/* A call with a root, with seconds by the clock and the library's counter, and bytes sent. */
struct root_call {
    double seconds, counted, sent;
};

/* Let rank 0 reduce or broadcast the whole model, and add the times and bytes to *call. */
static twill_status call_root(struct twill_study *study, bool reduces, struct root_call *call)
{
    struct twill_bench_run *run = &study->run;
    size_t count = (size_t)run->list.total;
    twill_counters before, after;
    TWILL_BENCH_TRY(twill_comm_counters(run->comm, &before));
    double from = twill_bench_now();
    TWILL_BENCH_TRY(
        reduces
            ? twill_reduce(run->comm, study->model, study->model, count, TWILL_F32, TWILL_AVG, 0)
            : twill_broadcast(run->comm, study->model, study->model, count, TWILL_F32, 0));
    call->seconds += twill_bench_now() - from;
    TWILL_BENCH_TRY(twill_comm_counters(run->comm, &after));
    call->counted += after.seconds - before.seconds;
    call->sent += (double)(after.bytes_sent - before.bytes_sent);
    return TWILL_OK;
}

/* What a step took and sent on this rank. Of TWILL_STUDY_ROOT, bytes[0] is sent in the broadcast
 * and bytes[1] in the reduction. With a gradient set, bytes[0] has all. */
struct made {
    double seconds, exposed, bytes[2]; /* exposed are seconds that computing does not hide */
};

/* Make a step of TWILL_STUDY_ROOT, which broadcasts parameters from rank 0, computes if `computes`
 * is true, and reduces gradients to it. Stores its times and bytes in *made. Collective. */
static twill_status make_root_step(struct twill_study *study, bool computes, struct made *made)
{
    struct root_call calls[2] = {{0}};
    double computing = 0;
    TWILL_BENCH_TRY(twill_barrier(study->run.comm));
    TWILL_BENCH_TRY(call_root(study, false, &calls[0]));
    if (computes)
        TWILL_BENCH_TRY(twill_bench_make_step(&study->play, TWILL_BENCH_COMPUTE_ALONE, &computing));
    TWILL_BENCH_TRY(call_root(study, true, &calls[1]));
    *made = (struct made){calls[0].seconds + computing + calls[1].seconds,
                          calls[0].counted + calls[1].counted,
                          {calls[0].sent, calls[1].sent}};
    return TWILL_OK;
}

/* Make a step whose gradients are reduced by the set, with computing only if `computes` is true.
 * Stores its times and bytes in *made. Collective. */
static twill_status make_set_step(struct twill_study *study, bool computes, struct made *made)
{
    twill_gradients_counters before, after;
    twill_counters sent_before, sent_after;
    TWILL_BENCH_TRY(twill_gradients_count(study->play.set, &before));
    TWILL_BENCH_TRY(twill_gradients_traffic(study->play.set, &sent_before));
    TWILL_BENCH_TRY(twill_bench_make_step(
        &study->play, computes ? TWILL_BENCH_OVERLAPPED : TWILL_BENCH_REDUCE_ALONE,
        &made->seconds));
    TWILL_BENCH_TRY(twill_gradients_count(study->play.set, &after));
    TWILL_BENCH_TRY(twill_gradients_traffic(study->play.set, &sent_after));
    bool hides = study->play.compute.device && computes;
    made->exposed = after.seconds_exposed - (hides ? study->play.hidden : before.seconds_exposed);
    made->bytes[0] = (double)(sent_after.bytes_sent - sent_before.bytes_sent);
    made->bytes[1] = 0;
    return TWILL_OK;
}

/* Set row->root from `bytes`, which this rank sent in a step. It is right on rank 0 only. With a
 * gradient set it is what rank 0 sends. With a root it is what the root sends and receives, or -1
 * unless it exchanges with each rank directly. Collective. */
static twill_status find_root_bytes(struct twill_study *study, struct twill_study_row *row,
                                    const double bytes[2])
{
    double others = study->run.rank == 0 ? 0 : bytes[1];
    TWILL_BENCH_TRY(twill_allreduce(study->run.comm, &others, &others, 1, TWILL_F64, TWILL_SUM));
    row->root = bytes[0];
    if (row->pattern == TWILL_STUDY_ROOT)
        row->root = study->linear ? bytes[0] + bytes[1] + others : -1;
    return TWILL_OK;
}

/* Make a step, or only its computing or communication, as `phase` says. Stores its times and bytes
 * in *made. */
static twill_status make_phase(struct twill_study *study, const struct twill_study_row *row,
                               enum twill_study_phase phase, struct made *made)
{
    twill_bench_show_progress(&study->run, "training steps", 1);
    bool computes = phase != TWILL_STUDY_COMMUNICATION;
    if (phase == TWILL_STUDY_COMPUTING)
        return twill_bench_make_step(&study->play, TWILL_BENCH_COMPUTE_ALONE, &made->seconds);
    return row->pattern == TWILL_STUDY_ROOT ? make_root_step(study, computes, made)
                                            : make_set_step(study, computes, made);
}

/* Make the steps of a row, or only one phase of them. Sets row->step.seconds, ->exposed and ->root
 * for whole steps, and row->communication for that phase, but nothing for computing. Times are
 * medians of the slowest rank. Collective over the ranks that take part. */
static twill_status time_steps(struct twill_study *study, struct twill_study_row *row,
                               enum twill_study_phase phase)
{
    const struct twill_study_options *options = &study->options;
    struct made made = {0};
    for (size_t i = 0; i < options->iterations; i++) {
        TWILL_BENCH_TRY(make_phase(study, row, phase, &made));
        study->samples[0][i] = made.seconds;
        study->samples[1][i] = made.exposed;
    }
    for (int i = 0; i < 2; i++)
        TWILL_BENCH_TRY(twill_allreduce(study->run.comm, study->samples[i], study->samples[i],
                                        options->iterations, TWILL_F64, TWILL_MAX));
    double seconds = twill_bench_statistics(study->samples[0], options->iterations).median;
    if (phase == TWILL_STUDY_COMMUNICATION)
        row->communication = seconds;
    if (phase != TWILL_STUDY_STEP)
        return TWILL_OK;
    row->step.seconds = seconds;
    row->exposed = twill_bench_statistics(study->samples[1], options->iterations).median;
    return find_root_bytes(study, row, made.bytes);
}

/* Append the row to those of the study, on rank 0. */
static twill_status keep(struct twill_study *study, const struct twill_study_row *row)
{
    if (study->run.world_rank != 0)
        return TWILL_OK;
    struct twill_study_row *rows =
        reallocarray(study->rows, study->n_rows + 1, sizeof(*study->rows));
    if (rows == NULL)
        return TWILL_ERR_MEMORY;
    rows[study->n_rows++] = *row;
    study->rows = rows;
    return TWILL_OK;
}

/* Warm up, and store the times of a phase, and its energy if requested. Collective. */
static twill_status measure_phase(struct twill_study *study, struct twill_study_row *row,
                                  enum twill_study_phase phase)
{
    struct twill_energy_reading reading;
    struct made made = {0};
    for (size_t i = 0; takes_part(study) && i < study->options.warmups; i++)
        TWILL_BENCH_TRY(make_phase(study, row, phase, &made));
    if (study->options.energy) /* machines whose ranks wait also begin here */
        TWILL_BENCH_TRY(twill_barrier(study->run.world));
    twill_bench_energy_begin(&study->run, &reading);
    if (takes_part(study))
        TWILL_BENCH_TRY(time_steps(study, row, phase));
    TWILL_BENCH_TRY(twill_bench_energy_end(&study->run, &reading, &row->energy[phase]));
    row->energy[phase].ranks = row->step.ranks;
    return TWILL_OK;
}

/* Set the nodes of a row, and measure communication alone, with --energy computing alone, and whole
 * steps. Collective over the job. */
static twill_status measure_row(struct twill_study *study, struct twill_study_row *row)
{
    row->nodes = (size_t)twill_comm_nodes(study->run.comm);
    TWILL_BENCH_TRY(measure_phase(study, row, TWILL_STUDY_COMMUNICATION));
    if (study->options.energy)
        TWILL_BENCH_TRY(measure_phase(study, row, TWILL_STUDY_COMPUTING));
    return measure_phase(study, row, TWILL_STUDY_STEP);
}

/* Measure a row, unless it is predicted. Rank 0 sets what the price model expects of it, and keeps
 * it. Collective over the job. */
static twill_status make_row(struct twill_study *study, struct twill_study_row *row)
{
    divide_compute(study, row);
    if (!row->predicted)
        TWILL_BENCH_TRY(measure_row(study, row));
    if (study->run.world_rank == 0)
        twill_study_predict(study, row);
    return keep(study, row);
}

twill_status twill_study_measure(struct twill_study *study, size_t ranks)
{
    const struct twill_study_options *options = &study->options;
    size_t computes = options->compute_us.n > 0 ? options->compute_us.n : 1;
    for (int pattern = 0; pattern < TWILL_STUDY_PATTERNS; pattern++)
        for (int strong = 0; strong < 2; strong++)
            for (size_t b = 0; b < options->batches.n; b++)
                for (size_t c = 0; c < computes; c++) {
                    struct twill_study_row row = {
                        .pattern = (enum twill_study_pattern)pattern,
                        .step = {.strong = strong != 0,
                                 .ranks = ranks,
                                 .batch = options->batches.value[b],
                                 .alone = -1},
                        .compute_us = options->compute_us.n > 0 ? options->compute_us.value[c] : 0,
                        .predicted = ranks > (size_t)study->run.world_size,
                        .communication = -1,
                        .root = -1};
                    if (options->pattern[pattern] && options->scaling[strong])
                        TWILL_BENCH_TRY(make_row(study, &row));
                }
    return TWILL_OK;
}
