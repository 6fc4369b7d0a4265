/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of a view of a running job, cut into fields, and all of them as JSON. */
#ifndef TWILL_JOB_JSON_H
#define TWILL_JOB_JSON_H

#include "lib/twill_job.h"

#include <stdbool.h>

#define TWILL_INFO_FIELDS 18
/* A line and its fields, which tabs separate. Missing ones are "". twill_info_cut() fills it. */
struct twill_info_line {
    char text[4096];
    const char *field[TWILL_INFO_FIELDS];
};
/* Copy a line and cut it into fields. Returns false, with *line unchanged, if the text is NULL. */
bool twill_info_cut(const char *text, struct twill_info_line *line);
/* Return whether the line is of a kind, which is its first field. */
bool twill_info_is(const struct twill_info_line *line, const char *kind);

/* Return the view as a JSON object that the caller owns, with the job and arrays of ranks, calls,
 * what they did lately, events and findings. */
struct json_object *twill_job_json(const twill_job_view *view);

#endif
