/* SPDX-License-Identifier: Apache-2.0 */
/* twill-info --job: what the ranks of a running job do. */
#ifndef TWILL_PRINT_JOB_H
#define TWILL_PRINT_JOB_H

#include "lib/twill_job.h"

#include <stdbool.h>

/* A line of a view, cut at its tabs; missing fields are "". */
#define TWILL_JOB_FIELDS 17
struct twill_job_line {
    char text[1024];
    const char *field[TWILL_JOB_FIELDS];
};
/* Cut line `index`. Returns false behind the last one. */
bool twill_job_split(const twill_job_view *view, size_t index, struct twill_job_line *line);

struct twill_job_options {
    const char *name;     /* PID or program */
    bool json;            /* as JSON instead of text */
    const char *recorder; /* prefix of files in the flight recorder's format; NULL: none */
    size_t events;        /* last events of each rank to print */
};
/* Look and print. Returns an exit status. */
int twill_job_print(const struct twill_job_options *options);

/* bench/tools/info/flight_recorder.c. Write a file for each rank, PREFIX and the rank, as PyTorch's
 * flight recorder does. Returns an exit status. */
int twill_job_record(const twill_job_view *view, const char *prefix);

#endif
