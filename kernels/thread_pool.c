/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/thread_pool.h"
#include "lib/base/rest.h"
#include "lib/base/thread_start.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(_OPENMP)
#include <omp.h>
#endif

/* Polls of a thread of the pool before it sleeps (20 to 100 us), and of a caller before it yields
 * its core to a thread that it waits for. If cores are shared, each of these polls yields. */
#define SPINS        2000u
#define SPINS_SHARED 20u

/* Classes of sizes of jobs, 2^i bytes and more. */
#define TRIALS 48u

/* A fork as one word: a number of 34 bits and three fields. It has `parts` parts, for the threads
 * at positions `first` to `first` + `parts` - 1, one of which is the caller's. */
#define FIELD_BITS  10
#define FIELD_MASK  ((UINT64_C(1) << FIELD_BITS) - 1)
#define NUMBER_UNIT (UINT64_C(1) << (3 * FIELD_BITS))
_Static_assert(TWILL_THREADS_MOST < FIELD_MASK, "positions fit their fields");

/* One thread of a pool. Members that different threads write are on different cache lines. */
struct worker {
    /* The last fork whose part was taken, by this thread or the caller, and the last one that this
     * thread has ended. */
    _Atomic uint64_t taken TWILL_ALIGNED(TWILL_CACHE_LINE);
    _Atomic uint64_t ended;
    _Atomic uint32_t asleep TWILL_ALIGNED(TWILL_CACHE_LINE); /* futex word, 1 if it sleeps */
    struct twill_thread_pool *pool;
    unsigned position;
    bool started;
    pthread_t thread;
};

struct twill_thread_pool {
    _Atomic uint64_t fork TWILL_ALIGNED(TWILL_CACHE_LINE); /* the last fork, 0 before the first */
    /* Of the last fork. A thread reads them only after it has taken its part. */
    twill_part_fn run;
    void *job;
    _Atomic bool busy TWILL_ALIGNED(TWILL_CACHE_LINE); /* a caller has it */
    _Atomic uint64_t forks;                            /* so far; written by that caller */
    _Atomic bool stop TWILL_ALIGNED(TWILL_CACHE_LINE); /* all threads must end */
    unsigned size, cpu_count;
    uint16_t *position; /* [cpu_count], or NULL */
    bool shared;
    enum twill_pool_team team;
    pid_t process; /* the one that has the threads */
    size_t thread_bytes, pays_from;
    struct twill_thread_rates rates;
    /* These two belong to the caller that has the pool. missed_ns is the time by which jobs took
     * longer because threads slept. trial[k][i] is of jobs of 2^i bytes or more, from at most one
     * source, two or more (k is 0, 1 or 2). */
    double missed_ns;
    struct twill_thread_trial trial[3][TRIALS];
    struct worker worker[]; /* [size] by position */
};

static unsigned parts_of(uint64_t fork)
{
    return (unsigned)(fork & FIELD_MASK);
}

static unsigned first_of(uint64_t fork)
{
    return (unsigned)(fork >> FIELD_BITS & FIELD_MASK);
}

/* Return the position of the fork's caller. */
static unsigned caller_of(uint64_t fork)
{
    return (unsigned)(fork >> 2 * FIELD_BITS & FIELD_MASK);
}

static long futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
    return syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

/* Wake a thread if it sleeps. */
static void wake(struct worker *worker)
{
    if (atomic_load(&worker->asleep) != 0 && atomic_exchange(&worker->asleep, 0) != 0)
        (void)futex(&worker->asleep, FUTEX_WAKE_PRIVATE, 1);
}

/* Wake the threads for which the one at `position` is responsible, if they sleep. Parts are counted
 * from the caller's, which is 0, and part k wakes parts 2k + 1 and 2k + 2. */
static void wake_next(struct twill_thread_pool *pool, uint64_t fork, unsigned position)
{
    unsigned parts = parts_of(fork), first = first_of(fork), caller = caller_of(fork) - first;
    unsigned k = (position - first + parts - caller) % parts;
    for (unsigned next = 2 * k + 1; next <= 2 * k + 2 && next < parts; next++)
        wake(&pool->worker[first + (next + caller) % parts]);
}

/* Take the fork's part of a thread, unless it is taken or the fork is an old one, which has ended.
 * Returns whether the caller must do it. */
