/* SPDX-License-Identifier: Apache-2.0 */
/* How every thread of the library is started. */
#ifndef TWILL_THREAD_START_H
#define TWILL_THREAD_START_H

#include <pthread.h>

/* Start a thread of the library, bound to a CPU unless `core` is -1 or the kernel refuses that. All
 * signals are blocked in it, as they are meant for the program's threads. Returns 0 or an errno. */
int twill_thread_start(pthread_t *thread, const char *name, int core, void *(*run)(void *),
                       void *argument);

#endif
