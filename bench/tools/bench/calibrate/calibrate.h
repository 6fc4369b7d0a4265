/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench --calibrate FILE measures this machine and writes a file for TWILL_TUNING. */
#ifndef TWILL_CALIBRATE_H
#define TWILL_CALIBRATE_H

#include <stddef.h>

/* Measure links, and algorithms at messages of up to max_bytes, on the ranks of the job. Rank 0
 * then writes the new file `path`. Returns STATUS_GOOD or, after a message, STATUS_FAILED. */
int twill_bench_calibrate(const char *path, size_t max_bytes);

#endif
