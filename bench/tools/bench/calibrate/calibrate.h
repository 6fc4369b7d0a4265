/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench --calibrate FILE: measure this machine and write a file for TWILL_TUNING. */
#ifndef TWILL_CALIBRATE_H
#define TWILL_CALIBRATE_H

#include "bench/common/progress_line.h"
#include "bench/tools/bench/bench_collective.h"
#include "lib/twill.h"

#include <stdbool.h>
#include <stdio.h>

/* Measure algorithms at sizes up to max_bytes, over the ranks of this job; rank 0 writes. Returns
 * an exit status. */
int twill_bench_calibrate(const char *path, size_t max_bytes);

/* The state of a calibration on one rank. */
struct twill_bench_calibration {
    twill_context *context; /* of the environment: answers queries, and carries the exchange */
    twill_comm *comm;
    int rank, size;
    size_t max_bytes;
    FILE *file; /* rank 0: the text of the file to be */
    char *text;
    size_t bytes;
    double *samples; /* [TWILL_BENCH_SAMPLES] */
    struct twill_bench_progress progress;
    size_t done, total; /* measurements: an algorithm of a collective at a size */
};
#define TWILL_BENCH_SAMPLES 2000

/* calibrate_links.c: measure the model's messages and reductions. */
twill_status twill_bench_calibrate_links(struct twill_bench_calibration *c);

/* Return a sum, or a call with root 0, of a message of `bytes`. */
struct twill_bench_subject twill_bench_calibrated(const struct twill_bench_calibration *c,
                                                  size_t collective, twill_type type, size_t bytes);
/* Measure the median time of a call in seconds, the maximum over the ranks: calls back to back, or
 * each after a barrier if it has a root. Buffers are as large as the whole message. */
twill_status twill_bench_time_calls(struct twill_bench_calibration *c, twill_comm *comm,
                                    const struct twill_bench_subject *subject,
                                    struct twill_bench_pointers at, double *seconds);

#endif
