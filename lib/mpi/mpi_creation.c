/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that create and free communicators. The MPI makes them and checks the arguments; twill
 * then adopts the new communicator. Left alone are calls that return before all ranks have made
 * them (MPI_Comm_idup), and processes of another MPI_COMM_WORLD (MPI_Comm_spawn, sessions). */
#include "lib/mpi/shim.h"

static int comm_made(int code, const MPI_Comm *comm)
{
    if (code == MPI_SUCCESS)
        twill_mpi_comm_adopt(*comm);
    return code;
}

/* Define a call that makes *made. A forked child must not make the MPI exchange messages of its
 * parent. */
#define MAKES(name, parameters, made, ...)                                                         \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        return twill_mpi.forked ? twill_mpi_refuse_child()                                         \
                                : comm_made(PMPI_##name(__VA_ARGS__, made), made);                 \
    }

MAKES(Comm_dup, (MPI_Comm comm, MPI_Comm *made), made, comm)
MAKES(Comm_dup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm *made), made, comm, info)
MAKES(Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *made), made, comm, color, key)
MAKES(Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made), made,
      comm, type, key, info)
MAKES(Comm_create, (MPI_Comm comm, MPI_Group group, MPI_Comm *made), made, comm, group)
MAKES(Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *made), made, comm,
      group, tag)
MAKES(Cart_create,
      (MPI_Comm comm, int n, const int dims[], const int periods[], int reorder, MPI_Comm *made),
      made, comm, n, dims, periods, reorder)
MAKES(Cart_sub, (MPI_Comm comm, const int remain[], MPI_Comm *made), made, comm, remain)
MAKES(Graph_create,
      (MPI_Comm comm, int n, const int index[], const int edges[], int reorder, MPI_Comm *made),
      made, comm, n, index, edges, reorder)
MAKES(Dist_graph_create,
      (MPI_Comm comm, int n, const int sources[], const int degrees[], const int targets[],
       const int weights[], MPI_Info info, int reorder, MPI_Comm *made),
      made, comm, n, sources, degrees, targets, weights, info, reorder)
MAKES(Dist_graph_create_adjacent,
      (MPI_Comm comm, int in, const int sources[], const int source_weights[], int out,
       const int targets[], const int target_weights[], MPI_Info info, int reorder, MPI_Comm *made),
      made, comm, in, sources, source_weights, out, targets, target_weights, info, reorder)
/* Never taken, but its calls then appear in the report as those of an intercommunicator. */
MAKES(Intercomm_create,
      (MPI_Comm comm, int leader, MPI_Comm peer, int remote_leader, int tag, MPI_Comm *made), made,
      comm, leader, peer, remote_leader, tag)
MAKES(Intercomm_merge, (MPI_Comm comm, int high, MPI_Comm *made), made, comm, high)

/* A communicator that goes by another call is released when the next one is created or freed. */
int MPI_Comm_free(MPI_Comm *comm)
{
    if (twill_mpi.forked)
        return twill_mpi_refuse_child();
    int code = PMPI_Comm_free(comm);
    twill_mpi_comms_reap();
    return code;
}

/* It waits for what is under way, including twill's requests. */
int MPI_Comm_disconnect(MPI_Comm *comm)
{
    if (twill_mpi.forked)
        return twill_mpi_refuse_child();
    struct twill_mpi_comm *mine = comm != NULL ? twill_mpi_comm_find(*comm) : NULL;
    if (mine != NULL && mine->comm != NULL)
        twill_mpi_requests_complete(mine);
    int code = PMPI_Comm_disconnect(comm);
    twill_mpi_comms_reap();
    return code;
}
