/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the tools into twill, one after the other. */
#ifndef TWILL_TRY_H
#define TWILL_TRY_H

/* Return what is not TWILL_OK. */
#define TWILL_BENCH_TRY(call)                                                                      \
    do {                                                                                           \
        twill_status try_status_ = (call);                                                         \
        if (try_status_ != TWILL_OK)                                                               \
            return try_status_;                                                                    \
    } while (0)

#endif
