/* SPDX-License-Identifier: Apache-2.0 */
/* A training step whose computing is played: --list with --overlap. */
#ifndef TWILL_PLAYED_STEP_H
#define TWILL_PLAYED_STEP_H

#include "bench/tools/bench/bench_run.h"
#include "bench/tools/compare/peers/played_compute.h"
#include "lib/twill_train.h"

/* How a step is made: a part of it alone, one after the other, or overlapped with the waits before
 * the forward pass or, tensor by tensor, in it. */
enum twill_bench_way {
    TWILL_BENCH_COMPUTE_ALONE,
    TWILL_BENCH_REDUCE_ALONE,
    TWILL_BENCH_REDUCE_AFTER,
    TWILL_BENCH_OVERLAPPED,
    TWILL_BENCH_WAIT_BY_TENSOR,
    TWILL_BENCH_WAYS
};

/* A model's step over the ranks of run->comm. Used by one thread. */
struct twill_bench_step {
    struct twill_bench_run *run;
    twill_gradients *set;
    struct played_compute compute;
    double *forward;                   /* [keys] seconds; the backward pass takes twice as long */
    double *samples[TWILL_BENCH_WAYS]; /* [iterations] seconds of a step */
    double hidden;       /* the set's seconds_exposed when a device had done the backward pass */
    twill_status status; /* of the last test */
};

/* The results for one bucket size. Times are seconds of a step: medians over the iterations, of the
 * slowest rank in each. */
struct twill_bench_played {
    size_t bucket; /* bytes; SIZE_MAX: the library's default */
    uint64_t buckets;
    uint64_t operations, bytes, bytes_copied; /* of an overlapped step */
    double compute;                           /* alone */
    double communication;                     /* alone */
    double after;      /* all tensors are marked ready after the backward pass */
    double overlapped; /* each when its gradient is there; the forward pass waits for all */
    double by_tensor;  /* each layer of the forward pass waits for its own */
    int64_t wrong;     /* elements over all ranks; -1: not checked */
};

/* Return what is wrong with the options of a played step together, or NULL. */
const char *twill_bench_played_mistake(const struct twill_bench_options *options);
/* Register the list's tensors in a new step->set; destroy it afterwards. bucket SIZE_MAX: the
 * library's sizes. Collective over run->comm, as is the next. */
twill_status twill_bench_create_set(struct twill_bench_step *step, twill_type type, twill_op op,
                                    size_t bucket);
/* Make a step, and return what it takes on this rank. */
twill_status twill_bench_make_step(struct twill_bench_step *step, enum twill_bench_way way,
                                   double *seconds);

/* Measure a step for each bucket size, and print and add to the JSON a row for each. */
twill_status twill_bench_play_steps(struct twill_bench_run *run, twill_type type, twill_op op);
void twill_bench_print_played_header(FILE *out, const struct twill_bench_run *run);
/* json.c: add a result. */
void twill_bench_json_played(struct twill_bench_run *run, twill_type type, twill_op op,
                             const struct twill_bench_played *row);

#endif
