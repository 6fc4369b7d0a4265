/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench train measures how a training step scales. */
#include "bench/common/tool_calls.h"
#include "bench/tools/bench/train/study.h"

#include <stdlib.h>
#include <string.h>

/* Print why a call has failed. Returns STATUS_FAILED. */
static int fail_study(const struct twill_study *study, twill_status status)
{
    const struct twill_bench_run *run = &study->run;
    fprintf(stderr, "twill-bench: train: %s\n", twill_bench_why(run->comm, run->context, status));
    return STATUS_FAILED;
}

/* Make the context and communicator of the job, and note its nodes, places and meters. For rows
 * with a root, algorithms are linear unless --algorithm or TWILL_ALGORITHM names others.
 * study->linear says whether they are. Collective. */
static twill_status connect_study(struct twill_study *study)
{
    const struct twill_study_options *options = &study->options;
    struct twill_bench_run *run = &study->run;
    char algorithm[512];
    const char *settings[] = {NULL, NULL}, *named = options->algorithm;
    study->linear =
        options->pattern[TWILL_STUDY_ROOT] && named == NULL && getenv("TWILL_ALGORITHM") == NULL;
    if (study->linear)
        named = "broadcast:linear;reduce:linear";
    if (named != NULL) {
        snprintf(algorithm, sizeof(algorithm), "TWILL_ALGORITHM=%s", named);
        settings[0] = algorithm;
    }
    TWILL_BENCH_TRY(twill_context_create(&run->context, NULL, settings));
    TWILL_BENCH_TRY(twill_comm_create(&run->world, run->context));
    run->comm = run->world;
    run->rank = run->world_rank = twill_comm_rank(run->world);
    run->size = run->world_size = twill_comm_size(run->world);
    int32_t fullest = twill_comm_local_size(run->world);
    TWILL_BENCH_TRY(twill_allreduce(run->world, &fullest, &fullest, 1, TWILL_I32, TWILL_MAX));
    study->fullest = (size_t)fullest;
    TWILL_BENCH_TRY(twill_bench_locate(run));
    return options->energy ? twill_bench_energy_open(run) : TWILL_OK;
}

/* Allocate what release_study() frees, and prepare study->play, whose computing is only played. */
static twill_status allocate_study(struct twill_study *study)
{
    size_t keys = study->run.list.keys, n = study->options.iterations;
    study->play.forward = calloc(keys, sizeof(double));
    study->buckets = calloc(keys, sizeof(*study->buckets));
    bool good = study->play.forward != NULL && study->buckets != NULL;
    for (int i = 0; i < 2; i++) {
        study->samples[i] = calloc(n, sizeof(double));
        good = good && study->samples[i] != NULL;
    }
    study->play.run = &study->run;
    study->play.compute = (struct played_compute){
        .device = !study->options.core, .turns_per_second = played_speed(), .of = &study->play};
    return good ? TWILL_OK : TWILL_ERR_MEMORY;
}

/* Choose 1, 2, 4, ... and all ranks, unless numbers are given. */
static void choose_ranks(struct twill_study *study)
{
    struct twill_study_values *ranks = &study->options.ranks;
    size_t size = (size_t)study->run.world_size;
    if (ranks->n > 0)
        return;
    for (size_t n = 1; n < size && ranks->n < TWILL_STUDY_MOST - 1; n *= 2)
        ranks->value[ranks->n++] = n;
    ranks->value[ranks->n++] = size;
}

/* Return why rows of so many ranks cannot be measured or predicted, or NULL if they can. */
static const char *find_mistake(const struct twill_study *study, size_t ranks)
{
    const struct twill_study_options *options = &study->options;
    size_t per_node = twill_study_per_node(study);
    if (ranks > (size_t)study->run.world_size && ranks > per_node && ranks % per_node != 0)
        return "is more than the job has and no multiple of the ranks of a node (--per-node)";
    for (size_t i = 0; options->scaling[1] && i < options->batches.n; i++)
        if (ranks > options->batches.value[i])
            return "is more than the samples that strong scaling divides (--batch)";
    return NULL;
}

/* Return whether all numbers of ranks are possible. If not, rank 0 prints why. */
static bool check_ranks(const struct twill_study *study)
{
    const char *mistake = NULL;
    for (size_t i = 0; i < study->options.ranks.n && mistake == NULL; i++) {
        mistake = find_mistake(study, study->options.ranks.value[i]);
        if (mistake != NULL && study->run.world_rank == 0)
            fprintf(stderr, "twill-bench: train: --ranks: %zu %s\n", study->options.ranks.value[i],
                    mistake);
    }
    return mistake == NULL;
}

/* Store in a row what one rank alone takes, from `one`, the row of one rank with the same settings.
 * If the row is predicted, that is the time that the price model expects for one rank. */
static void relate(struct twill_study_row *row, const struct twill_study_row *one)
{
    row->step.alone = row->predicted ? one->model : one->step.seconds;
    row->exposed_alone = row->predicted ? 0 : one->exposed;
}

/* Store in each row what one rank alone takes, as far as there are rows of one rank with the same
 * settings. */
static void relate_rows(struct twill_study *study)
{
    for (size_t i = 0; i < study->n_rows; i++)
        for (size_t j = 0; j < study->n_rows; j++) {
            struct twill_study_row *row = &study->rows[i];
            const struct twill_study_row *one = &study->rows[j];
            if (one->step.ranks == 1 && one->pattern == row->pattern &&
                one->step.strong == row->step.strong && one->step.batch == row->step.batch &&
                one->compute_us == row->compute_us)
                relate(row, one);
        }
}

