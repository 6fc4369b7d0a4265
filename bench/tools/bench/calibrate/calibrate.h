/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench --calibrate FILE measures this machine and writes a file for TWILL_TUNING. */
#ifndef TWILL_CALIBRATE_H
#define TWILL_CALIBRATE_H

#include <stddef.h>

/* Measure algorithms at sizes up to max_bytes on all ranks. Returns an exit status. */
int twill_bench_calibrate(const char *path, size_t max_bytes);

#endif
