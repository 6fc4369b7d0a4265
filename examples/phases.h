/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a training goes: a table of phases, over all ranks. */
#ifndef TWILL_PHASES_EXAMPLE_H
#define TWILL_PHASES_EXAMPLE_H

#include <stddef.h>
#include <twill.h>

struct example_phase {
    const char *name;
    double seconds;   /* on this rank */
    const char *note; /* behind the row, or NULL */
};

/* Return seconds on a clock that only goes forward. */
double example_now(void);
void example_sleep(size_t ms);

/* Print a row for each phase on rank 0: least, mean and most over the ranks. Up to 16 phases;
 * collective. */
twill_status example_print_phases(twill_comm *comm, const struct example_phase *phases, size_t n);

#endif
