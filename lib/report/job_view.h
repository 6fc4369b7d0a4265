/* SPDX-License-Identifier: Apache-2.0 */
/* A job as seen from outside: the regions of its ranks on this host, and the lines made of them. */
#ifndef TWILL_JOB_VIEW_H
#define TWILL_JOB_VIEW_H

#include "fabric/host/processes.h"
#include "fabric/shm/node_view.h"
#include "lib/engine/trace_calls.h"
#include "lib/twill_job.h"

/* One rank's memory for one communicator. */
struct twill_job_region {
    struct twill_node_view *view;
    const struct twill_node_owner *owner; /* in it */
    uint64_t device, file;                /* of the memfd */
    struct twill_host_process process;    /* its owner; pid 0: it has ended */
    /* The last call, as twill_node_read_last_call() found it. */
    bool has_call, in_call;
    struct twill_call_record record;
    uint64_t entered; /* ticks */
    double rate;      /* nanoseconds a tick */
};

struct twill_job_view {
    struct twill_job_region *region; /* [regions] by job, communicator and rank */
    size_t regions, capacity;
    uint64_t ticks; /* of the snapshot */
    char **line;    /* [lines] */
    size_t lines, line_capacity;
    bool short_of_memory;
};

/* --- lib/report/job_lines.c --- */

/* Append a line. */
void twill_job_add_line(struct twill_job_view *view, const char *format, ...) TWILL_PRINTF(2, 3);
/* Append the lines, and the findings. */
void twill_job_list(struct twill_job_view *view, size_t events);
void twill_job_find(struct twill_job_view *view);

#endif