static bool take(struct worker *worker, uint64_t fork)
{
    uint64_t taken = atomic_load_explicit(&worker->taken, memory_order_relaxed);
    return (int64_t)(fork - taken) > 0 &&
           atomic_compare_exchange_strong_explicit(&worker->taken, &taken, fork,
                                                   memory_order_relaxed, memory_order_relaxed);
}

/* Sleep until there is another fork than `seen`. No wake-up is lost, as this sets `asleep` and then
 * reads the fork, and the others write the fork and then read `asleep`. */
static void sleep_until_fork(struct worker *worker, uint64_t seen)
{
    struct twill_thread_pool *pool = worker->pool;
    do {
        atomic_store(&worker->asleep, 1);
        if (atomic_load(&pool->fork) == seen)
            (void)futex(&worker->asleep, FUTEX_WAIT_PRIVATE, 1);
    } while (atomic_load(&pool->fork) == seen);
    atomic_store(&worker->asleep, 0);
}

/* Return the next fork after `seen`. Spin before sleeping, unless the caller of the last fork runs
 * on this core. */
static uint64_t next_fork(struct worker *worker, uint64_t seen)
{
    struct twill_thread_pool *pool = worker->pool;
    unsigned spins = pool->shared ? SPINS_SHARED : SPINS;
    if (seen != 0 && caller_of(seen) == worker->position)
        spins = 0;
    for (unsigned poll = 0; poll < spins; poll++) {
        uint64_t fork = atomic_load_explicit(&pool->fork, memory_order_acquire);
        if (fork != seen)
            return fork;
        if (pool->shared)
            twill_yield();
        else
            twill_pause();
    }
    sleep_until_fork(worker, seen);
    return atomic_load(&pool->fork);
}

/* A thread of a pool, `argument`, a struct worker. Returns NULL when the pool stops. */
static void *work(void *argument)
{
    struct worker *worker = argument;
    struct twill_thread_pool *pool = worker->pool;
    for (uint64_t fork = 0; !atomic_load_explicit(&pool->stop, memory_order_relaxed);) {
        fork = next_fork(worker, fork);
        unsigned part = worker->position - first_of(fork), parts = parts_of(fork);
        if (part >= parts)
            continue;
        wake_next(pool, fork, worker->position);
        if (!take(worker, fork))
            continue;
        pool->run(pool->job, part, parts);
        atomic_store_explicit(&worker->ended, fork, memory_order_release);
    }
    return NULL;
}

/* Wait until a thread has ended its part of the fork, which it has begun. Its work is finite, so
 * this wait needs no deadline. */
static void await_end(const struct twill_thread_pool *pool, const struct worker *worker,
                      uint64_t fork)
{
    const unsigned spins = pool->shared ? 0 : SPINS;
    for (unsigned poll = 0; atomic_load_explicit(&worker->ended, memory_order_acquire) != fork;) {
        if (poll++ < spins)
            twill_pause();
        else
            twill_yield();
    }
}

/* Return the position of the core on which the caller runs, or 0 if it is none of the pool's. */
static unsigned position_here(const struct twill_thread_pool *pool)
{
    int cpu = pool->position != NULL ? sched_getcpu() : -1;
    unsigned position = cpu >= 0 && (unsigned)cpu < pool->cpu_count ? pool->position[cpu] : 0;
    return position < pool->size ? position : 0;
}

/* Return the word of a new fork. Numbers start again after 2^34, so take() compares them modulo
 * that, for which no thread's last part may be older than half of it. */
static uint64_t new_fork(struct twill_thread_pool *pool, unsigned caller, unsigned parts)
{
    uint64_t last = atomic_load_explicit(&pool->fork, memory_order_relaxed);
    uint64_t number = last / NUMBER_UNIT + 1;
    unsigned first = (unsigned)twill_min(caller / parts * parts, pool->size - parts);
    for (unsigned w = 0; number % (UINT64_C(1) << 32) == 0 && w < pool->size; w++)
        atomic_store_explicit(&pool->worker[w].taken, last, memory_order_relaxed);
    return number * NUMBER_UNIT + ((uint64_t)caller << 2 * FIELD_BITS) +
           ((uint64_t)first << FIELD_BITS) + parts;
}

