/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench kernels: time the kernels of this machine's best instruction set against the scalar
 * ones and against memory bandwidth, on one core. */
#ifndef TWILL_KERNEL_TIMES_H
#define TWILL_KERNEL_TIMES_H

#include "bench/tools/bench/bench_options.h"

/* Time all kernels, or those whose name contains options->kernels, and print a table; with
 * options->report.output write JSON as well. Returns an exit status. */
int twill_bench_kernels(const struct twill_bench_options *options);

/* kernel_cases.c: the kernels. */

/* Arrays of one kernel: up to 16, each for `count` elements. */
struct twill_bench_kernel_arrays {
    unsigned char *array[16];
    unsigned used;
};
struct twill_bench_kernel_case;
struct twill_kernels;

/* Return case number `index`, NULL past the end. */
const struct twill_bench_kernel_case *twill_bench_kernel_case_at(size_t index);
void twill_bench_kernel_name(const struct twill_bench_kernel_case *one, char *name, size_t bytes);
/* Return the bytes of memory that an element takes in all arrays, and those that a pass loads and
 * stores for it. */
double twill_bench_kernel_footprint(const struct twill_bench_kernel_case *one);
double twill_bench_kernel_moved(const struct twill_bench_kernel_case *one);
/* Lay out the arrays for `count` elements in memory of `bytes` bytes, and fill them. Returns false
 * if they do not fit. */
bool twill_bench_kernel_fill(const struct twill_bench_kernel_case *one,
                             struct twill_bench_kernel_arrays *arrays, unsigned char *memory,
                             size_t bytes, size_t count);
/* Make one pass over `count` elements. */
void twill_bench_kernel_run(const struct twill_bench_kernel_case *one,
                            const struct twill_kernels *kernels,
                            const struct twill_bench_kernel_arrays *arrays, size_t count);

#endif
