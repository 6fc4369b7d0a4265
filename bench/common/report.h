/* SPDX-License-Identifier: Apache-2.0 */
/* What twill-bench computes and prints, apart from any communication: sizes, bandwidths, statistics
 * and the table of nccl-tests. Pure, so that a unit test can pin it. */
#ifndef TWILL_REPORT_H
#define TWILL_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Seconds on the monotonic clock. */
double twill_bench_now(void);

/* Bytes from "8", "4K", "1.5M", "2G" (binary, either case). False if it is none, or too large. */
bool twill_bench_parse_size(const char *text, size_t *bytes);

/* A decimal number in min..max, and nothing else. */
bool twill_bench_parse_number(const char *text, size_t min, size_t max, size_t *number);

/* The size after this one: times the factor if that is above 1, else plus the step; SIZE_MAX at the
 * end of the number range. */
size_t twill_bench_next_size(size_t bytes, size_t step, size_t factor);

/* How many sizes lie in min..max. */
size_t twill_bench_count_sizes(size_t min, size_t max, size_t step, size_t factor);

/* GB/s (1e9 bytes); 0 when no time passed. */
double twill_bench_bandwidth(size_t bytes, double seconds);

struct twill_bench_statistics {
    double min, max, mean, median, p99;
    double cv; /* standard deviation in percent of the mean */
};

/* Of n >= 1 samples, which are sorted in place. p99 is the nearest rank. */
struct twill_bench_statistics twill_bench_statistics(double *samples, size_t n);

/* A number in width characters, losing decimals as it grows, as nccl-tests prints it. */
void twill_bench_format_number(double value, int width, char *text, size_t bytes);

/* One half of a row: out of place or in place. Times in seconds for one operation. */
struct twill_bench_timing {
    double seconds;
    double first; /* the very first call at this size, not part of the average */
    double algorithm_bandwidth, bus_bandwidth;
    int64_t wrong;                      /* elements over all ranks, -1: not checked */
    struct twill_bench_statistics each; /* over iterations, with -I */
    bool missing;                       /* there is no such half */
    /* --overlap: a call begun, computing for as long as it takes alone, waiting for it */
    double overall, compute, overlap; /* seconds, seconds, percent */
    double reproducible;              /* --reproducible: seconds */
};

/* How much of a call was hidden behind computing, in percent, as OSU counts it. */
double twill_bench_overlap(double overall, double compute, double pure);

struct twill_bench_row {
    size_t bytes, count;
    const char *type, *op;
    int root;
    struct twill_bench_timing out_of_place, in_place;
};

/* What a table shows besides the columns of nccl-tests. */
struct twill_bench_columns {
    bool each, overlap, reproducible;
};
/* The same for programs: a line of names, then a line a row. */
void twill_bench_csv_header(FILE *out, struct twill_bench_columns columns);
void twill_bench_csv_row(FILE *out, const struct twill_bench_row *row,
                         struct twill_bench_columns columns);
void twill_bench_print_header(FILE *out, struct twill_bench_columns columns);
void twill_bench_print_row(FILE *out, const struct twill_bench_row *row,
                           struct twill_bench_columns columns);
/* The same for a step of --list: a key or the whole step a row, in place; `each` for the latter. */
void twill_bench_print_step_header(FILE *out, bool each);
void twill_bench_print_step_row(FILE *out, const char *key, const struct twill_bench_row *row,
                                bool each);
void twill_bench_print_footer(FILE *out, size_t failures, double bandwidth, const char *program);

#endif