/* Call run(job, part, parts) for all parts with the threads of the pool, which the caller has. */
static void run_own(struct twill_thread_pool *pool, unsigned parts, twill_part_fn run, void *job)
{
    unsigned caller = position_here(pool);
    uint64_t fork = new_fork(pool, caller, parts);
    unsigned first = first_of(fork);
    pool->run = run;
    pool->job = job;
    atomic_store_explicit(&pool->worker[caller].taken, fork, memory_order_relaxed);
    atomic_store(&pool->fork, fork);
    wake_next(pool, fork, caller);
    run(job, caller - first, parts);
    for (unsigned part = 0; part < parts; part++) /* of threads that have not begun */
        if (take(&pool->worker[first + part], fork)) {
            run(job, part, parts);
            atomic_store_explicit(&pool->worker[first + part].ended, fork, memory_order_relaxed);
        }
    for (unsigned part = 0; part < parts; part++)
        if (first + part != caller)
            await_end(pool, &pool->worker[first + part], fork);
}

#if defined(_OPENMP)
/* Do the same with OpenMP's threads. It may lend fewer. */
static void run_openmp(unsigned parts, twill_part_fn run, void *job)
{
#pragma omp parallel num_threads((int)parts)
    for (unsigned p = (unsigned)omp_get_thread_num(); p < parts;
         p += (unsigned)omp_get_num_threads())
        run(job, p, parts);
}
#endif

bool twill_has_openmp(unsigned threads)
{
#if defined(_OPENMP)
    return omp_get_max_threads() >= (int)threads && !omp_in_parallel();
#else
    (void)threads;
    return false;
#endif
}

#if defined(_OPENMP)
/* Add the CPUs of OpenMP's place `p` to *all. Returns whether they are those of *mine. */
static bool add_place(int p, const cpu_set_t *mine, cpu_set_t *all)
{
    cpu_set_t place;
    int count = omp_get_place_num_procs(p);
    int *cpu = count > 0 ? malloc(sizeof(*cpu) * (size_t)count) : NULL;
    CPU_ZERO(&place);
    if (cpu == NULL)
        return false;
    omp_get_place_proc_ids(p, cpu);
    for (int i = 0; i < count; i++)
        if (cpu[i] >= 0 && cpu[i] < CPU_SETSIZE)
            CPU_SET((size_t)cpu[i], &place);
    free(cpu);
    CPU_OR(all, all, &place);
    return CPU_EQUAL(&place, mine);
}
#endif

bool twill_openmp_cpus(uint64_t *cpus, unsigned cpu_count)
{
    bool bound = false;
#if defined(_OPENMP)
    cpu_set_t mine, all;
    CPU_ZERO(&all);
    if (getpid() != (pid_t)syscall(SYS_gettid) || omp_get_proc_bind() == omp_proc_bind_false ||
        sched_getaffinity(0, sizeof(mine), &mine) != 0)
        return false;
    for (int p = omp_get_num_places(); p-- > 0;)
        bound |= add_place(p, &mine, &all);
    for (unsigned cpu = 0; bound && cpu < cpu_count && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all))
            cpus[cpu / 64] |= UINT64_C(1) << cpu % 64;
#else
    (void)cpus, (void)cpu_count;
#endif
    return bound;
}

/* Take the pool, unless another caller has it. The caller cannot be cancelled meanwhile, as threads
 * work on its stack. Its state before is stored in *cancel. */
static bool take_pool(struct twill_thread_pool *pool, int *cancel)
{
    if (atomic_exchange_explicit(&pool->busy, true, memory_order_acquire))
        return false;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, cancel);
    return true;
}

static void give_back(struct twill_thread_pool *pool, int cancel)
{
    atomic_store_explicit(&pool->busy, false, memory_order_release);
    (void)pthread_setcancelstate(cancel, NULL);
}

/* Call run() for all parts, at least two, with threads of the pool, which the caller has. */
static void run_shared(struct twill_thread_pool *pool, unsigned parts, twill_part_fn run, void *job)
{
    atomic_fetch_add_explicit(&pool->forks, 1, memory_order_relaxed);
#if defined(_OPENMP)
    if (pool->team == TWILL_TEAM_OPENMP && getpid() == pool->process)
        run_openmp(parts, run, job);
    else
#endif
        run_own(pool, parts, run, job);
}

