/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes for which the MPI below is faster than twill, so that blocking calls are passed on. A call
 * is looked up by kind, bytes and communicator, which are equal on all its ranks. Measured by
 * twill-compare --mpi, with calls back to back and malloc'd memory, on two cores of a virtual
 * Sapphire Rapids. No such size was found between nodes or with more ranks.
 *
 * Open MPI puts several small messages into one cache line of a ring, so 8 bytes take about 0.1 us.
 * twill has a line for each and takes 0.2 us. In broadcasts twill's root runs at most two calls
 * ahead. MPICH's cells of 8 KiB also form a ring, while twill's root waits for half of its own. */
#include "lib/mpi/mpi_call.h"

#include <string.h>

/* A row of a constant table of sizes that the MPI is faster with, on up to `ranks` ranks. */
struct threshold {
    enum twill_mpi_kind kind;
    int ranks; /* 0 ends the table */
    struct twill_mpi_range bytes;
};
/* The first match in a table counts. */
static const struct threshold openmpi_table[] = {
    {TWILL_MPI_Bcast, 2, {1, 256}},  {TWILL_MPI_Bcast, 4, {1, 32}},
    {TWILL_MPI_Reduce, 2, {1, 256}}, {TWILL_MPI_Gather, 2, {1, 256}},
    {TWILL_MPI_Gather, 4, {1, 32}},  {TWILL_MPI_Scatter, 2, {1, 256}},
    {TWILL_MPI_Scatter, 4, {1, 64}}, {.ranks = 0}};
static const struct threshold mpich_table[] = {{TWILL_MPI_Bcast, 2, {6 << 10, 8 << 10}},
                                               {TWILL_MPI_Gather, 2, {1 << 10, 8 << 10}},
                                               {TWILL_MPI_Scatter, 2, {4 << 10, 8 << 10}},
                                               {.ranks = 0}};

/* Return the table of sizes for the program's MPI library, which is empty for an unknown one. The
 * standard ABI serves several MPIs, so the MPI's name decides. An MPI with Open MPI's or MPICH's
 * own ABI gets the table of that MPI, whatever it is called. */
static const struct threshold *find_table(void)
{
    char name[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    PMPI_Get_library_version(name, &length);
    bool is_openmpi = strstr(name, "Open MPI") != NULL;
#if defined(OPEN_MPI)
    is_openmpi = true;
#endif
    if (is_openmpi)
        return openmpi_table;
#if defined(MPI_ABI_VERSION)
    if (strstr(name, "MPICH") == NULL)
        return &mpich_table[TWILL_ARRAY_LENGTH(mpich_table) - 1]; /* nothing is known about it */
#endif
    return mpich_table;
}

void twill_mpi_quicker_find(struct twill_mpi_comm *comm)
{
    memset(comm->quicker, 0, sizeof(comm->quicker));
    if (comm->comm == NULL || twill_mpi.all || twill_comm_nodes(comm->comm) > 1)
        return;
    for (const struct threshold *at = find_table(); at->ranks > 0; at++)
        if (comm->size <= at->ranks && comm->quicker[at->kind].most == 0)
            comm->quicker[at->kind] = at->bytes;
}

bool twill_mpi_quicker_below(const struct twill_mpi_call *call, const struct twill_mpi_comm *comm)
{
    const struct twill_mpi_range *range = &comm->quicker[call->kind];
    bool gives = call->kind == TWILL_MPI_Gather
                     ? comm->rank != call->root
                     : call->kind == TWILL_MPI_Scatter && comm->rank == call->root;
    const struct twill_mpi_end *end = gives ? &call->send : &call->recv;
    struct twill_mpi_type storage;
    const struct twill_mpi_type *type = twill_mpi_type_find(end->type, &storage);
    MPI_Count size = 0;
    const unsigned wrong =
        gives ? TWILL_MPI_WRONG_UNCOMMITTED : twill_mpi_received(TWILL_MPI_WRONG_UNCOMMITTED);
    /* Only this rank has the error of an uncommitted type. The others decide by their size. */
    if (type != NULL)
        size = type->size;
    else if (end->type == MPI_DATATYPE_NULL || twill_mpi_is_refused(call, comm, wrong) ||
             PMPI_Type_size_x(end->type, &size) != MPI_SUCCESS)
        return false;
    MPI_Count bytes = end->count * size;
    return bytes >= range->least && bytes <= range->most;
}
