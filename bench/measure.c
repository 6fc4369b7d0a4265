/* SPDX-License-Identifier: Apache-2.0 */
/* Timing and checking one size, the way nccl-tests does it: one call apart, a barrier, the timed
 * iterations over shifting offsets, times combined over ranks, then the check. */
#include "bench/run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The buffers wander through their space, so that caches and address tables earn nothing. */
static char *place(const struct twill_bench_run *run, const struct twill_bench_subject *subject,
                   int buffer, size_t iteration)
{
    size_t stride = (subject->bytes + 63) & ~(size_t)63;
    size_t places = stride > 0 ? run->options.max_bytes / stride : 0;
    size_t shift = places > 0 ? stride * (iteration % places) : 0;
    return run->buffers[buffer] + run->options.unalign * twill_type_size(subject->type) +
           subject->offset + shift;
}

twill_status twill_bench_call(struct twill_bench_run *run,
                              const struct twill_bench_subject *subject, size_t iteration)
{
    char *destination = place(run, subject, 1, iteration);
    char *source = subject->in_place ? destination : place(run, subject, 0, iteration);
    switch (run->options.collective) {
    case TWILL_BENCH_ALLREDUCE:
        TWILL_BENCH_TRY(twill_allreduce(run->comm, source, destination, subject->count,
                                        subject->type, subject->op));
        break;
    case TWILL_BENCH_BROADCAST:
        TWILL_BENCH_TRY(twill_broadcast(run->comm, source, destination, subject->count,
                                        subject->type, subject->root));
        break;
    default:
        TWILL_BENCH_TRY(twill_barrier(run->comm));
    }
    return run->options.blocking ? twill_barrier(run->comm) : TWILL_OK;
}

twill_status twill_bench_combine(struct twill_bench_run *run, double *seconds, size_t n)
{
    static const twill_op ops[] = {[TWILL_BENCH_AVERAGE] = TWILL_AVG,
                                   [TWILL_BENCH_MIN] = TWILL_MIN,
                                   [TWILL_BENCH_MAX] = TWILL_MAX};
    if (run->options.average == TWILL_BENCH_RANK0)
        return twill_broadcast(run->comm, seconds, seconds, n, TWILL_F64, 0);
    return twill_allreduce(run->comm, seconds, seconds, n, TWILL_F64, ops[run->options.average]);
}

static twill_status time_calls(struct twill_bench_run *run,
                               const struct twill_bench_subject *subject,
                               struct twill_bench_timing *timing)
{
    const struct twill_bench_options *options = &run->options;
    double start = twill_bench_now();
    TWILL_BENCH_TRY(twill_bench_call(run, subject, 0));
    timing->first = twill_bench_now() - start;
    TWILL_BENCH_TRY(twill_barrier(run->comm));

    double operations = (double)options->iterations * (double)options->aggregate;
    start = twill_bench_now();
    double last = start;
    for (size_t i = 0; i < options->iterations; i++) {
        for (size_t j = 0; j < options->aggregate; j++)
            TWILL_BENCH_TRY(twill_bench_call(run, subject, i * options->aggregate + j));
        if (options->each) {
            double now = twill_bench_now();
            run->samples[i] = (now - last) / (double)options->aggregate;
            last = now;
        }
    }
    timing->seconds = (twill_bench_now() - start) / operations;
    double pair[2] = {timing->seconds, timing->first};
    TWILL_BENCH_TRY(twill_bench_combine(run, pair, 2));
    timing->seconds = pair[0];
    timing->first = pair[1];
    if (options->each) {
        TWILL_BENCH_TRY(twill_bench_combine(run, run->samples, options->iterations));
        timing->each = twill_bench_statistics(run->samples + options->each_skip,
                                              options->iterations - options->each_skip);
    }
    return TWILL_OK;
}

/* Wrong elements over all ranks. The sum is made by the library under test, so a rank's own count
 * is the least it believes. */
static twill_status sum_wrong(struct twill_bench_run *run, int64_t mine,
                              struct twill_bench_timing *timing)
{
    int64_t sum = mine;
    TWILL_BENCH_TRY(twill_allreduce(run->comm, &sum, &sum, 1, TWILL_I64, TWILL_SUM));
    timing->wrong += sum > mine ? sum : mine;
    return TWILL_OK;
}

static struct twill_bench_payload payload_of(const struct twill_bench_run *run,
                                             const struct twill_bench_subject *subject,
                                             unsigned round)
{
    return (struct twill_bench_payload){.type = subject->type,
                                        .op = subject->op,
                                        .ranks = run->size,
                                        .root = subject->root,
                                        .round = round};
}

void twill_bench_prepare(const struct twill_bench_run *run,
                         const struct twill_bench_subject *subject, unsigned round)
{
    struct twill_bench_payload payload = payload_of(run, subject, round);
    memset(place(run, subject, 1, 0), 0xFF, subject->bytes);
    if (subject->root < 0 || subject->root == run->rank)
        twill_bench_fill(&payload, run->rank, place(run, subject, subject->in_place ? 1 : 0, 0),
                         subject->count);
}

