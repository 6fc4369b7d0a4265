/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench train: a scaling study of a training step whose computing is played. */
#ifndef TWILL_STUDY_H
#define TWILL_STUDY_H

#include "bench/common/json_file.h"
#include "bench/tools/bench/bench_run.h"
#include "bench/tools/bench/steps/played_step.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* What a scaling study computes from times of steps. Pure functions, tested in tests/unit/bench. */

/* A step of n ranks. Weak scaling: every rank has `batch` samples. Strong: all have them together,
 * and a rank its share, rounded up. Times in seconds. */
struct twill_study_step {
    bool strong;
    size_t ranks, batch;
    double seconds; /* T(n) */
    double alone;   /* T(1) with this batch; below 0: not known */
};

/* Return the samples of a rank, and of all ranks together, in a step. */
size_t twill_study_rank_batch(bool strong, size_t ranks, size_t batch);
size_t twill_study_total_batch(bool strong, size_t ranks, size_t batch);
/* Return how many steps, and synchronisations, an epoch of `samples` has. */
size_t twill_study_steps(const struct twill_study_step *step, size_t samples);

/* Samples a second. */
double twill_study_throughput(const struct twill_study_step *step);
/* Strong: T(1) / T(n). Weak: n T(1) / T(n). The efficiency is this over n. Returns false without
 * T(1). */
bool twill_study_speedup(const struct twill_study_step *step, double *speedup, double *efficiency);
/* What a step takes beyond one rank's: weak T(n) - T(1); strong T(n) - T(1) b / batch, where b is
 * the rank's samples. Returns false without T(1). */
bool twill_study_overhead(const struct twill_study_step *step, double *seconds);
/* Return how far two times are apart, in percent of the larger one; 0 if both are. */
double twill_study_apart(double one, double other);
/* Return the share of a step that is exposed communication, and how many times as fast the step
 * would be without it: 1 / (1 - share). */
double twill_study_share(double exposed, double seconds);
double twill_study_limit(double exposed, double seconds);

/* A bucket of a predicted step: its reduction may start when the backward pass has come so far, and
 * takes so long. */
struct twill_study_bucket {
    double ready, seconds;
};

/* Return what the backward pass, of `backward` seconds, does not hide of the buckets, which are
 * reduced one after the other. */
double twill_study_predict_exposed(const struct twill_study_bucket *buckets, size_t n,
                                   double backward);

/* Return the bytes that the root sends and receives in a step for gradients of `bytes`: 2 bytes (P
 * - 1) if it sends all parameters to each rank and receives their gradients, as PyTorch's
 * DataParallel does. An allreduce that sends the least moves 2 bytes (P - 1) / P, and receives as
 * much. */
double twill_study_root_bytes(double bytes, size_t ranks);
double twill_study_ring_bytes(double bytes, size_t ranks);

enum { TWILL_STUDY_MOST = 32 }; /* values of an option */

struct twill_study_values {
    size_t value[TWILL_STUDY_MOST], n;
};

/* Who reduces: all ranks by a gradient set, or a root, which broadcasts the parameters before and
 * reduces the gradients after the computing, as PyTorch's DataParallel does. */
enum twill_study_pattern { TWILL_STUDY_ALLREDUCE, TWILL_STUDY_ROOT, TWILL_STUDY_PATTERNS };

struct twill_study_options {
    const char *list, *machine, *sysfs, *output, *plot, *algorithm;
    struct twill_study_values ranks; /* none: 1, 2, 4, ... and all */
    struct twill_study_values batches;
    struct twill_study_values compute_us; /* none: by gflops */
    size_t gflops, samples, iterations, warmups;
    size_t per_node; /* ranks of a node beyond the job; 0: as many as the job's fullest node has */
    bool scaling[2]; /* weak, strong */
    bool pattern[TWILL_STUDY_PATTERNS];
    bool core, csv, energy;
};

/* What the energy of a row is known for, each made as often as the others: the step, its computing
 * alone, and its communication alone. */
enum twill_study_phase {
    TWILL_STUDY_STEP,
    TWILL_STUDY_COMPUTING,
    TWILL_STUDY_COMMUNICATION,
    TWILL_STUDY_PHASES
};

/* One line of the report. Times in seconds. */
struct twill_study_row {
    enum twill_study_pattern pattern;
    struct twill_study_step step;
    size_t compute_us; /* as given; 0: by gflops */
    size_t nodes;
    bool predicted;       /* by the price model; else measured */
    double compute;       /* of a rank's step */
    double communication; /* alone, nothing computed; below 0: not known */
    double exposed;       /* by the library's counter; predicted: by the model */
    double exposed_alone; /* the same of one rank, whose set waits for wake-ups and copies */
    double model;         /* the step by the price model; below 0: it has no price */
    double root;          /* bytes: TWILL_STUDY_ALLREDUCE: that rank 0 sends; TWILL_STUDY_ROOT: that
                             the root sends and receives; below 0: not known */
    struct twill_bench_energy energy[TWILL_STUDY_PHASES];
};

/* The study; used by one thread, on all ranks. */
struct twill_study {
    struct twill_study_options options;
    struct twill_bench_run run; /* the job, the list and the meters; run.comm: the ranks measured */
    struct twill_bench_step play; /* the step of the ranks measured */
    void *model;                  /* memory of the root's pattern: parameters, then gradients */
    bool linear;                  /* its root exchanges with each rank by itself */
    double *samples[2];           /* [iterations] seconds of steps, and exposed */
    struct twill_json_file json;  /* -J, on rank 0; path NULL: none */
    size_t fullest;               /* ranks of the job's fullest node */
    struct twill_study_bucket *buckets; /* [keys], of the prediction under way */
    struct twill_study_row *rows;
    size_t n_rows;
};

/* study_train.c: the command. speak: this rank prints errors of the command line. Returns an exit
 * status. */
int twill_study_train(int argc, char **argv, bool speak);

/* study_options.c: read the arguments behind "train". */
enum twill_parsed twill_study_parse(struct twill_study_options *options, int argc, char **argv,
                                    bool speak);

/* study_measure.c: open the first `ranks` ranks of the job: study->run.comm and their set. */
twill_status twill_study_open(struct twill_study *study, size_t ranks);
void twill_study_close(struct twill_study *study);
/* Measure all rows of the ranks that are open, or have them predicted by the price model for
 * `ranks` ranks beyond the job. Collective over the job; rows are kept on rank 0. */
twill_status twill_study_measure(struct twill_study *study, size_t ranks);

/* study_predict.c: set row->model and, if the row is predicted, what follows from it, by the price
 * model; on one rank. Buckets are those of study->play.set, times of layers study->play.forward. */
void twill_study_predict(struct twill_study *study, struct twill_study_row *row);
/* Return the ranks of a node of jobs beyond this one. */
size_t twill_study_per_node(const struct twill_study *study);

/* study_report.c: on rank 0. The last two return whether the file was written, after a message;
 * twill_study_json() closes it. */
void twill_study_print(const struct twill_study *study, FILE *out);
bool twill_study_json(struct twill_study *study);
bool twill_study_plot(const struct twill_study *study, const char *path);

#endif
