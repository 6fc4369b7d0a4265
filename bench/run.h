/* SPDX-License-Identifier: Apache-2.0 */
/* One run of twill-bench: what its files share. */
#ifndef TWILL_BENCH_RUN_H
#define TWILL_BENCH_RUN_H

#include "bench/options.h"
#include "bench/payload.h"

struct json_object;

/* A rank as the header and the JSON name it; plain bytes, so that ranks can send it. */
struct twill_bench_place {
    int32_t rank, node, local_rank, pid;
    uint64_t boot; /* hash of the machine's boot id: equal where clocks can be compared */
    char host[64];
};

struct twill_bench_run {
    struct twill_bench_options options;
    twill_context *context;
    twill_comm *comm;
    int rank, size;
    struct twill_bench_place *places; /* of every rank */
    bool one_clock;                   /* all ranks run under one kernel */
    void *blocks[2];                  /* what was allocated: send, receive */
    char *buffers[2];                 /* aligned within */
    double *samples;                  /* one for each iteration */
    unsigned round;                   /* of checks, so that no payload comes twice */
    size_t rows_done, rows;           /* halves of rows; rows 0: unknown */
    double started, shown;            /* seconds: the run, the last progress line */
    bool progress;
    size_t failures, measured; /* halves of rows with wrong values; halves in all */
    double bandwidth;          /* sum of bus bandwidths */
    struct json_object *json;  /* rank 0 with -J */
    FILE *json_file;
};

/* Seconds on the monotonic clock. */
double twill_bench_now(void);

/* Measure one size; both halves of the row. */
twill_status twill_bench_measure(struct twill_bench_run *run, twill_type type, twill_op op,
                                 int root, size_t bytes, struct twill_bench_row *row);
/* The only row of a barrier. */
twill_status twill_bench_measure_barrier(struct twill_bench_run *run, struct twill_bench_row *row);

/* Work out `places`: collective. */
twill_status twill_bench_locate(struct twill_bench_run *run);
void twill_bench_print_places(FILE *out, const struct twill_bench_run *run);

/* -J: open the file (false and a message if that fails), add rows, write it out. */
bool twill_bench_json_open(struct twill_bench_run *run, int argc, char **argv);
void twill_bench_json_row(struct twill_bench_run *run, const struct twill_bench_row *row);
bool twill_bench_json_close(struct twill_bench_run *run);

#endif
