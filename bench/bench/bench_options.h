/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of twill-bench: nccl-tests' options, and some of its own. */
#ifndef TWILL_BENCH_OPTIONS_H
#define TWILL_BENCH_OPTIONS_H

#include "bench/bench/bench_collective.h"
#include "bench/common/report.h"
#include "lib/twill.h"

#define TWILL_BENCH_ALL (-1)

/* How times of ranks become one, as nccl-tests' -a counts them. */
enum twill_bench_average {
    TWILL_BENCH_RANK0,
    TWILL_BENCH_AVERAGE,
    TWILL_BENCH_MIN,
    TWILL_BENCH_MAX
};

struct twill_bench_options {
    enum twill_bench_collective collective;
    size_t min_bytes, max_bytes, step_bytes, step_factor;
    bool ranged; /* one of those four was given */
    size_t iterations, warmups, aggregate;
    size_t cycles; /* 0: for ever */
    size_t checks; /* 0: none */
    enum twill_bench_average average;
    int op, type, root; /* or TWILL_BENCH_ALL */
    bool blocking;      /* a barrier after every call */
    size_t timeout;     /* seconds, 0: the library's own */
    const char *output; /* JSON, or NULL */
    bool csv;           /* the table for programs */
    const char *list;   /* gradient list, or NULL: sizes as above */
    size_t unalign;     /* elements */
    bool each;          /* statistics over iterations */
    size_t each_skip;
    bool placed; /* --memory twill */
    size_t align;
    enum twill_bench_form form; /* of the calls timed */
    bool verify;                /* check every form of the call */
    bool overlap;               /* columns of calls with computing in between */
    bool tests;                 /* with twill_test() during the computing */
    bool reproducible;          /* columns of the same calls with TWILL_REPRODUCIBLE=1 */
    const char *algorithm;      /* TWILL_ALGORITHM for this run, or NULL */
    const char *calibration;    /* a file to write instead of measuring one collective, or NULL */
    const char *split;          /* NULL: all ranks; a number of groups, or a level of the machine */
};

enum twill_bench_parsed { TWILL_BENCH_RUN, TWILL_BENCH_DONE, TWILL_BENCH_USAGE };

/* Read argv. DONE: help or version were printed. USAGE: a sentence naming the argument was printed
 * to standard error (if `speak`, so that one rank of many says it). */
enum twill_bench_parsed twill_bench_parse(struct twill_bench_options *options, int argc,
                                          char **argv, bool speak);

/* The level of the machine of this name, or -1. */
int twill_bench_level(const char *text);

/* nccl-tests' name of a type: "float", ... */
const char *twill_bench_type_name(twill_type type);

#endif
