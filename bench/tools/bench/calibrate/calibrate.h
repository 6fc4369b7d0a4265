/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench --calibrate FILE: measure this machine and write a file for TWILL_TUNING. */
#ifndef TWILL_CALIBRATE_H
#define TWILL_CALIBRATE_H

#include <stddef.h>

/* Measure algorithms at sizes up to max_bytes, over the ranks of this job; rank 0 writes. Returns
 * an exit status. */
int twill_bench_calibrate(const char *path, size_t max_bytes);

#endif
