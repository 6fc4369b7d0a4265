/* SPDX-License-Identifier: Apache-2.0 */
/* Times and checks one size as nccl-tests does, with one separate call, a barrier, the timed
 * iterations over shifting offsets, times combined over ranks, and then the check. */
#include "bench/common/option_names.h"
#include "bench/tools/bench/bench_run.h"
#include "bench/tools/compare/peers/played_compute.h"

#include <string.h>
#include <unistd.h>

/* Return the address of a call's data in run->memory.buffers[buffer], 0 or 1. It is shifted in each
 * iteration so that caches and TLBs do not help. */
static char *place_buffer(const struct twill_bench_run *run,
                          const struct twill_bench_subject *subject, int buffer, size_t iteration)
{
    size_t stride = (subject->bytes + 63) & ~(size_t)63;
    size_t places = stride > 0 ? run->options.sizes.max_bytes / stride : 0;
    size_t shift = places > 0 ? stride * (iteration % places) : 0;
    return run->memory.buffers[buffer] +
           run->options.calls.unalign * twill_type_size(subject->type) + subject->offset + shift;
}

struct twill_bench_pointers twill_bench_place(const struct twill_bench_run *run,
                                              const struct twill_bench_subject *subject,
                                              size_t iteration)
{
    return twill_bench_pointers(subject, place_buffer(run, subject, 0, iteration),
                                place_buffer(run, subject, 1, iteration));
}

/* Make one call in one form, with setup and release. */
static twill_status call_form(struct twill_bench_run *run,
                              const struct twill_bench_subject *subject,
                              struct twill_bench_pointers at, enum twill_bench_form form)
{
    twill_request *request = NULL;
    TWILL_BENCH_TRY(
        twill_bench_begin(subject, run->comm, at, &run->memory.vectors, form, &request));
    if (form == TWILL_BENCH_BLOCKING)
        return TWILL_OK;
    if (form == TWILL_BENCH_PERSISTENT)
        TWILL_BENCH_TRY(twill_request_start(request));
    TWILL_BENCH_TRY(twill_wait(&request));
    return form == TWILL_BENCH_PERSISTENT ? twill_request_free(&request) : TWILL_OK;
}

twill_status twill_bench_call(struct twill_bench_run *run,
                              const struct twill_bench_subject *subject, size_t iteration)
{
    if (run->persistent != NULL) {
        TWILL_BENCH_TRY(twill_request_start(run->persistent));
        TWILL_BENCH_TRY(twill_wait(&run->persistent));
    } else {
        TWILL_BENCH_TRY(call_form(run, subject, twill_bench_place(run, subject, iteration),
                                  run->options.calls.form));
    }
    return run->options.calls.blocking ? twill_barrier(run->comm) : TWILL_OK;
}

twill_status twill_bench_combine(struct twill_bench_run *run, double *seconds, size_t n)
{
    static const twill_op ops[] = {[TWILL_BENCH_AVERAGE] = TWILL_AVG,
                                   [TWILL_BENCH_MIN] = TWILL_MIN,
                                   [TWILL_BENCH_MAX] = TWILL_MAX};
    if (run->options.report.average == TWILL_BENCH_RANK0)
        TWILL_BENCH_TRY(twill_broadcast(run->comm, seconds, seconds, n, TWILL_F64, 0));
    else
        TWILL_BENCH_TRY(twill_allreduce(run->comm, seconds, seconds, n, TWILL_F64,
                                        ops[run->options.report.average]));
    if (run->comm == run->world)
        return TWILL_OK;
    return twill_allreduce(run->world, seconds, seconds, n, TWILL_F64, TWILL_MAX);
}

/* Time a first call and then the iterations, and combine the times over the ranks. Sets
 * timing->first and ->seconds and, as the options say, ->energy and ->each. */
static twill_status time_iterations(struct twill_bench_run *run,
                                    const struct twill_bench_subject *subject,
                                    struct twill_bench_timing *timing)
{
    const struct twill_bench_options *options = &run->options;
    double start = twill_bench_now();
    TWILL_BENCH_TRY(twill_bench_call(run, subject, 0));
    timing->first = twill_bench_now() - start;
    struct twill_energy_reading reading;
    twill_bench_energy_begin(run, &reading);
    TWILL_BENCH_TRY(twill_barrier(run->comm));

