/* SPDX-License-Identifier: Apache-2.0 */
/* A job as seen from outside, with the regions of its ranks on this host and lines about them. */
#ifndef TWILL_JOB_VIEW_H
#define TWILL_JOB_VIEW_H

#include "fabric/host/processes.h"
#include "fabric/shm/node_view.h"
#include "lib/base/trace.h"
#include "lib/twill_job.h"

/* One rank's memory for one communicator, and what a view has read in it. */
struct twill_job_region {
    struct twill_node_view *view;
    const struct twill_node_owner *owner; /* part of the view's memory */
    uint64_t device, file;                /* device and inode of the memfd */
    struct twill_host_process process;    /* the owner, with pid 0 if it has ended */
    /* The last call, as twill_node_read_last_call() found it. */
    bool has_call, in_call;
    bool suspended; /* it has no events, and a look for them would make their memory */
    struct twill_call_record record;
    uint64_t entered; /* twill_ticks() at which the owner entered that call */
    double rate;      /* nanoseconds of a tick of twill_ticks(), or 0 if unknown */
};

/* A job at one moment, between twill_job_view_open() and twill_job_view_close(). */
struct twill_job_view {
    struct twill_job_region *region; /* [regions] sorted by job, communicator and rank */
    size_t regions, capacity;        /* capacity: entries that region[] has room for */
    uint64_t ticks;                  /* twill_ticks() of the snapshot */
    char **line;                     /* [lines] */
    size_t lines, line_capacity;
    bool short_of_memory; /* a line could not be added */
};

/* Append a formatted line, or set view->short_of_memory (lib/report/job_lines.c). */
void twill_job_add_line(struct twill_job_view *view, const char *format, ...) TWILL_PRINTF(2, 3);
/* Return whether no region before number `index` belongs to the same rank. */
bool twill_job_is_first(const struct twill_job_view *view, size_t index);
/* Append lines of ranks, calls, memory, what ranks did lately and up to `events` last events of
 * each region. */
void twill_job_list(struct twill_job_view *view, size_t events);
/* Append findings about ranks that are dead, stopped, behind the others, or in another call. */
void twill_job_find(struct twill_job_view *view);

#endif
