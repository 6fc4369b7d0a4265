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

/* A step of n ranks, with times in seconds. In weak scaling every rank has `batch` samples. In
 * strong scaling all have them together, and a rank has its share, rounded up. */
struct twill_study_step {
    bool strong;
    size_t ranks, batch;
    double seconds; /* T(n) */
    double alone;   /* T(1) with this batch, below 0 if unknown */
};

/* Return the samples of a rank in a step. In strong scaling it is its share of the batch, rounded
 * up. */
size_t twill_study_rank_batch(bool strong, size_t ranks, size_t batch);
/* Return the samples of all ranks together in a step. In strong scaling it is the batch. */
size_t twill_study_total_batch(bool strong, size_t ranks, size_t batch);
/* Return the number of steps in an epoch, each of which has one synchronisation. It is `samples`
 * divided by the samples of all ranks in a step (twill_study_total_batch()), rounded up. */
size_t twill_study_steps(const struct twill_study_step *step, size_t samples);

/* Return the samples per second of all ranks, or 0 if the time of the step is unknown. */
double twill_study_throughput(const struct twill_study_step *step);
/* Compute T(1) / T(n), times n in weak scaling, and that over n. Returns false if T(1) or T(n) is
 * unknown. */
bool twill_study_speedup(const struct twill_study_step *step, double *speedup, double *efficiency);
/* Set *seconds to the time of a step beyond that of one rank, step->seconds - step->alone. In
 * strong scaling step->alone is first multiplied by the share of the batch that a rank has. Returns
 * false if step->alone is unknown. */
bool twill_study_overhead(const struct twill_study_step *step, double *seconds);
/* Return the difference of two times in percent of the larger one, or 0 if both are 0. */
double twill_study_apart(double one, double other);
/* Return the share of a step that is exposed communication, or 0 if `seconds` is 0. */
double twill_study_share(double exposed, double seconds);
/* Return how many times faster a step of `seconds` is without its `exposed` communication, or 0 if
 * it is nothing else. */
double twill_study_limit(double exposed, double seconds);

/* A predicted bucket, ready at this time of the backward pass, and its seconds of reduction. */
struct twill_study_bucket {
    double ready, seconds;
};

/* Return the seconds by which buckets, reduced one after the other, outlast the backward pass. */
double twill_study_predict_exposed(const struct twill_study_bucket *buckets, size_t n,
                                   double backward);

/* Return the sum of the bytes that a root sends and receives in a step, 2 * bytes * (ranks - 1). It
 * sends parameters of `bytes` bytes to each other rank and receives their gradients. */
double twill_study_root_bytes(double bytes, size_t ranks);
/* Return 2 * bytes * (ranks - 1) / ranks, the bytes that a rank sends in the cheapest allreduce of
 * `bytes` bytes. It also receives this number of bytes, which is not added. */
double twill_study_ring_bytes(double bytes, size_t ranks);

enum { TWILL_STUDY_MOST = 32 }; /* values of an option */

/* The values of an option that is a list. */
struct twill_study_values {
    size_t value[TWILL_STUDY_MOST], n;
};

/* The ranks that reduce. They are all ranks, with a gradient set, or a root, which broadcasts
 * parameters before and reduces gradients after computing, as DataParallel of PyTorch does. */
enum twill_study_pattern { TWILL_STUDY_ALLREDUCE, TWILL_STUDY_ROOT, TWILL_STUDY_PATTERNS };

/* The command line, set by twill_study_parse(). With `core` the core of the rank computes,
 * otherwise a device beside it. `machine` names the machine model of predictions, NULL for this
 * machine. `gflops` is the speed of what computes, and `samples` those of an epoch, 0 if not
 * given. */
struct twill_study_options {
    const char *list, *machine, *sysfs, *output, *plot, *algorithm;
    struct twill_study_values ranks; /* if none, 1, 2, 4, ... and all */
    struct twill_study_values batches;
    struct twill_study_values compute_us; /* if none, computed from gflops */
    size_t gflops, samples, iterations, warmups;
    size_t per_node; /* ranks of a node beyond the job, 0 for as many as its fullest node has */
    bool scaling[2]; /* weak, strong */
    bool pattern[TWILL_STUDY_PATTERNS];
    bool core, csv, energy;
};

/* The phases of a row, whose energy is measured. Computing and communication are made alone. */
enum twill_study_phase {
    TWILL_STUDY_STEP,
    TWILL_STUDY_COMPUTING,
    TWILL_STUDY_COMMUNICATION,
    TWILL_STUDY_PHASES
};

/* A line of the report. Times are in seconds. Rank 0 keeps the lines until the end. */
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
    struct twill_bench_run run;   /* job, list and meters; run.comm has the measured ranks */
    struct twill_bench_step play; /* the training step of the measured ranks */
    void *model;                  /* for TWILL_STUDY_ROOT, memory for parameters, then gradients */
    bool linear;                 /* in TWILL_STUDY_ROOT, rank 0 exchanges with each rank directly */
    double *samples[2];          /* [iterations] seconds of steps, and exposed seconds */
    struct twill_json_file json; /* of -J, on rank 0, path is NULL without it */
    size_t fullest;              /* ranks of the fullest node of the job */
    struct twill_study_bucket *buckets; /* [keys] of the prediction in progress */
    struct twill_study_row *rows;
    size_t n_rows;
};

/* Run twill-bench train. Prints errors of the command line if `speak`. Returns an exit status. */
int twill_study_train(int argc, char **argv, bool speak);

/* Parse the words after "train". Returns RUN, DONE after help, or USAGE, with why if `speak`. */
enum twill_parsed twill_study_parse(struct twill_study_options *options, int argc, char **argv,
                                    bool speak);

/* Select the first `ranks` ranks of the job for the next rows. study->run.comm is then their
 * communicator, and study->play.set their gradient set. If the pattern with a root was requested,
 * they also get study->model, zeroed. Other ranks get a communicator of the rest and no set.
 * run.rank and run.size are those of the communicator. Begins with twill_study_close(), which the
 * caller calls again at the end, also after a failure. Collective over the job. */
twill_status twill_study_open(struct twill_study *study, size_t ranks);
/* Destroy the set, memory and communicator that twill_study_open() made, if there are any. */
void twill_study_close(struct twill_study *study);
/* Measure a row for each pattern, scaling, batch and computing time of the options, with `ranks`
 * ranks. If the job has that many, twill_study_open() must have selected them. Otherwise predict
 * the rows, with the gradient set that it made for fewer ranks. Rank 0 keeps the rows in
 * study->rows. Collective over the job. */
twill_status twill_study_measure(struct twill_study *study, size_t ranks);

/* Set row->model to the time of a step by the price model. If row->predicted, also set the nodes
 * and times of the row by it. For rank 0 only, which keeps the rows. Uses the buckets of
 * study->play.set and the times of study->play.forward. */
void twill_study_predict(struct twill_study *study, struct twill_study_row *row);
/* Return the ranks per node of jobs larger than this one. */
size_t twill_study_per_node(const struct twill_study *study);

/* Print the rows and, except with --csv, the settings. */
void twill_study_print(const struct twill_study *study, FILE *out);
/* Write the rows to the JSON and close it. Returns false after a message on failure. */
bool twill_study_json(struct twill_study *study);
/* Draw speed-up and efficiency of the rows as the SVG file `path` by gnuplot. Returns false after a
 * message on failure, also without a row of one rank. */
bool twill_study_plot(const struct twill_study *study, const char *path);

#endif
