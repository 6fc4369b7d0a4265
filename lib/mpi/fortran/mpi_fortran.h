/* SPDX-License-Identifier: Apache-2.0 */
/* Fortran entry points that would reach the MPI by PMPI_X and so bypass this library: defined
 * again, with MPI_X.
 *
 * With Open MPI these are all of them. The old and the new module share ompi_x_f(), except calls
 * with a LOGICAL, where the new one calls pmpi_x_(). With MPICH they are the calls of module
 * mpi_f08 without buffers, mpi_x_f08_(): there a handle is a structure of one integer, a status is
 * C's, and the error code is NULL if it was left out. All other calls of MPICH use MPI_X, which
 * this library defines. */
#ifndef TWILL_MPI_FORTRAN_H
#define TWILL_MPI_FORTRAN_H

#include "lib/mpi/shim.h"

typedef MPI_Fint fint;
_Static_assert(sizeof(fint) == sizeof(int), "arrays of numbers are handed on as they are");

/* Define an entry point under the names that compilers give it; its body follows. ENTRY_OF: with an
 * `x` in its names, for MPIX. */
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

/* Return the MPI's own entry point of this name, or NULL. Programs and libtwill-mpi.so show others.
 */
twill_mpi_function *twill_mpi_fortran_own(const char *name);

static inline void store_code(fint *code, int result)
{
    if (code != NULL)
        *code = result;
}

#endif
