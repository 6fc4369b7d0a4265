/* SPDX-License-Identifier: Apache-2.0 */
/* A training step whose computing is played (--list with --overlap). */
#ifndef TWILL_PLAYED_STEP_H
#define TWILL_PLAYED_STEP_H

#include "bench/tools/bench/bench_run.h"
#include "bench/tools/compare/peers/played_compute.h"
#include "lib/twill_train.h"

/* The parts of a step that are made, and in which order. A part is made alone, or the parts follow
 * each other, or overlap, with waits before the forward pass or, by tensor, in it. */
enum twill_bench_way {
    TWILL_BENCH_COMPUTE_ALONE,
    TWILL_BENCH_REDUCE_ALONE,
    TWILL_BENCH_REDUCE_AFTER,
    TWILL_BENCH_OVERLAPPED,
    TWILL_BENCH_WAIT_BY_TENSOR,
    TWILL_BENCH_WAYS
};

/* The state with which a rank makes training steps of a model, whose computing is played, on the
 * ranks of run->comm. The thread that has it on its stack uses it. */
struct twill_bench_step {
    struct twill_bench_run *run;
    twill_gradients *set;
    struct played_compute compute;
    double *forward;                   /* [keys] seconds; the backward pass takes twice as long */
    double *samples[TWILL_BENCH_WAYS]; /* [iterations] seconds of a step */
    double hidden;       /* the set's seconds_exposed when a device ended the backward pass */
    twill_status status; /* of the last test of the set */
};

/* The results for one bucket size, in seconds of a step, medians of the slowest ranks. */
struct twill_bench_played {
    size_t bucket; /* bytes, SIZE_MAX for the default of the library */
    uint64_t buckets;
    uint64_t operations, bytes, bytes_copied; /* of an overlapped step */
    double compute;                           /* alone */
    double communication;                     /* alone */
    double after;      /* all tensors are marked ready after the backward pass */
    double overlapped; /* each as soon as its gradient is there; the forward pass waits for all */
    double by_tensor;  /* each layer of the forward pass waits for its own tensors */
    int64_t wrong;     /* elements over all ranks, -1 if not checked */
};

/* Return why the options of a played step cannot be combined, or NULL. */
const char *twill_bench_played_mistake(const struct twill_bench_options *options);
/* Register the tensors of the list in a new step->set, which the caller destroys. With a bucket of
 * SIZE_MAX the library chooses sizes. Collective over run->comm. */
twill_status twill_bench_create_set(struct twill_bench_step *step, twill_type type, twill_op op,
                                    size_t bucket);
/* Wait in a barrier, make a step in this way, and set *seconds to its time on this rank. Collective
 * over run->comm. */
twill_status twill_bench_make_step(struct twill_bench_step *step, enum twill_bench_way way,
                                   double *seconds);

/* Measure and check steps with each bucket size of the options. Rank 0 prints a row for each and
 * adds it to the JSON. Stops at a failure and returns it. Collective. */
twill_status twill_bench_play_steps(struct twill_bench_run *run, twill_type type, twill_op op);
/* Print the lines above the table. */
void twill_bench_print_played_header(FILE *out, const struct twill_bench_run *run);
/* Add a row to the JSON, if there is one. */
void twill_bench_json_played(struct twill_bench_run *run, twill_type type, twill_op op,
                             const struct twill_bench_played *row);

#endif
