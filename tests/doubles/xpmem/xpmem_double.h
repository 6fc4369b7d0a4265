/* SPDX-License-Identifier: Apache-2.0 */
/* How tests inspect the double of libxpmem, and make it refuse. */
#ifndef TWILL_XPMEM_DOUBLE_H
#define TWILL_XPMEM_DOUBLE_H

#include <limits.h>

#define XPMEM_DOUBLE_API __attribute__((visibility("default")))

struct xpmem_double {
    int segments, permits, attachments; /* existing now */
    int most_attachments, attaches;     /* at a time; ever */
};
XPMEM_DOUBLE_API void xpmem_double_count(struct xpmem_double *now);
/* Reset the counters; refuse to attach after this many times. */
XPMEM_DOUBLE_API void xpmem_double_reset(int attaches);
#define XPMEM_DOUBLE_NEVER INT_MAX

#endif
