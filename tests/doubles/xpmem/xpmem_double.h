/* SPDX-License-Identifier: Apache-2.0 */
/* How tests look into the double of libxpmem, and make it refuse. */
#ifndef TWILL_XPMEM_DOUBLE_H
#define TWILL_XPMEM_DOUBLE_H

#include <limits.h>

#define XPMEM_DOUBLE_API __attribute__((visibility("default")))

struct xpmem_double {
    int segments, permits, attachments; /* that there are now */
    int most_attachments, attaches;     /* at a time; ever */
};
XPMEM_DOUBLE_API void xpmem_double_count(struct xpmem_double *now);
/* Forget what was counted; from now on refuse to attach after so many times. */
XPMEM_DOUBLE_API void xpmem_double_reset(int attaches);
#define XPMEM_DOUBLE_NEVER INT_MAX

#endif
