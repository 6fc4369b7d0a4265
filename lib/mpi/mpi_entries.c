/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points of the collectives, all forms of each generated from one description: its
 * parameters (N is the type of counts, D that of displacements), its arguments, and where they go
 * in a twill_mpi_call. */
#include "lib/mpi/shim.h"

#define SEND void const *sendbuf
#define RECV void *recvbuf

#define PARAMETERS_Allreduce(N, D)                                                                 \
    SEND, RECV, N count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm
#define ARGUMENTS_Allreduce sendbuf, recvbuf, count, datatype, op, comm
#define CALL_Allreduce                                                                             \
    call.send = sendbuf, call.recv = recvbuf, call.send_count = count, call.recv_count = count,    \
    call.send_type = datatype, call.recv_type = datatype, call.op = op

#define PARAMETERS_Reduce(N, D)                                                                    \
    SEND, RECV, N count, MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm
#define ARGUMENTS_Reduce sendbuf, recvbuf, count, datatype, op, root, comm
#define CALL_Reduce      CALL_Allreduce, call.root = root

#define PARAMETERS_Scan(N, D)   PARAMETERS_Allreduce(N, D)
#define ARGUMENTS_Scan          ARGUMENTS_Allreduce
#define CALL_Scan               CALL_Allreduce
#define PARAMETERS_Exscan(N, D) PARAMETERS_Allreduce(N, D)
#define ARGUMENTS_Exscan        ARGUMENTS_Allreduce
#define CALL_Exscan             CALL_Allreduce

#define PARAMETERS_Reduce_scatter(N, D)                                                            \
    SEND, RECV, const N recvcounts[], MPI_Datatype datatype, MPI_Op op, MPI_Comm comm
#define ARGUMENTS_Reduce_scatter sendbuf, recvbuf, recvcounts, datatype, op, comm
#define CALL_Reduce_scatter                                                                        \
    call.send = sendbuf, call.recv = recvbuf, call.recv_counts = recvcounts,                       \
    call.send_type = datatype, call.recv_type = datatype, call.op = op

#define PARAMETERS_Reduce_scatter_block(N, D)                                                      \
    SEND, RECV, N recvcount, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm
#define ARGUMENTS_Reduce_scatter_block sendbuf, recvbuf, recvcount, datatype, op, comm
#define CALL_Reduce_scatter_block                                                                  \
    call.send = sendbuf, call.recv = recvbuf, call.send_count = recvcount,                         \
    call.recv_count = recvcount, call.send_type = datatype, call.recv_type = datatype,             \
    call.op = op

#define PARAMETERS_Bcast(N, D) void *buffer, N count, MPI_Datatype datatype, int root, MPI_Comm comm
#define ARGUMENTS_Bcast        buffer, count, datatype, root, comm
#define CALL_Bcast                                                                                 \
    call.send = buffer, call.recv = buffer, call.send_count = count, call.recv_count = count,      \
    call.send_type = datatype, call.recv_type = datatype, call.root = root

#define PARAMETERS_Allgather(N, D)                                                                 \
    SEND, N sendcount, MPI_Datatype sendtype, RECV, N recvcount, MPI_Datatype recvtype,            \
        MPI_Comm comm
#define ARGUMENTS_Allgather sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm
#define CALL_Allgather                                                                             \
    call.send = sendbuf, call.send_count = sendcount, call.send_type = sendtype,                   \
    call.recv = recvbuf, call.recv_count = recvcount, call.recv_type = recvtype

#define PARAMETERS_Alltoall(N, D) PARAMETERS_Allgather(N, D)
#define ARGUMENTS_Alltoall        ARGUMENTS_Allgather
#define CALL_Alltoall             CALL_Allgather

#define PARAMETERS_Gather(N, D)                                                                    \
    SEND, N sendcount, MPI_Datatype sendtype, RECV, N recvcount, MPI_Datatype recvtype, int root,  \
        MPI_Comm comm
#define ARGUMENTS_Gather sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm
#define CALL_Gather      CALL_Allgather, call.root = root

#define PARAMETERS_Scatter(N, D) PARAMETERS_Gather(N, D)
#define ARGUMENTS_Scatter        ARGUMENTS_Gather
#define CALL_Scatter             CALL_Gather

#define PARAMETERS_Allgatherv(N, D)                                                                \
    SEND, N sendcount, MPI_Datatype sendtype, RECV, const N recvcounts[], const D displs[],        \
        MPI_Datatype recvtype, MPI_Comm comm
#define ARGUMENTS_Allgatherv                                                                       \
    sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm
#define CALL_Allgatherv                                                                            \
    call.send = sendbuf, call.send_count = sendcount, call.send_type = sendtype,                   \
    call.recv = recvbuf, call.recv_counts = recvcounts, call.recv_displs = displs,                 \
    call.recv_type = recvtype

#define PARAMETERS_Gatherv(N, D)                                                                   \
    SEND, N sendcount, MPI_Datatype sendtype, RECV, const N recvcounts[], const D displs[],        \
        MPI_Datatype recvtype, int root, MPI_Comm comm
#define ARGUMENTS_Gatherv                                                                          \
    sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm
#define CALL_Gatherv CALL_Allgatherv, call.root = root

