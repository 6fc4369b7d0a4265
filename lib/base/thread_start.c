/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/thread_start.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>

int twill_thread_start(pthread_t *thread, const char *name, int core, void *(*run)(void *),
                       void *argument)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    if (core >= 0)
        CPU_SET((size_t)core, &cpus);
    int code = pthread_attr_init(&attributes);
    if (code == 0 && core >= 0)
        code = pthread_attr_setaffinity_np(&attributes, sizeof(cpus), &cpus);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (code == 0)
        code = pthread_create(thread, &attributes, run, argument);
    if (code == EPERM && core >= 0) /* binding is refused, as in some containers */
        code = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == 0)
        (void)pthread_setname_np(*thread, name);
    pthread_attr_destroy(&attributes);
    return code;
}
