/* SPDX-License-Identifier: Apache-2.0 */
/* Error propagation for the tools' calls into twill. */
#ifndef TWILL_TRY_H
#define TWILL_TRY_H

/* Return the call's status unless it is TWILL_OK. */
#define TWILL_BENCH_TRY(call)                                                                      \
    do {                                                                                           \
        twill_status try_status_ = (call);                                                         \
        if (try_status_ != TWILL_OK)                                                               \
            return try_status_;                                                                    \
    } while (0)

#endif
