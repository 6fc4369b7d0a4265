/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of the program that progress only inside calls of the MPI below: windows, files,
 * persistent and partitioned messages. While there are any, a collective that twill has completed
 * lets the MPI make progress before it returns, as the MPI's own collective would. MPICH, for one,
 * reports a window as exposed until the target has read the messages of origins that are done. */
#include "lib/mpi/mpi_newer.h"

#include <limits.h>

/* --- windows ---------------------------------------------------------------------------------- */

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

/* A window without the attribute is counted until the end. */
int twill_mpi_window_made(int code, const MPI_Win *window)
{
    if (code != MPI_SUCCESS)
        return code;
    atomic_fetch_add(&twill_mpi.windows.open, 1);
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

/* Those of MPI 4: without them the MPI has units of type int. */
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

/* --- files ------------------------------------------------------------------------------------ */

int twill_mpi_file_opened(int code)
{
    if (code == MPI_SUCCESS)
        atomic_fetch_add(&twill_mpi.windows.open, 1);
    return code;
}

int twill_mpi_file_closed(int code)
{
    unsigned open = atomic_load(&twill_mpi.windows.open);
    /* Not below 0: it may have been opened before we counted. */
    while (code == MPI_SUCCESS && open > 0 &&
           !atomic_compare_exchange_weak(&twill_mpi.windows.open, &open, open - 1))
        ;
    return code;
}

int MPI_File_open(MPI_Comm comm, const char *name, int mode, MPI_Info info, MPI_File *file)
{
    return twill_mpi_file_opened(PMPI_File_open(comm, name, mode, info, file));
}

int MPI_File_close(MPI_File *file)
{
    return twill_mpi_file_closed(PMPI_File_close(file));
}

/* --- messages --------------------------------------------------------------------------------- */

void twill_mpi_started(void)
{
    if (TWILL_UNLIKELY(!atomic_load_explicit(&twill_mpi.windows.messages, memory_order_relaxed)))
        atomic_store(&twill_mpi.windows.messages, true);
}

/* One call progresses about one message of each sender. */
#define TURNS_LEAST 4u
#define TURNS_MOST  64u

void twill_mpi_progress_windows(const struct twill_mpi_comm *comm)
{
    unsigned turns = 1;
    if (atomic_load_explicit(&twill_mpi.windows.open, memory_order_relaxed) > 0)
        turns = TURNS_LEAST + 2 * (unsigned)comm->size;
    for (turns = turns < TURNS_MOST ? turns : TURNS_MOST; turns > 0; turns--)
        twill_mpi_progress();
}
