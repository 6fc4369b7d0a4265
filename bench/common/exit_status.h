/* SPDX-License-Identifier: Apache-2.0 */
/* Exit statuses of the tools, and how their calls into twill fail. */
#ifndef TWILL_EXIT_STATUS_H
#define TWILL_EXIT_STATUS_H

enum { STATUS_GOOD = 0, STATUS_FAILED = 1, STATUS_USAGE = 2 };

/* Error propagation for the tools' calls into twill. */

/* Return the call's status unless it is TWILL_OK. */
#define TWILL_BENCH_TRY(call)                                                                      \
    do {                                                                                           \
        twill_status try_status_ = (call);                                                         \
        if (try_status_ != TWILL_OK)                                                               \
            return try_status_;                                                                    \
    } while (0)

#endif