twill_status twill_bench_count(struct twill_bench_run *run,
                               const struct twill_bench_subject *subject, unsigned round,
                               struct twill_bench_timing *timing)
{
    struct twill_bench_payload payload = payload_of(run, subject, round);
    size_t wrong = twill_bench_count_wrong(&payload, place(run, subject, 1, 0), subject->count);
    return sum_wrong(run, (int64_t)wrong, timing);
}

void twill_bench_clear(const struct twill_bench_run *run, const struct twill_bench_subject *subject)
{
    memset(place(run, subject, subject->in_place ? 1 : 0, 0), 0, subject->bytes);
    memset(place(run, subject, 1, 0), 0, subject->bytes);
}

static twill_status check(struct twill_bench_run *run, const struct twill_bench_subject *subject,
                          struct twill_bench_timing *timing)
{
    timing->wrong = 0;
    for (size_t i = 0; i < run->options.checks && timing->wrong == 0; i++) {
        twill_bench_prepare(run, subject, ++run->round);
        TWILL_BENCH_TRY(twill_bench_call(run, subject, 0));
        TWILL_BENCH_TRY(twill_bench_count(run, subject, run->round, timing));
    }
    twill_bench_clear(run, subject);
    return TWILL_OK;
}

void twill_bench_show_progress(struct twill_bench_run *run, const char *what)
{
    double now = twill_bench_now();
    run->rows_done++;
    if (!run->progress || now - run->shown < 0.2)
        return;
    run->shown = now;
    double elapsed = now - run->started;
    if (run->rows == 0) {
        fprintf(stderr, "\r\033[K%s, %.0f s", what, elapsed);
        return;
    }
    double part = (double)run->rows_done / (double)run->rows;
    fprintf(stderr, "\r\033[K[%-30.*s] %3.0f%%  %s, %.0f s", (int)(30 * part),
            "##############################", 100 * part, what, elapsed);
}

void twill_bench_rate(const struct twill_bench_run *run, size_t bytes,
                      struct twill_bench_timing *timing)
{
    timing->algorithm_bandwidth = twill_bench_bandwidth(bytes, timing->seconds);
    timing->bus_bandwidth =
        timing->algorithm_bandwidth * twill_bench_bus_factor(run->options.collective, run->size);
}

static twill_status measure_half(struct twill_bench_run *run,
                                 const struct twill_bench_subject *subject,
                                 struct twill_bench_timing *timing)
{
    *timing = (struct twill_bench_timing){.wrong = -1};
    TWILL_BENCH_TRY(time_calls(run, subject, timing));
    twill_bench_rate(run, subject->bytes, timing);
    if (run->options.checks > 0)
        TWILL_BENCH_TRY(check(run, subject, timing));
    run->failures += timing->wrong > 0;
    run->bandwidth += timing->bus_bandwidth;
    run->measured++;
    char what[64];
    snprintf(what, sizeof(what), "%zu bytes %s", subject->bytes,
             subject->in_place ? "in place" : "out of place");
    twill_bench_show_progress(run, what);
    return TWILL_OK;
}

struct twill_bench_subject twill_bench_subject(const struct twill_bench_run *run, twill_type type,
                                               twill_op op, int root, size_t count)
{
    bool reduction = run->options.collective == TWILL_BENCH_ALLREDUCE;
    return (struct twill_bench_subject){.type = type,
                                        .op = op,
                                        .root = reduction ? -1 : root,
                                        .count = count,
                                        .bytes = count * twill_type_size(type)};
}

struct twill_bench_row twill_bench_row(const struct twill_bench_subject *subject)
{
    return (struct twill_bench_row){.bytes = subject->bytes,
                                    .count = subject->count,
                                    .type = twill_bench_type_name(subject->type),
                                    .op = subject->root < 0 ? twill_op_name(subject->op) : "none",
                                    .root = subject->root};
}

twill_status twill_bench_measure(struct twill_bench_run *run, twill_type type, twill_op op,
                                 int root, size_t bytes, struct twill_bench_row *row)
{
    struct twill_bench_subject subject =
        twill_bench_subject(run, type, op, root, bytes / twill_type_size(type));
    *row = twill_bench_row(&subject);
    TWILL_BENCH_TRY(measure_half(run, &subject, &row->out_of_place));
    subject.in_place = true;
    return measure_half(run, &subject, &row->in_place);
}

/* Nobody may leave before the last has come: one rank in turn comes late. Clocks of different hosts
 * do not compare, so only ranks under one kernel are checked. */
static twill_status check_barrier(struct twill_bench_run *run, struct twill_bench_timing *timing)
{
    timing->wrong = 0;
    for (size_t i = 0; i < run->options.checks && timing->wrong == 0; i++) {
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
    struct twill_bench_subject subject = {.root = -1};
    *row = (struct twill_bench_row){.type = "none", .op = "none", .root = -1};
    size_t checks = run->options.checks;
    run->options.checks = 0; /* there are no elements to check */
    for (int half = 0; half < 2; half++) {
        struct twill_bench_timing *timing = half ? &row->in_place : &row->out_of_place;
        subject.in_place = half;
        TWILL_BENCH_TRY(measure_half(run, &subject, timing));
        run->options.checks = checks;
        if (checks > 0 && run->one_clock)
            TWILL_BENCH_TRY(check_barrier(run, timing));
        run->failures += timing->wrong > 0;
        run->options.checks = 0;
    }
    run->options.checks = checks;
    return TWILL_OK;
}
