/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of twill-bench, with the options of nccl-tests and some more. */
#ifndef TWILL_BENCH_OPTIONS_H
#define TWILL_BENCH_OPTIONS_H

#include "bench/common/option_table.h"
#include "bench/common/report.h"
#include "bench/tools/bench/bench_collective.h"
#include "lib/base/lists.h"
#include "lib/twill.h"

#define TWILL_BENCH_ALL (-1)

/* names for messages, each after a blank */
#define TWILL_BENCH_NAME(NOUN, name, ...) " " #name
#define TWILL_BENCH_NAMES_OF_LEVELS       TWILL_LEVELS(TWILL_BENCH_NAME, )
#define TWILL_BENCH_NAMES_OF_OPS                                                                   \
    TWILL_OPS_ARITHMETIC(TWILL_BENCH_NAME, )                                                       \
    TWILL_OPS_BITWISE(TWILL_BENCH_NAME, )                                                          \
    TWILL_OPS_LOGICAL(TWILL_BENCH_NAME, )

enum { TWILL_BENCH_BUCKETS_MOST = 32 };

/* How the times of the ranks are combined into one, as by -a of nccl-tests. */
enum twill_bench_average {
    TWILL_BENCH_RANK0,
    TWILL_BENCH_AVERAGE,
    TWILL_BENCH_MIN,
    TWILL_BENCH_MAX
};

/* Bytes of the calls, from the least to the most, by a step, or by a factor if it is above 1. */
struct twill_bench_sizes {
    size_t min_bytes, max_bytes, step_bytes, step_factor;
    bool ranged; /* one of these four was given */
};

/* How often each size is measured and checked. An iteration makes `aggregate` calls, and its time
 * is divided by that. */
struct twill_bench_repeats {
    size_t iterations, warmups, aggregate;
    size_t cycles; /* 0 for ever */
    size_t checks; /* 0 for none */
};

/* How the timed calls are made, and on which memory. */
struct twill_bench_calls {
    enum twill_bench_form form;
    bool blocking;      /* a barrier after every call */
    const char *memory; /* --memory: malloc, twill or promoted */
    bool placed;        /* --memory twill */
    size_t align;       /* bytes, of which the address of each buffer is a multiple */
    size_t unalign;     /* elements left out at the start of each buffer */
};

/* What is measured besides the time of the calls. */
struct twill_bench_measures {
    bool verify;       /* check every form of the call */
    bool overlap;      /* overlap with computing */
    bool tests;        /* with twill_test() while computing */
    bool times;        /* split the time of calls */
    bool reproducible; /* with TWILL_REPRODUCIBLE=1 */
    size_t team;       /* threads of each rank for team calls, or 0 */
    bool energy;       /* of the timed calls */
    const char *sysfs; /* where its counters are, or NULL for /sys */
    size_t delay;      /* delay of a reduction, in nanoseconds per KiB, or 0 */
    int narrow;        /* type of narrow sums, or -1 for none */
};

/* What is printed and written. */
struct twill_bench_shown {
    enum twill_bench_average average;
    bool each;          /* statistics over iterations */
    size_t each_skip;   /* iterations left out of these */
    bool csv;           /* comma-separated values */
    const char *output; /* JSON file, or NULL */
};

/* Steps whose computing is played (--list with --overlap). */
struct twill_bench_step_options {
    size_t batch, gflops;                     /* samples, and speed of what computes */
    bool device;                              /* that is a device, not the core of the rank */
    bool priority;                            /* the first layers' buckets first */
    size_t buckets[TWILL_BENCH_BUCKETS_MOST]; /* sizes to measure, SIZE_MAX for the default */
    size_t n_buckets;
    bool given; /* one of these was given */
};

/* Variables of the library for this run. */
struct twill_bench_settings {
    size_t timeout;        /* TWILL_TIMEOUT in seconds, or 0 to keep it */
    const char *algorithm; /* TWILL_ALGORITHM, or NULL */
    const char *gradients; /* TWILL_GRADIENTS, or NULL */
};

/* All options of a run, set by twill_bench_parse(). */
struct twill_bench_options {
    enum twill_bench_collective collective;
    int op, type, root;  /* or TWILL_BENCH_ALL */
    const char *list;    /* gradient list, or NULL to use sizes */
    const char *split;   /* a number of groups or a level of the machine, or NULL for all ranks */
    const char *kernels; /* time kernels whose name contains this instead, or NULL */
    const char *calibration; /* file that --calibrate writes, or NULL */
    struct twill_bench_sizes sizes;
    struct twill_bench_repeats repeats;
    struct twill_bench_calls calls;
    struct twill_bench_measures measures;
    struct twill_bench_shown report;
    struct twill_bench_step_options played;
    struct twill_bench_settings settings;
};

/* Parse argv. Returns RUN, DONE after help or version, or USAGE, with a message if `speak`. */
enum twill_parsed twill_bench_parse(struct twill_bench_options *options, int argc, char **argv,
                                    bool speak);

#endif