bool twill_pool_run(struct twill_thread_pool *pool, unsigned parts, twill_part_fn run, void *job)
{
    int cancel;
    if (pool == NULL || parts < 2 || !take_pool(pool, &cancel))
        return false;
    run_shared(pool, (unsigned)twill_min(parts, pool->size), run, job);
    give_back(pool, cancel);
    return true;
}

bool twill_pool_sleeps(const struct twill_thread_pool *pool)
{
    if (pool == NULL || pool->team == TWILL_TEAM_OPENMP)
        return false;
    unsigned here = position_here(pool);
    const struct worker *next = &pool->worker[here + 1 < pool->size ? here + 1 : here - 1];
    return atomic_load_explicit(&next->asleep, memory_order_relaxed) != 0;
}

unsigned twill_pool_threads(const struct twill_thread_pool *pool, size_t written, size_t read)
{
    if (pool == NULL || written + read < pool->pays_from)
        return 1;
    if (pool->thread_bytes > 0)
        return (unsigned)twill_max(
            twill_min(pool->size, (written > 0 ? written : read) / pool->thread_bytes), 1);
    return pool->rates.step[twill_thread_step(&pool->rates, pool->size, written, read, false)]
        .threads;
}

/* Return the number of threads for a job in a pool that the caller has. Waking threads that sleep
 * may cost more than one job gains. So the gains that jobs miss are added up, and when their sum
 * exceeds that cost, the threads are woken. Otherwise a stream of such jobs would never do so. */
static unsigned choose_threads(struct twill_thread_pool *pool, size_t written, size_t read)
{
    const struct twill_thread_rates *rates = &pool->rates;
    unsigned threads = twill_pool_threads(pool, written, read);
    if (threads < 2 || pool->thread_bytes > 0)
        return threads;
    if (!twill_pool_sleeps(pool)) {
        pool->missed_ns = 0;
        return threads;
    }
    uint32_t step = twill_thread_step(rates, pool->size, written, read, true);
    if (step == 0) {
        step = twill_thread_last_step(rates, threads);
        pool->missed_ns += twill_thread_ns(rates, 0, written, read, false) -
                           twill_thread_ns(rates, step, written, read, false);
        if (pool->missed_ns < rates->step[step].wake_ns)
            return 1;
    }
    pool->missed_ns = 0;
    return rates->step[step].threads;
}

/* Return the trials of jobs that have about as many bytes as this one, and as many sources. */
static struct twill_thread_trial *trial_of(struct twill_thread_pool *pool, size_t written,
                                           size_t read)
{
    unsigned class = 63 - (unsigned)__builtin_clzll(twill_max(written, read) | 1);
    unsigned kind = written == 0 || read <= written ? 0 : read <= 2 * written ? 1 : 2;
    return &pool->trial[kind][twill_min(class, TRIALS - 1)];
}

/* Do a job alone, without the pool, and record it in its trials if that is not NULL. */
static void run_alone(struct twill_thread_pool *pool, struct twill_thread_trial *trial,
                      double alone_ns, twill_part_fn run, void *job)
{
    int cancel;
    uint64_t begin = twill_ticks();
    run(job, 0, 1);
    if (trial == NULL || !take_pool(pool, &cancel))
        return;
    twill_thread_trial_end(trial, true, twill_ticks() - begin, alone_ns);
    give_back(pool, cancel);
}

void twill_pool_share(struct twill_thread_pool *pool, size_t written, size_t read, unsigned most,
                      twill_part_fn run, void *job)
{
    int cancel;
    if (pool == NULL || written + read < pool->pays_from || !take_pool(pool, &cancel)) {
        run(job, 0, 1);
        return;
    }
    struct twill_thread_trial *trial = NULL;
    unsigned threads = (unsigned)twill_min(choose_threads(pool, written, read), most);
    double alone_ns = 0;
    if (threads > 1 && pool->thread_bytes == 0) { /* else the user says how many share it */
        trial = trial_of(pool, written, read);
        uint32_t step = twill_thread_last_step(&pool->rates, threads);
        alone_ns = twill_thread_ns(&pool->rates, 0, written, read, false);
        if (twill_thread_trial_begin(trial, alone_ns,
                                     twill_thread_ns(&pool->rates, step, written, read, false)))
            threads = 1;
    }
    if (threads < 2) {
        give_back(pool, cancel); /* for other threads */
        run_alone(pool, trial, alone_ns, run, job);
        return;
    }
    uint64_t begin = twill_ticks();
    run_shared(pool, threads, run, job);
    if (trial != NULL)
        twill_thread_trial_end(trial, false, twill_ticks() - begin, alone_ns);
    give_back(pool, cancel);
}

