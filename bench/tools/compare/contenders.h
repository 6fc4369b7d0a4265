/* SPDX-License-Identifier: Apache-2.0 */
/* How contenders are found and started. */
#ifndef TWILL_CONTENDERS_H
#define TWILL_CONTENDERS_H

#include "bench/tools/compare/remote_hosts.h"

/* The programs of which contenders are variants. Those of peers are compiled when a comparison
 * runs, so that building twill needs none of the libraries. */
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
    char why[2 * TWILL_COMPARE_TEXT + 64]; /* why it is missing; "": it is not */
    char preload[2 * TWILL_COMPARE_PATH];  /* library to load before the MPI; "": none */
};

struct twill_compare_entry {
    const char *name; /* NAME+...: as NAME, with our library before the MPI */
    enum twill_compare_program program;
    const char *options;   /* of the launcher */
    const char *arguments; /* of the program */
    const char *setting;
    bool tunes; /* allocates in calls, so that a tuned variant makes sense */
    bool rare;  /* only if --persistent or --peers asks for it */
    const char *memory;
};

/* Fill in the command line and environment that start a contender, on one host or on several. */
void twill_compare_command_of(struct twill_compare_run *run,
                              const struct twill_compare_entry *entry,
                              const struct twill_compare_built *built,
                              struct twill_compare_contender *contender);

#endif