/* Return the number of steps that rank 0 makes for all rows that are measured. */
static size_t count_steps(const struct twill_study *study)
{
    const struct twill_study_options *options = &study->options;
    size_t rows = 0, computes = options->compute_us.n > 0 ? options->compute_us.n : 1;
    for (size_t i = 0; i < options->ranks.n; i++)
        rows += options->ranks.value[i] <= (size_t)study->run.world_size;
    rows *= options->batches.n * computes * (options->scaling[0] + options->scaling[1]) *
            (options->pattern[0] + options->pattern[1]);
    return rows * (options->energy ? 3 : 2) * (options->iterations + options->warmups);
}

/* Measure or predict the rows of all numbers of ranks. Collective. */
static twill_status measure_all(struct twill_study *study)
{
    const struct twill_study_values *ranks = &study->options.ranks;
    twill_bench_progress_begin(&study->run.work.progress, study->run.world_rank == 0);
    study->run.work.rows = count_steps(study);
    for (size_t i = 0; i < ranks->n; i++) {
        size_t n = ranks->value[i];
        bool beyond = n > (size_t)study->run.world_size;
        if (!beyond || (i == 0 && beyond))
            TWILL_BENCH_TRY(twill_study_open(study, beyond ? 1 : n));
        TWILL_BENCH_TRY(twill_study_measure(study, n));
        TWILL_BENCH_TRY(twill_barrier(study->run.world));
    }
    twill_bench_progress_clear(&study->run.work.progress);
    relate_rows(study);
    return TWILL_OK;
}

/* Create the file of -J, if given, on rank 0. *outcome is STATUS_FAILED on all ranks if it cannot
 * be created, after a message, otherwise STATUS_GOOD. Returns the status of an allreduce.
 * Collective. */
static twill_status create_json(struct twill_study *study, int32_t *outcome)
{
    const char *path = study->options.output;
    int32_t failed =
        path != NULL && study->run.world_rank == 0 && !twill_json_file_create(&study->json, path);
    TWILL_BENCH_TRY(twill_allreduce(study->run.world, &failed, &failed, 1, TWILL_I32, TWILL_MAX));
    *outcome = failed ? STATUS_FAILED : STATUS_GOOD;
    return TWILL_OK;
}

/* Print the rows on rank 0, and write the JSON and plot. Returns an exit status. */
static int report(struct twill_study *study)
{
    bool good = true;
    if (study->run.world_rank != 0)
        return STATUS_GOOD;
    twill_study_print(study, stdout);
    if (study->json.path != NULL)
        good = twill_study_json(study);
    if (study->options.plot != NULL)
        good = twill_study_plot(study, study->options.plot) && good;
    return good ? STATUS_GOOD : STATUS_FAILED;
}

/* Destroy and free all that the study has, but not the struct. After an error also close the file
 * of -J. */
static void release_study(struct twill_study *study)
{
    struct twill_bench_run *run = &study->run;
    if (run->world != NULL)
        twill_study_close(study);
    if (study->json.root != NULL) /* after an error */
        (void)twill_json_file_close(&study->json);
    twill_bench_list_free(&run->list);
    free(run->step);
    free(run->step_seconds);
    free(run->places);
    free(run->meters.own);
    twill_comm_destroy(run->world);
    twill_context_destroy(run->context);
    free(study->play.forward);
    free(study->buckets);
    free(study->samples[0]);
    free(study->samples[1]);
    free(study->rows);
}

/* Set the options of the run on which the step and the list depend. */
static void set_run_options(struct twill_study *study)
{
    struct twill_bench_options *options = &study->run.options;
    options->collective = TWILL_BENCH_ALLREDUCE;
    options->list = study->options.list;
    options->calls.memory = "twill";
    options->calls.placed = true;
    options->measures.overlap = study->options.compute_us.n == 0; /* needs multiply-adds */
    options->measures.tests = !study->options.core; /* a set's counters do not include tests */
    options->measures.energy = study->options.energy;
    options->measures.sysfs = study->options.sysfs;
    options->report.csv = study->options.csv;
}

int twill_study_train(int argc, char **argv, bool speak)
{
    struct twill_study study = {.json.path = NULL};
    enum twill_parsed parsed = twill_study_parse(&study.options, argc, argv, speak);
    if (parsed != TWILL_PARSED_RUN)
        return parsed == TWILL_PARSED_DONE ? STATUS_GOOD : STATUS_USAGE;
    set_run_options(&study);
    int32_t outcome = STATUS_GOOD;
    twill_status status = connect_study(&study);
    if (status == TWILL_OK)
        status = twill_bench_share_list(&study.run, &outcome);
    if (status == TWILL_OK && outcome == STATUS_GOOD)
        status = allocate_study(&study);
    if (status == TWILL_OK && outcome == STATUS_GOOD) {
        choose_ranks(&study);
        outcome = check_ranks(&study) ? STATUS_GOOD : STATUS_USAGE;
        status = outcome == STATUS_GOOD ? create_json(&study, &outcome) : TWILL_OK;
    }
    if (status == TWILL_OK && outcome == STATUS_GOOD)
        status = measure_all(&study);
    if (status != TWILL_OK)
        outcome = fail_study(&study, status);
    else if (outcome == STATUS_GOOD)
        outcome = report(&study);
    release_study(&study);
    return outcome;
}
