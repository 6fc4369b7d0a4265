/* SPDX-License-Identifier: Apache-2.0 */
/* What copying and reducing cost a rank by its number of threads, and the rule by which it chooses
 * how many of them share a piece of work. The executor and the price of an algorithm use the same
 * figures and the same rule, so that what is priced is what runs. Pure, and integers only, so that
 * ranks with equal figures compute the same. */
#ifndef TWILL_THREAD_FIGURES_H
#define TWILL_THREAD_FIGURES_H

#include <stdint.h>

#define TWILL_THREAD_FIGURES 9   /* of 1, 2, 4 ... 256 threads */
#define TWILL_THREADS_MOST   256 /* threads of a rank that the figures describe */

/* The kind of a piece of work on memory. */
enum twill_thread_work { TWILL_WORK_COPY, TWILL_WORK_REDUCE, TWILL_WORK_KINDS };

/* Costs with one number of threads, all of which work at the same time. */
struct twill_thread_figure {
    uint64_t fork; /* picoseconds to give the threads their parts and to wait for all; 0 for one */
    /* picoseconds per KiB of the result, by kind: copied, or one operand reduced into another */
    uint64_t rate[TWILL_WORK_KINDS];
};

/* Costs by the number of threads of a rank, measured or of a machine model. A plain value. Figure i
 * is of 2^i threads, except that the last one is of `most` threads. */
struct twill_thread_figures {
    uint64_t most; /* threads of the last figure, at most TWILL_THREADS_MOST; 0 or 1 for one */
    struct twill_thread_figure of[TWILL_THREAD_FIGURES];
};

/* Return the number of threads that figure i describes. */
static inline unsigned twill_threads_of(const struct twill_thread_figures *figures, unsigned i)
{
    uint64_t threads = UINT64_C(1) << i;
    return (unsigned)(threads < figures->most ? threads : figures->most > 1 ? figures->most : 1);
}

/* Return the number of figures that are known, at least 1. */
static inline unsigned twill_threads_count(const struct twill_thread_figures *figures)
{
    unsigned count = 1;
    while (count < TWILL_THREAD_FIGURES && UINT64_C(1) << (count - 1) < figures->most)
        count++;
    return count;
}

/* Return the picoseconds of work that writes `bytes` bytes with the threads of figure i. */
static inline uint64_t twill_threads_time(const struct twill_thread_figures *figures,
                                          enum twill_thread_work work, uint64_t bytes, unsigned i)
{
    const struct twill_thread_figure *f = &figures->of[i];
    return f->fork + f->rate[work] * (bytes >> 10) + (f->rate[work] * (bytes & 1023) >> 10);
}

/* Return the index of the figure with whose number of threads work that writes `bytes` bytes takes
 * the least time. Of equal times the one with fewer threads wins. It is 0, one thread, if only that
 * is known. */
static inline unsigned twill_threads_choose(const struct twill_thread_figures *figures,
                                            enum twill_thread_work work, uint64_t bytes)
{
    unsigned best = 0;
    uint64_t least = twill_threads_time(figures, work, bytes, 0);
    for (unsigned i = 1; UINT64_C(1) << (i - 1) < figures->most && i < TWILL_THREAD_FIGURES; i++) {
        uint64_t time = twill_threads_time(figures, work, bytes, i);
        if (time < least) {
            best = i;
            least = time;
        }
    }
    return best;
}

#endif
