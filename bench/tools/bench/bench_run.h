/* SPDX-License-Identifier: Apache-2.0 */
/* One run of twill-bench, with the state and functions that its files share. */
#ifndef TWILL_BENCH_RUN_H
#define TWILL_BENCH_RUN_H

#include "bench/common/energy.h"
#include "bench/common/gradient_list.h"
#include "bench/common/progress_line.h"
#include "bench/common/tool_calls.h"
#include "bench/tools/bench/bench_collective.h"
#include "bench/tools/bench/bench_options.h"

struct json_object;

/* Where a rank runs, for the header and the JSON, an entry of run->places. Ranks exchange it as
 * plain bytes. */
struct twill_bench_place {
    int32_t rank, node, local_rank, pid;
    uint64_t boot_id; /* hash of the boot id of the kernel, equal where clocks can be compared */
    char host[64];
};

/* The buffers of a rank, and what is kept of each iteration, until the end of the run. */
struct twill_bench_memory {
    void *allocated[2];                 /* send, receive */
    char *buffers[2];                   /* aligned addresses in them */
    double *samples;                    /* one per iteration */
    struct twill_bench_vectors vectors; /* counts and offsets of vector calls */
};

/* The second context and operations that --reproducible, --narrow and --reduce-delay need. */
struct twill_bench_sums {
    twill_context *strict_context; /* with --reproducible, a second context of all ranks, which */
    twill_comm *strict;            /* has TWILL_REPRODUCIBLE=1 */
    twill_op narrow;               /* --narrow */
    twill_op slow;                 /* --reduce-delay */
    double owed;                   /* seconds that slow has not slept yet */
};

/* The state of --energy on a rank. */
struct twill_bench_meters {
    struct twill_energy_meter *own; /* on the first rank of a machine with counters, else NULL */
    char says[1024];                /* what they are, or why there are none */
    size_t machines, count;         /* machines of the job, and those with counters */
};

/* The progress of the run. A unit of it is the measurement of a row out of place or in place or,
 * with --list, an iteration. */
struct twill_bench_work {
    size_t rows_done, rows; /* units done, and all units or 0 if unknown */
    struct twill_bench_progress progress;
};

/* The results of a run so far, on each rank. A row of the table has two measurements, out of place
 * and in place. */
struct twill_bench_results {
    size_t failures, measured; /* measurements with wrong values, and all */
    double bandwidth;          /* sum of the bus bandwidths of all, in GB/s */
    struct json_object *json;  /* on rank 0 with -J */
    FILE *json_file;
};

/* The state of a run on one rank, on the stack of main(). */
struct twill_bench_run {
    struct twill_bench_options options;
    twill_context *context;
    twill_comm *world, *comm; /* all ranks, and those measured together (--split) */
    int rank, size;           /* in comm */
    int world_rank, world_size;
    struct twill_bench_place *places; /* of every rank */
    bool one_clock;                   /* all ranks run under one kernel */
    struct twill_bench_memory memory;
    struct twill_bench_sums sums;
    struct twill_bench_list list; /* keys of --list */
    struct twill_bench_row *step; /* a row for each key, then one for the whole step */
    double *step_seconds;         /* and their times */
    twill_request *persistent;    /* the call being timed with --form persistent */
    unsigned round;               /* number of checks, so that no payload is used twice */
    struct twill_bench_meters meters;
    struct twill_bench_work work;
    struct twill_bench_results results;
};

/* Return a call of the run's collective, out of place, with `count` elements of a shard. Operation
 * and root are not used if the collective has none. */
struct twill_bench_subject twill_bench_subject(const struct twill_bench_run *run, twill_type type,
                                               twill_op op, int root, size_t count);
/* Return a row for a subject, without results. */
struct twill_bench_row twill_bench_row(const struct twill_bench_subject *subject);

/* Return what an iteration reads and writes. Addresses shift with the iteration. */
struct twill_bench_pointers twill_bench_place(const struct twill_bench_run *run,
                                              const struct twill_bench_subject *subject,
                                              size_t iteration);
/* Make the call of an iteration, and a barrier after it with --blocking. */
twill_status twill_bench_call(struct twill_bench_run *run,
                              const struct twill_bench_subject *subject, size_t iteration);
/* Replace each of the `n` times in `seconds` by one for all ranks of the group. By -a that is the
 * time of rank 0, or the mean, least or largest of all ranks. With several groups (--split), it is
 * then the largest of all groups. Collective over all ranks. */
twill_status twill_bench_combine(struct twill_bench_run *run, double *seconds, size_t n);
/* Split the seconds into waiting for the last rank, for data, and the rest. The shares are averages
 * over the ranks in all calls since `before` was read. Collective. */
twill_status twill_bench_split_time(struct twill_bench_run *run, const twill_counters *before,
                                    struct twill_bench_timing *timing);
