/* SPDX-License-Identifier: Apache-2.0 */
/* twill-compare: how who takes part is found, and how he is started. */
#ifndef TWILL_CONTENDERS_H
#define TWILL_CONTENDERS_H

#include "bench/compare/remote_hosts.h"

/* Programs that contenders are variants of. Peers' are compiled when a comparison runs, so that a
 * build of twill needs none of them. */
enum twill_compare_program {
    BOUND,
    TWILL,
    OPENMPI,
    MPICH,
    GLOO,
    UCC,
    ONECCL,
    RAW,
    PINGPONG,
    PROGRAMS
};

struct twill_compare_built {
    char path[TWILL_COMPARE_PATH + 64];
    char launcher[TWILL_COMPARE_PATH];
    char why[2 * TWILL_COMPARE_TEXT + 64]; /* it is not there */
    char preload[2 * TWILL_COMPARE_PATH];  /* where the library is; "": none */
};

struct twill_compare_entry {
    const char *name; /* NAME+...: as NAME, with our library loaded before the MPI */
    enum twill_compare_program program;
    const char *options;   /* of the launcher */
    const char *arguments; /* of the program */
    const char *setting;
    bool tunes; /* it allocates per call, so that a tuned variant makes sense */
    bool rare;  /* --prepared or --peers must name it */
    const char *memory;
};

/* The command line and the environment that start it, on one host or on several. */
void twill_compare_command_of(struct twill_compare_run *run,
                              const struct twill_compare_entry *entry,
                              const struct twill_compare_built *built,
                              struct twill_compare_contender *contender);

#endif
