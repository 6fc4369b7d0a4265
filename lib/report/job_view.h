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

/* Append a line. */
void twill_job_add_line(struct twill_job_view *view, const char *format, ...) TWILL_PRINTF(2, 3);
/* Is this region the first one of its rank? */
bool twill_job_is_first(const struct twill_job_view *view, size_t index);
/* Return the rank in the job of a rank of the region's communicator, -1 if it is not known. */
int twill_job_rank_of(const struct twill_job_view *view, const struct twill_job_region *region,
                      uint32_t rank);
/* Return the rank in the job that a region's owner waits for, -1: none. */
int twill_job_awaited(const struct twill_job_view *view, const struct twill_job_region *region);
/* Return the seconds since a tick of a region's owner. */
double twill_job_age(const struct twill_job_view *view, const struct twill_job_region *region,
                     uint64_t ticks);
/* Return the ticks at which the region's last call ended, 0 if that is not known; and in *bytes
 * those of its last call. */
uint64_t twill_job_last_call(const struct twill_job_region *region, uint64_t *bytes);

/* lib/report/job_lines.c, lib/report/job_findings.c: append the lines. */
void twill_job_list(struct twill_job_view *view, size_t events);
void twill_job_find(struct twill_job_view *view);

#endif
