/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench --calibrate FILE measures this machine and writes a file for TWILL_TUNING. */
#ifndef TWILL_CALIBRATE_H
#define TWILL_CALIBRATE_H

#include <stddef.h>

/* Measure the job up to max_bytes, and write `path` on rank 0. Returns STATUS_GOOD or _FAILED. */
int twill_bench_calibrate(const char *path, size_t max_bytes);

#endif
