/* SPDX-License-Identifier: Apache-2.0 */
/* Fortran calls without buffers that would bypass this library. */
#include "lib/mpi/fortran/mpi_fortran.h"
#include "lib/mpi/mpi_newer.h"

#include <dlfcn.h>
#include <string.h>

twill_mpi_function *twill_mpi_fortran_own(const char *name)
{
    void *other = dlsym(RTLD_DEFAULT, "mpi_abort_"); /* in the MPI's library, and not here */
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

/* --- start ------------------------------------------------------------------------------------ */

ENTRY(init, INIT, fint *code)
{
    store_code(code, MPI_Init(NULL, NULL));
}

ENTRY(init_thread, INIT_THREAD, fint *required, fint *provided, fint *code)
{
    store_code(code, MPI_Init_thread(NULL, NULL, *required, provided));
}

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

/* --- communicators ---------------------------------------------------------------------------- */

static void hand_out_comm(int result, MPI_Comm made, fint *comm, fint *code)
{
    if (result == MPI_SUCCESS)
        *comm = PMPI_Comm_c2f(made);
    store_code(code, result);
}

/* Define an entry point that makes a communicator; MAKE is the C call that does. LOGICALs serve as
 * C's ints: what is not .FALSE. is not 0. */
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

/* Define an entry point that ends a handle. */
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

/* The name that stands for MPI_UNWEIGHTED depends on the program's compiler. The MPI's own entry
 * point was made by that compiler: call it, and adopt what it made. */
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
    __typeof(&mpi_dist_graph_create_f08_) own = (__typeof(own))twill_mpi_fortran_own(__func__);
    fint result = MPI_ERR_UNKNOWN;
    if (own != NULL)
        own(comm, n, sources, degrees, targets, weights, info, reorder, made, &result);
    adopt_made_comm(comm, made, code, result);
}

ENTRY(dist_graph_create_adjacent, DIST_GRAPH_CREATE_ADJACENT, fint *comm, fint *in, fint *sources,
      fint *source_weights, fint *out_degree, fint *targets, fint *target_weights, fint *info,
      fint *reorder, fint *made, fint *code)
{
    __typeof(&mpi_dist_graph_create_adjacent_f08_) own =
        (__typeof(own))twill_mpi_fortran_own(__func__);
    fint result = MPI_ERR_UNKNOWN;
    if (own != NULL)
        own(comm, in, sources, source_weights, out_degree, targets, target_weights, info, reorder,
            made, &result);
    adopt_made_comm(comm, made, code, result);
}

#endif

/* --- memory ----------------------------------------------------------------------------------- */

ENTRY(alloc_mem, ALLOC_MEM, MPI_Aint *size, fint *info, char *memory, fint *code)
{
    store_code(code, MPI_Alloc_mem(*size, INFO(info), memory));
}

#if defined(OPEN_MPI)

ENTRY(alloc_mem_cptr, ALLOC_MEM_CPTR, MPI_Aint *size, fint *info, char *memory, fint *code)
{
    store_code(code, MPI_Alloc_mem(*size, INFO(info), memory));
}

ENTRY(free_mem, FREE_MEM, char *memory, fint *code)
{
    store_code(code, MPI_Free_mem(memory));
}

#endif
