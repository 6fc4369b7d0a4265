/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points of the collectives, all forms of each generated from one description: its
 * parameters (N is the type of counts, D that of displacements), its arguments, and where they go
 * in a twill_mpi_call. */
#include "lib/mpi/mpi_collectives.h"
#include "lib/mpi/mpi_newer.h"

#define CALL_Allreduce                                                                             \
    call.send = sendbuf, call.recv = recvbuf, call.send_count = count, call.recv_count = count,    \
    call.send_type = datatype, call.recv_type = datatype, call.op = op
#define CALL_Reduce CALL_Allreduce, call.root = root
#define CALL_Scan   CALL_Allreduce
#define CALL_Exscan CALL_Allreduce
#define CALL_Reduce_scatter                                                                        \
    call.send = sendbuf, call.recv = recvbuf, call.recv_counts = recvcounts,                       \
    call.send_type = datatype, call.recv_type = datatype, call.op = op
#define CALL_Reduce_scatter_block                                                                  \
    call.send = sendbuf, call.recv = recvbuf, call.send_count = recvcount,                         \
    call.recv_count = recvcount, call.send_type = datatype, call.recv_type = datatype,             \
    call.op = op
#define CALL_Bcast                                                                                 \
    call.send = buffer, call.recv = buffer, call.send_count = count, call.recv_count = count,      \
    call.send_type = datatype, call.recv_type = datatype, call.root = root
#define CALL_Allgather                                                                             \
    call.send = sendbuf, call.send_count = sendcount, call.send_type = sendtype,                   \
    call.recv = recvbuf, call.recv_count = recvcount, call.recv_type = recvtype
#define CALL_Alltoall CALL_Allgather
#define CALL_Gather   CALL_Allgather, call.root = root
#define CALL_Scatter  CALL_Gather
#define CALL_Allgatherv                                                                            \
    call.send = sendbuf, call.send_count = sendcount, call.send_type = sendtype,                   \
    call.recv = recvbuf, call.recv_counts = recvcounts, call.recv_displs = displs,                 \
    call.recv_type = recvtype
#define CALL_Gatherv CALL_Allgatherv, call.root = root
#define CALL_Scatterv                                                                              \
    call.send = sendbuf, call.send_counts = sendcounts, call.send_displs = displs,                 \
    call.send_type = sendtype, call.recv = recvbuf, call.recv_count = recvcount,                   \
    call.recv_type = recvtype, call.root = root
#define CALL_Alltoallv                                                                             \
    call.send = sendbuf, call.send_counts = sendcounts, call.send_displs = sdispls,                \
    call.send_type = sendtype, call.recv = recvbuf, call.recv_counts = recvcounts,                 \
    call.recv_displs = rdispls, call.recv_type = recvtype
#define CALL_Barrier (void)0

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
        if (TWILL_UNLIKELY(why == TWILL_MPI_WHY_ERRONEOUS && code != MPI_SUCCESS))                 \
            twill_mpi_refused(&call);                                                              \
        twill_mpi_count(&call, why, clock);                                                        \
        return code;                                                                               \
    }

/* Pass on to a function that the MPI below may lack, as it is of MPI 4. */
#define NEWER(call, request, parameters, ...)                                                      \
    (twill_mpi_newer(&(call)) != NULL ? ((int(*) parameters)twill_mpi_newer(&(call)))(__VA_ARGS__) \
                                      : twill_mpi_pass_older(&(call), request))

#define BLOCKING(name)                                                                             \
    int MPI_##name(PARAMETERS_##name(int, int))                                                    \
        BODY(name, false, TWILL_MPI_BLOCKING, NULL, PMPI_##name(ARGUMENTS_##name))
#define NONBLOCKING(name, lower)                                                                   \
    int MPI_I##lower(PARAMETERS_##name(int, int), MPI_Request *request) BODY(                      \
        name, false, TWILL_MPI_NONBLOCKING, request, PMPI_I##lower(ARGUMENTS_##name, request))
#define BLOCKING_LARGE(name)                                                                       \
    TWILL_EXPORTED int MPI_##name##_c(PARAMETERS_##name(MPI_Count, MPI_Aint));                     \
    int MPI_##name##_c(PARAMETERS_##name(MPI_Count, MPI_Aint))                                     \
        BODY(name, true, TWILL_MPI_BLOCKING, NULL,                                                 \
             NEWER(call, NULL, (PARAMETERS_##name(MPI_Count, MPI_Aint)), ARGUMENTS_##name))
#define NONBLOCKING_LARGE(name, lower)                                                             \
    TWILL_EXPORTED int MPI_I##lower##_c(PARAMETERS_##name(MPI_Count, MPI_Aint),                    \
                                        MPI_Request *request);                                     \
    int MPI_I##lower##_c(PARAMETERS_##name(MPI_Count, MPI_Aint), MPI_Request *request)             \
        BODY(name, true, TWILL_MPI_NONBLOCKING, request,                                           \
             NEWER(call, request, (PARAMETERS_##name(MPI_Count, MPI_Aint), MPI_Request *),         \
                   ARGUMENTS_##name, request))
#define PERSISTENT_FORM(prefix, name, large, N, D, suffix)                                         \
    TWILL_EXPORTED int prefix##_##name##_init##suffix(PARAMETERS_##name(N, D), MPI_Info info,      \
                                                      MPI_Request *request);                       \
    int prefix##_##name##_init##suffix(PARAMETERS_##name(N, D), MPI_Info info,                     \
                                       MPI_Request *request)                                       \
        BODY(name, large, TWILL_MPI_PERSISTENT, request,                                           \
             NEWER(call, request, (PARAMETERS_##name(N, D), MPI_Info, MPI_Request *),              \
                   ARGUMENTS_##name, info, request))

/* Open MPI 4 has persistent collectives by another name. */
#if defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define PERSISTENT_EXTENSION(name) PERSISTENT_FORM(MPIX, name, false, int, int, )
#else
#define PERSISTENT_EXTENSION(name)
#endif

#define CALL_FORMS_OF_ONE_SIZE(name, lower)                                                        \
    BLOCKING(name)                                                                                 \
    NONBLOCKING(name, lower)                                                                       \
    PERSISTENT_FORM(MPI, name, false, int, int, ) PERSISTENT_EXTENSION(name)
#define CALL_FORMS(name, lower)                                                                    \
    CALL_FORMS_OF_ONE_SIZE(name, lower)                                                            \
    BLOCKING_LARGE(name)                                                                           \
    NONBLOCKING_LARGE(name, lower) PERSISTENT_FORM(MPI, name, true, MPI_Count, MPI_Aint, _c)

TWILL_MPI_COLLECTIVES(CALL_FORMS)
CALL_FORMS_OF_ONE_SIZE(Barrier, barrier)
