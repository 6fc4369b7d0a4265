/* SPDX-License-Identifier: Apache-2.0 */
/* What twill-place measures: each work on arrays of one kind of memory, and allreduces that have
 * one thing only in it. */
#include "bench/tools/place/place.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

static twill_status triad(const struct place_run *run, const struct memory_kind *kind, int work)
{
    (void)work;
    double *restrict a = kind->array[PLACE_RESULT];
    const double *restrict b = kind->array[PLACE_LEFT], *restrict c = kind->array[PLACE_RIGHT];
    size_t n = run->options.bytes / sizeof(*a);
#if defined(_OPENMP)
#pragma omp parallel for num_threads((int)run->options.threads) if (run->options.threads > 1)
#endif
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] + 3 * c[i];
    return TWILL_OK;
}

static twill_status copy(const struct place_run *run, const struct memory_kind *kind, int work)
{
    (void)work;
    char *to = kind->array[PLACE_RESULT];
    const char *from = kind->array[PLACE_LEFT];
    size_t threads = run->options.threads, each = run->options.bytes / threads;
#if defined(_OPENMP)
#pragma omp parallel for num_threads((int)threads) if (threads > 1)
#endif
    for (size_t i = 0; i < threads; i++)
        memcpy(to + i * each, from + i * each,
               i + 1 < threads ? each : run->options.bytes - i * each);
    return TWILL_OK;
}

/* twill's own kernel, as a collective uses it: the sum of two arrays of floats. */
static twill_status reduce(const struct place_run *run, const struct memory_kind *kind, int work)
{
    (void)work;
    const void *sources[] = {kind->array[PLACE_LEFT], kind->array[PLACE_RIGHT]};
    twill_kernels_reduce_raw(run->kernels, TWILL_F32, TWILL_SUM, kind->array[PLACE_RESULT], sources,
                             2, run->options.bytes / sizeof(float), 1, 0,
                             (int)run->options.threads);
    return TWILL_OK;
}

/* Return what an allreduce sends, and where its result goes: of the kind, or plain memory. */
static void *sent_of(const struct place_run *run, const struct memory_kind *kind, int work)
{
    return work == PLACE_RECEIVE || work == PLACE_SCRATCH ? run->plain[0] : kind->array[PLACE_LEFT];
}

static void *result_of(const struct place_run *run, const struct memory_kind *kind, int work)
{
    return work == PLACE_SEND || work == PLACE_SCRATCH ? run->plain[1] : kind->array[PLACE_RESULT];
}

static twill_status sum_up(const struct place_run *run, const struct memory_kind *kind, int work)
{
    return twill_allreduce(work == PLACE_SEND || work == PLACE_RECEIVE ? run->comm : kind->comm,
                           sent_of(run, kind, work), result_of(run, kind, work),
                           run->options.bytes / sizeof(float), TWILL_F32, TWILL_SUM);
}

const char *const place_work_names[PLACE_WORKS] = {"triad", "copy",    "reduce", "allreduce",
                                                   "send",  "receive", "scratch"};

static const struct place_work {
    twill_status (*run)(const struct place_run *run, const struct memory_kind *kind, int work);
    double traffic; /* bytes moved per byte of an array, as STREAM counts them */
} works[PLACE_WORKS] = {{triad, 3},  {copy, 2},   {reduce, 3}, {sum_up, 1},
                        {sum_up, 1}, {sum_up, 1}, {sum_up, 1}};

/* Return a small integer, exact in float and different from its neighbours. */
static double input_value(size_t i, int factor)
{
    return (double)(1 + i % 7) * factor;
}

/* Fill the inputs; each thread first touches what it will use. */
static void fill_inputs(const struct place_run *run, const struct memory_kind *kind, int work)
{
    double *a = kind->array[PLACE_RESULT], *b = kind->array[PLACE_LEFT],
           *c = kind->array[PLACE_RIGHT];
    float *left = work < PLACE_ALLREDUCE ? kind->array[PLACE_LEFT] : sent_of(run, kind, work);
    float *right = kind->array[PLACE_RIGHT];
    double *result = work < PLACE_ALLREDUCE ? a : result_of(run, kind, work);
    size_t n = run->options.bytes / sizeof(*a);
#if defined(_OPENMP)
#pragma omp parallel for num_threads((int)run->options.threads) if (run->options.threads > 1)
#endif
    for (size_t i = 0; i < n; i++) {
        result[i] = -1;
        b[i] = input_value(i, 1);
        c[i] = input_value(i, 2);
    }
    for (size_t i = 0; work >= PLACE_REDUCE && i < run->options.bytes / sizeof(*left); i++) {
        left[i] = (float)input_value(i, work == PLACE_REDUCE ? 1 : run->rank + 1);
        if (work == PLACE_REDUCE)
            right[i] = (float)input_value(i, 2);
    }
}

static twill_status check_work(struct place_run *run, const struct memory_kind *kind, int work)
{
    int64_t wrong = 0;
    int sum = work == PLACE_REDUCE ? 3 : run->size * (run->size + 1) / 2;
    size_t n = run->options.bytes / (work >= PLACE_REDUCE ? sizeof(float) : sizeof(double));
    const void *result =
        work < PLACE_ALLREDUCE ? kind->array[PLACE_RESULT] : result_of(run, kind, work);
    for (size_t i = 0; i < n; i++)
        if (work >= PLACE_REDUCE)
            wrong += ((const float *)result)[i] != (float)input_value(i, sum);
        else
            wrong += ((const double *)result)[i] != input_value(i, work == PLACE_TRIAD ? 7 : 1);
    TWILL_BENCH_TRY(twill_allreduce(run->comm, &wrong, &wrong, 1, TWILL_I64, TWILL_SUM));
    run->wrong += wrong;
    return TWILL_OK;
}

/* Run once untimed, then take the median of the slowest rank's times. */
static twill_status measure_work(struct place_run *run, struct memory_kind *kind, int work)
{
    size_t repeats = run->options.repeats;
    fill_inputs(run, kind, work);
    for (size_t i = 0; i <= repeats; i++) {
        TWILL_BENCH_TRY(twill_barrier(run->comm));
        double start = twill_bench_now();
        TWILL_BENCH_TRY(works[work].run(run, kind, work));
        double seconds = twill_bench_now() - start;
        TWILL_BENCH_TRY(twill_allreduce(run->comm, &seconds, &seconds, 1, TWILL_F64, TWILL_MAX));
        if (i > 0)
            run->samples[i - 1] = seconds;
    }
    double median = twill_bench_statistics(run->samples, repeats).median;
    double ranks = work >= PLACE_ALLREDUCE ? 1 : run->size;
    kind->rates[work] =
        twill_bench_bandwidth(run->options.bytes, median) * works[work].traffic * ranks;
    return check_work(run, kind, work);
}

twill_status measure_kind(struct place_run *run, struct memory_kind *kind)
{
    twill_counters counters;
    for (int i = 0; i < PLACE_ARRAYS; i++)
        TWILL_BENCH_TRY(twill_alloc(kind->context, &kind->array[i], run->options.bytes));
    for (int work = 0; work < (run->size > 1 ? PLACE_WORKS : PLACE_ALLREDUCE); work++)
        TWILL_BENCH_TRY(measure_work(run, kind, work));
    TWILL_BENCH_TRY(twill_comm_counters(kind->comm, &counters));
    kind->fallbacks = (int64_t)counters.memory_fallbacks;
    return twill_allreduce(run->comm, &kind->fallbacks, &kind->fallbacks, 1, TWILL_I64, TWILL_SUM);
}
