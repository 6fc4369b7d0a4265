/* SPDX-License-Identifier: Apache-2.0 */
/* Fortran programs with Open MPI, whose Fortran library calls PMPI_X past us: its entry points
 * again, for what this library takes, by MPI_X. (MPICH's calls MPI_X, which is us.) Old and new
 * modules meet in ompi_x_f(), but for what has a LOGICAL: there the new one calls pmpi_x_(). */
#include "lib/mpi/shim.h"

#if defined(OPEN_MPI)

#include <stdlib.h>

#define SHOWN __attribute__((visibility("default")))

typedef MPI_Fint fint;
_Static_assert(sizeof(fint) == sizeof(int), "arrays of numbers are handed on as they are");
#define STATUS_FINTS (sizeof(MPI_Status) / sizeof(fint))

extern fint mpi_fortran_in_place_, mpi_fortran_bottom_, mpi_fortran_status_ignore_,
    mpi_fortran_statuses_ignore_, mpi_fortran_unweighted_, mpi_fortran_weights_empty_;

/* An entry point, by the names that compilers make of it; its body follows. */
#define ALIAS(name, of) extern __typeof(of) name SHOWN __attribute__((alias(#of)))
#define ENTRY(lower, UPPER, ...)                                                                   \
    SHOWN void ompi_##lower##_f(__VA_ARGS__);                                                      \
    ALIAS(mpi_##lower, ompi_##lower##_f);                                                          \
    ALIAS(mpi_##lower##_, ompi_##lower##_f);                                                       \
    ALIAS(mpi_##lower##__, ompi_##lower##_f);                                                      \
    ALIAS(pmpi_##lower##_, ompi_##lower##_f);                                                      \
    ALIAS(MPI_##UPPER, ompi_##lower##_f);                                                          \
    void ompi_##lower##_f(__VA_ARGS__)

static void *at(char *buffer)
{
    if ((void *)buffer == &mpi_fortran_in_place_)
        return MPI_IN_PLACE;
    return (void *)buffer == &mpi_fortran_bottom_ ? MPI_BOTTOM : buffer;
}

#define TYPE(type) PMPI_Type_f2c(*(type))
#define OP(op)     PMPI_Op_f2c(*(op))
#define COMM(comm) PMPI_Comm_f2c(*(comm))

/* --- start ----------------------------------------------------------------------------------- */

ENTRY(init, INIT, fint *code)
{
    *code = MPI_Init(NULL, NULL);
}

ENTRY(init_thread, INIT_THREAD, fint *required, fint *provided, fint *code)
{
    *code = MPI_Init_thread(NULL, NULL, *required, provided);
}

/* --- collectives ----------------------------------------------------------------------------- */

/* The blocking and the nonblocking form. */
#define COLLECTIVE(lower, UPPER, Name, ARGUMENTS, ...)                                             \
    ENTRY(lower, UPPER, __VA_ARGS__, fint *code)                                                   \
    {                                                                                              \
        *code = MPI_##Name(ARGUMENTS);                                                             \
    }                                                                                              \
    ENTRY(i##lower, I##UPPER, __VA_ARGS__, fint *request, fint *code)                              \
    {                                                                                              \
        MPI_Request made = MPI_REQUEST_NULL;                                                       \
        *code = MPI_I##lower(ARGUMENTS, &made);                                                    \
        if (*code == MPI_SUCCESS)                                                                  \
            *request = MPI_Request_c2f(made);                                                      \
    }
#define AND ,

COLLECTIVE(barrier, BARRIER, Barrier, COMM(comm), fint *comm)
COLLECTIVE(bcast, BCAST, Bcast, at(data) AND *n AND TYPE(type) AND *root AND COMM(comm), char *data,
           fint *n, fint *type, fint *root, fint *comm)
COLLECTIVE(allreduce, ALLREDUCE, Allreduce,
           at(src) AND at(dst) AND *n AND TYPE(type) AND OP(op) AND COMM(comm), char *src,
           char *dst, fint *n, fint *type, fint *op, fint *comm)
COLLECTIVE(reduce, REDUCE, Reduce,
           at(src) AND at(dst) AND *n AND TYPE(type) AND OP(op) AND *root AND COMM(comm), char *src,
           char *dst, fint *n, fint *type, fint *op, fint *root, fint *comm)
COLLECTIVE(reduce_scatter, REDUCE_SCATTER, Reduce_scatter,
           at(src) AND at(dst) AND n AND TYPE(type) AND OP(op) AND COMM(comm), char *src, char *dst,
           fint *n, fint *type, fint *op, fint *comm)
COLLECTIVE(reduce_scatter_block, REDUCE_SCATTER_BLOCK, Reduce_scatter_block,
           at(src) AND at(dst) AND *n AND TYPE(type) AND OP(op) AND COMM(comm), char *src,
           char *dst, fint *n, fint *type, fint *op, fint *comm)
COLLECTIVE(allgather, ALLGATHER, Allgather,
           at(src) AND *sn AND TYPE(st) AND at(dst) AND *dn AND TYPE(dt) AND COMM(comm), char *src,
           fint *sn, fint *st, char *dst, fint *dn, fint *dt, fint *comm)
COLLECTIVE(alltoall, ALLTOALL, Alltoall,
           at(src) AND *sn AND TYPE(st) AND at(dst) AND *dn AND TYPE(dt) AND COMM(comm), char *src,
           fint *sn, fint *st, char *dst, fint *dn, fint *dt, fint *comm)
COLLECTIVE(gather, GATHER, Gather,
           at(src) AND *sn AND TYPE(st) AND at(dst) AND *dn AND TYPE(dt) AND *root AND COMM(comm),
           char *src, fint *sn, fint *st, char *dst, fint *dn, fint *dt, fint *root, fint *comm)
COLLECTIVE(scatter, SCATTER, Scatter,
           at(src) AND *sn AND TYPE(st) AND at(dst) AND *dn AND TYPE(dt) AND *root AND COMM(comm),
           char *src, fint *sn, fint *st, char *dst, fint *dn, fint *dt, fint *root, fint *comm)
COLLECTIVE(allgatherv, ALLGATHERV, Allgatherv,
           at(src) AND *sn AND TYPE(st) AND at(dst) AND dn AND dd AND TYPE(dt) AND COMM(comm),
           char *src, fint *sn, fint *st, char *dst, fint *dn, fint *dd, fint *dt, fint *comm)
COLLECTIVE(gatherv, GATHERV, Gatherv,
           at(src) AND *sn AND TYPE(st) AND at(dst) AND dn AND dd AND TYPE(dt)
               AND *root AND COMM(comm),
           char *src, fint *sn, fint *st, char *dst, fint *dn, fint *dd, fint *dt, fint *root,
           fint *comm)
COLLECTIVE(scatterv, SCATTERV, Scatterv,
           at(src) AND sn AND sd AND TYPE(st) AND at(dst) AND *dn AND TYPE(dt)
               AND *root AND COMM(comm),
           char *src, fint *sn, fint *sd, fint *st, char *dst, fint *dn, fint *dt, fint *root,
           fint *comm)
COLLECTIVE(alltoallv, ALLTOALLV, Alltoallv,
           at(src) AND sn AND sd AND TYPE(st) AND at(dst) AND dn AND dd AND TYPE(dt) AND COMM(comm),
           char *src, fint *sn, fint *sd, fint *st, char *dst, fint *dn, fint *dd, fint *dt,
           fint *comm)

/* --- communicators and operations ------------------------------------------------------------ */

static void hand_out(MPI_Comm made, fint *comm, fint code)
{
    if (code == MPI_SUCCESS)
        *comm = PMPI_Comm_c2f(made);
}

ENTRY(comm_dup, COMM_DUP, fint *comm, fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    *code = MPI_Comm_dup(COMM(comm), &out);
    hand_out(out, made, *code);
}

ENTRY(comm_split, COMM_SPLIT, fint *comm, fint *colour, fint *key, fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    *code = MPI_Comm_split(COMM(comm), *colour, *key, &out);
    hand_out(out, made, *code);
}

ENTRY(comm_split_type, COMM_SPLIT_TYPE, fint *comm, fint *kind, fint *key, fint *info, fint *made,
      fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    *code = MPI_Comm_split_type(COMM(comm), *kind, *key, PMPI_Info_f2c(*info), &out);
    hand_out(out, made, *code);
}

ENTRY(comm_create, COMM_CREATE, fint *comm, fint *group, fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    *code = MPI_Comm_create(COMM(comm), PMPI_Group_f2c(*group), &out);
    hand_out(out, made, *code);
}

ENTRY(comm_create_group, COMM_CREATE_GROUP, fint *comm, fint *group, fint *tag, fint *made,
      fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    *code = MPI_Comm_create_group(COMM(comm), PMPI_Group_f2c(*group), *tag, &out);
    hand_out(out, made, *code);
}

ENTRY(comm_dup_with_info, COMM_DUP_WITH_INFO, fint *comm, fint *info, fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    *code = MPI_Comm_dup_with_info(COMM(comm), PMPI_Info_f2c(*info), &out);
    hand_out(out, made, *code);
}

ENTRY(intercomm_merge, INTERCOMM_MERGE, fint *comm, fint *high, fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    *code = MPI_Intercomm_merge(COMM(comm), *high, &out);
    hand_out(out, made, *code);
}

/* LOGICALs are as good as C's: what is not .FALSE. is not 0. */
ENTRY(cart_create, CART_CREATE, fint *comm, fint *n, fint *dims, fint *periods, fint *reorder,
      fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    *code = MPI_Cart_create(COMM(comm), *n, dims, periods, *reorder, &out);
    hand_out(out, made, *code);
}

ENTRY(cart_sub, CART_SUB, fint *comm, fint *remain, fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    *code = MPI_Cart_sub(COMM(comm), remain, &out);
    hand_out(out, made, *code);
}

ENTRY(graph_create, GRAPH_CREATE, fint *comm, fint *n, fint *index, fint *edges, fint *reorder,
      fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    *code = MPI_Graph_create(COMM(comm), *n, index, edges, *reorder, &out);
    hand_out(out, made, *code);
}

static int *weights_at(fint *weights)
{
    if (weights == &mpi_fortran_unweighted_)
        return MPI_UNWEIGHTED;
    return weights == &mpi_fortran_weights_empty_ ? MPI_WEIGHTS_EMPTY : weights;
}

ENTRY(dist_graph_create, DIST_GRAPH_CREATE, fint *comm, fint *n, fint *sources, fint *degrees,
      fint *targets, fint *weights, fint *info, fint *reorder, fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    *code = MPI_Dist_graph_create(COMM(comm), *n, sources, degrees, targets, weights_at(weights),
                                  PMPI_Info_f2c(*info), *reorder, &out);
    hand_out(out, made, *code);
}

ENTRY(dist_graph_create_adjacent, DIST_GRAPH_CREATE_ADJACENT, fint *comm, fint *in, fint *sources,
      fint *source_weights, fint *out_degree, fint *targets, fint *target_weights, fint *info,
      fint *reorder, fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    *code = MPI_Dist_graph_create_adjacent(COMM(comm), *in, sources, weights_at(source_weights),
                                           *out_degree, targets, weights_at(target_weights),
                                           PMPI_Info_f2c(*info), *reorder, &out);
    hand_out(out, made, *code);
}

/* What C, or a library in it, has by MPI_Alloc_mem() may be given back here. */
ENTRY(free_mem, FREE_MEM, char *memory, fint *code)
{
    *code = MPI_Free_mem(memory);
}

ENTRY(op_free, OP_FREE, fint *op, fint *code)
{
    MPI_Op gone = OP(op);
    *code = MPI_Op_free(&gone);
    if (*code == MPI_SUCCESS)
        *op = PMPI_Op_c2f(MPI_OP_NULL);
}

ENTRY(type_free, TYPE_FREE, fint *type, fint *code)
{
    MPI_Datatype gone = TYPE(type);
    *code = MPI_Type_free(&gone);
    if (*code == MPI_SUCCESS)
        *type = PMPI_Type_c2f(MPI_DATATYPE_NULL);
}

/* --- requests -------------------------------------------------------------------------------- */

/* The C side of an array of requests, and of statuses. */
struct many {
    int count;
    fint *request, *status; /* status NULL: ignored */
    MPI_Request *c_request;
    MPI_Status *c_status;
};

static bool many_open(struct many *many, fint count, fint *request, fint *status)
{
    size_t n = count > 0 ? (size_t)count : 0;
    *many = (struct many){.count = (int)n, .request = request, .status = status};
    if (status == &mpi_fortran_statuses_ignore_)
        many->status = NULL;
    many->c_request = malloc((n + 1) * sizeof(MPI_Request));
    many->c_status = malloc((n + 1) * sizeof(MPI_Status));
    for (size_t i = 0; many->c_request != NULL && i < n; i++)
        many->c_request[i] = MPI_Request_f2c(request[i]);
    return many->c_request != NULL && many->c_status != NULL;
}

/* `statuses` of them were written. */
static void many_close(struct many *many, int statuses)
{
    for (int i = 0; many->c_request != NULL && i < many->count; i++)
        many->request[i] = MPI_Request_c2f(many->c_request[i]);
    for (int i = 0; many->status != NULL && many->c_status != NULL && i < statuses; i++)
        PMPI_Status_c2f(&many->c_status[i], many->status + (size_t)i * STATUS_FINTS);
    free(many->c_request);
    free(many->c_status);
}

static void tell_status(const MPI_Status *from, fint *status)
{
    if (status != &mpi_fortran_status_ignore_)
        PMPI_Status_c2f(from, status);
}

static fint counted_from_one(int index)
{
    return index == MPI_UNDEFINED ? MPI_UNDEFINED : index + 1;
}

ENTRY(wait, WAIT, fint *request, fint *status, fint *code)
{
    MPI_Request one = MPI_Request_f2c(*request);
    MPI_Status told;
    *code = MPI_Wait(&one, &told);
    *request = MPI_Request_c2f(one);
    tell_status(&told, status);
}

ENTRY(test, TEST, fint *request, fint *flag, fint *status, fint *code)
{
    MPI_Request one = MPI_Request_f2c(*request);
    MPI_Status told;
    *code = MPI_Test(&one, flag, &told);
    *request = MPI_Request_c2f(one);
    if (*flag)
        tell_status(&told, status);
}

ENTRY(request_get_status, REQUEST_GET_STATUS, fint *request, fint *flag, fint *status, fint *code)
{
    MPI_Status told;
    *code = MPI_Request_get_status(MPI_Request_f2c(*request), flag, &told);
    if (*flag)
        tell_status(&told, status);
}

ENTRY(request_free, REQUEST_FREE, fint *request, fint *code)
{
    MPI_Request one = MPI_Request_f2c(*request);
    *code = MPI_Request_free(&one);
    *request = MPI_Request_c2f(one);
}

ENTRY(cancel, CANCEL, fint *request, fint *code)
{
    MPI_Request one = MPI_Request_f2c(*request);
    *code = MPI_Cancel(&one);
}

ENTRY(start, START, fint *request, fint *code)
{
    MPI_Request one = MPI_Request_f2c(*request);
    *code = MPI_Start(&one);
    *request = MPI_Request_c2f(one);
}

ENTRY(startall, STARTALL, fint *count, fint *requests, fint *code)
{
    struct many many;
    *code = many_open(&many, *count, requests, NULL) ? MPI_Startall(*count, many.c_request)
                                                     : MPI_ERR_NO_MEM;
    many_close(&many, 0);
}

ENTRY(waitall, WAITALL, fint *count, fint *requests, fint *statuses, fint *code)
{
    struct many many;
    *code = many_open(&many, *count, requests, statuses)
                ? MPI_Waitall(*count, many.c_request, many.c_status)
                : MPI_ERR_NO_MEM;
    many_close(&many, many.count);
}

ENTRY(testall, TESTALL, fint *count, fint *requests, fint *flag, fint *statuses, fint *code)
{
    struct many many;
    *flag = 0;
    *code = many_open(&many, *count, requests, statuses)
                ? MPI_Testall(*count, many.c_request, flag, many.c_status)
                : MPI_ERR_NO_MEM;
    many_close(&many, *flag ? many.count : 0);
}

ENTRY(waitany, WAITANY, fint *count, fint *requests, fint *index, fint *status, fint *code)
{
    struct many many;
    int which = MPI_UNDEFINED;
    *code = many_open(&many, *count, requests, NULL)
                ? MPI_Waitany(*count, many.c_request, &which, many.c_status)
                : MPI_ERR_NO_MEM;
    *index = counted_from_one(which);
    if (*code == MPI_SUCCESS)
        tell_status(many.c_status, status);
    many_close(&many, 0);
}

ENTRY(testany, TESTANY, fint *count, fint *requests, fint *index, fint *flag, fint *status,
      fint *code)
{
    struct many many;
    int which = MPI_UNDEFINED;
    *flag = 0;
    *code = many_open(&many, *count, requests, NULL)
                ? MPI_Testany(*count, many.c_request, &which, flag, many.c_status)
                : MPI_ERR_NO_MEM;
    *index = counted_from_one(which);
    if (*code == MPI_SUCCESS && *flag)
        tell_status(many.c_status, status);
    many_close(&many, 0);
}

/* Waitsome and Testsome: which, as C counts them. */
#define SOME(lower, UPPER, Name)                                                                   \
    ENTRY(lower, UPPER, fint *count, fint *requests, fint *done, fint *indices, fint *statuses,    \
          fint *code)                                                                              \
    {                                                                                              \
        struct many many;                                                                          \
        *done = 0;                                                                                 \
        *code = many_open(&many, *count, requests, statuses)                                       \
                    ? MPI_##Name(*count, many.c_request, done, indices, many.c_status)             \
                    : MPI_ERR_NO_MEM;                                                              \
        int n = *done == MPI_UNDEFINED ? 0 : *done;                                                \
        for (int i = 0; i < n; i++)                                                                \
            indices[i]++;                                                                          \
        many_close(&many, n);                                                                      \
    }
SOME(waitsome, WAITSOME, Waitsome)
SOME(testsome, TESTSOME, Testsome)

#endif
