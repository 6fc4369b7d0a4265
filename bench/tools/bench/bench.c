/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench times the collectives in the manner of nccl-tests and checks every value. */
#include "bench/common/option_names.h"
#include "bench/common/tool_calls.h"
#include "bench/tools/bench/bench_run.h"
#include "bench/tools/bench/calibrate/calibrate.h"
#include "bench/tools/bench/fabric/fabric.h"
#include "bench/tools/bench/kernels/kernel_times.h"
#include "bench/tools/bench/steps/played_step.h"
#include "bench/tools/bench/train/study.h"
#include "lib/base/plural.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Remove the progress line and print why a call has failed. Returns STATUS_FAILED. */
static int fail_run(struct twill_bench_run *run, twill_status status)
{
    twill_bench_progress_clear(&run->work.progress);
    fprintf(stderr, "twill-bench: %s\n", twill_bench_why(run->comm, run->context, status));
    return STATUS_FAILED;
}

/* Allocate zeroed buffers for the largest size (only one with --list), samples and vectors. */
static twill_status allocate_buffers(struct twill_bench_run *run)
{
    const struct twill_bench_options *options = &run->options;
    size_t offset = options->calls.unalign * 8;
    const struct twill_bench_facts *facts = twill_bench_facts(options->collective);
    size_t bytes = facts->dst == TWILL_BENCH_NOTHING ? 0 : options->sizes.max_bytes;
    bytes = twill_bench_buffer_bytes(facts, bytes) + offset + 64 + options->calls.align;
    for (int i = run->list.keys > 0 ? 1 : 0; i < 2; i++) { /* a list is reduced in place */
        if (options->calls.placed)
            TWILL_BENCH_TRY(twill_alloc(run->context, &run->memory.allocated[i], bytes));
        else
            run->memory.allocated[i] = malloc(bytes);
        if (run->memory.allocated[i] == NULL)
            return TWILL_ERR_MEMORY;
        uintptr_t base = (uintptr_t)run->memory.allocated[i];
        run->memory.buffers[i] =
            (char *)((base + options->calls.align - 1) & ~(uintptr_t)(options->calls.align - 1));
        memset(run->memory.buffers[i], 0, bytes - options->calls.align);
        if (strcmp(options->calls.memory, "promoted") == 0)
            TWILL_BENCH_TRY(twill_promote(run->context, run->memory.allocated[i], bytes));
    }
    run->memory.samples = calloc(options->repeats.iterations, sizeof(*run->memory.samples));
    size_t *vectors = calloc((size_t)run->size * 4, sizeof(*vectors));
    size_t n = (size_t)run->size;
    if (run->memory.samples == NULL || vectors == NULL)
        return TWILL_ERR_MEMORY;
    run->memory.vectors =
        (struct twill_bench_vectors){vectors, vectors + n, vectors + 2 * n, vectors + 3 * n};
    return TWILL_OK;
}

/* Free all memory of the run, and destroy its communicators and contexts. */
static void release_buffers(struct twill_bench_run *run)
{
    for (int i = 0; i < 2; i++)
        if (run->options.calls.placed && run->context != NULL)
            twill_free(run->context, run->memory.allocated[i]);
        else if (!run->options.calls.placed) {
            if (run->context != NULL && strcmp(run->options.calls.memory, "promoted") == 0)
                (void)twill_demote(run->context, run->memory.allocated[i]);
            free(run->memory.allocated[i]);
        }
    free(run->memory.samples);
    free(run->memory.vectors.src_count);
    free(run->step);
    free(run->step_seconds);
    twill_bench_list_free(&run->list);
    free(run->places);
    free(run->meters.own);
    if (run->comm != run->world)
        twill_comm_destroy(run->comm);
    twill_comm_destroy(run->sums.strict);
    twill_context_destroy(run->sums.strict_context);
    twill_comm_destroy(run->world);
    twill_context_destroy(run->context);
}

/* Return which optional columns the options add to the table and the CSV. */
static struct twill_bench_columns run_columns(const struct twill_bench_run *run)
{
    return (struct twill_bench_columns){.each = run->options.report.each,
                                        .overlap = run->options.measures.overlap,
                                        .times = run->options.measures.times,
                                        .reproducible = run->options.measures.reproducible,
                                        .team = run->options.measures.team > 0,
                                        .narrow = run->options.measures.narrow >= 0,
                                        .energy = run->options.measures.energy};
}

