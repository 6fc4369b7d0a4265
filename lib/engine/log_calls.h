/* SPDX-License-Identifier: Apache-2.0 */
/* Calls in the log: choices of algorithms at TWILL_LOG=info, every call at debug. */
#ifndef TWILL_LOG_CALLS_H
#define TWILL_LOG_CALLS_H

#include "lib/comm/comm.h"

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
