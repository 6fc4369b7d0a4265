/* SPDX-License-Identifier: Apache-2.0 */
/* Fortran collectives that would bypass this library. */
#include "lib/mpi/fortran/mpi_fortran.h"

static void hand_out_request(int result, MPI_Request made, fint *request, fint *code)
{
    if (result == MPI_SUCCESS)
        *request = MPI_Request_c2f(made);
    store_code(code, result);
}

/* Define an entry point that makes a request; MAKE is the C call that does. */
#define REQUEST(x, X, lower, UPPER, MAKE, ...)                                                     \
    ENTRY_OF(x, X, lower, UPPER, __VA_ARGS__, fint *request, fint *code)                           \
    {                                                                                              \
        MPI_Request made = MPI_REQUEST_NULL;                                                       \
        int result = MAKE;                                                                         \
        hand_out_request(result, made, request, code);                                             \
    }
#if MPI_VERSION >= 4
#define PERSISTENT(...) REQUEST(, , __VA_ARGS__)
#define PREPARE(Name)   MPI_##Name##_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define PERSISTENT(...) REQUEST(x, X, __VA_ARGS__)
#define PREPARE(Name)   MPIX_##Name##_init
#else
#define PERSISTENT(...)
#endif

/* Define the blocking, the nonblocking and the persistent form. */
#define COLLECTIVE(lower, UPPER, Name, ARGUMENTS, ...)                                             \
    ENTRY(lower, UPPER, __VA_ARGS__, fint *code)                                                   \
    {                                                                                              \
        store_code(code, MPI_##Name(ARGUMENTS));                                                   \
    }                                                                                              \
    REQUEST(, , i##lower, I##UPPER, MPI_I##lower(ARGUMENTS, &made), __VA_ARGS__)                   \
    PERSISTENT(lower##_init, UPPER##_INIT, PREPARE(Name)(ARGUMENTS, INFO(info), &made),            \
               __VA_ARGS__, fint *info)
#define AND ,

COLLECTIVE(barrier, BARRIER, Barrier, COMM(comm), fint *comm)

#if defined(OPEN_MPI)

extern fint mpi_fortran_in_place_, mpi_fortran_bottom_;

static void *buffer_at(char *buffer)
{
    if ((void *)buffer == &mpi_fortran_in_place_)
        return MPI_IN_PLACE;
    return (void *)buffer == &mpi_fortran_bottom_ ? MPI_BOTTOM : buffer;
}

COLLECTIVE(bcast, BCAST, Bcast, buffer_at(data) AND *n AND TYPE(type) AND *root AND COMM(comm),
           char *data, fint *n, fint *type, fint *root, fint *comm)
COLLECTIVE(allreduce, ALLREDUCE, Allreduce,
           buffer_at(src) AND buffer_at(dst) AND *n AND TYPE(type) AND OP(op) AND COMM(comm),
           char *src, char *dst, fint *n, fint *type, fint *op, fint *comm)
COLLECTIVE(scan, SCAN, Scan,
           buffer_at(src) AND buffer_at(dst) AND *n AND TYPE(type) AND OP(op) AND COMM(comm),
           char *src, char *dst, fint *n, fint *type, fint *op, fint *comm)
COLLECTIVE(exscan, EXSCAN, Exscan,
           buffer_at(src) AND buffer_at(dst) AND *n AND TYPE(type) AND OP(op) AND COMM(comm),
           char *src, char *dst, fint *n, fint *type, fint *op, fint *comm)
COLLECTIVE(reduce, REDUCE, Reduce,
           buffer_at(src) AND buffer_at(dst) AND *n AND TYPE(type) AND OP(op)
               AND *root AND COMM(comm),
           char *src, char *dst, fint *n, fint *type, fint *op, fint *root, fint *comm)
COLLECTIVE(reduce_scatter, REDUCE_SCATTER, Reduce_scatter,
           buffer_at(src) AND buffer_at(dst) AND n AND TYPE(type) AND OP(op) AND COMM(comm),
           char *src, char *dst, fint *n, fint *type, fint *op, fint *comm)
COLLECTIVE(reduce_scatter_block, REDUCE_SCATTER_BLOCK, Reduce_scatter_block,
           buffer_at(src) AND buffer_at(dst) AND *n AND TYPE(type) AND OP(op) AND COMM(comm),
           char *src, char *dst, fint *n, fint *type, fint *op, fint *comm)
COLLECTIVE(allgather, ALLGATHER, Allgather,
           buffer_at(src) AND *sn AND TYPE(st) AND buffer_at(dst) AND *dn AND TYPE(dt)
               AND COMM(comm),
           char *src, fint *sn, fint *st, char *dst, fint *dn, fint *dt, fint *comm)
COLLECTIVE(alltoall, ALLTOALL, Alltoall,
           buffer_at(src) AND *sn AND TYPE(st) AND buffer_at(dst) AND *dn AND TYPE(dt)
               AND COMM(comm),
           char *src, fint *sn, fint *st, char *dst, fint *dn, fint *dt, fint *comm)
COLLECTIVE(gather, GATHER, Gather,
           buffer_at(src) AND *sn AND TYPE(st) AND buffer_at(dst) AND *dn AND TYPE(dt)
               AND *root AND COMM(comm),
           char *src, fint *sn, fint *st, char *dst, fint *dn, fint *dt, fint *root, fint *comm)
COLLECTIVE(scatter, SCATTER, Scatter,
           buffer_at(src) AND *sn AND TYPE(st) AND buffer_at(dst) AND *dn AND TYPE(dt)
               AND *root AND COMM(comm),
           char *src, fint *sn, fint *st, char *dst, fint *dn, fint *dt, fint *root, fint *comm)
COLLECTIVE(allgatherv, ALLGATHERV, Allgatherv,
           buffer_at(src) AND *sn AND TYPE(st) AND buffer_at(dst) AND dn AND dd AND TYPE(dt)
               AND COMM(comm),
           char *src, fint *sn, fint *st, char *dst, fint *dn, fint *dd, fint *dt, fint *comm)
COLLECTIVE(gatherv, GATHERV, Gatherv,
           buffer_at(src) AND *sn AND TYPE(st) AND buffer_at(dst) AND dn AND dd AND TYPE(dt)
               AND *root AND COMM(comm),
           char *src, fint *sn, fint *st, char *dst, fint *dn, fint *dd, fint *dt, fint *root,
           fint *comm)
COLLECTIVE(scatterv, SCATTERV, Scatterv,
           buffer_at(src) AND sn AND sd AND TYPE(st) AND buffer_at(dst) AND *dn AND TYPE(dt)
               AND *root AND COMM(comm),
           char *src, fint *sn, fint *sd, fint *st, char *dst, fint *dn, fint *dt, fint *root,
           fint *comm)
COLLECTIVE(alltoallv, ALLTOALLV, Alltoallv,
           buffer_at(src) AND sn AND sd AND TYPE(st) AND buffer_at(dst) AND dn AND dd AND TYPE(dt)
               AND COMM(comm),
           char *src, fint *sn, fint *sd, fint *st, char *dst, fint *dn, fint *dd, fint *dt,
           fint *comm)

#endif
