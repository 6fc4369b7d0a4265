/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/thread_rates.h"
#include "lib/base/base.h"

/* Jobs of a trial. The first does not count, as its data lie in the caches of the other way. */
#define TRIED 6u
/* Before the first trial, the other jobs take at least this many times as long as a trial would
 * cost if the expected times were right. */
#define WORTH 8.0
/* Jobs between later trials, at least after a change, and at most. */
#define JOBS_LEAST 64u
#define JOBS_MOST  8192u
/* Times the usual cost. What takes longer was interrupted. */
#define OUTLIER 3.0f
/* Times the cost when the way was decided on. It is exceeded by several slow jobs, not by one. */
#define SLOWER 1.6f

/* Return the time in ns to write `written` bytes from `sources` times as many, at rates [far]. */
static double bytes_ns(const struct twill_thread_rate *rate, int far, double written,
                       double sources)
{
    double copy = written * 1000 / rate->copy_mbs[far];
    double further = written * 1000 / rate->reduce_mbs[far] - copy;
    return copy + (sources > 1 && further > 0 ? (sources - 1) * further : 0);
}

double twill_thread_ns(const struct twill_thread_rates *rates, uint32_t step, size_t written,
                       size_t read, bool asleep)
{
    const struct twill_thread_rate *rate = &rates->step[step];
    size_t bytes = written > 0 ? written : read, near = twill_min(bytes, rates->near_bytes);
    double sources = bytes > 0 ? (double)read / (double)bytes : 0;
    return bytes_ns(rate, 0, (double)near, sources) +
           bytes_ns(rate, 1, (double)(bytes - near), sources) +
           (asleep ? rate->wake_ns : rate->fork_join_ns);
}

uint32_t twill_thread_step(const struct twill_thread_rates *rates, unsigned most, size_t written,
                           size_t read, bool asleep)
{
    uint32_t best = 0;
    double least = rates->steps > 0 ? twill_thread_ns(rates, 0, written, read, asleep) : 0;
    for (uint32_t s = 1; s < rates->steps && rates->step[s].threads <= most; s++) {
        double ns = twill_thread_ns(rates, s, written, read, asleep);
        if (ns < least) {
            least = ns;
            best = s;
        }
    }
    return best;
}

uint32_t twill_thread_last_step(const struct twill_thread_rates *rates, unsigned most)
{
    uint32_t step = 0;
    while (step + 1 < rates->steps && rates->step[step + 1].threads <= most)
        step++;
    return step;
}

size_t twill_thread_pays_from(const struct twill_thread_rates *rates, unsigned most)
{
    for (size_t bytes = 1024; bytes <= (size_t)1 << 40; bytes += bytes / 8)
        if (twill_thread_step(rates, most, bytes, bytes, false) > 0)
            return bytes;
    return SIZE_MAX;
}

size_t twill_thread_piece(const struct twill_thread_rates *rates, unsigned threads, size_t most)
{
    uint32_t step = twill_thread_step(rates, threads, most, 2 * most, false);
    size_t bytes = 1024;
    while (bytes < most && twill_thread_step(rates, threads, bytes, 2 * bytes, false) < step)
        bytes += bytes / 8;
    return step > 0 ? twill_min(twill_round_up(bytes, TWILL_CACHE_LINE), most) : 0;
}

bool twill_thread_rates_valid(const struct twill_thread_rates *rates)
{
    if (rates->steps > TWILL_THREAD_STEPS || (rates->steps > 0 && rates->step[0].threads != 1))
        return false;
    for (uint32_t s = 0; s < rates->steps; s++) {
        const struct twill_thread_rate *rate = &rates->step[s];
        if (rate->threads > TWILL_THREADS_MOST ||
            (s > 0 && rate->threads <= rates->step[s - 1].threads))
            return false;
        for (int far = 0; far < 2; far++)
            if (rate->copy_mbs[far] == 0 || rate->reduce_mbs[far] == 0)
                return false;
    }
    return true;
}

bool twill_thread_trial_begin(struct twill_thread_trial *trial, double alone_ns, double shared_ns)
{
    if (trial->between == 0)
        trial->between = TRIED + (uint32_t)(WORTH * TRIED *
                                            twill_min(twill_max(alone_ns / shared_ns - 1, 0), 99));
    return trial->alone != (trial->jobs >= trial->between);
}

void twill_thread_trial_end(struct twill_thread_trial *trial, bool alone, uint64_t ticks,
                            double alone_ns)
{
    float *cost = &trial->cost[alone], now = (float)((double)ticks / alone_ns);
    if (trial->jobs != 0 && trial->jobs != trial->between)
        *cost = *cost == 0.0f ? now : *cost + (twill_min(now, OUTLIER * *cost) - *cost) / 4;
    trial->jobs++;
    if (trial->settled > 0 && trial->jobs < trial->between &&
        trial->cost[trial->alone] > SLOWER * trial->settled)
        trial->between = trial->jobs; /* the next job begins a trial */
    if (trial->jobs < trial->between + TRIED)
        return;
    /* the other way must take less than 15/16 of the time */
    float mine = trial->cost[trial->alone], other = trial->cost[!trial->alone];
    bool changes = other < mine - mine / 16;
    trial->alone = trial->alone != changes;
    trial->settled = trial->cost[trial->alone];
    trial->between =
        changes ? JOBS_LEAST
                : (uint32_t)twill_min(twill_max(2 * trial->between, JOBS_LEAST), JOBS_MOST);
    trial->jobs = 0;
}
