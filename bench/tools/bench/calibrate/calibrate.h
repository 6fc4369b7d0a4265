/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench --calibrate FILE measures this machine and writes a file for TWILL_TUNING. */
#ifndef TWILL_CALIBRATE_H
#define TWILL_CALIBRATE_H

#include <stddef.h>

/* Measure links, and algorithms up to max_bytes, on all ranks, and let rank 0 write the file.
 * Returns an exit status. */
int twill_bench_calibrate(const char *path, size_t max_bytes);

#endif
