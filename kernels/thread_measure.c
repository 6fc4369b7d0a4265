/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how fast the threads of a pool start, copy and reduce. */
#include "kernels/kernels.h"
#include "kernels/thread_pool.h"
#include "lib/base/rest.h"
#include "lib/base/times.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define NEAR_BYTES ((size_t)64 << 10)
/* Bytes written by each thread, and at least and at most by all, when data are not in caches. */
#define FAR_EACH  ((size_t)512 << 10)
#define FAR_LEAST ((size_t)2 << 20)
#define FAR_MOST  ((size_t)16 << 20)
/* Ticks of a part when a start is timed. A thread that starts later has its part taken. */
#define PART_SPINS 200u
#define STARTS     24u /* timed for each number of threads that spin */
#define WAKES      3u
#define PASSES     3u /* over data, of which the fastest counts */

/* A measurement under way, a variable of twill_thread_pool_measure(). */
struct measurement {
    struct twill_thread_pool *pool;
    const struct twill_kernels *kernels;
    unsigned char *memory; /* [3 * room]: two sources and a destination */
    size_t room;
    uint64_t hurry_at; /* twill_now() from which everything is timed only once */
};

/* A pass over data, for the threads of a pool. A variable of time_pass(). */
struct pass {
    const struct measurement *of;
    size_t bytes; /* written by all parts, from the start of each array */
    bool reduces;
};

/* Make part number `part` of the pass `job`. */
static void make_pass(void *job, unsigned part, unsigned parts)
{
    const struct pass *pass = job;
    const struct measurement *m = pass->of;
    size_t each = pass->bytes / parts & ~(size_t)(TWILL_CACHE_LINE - 1), at = part * each;
    unsigned char *dst = m->memory + 2 * m->room + at;
    const void *src[] = {m->memory + at, m->memory + m->room + at};
    if (pass->reduces)
        m->kernels->reduce[TWILL_F32][TWILL_SUM](dst, src, 2, each / sizeof(float), 1, 0);
    else
        m->kernels->copy(dst, src[0], each, 0);
}

/* Run work in `threads` threads, or in the caller alone. */
static void run_parts(struct twill_thread_pool *pool, unsigned threads, twill_part_fn run,
                      void *job)
{
    if (!twill_pool_run(pool, threads, run, job))
        run(job, 0, 1);
}

/* Return whether to time something again after it was timed `done` times, at most `most` times. */
static bool repeats(const struct measurement *m, unsigned done, unsigned most)
{
    return done == 0 || (done < most && twill_now() < m->hurry_at);
}

/* Return MB/s written in the fastest of some passes over `bytes` bytes, without the time of the
 * start, `start_ns`, which counts for half of it at most. Sources that fit caches were just written
 * by the caller, as most data of a rank were. */
static uint32_t time_pass(const struct measurement *m, unsigned threads, size_t bytes, bool reduces,
                          uint32_t start_ns)
{
    struct pass pass = {m, bytes, reduces};
    uint64_t best = UINT64_MAX;
    for (unsigned i = 0; repeats(m, i, PASSES); i++) {
        for (unsigned s = 0; s < 2 && bytes <= NEAR_BYTES; s++)
            memset(m->memory + s * m->room, 0, bytes);
        uint64_t begin = twill_now();
        run_parts(m->pool, threads, make_pass, &pass);
        best = twill_min(best, twill_now() - begin);
    }
    best -= twill_min(best / 2, start_ns);
    return (uint32_t)twill_max(twill_min(bytes * 1000 / twill_max(best, 1), UINT32_MAX), 1);
}

/* Spin as often as *job says. */
static void spin(void *job, unsigned part, unsigned parts)
{
    (void)part, (void)parts;
    for (unsigned i = 0; i < *(unsigned *)job; i++)
        twill_pause();
}

/* Return the ns by which parts that spin `spins` times take longer in several threads than one part
 * in the caller, the median of `times`. With `asleep` wait before each that the threads sleep. */
static uint32_t time_start(const struct measurement *m, unsigned threads, unsigned spins,
                           unsigned times, bool asleep)
{
    uint64_t alone = UINT64_MAX, taken[STARTS];
    for (unsigned i = 0; i < 3; i++) {
        uint64_t begin = twill_now();
        spin(&spins, 0, 1);
        alone = twill_min(alone, twill_now() - begin);
    }
    unsigned done = 0;
    for (; repeats(m, done, times); done++) {
        for (unsigned naps = 0; asleep && naps < 20 && !twill_pool_sleeps(m->pool); naps++)
            twill_nap(TWILL_US(50));
        uint64_t begin = twill_now();
        run_parts(m->pool, threads, spin, &spins);
        uint64_t ns = twill_now() - begin;
        unsigned at = done;
        for (; at > 0 && taken[at - 1] > ns; at--) /* in ascending order */
            taken[at] = taken[at - 1];
        taken[at] = ns;
    }
    uint64_t median = taken[done / 2];
    return median > alone ? (uint32_t)twill_min(median - alone, UINT32_MAX) : 1;
}