/* Print what is above the table, which is the run, its ranks and the titles. With --csv it is only
 * the titles. */
static void print_start(struct twill_bench_run *run)
{
    const struct twill_bench_options *options = &run->options;
    bool factor = options->sizes.step_factor > 1;
    if (options->report.csv) {
        twill_bench_csv_header(stdout, run_columns(run));
        return;
    }
    printf("# twill-bench version %s: %s\n", twill_version(),
           twill_bench_facts(options->collective)->name);
    if (options->list != NULL)
        printf("# list %s: %zu key%s, %llu element%s", options->list, run->list.keys,
               TWILL_PLURAL(run->list.keys), (unsigned long long)run->list.total,
               TWILL_PLURAL(run->list.total));
    else
        printf("# minBytes %zu maxBytes %zu step: %zu(%s)", options->sizes.min_bytes,
               options->sizes.max_bytes,
               factor ? options->sizes.step_factor : options->sizes.step_bytes,
               factor ? "factor" : "bytes");
    printf(" warmup iters: %zu iters: %zu agg iters: %zu validation: %zu memory: %s\n#\n",
           options->repeats.warmups, options->repeats.iterations, options->repeats.aggregate,
           options->repeats.checks, options->calls.memory);
    twill_bench_print_places(stdout, run);
    const char *line;
    for (size_t i = 0; (line = twill_context_describe(run->context, i)) != NULL; i++)
        printf("# %s\n", line);
    if (options->measures.energy)
        twill_bench_print_energy_source(stdout, run);
    if (options->list != NULL && options->measures.overlap)
        twill_bench_print_played_header(stdout, run);
    else if (options->list != NULL)
        twill_bench_print_step_header(stdout, options->report.each);
    else
        twill_bench_print_header(stdout, run_columns(run));
}

/* Print a row and add it to the JSON, on rank 0 of the world. */
static void report_row(struct twill_bench_run *run, const struct twill_bench_row *row)
{
    if (run->world_rank != 0)
        return;
    twill_bench_progress_clear(&run->work.progress);
    if (run->options.report.csv)
        twill_bench_csv_row(stdout, row, run_columns(run));
    else
        twill_bench_print_row(stdout, row, run_columns(run));
    fflush(stdout);
    twill_bench_json_row(run, row);
}

/* Print a row for each tensor of --list and one for the reductions of all of them, and add them to
 * the JSON. Only on rank 0 of the world. */
static void report_step(struct twill_bench_run *run)
{
    char name[24];
    if (run->world_rank != 0)
        return;
    twill_bench_progress_clear(&run->work.progress);
    for (size_t key = run->list.keys; key-- > 0;) {
        snprintf(name, sizeof(name), "%zu", key);
        twill_bench_print_step_row(stdout, name, &run->step[key], false);
    }
    const struct twill_bench_timing *step = &run->step[run->list.keys].in_place;
    twill_bench_print_step_row(stdout, "step", &run->step[run->list.keys],
                               run->options.report.each);
    if (run->options.measures.times && !run->options.report.csv)
        printf("# of the step: wait %.1f us, wire %.1f us, stack %.1f us\n", step->waiting * 1e6,
               step->wire * 1e6, twill_bench_stack(step) * 1e6);
    if (run->options.measures.energy)
        twill_bench_print_energy(stdout, &step->energy);
    fflush(stdout);
    twill_bench_json_step(run);
}

/* Run the iterations of -w, if any, of the largest and then the smallest size, or a step of --list.
 * Checks and reports nothing. */
static twill_status warm_up(struct twill_bench_run *run, twill_type type, twill_op op, int root)
{
    struct twill_bench_run quiet = *run;
    struct twill_bench_row row;
    if (run->options.repeats.warmups == 0)
        return TWILL_OK;
    quiet.options.repeats.iterations = run->options.repeats.warmups;
    quiet.options.repeats.checks = 0;
    quiet.options.report.each = false;
    quiet.options.measures.energy = false;
    quiet.work.progress.on = false;
    if (run->list.keys > 0)
        return twill_bench_measure_step(&quiet, type, op, root);
    twill_status status =
        twill_bench_measure(&quiet, type, op, root, run->options.sizes.max_bytes, &row);
    if (status == TWILL_OK)
        status = twill_bench_measure(&quiet, type, op, root, run->options.sizes.min_bytes, &row);
    return status;
}

