/* SPDX-License-Identifier: Apache-2.0 */
/* User-level failure mitigation, of which the MPIs do all but this: a revoked communicator ends
 * twill's collectives, too, on all its ranks. Those that follow are passed on, and the MPI refuses
 * them. Communicators of MPIX_Comm_shrink() are not adopted. Agreements are the MPI's, under either
 * name. */
#include "lib/mpi/mpi_clones.h"
#include "lib/mpi/mpi_newer.h"

#if !defined(MPI_ABI_VERSION)
int MPIX_Comm_revoke(MPI_Comm comm)
{
    if (twill_mpi.forked)
        return twill_mpi_refuse_child();
    int (*below)(MPI_Comm) = (int (*)(MPI_Comm))twill_mpi_below("PMPIX_Comm_revoke");
    if (below == NULL)
        return MPI_ERR_UNSUPPORTED_OPERATION;
    int code = below(comm);
    struct twill_mpi_comm *mine = twill_mpi_comm_find(comm);
    if (code == MPI_SUCCESS && mine != NULL && mine->comm != NULL)
        twill_mpi_clones_revoke(mine);
    return code;
}
#endif

/* mpi4py makes MPIX_Comm_iagree() of this reduction where the MPI has none, as MPICH. Programs call
 * it before a collective on one rank and after it on another, as the function's name allows, and
 * also when a rank has failed, after which twill's communicator takes no calls any more. */
bool twill_mpi_is_agreement(const struct twill_mpi_call *call)
{
    return call->kind == TWILL_MPI_Allreduce && call->form == TWILL_MPI_NONBLOCKING &&
           call->op == MPI_BAND && call->recv_count == 1 && call->recv_type == MPI_INT &&
           !twill_mpi.has_iagree;
}