    double operations = (double)options->repeats.iterations * (double)options->repeats.aggregate;
    start = twill_bench_now();
    double last = start;
    for (size_t i = 0; i < options->repeats.iterations; i++) {
        for (size_t j = 0; j < options->repeats.aggregate; j++)
            TWILL_BENCH_TRY(twill_bench_call(run, subject, i * options->repeats.aggregate + j));
        if (options->report.each) {
            double now = twill_bench_now();
            run->memory.samples[i] = (now - last) / (double)options->repeats.aggregate;
            last = now;
        }
    }
    timing->seconds = (twill_bench_now() - start) / operations;
    TWILL_BENCH_TRY(twill_bench_energy_end(run, &reading, &timing->energy));
    double pair[2] = {timing->seconds, timing->first};
    TWILL_BENCH_TRY(twill_bench_combine(run, pair, 2));
    timing->seconds = pair[0];
    timing->first = pair[1];
    if (options->report.each) {
        TWILL_BENCH_TRY(twill_bench_combine(run, run->memory.samples, options->repeats.iterations));
        timing->each =
            twill_bench_statistics(run->memory.samples + options->report.each_skip,
                                   options->repeats.iterations - options->report.each_skip);
    }
    return TWILL_OK;
}

/* Time the calls of a subject. A persistent call is set up once for all iterations. */
static twill_status time_calls(struct twill_bench_run *run,
                               const struct twill_bench_subject *subject,
                               struct twill_bench_timing *timing)
{
    if (run->options.calls.form != TWILL_BENCH_PERSISTENT)
        return time_iterations(run, subject, timing);
    TWILL_BENCH_TRY(twill_bench_begin(subject, run->comm, twill_bench_place(run, subject, 0),
                                      &run->memory.vectors, TWILL_BENCH_PERSISTENT,
                                      &run->persistent));
    TWILL_BENCH_TRY(time_iterations(run, subject, timing));
    return twill_request_free(&run->persistent);
}

/* Add the wrong elements of all ranks to timing->wrong, where `mine` is the number on this rank.
 * Adds at least `mine`, because the library that is tested makes the sum. Returns TWILL_OK, or the
 * error of that allreduce, with nothing added. Collective. */
static twill_status sum_wrong(struct twill_bench_run *run, int64_t mine,
                              struct twill_bench_timing *timing)
{
    int64_t sum = mine;
    TWILL_BENCH_TRY(twill_allreduce(run->world, &sum, &sum, 1, TWILL_I64, TWILL_SUM));
    timing->wrong += sum > mine ? sum : mine;
    return TWILL_OK;
}

void twill_bench_prepare(const struct twill_bench_run *run,
                         const struct twill_bench_subject *subject, unsigned round)
{
    size_t bytes = twill_bench_buffer_bytes(twill_bench_facts(subject->collective), subject->bytes);
    memset(place_buffer(run, subject, 1, 0), 0xFF, bytes);
    twill_bench_fill_src(subject, twill_bench_place(run, subject, 0), round);
}

twill_status twill_bench_count(struct twill_bench_run *run,
                               const struct twill_bench_subject *subject, unsigned round,
                               struct twill_bench_timing *timing)
{
    size_t wrong = twill_bench_wrong_dst(subject, twill_bench_place(run, subject, 0), round);
    return sum_wrong(run, (int64_t)wrong, timing);
}

void twill_bench_clear(const struct twill_bench_run *run, const struct twill_bench_subject *subject)
{
    size_t bytes = twill_bench_buffer_bytes(twill_bench_facts(subject->collective), subject->bytes);
    memset(place_buffer(run, subject, subject->in_place ? 1 : 0, 0), 0, bytes);
    memset(place_buffer(run, subject, 1, 0), 0, bytes);
}

/* Make a call in this form with the values of a new round. Adds the wrong elements of all ranks to
 * timing->wrong. Collective. */
static twill_status check_form(struct twill_bench_run *run,
                               const struct twill_bench_subject *subject,
                               struct twill_bench_timing *timing, enum twill_bench_form form)
{
    twill_bench_prepare(run, subject, ++run->round);
    TWILL_BENCH_TRY(call_form(run, subject, twill_bench_place(run, subject, 0), form));
    return twill_bench_count(run, subject, run->round, timing);
}

/* Make calls with known values as often as -c says, with --verify in each form, but stop after one
 * with wrong elements. timing->wrong is then their number on all ranks. Zeroes the buffers at the
 * end. Collective. */
static twill_status check_result(struct twill_bench_run *run,
                                 const struct twill_bench_subject *subject,
                                 struct twill_bench_timing *timing)
{
    timing->wrong = 0;
    for (size_t i = 0; i < run->options.repeats.checks && timing->wrong == 0; i++) {
        int first =
            run->options.measures.verify ? TWILL_BENCH_BLOCKING : (int)run->options.calls.form;
        int last =
            run->options.measures.verify ? TWILL_BENCH_PERSISTENT : (int)run->options.calls.form;
        for (int form = first; form <= last && timing->wrong == 0; form++)
            TWILL_BENCH_TRY(check_form(run, subject, timing, (enum twill_bench_form)form));
    }
    twill_bench_clear(run, subject);
    return TWILL_OK;
}

