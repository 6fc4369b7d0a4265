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

ENTRY(comm_dup, COMM_DUP, fint *comm, fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    int result = MPI_Comm_dup(COMM(comm), &out);
    hand_out_comm(result, out, made, code);
}

ENTRY(comm_split, COMM_SPLIT, fint *comm, fint *colour, fint *key, fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    int result = MPI_Comm_split(COMM(comm), *colour, *key, &out);
    hand_out_comm(result, out, made, code);
}

ENTRY(comm_split_type, COMM_SPLIT_TYPE, fint *comm, fint *kind, fint *key, fint *info, fint *made,
      fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    int result = MPI_Comm_split_type(COMM(comm), *kind, *key, INFO(info), &out);
    hand_out_comm(result, out, made, code);
}

ENTRY(comm_create, COMM_CREATE, fint *comm, fint *group, fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    int result = MPI_Comm_create(COMM(comm), PMPI_Group_f2c(*group), &out);
    hand_out_comm(result, out, made, code);
}

ENTRY(comm_create_group, COMM_CREATE_GROUP, fint *comm, fint *group, fint *tag, fint *made,
      fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    int result = MPI_Comm_create_group(COMM(comm), PMPI_Group_f2c(*group), *tag, &out);
    hand_out_comm(result, out, made, code);
}

ENTRY(comm_dup_with_info, COMM_DUP_WITH_INFO, fint *comm, fint *info, fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    int result = MPI_Comm_dup_with_info(COMM(comm), INFO(info), &out);
    hand_out_comm(result, out, made, code);
}

ENTRY(intercomm_create, INTERCOMM_CREATE, fint *comm, fint *leader, fint *peer, fint *remote_leader,
      fint *tag, fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    int result = MPI_Intercomm_create(COMM(comm), *leader, COMM(peer), *remote_leader, *tag, &out);
    hand_out_comm(result, out, made, code);
}

ENTRY(intercomm_merge, INTERCOMM_MERGE, fint *comm, fint *high, fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    int result = MPI_Intercomm_merge(COMM(comm), *high, &out);
    hand_out_comm(result, out, made, code);
}

ENTRY(comm_free, COMM_FREE, fint *comm, fint *code)
{
    MPI_Comm gone = COMM(comm);
    int result = MPI_Comm_free(&gone);
    hand_out_comm(result, gone, comm, code);
}

ENTRY(comm_disconnect, COMM_DISCONNECT, fint *comm, fint *code)
{
    MPI_Comm gone = COMM(comm);
    int result = MPI_Comm_disconnect(&gone);
    hand_out_comm(result, gone, comm, code);
}

ENTRY_OF(x, X, comm_revoke, COMM_REVOKE, fint *comm, fint *code)
{
    store_code(code, MPIX_Comm_revoke(COMM(comm)));
}

/* LOGICALs serve as C's ints: what is not .FALSE. is not 0. */
ENTRY(cart_create, CART_CREATE, fint *comm, fint *n, fint *dims, fint *periods, fint *reorder,
      fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    int result = MPI_Cart_create(COMM(comm), *n, dims, periods, *reorder, &out);
    hand_out_comm(result, out, made, code);
}

ENTRY(cart_sub, CART_SUB, fint *comm, fint *remain, fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    int result = MPI_Cart_sub(COMM(comm), remain, &out);
    hand_out_comm(result, out, made, code);
}

ENTRY(graph_create, GRAPH_CREATE, fint *comm, fint *n, fint *index, fint *edges, fint *reorder,
      fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    int result = MPI_Graph_create(COMM(comm), *n, index, edges, *reorder, &out);
    hand_out_comm(result, out, made, code);
}

#if defined(OPEN_MPI)

extern fint mpi_fortran_unweighted_, mpi_fortran_weights_empty_;

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
    int result = MPI_Dist_graph_create(COMM(comm), *n, sources, degrees, targets,
                                       weights_at(weights), INFO(info), *reorder, &out);
    hand_out_comm(result, out, made, code);
}

ENTRY(dist_graph_create_adjacent, DIST_GRAPH_CREATE_ADJACENT, fint *comm, fint *in, fint *sources,
      fint *source_weights, fint *out_degree, fint *targets, fint *target_weights, fint *info,
      fint *reorder, fint *made, fint *code)
{
    MPI_Comm out = MPI_COMM_NULL;
    int result = MPI_Dist_graph_create_adjacent(
        COMM(comm), *in, sources, weights_at(source_weights), *out_degree, targets,
        weights_at(target_weights), INFO(info), *reorder, &out);
    hand_out_comm(result, out, made, code);
}

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

/* --- memory, operations, types ---------------------------------------------------------------- */

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

ENTRY(op_free, OP_FREE, fint *op, fint *code)
{
    MPI_Op gone = OP(op);
    int result = MPI_Op_free(&gone);
    if (result == MPI_SUCCESS)
        *op = PMPI_Op_c2f(MPI_OP_NULL);
    store_code(code, result);
}

ENTRY(type_free, TYPE_FREE, fint *type, fint *code)
{
    MPI_Datatype gone = TYPE(type);
    int result = MPI_Type_free(&gone);
    if (result == MPI_SUCCESS)
        *type = PMPI_Type_c2f(MPI_DATATYPE_NULL);
    store_code(code, result);
}
