/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and random numbers that fail when a test says so: replaces malloc(), calloc() and
 * getrandom() of the C library in the program that includes this. Memory does not fail under
 * sanitizers, which have an allocator of their own. */
#ifndef TWILL_SCARCE_H
#define TWILL_SCARCE_H

#include "tests/support/run.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of a thread: getrandom() fails with EPERM. */
static _Thread_local bool scarce_random;

ssize_t getrandom(void *bytes, size_t count, unsigned flags)
{
    if (!scarce_random)
        return syscall(SYS_getrandom, bytes, count, flags);
    errno = EPERM;
    return -1;
}

/* Of a thread: allocations that succeed before the one that fails; below 0: none fails. (volatile:
 * compilers take malloc() for a function that reads no variable.) */
static _Thread_local volatile int scarce_memory __attribute__((unused)) = -1;

/* Of a thread: from then on all fail. */
static _Thread_local bool scarce_for_good __attribute__((unused));

#if !TEST_SLOW
static bool runs_out(void)
{
    if (scarce_memory < 0 || scarce_memory-- > 0)
        return false;
    if (scarce_for_good)
        scarce_memory = 0;
    return true;
}

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);

void *malloc(size_t bytes)
{
    return runs_out() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return runs_out() ? NULL : __libc_calloc(count, bytes);
}
#endif

#endif
