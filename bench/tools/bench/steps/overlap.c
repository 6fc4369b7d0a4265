/* SPDX-License-Identifier: Apache-2.0 */
/* --overlap: how much of a call is hidden behind computing, defined as in OSU's nonblocking
 * benchmarks. First the pure time: the call is started and waited for at once. Then the call is
 * started, the rank computes for as long, testing the call now and then, and waits. */
#include "bench/tools/bench/bench_run.h"
#include "bench/tools/compare/peers/played_compute.h"

#define TESTS 16 /* calls of twill_test() while computing */

/* Make one call, with `turns` of computing between start and wait. */
static twill_status overlap_once(struct twill_bench_run *run,
                                 const struct twill_bench_subject *subject, size_t iteration,
                                 size_t turns)
{
    twill_request *request = NULL;
    int done = 0;
    struct twill_bench_pointers at = twill_bench_place(run, subject, iteration);
    TWILL_BENCH_TRY(twill_bench_begin(subject, run->comm, at, &run->memory.vectors,
                                      TWILL_BENCH_NONBLOCKING, &request));
    for (int test = 0; test < TESTS && turns > 0; test++) {
        played_turns(turns / TESTS);
        if (!done && run->options.measures.tests)
            TWILL_BENCH_TRY(twill_test(&request, &done));
    }
    return twill_wait(&request);
}

static twill_status average(struct twill_bench_run *run, const struct twill_bench_subject *subject,
                            size_t turns, double *seconds)
{
    TWILL_BENCH_TRY(twill_barrier(run->comm));
    double start = twill_bench_now();
    for (size_t i = 0; i < run->options.repeats.iterations; i++)
        TWILL_BENCH_TRY(overlap_once(run, subject, i, turns));
    *seconds = (twill_bench_now() - start) / (double)run->options.repeats.iterations;
    return twill_bench_combine(run, seconds, 1);
}

twill_status twill_bench_measure_overlap(struct twill_bench_run *run,
                                         const struct twill_bench_subject *subject,
                                         struct twill_bench_timing *timing)
{
    double pure;
    TWILL_BENCH_TRY(average(run, subject, 0, &pure));
    size_t turns = (size_t)(pure * played_speed()) + 1;
    double start = twill_bench_now();
    for (size_t i = 0; i < run->options.repeats.iterations; i++)
        played_turns(turns);
    timing->compute = (twill_bench_now() - start) / (double)run->options.repeats.iterations;
    TWILL_BENCH_TRY(twill_bench_combine(run, &timing->compute, 1));
    TWILL_BENCH_TRY(average(run, subject, turns, &timing->overall));
    timing->seconds = pure;
    timing->overlap = twill_bench_overlap(timing->overall, timing->compute, pure);
    return TWILL_OK;
}
