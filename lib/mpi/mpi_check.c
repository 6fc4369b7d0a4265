/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments that MPI does not allow. What the MPI below refuses at once is left to it: it has the
 * words for it, and the program its error. What it would not look at it must not be given: it
 * crashes, or goes on alone and waits for ranks that are in twill. Then the call FAILS. What is
 * refused was found by one rank making each wrong call alone, with Open MPI 4.1.4 and MPICH 4.0.2;
 * what is not known to be is not passed on. */
#include "lib/mpi/mpi_call.h"

static const char *const kind_names[] = {
#define NAME(name, text) text,
    TWILL_MPI_KINDS(NAME)
#undef NAME
};
static const char *const wrong_names[] = {
    [TWILL_MPI_WRONG_ROOT] = "no rank is the root",
    [TWILL_MPI_WRONG_TYPE] = "there is no type",
    [TWILL_MPI_WRONG_UNCOMMITTED] = "a type that the MPI does not pack: is it committed?",
    [TWILL_MPI_WRONG_COUNT] = "a count below 0",
    [TWILL_MPI_WRONG_ARRAY] = "an array of counts or displacements is missing",
    [TWILL_MPI_WRONG_PLACE] = "MPI_IN_PLACE where it cannot be",
    [TWILL_MPI_WRONG_ADDRESS] = "a buffer is missing",
    [TWILL_MPI_WRONG_ALIAS] = "what is given is where the result is to be",
    [TWILL_MPI_WRONG_SIZE] = "counts, displacements and types come to more than any memory",
};

/* Users may turn the checks off, and MPIs may be built without. A message to nobody, with a tag
 * that there is not, tells: it goes nowhere in any case. */
void twill_mpi_checks_find(void)
{
    const int none = 0, no_tag = -5;
    twill_mpi.checks =
        PMPI_Send(&none, 0, MPI_INT, MPI_PROC_NULL, no_tag, twill_mpi.shadow) != MPI_SUCCESS;
}

#if defined(OPEN_MPI)

/* It looks at handles and numbers, but not at all of them, and at no address. */
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

/* It looks at most, but takes arrays as they come. */
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
    /* A persistent call is decided on by all ranks together. */
    return twill_mpi.checks && call->form != TWILL_MPI_PERSISTENT &&
           call_is_refused(call, comm, wrong & ~(unsigned)TWILL_MPI_WRONG_RECEIVED,
                           (wrong & TWILL_MPI_WRONG_RECEIVED) != 0);
}

enum twill_mpi_why twill_mpi_wrong(const struct twill_mpi_call *call, struct twill_mpi_bound *bound,
                                   unsigned wrong)
{
    if (twill_mpi_is_refused(call, bound->comm, wrong))
        return TWILL_MPI_WHY_ERRONEOUS;
    twill_mpi_say("%s: %s", kind_names[call->kind],
                  wrong_names[wrong & ~(unsigned)TWILL_MPI_WRONG_RECEIVED]);
    twill_mpi_bound_fail(bound, TWILL_ERR_ARGUMENT);
    return TWILL_MPI_WHY_TAKEN;
}