/* Set both bandwidths of timing by its seconds for a message of `bytes`. */
void twill_bench_rate(const struct twill_bench_run *run, size_t bytes,
                      struct twill_bench_timing *timing);
/* Prepare the buffers for a check. The result gets bytes of 0xFF, and then what the call reads gets
 * the values of `round`, a number that no other check has. */
void twill_bench_prepare(const struct twill_bench_run *run,
                         const struct twill_bench_subject *subject, unsigned round);
/* Count the wrong elements of a result after a call whose buffers twill_bench_prepare() filled for
 * `round`. Adds those of all ranks to timing->wrong. Collective. */
twill_status twill_bench_count(struct twill_bench_run *run,
                               const struct twill_bench_subject *subject, unsigned round,
                               struct twill_bench_timing *timing);
/* Zero the buffers. Timing reduces them repeatedly, and zeros never become denormal. */
void twill_bench_clear(const struct twill_bench_run *run,
                       const struct twill_bench_subject *subject);
/* Count `done` more units of work and show on a terminal what is measured. */
void twill_bench_show_progress(struct twill_bench_run *run, const char *what, size_t done);

/* Measure and check calls of `bytes` bytes, those of all shards together, rounded down to whole
 * elements. They are out of place and, if the collective has that form, in place. Stores both in
 * the row. Collective. */
twill_status twill_bench_measure(struct twill_bench_run *run, twill_type type, twill_op op,
                                 int root, size_t bytes, struct twill_bench_row *row);
/* Measure the barrier twice, as if out of place and in place, and store both in the row. Checks it
 * only if all ranks have the same clock. Collective. */
twill_status twill_bench_measure_barrier(struct twill_bench_run *run, struct twill_bench_row *row);

/* Time team calls by the threads of --team, and the same calls by one thread of each rank between
 * two meetings of its threads. Stores the seconds of both in *timing, and checks the team calls.
 * Collective. */
twill_status twill_bench_time_team(struct twill_bench_run *run,
                                   const struct twill_bench_subject *subject,
                                   struct twill_bench_timing *timing);

/* Read the file of --list on rank 0 and broadcast it, so that run->list has its tensors on every
 * rank. Sets the sizes in the options to the bytes of a buffer for all of them. They are 0 if a
 * gradient set has the memory. If the file cannot be used, rank 0 prints why, and *outcome is set
 * to exit status 2 on all ranks. Collective. */
twill_status twill_bench_share_list(struct twill_bench_run *run, int32_t *outcome);
/* Measure a step, which is all keys of the list, in place, last first. Results are in run->step. */
twill_status twill_bench_measure_step(struct twill_bench_run *run, twill_type type, twill_op op,
                                      int root);

/* Gather where each rank is into `places`, and whether all share a clock. Collective. */
twill_status twill_bench_locate(struct twill_bench_run *run);
/* Print on which host and node each rank is, for up to 64 ranks. */
void twill_bench_print_places(FILE *out, const struct twill_bench_run *run);

/* Find the counters of each machine (--energy), and set run->meters. It is no failure if there are
 * none. `places` must be known. Collective over world. */
twill_status twill_bench_energy_open(struct twill_bench_run *run);
/* Read the counters into *from, before the barrier with which the timed calls begin. Without
 * --energy or a meter, or after a failure, from->known is false. */
void twill_bench_energy_begin(struct twill_bench_run *run, struct twill_energy_reading *from);
/* Read the counters after the calls and set *energy to that of all machines, which is known only if
 * it is of each machine. Without --energy its `machines` is 0. Collective. */
twill_status twill_bench_energy_end(struct twill_bench_run *run,
                                    const struct twill_energy_reading *from,
                                    struct twill_bench_energy *energy);

/* Print which counters are read, on how many machines. */
void twill_bench_print_energy_source(FILE *out, const struct twill_bench_run *run);
/* Print the energy of a step. */
void twill_bench_print_energy(FILE *out, const struct twill_bench_energy *energy);

/* Create the file of -J or, if that exists, the first of FILE.0, FILE.1 ... that does not. Prints
 * its name and begins the JSON. Returns false after a message on failure. */
bool twill_bench_json_open(struct twill_bench_run *run, int argc, char **argv);
/* Add a row to the JSON, if there is one. */
void twill_bench_json_row(struct twill_bench_run *run, const struct twill_bench_row *row);
/* Add the results of a step of --list to the JSON, if one is written. The object has those of each
 * tensor in the order in which they are reduced. */
void twill_bench_json_step(struct twill_bench_run *run);
/* Add failures, bandwidth, errors and the end time to the JSON, write it and close it, if there is
 * one. Returns false after a message on failure. */
bool twill_bench_json_close(struct twill_bench_run *run);

#endif
