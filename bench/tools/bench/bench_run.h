/* SPDX-License-Identifier: Apache-2.0 */
/* One run of twill-bench: the state and functions that its files share. */
#ifndef TWILL_BENCH_RUN_H
#define TWILL_BENCH_RUN_H

#include "bench/common/energy.h"
#include "bench/common/gradient_list.h"
#include "bench/common/progress_line.h"
#include "bench/common/tool_calls.h"
#include "bench/tools/bench/bench_collective.h"
#include "bench/tools/bench/bench_options.h"

struct json_object;

/* A rank in the header and the JSON; plain bytes, as ranks exchange it. */
struct twill_bench_place {
    int32_t rank, node, local_rank, pid;
    uint64_t boot_id; /* hash of the kernel's boot id: equal where clocks can be compared */
    char host[64];
};

/* The buffers of a rank, and what is kept of each iteration. */
struct twill_bench_memory {
    void *allocated[2];                 /* send, receive */
    char *buffers[2];                   /* aligned addresses in them */
    double *samples;                    /* one per iteration */
    struct twill_bench_vectors vectors; /* counts and offsets of vector calls */
};

/* Sums of another kind than the one that is timed. */
struct twill_bench_sums {
    twill_context *strict_context; /* --reproducible: a second context of all ranks, */
    twill_comm *strict;            /* with TWILL_REPRODUCIBLE=1 */
    twill_op narrow;               /* --narrow */
    twill_op slow;                 /* --reduce-delay */
    double owed;                   /* seconds that it has not slept yet */
};

/* --energy */
struct twill_bench_meters {
    struct twill_energy_meter *own; /* on the first rank of a machine that has counters, */
    char says[1024];                /* what they are; or why there are none */
    size_t machines, count;         /* of the job; those with counters */
};

/* How far the run is. */
struct twill_bench_work {
    size_t rows_done, rows; /* halves of rows, or steps; rows 0: unknown */
    struct twill_bench_progress progress;
};

/* Results so far. */
struct twill_bench_results {
    size_t failures, measured; /* halves of rows with wrong values; halves in all */
    double bandwidth;          /* sum of bus bandwidths */
    struct json_object *json;  /* rank 0 with -J */
    FILE *json_file;
};

struct twill_bench_run {
    struct twill_bench_options options;
    twill_context *context;
    twill_comm *world, *comm; /* all ranks; those measured together (--split) */
    int rank, size;           /* in comm */
    int world_rank, world_size;
    struct twill_bench_place *places; /* of every rank */
    bool one_clock;                   /* all ranks run under one kernel */
    struct twill_bench_memory memory;
    struct twill_bench_sums sums;
    struct twill_bench_list list; /* --list: its keys, */
    struct twill_bench_row *step; /* a row for each key, then one for the whole step, */
    double *step_seconds;         /* and their times */
    twill_request *persistent;    /* --form persistent: the call being timed */
    unsigned round;               /* of checks, so that no payload is used twice */
    struct twill_bench_meters meters;
    struct twill_bench_work work;
    struct twill_bench_results results;
};

struct twill_bench_subject twill_bench_subject(const struct twill_bench_run *run, twill_type type,
                                               twill_op op, int root, size_t count);
/* Return a row for a subject, without results. */
struct twill_bench_row twill_bench_row(const struct twill_bench_subject *subject);

/* Return the buffers of an iteration. */
struct twill_bench_pointers twill_bench_place(const struct twill_bench_run *run,
                                              const struct twill_bench_subject *subject,
                                              size_t iteration);
twill_status twill_bench_call(struct twill_bench_run *run,
                              const struct twill_bench_subject *subject, size_t iteration);
/* Combine the ranks' times as -a says. */
twill_status twill_bench_combine(struct twill_bench_run *run, double *seconds, size_t n);
/* Split the seconds into waiting for the last rank, for data, and the rest, by the shares that
 * these had, on average over the ranks, in all calls since `before` was read. Collective. */
twill_status twill_bench_split_time(struct twill_bench_run *run, const twill_counters *before,
                                    struct twill_bench_timing *timing);
/* Compute the bandwidths from the seconds. */
void twill_bench_rate(const struct twill_bench_run *run, size_t bytes,
                      struct twill_bench_timing *timing);
/* A check: fill the buffers with values of this round, which must be unique; make the call; add the
 * number of wrong elements to timing->wrong. */
void twill_bench_prepare(const struct twill_bench_run *run,
                         const struct twill_bench_subject *subject, unsigned round);
twill_status twill_bench_count(struct twill_bench_run *run,
                               const struct twill_bench_subject *subject, unsigned round,
                               struct twill_bench_timing *timing);
/* Zero the buffers: timing reduces them repeatedly, and zeros never become denormal. */
void twill_bench_clear(const struct twill_bench_run *run,
                       const struct twill_bench_subject *subject);
/* Count one more unit of work and update the progress line on a terminal. */
void twill_bench_show_progress(struct twill_bench_run *run, const char *what);

/* Measure one size; fills both halves of the row. */
twill_status twill_bench_measure(struct twill_bench_run *run, twill_type type, twill_op op,
                                 int root, size_t bytes, struct twill_bench_row *row);
/* Measure the barrier, which has one row. */
twill_status twill_bench_measure_barrier(struct twill_bench_run *run, struct twill_bench_row *row);

/* Rank 0 reads the list and broadcasts it. *outcome is an exit status, equal on all ranks. */
twill_status twill_bench_share_list(struct twill_bench_run *run, int32_t *outcome);
/* Measure a step: all keys of the list, in place, last first; results go to run->step. */
twill_status twill_bench_measure_step(struct twill_bench_run *run, twill_type type, twill_op op,
                                      int root);

/* Fill in `places`. Collective. */
twill_status twill_bench_locate(struct twill_bench_run *run);
void twill_bench_print_places(FILE *out, const struct twill_bench_run *run);

/* --energy: find the counters of each machine of the job, after the places are
 * known. Collective over the world. */
twill_status twill_bench_energy_open(struct twill_bench_run *run);
/* Read the counters: before the barrier that the timed calls begin with, */
void twill_bench_energy_begin(struct twill_bench_run *run, struct twill_energy_reading *from);
/* and after the calls; add up what all machines have used. Collective over the world. */
twill_status twill_bench_energy_end(struct twill_bench_run *run,
                                    const struct twill_energy_reading *from,
                                    struct twill_bench_energy *energy);

/* Print what is read, and of how many machines; and the energy of a step. */
void twill_bench_print_energy_source(FILE *out, const struct twill_bench_run *run);
void twill_bench_print_energy(FILE *out, const struct twill_bench_energy *energy);

/* -J: open the file (false, after a message, on failure), add rows, write it. */
bool twill_bench_json_open(struct twill_bench_run *run, int argc, char **argv);
void twill_bench_json_row(struct twill_bench_run *run, const struct twill_bench_row *row);
void twill_bench_json_step(struct twill_bench_run *run);
bool twill_bench_json_close(struct twill_bench_run *run);

#endif