void twill_bench_show_progress(struct twill_bench_run *run, const char *what, size_t done)
{
    run->work.rows_done += done;
    twill_bench_progress_show(&run->work.progress, run->work.rows_done, run->work.rows, what);
}

void twill_bench_rate(const struct twill_bench_run *run, size_t bytes,
                      struct twill_bench_timing *timing)
{
    timing->algorithm_bandwidth = twill_bench_bandwidth(bytes, timing->seconds);
    timing->bus_bandwidth =
        timing->algorithm_bandwidth * twill_bench_bus_factor(run->options.collective, run->size);
}

/* One of two variants of a call that are compared, in a local array. `seconds` is 0 until
 * time_variants() adds the time of a call. */
struct compared_variant {
    twill_comm *comm;
    struct twill_bench_subject subject;
    double seconds;
};

/* Time the calls of two variants by turns, so that both see the same machine. Adds the mean seconds
 * of a call to `seconds` of each. */
static twill_status time_variants(struct twill_bench_run *run, struct compared_variant variants[2])
{
    enum { TURNS = 5 };
    twill_comm *usual = run->comm;
    for (int turn = 0; turn < 2 * TURNS; turn++) {
        struct compared_variant *v = &variants[turn % 2];
        struct twill_bench_timing one;
        run->comm = v->comm;
        twill_status status = time_calls(run, &v->subject, &one);
        run->comm = usual;
        if (status != TWILL_OK)
            return status;
        v->seconds += one.seconds / TURNS;
    }
    return TWILL_OK;
}

/* Time the call without and with TWILL_REPRODUCIBLE=1 by turns, and set timing->seconds and
 * timing->reproducible to the seconds of a call. */
static twill_status time_strict(struct twill_bench_run *run,
                                const struct twill_bench_subject *subject,
                                struct twill_bench_timing *timing)
{
    struct compared_variant variants[2] = {{run->comm, *subject, 0},
                                           {run->sums.strict, *subject, 0}};
    TWILL_BENCH_TRY(time_variants(run, variants));
    timing->seconds = variants[0].seconds;
    timing->reproducible = variants[1].seconds;
    return TWILL_OK;
}

/* Make a call and set *bytes to what all ranks together send in it. If they send no messages, it is
 * what they copy. Collective. */
static twill_status count_bytes(struct twill_bench_run *run,
                                const struct twill_bench_subject *subject, double *bytes)
{
    twill_counters before, after;
    TWILL_BENCH_TRY(twill_comm_counters(run->comm, &before));
    TWILL_BENCH_TRY(twill_bench_call(run, subject, 0));
    TWILL_BENCH_TRY(twill_comm_counters(run->comm, &after));
    double moved[2] = {(double)(after.bytes_sent - before.bytes_sent),
                       (double)(after.bytes_copied - before.bytes_copied)};
    TWILL_BENCH_TRY(twill_allreduce(run->world, moved, moved, 2, TWILL_F64, TWILL_SUM));
    *bytes = moved[0] > 0 ? moved[0] : moved[1];
    return TWILL_OK;
}

/* Time the call, and a sum of as many elements of the type of --narrow. Stores the seconds of both,
 * and the bytes sent by the latter divided by those of the former. */
static twill_status time_narrow(struct twill_bench_run *run,
                                const struct twill_bench_subject *subject,
                                struct twill_bench_timing *timing)
{
    struct compared_variant variants[2] = {{run->comm, *subject, 0}, {run->comm, *subject, 0}};
    struct twill_bench_subject *narrow = &variants[1].subject;
    narrow->type = (twill_type)run->options.measures.narrow;
    narrow->op = narrow->called = run->sums.narrow;
    narrow->bytes = subject->bytes / sizeof(float) * twill_type_size(narrow->type);
    TWILL_BENCH_TRY(time_variants(run, variants));
    double bytes[2] = {0, 0};
    for (int i = 0; i < 2; i++)
        TWILL_BENCH_TRY(count_bytes(run, &variants[i].subject, &bytes[i]));
    timing->seconds = variants[0].seconds;
    timing->narrow = variants[1].seconds;
    timing->narrow_bytes = bytes[0] > 0 ? bytes[1] / bytes[0] : 0;
    return TWILL_OK;
}

