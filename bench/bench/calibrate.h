/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench --calibrate FILE: measure this machine, and write what TWILL_TUNING reads. */
#ifndef TWILL_CALIBRATE_H
#define TWILL_CALIBRATE_H

#include "lib/twill.h"

#include <stdbool.h>
#include <stdio.h>

/* Measure with the ranks there are, algorithms at sizes up to max_bytes; rank 0 writes. An exit
 * status. */
int twill_bench_calibrate(const char *path, size_t max_bytes);

/* One rank's part in it. */
struct twill_bench_calibration {
    twill_context *context; /* by the environment: to ask why, and to meet over */
    twill_comm *comm;
    int rank, size;
    size_t max_bytes;
    FILE *file;      /* rank 0 */
    double *samples; /* TWILL_BENCH_SAMPLES */
};
#define TWILL_BENCH_SAMPLES 2000

/* bench/bench/calibrate_links.c: the model's messages and reductions. */
twill_status twill_bench_calibrate_links(struct twill_bench_calibration *c);

/* One call on a communicator; src and dst are as large as the whole message. */
typedef twill_status (*twill_bench_timed_fn)(twill_comm *comm, void *src, void *dst, size_t count,
                                             twill_type type);
/* Median time of calls in seconds, the largest of all ranks. `joins`: one after the other, else
 * each after a barrier. */
twill_status twill_bench_time_calls(struct twill_bench_calibration *c, twill_comm *comm,
                                    twill_bench_timed_fn call, void *src, void *dst, size_t count,
                                    twill_type type, bool joins, double *seconds);

#endif
