/* SPDX-License-Identifier: Apache-2.0 */
/* What a scaling study computes from times of steps. Pure functions, tested in tests/unit/bench. */
#ifndef TWILL_STUDY_FORMULAS_H
#define TWILL_STUDY_FORMULAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
