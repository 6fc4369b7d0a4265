/* SPDX-License-Identifier: Apache-2.0 */
/* The computations and tables of twill-bench, without communication. */
#ifndef TWILL_REPORT_H
#define TWILL_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Return seconds on the monotonic clock. */
double twill_bench_now(void);

/* Parse bytes such as "8", "4k", "1.5M" or "2G" (binary). Returns false if the text is wrong or it
 * is 2^62 or more. */
bool twill_bench_parse_size(const char *text, size_t *bytes);

/* Parse a decimal number from min to max. Returns false if it is anything else. */
bool twill_bench_parse_number(const char *text, size_t min, size_t max, size_t *number);

/* Return `bytes` plus the step if the factor is at most 1, else `bytes` times the factor, or 1 if
 * `bytes` is 0. On overflow, return SIZE_MAX. */
size_t twill_bench_next_size(size_t bytes, size_t step, size_t factor);

/* Return the number of sizes from min to max. Each is the one before times the factor or, if the
 * factor is at most 1, plus the step. If the factor is above 1, 0 is followed by 1. */
size_t twill_bench_count_sizes(size_t min, size_t max, size_t step, size_t factor);

/* Return the bandwidth in GB/s (1e9 bytes), or 0 if no time has passed. */
double twill_bench_bandwidth(size_t bytes, double seconds);

/* Statistics of samples, in their unit. */
struct twill_bench_statistics {
    double min, max, mean, median, p99;
    double cv; /* standard deviation in percent of the mean */
};

/* Return statistics of n >= 1 samples, which are sorted in place. p99 is the nearest rank. */
struct twill_bench_statistics twill_bench_statistics(double *samples, size_t n);

/* Write a number to `text` in `width` characters, as nccl-tests does. It has fewer decimals the
 * larger it is, and an exponent if its digits do not fit. */
void twill_bench_format_number(double value, int width, char *text, size_t bytes);

/* The energy that all machines of the job used in the timed calls (--energy). */
struct twill_bench_energy {
    size_t machines, ranks; /* machines is 0 if not asked for */
    bool known;
    /* mean seconds of a machine, joules of all, and the sum of their mean watts */
    double seconds, joules, watts;
    double cpu, memory; /* joules of these parts, below 0 if unknown */
};

/* One measurement of a row of the table, out of place or in place. Times are in seconds per
 * operation. */
struct twill_bench_timing {
    double seconds;
    double first; /* the first call at this size, which is not part of the average */
    double algorithm_bandwidth, bus_bandwidth;
    int64_t wrong;                      /* elements over all ranks, -1 if not checked */
    struct twill_bench_statistics each; /* over iterations, with -I */
    bool missing; /* it was not measured, the collective has only the other of the two */
    /* With --overlap, a call with computing, the computing alone, and the overlap in %. `seconds`
     * is then a call without computing. */
    double overall, compute, overlap;
    /* with --times, seconds of a call that wait for the last rank, and for data */
    double waiting, wire;
    double reproducible; /* seconds with --reproducible */
    double joined, team; /* with --team, seconds of a call by one thread, and of a team call */
    double narrow, narrow_bytes; /* with --narrow, seconds, and bytes sent over those of the call */
    struct twill_bench_energy energy;
};

/* Return the percentage of a `pure` call that computing hides, 0 to 100, as OSU defines it. */
double twill_bench_overlap(double overall, double compute, double pure);

/* A row of the table, a plain value. Texts are constants, `count` is in elements, `root` is -1
 * without one. */
struct twill_bench_row {
    size_t bytes, count;
    const char *type, *op;
    int root;
    struct twill_bench_timing out_of_place, in_place;
};

/* Flags of the columns that are shown beyond those of nccl-tests. `each` has the statistics of -I,
 * and the others have the names of their options. `overlap` compares calls with and without
 * computing. `times` splits the time of a call into waiting, data and the rest. `reproducible` has
 * the time with TWILL_REPRODUCIBLE=1, `team` those of threads that call together, and `narrow` the
 * time with narrow partial sums. */
struct twill_bench_columns {
    bool each, overlap, times, reproducible, team, narrow, energy;
};
/* Print the line of names above comma-separated values. */
void twill_bench_csv_header(FILE *out, struct twill_bench_columns columns);
/* Print a row as comma-separated values. */
void twill_bench_csv_row(FILE *out, const struct twill_bench_row *row,
                         struct twill_bench_columns columns);
/* Print the lines above the table. */
void twill_bench_print_header(FILE *out, struct twill_bench_columns columns);
/* Print a row of the table. */
void twill_bench_print_row(FILE *out, const struct twill_bench_row *row,
                           struct twill_bench_columns columns);
/* The energy of a job divided by the number of its machines, and by that of its ranks. */
struct twill_bench_shares {
    double machine_joules, machine_watts, rank_joules, rank_watts;
};
/* Divide the joules and watts of all machines together by the number of machines, and by the number
 * of ranks. Neither may be 0. */
struct twill_bench_shares twill_bench_shares(const struct twill_bench_energy *energy);
/* Return the time of a call without the waits for the last rank and for data, in seconds. It is 0
 * if they are longer. */
double twill_bench_stack(const struct twill_bench_timing *timing);
/* Print the titles of the table of a --list step, with the columns of `each` if true. */
void twill_bench_print_step_header(FILE *out, bool each);
/* Print a row of the table of --list. `key` is the index of a tensor, or "step" for the reductions
 * of all tensors. The figures are those of row->in_place. With `each` the row also has statistics
 * of single iterations. */
void twill_bench_print_step_row(FILE *out, const char *key, const struct twill_bench_row *row,
                                bool each);
/* Print the lines below the table. `failures` is the number of measurements with wrong values,
 * `bandwidth` the mean bus bandwidth in GB/s, as nccl-tests defines it. The last line says that the
 * test `program`, such as "twill-bench allreduce", is over. */
void twill_bench_print_footer(FILE *out, size_t failures, double bandwidth, const char *program);

#endif
