/* SPDX-License-Identifier: Apache-2.0 */
/* A clock that a test can advance, as if the machine had been suspended: replaces the C library's
 * clock_gettime() in the program that includes this. */
#ifndef TWILL_LEAP_H
#define TWILL_LEAP_H

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Of a thread: by how many seconds its clock is fast, and how many are added after each call. */
static _Thread_local time_t fast, leap;

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_MONOTONIC) {
        now->tv_sec += fast;
        fast += leap;
    }
    return rc;
}

#endif
