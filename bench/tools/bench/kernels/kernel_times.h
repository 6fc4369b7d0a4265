/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench kernels times kernels against scalar ones and memory bandwidth, on one core. */
#ifndef TWILL_KERNEL_TIMES_H
#define TWILL_KERNEL_TIMES_H

#include "bench/tools/bench/bench_options.h"

/* Time and print the kernels with options->kernels in their name. Returns an exit status. */
int twill_bench_kernels(const struct twill_bench_options *options);

#endif
