/* SPDX-License-Identifier: Apache-2.0 */
/* Exit statuses of the tools, and their calls into twill. */
#ifndef TWILL_TOOL_CALLS_H
#define TWILL_TOOL_CALLS_H

#include "lib/twill.h"

enum { STATUS_GOOD = 0, STATUS_FAILED = 1, STATUS_USAGE = 2 };

/* Return the status of the call unless it is TWILL_OK. */
#define TWILL_BENCH_TRY(call)                                                                      \
    do {                                                                                           \
        twill_status try_status_ = (call);                                                         \
        if (try_status_ != TWILL_OK)                                                               \
            return try_status_;                                                                    \
    } while (0)

/* Return why a call failed, the message of the communicator, else of the context, else the text of
 * the status. `comm` and `context` may be NULL. */
const char *twill_bench_why(const twill_comm *comm, const twill_context *context,
                            twill_status status);

/* Return a bootstrap that can set up another context for all ranks of a communicator. */
twill_bootstrap twill_bench_bootstrap(twill_comm *comm);

#endif
