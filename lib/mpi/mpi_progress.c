/* SPDX-License-Identifier: Apache-2.0 */
/* Lets the MPI below make progress, between the polls of a waiting loop, and after collectives
 * while the program has operations that progress only inside calls of the MPI (windows, files,
 * persistent and partitioned messages). A collective that twill has completed then lets the MPI
 * progress before it returns, as the MPI's own would. For example, MPICH reports a window as
 * exposed until the target has read the messages of origins that are done. */
#include "lib/base/rest.h"
#include "lib/base/times.h"
#include "lib/mpi/mpi_call.h"
#include "lib/mpi/mpi_requests.h"

#define SPINS              512u
#define SPINS_LOG          9u
#define TURNS_PER_PROGRESS 64u

void twill_mpi_progress(void)
{
    int flag;
    if (twill_mpi.shadow == MPI_COMM_NULL)
        return; /* twill takes no calls, so all requests are the MPI's */
    if (PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, twill_mpi.shadow, &flag, MPI_STATUS_IGNORE) ==
            MPI_SUCCESS &&
        TWILL_UNLIKELY(flag))
        twill_mpi_refusals_read();
    if (TWILL_UNLIKELY(atomic_load_explicit(&twill_mpi.refusals, memory_order_relaxed)))
        twill_mpi_refusals_check();
}

/* Adapt the number of spins to `ns`, which a yield took, as twill's own waits do. If others want
 * the core, spinning delays them, and one of them may be the rank that is waited for. */
static void adapt_spins(uint64_t ns)
{
    unsigned contention =
        atomic_load_explicit(&twill_mpi.requests.contention, memory_order_relaxed);
    if (ns > TWILL_MPI_ALONE_NS && ns < TWILL_MPI_LOST_NS)
        contention += contention < SPINS_LOG;
    else
        contention -= contention > 0;
    atomic_store_explicit(&twill_mpi.requests.contention, contention, memory_order_relaxed);
}

void twill_mpi_backoff(struct twill_mpi_backoff *backoff)
{
    unsigned spins =
        SPINS >> atomic_load_explicit(&twill_mpi.requests.contention, memory_order_relaxed);
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
    if (before - backoff->started > TWILL_MPI_NAP_AFTER_NS) {
        twill_nap(TWILL_MPI_NAP_NS);
        return;
    }
    twill_yield();
    adapt_spins(twill_now() - before);
}

void twill_mpi_started(void)
{
    if (TWILL_UNLIKELY(!atomic_load_explicit(&twill_mpi.windows.messages, memory_order_relaxed)))
        atomic_store(&twill_mpi.windows.messages, true);
    twill_mpi_quick_off();
}

/* One turn makes progress on about one message of each sender. */
#define TURNS_LEAST 4u
#define TURNS_MOST  64u

void twill_mpi_progress_windows(const struct twill_mpi_comm *comm)
{
    unsigned turns = 1;
    if (atomic_load_explicit(&twill_mpi.windows.open, memory_order_relaxed) > 0)
        turns = TURNS_LEAST + 2 * (unsigned)comm->size;
    for (turns = turns < TURNS_MOST ? turns : TURNS_MOST; turns > 0; turns--)
        twill_mpi_progress();
}