uint64_t twill_pool_forks(const struct twill_thread_pool *pool)
{
    return pool != NULL ? atomic_load_explicit(&pool->forks, memory_order_relaxed) : 0;
}

unsigned twill_thread_pool_size(const struct twill_thread_pool *pool)
{
    return pool != NULL ? pool->size : 1;
}

void twill_thread_pool_use(struct twill_thread_pool *pool, enum twill_pool_team team,
                           const struct twill_thread_rates *rates)
{
    if (pool == NULL)
        return;
    pool->team = team;
    atomic_store(&pool->forks, 0); /* without those that measured */
    pool->rates = *rates;
    memset(pool->trial, 0, sizeof(pool->trial));
    if (rates->steps > 0) {
        pool->thread_bytes = 0;
        pool->pays_from = twill_thread_pays_from(rates, pool->size);
    }
}

const struct twill_thread_rates *twill_thread_pool_rates(const struct twill_thread_pool *pool)
{
    static const struct twill_thread_rates none = {.steps = 0};
    return pool != NULL ? &pool->rates : &none;
}

/* Start the threads of a pool. Without CPUs the first position has none, as it is the caller's. */
static twill_status start(struct twill_thread_pool *pool, const int *cpus,
                          struct twill_error *error)
{
    for (unsigned w = cpus == NULL ? 1 : 0; w < pool->size; w++) {
        struct worker *worker = &pool->worker[w];
        int code = twill_thread_start(&worker->thread, "twill-pool", cpus != NULL ? cpus[w] : -1,
                                      work, worker);
        if (code != 0)
            return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "thread %u of %u cannot be started: %s", w,
                              pool->size, strerror(code));
        worker->started = true;
    }
    return TWILL_OK;
}

twill_status twill_thread_pool_open(struct twill_thread_pool **pool,
                                    const struct twill_thread_pool_options *options,
                                    struct twill_error *error)
{
    unsigned size = options->threads;
    *pool = NULL;
    if (size > TWILL_THREADS_MOST)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "%u threads are more than the maximum, %u",
                          size, TWILL_THREADS_MOST);
    if (size < 2)
        return TWILL_OK;
    size_t workers = sizeof(struct worker) * size;
    size_t map = options->position != NULL ? sizeof(uint16_t) * options->cpu_count : 0;
    size_t bytes = twill_round_up(sizeof(**pool) + workers + map, TWILL_CACHE_LINE);
    struct twill_thread_pool *made = aligned_alloc(TWILL_CACHE_LINE, bytes);
    if (made == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for %u threads", size);
    memset(made, 0, bytes);
    made->size = size;
    made->shared = options->shared;
    made->process = getpid();
    made->thread_bytes = options->thread_bytes > 0 ? options->thread_bytes : TWILL_THREAD_BYTES;
    made->pays_from = 2 * made->thread_bytes;
    if (options->position != NULL) {
        made->position = (uint16_t *)(void *)((char *)made->worker + workers);
        memcpy(made->position, options->position, map);
        made->cpu_count = options->cpu_count;
    }
    for (unsigned w = 0; w < size; w++) {
        made->worker[w].pool = made;
        made->worker[w].position = w;
    }
    twill_status status = start(made, options->cpus, error);
    if (status != TWILL_OK)
        twill_thread_pool_close(made);
    else
        *pool = made;
    return status;
}

void twill_thread_pool_close(struct twill_thread_pool *pool)
{
    if (pool == NULL)
        return;
    atomic_store(&pool->stop, true);
    atomic_store(&pool->fork, (atomic_load(&pool->fork) + NUMBER_UNIT) & ~FIELD_MASK); /* no part */
    for (unsigned w = 0; w < pool->size && getpid() == pool->process; w++)
        if (pool->worker[w].started) {
            wake(&pool->worker[w]);
            pthread_join(pool->worker[w].thread, NULL);
        }
    free(pool);
}
