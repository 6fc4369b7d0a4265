/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that create, revoke and free objects of the MPI below. They are communicators, which
 * twill then adopts, windows, files and memory. Calls that return before all ranks have made them
 * (MPI_Comm_idup) and other MPI_COMM_WORLDs (MPI_Comm_spawn, sessions) are left alone. */
#include "lib/mpi/mpi_call.h"
#include "lib/mpi/mpi_clones.h"

#include <limits.h>

/* Let twill run the collectives of *comm if `code` is MPI_SUCCESS. Returns `code`. */
static int comm_made(int code, const MPI_Comm *comm)
{
    if (code == MPI_SUCCESS)
        twill_mpi_comm_adopt(*comm);
    return code;
}

/* Define a call that makes *made. A forked child must not exchange messages of its parent. */
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
/* Never adopted, but its calls then appear in the report as calls on an intercommunicator. */
MAKES(Intercomm_create,
      (MPI_Comm comm, int leader, MPI_Comm peer, int remote_leader, int tag, MPI_Comm *made), made,
      comm, leader, peer, remote_leader, tag)
MAKES(Intercomm_merge, (MPI_Comm comm, int high, MPI_Comm *made), made, comm, high)

/* Free a communicator. Its twill communicator is released later if other ranks still use it. */
int MPI_Comm_free(MPI_Comm *comm)
{
    if (twill_mpi.forked)
        return twill_mpi_refuse_child();
    int code = PMPI_Comm_free(comm);
    twill_mpi_comms_reap();
    return code;
}

/* Disconnect a communicator after waiting for everything under way on it, also twill's requests. */
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

/* MPIs support user-level failure mitigation themselves, with one exception. A revoked communicator
 * also ends twill's collectives on all its ranks. Later ones are passed on, and the MPI refuses
 * them. Communicators of MPIX_Comm_shrink() are not adopted. Agreements are the MPI's. */

#if !defined(MPI_ABI_VERSION)
/* Revoke a communicator in the MPI and in twill. Returns MPI's code, or
 * MPI_ERR_UNSUPPORTED_OPERATION if the MPI below has no such function. */
int MPIX_Comm_revoke(MPI_Comm comm)
{
    if (twill_mpi.forked)
        return twill_mpi_refuse_child();
    int (*below)(MPI_Comm) = (int (*)(MPI_Comm))twill_mpi_below("PMPIX_Comm_revoke");
    if (below == NULL)
        return MPI_ERR_UNSUPPORTED_OPERATION;
    int code = below(comm);
    struct twill_mpi_comm *mine = twill_mpi_comm_find(comm);
    if (code == MPI_SUCCESS && mine != NULL && mine->comm != NULL)
        twill_mpi_clones_revoke(mine);
    return code;
}
#endif

/* Return whether this is mpi4py's MPIX_Comm_iagree() over an MPI that has none, as MPICH. It is
 * then a nonblocking allreduce of one MPI_INT with MPI_BAND. Programs call it before a collective
 * on one rank and after it on another. They also call it when a rank has failed, after which
 * twill's communicator takes no more calls. */
bool twill_mpi_is_agreement(const struct twill_mpi_call *call)
{
    return call->kind == TWILL_MPI_Allreduce && call->form == TWILL_MPI_NONBLOCKING &&
           call->op == MPI_BAND && call->recv.count == 1 && call->recv.type == MPI_INT &&
           !twill_mpi.has_iagree;
}

/* Delete callback of a window's attribute. Counts an open window less and returns MPI_SUCCESS. */
static int window_freed(MPI_Win window, int keyval, void *value, void *extra)
{
    (void)window, (void)keyval, (void)value, (void)extra;
    atomic_fetch_sub(&twill_mpi.windows.open, 1);
    return MPI_SUCCESS;
}

void twill_mpi_windows_open(void)
{
    if (PMPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, window_freed, &twill_mpi.windows.keyval,
                               NULL) != MPI_SUCCESS)
        twill_mpi.windows.keyval = MPI_KEYVAL_INVALID;
}

void twill_mpi_windows_close(void)
{
    if (twill_mpi.windows.keyval != MPI_KEYVAL_INVALID)
        PMPI_Win_free_keyval(&twill_mpi.windows.keyval);
}

int twill_mpi_window_made(int code, const MPI_Win *window)
{
    if (code != MPI_SUCCESS)
        return code;
    atomic_fetch_add(&twill_mpi.windows.open, 1);
    twill_mpi_quick_off();
    if (twill_mpi.windows.keyval != MPI_KEYVAL_INVALID)
        PMPI_Win_set_attr(*window, twill_mpi.windows.keyval, NULL);
    return code;
}

