/* SPDX-License-Identifier: Apache-2.0 */
/* MPI_Alloc_mem from twill_alloc(): collectives on a node need not copy such memory. If twill has
 * none left, the MPI allocates. twill has no use for the info argument. */
#include "lib/mpi/shim.h"

/* Works as long as the context exists, also in callbacks that run at the very end. */
int MPI_Alloc_mem(MPI_Aint size, MPI_Info info, void *baseptr)
{
    struct twill_mpi_memory *memory = &twill_mpi.memory;
    void *given = NULL;
    if (!atomic_load_explicit(&twill_mpi.ready, memory_order_acquire) || size <= 0 ||
        baseptr == NULL)
        return PMPI_Alloc_mem(size, info, baseptr);
    if (twill_alloc(twill_mpi.context, &given, (size_t)size) != TWILL_OK) {
        atomic_fetch_add(&memory->refused, 1);
        return PMPI_Alloc_mem(size, info, baseptr);
    }
    atomic_fetch_add(&memory->allocations, 1);
    atomic_fetch_add(&memory->bytes, (uint64_t)size);
    atomic_fetch_add(&memory->out, 1);
    *(void **)baseptr = given;
    return MPI_SUCCESS;
}

int MPI_Free_mem(void *base)
{
    struct twill_mpi_memory *memory = &twill_mpi.memory;
    if (twill_mpi.forked)
        return MPI_SUCCESS; /* twill's is the parent's, and the MPI would take it for its own */
    if (base == NULL || atomic_load(&memory->out) == 0 ||
        twill_free(twill_mpi.context, base) != TWILL_OK)
        return PMPI_Free_mem(base);
    atomic_fetch_sub(&memory->out, 1);
    return MPI_SUCCESS;
}
