/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a context. twill_say() (lib/base/base.h) writes the lines. */
#ifndef TWILL_LOG_H
#define TWILL_LOG_H

#include "lib/job/context.h"

#include <limits.h>

/* Have twillrun print warnings, once for all ranks, if it has started this process and both have
 * the same standard error. */
void twill_log_find_launcher(struct twill_log *log);
/* Set the level and open the file of the configuration. Call it again once the rank is known, to
 * open a file with %r in its name. Returns TWILL_ERR_CONFIG if the file cannot be opened. */
twill_status twill_log_open(struct twill_context *context);
void twill_log_close(struct twill_context *context);
/* Expand %h, %p, %r and %% of a file's name. Returns NULL, or what is wrong with the pattern. */
const char *twill_log_name_file(const struct twill_log *log, const char *pattern,
                                char path[PATH_MAX]);

/* Log the notes since the last call. Those of twill_context_note(), which all ranks of a node have
 * alike, are logged by its first rank at level info and by the others at debug; those of
 * twill_context_note_rank() by all at info. */
void twill_log_notes(struct twill_context *context);
/* Log the variables that are not at their defaults. */
void twill_log_process(struct twill_context *context);

#endif
