/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded under MPICH over UCX, with and without twill: a rank that waits for a message there
 * spins, and no variable of MPICH or UCX changes that. With more ranks than cores a second becomes
 * minutes. sched_yield() alone does not help where other programs need the cores, too: with 4 ranks
 * on 2 busy cores mpi4py's test_rma took more than 60 s, and 25 s when the ranks sleep. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

unsigned ucp_worker_progress(void *worker);

/* Return UCX's function. Python loads MPICH, and UCX with it, in local scope: then it is not
 * next. */
static void *find_ucx(void)
{
    void *below = dlsym(RTLD_NEXT, "ucp_worker_progress");
    void *ucp = below == NULL ? dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (ucp != NULL)
        below = dlsym(ucp, "ucp_worker_progress");
    if (below == NULL) {
        fputs("yield: no libucp.so.0 in this process\n", stderr);
        _exit(2);
    }
    return below;
}

unsigned ucp_worker_progress(void *worker)
{
    static unsigned (*below)(void *);
    static _Thread_local unsigned idle;
    if (below == NULL)
        *(void **)&below = find_ucx();
    unsigned events = below(worker);
    idle = events == 0 ? idle + 1 : 0;
    if (idle > 20)
        nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
    else if (idle > 0)
        sched_yield();
    return events;
}