twill_status twill_bench_split_time(struct twill_bench_run *run, const twill_counters *before,
                                    struct twill_bench_timing *timing)
{
    twill_counters after;
    TWILL_BENCH_TRY(twill_comm_counters(run->comm, &after));
    double all = after.seconds - before->seconds;
    double shares[2] = {all > 0 ? (after.seconds_waiting - before->seconds_waiting) / all : 0,
                        all > 0 ? (after.seconds_blocked - before->seconds_blocked) / all : 0};
    TWILL_BENCH_TRY(twill_allreduce(run->comm, shares, shares, 2, TWILL_F64, TWILL_AVG));
    timing->waiting = shares[0] * timing->seconds;
    timing->wire = shares[1] * timing->seconds;
    return TWILL_OK;
}

/* Start a nonblocking call with the buffers of `iteration`, compute for `turns` rounds of
 * played_turns(), and wait for the call. Tests it in between if the options say so. */
static twill_status overlap_once(struct twill_bench_run *run,
                                 const struct twill_bench_subject *subject, size_t iteration,
                                 size_t turns)
{
    twill_request *request = NULL;
    int done = 0;
    struct twill_bench_pointers at = twill_bench_place(run, subject, iteration);
    TWILL_BENCH_TRY(twill_bench_begin(subject, run->comm, at, &run->memory.vectors,
                                      TWILL_BENCH_NONBLOCKING, &request));
    for (int test = 0; test < PLAYED_TESTS && turns > 0; test++) {
        played_turns(turns / PLAYED_TESTS);
        if (!done && run->options.measures.tests)
            TWILL_BENCH_TRY(twill_test(&request, &done));
    }
    return twill_wait(&request);
}

/* Set *seconds to the mean time of an overlap_once() with `turns` rounds of computing, combined
 * over the ranks as -a says. Collective. */
static twill_status time_overlapped(struct twill_bench_run *run,
                                    const struct twill_bench_subject *subject, size_t turns,
                                    double *seconds)
{
    TWILL_BENCH_TRY(twill_barrier(run->comm));
    double start = twill_bench_now();
    for (size_t i = 0; i < run->options.repeats.iterations; i++)
        TWILL_BENCH_TRY(overlap_once(run, subject, i, turns));
    *seconds = (twill_bench_now() - start) / (double)run->options.repeats.iterations;
    return twill_bench_combine(run, seconds, 1);
}

/* Time calls alone, computing for as long as one takes, and calls with this computing. Sets
 * `seconds`, `compute` and `overall` of *timing to these, and `overlap` as OSU defines it.
 * Collective. */
static twill_status measure_overlap(struct twill_bench_run *run,
                                    const struct twill_bench_subject *subject,
                                    struct twill_bench_timing *timing)
{
    double pure;
    TWILL_BENCH_TRY(time_overlapped(run, subject, 0, &pure));
    size_t turns = (size_t)(pure * played_speed()) + 1;
    double start = twill_bench_now();
    for (size_t i = 0; i < run->options.repeats.iterations; i++)
        played_turns(turns);
    timing->compute = (twill_bench_now() - start) / (double)run->options.repeats.iterations;
    TWILL_BENCH_TRY(twill_bench_combine(run, &timing->compute, 1));
    TWILL_BENCH_TRY(time_overlapped(run, subject, turns, &timing->overall));
    timing->seconds = pure;
    timing->overlap = twill_bench_overlap(timing->overall, timing->compute, pure);
    return TWILL_OK;
}

/* Measure and check a call, out of place or in place, and add it to the results of the run. */
static twill_status measure_half(struct twill_bench_run *run,
                                 const struct twill_bench_subject *subject,
                                 struct twill_bench_timing *timing)
{
    char what[64];
    snprintf(what, sizeof(what), "%zu bytes %s", subject->bytes,
             subject->in_place ? "in place" : "out of place");
    twill_bench_show_progress(run, what, 0);
    *timing = (struct twill_bench_timing){.wrong = -1};
    twill_bench_describe(subject, &run->memory.vectors);
    twill_counters before;
    TWILL_BENCH_TRY(twill_comm_counters(run->comm, &before));
    TWILL_BENCH_TRY(time_calls(run, subject, timing));
    if (run->options.measures.times)
        TWILL_BENCH_TRY(twill_bench_split_time(run, &before, timing));
    if (run->options.measures.overlap && !subject->in_place)
        TWILL_BENCH_TRY(measure_overlap(run, subject, timing));
    if (run->options.measures.reproducible && !subject->in_place)
        TWILL_BENCH_TRY(time_strict(run, subject, timing));
    if (run->options.measures.team > 0 && !subject->in_place)
        TWILL_BENCH_TRY(twill_bench_time_team(run, subject, timing));
    if (run->options.measures.narrow >= 0 && !subject->in_place)
        TWILL_BENCH_TRY(time_narrow(run, subject, timing));
    twill_bench_rate(run, subject->bytes, timing);
    if (run->options.repeats.checks > 0)
        TWILL_BENCH_TRY(check_result(run, subject, timing));
    run->results.failures += timing->wrong > 0;
    run->results.bandwidth += timing->bus_bandwidth;
    run->results.measured++;
    twill_bench_show_progress(run, what, 1);
    return TWILL_OK;
}