/* Measure the figures of rate->threads threads. */
static void measure_step(const struct measurement *m, struct twill_thread_rate *rate)
{
    unsigned threads = rate->threads;
    size_t far = twill_min(twill_max(threads * FAR_EACH, FAR_LEAST), m->room);
    if (threads > 1) {
        rate->fork_join_ns = time_start(m, threads, PART_SPINS, STARTS, false);
        rate->wake_ns = time_start(m, threads, 5 * PART_SPINS, WAKES, true);
        rate->wake_ns = (uint32_t)twill_max(rate->wake_ns, rate->fork_join_ns);
    }
    for (int reduces = 0; reduces < 2; reduces++) {
        uint32_t *mbs = reduces ? rate->reduce_mbs : rate->copy_mbs;
        mbs[0] = time_pass(m, threads, NEAR_BYTES, reduces, rate->fork_join_ns);
        mbs[1] = time_pass(m, threads, far, reduces, rate->fork_join_ns);
        mbs[0] = (uint32_t)twill_max(mbs[0], mbs[1]);
    }
}

/* Touch part number `part` of the memory of a measurement, `job`, which places its pages. */
static void touch(void *job, unsigned part, unsigned parts)
{
    const struct measurement *m = job;
    size_t each = m->room / parts & ~(size_t)(TWILL_CACHE_LINE - 1);
    for (unsigned array = 0; array < 3; array++)
        memset(m->memory + array * m->room + part * each, 0,
               part + 1 < parts ? each : m->room - part * each);
}

/* Return whether the team of OpenMP starts the most threads in clearly less time than the pool's
 * own threads, or is preferred anyway. If so, store its times. */
static bool openmp_is_better(const struct measurement *m, struct twill_thread_rates *rates,
                             bool preferred)
{
    const struct twill_thread_rates none = {.steps = 0};
    struct twill_thread_pool *pool = m->pool;
    unsigned most = twill_thread_pool_size(pool);
    uint32_t own = rates->step[rates->steps - 1].fork_join_ns;
    own = (uint32_t)twill_min(own, time_start(m, most, PART_SPINS, STARTS, false));
    twill_thread_pool_use(pool, TWILL_TEAM_OPENMP, &none);
    uint32_t openmp = time_start(m, most, PART_SPINS, STARTS, false);
    if (preferred || openmp < own / 4 * 3) {
        for (uint32_t s = 1; s < rates->steps; s++) {
            uint32_t ns = time_start(m, rates->step[s].threads, PART_SPINS, STARTS, false);
            rates->step[s].fork_join_ns = rates->step[s].wake_ns = ns;
        }
        return true;
    }
    twill_thread_pool_use(pool, TWILL_TEAM_OWN, &none);
    return false;
}

/* Return how often threads of this process have lost their core to another. */
static long count_preemptions(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

bool twill_thread_pool_measure(struct twill_thread_pool *pool, const struct twill_kernels *kernels,
                               bool prefers_openmp, struct twill_thread_rates *rates,
                               enum twill_pool_team *team)
{
    unsigned most = twill_thread_pool_size(pool);
    struct measurement m = {
        .pool = pool, .kernels = kernels, .hurry_at = twill_now() + TWILL_MEASURE_THREADS_NS};
    long before = count_preemptions();
    *rates = (struct twill_thread_rates){.steps = 0};
    *team = TWILL_TEAM_OWN;
    m.room = twill_min(twill_max(most * FAR_EACH, FAR_LEAST), FAR_MOST);
    if (most < 2)
        return false;
    void *memory =
        mmap(NULL, 3 * m.room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    m.memory = memory;
    run_parts(pool, most, touch, &m);
    rates->near_bytes = NEAR_BYTES;
    for (unsigned threads = 1;; threads = (unsigned)twill_min(2 * threads, most)) {
        rates->step[rates->steps].threads = threads;
        measure_step(&m, &rates->step[rates->steps++]);
        if (threads == most || rates->steps == TWILL_THREAD_STEPS)
            break;
    }
    munmap(memory, 3 * m.room);
    bool undisturbed = count_preemptions() == before;
    if (twill_has_openmp(most) && openmp_is_better(&m, rates, prefers_openmp))
        *team = TWILL_TEAM_OPENMP;
    return undisturbed;
}
