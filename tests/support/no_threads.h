/* SPDX-License-Identifier: Apache-2.0 */
/* For a program whose library cannot start a thread when the test says so: tests/CMakeLists.txt
 * puts the function in place of the library's calls. */
#ifndef TWILL_NO_THREADS_H
#define TWILL_NO_THREADS_H

#include "lib/base/thread_start.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

static _Thread_local bool no_threads; /* for the library in this one */

int __real_twill_thread_start(pthread_t *thread, const char *name, int core, void *(*run)(void *),
                              void *argument);
int __wrap_twill_thread_start(pthread_t *thread, const char *name, int core, void *(*run)(void *),
                              void *argument);
int __wrap_twill_thread_start(pthread_t *thread, const char *name, int core, void *(*run)(void *),
                              void *argument)
{
    return no_threads ? EAGAIN : __real_twill_thread_start(thread, name, core, run, argument);
}

#endif
