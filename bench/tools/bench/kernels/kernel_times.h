/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench kernels times the kernels of the best instruction set of this machine against the
 * scalar ones and against memory bandwidth, on one core. */
#ifndef TWILL_KERNEL_TIMES_H
#define TWILL_KERNEL_TIMES_H

#include "bench/tools/bench/bench_options.h"

/* Time all kernels, or those whose name contains options->kernels, and print a table. If
 * options->report.output is set, also write JSON. Returns an exit status. */
int twill_bench_kernels(const struct twill_bench_options *options);

#endif