#define PARAMETERS_Scatterv(N, D)                                                                  \
    SEND, const N sendcounts[], const D displs[], MPI_Datatype sendtype, RECV, N recvcount,        \
        MPI_Datatype recvtype, int root, MPI_Comm comm
#define ARGUMENTS_Scatterv                                                                         \
    sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm
#define CALL_Scatterv                                                                              \
    call.send = sendbuf, call.send_counts = sendcounts, call.send_displs = displs,                 \
    call.send_type = sendtype, call.recv = recvbuf, call.recv_count = recvcount,                   \
    call.recv_type = recvtype, call.root = root

#define PARAMETERS_Alltoallv(N, D)                                                                 \
    SEND, const N sendcounts[], const D sdispls[], MPI_Datatype sendtype, RECV,                    \
        const N recvcounts[], const D rdispls[], MPI_Datatype recvtype, MPI_Comm comm
#define ARGUMENTS_Alltoallv                                                                        \
    sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm
#define CALL_Alltoallv                                                                             \
    call.send = sendbuf, call.send_counts = sendcounts, call.send_displs = sdispls,                \
    call.send_type = sendtype, call.recv = recvbuf, call.recv_counts = recvcounts,                 \
    call.recv_displs = rdispls, call.recv_type = recvtype

#define PARAMETERS_Barrier(N, D) MPI_Comm comm
#define ARGUMENTS_Barrier        comm
#define CALL_Barrier             (void)0

/* The body of an entry point: take the call, or pass it on. */
#define BODY(name, is_large, asked, request, passed)                                               \
    {                                                                                              \
        struct twill_mpi_call call; /* partly set: clearing it would cost most of the time here */ \
        call.kind = TWILL_MPI_##name, call.form = (asked), call.large = (is_large);                \
        call.root = 0, call.send_count = call.recv_count = 0, call.comm = comm;                    \
        CALL_##name;                                                                               \
        struct twill_mpi_clock clock = twill_mpi_clock_start();                                    \
        int code = MPI_SUCCESS;                                                                    \
        enum twill_mpi_why why = twill_mpi_run(&call, request, &code);                             \
        if (why != TWILL_MPI_WHY_TAKEN)                                                            \
            code = passed;                                                                         \
        twill_mpi_count(&call, why, clock);                                                        \
        return code;                                                                               \
    }

#define ENTRIES(name, lower, large, N, D, suffix)                                                  \
    int MPI_##name##suffix(PARAMETERS_##name(N, D)) BODY(                                          \
        name, large, TWILL_MPI_BLOCKING, NULL,                                                     \
        PMPI_##name##suffix(ARGUMENTS_##name)) int MPI_I##lower##suffix(PARAMETERS_##name(N, D),   \
                                                                        MPI_Request *request)      \
        BODY(name, large, TWILL_MPI_NONBLOCKING, request,                                          \
             PMPI_I##lower##suffix(ARGUMENTS_##name, request))
#define PERSISTENT_ENTRY(prefix, name, large, N, D, suffix)                                        \
    int prefix##_##name##_init##suffix(PARAMETERS_##name(N, D), MPI_Info info,                     \
                                       MPI_Request *request)                                       \
        BODY(name, large, TWILL_MPI_PERSISTENT, request,                                           \
             P##prefix##_##name##_init##suffix(ARGUMENTS_##name, info, request))

#if MPI_VERSION >= 4
#define CALL_FORMS(name, lower)                                                                    \
    ENTRIES(name, lower, false, int, int, )                                                        \
    PERSISTENT_ENTRY(MPI, name, false, int, int, )                                                 \
    ENTRIES(name, lower, true, MPI_Count, MPI_Aint, _c)                                            \
    PERSISTENT_ENTRY(MPI, name, true, MPI_Count, MPI_Aint, _c)
#define CALL_FORMS_OF_ONE_SIZE(name, lower)                                                        \
    ENTRIES(name, lower, false, int, int, )                                                        \
    PERSISTENT_ENTRY(MPI, name, false, int, int, )
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define CALL_FORMS(name, lower)                                                                    \
    ENTRIES(name, lower, false, int, int, )                                                        \
    PERSISTENT_ENTRY(MPIX, name, false, int, int, )
#define CALL_FORMS_OF_ONE_SIZE CALL_FORMS
#else
#define CALL_FORMS(name, lower) ENTRIES(name, lower, false, int, int, )
#define CALL_FORMS_OF_ONE_SIZE  CALL_FORMS
#endif

CALL_FORMS(Allreduce, allreduce)
CALL_FORMS(Reduce, reduce)
CALL_FORMS(Bcast, bcast)
CALL_FORMS(Allgather, allgather)
CALL_FORMS(Allgatherv, allgatherv)
CALL_FORMS(Gather, gather)
CALL_FORMS(Gatherv, gatherv)
CALL_FORMS(Scatter, scatter)
CALL_FORMS(Scatterv, scatterv)
CALL_FORMS(Reduce_scatter, reduce_scatter)
CALL_FORMS(Reduce_scatter_block, reduce_scatter_block)
CALL_FORMS(Alltoall, alltoall)
CALL_FORMS(Alltoallv, alltoallv)
CALL_FORMS(Scan, scan)
CALL_FORMS(Exscan, exscan)
CALL_FORMS_OF_ONE_SIZE(Barrier, barrier)
