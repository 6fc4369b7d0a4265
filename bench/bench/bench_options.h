/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of twill-bench: nccl-tests' options, and some more. */
#ifndef TWILL_BENCH_OPTIONS_H
#define TWILL_BENCH_OPTIONS_H

#include "bench/bench/bench_collective.h"
#include "bench/common/report.h"
#include "lib/lists.h"
#include "lib/twill.h"

#define TWILL_BENCH_ALL (-1)

/* Names for messages, each after a blank. */
#define TWILL_BENCH_NAME(NOUN, name, ...) " " #name
#define TWILL_BENCH_NAMES_OF_LEVELS       TWILL_LEVELS(TWILL_BENCH_NAME, )
#define TWILL_BENCH_NAMES_OF_OPS                                                                   \
    TWILL_OPS_ARITHMETIC(TWILL_BENCH_NAME, )                                                       \
    TWILL_OPS_BITWISE(TWILL_BENCH_NAME, )                                                          \
    TWILL_OPS_LOGICAL(TWILL_BENCH_NAME, )

extern const char twill_bench_usage[]; /* the text of --help: bench_usage.c */

enum { TWILL_BENCH_BUCKETS_MOST = 32 };

/* How the ranks' times are combined into one, as by nccl-tests' -a. */
enum twill_bench_average {
    TWILL_BENCH_RANK0,
    TWILL_BENCH_AVERAGE,
    TWILL_BENCH_MIN,
    TWILL_BENCH_MAX
};

struct twill_bench_options {
    enum twill_bench_collective collective;
    size_t min_bytes, max_bytes, step_bytes, step_factor;
    bool ranged; /* one of these four was given */
    size_t iterations, warmups, aggregate;
    size_t cycles; /* 0: forever */
    size_t checks; /* 0: none */
    enum twill_bench_average average;
    int op, type, root; /* or TWILL_BENCH_ALL */
    bool blocking;      /* a barrier after every call */
    size_t timeout;     /* seconds; 0: TWILL_TIMEOUT */
    const char *output; /* JSON file, or NULL */
    bool csv;           /* print comma-separated values */
    const char *list;   /* gradient list, or NULL: sizes as above */
    size_t unalign;     /* elements */
    bool each;          /* statistics over iterations */
    size_t each_skip;
    bool placed; /* --memory twill */
    size_t align;
    enum twill_bench_form form; /* of the timed calls */
    bool verify;                /* check every form of the call */
    bool overlap;               /* measure overlap with computing */
    bool tests;                 /* with twill_test() while computing */
    bool times;                 /* split the time of calls */
    bool reproducible;          /* measure with TWILL_REPRODUCIBLE=1, too */
    bool energy;                /* measure the energy of the timed calls */
    const char *sysfs;          /* where its counters are, or NULL: /sys */
    size_t delay;               /* of a reduction, nanoseconds a KiB; 0: none */
    int narrow;                 /* measure narrow sums of this type, too; -1: not */
    const char *algorithm;      /* TWILL_ALGORITHM for this run, or NULL */
    const char *kernels;        /* instead: time kernels whose name contains this, or NULL */
    const char *gradients;      /* TWILL_GRADIENTS for this run, or NULL */
    const char *calibration;    /* file that --calibrate writes, or NULL */
    /* --list with --overlap */
    size_t batch, gflops;                     /* samples; speed of what computes */
    bool device;                              /* it is a device, not the rank's core */
    bool priority;                            /* order of the buckets */
    size_t buckets[TWILL_BENCH_BUCKETS_MOST]; /* sizes to measure; SIZE_MAX: the default */
    size_t n_buckets;
    bool played;       /* one of these was given */
    const char *split; /* NULL: all ranks; else a number of groups, or a level of the machine */
};

enum twill_bench_parsed { TWILL_BENCH_RUN, TWILL_BENCH_DONE, TWILL_BENCH_USAGE };

/* Read argv. DONE: help or version were printed. USAGE: an error that names the argument was
 * printed to standard error, if `speak` is set, so that one rank of a job prints it. */
enum twill_bench_parsed twill_bench_parse(struct twill_bench_options *options, int argc,
                                          char **argv, bool speak);

#endif