struct twill_bench_subject twill_bench_subject(const struct twill_bench_run *run, twill_type type,
                                               twill_op op, int root, size_t count)
{
    const struct twill_bench_facts *facts = twill_bench_facts(run->options.collective);
    size_t shards = facts->sharded ? (size_t)run->size : 1;
    return (struct twill_bench_subject){.collective = run->options.collective,
                                        .type = type,
                                        .op = facts->reduces ? op : TWILL_SUM,
                                        .called =
                                            run->options.measures.delay > 0 ? run->sums.slow : op,
                                        .rank = run->rank,
                                        .ranks = run->size,
                                        .root = facts->rooted ? root : -1,
                                        .count = count,
                                        .bytes = count * shards * twill_type_size(type)};
}

struct twill_bench_row twill_bench_row(const struct twill_bench_subject *subject)
{
    return (struct twill_bench_row){
        .bytes = subject->bytes,
        .count = subject->count,
        .type = twill_bench_type_name(subject->type),
        .op = twill_bench_facts(subject->collective)->reduces ? twill_op_name(subject->op) : "none",
        .root = subject->root};
}

twill_status twill_bench_measure(struct twill_bench_run *run, twill_type type, twill_op op,
                                 int root, size_t bytes, struct twill_bench_row *row)
{
    const struct twill_bench_facts *facts = twill_bench_facts(run->options.collective);
    size_t shards = facts->sharded ? (size_t)run->size : 1;
    struct twill_bench_subject subject =
        twill_bench_subject(run, type, op, root, bytes / twill_type_size(type) / shards);
    *row = twill_bench_row(&subject);
    TWILL_BENCH_TRY(measure_half(run, &subject, &row->out_of_place));
    subject.in_place = true;
    row->in_place = (struct twill_bench_timing){.wrong = -1, .missing = true};
    return facts->out_of_place ? TWILL_OK : measure_half(run, &subject, &row->in_place);
}

/* Let one rank enter a barrier late, as often as -c says, and set timing->wrong to the number of
 * ranks that leave before it enters. Stops when there are some. All ranks must have the same clock
 * (run->one_clock). */
static twill_status check_barrier(struct twill_bench_run *run, struct twill_bench_timing *timing)
{
    timing->wrong = 0;
    for (size_t i = 0; i < run->options.repeats.checks && timing->wrong == 0; i++) {
        int late = (int)(run->round++ % (unsigned)run->size);
        TWILL_BENCH_TRY(twill_barrier(run->comm));
        if (run->rank == late)
            usleep(2000);
        int64_t entered = (int64_t)(twill_bench_now() * 1e9);
        TWILL_BENCH_TRY(twill_barrier(run->comm));
        int64_t left = (int64_t)(twill_bench_now() * 1e9);
        TWILL_BENCH_TRY(twill_broadcast(run->comm, &entered, &entered, 1, TWILL_I64, late));
        TWILL_BENCH_TRY(sum_wrong(run, left < entered, timing));
    }
    return TWILL_OK;
}

twill_status twill_bench_measure_barrier(struct twill_bench_run *run, struct twill_bench_row *row)
{
    struct twill_bench_subject subject = twill_bench_subject(run, TWILL_F32, TWILL_SUM, -1, 0);
    *row = twill_bench_row(&subject);
    row->type = "none";
    size_t checks = run->options.repeats.checks;
    run->options.repeats.checks = 0; /* there are no elements to check */
    for (int half = 0; half < 2; half++) {
        struct twill_bench_timing *timing = half ? &row->in_place : &row->out_of_place;
        subject.in_place = half;
        TWILL_BENCH_TRY(measure_half(run, &subject, timing));
        run->options.repeats.checks = checks;
        if (checks > 0 && run->one_clock)
            TWILL_BENCH_TRY(check_barrier(run, timing));
        run->results.failures += timing->wrong > 0;
        run->options.repeats.checks = 0;
    }
    run->options.repeats.checks = checks;
    return TWILL_OK;
}
