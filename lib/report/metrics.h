/* SPDX-License-Identifier: Apache-2.0 */
/* TWILL_METRICS: calls, bytes and seconds by communicator, collective, size and algorithm, in a
 * file in the text format of Prometheus. Written by the thread whose call completes when it is
 * time, and when a communicator ends: the library has no thread for it. */
#ifndef TWILL_METRICS_H
#define TWILL_METRICS_H

#include "algorithms/select/explain.h"
#include "lib/comm/comm.h"

/* The sums of one row. Made when a run is laid out, kept until the context ends. Its communicator's
 * holder adds, any thread reads. */
struct twill_account {
    struct twill_account *next;
    uint32_t comm; /* number of the communicator */
    enum twill_collective collective;
    unsigned size; /* class, by the larger side of the call */
    char algorithm[TWILL_WHY_NAME];
    uint64_t calls, bytes;
    uint64_t ticks, waiting; /* of these, for the last rank to enter */
};

/* Begin to keep metrics if TWILL_METRICS is set and the context keeps none. */
twill_status twill_metrics_open(struct twill_context *context, struct twill_error *error);
/* Write the file. A failure is logged. Any thread may call it. Nothing without metrics. */
void twill_metrics_write(struct twill_context *context);

/* Set run->account, for a run that is laid out. */
twill_status twill_metrics_find_account(struct twill_run *run);
/* Add a call that has ended to its account. */
void twill_metrics_count(struct twill_request *request);

#endif
