/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments that MPI does not allow. What the MPI below refuses at once is passed on to it: it has
 * the error class and the message. What it does not check must not be passed on, as it would crash,
 * or wait for ranks that are in twill; such a call FAILS instead. What is refused was found by one
 * rank making each wrong call alone, with Open MPI 4.1.4 and MPICH 4.0.2; what is not known to be
 * refused is not passed on. */
#include "lib/mpi/mpi_call.h"

static const char *const wrong_names[] = {
    [TWILL_MPI_WRONG_ROOT] = "the root is not a rank of the communicator",
    [TWILL_MPI_WRONG_TYPE] = "the datatype is MPI_DATATYPE_NULL",
    [TWILL_MPI_WRONG_UNCOMMITTED] = "the MPI cannot pack this datatype: is it committed?",
    [TWILL_MPI_WRONG_COUNT] = "a count is negative",
    [TWILL_MPI_WRONG_ARRAY] = "an array of counts or displacements is missing",
    [TWILL_MPI_WRONG_PLACE] = "MPI_IN_PLACE is not allowed here",
    [TWILL_MPI_WRONG_ADDRESS] = "a buffer is missing",
    [TWILL_MPI_WRONG_ALIAS] = "send and receive buffer are the same",
    [TWILL_MPI_WRONG_SIZE] = "counts, displacements and types exceed any memory",
};

/* Users may turn argument checks off, and MPIs may be built without them. An invalid tag in a
 * message to MPI_PROC_NULL shows it without sending anything. */
void twill_mpi_checks_find(void)
{
    const int none = 0, no_tag = -5;
    twill_mpi.checks =
        PMPI_Send(&none, 0, MPI_INT, MPI_PROC_NULL, no_tag, twill_mpi.shadow) != MPI_SUCCESS;
}

#if defined(OPEN_MPI)

/* Open MPI checks handles and numbers, but not all of them, and no address. */
static bool call_is_refused(const struct twill_mpi_call *call, const struct twill_mpi_comm *comm,
                            unsigned what, bool received)
{
    const bool to_all = call->kind == TWILL_MPI_Alltoall || call->kind == TWILL_MPI_Alltoallv;
    const bool scattered = call->kind == TWILL_MPI_Scatter && !received;
    (void)comm;
    switch (what) {
    case TWILL_MPI_WRONG_ROOT:
    case TWILL_MPI_WRONG_PLACE:
        return true;
    case TWILL_MPI_WRONG_TYPE:
        return !scattered;
    case TWILL_MPI_WRONG_COUNT:
    case TWILL_MPI_WRONG_ARRAY:
        return !scattered && !(call->kind == TWILL_MPI_Allgatherv && received);
    case TWILL_MPI_WRONG_UNCOMMITTED:
        return to_all || !(scattered || received);
    case TWILL_MPI_WRONG_ALIAS:
        return call->kind == TWILL_MPI_Reduce;
    default:
        return false;
    }
}

#else

/* MPICH checks most arguments, but not arrays. */
static bool call_is_refused(const struct twill_mpi_call *call, const struct twill_mpi_comm *comm,
                            unsigned what, bool received)
{
    const bool reduces = call->kind == TWILL_MPI_Allreduce || call->kind == TWILL_MPI_Reduce ||
                         call->kind == TWILL_MPI_Reduce_scatter_block;
    const bool rooted = call->kind == TWILL_MPI_Reduce || call->kind == TWILL_MPI_Gather ||
                        call->kind == TWILL_MPI_Gatherv || call->kind == TWILL_MPI_Scatter ||
                        call->kind == TWILL_MPI_Scatterv;
    (void)received;
    switch (what) {
    case TWILL_MPI_WRONG_ROOT:
    case TWILL_MPI_WRONG_TYPE:
    case TWILL_MPI_WRONG_ADDRESS:
    case TWILL_MPI_WRONG_ALIAS:
        return true;
    case TWILL_MPI_WRONG_COUNT:
        return !reduces || call->form == TWILL_MPI_NONBLOCKING;
    case TWILL_MPI_WRONG_PLACE:
        return call->kind != TWILL_MPI_Bcast && (!rooted || call->root == comm->rank);
    case TWILL_MPI_WRONG_UNCOMMITTED:
        return call->kind != TWILL_MPI_Bcast || call->recv_count > 0;
    default:
        return false;
    }
}

#endif

bool twill_mpi_is_refused(const struct twill_mpi_call *call, const struct twill_mpi_comm *comm,
                          unsigned wrong)
{
    /* For a persistent call all ranks decide together. */
    return twill_mpi.checks && call->form != TWILL_MPI_PERSISTENT &&
           call_is_refused(call, comm, wrong & ~(unsigned)TWILL_MPI_WRONG_RECEIVED,
                           (wrong & TWILL_MPI_WRONG_RECEIVED) != 0);
}

enum twill_mpi_why twill_mpi_wrong(const struct twill_mpi_call *call, struct twill_mpi_bound *bound,
                                   unsigned wrong)
{
    if (twill_mpi_is_refused(call, bound->comm, wrong))
        return TWILL_MPI_WHY_ERRONEOUS;
    twill_mpi_say("%s: %s", twill_mpi_kind_names[call->kind],
                  wrong_names[wrong & ~(unsigned)TWILL_MPI_WRONG_RECEIVED]);
    twill_mpi_bound_fail(bound, TWILL_ERR_ARGUMENT);
    return TWILL_MPI_WHY_TAKEN;
}
