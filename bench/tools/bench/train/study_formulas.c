/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/tools/bench/train/study.h"

size_t twill_study_rank_batch(bool strong, size_t ranks, size_t batch)
{
    return strong ? (batch + ranks - 1) / ranks : batch;
}

size_t twill_study_total_batch(bool strong, size_t ranks, size_t batch)
{
    return strong ? batch : batch * ranks;
}

size_t twill_study_steps(const struct twill_study_step *step, size_t samples)
{
    size_t total = twill_study_total_batch(step->strong, step->ranks, step->batch);
    return (samples + total - 1) / total;
}

double twill_study_throughput(const struct twill_study_step *step)
{
    size_t total = twill_study_total_batch(step->strong, step->ranks, step->batch);
    return step->seconds > 0 ? (double)total / step->seconds : 0;
}

bool twill_study_speedup(const struct twill_study_step *step, double *speedup, double *efficiency)
{
    double n = (double)step->ranks;
    if (step->alone < 0 || step->seconds <= 0)
        return false;
    *speedup = step->alone / step->seconds * (step->strong ? 1 : n);
    *efficiency = *speedup / n;
    return true;
}

bool twill_study_overhead(const struct twill_study_step *step, double *seconds)
{
    size_t mine = twill_study_rank_batch(step->strong, step->ranks, step->batch);
    if (step->alone < 0)
        return false;
    *seconds = step->seconds - step->alone * (double)mine / (double)step->batch;
    return true;
}

double twill_study_apart(double one, double other)
{
    double larger = one > other ? one : other, smaller = one > other ? other : one;
    return larger > 0 ? 100 * (larger - smaller) / larger : 0;
}

double twill_study_share(double exposed, double seconds)
{
    return seconds > 0 ? exposed / seconds : 0;
}

double twill_study_limit(double exposed, double seconds)
{
    return seconds > exposed ? seconds / (seconds - exposed) : 0;
}

double twill_study_predict_exposed(const struct twill_study_bucket *buckets, size_t n,
                                   double backward)
{
    double free_at = 0;
    for (size_t i = 0; i < n; i++) {
        double from = buckets[i].ready > free_at ? buckets[i].ready : free_at;
        free_at = from + buckets[i].seconds;
    }
    return free_at > backward ? free_at - backward : 0;
}

double twill_study_root_bytes(double bytes, size_t ranks)
{
    return 2 * bytes * (double)(ranks - 1);
}

double twill_study_ring_bytes(double bytes, size_t ranks)
{
    return twill_study_root_bytes(bytes, ranks) / (double)ranks;
}
