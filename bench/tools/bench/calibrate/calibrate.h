/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench --calibrate FILE: measure this machine and write a file for TWILL_TUNING. */
#ifndef TWILL_CALIBRATE_H
#define TWILL_CALIBRATE_H

#include "bench/common/progress_line.h"
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

/* One call on a communicator; src and dst are as large as the whole message. */
typedef twill_status (*twill_bench_timed_fn)(twill_comm *comm, void *src, void *dst, size_t count,
                                             twill_type type);
/* Measure the median time of a call in seconds, the maximum over the ranks. `joins`: calls back to
 * back, else each after a barrier. */
twill_status twill_bench_time_calls(struct twill_bench_calibration *c, twill_comm *comm,
                                    twill_bench_timed_fn call, void *src, void *dst, size_t count,
                                    twill_type type, bool joins, double *seconds);

#endif
