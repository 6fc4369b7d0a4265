/* SPDX-License-Identifier: Apache-2.0 */
/* Computing that is played for a given time, by this core or by a device next to it. The core
 * computes an amount of work that takes this time if nothing else runs on it, so the work of a
 * library on the core in the meantime is added. A device needs only the time, and the core sleeps.
 * For twill-bench and the programs of twill-compare, in C and C++. */
#ifndef TWILL_PLAYED_COMPUTE_H
#define TWILL_PLAYED_COMPUTE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define PLAYED_SLICE 200e-6 /* seconds of computing between two tests */
#define PLAYED_TESTS 16     /* calls that make progress during a computation of one length */

/* A core or device that computes, and its state. */
struct played_compute {
    int device;              /* 1 if a device computes, 0 if this core does */
    double turns_per_second; /* rounds of played_turns() by this core, from played_speed() */
    double due;              /* seconds at which a device will have done its work */
    int (*test)(void *of);   /* called between slices unless NULL; non-zero ends computing */
    void *of;
};

/* Return the seconds of a monotonic clock. */
static inline double twill_compare_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Compute `turns` rounds, of a multiplication and an addition each, in registers only. The result
 * is discarded. */
static inline void played_turns(uint64_t turns)
{
    volatile double sink;
    double x = 1;
    for (uint64_t i = 0; i < turns; i++)
        x = x * 0.999999 + 1e-9;
    sink = x;
    (void)sink;
}

/* Return how many rounds of played_turns() this core makes in a second, from the best of several
 * tries. */
static inline double played_speed(void)
{
    const uint64_t tried = 200000;
    double best = 0;
    for (int i = 0; i < 6; i++) {
        double from = twill_compare_now();
        played_turns(tried);
        double seconds = twill_compare_now() - from;
        if (seconds > 0 && (best <= 0 || seconds < best))
            best = seconds;
    }
    return best > 0 ? (double)tried / best : 1e9;
}

/* Sleep until the time `due` of twill_compare_now(). */
static inline void played_sleep(double due)
{
    struct timespec until;
    until.tv_sec = (time_t)due;
    until.tv_nsec = (long)((due - (double)until.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

/* Give an idle device work. What it computes next begins now at the earliest. */
static inline void played_launch(struct played_compute *compute)
{
    double now = twill_compare_now();
    compute->due = compute->due > now ? compute->due : now;
}

/* Sleep until the device has done its work so far and `seconds` more. Returns 0, or the result of
 * the test that ended it early. The tests are made in between. */
static inline int played_by_device(struct played_compute *compute, double seconds)
{
    int stop = 0;
    compute->due += seconds;
    for (double now; stop == 0 && (now = twill_compare_now()) < compute->due;) {
        double until = compute->due;
        if (compute->test != NULL && until > now + PLAYED_SLICE)
            until = now + PLAYED_SLICE;
        played_sleep(until);
        stop = compute->test != NULL ? compute->test(compute->of) : 0;
    }
    return stop;
}

/* Compute on the core for `seconds` or, if a device computes, sleep until it has done its work and
 * `seconds` more. Tests are made in between. Returns 0, or the result of the test that ended it
 * early. */
static inline int played_for(struct played_compute *compute, double seconds)
{
    int stop = 0;
    if (compute->device)
        return played_by_device(compute, seconds);
    for (double left = seconds; left > 0 && stop == 0;) {
        double slice = compute->test != NULL && left > PLAYED_SLICE ? PLAYED_SLICE : left;
        played_turns((uint64_t)(slice * compute->turns_per_second));
        left -= slice;
        stop = compute->test != NULL ? compute->test(compute->of) : 0;
    }
    return stop;
}

#endif