/* Measure and report all sizes, or the list, with this type, operation and root. */
static twill_status run_sizes(struct twill_bench_run *run, twill_type type, twill_op op, int root)
{
    const struct twill_bench_options *options = &run->options;
    struct twill_bench_row row;
    if (run->list.keys > 0 && options->measures.overlap)
        return twill_bench_play_steps(run, type, op);
    twill_status status = warm_up(run, type, op, root);
    if (run->list.keys > 0) {
        if (status == TWILL_OK)
            status = twill_bench_measure_step(run, type, op, root);
        if (status == TWILL_OK)
            report_step(run);
        return status;
    }
    const struct twill_bench_sizes *sizes = &options->sizes;
    for (size_t bytes = sizes->min_bytes; status == TWILL_OK && bytes <= sizes->max_bytes;
         bytes = twill_bench_next_size(bytes, sizes->step_bytes, sizes->step_factor)) {
        status = twill_bench_measure(run, type, op, root, bytes, &row);
        if (status == TWILL_OK)
            report_row(run, &row);
    }
    return status;
}

/* The values of -o, -d or -r, which may be "all", from first to last. */
struct range {
    int first, last;
};

/* Return the range of a choice, which is 0 to count - 1 for TWILL_BENCH_ALL. */
static struct range expand(int choice, int count)
{
    return choice == TWILL_BENCH_ALL ? (struct range){0, count - 1}
                                     : (struct range){choice, choice};
}

/* Measure and report the table, which has all types, operations and roots that are chosen. */
static twill_status run_table(struct twill_bench_run *run)
{
    const struct twill_bench_options *options = &run->options;
    struct twill_bench_row row;
    if (options->collective == TWILL_BENCH_BARRIER) {
        twill_status status = twill_bench_measure_barrier(run, &row);
        if (status == TWILL_OK)
            report_row(run, &row);
        return status;
    }
    const struct twill_bench_facts *facts = twill_bench_facts(options->collective);
    struct range types = expand(options->type, TWILL_TYPE_COUNT);
    struct range ops = facts->reduces ? expand(options->op, TWILL_BENCH_OPS) : (struct range){0, 0};
    struct range roots = facts->rooted ? expand(options->root, run->size) : (struct range){0, 0};
    size_t tables = (size_t)(types.last - types.first + 1) * (size_t)(ops.last - ops.first + 1) *
                    (size_t)(roots.last - roots.first + 1);
    size_t rows = options->repeats.iterations + 2; /* a list's steps, warm-up step and check */
    if (run->list.keys == 0)
        rows = 2 * twill_bench_count_sizes(options->sizes.min_bytes, options->sizes.max_bytes,
                                           options->sizes.step_bytes, options->sizes.step_factor);
    if (run->list.keys > 0 && options->measures.overlap)
        rows = (options->repeats.warmups + options->repeats.iterations) * options->played.n_buckets;
    run->work.rows = options->repeats.cycles * tables * rows;
    twill_status status = TWILL_OK;
    for (int type = types.first; type <= types.last; type++)
        for (int op = ops.first; op <= ops.last; op++)
            for (int root = roots.first; root <= roots.last; root++)
                if (status == TWILL_OK && twill_bench_op_takes((twill_op)op, (twill_type)type))
                    status = run_sizes(run, (twill_type)type, (twill_op)op, root);
    return status;
}

/* Measure the table as often as -N says. Then rank 0 prints the footer, or with --csv the number of
 * wrong measurements, if any. Returns STATUS_GOOD, or STATUS_FAILED if there were any or after a
 * failure, at which it stops. */