/* Define a call that makes *window. */
#define WINDOW(name, parameters, ...)                                                              \
    int MPI_Win_##name parameters                                                                  \
    {                                                                                              \
        int code = PMPI_Win_##name(__VA_ARGS__, window);                                           \
        return twill_mpi_window_made(code, window);                                                \
    }
WINDOW(create, (void *base, MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, MPI_Win *window),
       base, size, unit, info, comm)
WINDOW(allocate,
       (MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *window), size,
       unit, info, comm, base)
WINDOW(allocate_shared,
       (MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *window), size,
       unit, info, comm, base)
WINDOW(create_dynamic, (MPI_Info info, MPI_Comm comm, MPI_Win *window), info, comm)

/* Windows of MPI 4, with units of MPI_Aint. If the MPI lacks these calls, units must fit an int. */
#define LARGE_WINDOW(name, parameters, older, ...)                                                 \
    TWILL_EXPORTED int MPI_Win_##name##_c parameters;                                              \
    int MPI_Win_##name##_c parameters                                                              \
    {                                                                                              \
        int(*newer) parameters = (int(*) parameters)twill_mpi_below("PMPI_Win_" #name "_c");       \
        if (newer == NULL && unit > INT_MAX)                                                       \
            return MPI_ERR_ARG;                                                                    \
        return twill_mpi_window_made(newer != NULL ? newer(__VA_ARGS__) : older, window);          \
    }
LARGE_WINDOW(create,
             (void *base, MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm,
              MPI_Win *window),
             PMPI_Win_create(base, size, (int)unit, info, comm, window), base, size, unit, info,
             comm, window)
LARGE_WINDOW(allocate,
             (MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base,
              MPI_Win *window),
             PMPI_Win_allocate(size, (int)unit, info, comm, base, window), size, unit, info, comm,
             base, window)
LARGE_WINDOW(allocate_shared,
             (MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base,
              MPI_Win *window),
             PMPI_Win_allocate_shared(size, (int)unit, info, comm, base, window), size, unit, info,
             comm, base, window)

int twill_mpi_file_opened(int code)
{
    if (code == MPI_SUCCESS) {
        atomic_fetch_add(&twill_mpi.windows.open, 1);
        twill_mpi_quick_off();
    }
    return code;
}

int twill_mpi_file_closed(int code)
{
    unsigned open = atomic_load(&twill_mpi.windows.open);
    /* Never below 0, as the file may have been opened before files were counted. */
    while (code == MPI_SUCCESS && open > 0 &&
           !atomic_compare_exchange_weak(&twill_mpi.windows.open, &open, open - 1))
        ;
    return code;
}

/* Open a file in the MPI, which then makes progress after each collective. Returns MPI's code. */
int MPI_File_open(MPI_Comm comm, const char *name, int mode, MPI_Info info, MPI_File *file)
{
    return twill_mpi_file_opened(PMPI_File_open(comm, name, mode, info, file));
}

/* Close a file in the MPI and count it as closed. While files are open, collectives let the MPI
 * make progress. Returns MPI's code. */
int MPI_File_close(MPI_File *file)
{
    return twill_mpi_file_closed(PMPI_File_close(file));
}

/* Allocate memory from twill, so that collectives on a node need not copy. twill ignores `info`. If
 * twill has none left, is off or has been ended by MPI_Finalize(), the MPI allocates, and this
 * returns its code. */
int MPI_Alloc_mem(MPI_Aint size, MPI_Info info, void *baseptr)
{
    struct twill_mpi_memory *memory = &twill_mpi.memory;
    void *given = NULL;
    if (!atomic_load_explicit(&twill_mpi.ready, memory_order_acquire) || size <= 0 ||
        baseptr == NULL)
        return PMPI_Alloc_mem(size, info, baseptr);
    if (twill_alloc(twill_mpi.context, &given, (size_t)size) != TWILL_OK) {
        atomic_fetch_add(&memory->refused, 1);
        return PMPI_Alloc_mem(size, info, baseptr);
    }
    atomic_fetch_add(&memory->allocations, 1);
    atomic_fetch_add(&memory->bytes, (uint64_t)size);
    atomic_fetch_add(&memory->out, 1);
    *(void **)baseptr = given;
    return MPI_SUCCESS;
}

/* Free memory in twill or, if it is not twill's, in the MPI. In a forked child, frees nothing and
 * returns MPI_SUCCESS. */
int MPI_Free_mem(void *base)
{
    struct twill_mpi_memory *memory = &twill_mpi.memory;
    if (twill_mpi.forked)
        return MPI_SUCCESS; /* the parent has twill's, and the MPI would mistake it for its own */
    if (base == NULL || atomic_load(&memory->out) == 0 ||
        twill_free(twill_mpi.context, base) != TWILL_OK)
        return PMPI_Free_mem(base);
    atomic_fetch_sub(&memory->out, 1);
    return MPI_SUCCESS;
}
