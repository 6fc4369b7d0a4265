/* SPDX-License-Identifier: Apache-2.0 */
/* --overlap: how much of a call is hidden behind computing, defined as in OSU's nonblocking
 * benchmarks. First the pure time: the call is started and waited for at once. Then the call is
 * started, the rank computes for as long, testing the call now and then, and waits. */
#include "bench/bench/bench_run.h"

#define TESTS 16 /* calls of twill_test() while computing */

/* Compute in registers only; the result is discarded. */
static double compute(size_t turns)
{
    volatile double sink;
    double x = 1;
    for (size_t i = 0; i < turns; i++)
        x = x * 0.999999 + 1e-9;
    sink = x;
    return sink;
}

static double seconds_of(size_t turns)
{
    double start = twill_bench_now();
    (void)compute(turns);
    return twill_bench_now() - start;
}

/* Return how many turns take `seconds`, from the best of several tries. */
static size_t turns_for(double seconds)
{
    const size_t tried = 200000;
    double best = seconds_of(tried);
    for (int i = 0; i < 5; i++) {
        double again = seconds_of(tried);
        best = again < best ? again : best;
    }
    return best > 0 ? (size_t)(seconds / best * (double)tried) + 1 : 1;
}

/* Make one call, with `turns` of computing between start and wait. */
static twill_status overlap_once(struct twill_bench_run *run,
                                 const struct twill_bench_subject *subject, size_t iteration,
                                 size_t turns)
{
    twill_request *request = NULL;
    int done = 0;
    struct twill_bench_pointers at = twill_bench_place(run, subject, iteration);
    TWILL_BENCH_TRY(twill_bench_begin(subject, run->comm, at, &run->vectors,
                                      TWILL_BENCH_NONBLOCKING, &request));
    for (int test = 0; test < TESTS && turns > 0; test++) {
        (void)compute(turns / TESTS);
        if (!done && run->options.tests)
            TWILL_BENCH_TRY(twill_test(&request, &done));
    }
    return twill_wait(&request);
}

static twill_status average(struct twill_bench_run *run, const struct twill_bench_subject *subject,
                            size_t turns, double *seconds)
{
    TWILL_BENCH_TRY(twill_barrier(run->comm));
    double start = twill_bench_now();
    for (size_t i = 0; i < run->options.iterations; i++)
        TWILL_BENCH_TRY(overlap_once(run, subject, i, turns));
    *seconds = (twill_bench_now() - start) / (double)run->options.iterations;
    return twill_bench_combine(run, seconds, 1);
}

twill_status twill_bench_measure_overlap(struct twill_bench_run *run,
                                         const struct twill_bench_subject *subject,
                                         struct twill_bench_timing *timing)
{
    double pure;
    TWILL_BENCH_TRY(average(run, subject, 0, &pure));
    size_t turns = turns_for(pure);
    double start = twill_bench_now();
    for (size_t i = 0; i < run->options.iterations; i++)
        (void)compute(turns);
    timing->compute = (twill_bench_now() - start) / (double)run->options.iterations;
    TWILL_BENCH_TRY(twill_bench_combine(run, &timing->compute, 1));
    TWILL_BENCH_TRY(average(run, subject, turns, &timing->overall));
    timing->seconds = pure;
    timing->overlap = twill_bench_overlap(timing->overall, timing->compute, pure);
    return TWILL_OK;
}