static int run_cycles(struct twill_bench_run *run)
{
    twill_bench_progress_begin(&run->work.progress, run->world_rank == 0);
    size_t cycles = run->options.repeats.cycles;
    for (size_t cycle = 0; cycles == 0 || cycle < cycles; cycle++) {
        twill_status status = run_table(run);
        if (status != TWILL_OK)
            return fail_run(run, status);
    }
    twill_bench_progress_clear(&run->work.progress);
    if (run->world_rank == 0 && run->options.report.csv && run->results.failures > 0)
        fprintf(stderr, "twill-bench: wrong values: %zu\n", run->results.failures);
    if (run->world_rank == 0 && !run->options.report.csv) {
        char program[64];
        const char *rail;
        for (size_t i = 0; (rail = twill_comm_rail(run->comm, i)) != NULL; i++)
            printf("# %s\n", rail);
        snprintf(program, sizeof(program), "twill-bench %s",
                 twill_bench_facts(run->options.collective)->name);
        twill_bench_print_footer(stdout, run->results.failures,
                                 run->results.bandwidth / (double)run->results.measured, program);
    }
    return run->results.failures > 0 ? STATUS_FAILED : STATUS_GOOD;
}

/* Make run->comm the group of this rank. All groups are measured at the same time (--split). */
static twill_status split_groups(struct twill_bench_run *run)
{
    int level = twill_bench_level(run->options.split), rank = twill_comm_rank(run->world);
    if (level >= 0)
        return twill_comm_split_level(&run->comm, run->world, (twill_level)level, rank);
    size_t groups = 1;
    (void)twill_bench_parse_number(run->options.split, 1, 65535, &groups);
    return twill_comm_split(&run->comm, run->world, rank % (int)groups, rank);
}

/* Sum two arrays of floats, and add the delay of --reduce-delay to run->sums.owed. Once more than a
 * millisecond is owed, sleep for all of it. What is less is left to later calls. */
static void add_slowly(const void *left, const void *right, void *result, size_t count,
                       twill_type type, void *user)
{
    const float *a = left, *b = right;
    float *sum = result;
    struct twill_bench_run *run = user;
    (void)type;
    run->sums.owed +=
        (double)(count * sizeof(float)) / 1024 * (double)run->options.measures.delay * 1e-9;
    if (run->sums.owed > 1e-3) {
        struct timespec pause = {.tv_sec = (time_t)run->sums.owed};
        pause.tv_nsec = (long)((run->sums.owed - (double)pause.tv_sec) * 1e9);
        double before = twill_bench_now();
        nanosleep(&pause, NULL);
        run->sums.owed -= twill_bench_now() - before;
    }
    for (size_t i = 0; i < count; i++)
        sum[i] = a[i] + b[i];
}

/* Make a second context and communicator of all ranks, run->sums.strict_context and .strict, for
 * --reproducible. `settings` are strings "NAME=VALUE", with NULL after the last. Collective. */
static twill_status connect_strictly(struct twill_bench_run *run, const char *const *settings)
{
    twill_bootstrap bootstrap = twill_bench_bootstrap(run->world);
    twill_status status = twill_context_create(&run->sums.strict_context, &bootstrap, settings);
    return status == TWILL_OK ? twill_comm_create(&run->sums.strict, run->sums.strict_context)
                              : status;
}

/* Make the context, communicators and operations of a run, and note the rank's place in it. Also
 * gathers the places of all ranks and, with --energy, finds the counters. Collective. */
