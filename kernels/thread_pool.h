/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's own pool of threads, which share the work of a kernel. Work has parts, and part i goes
 * to the thread on the core at position first + i, so neighbours in the data are neighbours in the
 * machine. The caller does the part of the core on which it runs. A fork is one store, which
 * threads that spin see at once. After a bounded number of polls they sleep. When the caller has
 * done its own part, it takes the parts whose threads have not begun. So it never waits for a
 * thread that sleeps or, in a child of fork(), does not exist. */
#ifndef TWILL_THREAD_POOL_H
#define TWILL_THREAD_POOL_H

#include "lib/base/base.h"
#include "lib/base/thread_rates.h"

/* Least bytes written per thread, while no rates are known. On Zen 5 two threads take 5 us for 512
 * KiB where one takes 14. */
#define TWILL_THREAD_BYTES ((size_t)256 << 10)

/* A pool, which a context owns. Its functions take NULL for a rank with one thread. */
struct twill_thread_pool;
struct twill_kernels;

/* What a pool is made from, a variable of the caller. */
struct twill_thread_pool_options {
    unsigned threads; /* with the caller, 1 to TWILL_THREADS_MOST */
    const int *cpus;  /* [threads] a CPU of each core in the order of the data, or NULL for threads
                         that run where the maker may run */
    const uint16_t *position; /* [cpu_count] index in cpus[] of the core that each CPU belongs to,
                                 or UINT16_MAX; or NULL without cpus */
    unsigned cpu_count;
    bool shared;         /* other ranks use the same cores, so waits yield at once */
    size_t thread_bytes; /* bytes written by each thread at least, or 0 to decide by the rates */
};

/* Make *pool and start its threads. With one thread *pool becomes NULL. Returns TWILL_OK,
 * TWILL_ERR_ARGUMENT if there are too many threads, TWILL_ERR_MEMORY, or TWILL_ERR_SYSTEM if a
 * thread cannot be started. */
twill_status twill_thread_pool_open(struct twill_thread_pool **pool,
                                    const struct twill_thread_pool_options *options,
                                    struct twill_error *error);
/* Stop the threads, wait until they have ended, and free the pool. No thread may be in a call on
 * it. In a child of fork() only free it. */
void twill_thread_pool_close(struct twill_thread_pool *pool);
/* Return the number of threads, with the caller. */
unsigned twill_thread_pool_size(const struct twill_thread_pool *pool);

/* Process part number `part` of `parts`, one of which may be empty. Several threads call it. */
typedef void (*twill_part_fn)(void *job, unsigned part, unsigned parts);
/* Call run(job, 0 .. parts - 1, parts), each part once, in at most `parts` threads, and return true
 * when all have returned. `parts` is at most the size of the pool. If another thread uses the pool,
 * or `parts` is below 2, or there is no pool, return false and do nothing. Any thread may call it.
 * If it is cancelled meanwhile, that takes effect afterwards. A part may not use the pool. */
bool twill_pool_run(struct twill_thread_pool *pool, unsigned parts, twill_part_fn run, void *job);
/* Call run(job, 0 .. parts - 1, parts), which write `written` bytes in all and read `read` bytes,
 * with the number of parts that finishes first, at most `most`. That is 1 if the pool is in use.
 * The figures say so and, as they may be wrong where data come from other cores, trials of jobs of
 * that size. A part may not use the pool. Any thread may call it. */
void twill_pool_share(struct twill_thread_pool *pool, size_t written, size_t read, unsigned most,
                      twill_part_fn run, void *job);
/* Return how many times threads of the pool have shared work, since twill_thread_pool_use() if that
 * was called. Any thread may call it. */
uint64_t twill_pool_forks(const struct twill_thread_pool *pool);
/* Return how many threads, if they spin, finish first with work that writes `written` bytes in all
 * and reads `read` bytes, 1 if more do not pay. At most the size of the pool. */
unsigned twill_pool_threads(const struct twill_thread_pool *pool, size_t written, size_t read);
/* Return whether the first threads of the pool sleep, so that a fork must wake them. */
bool twill_pool_sleeps(const struct twill_thread_pool *pool);

/* The threads that do the work of a pool. */
enum twill_pool_team {
    TWILL_TEAM_OWN,   /* those of the pool */
    TWILL_TEAM_OPENMP /* the OpenMP runtime's. Without OpenMP, the pool's */
};
/* Choose threads, and numbers of threads by a table of rates, which is copied. An empty table means
 * one thread for each TWILL_THREAD_BYTES. To be called before other threads use the pool. */
void twill_thread_pool_use(struct twill_thread_pool *pool, enum twill_pool_team team,
                           const struct twill_thread_rates *rates);
/* Measure *rates for 1, 2, 4 ... threads and all of them, in a few ms, and which threads start in
 * less time, *team. With `prefers_openmp` that is OpenMP's team if there is one, for a program
 * whose own OpenMP threads keep the cores busy. No other thread may use the pool. Returns true if
 * no thread has lost its core meanwhile, so that the figures can be kept. */
bool twill_thread_pool_measure(struct twill_thread_pool *pool, const struct twill_kernels *kernels,
                               bool prefers_openmp, struct twill_thread_rates *rates,
                               enum twill_pool_team *team);
/* Return whether an OpenMP runtime lends `threads` threads. */
bool twill_has_openmp(unsigned threads);
/* If the caller is the program's first thread, and an OpenMP runtime has bound it to one of its
 * places, as it does before main(), add all CPUs of its places, below `cpu_count`, to the bit set
 * `cpus`. Returns whether that is so. */
bool twill_openmp_cpus(uint64_t *cpus, unsigned cpu_count);
/* Return the table in use, which is empty without a pool. */
const struct twill_thread_rates *twill_thread_pool_rates(const struct twill_thread_pool *pool);

#endif
