/* SPDX-License-Identifier: Apache-2.0 */
/* What twill-bench computes and prints, without communication: sizes, bandwidths, statistics and
 * the table of nccl-tests. Pure functions, tested in tests/unit/bench. */
#ifndef TWILL_REPORT_H
#define TWILL_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Return seconds on the monotonic clock. */
double twill_bench_now(void);

/* Parse "8", "4K", "1.5M", "2G" (binary, either case) as bytes. Returns false if it is invalid or
 * too large. */
bool twill_bench_parse_size(const char *text, size_t *bytes);

/* Parse a decimal number from min to max. */
bool twill_bench_parse_number(const char *text, size_t min, size_t max, size_t *number);

/* Return the next size: times the factor if that is above 1, else plus the step; SIZE_MAX on
 * overflow. */
size_t twill_bench_next_size(size_t bytes, size_t step, size_t factor);

/* Return how many sizes there are from min to max. */
size_t twill_bench_count_sizes(size_t min, size_t max, size_t step, size_t factor);

/* Return GB/s (1e9 bytes), or 0 if no time has passed. */
double twill_bench_bandwidth(size_t bytes, double seconds);

struct twill_bench_statistics {
    double min, max, mean, median, p99;
    double cv; /* standard deviation, percent of the mean */
};

/* Of n >= 1 samples, which are sorted in place. p99 is the nearest rank. */
struct twill_bench_statistics twill_bench_statistics(double *samples, size_t n);

/* Format a number in `width` characters, with fewer decimals the larger it is, as nccl-tests
 * does. */
void twill_bench_format_number(double value, int width, char *text, size_t bytes);

/* --energy: what all machines of the job used in the timed calls. */
struct twill_bench_energy {
    size_t machines, ranks; /* machines 0: not asked for */
    bool known;
    double seconds, joules, watts; /* watts: the sum of the machines' means */
    double cpu, memory;            /* joules of these parts; below 0: unknown */
};

/* One half of a row: out of place or in place. Times in seconds per operation. */
struct twill_bench_timing {
    double seconds;
    double first; /* the first call at this size, not part of the average */
    double algorithm_bandwidth, bus_bandwidth;
    int64_t wrong;                      /* elements over all ranks; -1: not checked */
    struct twill_bench_statistics each; /* over iterations, with -I */
    bool missing;                       /* there is no such half */
    /* --overlap: a call with computing between start and wait */
    double overall, compute, overlap; /* seconds, seconds, percent */
    double waiting, wire;             /* --times: seconds of it for the last rank, for data */
    double reproducible;              /* --reproducible: seconds */
    double narrow, narrow_bytes;      /* --narrow: seconds; bytes sent, of those of the call */
    struct twill_bench_energy energy;
};

/* Return the percentage of a call that is hidden behind computing, as OSU defines it. */
double twill_bench_overlap(double overall, double compute, double pure);

struct twill_bench_row {
    size_t bytes, count;
    const char *type, *op;
    int root;
    struct twill_bench_timing out_of_place, in_place;
};

/* Columns beyond those of nccl-tests. */
struct twill_bench_columns {
    bool each, overlap, times, reproducible, narrow, energy;
};
/* Print as comma-separated values: a line of names, then a line per row. */
void twill_bench_csv_header(FILE *out, struct twill_bench_columns columns);
void twill_bench_csv_row(FILE *out, const struct twill_bench_row *row,
                         struct twill_bench_columns columns);
void twill_bench_print_header(FILE *out, struct twill_bench_columns columns);
void twill_bench_print_row(FILE *out, const struct twill_bench_row *row,
                           struct twill_bench_columns columns);
/* Return joules of a machine and its mean watts, then those of a rank: its share of its machine's,
 * averaged over the ranks. */
struct twill_bench_shares {
    double machine_joules, machine_watts, rank_joules, rank_watts;
};
struct twill_bench_shares twill_bench_shares(const struct twill_bench_energy *energy);
/* Return what is left of a call's time beside waiting for the last rank and for data. */
double twill_bench_stack(const struct twill_bench_timing *timing);
/* Print the table of a --list step: a row per key, in place, and one for the whole step, which has
 * the columns of `each`. */
void twill_bench_print_step_header(FILE *out, bool each);
void twill_bench_print_step_row(FILE *out, const char *key, const struct twill_bench_row *row,
                                bool each);
void twill_bench_print_footer(FILE *out, size_t failures, double bandwidth, const char *program);

#endif
