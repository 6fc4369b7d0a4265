/* SPDX-License-Identifier: Apache-2.0 */
/* twill-info --threads. */
#ifndef TWILL_BENCH_PRINT_THREADS_H
#define TWILL_BENCH_PRINT_THREADS_H

#include "lib/twill.h"

/* Print where the communication threads of a gradient set run, as a tree, rank after rank, on rank
 * 0. Collective. Returns an exit status. */
int twill_bench_print_threads(twill_comm *comm, int threads);

#endif
