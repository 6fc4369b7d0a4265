/* SPDX-License-Identifier: Apache-2.0 */
/* What TWILL_LOG=info and debug tell: what was decided, and each call. The lines themselves are
 * written by twill_say() (lib/base.h). */
#ifndef TWILL_LOG_H
#define TWILL_LOG_H

#include "lib/comm/comm.h"

/* Take the level and the file from the configuration. To be called when that is loaded, and again
 * when the rank is known: a file with %r in its name is opened then. */
twill_status twill_log_open(struct twill_context *context);
void twill_log_close(struct twill_context *context);

/* Tell what twill_context_note() has noted since the last time: of the machine (the first `common`
 * lines) once a node. */
void twill_log_notes(struct twill_context *context, unsigned common);
/* Variables that are set. */
void twill_log_process(struct twill_context *context);
/* A new communicator: what was noted, its ranks, its hierarchy and what carries its messages. */
void twill_log_comm(struct twill_comm *comm);

/* comm->last was chosen for a call: told once for each plan and power of two of bytes, by the first
 * rank of each node, because nodes may differ. */
void twill_log_choice_once(struct twill_comm *comm, const struct twill_select_request *request,
                           const struct twill_choice *choice);
static inline void twill_log_choice(struct twill_comm *comm,
                                    const struct twill_select_request *request,
                                    const struct twill_choice *choice)
{
    if (TWILL_UNLIKELY(twill_log_enabled(&comm->context->log, TWILL_LOG_INFO)))
        twill_log_choice_once(comm, request, choice);
}

/* Level debug (comm->traced): a request begins, and is complete. */
void twill_log_begin(const struct twill_request *request);
void twill_log_end(const struct twill_request *request, twill_status status);

#endif
