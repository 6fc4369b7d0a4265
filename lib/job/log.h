/* SPDX-License-Identifier: Apache-2.0 */
/* The log at TWILL_LOG=info (decisions) and debug (every call). twill_say() (lib/base/base.h)
 * writes the lines. */
#ifndef TWILL_LOG_H
#define TWILL_LOG_H

#include "lib/comm/comm.h"

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
/* Log a new communicator: new notes, its ranks, its hierarchy and its transports. */
void twill_log_comm(struct twill_comm *comm);

/* Log the choice of comm->last for a call, once for each plan and power of two of bytes; at level
 * info on the first rank of each node, because nodes may differ. */
void twill_log_choice_once(struct twill_comm *comm, const struct twill_select_request *request,
                           const struct twill_choice *choice);
static inline void twill_log_choice(struct twill_comm *comm,
                                    const struct twill_select_request *request,
                                    const struct twill_choice *choice)
{
    if (TWILL_UNLIKELY(twill_log_enabled(&comm->context->log, TWILL_LOG_INFO)))
        twill_log_choice_once(comm, request, choice);
}

/* Log start and completion of a request at level debug. Called if comm->traced. */
void twill_log_begin(const struct twill_request *request);
void twill_log_end(const struct twill_request *request, twill_status status);

#endif
