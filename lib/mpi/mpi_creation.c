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

/* A forked child must not make the MPI exchange messages of its parent. */
#define MADE(call, comm) (twill_mpi.forked ? twill_mpi_refuse_child() : comm_made(call, comm))

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *newcomm)
{
    return MADE(PMPI_Comm_dup(comm, newcomm), newcomm);
}

int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *newcomm)
{
    return MADE(PMPI_Comm_dup_with_info(comm, info, newcomm), newcomm);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *newcomm)
{
    return MADE(PMPI_Comm_split(comm, color, key, newcomm), newcomm);
}

int MPI_Comm_split_type(MPI_Comm comm, int split_type, int key, MPI_Info info, MPI_Comm *newcomm)
{
    return MADE(PMPI_Comm_split_type(comm, split_type, key, info, newcomm), newcomm);
}

int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm *newcomm)
{
    return MADE(PMPI_Comm_create(comm, group, newcomm), newcomm);
}

int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *newcomm)
{
    return MADE(PMPI_Comm_create_group(comm, group, tag, newcomm), newcomm);
}

int MPI_Cart_create(MPI_Comm comm_old, int ndims, const int dims[], const int periods[],
                    int reorder, MPI_Comm *comm_cart)
{
    return MADE(PMPI_Cart_create(comm_old, ndims, dims, periods, reorder, comm_cart), comm_cart);
}

int MPI_Cart_sub(MPI_Comm comm, const int remain_dims[], MPI_Comm *newcomm)
{
    return MADE(PMPI_Cart_sub(comm, remain_dims, newcomm), newcomm);
}

int MPI_Graph_create(MPI_Comm comm_old, int nnodes, const int indx[], const int edges[],
                     int reorder, MPI_Comm *comm_graph)
{
    return MADE(PMPI_Graph_create(comm_old, nnodes, indx, edges, reorder, comm_graph), comm_graph);
}

int MPI_Dist_graph_create(MPI_Comm comm_old, int n, const int sources[], const int degrees[],
                          const int destinations[], const int weights[], MPI_Info info, int reorder,
                          MPI_Comm *newcomm)
{
    return MADE(PMPI_Dist_graph_create(comm_old, n, sources, degrees, destinations, weights, info,
                                       reorder, newcomm),
                newcomm);
}

int MPI_Dist_graph_create_adjacent(MPI_Comm comm_old, int indegree, const int sources[],
                                   const int sourceweights[], int outdegree,
                                   const int destinations[], const int destweights[], MPI_Info info,
                                   int reorder, MPI_Comm *comm_dist_graph)
{
    return MADE(PMPI_Dist_graph_create_adjacent(comm_old, indegree, sources, sourceweights,
                                                outdegree, destinations, destweights, info, reorder,
                                                comm_dist_graph),
                comm_dist_graph);
}

/* Never taken, but its calls then appear in the report as those of an intercommunicator. */
int MPI_Intercomm_create(MPI_Comm local_comm, int local_leader, MPI_Comm peer_comm,
                         int remote_leader, int tag, MPI_Comm *newintercomm)
{
    return MADE(PMPI_Intercomm_create(local_comm, local_leader, peer_comm, remote_leader, tag,
                                      newintercomm),
                newintercomm);
}

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

int MPI_Intercomm_merge(MPI_Comm intercomm, int high, MPI_Comm *newintracomm)
{
    return MADE(PMPI_Intercomm_merge(intercomm, high, newintracomm), newintracomm);
}