static twill_status ranks_connect(struct twill_bench_run *run)
{
    char timeout[48], algorithm[512], gradients[512];
    const char *settings[] = {NULL, NULL, NULL, NULL, NULL};
    int given = 0;
    if (run->options.settings.timeout > 0) {
        snprintf(timeout, sizeof(timeout), "TWILL_TIMEOUT=%zu", run->options.settings.timeout);
        settings[given++] = timeout;
    }
    if (run->options.settings.algorithm != NULL) {
        snprintf(algorithm, sizeof(algorithm), "TWILL_ALGORITHM=%s",
                 run->options.settings.algorithm);
        settings[given++] = algorithm;
    }
    if (run->options.settings.gradients != NULL) {
        snprintf(gradients, sizeof(gradients), "TWILL_GRADIENTS=%s",
                 run->options.settings.gradients);
        settings[given++] = gradients;
    }
    twill_status status = twill_context_create(&run->context, NULL, settings);
    if (status == TWILL_OK)
        status = twill_comm_create(&run->world, run->context);
    run->comm = run->world;
    settings[given] = "TWILL_REPRODUCIBLE=1";
    if (status == TWILL_OK && run->options.measures.reproducible)
        status = connect_strictly(run, settings);
    if (status == TWILL_OK && run->options.measures.narrow >= 0)
        status = twill_op_create_narrow(run->context, &run->sums.narrow,
                                        (twill_type)run->options.measures.narrow, NULL, NULL);
    if (status == TWILL_OK && run->options.measures.delay > 0)
        status = twill_op_create(run->context, &run->sums.slow, add_slowly, run, 0, 1);
    if (status == TWILL_OK && run->options.split != NULL)
        status = split_groups(run);
    if (status != TWILL_OK)
        return status;
    run->rank = twill_comm_rank(run->comm);
    run->size = twill_comm_size(run->comm);
    run->world_rank = twill_comm_rank(run->world);
    run->world_size = twill_comm_size(run->world);
    TWILL_BENCH_TRY(twill_bench_locate(run));
    return run->options.measures.energy ? twill_bench_energy_open(run) : TWILL_OK;
}

/* Check the root, and open the file of -J on rank 0. Rank 0 prints what is wrong. *outcome is an
 * exit status, equal on all ranks. Returns the status of its exchange. Collective. */
static twill_status agree_options(struct twill_bench_run *run, int argc, char **argv,
                                  int32_t *outcome)
{
    *outcome = STATUS_GOOD;
    if (run->options.root >= run->size) {
        if (run->world_rank == 0)
            fprintf(stderr, "twill-bench: -r/--root: rank %d does not exist among %d ranks\n",
                    run->options.root, run->size);
        *outcome = STATUS_USAGE;
    } else if (run->world_rank == 0 && run->options.report.output != NULL &&
               !twill_bench_json_open(run, argc, argv)) {
        *outcome = STATUS_FAILED;
    }
    return twill_allreduce(run->world, outcome, outcome, 1, TWILL_I32, TWILL_MAX);
}

/* Return whether this process may print errors before ranks are known, because RANK is 0 or not
 * set. */
static bool may_print(void)
{
    const char *rank = getenv("RANK");
    return rank == NULL || strcmp(rank, "0") == 0;
}

/* Run twill-bench. Returns 0, 1 after a failure or wrong values, or 2 for a wrong command line. */
int main(int argc, char **argv)
{
    struct twill_bench_run run = {0};
    if (argc > 1 && fabric_find(argv[1]) >= 0)
        return fabric_main(argc, argv, may_print());
    if (argc > 1 && strcmp(argv[1], "train") == 0)
        return twill_study_train(argc - 1, argv + 1, may_print());
    enum twill_parsed parsed = twill_bench_parse(&run.options, argc, argv, may_print());
    if (parsed != TWILL_PARSED_RUN)
        return parsed == TWILL_PARSED_DONE ? STATUS_GOOD : STATUS_USAGE;
    if (run.options.calibration != NULL)
        return twill_bench_calibrate(run.options.calibration, run.options.sizes.max_bytes);
    if (run.options.kernels != NULL)
        return twill_bench_kernels(&run.options);

    int32_t outcome = STATUS_GOOD;
    setvbuf(stdout, NULL, _IOLBF, 0);
    twill_status status = ranks_connect(&run);
    if (status == TWILL_OK && run.options.list != NULL)
        status = twill_bench_share_list(&run, &outcome);
    if (status == TWILL_OK && outcome == STATUS_GOOD)
        status = allocate_buffers(&run);
    if (status == TWILL_OK && outcome == STATUS_GOOD)
        status = agree_options(&run, argc, argv, &outcome);
    if (status != TWILL_OK) {
        outcome = fail_run(&run, status);
    } else if (outcome == STATUS_GOOD) {
        if (run.world_rank == 0)
            print_start(&run);
        outcome = run_cycles(&run);
        if (!twill_bench_json_close(&run))
            outcome = STATUS_FAILED;
    }
    release_buffers(&run);
    return outcome;
}
