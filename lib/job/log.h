/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a context. twill_say() (lib/base/base.h) writes the lines. */
#ifndef TWILL_LOG_H
#define TWILL_LOG_H

#include "lib/job/context.h"

#include <limits.h>

/* If twillrun started this process and has the same standard error, let it print the warnings. */
void twill_log_find_launcher(struct twill_log *log);
/* Set the level, and open the file of TWILL_LOG_FILE, if set. A file with %r in its name is opened
 * by a second call, once the rank is known. Returns TWILL_ERR_CONFIG if its name is wrong or it
 * cannot be opened. */
twill_status twill_log_open(struct twill_context *context);
/* Close the log file, if it is open. */
void twill_log_close(struct twill_context *context);
/* Copy `pattern`, the name of a file, to `path`. In it %h becomes the host's name, %p the process
 * number, and %% a percent sign. %r becomes the rank in the job, or -1 if that is not known yet.
 * Returns NULL, or a text that says what is wrong. */
const char *twill_log_name_file(const struct twill_log *log, const char *pattern,
                                char path[PATH_MAX]);

/* Log the notes added since the last call. The node's first rank logs those of twill_context_note()
 * at info, the others at debug. Those of twill_context_note_rank() are always at info. */
void twill_log_notes(struct twill_context *context);
/* Log each variable that is not at its default, on the first rank of a node at level info, on
 * others at level debug. Does nothing at level warn. */
void twill_log_process(struct twill_context *context);

#endif
