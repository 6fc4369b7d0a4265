/* SPDX-License-Identifier: Apache-2.0 */
/* Measure where the time of a training is spent, and print a table over all ranks. */
#ifndef TWILL_PHASES_EXAMPLE_H
#define TWILL_PHASES_EXAMPLE_H

#include <stddef.h>
#include <twill.h>

/* A row of the table. */
struct example_phase {
    const char *name;
    double seconds;   /* on this rank */
    const char *note; /* printed at the end of the row, or NULL */
};

/* Return the seconds of a monotonic clock. */
double example_now(void);
/* Sleep for that many milliseconds. */
void example_sleep(size_t ms);

/* Print a row for each of up to 16 phases on rank 0, with the least, the mean and the most seconds
 * over the ranks. Collective. */
twill_status example_print_phases(twill_comm *comm, const struct example_phase *phases, size_t n);

#endif
