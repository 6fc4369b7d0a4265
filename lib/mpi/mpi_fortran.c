/* SPDX-License-Identifier: Apache-2.0 */
/* Fortran entry points that would bypass this library by calling PMPI_X call MPI_X here.
 *
 * With Open MPI these are all entry points. The old and the new module share ompi_x_f(), except for
 * calls with a LOGICAL, where the new one calls pmpi_x_(). With MPICH they are mpi_x_f08_(), the
 * calls of module mpi_f08 without buffers. There a handle is a structure of one integer, a status
 * is C's, and the address of the error code is NULL if omitted. Its other calls use MPI_X. */
#include "lib/mpi/shim.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef MPI_Fint fint;
_Static_assert(sizeof(fint) == sizeof(int), "arrays of numbers are handed on as they are");

/* Define an entry point by all its names. Its body follows. In ENTRY_OF they have `x`, for MPIX. */
#if defined(OPEN_MPI)
#define ALIAS(name, of) extern __typeof(of) name TWILL_EXPORTED __attribute__((alias(#of)))
#define ENTRY_OF(x, X, lower, UPPER, ...)                                                          \
    TWILL_EXPORTED void ompi##x##_##lower##_f(__VA_ARGS__);                                        \
    ALIAS(mpi##x##_##lower, ompi##x##_##lower##_f);                                                \
    ALIAS(mpi##x##_##lower##_, ompi##x##_##lower##_f);                                             \
    ALIAS(mpi##x##_##lower##__, ompi##x##_##lower##_f);                                            \
    ALIAS(pmpi##x##_##lower##_, ompi##x##_##lower##_f);                                            \
    ALIAS(MPI##X##_##UPPER, ompi##x##_##lower##_f);                                                \
    void ompi##x##_##lower##_f(__VA_ARGS__)
#else
#define ENTRY_OF(x, X, lower, UPPER, ...)                                                          \
    TWILL_EXPORTED void mpi##x##_##lower##_f08_(__VA_ARGS__);                                      \
    void mpi##x##_##lower##_f08_(__VA_ARGS__)
#endif
#define ENTRY(lower, UPPER, ...) ENTRY_OF(, , lower, UPPER, __VA_ARGS__)

#define TYPE(type) PMPI_Type_f2c(*(type))
#define OP(op)     PMPI_Op_f2c(*(op))
#define COMM(comm) PMPI_Comm_f2c(*(comm))
#define INFO(info) PMPI_Info_f2c(*(info))

/* Set *code to `result`, unless the program omitted it. */
static void store_code(fint *code, int result)
{
    if (code != NULL)
        *code = result;
}

/* Return the MPI library's own function for the Fortran entry `name`, such as "mpi_init_", or NULL
 * if it has none. It is looked up in the library that exports mpi_abort_. A search of the whole
 * process could find the function of that name in this library. */
static twill_mpi_function *own_entry(const char *name)
{
    void *other = dlsym(RTLD_DEFAULT, "mpi_abort_"); /* exported by the MPI, not by this library */
    void *library = NULL;
    twill_mpi_function *function = NULL;
    Dl_info info;
    if (other != NULL && dladdr(other, &info) != 0)
        library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL)
        return NULL;
    void *found = dlsym(library, name);
    memcpy(&function, &found, sizeof(function));
    dlclose(library);
    return function;
}

ENTRY(init, INIT, fint *code)
{
    store_code(code, MPI_Init(NULL, NULL));
}

ENTRY(init_thread, INIT_THREAD, fint *required, fint *provided, fint *code)
{
    store_code(code, MPI_Init_thread(NULL, NULL, *required, provided));
}

/* Pass the call on by C's MPI_Session_init(). Stores its code in *code and, if it is a success, the
 * number of the session in *session. */
ENTRY(session_init, SESSION_INIT, fint *info, fint *errhandler, fint *session, fint *code)
{
    twill_mpi_session made;
    int result = MPI_Session_init(INFO(info), PMPI_Errhandler_f2c(*errhandler), &made);
    if (result == MPI_SUCCESS) {
#if defined(OPEN_MPI)
        fint (*number)(twill_mpi_session) =
            (fint(*)(twill_mpi_session))twill_mpi_below("PMPI_Session_c2f");
        *session = number(made);
#else
        *session = made;
#endif
    }
    store_code(code, result);
}

/* Store the result in *code and, if it is a success, the new communicator's number in *comm. */
static void hand_out_comm(int result, MPI_Comm made, fint *comm, fint *code)
{
    if (result == MPI_SUCCESS)
        *comm = PMPI_Comm_c2f(made);
    store_code(code, result);
}

/* Define an entry point that makes a communicator by the C call MAKE. A LOGICAL becomes an int. */
#define MAKES_COMM(lower, UPPER, MAKE, ...)                                                        \
    ENTRY(lower, UPPER, __VA_ARGS__, fint *made, fint *code)                                       \
    {                                                                                              \
        MPI_Comm out = MPI_COMM_NULL;                                                              \
        int result = MAKE;                                                                         \
        hand_out_comm(result, out, made, code);                                                    \
    }
MAKES_COMM(comm_dup, COMM_DUP, MPI_Comm_dup(COMM(comm), &out), fint *comm)
MAKES_COMM(comm_split, COMM_SPLIT, MPI_Comm_split(COMM(comm), *colour, *key, &out), fint *comm,
           fint *colour, fint *key)
MAKES_COMM(comm_split_type, COMM_SPLIT_TYPE,
           MPI_Comm_split_type(COMM(comm), *kind, *key, INFO(info), &out), fint *comm, fint *kind,
           fint *key, fint *info)
MAKES_COMM(comm_create, COMM_CREATE, MPI_Comm_create(COMM(comm), PMPI_Group_f2c(*group), &out),
           fint *comm, fint *group)
MAKES_COMM(comm_create_group, COMM_CREATE_GROUP,
           MPI_Comm_create_group(COMM(comm), PMPI_Group_f2c(*group), *tag, &out), fint *comm,
           fint *group, fint *tag)
MAKES_COMM(comm_dup_with_info, COMM_DUP_WITH_INFO,
           MPI_Comm_dup_with_info(COMM(comm), INFO(info), &out), fint *comm, fint *info)
MAKES_COMM(intercomm_create, INTERCOMM_CREATE,
           MPI_Intercomm_create(COMM(comm), *leader, COMM(peer), *remote_leader, *tag, &out),
           fint *comm, fint *leader, fint *peer, fint *remote_leader, fint *tag)
MAKES_COMM(intercomm_merge, INTERCOMM_MERGE, MPI_Intercomm_merge(COMM(comm), *high, &out),
           fint *comm, fint *high)
MAKES_COMM(cart_create, CART_CREATE, MPI_Cart_create(COMM(comm), *n, dims, periods, *reorder, &out),
           fint *comm, fint *n, fint *dims, fint *periods, fint *reorder)
MAKES_COMM(cart_sub, CART_SUB, MPI_Cart_sub(COMM(comm), remain, &out), fint *comm, fint *remain)
MAKES_COMM(graph_create, GRAPH_CREATE,
           MPI_Graph_create(COMM(comm), *n, index, edges, *reorder, &out), fint *comm, fint *n,
           fint *index, fint *edges, fint *reorder)

/* Define an entry point that frees a handle. */
#define ENDS(lower, UPPER, Name, Type, type)                                                       \
    ENTRY(lower, UPPER, fint *handle, fint *code)                                                  \
    {                                                                                              \
        MPI_##Type gone = PMPI_##type##_f2c(*handle);                                              \
        int result = MPI_##Name(&gone);                                                            \
        if (result == MPI_SUCCESS)                                                                 \
            *handle = PMPI_##type##_c2f(gone);                                                     \
        store_code(code, result);                                                                  \
    }
ENDS(comm_free, COMM_FREE, Comm_free, Comm, Comm)
ENDS(comm_disconnect, COMM_DISCONNECT, Comm_disconnect, Comm, Comm)
ENDS(op_free, OP_FREE, Op_free, Op, Op)
ENDS(type_free, TYPE_FREE, Type_free, Datatype, Type)

ENTRY_OF(x, X, comm_revoke, COMM_REVOKE, fint *comm, fint *code)
{
    store_code(code, MPIX_Comm_revoke(COMM(comm)));
}

#if defined(OPEN_MPI)

extern fint mpi_fortran_unweighted_, mpi_fortran_weights_empty_;

/* Return C's form of an array of weights, which has constants of C for those of Fortran. */
static int *weights_at(fint *weights)
{
    if (weights == &mpi_fortran_unweighted_)
        return MPI_UNWEIGHTED;
    return weights == &mpi_fortran_weights_empty_ ? MPI_WEIGHTS_EMPTY : weights;
}

MAKES_COMM(dist_graph_create, DIST_GRAPH_CREATE,
           MPI_Dist_graph_create(COMM(comm), *n, sources, degrees, targets, weights_at(weights),
                                 INFO(info), *reorder, &out),
           fint *comm, fint *n, fint *sources, fint *degrees, fint *targets, fint *weights,
           fint *info, fint *reorder)
MAKES_COMM(dist_graph_create_adjacent, DIST_GRAPH_CREATE_ADJACENT,
           MPI_Dist_graph_create_adjacent(COMM(comm), *in, sources, weights_at(source_weights),
                                          *out_degree, targets, weights_at(target_weights),
                                          INFO(info), *reorder, &out),
           fint *comm, fint *in, fint *sources, fint *source_weights, fint *out_degree,
           fint *targets, fint *target_weights, fint *info, fint *reorder)

#else

/* Finish an entry point that has called the MPI's Fortran function to make *made from *comm. Store
 * its code, `result`, in *code. Adopt *made after a success. If the function was not found, call
 * the error handler. C's function cannot be called, as Fortran's MPI_UNWEIGHTED is a symbol whose
 * name depends on the compiler. */
static void adopt_made_comm(fint *comm, const fint *made, fint *code, int result)
{
    if (result == MPI_SUCCESS)
        twill_mpi_comm_adopt(COMM(made));
    else if (result == MPI_ERR_UNKNOWN) /* the MPI's own entry point was not found */
        PMPI_Comm_call_errhandler(COMM(comm), result);
    store_code(code, result);
}

ENTRY(dist_graph_create, DIST_GRAPH_CREATE, fint *comm, fint *n, fint *sources, fint *degrees,
      fint *targets, fint *weights, fint *info, fint *reorder, fint *made, fint *code)
{
    __typeof(&mpi_dist_graph_create_f08_) own = (__typeof(own))own_entry(__func__);
    fint result = MPI_ERR_UNKNOWN;
    if (own != NULL)
        own(comm, n, sources, degrees, targets, weights, info, reorder, made, &result);
    adopt_made_comm(comm, made, code, result);
}

ENTRY(dist_graph_create_adjacent, DIST_GRAPH_CREATE_ADJACENT, fint *comm, fint *in, fint *sources,
      fint *source_weights, fint *out_degree, fint *targets, fint *target_weights, fint *info,
      fint *reorder, fint *made, fint *code)
{
    __typeof(&mpi_dist_graph_create_adjacent_f08_) own = (__typeof(own))own_entry(__func__);
    fint result = MPI_ERR_UNKNOWN;
    if (own != NULL)
        own(comm, in, sources, source_weights, out_degree, targets, target_weights, info, reorder,
            made, &result);
    adopt_made_comm(comm, made, code, result);
}

#endif

/* Allocate memory by MPI_Alloc_mem(). Its address is stored where `memory` points. */
ENTRY(alloc_mem, ALLOC_MEM, MPI_Aint *size, fint *info, char *memory, fint *code)
{
    store_code(code, MPI_Alloc_mem(*size, INFO(info), memory));
}

#if defined(OPEN_MPI)

/* Allocate memory as MPI_Alloc_mem does, for the interface whose pointer is a TYPE(C_PTR). */
ENTRY(alloc_mem_cptr, ALLOC_MEM_CPTR, MPI_Aint *size, fint *info, char *memory, fint *code)
{
    store_code(code, MPI_Alloc_mem(*size, INFO(info), memory));
}

ENTRY(free_mem, FREE_MEM, char *memory, fint *code)
{
    store_code(code, MPI_Free_mem(memory));
}

#endif

/* Store the result in *code and, if it is a success, the new request's number in *request. */
static void hand_out_request(int result, MPI_Request made, fint *request, fint *code)
{
    if (result == MPI_SUCCESS)
        *request = MPI_Request_c2f(made);
    store_code(code, result);
}

/* Define an entry point that makes a request by the C call MAKE. */
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

/* Define the blocking, the nonblocking and the persistent form of a collective. */
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

/* Return C's form of a buffer's address, which has constants of C for those of Fortran. */
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

/* An array of requests with statuses, and its C form, on the stack of an entry point. */
struct request_array {
    int count;
    fint *request, *status; /* `status` is NULL if ignored */
    MPI_Request *c_request;
    MPI_Status *c_status;
};

#if defined(OPEN_MPI)

#define STATUS_FINTS (sizeof(MPI_Status) / sizeof(fint))
extern fint mpi_fortran_status_ignore_, mpi_fortran_statuses_ignore_;

/* Convert a Fortran status, including its MPI_ERROR, to C in *own, and return `own`. If the program
 * ignores the status, return MPI_STATUS_IGNORE and leave *own unset. */
static MPI_Status *status_open(const fint *status, MPI_Status *own)
{
    if (status == &mpi_fortran_status_ignore_)
        return MPI_STATUS_IGNORE;
    PMPI_Status_f2c(status, own);
    return own;
}

/* Convert *own back to the program's status, unless that is ignored. */
static void status_close(const MPI_Status *own, fint *status)
{
    if (status != &mpi_fortran_status_ignore_)
        PMPI_Status_c2f(own, status);
}

/* Convert requests and statuses to C in *many. Returns false if out of memory. Either way
 * many_close() must follow. */
static bool many_open(struct request_array *many, fint count, fint *request, fint *status)
{
    size_t n = count > 0 ? (size_t)count : 0;
    *many = (struct request_array){.count = (int)n, .request = request, .status = status};
    many->c_request = malloc((n + 1) * sizeof(MPI_Request));
    for (size_t i = 0; many->c_request != NULL && i < n; i++)
        many->c_request[i] = MPI_Request_f2c(request[i]);
    if (status == NULL || status == &mpi_fortran_statuses_ignore_) {
        many->status = NULL;
        many->c_status = MPI_STATUSES_IGNORE;
        return many->c_request != NULL;
    }
    many->c_status = malloc((n + 1) * sizeof(MPI_Status));
    for (size_t i = 0; many->c_status != NULL && i < n; i++)
        PMPI_Status_f2c(status + i * STATUS_FINTS, &many->c_status[i]);
    return many->c_request != NULL && many->c_status != NULL;
}

/* Convert requests and the first `statuses` statuses back to Fortran, and free the C form. */
static void many_close(struct request_array *many, int statuses)
{
    for (int i = 0; many->c_request != NULL && i < many->count; i++)
        many->request[i] = MPI_Request_c2f(many->c_request[i]);
    free(many->c_request);
    if (many->status == NULL)
        return;
    for (int i = 0; many->c_status != NULL && i < statuses; i++)
        PMPI_Status_c2f(&many->c_status[i], many->status + (size_t)i * STATUS_FINTS);
    free(many->c_status);
}

#else

/* Requests and statuses have the same form as in C. A library with MPICH's ABI may lack mpi_f08. */
_Static_assert(sizeof(MPI_Request) == sizeof(fint), "a request is a number");
_Static_assert(sizeof(MPI_Status) == sizeof(MPIR_F08_MPI_STATUS_IGNORE_OBJ), "a status is C's");
#pragma weak MPIR_F08_MPI_STATUS_IGNORE_OBJ
#pragma weak MPIR_F08_MPI_STATUSES_IGNORE_OBJ

/* Return C's form of a status, which is the status itself, or MPI_STATUS_IGNORE. */
static MPI_Status *status_open(fint *status, MPI_Status *own)
{
    (void)own;
    return (void *)status == &MPIR_F08_MPI_STATUS_IGNORE_OBJ ? MPI_STATUS_IGNORE
                                                             : (MPI_Status *)status;
}

/* Do nothing, as the status was used in place. */
static void status_close(const MPI_Status *own, fint *status)
{
    (void)own, (void)status;
}

/* Use requests and statuses in place as C's, in *many. Always returns true. */
static bool many_open(struct request_array *many, fint count, fint *request, fint *status)
{
    *many = (struct request_array){.count = count, .request = request, .status = status};
    many->c_request = (MPI_Request *)request;
    many->c_status = (void *)status == &MPIR_F08_MPI_STATUSES_IGNORE_OBJ ? MPI_STATUSES_IGNORE
                                                                         : (MPI_Status *)status;
    return true;
}

/* Do nothing, as requests and statuses were used in place. */
static void many_close(struct request_array *many, int statuses)
{
    (void)many, (void)statuses;
}

#endif

/* Return a C index as a Fortran index, which is larger by 1. Returns MPI_UNDEFINED unchanged. (The
 * mpi_f08 of MPICH 4.0 returns C's index, which is wrong.) */
static fint counted_from_one(int index)
{
    return index == MPI_UNDEFINED ? MPI_UNDEFINED : index + 1;
}

ENTRY(wait, WAIT, fint *request, fint *status, fint *code)
{
    MPI_Request one = MPI_Request_f2c(*request);
    MPI_Status own;
    int result = MPI_Wait(&one, status_open(status, &own));
    *request = MPI_Request_c2f(one);
    status_close(&own, status);
    store_code(code, result);
}

ENTRY(test, TEST, fint *request, fint *flag, fint *status, fint *code)
{
    MPI_Request one = MPI_Request_f2c(*request);
    MPI_Status own;
    int result = MPI_Test(&one, flag, status_open(status, &own));
    *request = MPI_Request_c2f(one);
    status_close(&own, status);
    store_code(code, result);
}

ENTRY(request_get_status, REQUEST_GET_STATUS, fint *request, fint *flag, fint *status, fint *code)
{
    MPI_Status own;
    int result = MPI_Request_get_status(MPI_Request_f2c(*request), flag, status_open(status, &own));
    status_close(&own, status);
    store_code(code, result);
}

/* Define an entry point that changes a request and has no status. */
#define CHANGES_REQUEST(lower, UPPER, Name)                                                        \
    ENTRY(lower, UPPER, fint *request, fint *code)                                                 \
    {                                                                                              \
        MPI_Request one = MPI_Request_f2c(*request);                                               \
        int result = MPI_##Name(&one);                                                             \
        *request = MPI_Request_c2f(one);                                                           \
        store_code(code, result);                                                                  \
    }
CHANGES_REQUEST(request_free, REQUEST_FREE, Request_free)
CHANGES_REQUEST(start, START, Start)

ENTRY(cancel, CANCEL, fint *request, fint *code)
{
    MPI_Request one = MPI_Request_f2c(*request);
    store_code(code, MPI_Cancel(&one));
}

ENTRY(startall, STARTALL, fint *count, fint *requests, fint *code)
{
    struct request_array many;
    int result = many_open(&many, *count, requests, NULL) ? MPI_Startall(*count, many.c_request)
                                                          : MPI_ERR_NO_MEM;
    many_close(&many, 0);
    store_code(code, result);
}

/* Wait by C's MPI_Waitall() and convert requests and statuses back. If out of memory, the code is
 * MPI_ERR_NO_MEM, and no request has changed. */
ENTRY(waitall, WAITALL, fint *count, fint *requests, fint *statuses, fint *code)
{
    struct request_array many;
    int result = many_open(&many, *count, requests, statuses)
                     ? MPI_Waitall(*count, many.c_request, many.c_status)
                     : MPI_ERR_NO_MEM;
    many_close(&many, many.count);
    store_code(code, result);
}

/* Test by C's MPI_Testall() and convert requests and statuses back. If out of memory, *flag is 0,
 * the code is MPI_ERR_NO_MEM, and no request has changed. */
ENTRY(testall, TESTALL, fint *count, fint *requests, fint *flag, fint *statuses, fint *code)
{
    struct request_array many;
    *flag = 0;
    int result = many_open(&many, *count, requests, statuses)
                     ? MPI_Testall(*count, many.c_request, flag, many.c_status)
                     : MPI_ERR_NO_MEM;
    many_close(&many, many.count);
    store_code(code, result);
}

/* Wait by C's MPI_Waitany(). *index becomes the position from 1 of the request that is complete, or
 * MPI_UNDEFINED if none is active or out of memory. */
ENTRY(waitany, WAITANY, fint *count, fint *requests, fint *index, fint *status, fint *code)
{
    struct request_array many;
    MPI_Status own;
    int which = MPI_UNDEFINED;
    int result = many_open(&many, *count, requests, NULL)
                     ? MPI_Waitany(*count, many.c_request, &which, status_open(status, &own))
                     : MPI_ERR_NO_MEM;
    *index = counted_from_one(which);
    status_close(&own, status);
    many_close(&many, 0);
    store_code(code, result);
}

/* Test by C's MPI_Testany(). *index becomes the position from 1 of the request that is complete, or
 * MPI_UNDEFINED if there is none. */
ENTRY(testany, TESTANY, fint *count, fint *requests, fint *index, fint *flag, fint *status,
      fint *code)
{
    struct request_array many;
    MPI_Status own;
    int which = MPI_UNDEFINED;
    *flag = 0;
    int result = many_open(&many, *count, requests, NULL)
                     ? MPI_Testany(*count, many.c_request, &which, flag, status_open(status, &own))
                     : MPI_ERR_NO_MEM;
    *index = counted_from_one(which);
    status_close(&own, status);
    many_close(&many, 0);
    store_code(code, result);
}

/* Define MPI_Waitsome and MPI_Testsome. C's indices are converted. */
#define SOME(lower, UPPER, Name)                                                                   \
    ENTRY(lower, UPPER, fint *count, fint *requests, fint *done, fint *indices, fint *statuses,    \
          fint *code)                                                                              \
    {                                                                                              \
        struct request_array many;                                                                 \
        *done = 0;                                                                                 \
        int result = many_open(&many, *count, requests, statuses)                                  \
                         ? MPI_##Name(*count, many.c_request, done, indices, many.c_status)        \
                         : MPI_ERR_NO_MEM;                                                         \
        int n = *done == MPI_UNDEFINED ? 0 : *done;                                                \
        for (int i = 0; i < n; i++)                                                                \
            indices[i]++;                                                                          \
        many_close(&many, n);                                                                      \
        store_code(code, result);                                                                  \
    }
SOME(waitsome, WAITSOME, Waitsome)
SOME(testsome, TESTSOME, Testsome)

/* Finish a Fortran call that makes a window. If `result`, the MPI's code, is MPI_SUCCESS, count the
 * window as open, because open windows need the MPI's progress. Stores `result` in *code unless the
 * program omitted that. */
static void window_made(fint result, const fint *window, fint *code)
{
    if (result == MPI_SUCCESS) {
        MPI_Win made_here = PMPI_Win_f2c(*window);
        twill_mpi_window_made(MPI_SUCCESS, &made_here);
    }
    store_code(code, result);
}

/* Define an entry point with these arguments before window and code. It calls the MPI's own Fortran
 * function, which knows Fortran's MPI_BOTTOM. */
#define WINDOW_ENTRY(lower, UPPER, arguments, ...)                                                 \
    ENTRY(lower, UPPER, __VA_ARGS__, fint *window, fint *code)                                     \
    {                                                                                              \
        void (*own)(__VA_ARGS__, fint *, fint *) = (__typeof(own))own_entry(__func__);             \
        fint result = MPI_ERR_OTHER;                                                               \
        if (own != NULL)                                                                           \
            own arguments;                                                                         \
        window_made(result, window, code);                                                         \
    }

WINDOW_ENTRY(win_allocate, WIN_ALLOCATE, (size, unit, info, comm, base, window, &result),
             MPI_Aint *size, fint *unit, fint *info, fint *comm, char *base)
WINDOW_ENTRY(win_allocate_shared, WIN_ALLOCATE_SHARED,
             (size, unit, info, comm, base, window, &result), MPI_Aint *size, fint *unit,
             fint *info, fint *comm, char *base)
WINDOW_ENTRY(win_create_dynamic, WIN_CREATE_DYNAMIC, (info, comm, window, &result), fint *info,
             fint *comm)
#if defined(OPEN_MPI)
WINDOW_ENTRY(win_create, WIN_CREATE, (base, size, unit, info, comm, window, &result), char *base,
             MPI_Aint *size, fint *unit, fint *info, fint *comm)
WINDOW_ENTRY(win_allocate_cptr, WIN_ALLOCATE_CPTR, (size, unit, info, comm, base, window, &result),
             MPI_Aint *size, fint *unit, fint *info, fint *comm, char *base)
WINDOW_ENTRY(win_allocate_shared_cptr, WIN_ALLOCATE_SHARED_CPTR,
             (size, unit, info, comm, base, window, &result), MPI_Aint *size, fint *unit,
             fint *info, fint *comm, char *base)
#endif

/* Open a file by the MPI's own Fortran function, and count it as open after a success. `length` is
 * that of `name`. The code is MPI_ERR_OTHER if the MPI has no such function. */
ENTRY(file_open, FILE_OPEN, fint *comm, char *name, fint *mode, fint *info, fint *file, fint *code,
      size_t length)
{
    void (*own)(fint *, char *, fint *, fint *, fint *, fint *, size_t) =
        (__typeof(own))own_entry(__func__);
    fint result = MPI_ERR_OTHER;
    if (own != NULL)
        own(comm, name, mode, info, file, &result, length);
    twill_mpi_file_opened(result);
    store_code(code, result);
}

/* Close a file by the MPI's own Fortran function, and count it as closed after a success. The code
 * is MPI_ERR_OTHER if the MPI has no such function. */
ENTRY(file_close, FILE_CLOSE, fint *file, fint *code)
{
    void (*own)(fint *, fint *) = (__typeof(own))own_entry(__func__);
    fint result = MPI_ERR_OTHER;
    if (own != NULL)
        own(file, &result);
    twill_mpi_file_closed(result);
    store_code(code, result);
}
