/* SPDX-License-Identifier: Apache-2.0 */
/* What is done between the looks of a loop that waits. */
#include "lib/mpi/mpi_requests.h"

#include <sched.h>
#include <time.h>

#define SPINS              512u
#define SPINS_LOG          9u
#define TURNS_PER_PROGRESS 64u
#define ALONE_NS           UINT64_C(1500)   /* giving the core away, when nobody else wants it */
#define LOST_NS            UINT64_C(200000) /* who had it did not wait */
#define NAP_AFTER_NS       UINT64_C(2000000)
#define NAP_NS             50000

/* The MPI's own messages move along. */
void twill_mpi_progress(void)
{
    int flag;
    (void)PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, twill_mpi.shadow, &flag, MPI_STATUS_IGNORE);
}

/* As twill's own waits learn it: where others want the core, spinning delays them, and one of them
 * may be who is waited for. */
static void learn(uint64_t ns)
{
    unsigned crowd = atomic_load_explicit(&twill_mpi.requests.crowd, memory_order_relaxed);
    if (ns > ALONE_NS && ns < LOST_NS)
        crowd += crowd < SPINS_LOG;
    else
        crowd -= crowd > 0;
    atomic_store_explicit(&twill_mpi.requests.crowd, crowd, memory_order_relaxed);
}

void twill_mpi_backoff(struct twill_mpi_backoff *backoff)
{
    unsigned spins = SPINS >> atomic_load_explicit(&twill_mpi.requests.crowd, memory_order_relaxed);
    if (++backoff->turns < spins) {
        twill_pause();
        if (backoff->turns % TURNS_PER_PROGRESS == 0)
            twill_mpi_progress();
        return;
    }
    twill_mpi_progress();
    uint64_t before = twill_now();
    if (backoff->started == 0)
        backoff->started = before;
    if (before - backoff->started > NAP_AFTER_NS) {
        (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        return;
    }
    sched_yield();
    learn(twill_now() - before);
}
