/* SPDX-License-Identifier: Apache-2.0 */
/* Fortran calls that make windows or open files and would bypass this library: the MPI's own entry
 * point does it, as it knows what stands for MPI_BOTTOM, and the result is counted. */
#include "lib/mpi/fortran/mpi_fortran.h"

static void window_made(fint result, const fint *window, fint *code)
{
    if (result == MPI_SUCCESS) {
        MPI_Win made_here = PMPI_Win_f2c(*window);
        twill_mpi_window_made(MPI_SUCCESS, &made_here);
    }
    store_code(code, result);
}

/* Define an entry point with these arguments before window and code. */
#define WINDOW_ENTRY(lower, UPPER, arguments, ...)                                                 \
    ENTRY(lower, UPPER, __VA_ARGS__, fint *window, fint *code)                                     \
    {                                                                                              \
        void (*own)(__VA_ARGS__, fint *, fint *) = (__typeof(own))twill_mpi_fortran_own(__func__); \
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

/* --- files ------------------------------------------------------------------------------------ */

ENTRY(file_open, FILE_OPEN, fint *comm, char *name, fint *mode, fint *info, fint *file, fint *code,
      size_t length)
{
    void (*own)(fint *, char *, fint *, fint *, fint *, fint *, size_t) =
        (__typeof(own))twill_mpi_fortran_own(__func__);
    fint result = MPI_ERR_OTHER;
    if (own != NULL)
        own(comm, name, mode, info, file, &result, length);
    twill_mpi_file_opened(result);
    store_code(code, result);
}

ENTRY(file_close, FILE_CLOSE, fint *file, fint *code)
{
    void (*own)(fint *, fint *) = (__typeof(own))twill_mpi_fortran_own(__func__);
    fint result = MPI_ERR_OTHER;
    if (own != NULL)
        own(file, &result);
    twill_mpi_file_closed(result);
    store_code(code, result);
}
