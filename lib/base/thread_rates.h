/* SPDX-License-Identifier: Apache-2.0 */
/* How fast numbers of threads copy and reduce on a machine, and which number finishes first. A
 * context measures these figures once (lib/job/rank_threads.c). All ranks of a job have the same
 * ones, as the price of an algorithm depends on them. */
#ifndef TWILL_THREAD_RATES_H
#define TWILL_THREAD_RATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TWILL_THREADS_MOST     1022u /* threads of a rank, with the caller */
#define TWILL_THREAD_STEPS     12u   /* numbers of threads in a table, such as 1, 2, 4 ... 64 */
#define TWILL_THREAD_TEXT_MOST 512   /* bytes of a table as text */

/* The figures of one number of threads, a plain value. Rates are MB (10^6 bytes) written per
 * second, in a copy and in a reduction of two sources. Those of [0] hold up to near_bytes written,
 * as data are in caches, and those of [1] beyond. */
struct twill_thread_rate {
    uint32_t threads;      /* with the caller, at least 1 */
    uint32_t fork_join_ns; /* to begin and end empty work, if the threads spin; 0 for one thread */
    uint32_t wake_ns;      /* the same if they sleep; 0 for one thread */
    uint32_t copy_mbs[2], reduce_mbs[2]; /* at least 1 */
};

/* A table of such figures, a plain value. The first step has one thread, later ones have more. */
struct twill_thread_rates {
    uint32_t steps; /* 0 if the table is empty, as nothing is known or one thread is allowed */
    uint32_t near_bytes;
    struct twill_thread_rate step[TWILL_THREAD_STEPS];
};

/* Return the time in ns in which the threads of rates->step[step] write `written` bytes in all from
 * `read` bytes, with their start. A copy reads as much as it writes, and each further source adds
 * the time by which a reduction exceeds a copy. If nothing is written, reading takes the time of a
 * copy. `asleep` says whether the threads sleep before. `step` must be below rates->steps. */
double twill_thread_ns(const struct twill_thread_rates *rates, uint32_t step, size_t written,
                       size_t read, bool asleep);
/* Return the step, with at most `most` threads, that finishes first, the lowest of equal ones. Step
 * 0 (one thread) if no other one pays, or the table is empty. */
uint32_t twill_thread_step(const struct twill_thread_rates *rates, unsigned most, size_t written,
                           size_t read, bool asleep);
/* Return the last step with at most `most` threads, 0 if the table is empty. */
uint32_t twill_thread_last_step(const struct twill_thread_rates *rates, unsigned most);
/* Return the least number of bytes of a copy from which more than one of at most `most` threads
 * that spin pay, or SIZE_MAX if they never do. */
size_t twill_thread_pays_from(const struct twill_thread_rates *rates, unsigned most);
/* Return the bytes that a kernel call must write so that all of `threads` threads help, which are
 * enough for `most` bytes to be written soonest. At most `most`, or 0 if one thread is faster. */
size_t twill_thread_piece(const struct twill_thread_rates *rates, unsigned threads, size_t most);
/* Return whether a table, as read from a file or received, has sane figures in ascending order. */
bool twill_thread_rates_valid(const struct twill_thread_rates *rates);

/* The most bytes of a segment that is longer so that all threads of a rank help, and the most bytes
 * of a part for which it is between nodes. Longer parts delay what follows more than threads save.
 */
#define TWILL_PIECE_SEGMENT_MOST ((size_t)64 << 20)
#define TWILL_PIECE_NET_MOST     ((size_t)64 << 10)
/* Return the bytes of a segment that is reduced in `parts` parts, of ranks or of blocks. They are
 * `segment` or, if more, `piece` (twill_thread_piece()) for each part, within the limit. */
static inline size_t twill_piece_segment(size_t segment, size_t piece, uint32_t parts)
{
    size_t most = TWILL_PIECE_SEGMENT_MOST, all = piece < most / parts ? piece * parts : most;
    return segment > all ? segment : all;
}

/* Trials of whether jobs of about one size are faster in one thread or shared, a plain value that
 * is empty at first. Figures that were measured apart cannot know everything. Two cores of a
 * virtual machine may be halves of one, or another program may use a core. Jobs are shared until a
 * trial finds that one thread takes less time, and then done alone until another finds the
 * opposite. */
struct twill_thread_trial {
    uint32_t jobs;    /* since the last decision */
    uint32_t between; /* jobs from a decision to the next trial, 0 before the first job */
    bool alone;       /* the way that was decided on */
    float settled;    /* its cost when that was decided, or 0 before; much more calls for a trial */
    float cost[2];    /* time over that expected of one thread, shared and alone, or 0 */
};

/* Return whether the next job is to be done by one thread, for which alone_ns are expected, and
 * shared_ns if it is shared. Both are above 0. */
bool twill_thread_trial_begin(struct twill_thread_trial *trial, double alone_ns, double shared_ns);
/* Record that the job was done so, `alone` or shared, and took `ticks`. Other jobs may have begun
 * and ended meanwhile. */
void twill_thread_trial_end(struct twill_thread_trial *trial, bool alone, uint64_t ticks,
                            double alone_ns);

#endif
