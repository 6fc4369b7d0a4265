/* SPDX-License-Identifier: Apache-2.0 */
/* What twill-simulate runs and prints. */
#ifndef TWILL_SIMULATE_TOOL_H
#define TWILL_SIMULATE_TOOL_H

#include "bench/tools/simulate/simulation.h"

#include <stddef.h>

#define SIMULATE_MODES   64
#define SIMULATE_WORKERS 32

/* The command line. */
struct simulate_request {
    struct simulation_choice modes[SIMULATE_MODES];
    uint32_t workers[SIMULATE_WORKERS];
    size_t mode_count, worker_count, runs;
    struct simulation_setup setup; /* of all runs, but for mode, workers and seed */
    bool csv, json, curve, histogram;
};

/* A mode at a number of workers: the sums and means of all runs. */
struct simulate_row {
    struct simulation_setup setup;
    struct simulation_result result;
    double expected; /* time of an update by a closed form; NAN: there is none */
};

/* Parse the command line. Returns -1 to go on, or the exit status. */
int simulate_parse(struct simulate_request *request, int argc, char **argv);
/* Print rows: the table, or with `curve` or `histogram` those. */
void simulate_print(const struct simulate_request *request, const struct simulate_row *rows,
                    size_t count);

#endif
