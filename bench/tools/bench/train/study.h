/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench train, a scaling study of a training step whose computing is played. */
#ifndef TWILL_STUDY_H
#define TWILL_STUDY_H

#include "bench/common/json_file.h"
#include "bench/tools/bench/bench_run.h"
#include "bench/tools/bench/steps/played_step.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The formulas of a scaling study. Pure functions, tested in tests/unit/bench. */

/* A step of n ranks, with times in seconds. In weak scaling every rank has `batch` samples. In
 * strong scaling all have them together, and a rank has its share, rounded up. */
struct twill_study_step {
    bool strong;
    size_t ranks, batch;
    double seconds; /* T(n) */
    double alone;   /* T(1) with this batch, below 0 if unknown */
};

/* Return the samples of a rank, and of all ranks together, in a step. */
size_t twill_study_rank_batch(bool strong, size_t ranks, size_t batch);
size_t twill_study_total_batch(bool strong, size_t ranks, size_t batch);
/* Return how many steps, and synchronisations, an epoch of `samples` has. */
size_t twill_study_steps(const struct twill_study_step *step, size_t samples);

/* Return the samples per second. */
double twill_study_throughput(const struct twill_study_step *step);
/* Compute T(1) / T(n) in strong scaling, n T(1) / T(n) in weak scaling, and the efficiency, which
 * is this over n. Returns false without T(1). */
bool twill_study_speedup(const struct twill_study_step *step, double *speedup, double *efficiency);
/* Compute the time of a step beyond that of one rank. In weak scaling it is T(n) - T(1), in strong
 * scaling T(n) - T(1) b / batch with b samples of the rank. Returns false without T(1). */
bool twill_study_overhead(const struct twill_study_step *step, double *seconds);
/* Return the difference of two times in percent of the larger one, or 0 if both are 0. */
double twill_study_apart(double one, double other);
/* Return the share of a step that is exposed communication, and the factor by which the step would
 * be faster without it, 1 / (1 - share). */
double twill_study_share(double exposed, double seconds);
double twill_study_limit(double exposed, double seconds);

/* A bucket of a predicted step, with the time in the backward pass at which its reduction may
 * start, and the time that it takes. */
struct twill_study_bucket {
    double ready, seconds;
};

/* Return the time of the buckets, reduced one after the other, that the backward pass of `backward`
 * seconds does not hide. */
double twill_study_predict_exposed(const struct twill_study_bucket *buckets, size_t n,
                                   double backward);

/* Return the bytes that the root sends and receives in a step for gradients of `bytes`. They are 2
 * bytes (P - 1) if it sends all parameters to each rank and receives their gradients, as
 * DataParallel of PyTorch does. The second function is for an allreduce that sends the least, which
 * sends and receives 2 bytes (P - 1) / P each. */
double twill_study_root_bytes(double bytes, size_t ranks);
double twill_study_ring_bytes(double bytes, size_t ranks);

enum { TWILL_STUDY_MOST = 32 }; /* values of an option */

/* The values of an option that is a list. */
struct twill_study_values {
    size_t value[TWILL_STUDY_MOST], n;
};

/* The ranks that reduce. They are all ranks, with a gradient set, or a root, which broadcasts
 * parameters before and reduces gradients after computing, as DataParallel of PyTorch does. */
enum twill_study_pattern { TWILL_STUDY_ALLREDUCE, TWILL_STUDY_ROOT, TWILL_STUDY_PATTERNS };

/* The command line, set by twill_study_parse(). */
struct twill_study_options {
    const char *list, *machine, *sysfs, *output, *plot, *algorithm;
    struct twill_study_values ranks; /* if none, 1, 2, 4, ... and all */
    struct twill_study_values batches;
    struct twill_study_values compute_us; /* if none, computed from gflops */
    size_t gflops, samples, iterations, warmups;
    /* ranks of a node beyond the job, or 0 for those of the fullest node of the job */
    size_t per_node;
    bool scaling[2]; /* weak, strong */
    bool pattern[TWILL_STUDY_PATTERNS];
    bool core, csv, energy;
};

/* The phases of a row whose energy is measured, each as often as the others. They are the step, its
 * computing alone, and its communication alone. */
enum twill_study_phase {
    TWILL_STUDY_STEP,
    TWILL_STUDY_COMPUTING,
    TWILL_STUDY_COMMUNICATION,
    TWILL_STUDY_PHASES
};

/* One line of the report. Times are in seconds. */
struct twill_study_row {
    enum twill_study_pattern pattern;
    struct twill_study_step step;
    size_t compute_us; /* as given, or 0 to compute it from gflops */
    size_t nodes;
    bool predicted;       /* by the price model, else measured */
    double compute;       /* of the step of a rank */
    double communication; /* alone, with nothing computed, below 0 if unknown */
    double exposed;       /* by the counter of the library, or predicted by the model */
    double exposed_alone; /* the same with one rank, whose set waits for wake-ups and copies */
    double model;         /* the step by the price model, below 0 if it has no price */
    double root;          /* bytes that rank 0 sends (ALLREDUCE), or that the root sends and
                             receives (ROOT), below 0 if unknown */
    struct twill_bench_energy energy[TWILL_STUDY_PHASES];
};

/* The state of a study on each rank. Used by one thread. */
struct twill_study {
    struct twill_study_options options;
    /* the job, the list and the meters; run.comm has the measured ranks */
    struct twill_bench_run run;
    struct twill_bench_step play; /* the step of the measured ranks */
    void *model;        /* memory of the pattern with a root, for parameters, then gradients */
    bool linear;        /* its root exchanges with each rank directly */
    double *samples[2]; /* [iterations] seconds of steps, and exposed seconds */
    struct twill_json_file json;        /* of -J, on rank 0, path is NULL without it */
    size_t fullest;                     /* ranks of the fullest node of the job */
    struct twill_study_bucket *buckets; /* [keys] of the prediction in progress */
    struct twill_study_row *rows;
    size_t n_rows;
};

/* Run the command (study_train.c). Errors of the command line are printed if `speak` is set.
 * Returns an exit status. */
int twill_study_train(int argc, char **argv, bool speak);

/* Parse the arguments after "train" (study_options.c). */
enum twill_parsed twill_study_parse(struct twill_study_options *options, int argc, char **argv,
                                    bool speak);

/* Open the first `ranks` ranks of the job as study->run.comm, and their set (study_measure.c). */
twill_status twill_study_open(struct twill_study *study, size_t ranks);
void twill_study_close(struct twill_study *study);
/* Measure all rows of the open ranks, or let the price model predict them if `ranks` is beyond the
 * job. Collective over the job. Rows are kept on rank 0. */
twill_status twill_study_measure(struct twill_study *study, size_t ranks);

/* Set row->model by the price model and, if the row is predicted, what follows from it, on one rank
 * (study_predict.c). Uses the buckets of study->play.set and the times of study->play.forward. */
void twill_study_predict(struct twill_study *study, struct twill_study_row *row);
/* Return the ranks per node of jobs larger than this one. */
size_t twill_study_per_node(const struct twill_study *study);

/* Write the results on rank 0 (study_report.c). The last two return whether the file was written,
 * after a message if not. twill_study_json() closes it. */
void twill_study_print(const struct twill_study *study, FILE *out);
bool twill_study_json(struct twill_study *study);
bool twill_study_plot(const struct twill_study *study, const char *path);

#endif
