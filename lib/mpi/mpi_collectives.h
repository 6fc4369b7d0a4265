/* SPDX-License-Identifier: Apache-2.0 */
/* MPI's collectives, with parameters of all forms. Counts have type N and displacements D. */
#ifndef TWILL_MPI_COLLECTIVES_H
#define TWILL_MPI_COLLECTIVES_H

#define SEND void const *sendbuf
#define RECV void *recvbuf
#define PARAMETERS_Allreduce(N, D)                                                                 \
    SEND, RECV, N count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm
#define PARAMETERS_Reduce(N, D)                                                                    \
    SEND, RECV, N count, MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm
#define PARAMETERS_Scan(N, D)   PARAMETERS_Allreduce(N, D)
#define PARAMETERS_Exscan(N, D) PARAMETERS_Allreduce(N, D)
#define PARAMETERS_Reduce_scatter(N, D)                                                            \
    SEND, RECV, const N recvcounts[], MPI_Datatype datatype, MPI_Op op, MPI_Comm comm
#define PARAMETERS_Reduce_scatter_block(N, D)                                                      \
    SEND, RECV, N recvcount, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm
#define PARAMETERS_Bcast(N, D) void *buffer, N count, MPI_Datatype datatype, int root, MPI_Comm comm
#define PARAMETERS_Allgather(N, D)                                                                 \
    SEND, N sendcount, MPI_Datatype sendtype, RECV, N recvcount, MPI_Datatype recvtype,            \
        MPI_Comm comm
#define PARAMETERS_Alltoall(N, D) PARAMETERS_Allgather(N, D)
#define PARAMETERS_Gather(N, D)                                                                    \
    SEND, N sendcount, MPI_Datatype sendtype, RECV, N recvcount, MPI_Datatype recvtype, int root,  \
        MPI_Comm comm
#define PARAMETERS_Scatter(N, D) PARAMETERS_Gather(N, D)
#define PARAMETERS_Allgatherv(N, D)                                                                \
    SEND, N sendcount, MPI_Datatype sendtype, RECV, const N recvcounts[], const D displs[],        \
        MPI_Datatype recvtype, MPI_Comm comm
#define PARAMETERS_Gatherv(N, D)                                                                   \
    SEND, N sendcount, MPI_Datatype sendtype, RECV, const N recvcounts[], const D displs[],        \
        MPI_Datatype recvtype, int root, MPI_Comm comm
#define PARAMETERS_Scatterv(N, D)                                                                  \
    SEND, const N sendcounts[], const D displs[], MPI_Datatype sendtype, RECV, N recvcount,        \
        MPI_Datatype recvtype, int root, MPI_Comm comm
#define PARAMETERS_Alltoallv(N, D)                                                                 \
    SEND, const N sendcounts[], const D sdispls[], MPI_Datatype sendtype, RECV,                    \
        const N recvcounts[], const D rdispls[], MPI_Datatype recvtype, MPI_Comm comm
#define PARAMETERS_Barrier(N, D) MPI_Comm comm

/* The arguments for the parameters above. */
#define ARGUMENTS_Allreduce            sendbuf, recvbuf, count, datatype, op, comm
#define ARGUMENTS_Reduce               sendbuf, recvbuf, count, datatype, op, root, comm
#define ARGUMENTS_Scan                 ARGUMENTS_Allreduce
#define ARGUMENTS_Exscan               ARGUMENTS_Allreduce
#define ARGUMENTS_Reduce_scatter       sendbuf, recvbuf, recvcounts, datatype, op, comm
#define ARGUMENTS_Reduce_scatter_block sendbuf, recvbuf, recvcount, datatype, op, comm
#define ARGUMENTS_Bcast                buffer, count, datatype, root, comm
#define ARGUMENTS_Allgather            sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm
#define ARGUMENTS_Alltoall             ARGUMENTS_Allgather
#define ARGUMENTS_Gather               sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm
#define ARGUMENTS_Scatter              ARGUMENTS_Gather
#define ARGUMENTS_Allgatherv                                                                       \
    sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm
#define ARGUMENTS_Gatherv                                                                          \
    sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm
#define ARGUMENTS_Scatterv                                                                         \
    sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm
#define ARGUMENTS_Alltoallv                                                                        \
    sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm
#define ARGUMENTS_Barrier comm

/* Lists of collectives, as X(name, lower case). First those that twill takes and that have counts,
 * then all that have counts, then all, which the report counts. */
#define TWILL_MPI_TAKEN(X)                                                                         \
    X(Allreduce, allreduce)                                                                        \
    X(Reduce, reduce)                                                                              \
    X(Bcast, bcast)                                                                                \
    X(Allgather, allgather)                                                                        \
    X(Allgatherv, allgatherv)                                                                      \
    X(Gather, gather)                                                                              \
    X(Gatherv, gatherv)                                                                            \
    X(Scatter, scatter)                                                                            \
    X(Scatterv, scatterv)                                                                          \
    X(Reduce_scatter, reduce_scatter)                                                              \
    X(Reduce_scatter_block, reduce_scatter_block)                                                  \
    X(Alltoall, alltoall)                                                                          \
    X(Alltoallv, alltoallv)
#define TWILL_MPI_COLLECTIVES(X)    TWILL_MPI_TAKEN(X) X(Scan, scan) X(Exscan, exscan)
#define TWILL_MPI_KINDS(X)          TWILL_MPI_COLLECTIVES(X) X(Barrier, barrier)
#define TWILL_MPI_KIND(name, lower) TWILL_MPI_##name,
enum twill_mpi_kind { TWILL_MPI_KINDS(TWILL_MPI_KIND) TWILL_MPI_KIND_COUNT };
#undef TWILL_MPI_KIND

#endif
