/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of MPI 4 and later, which the MPI below may lack. */
#ifndef TWILL_MPI_NEWER_H
#define TWILL_MPI_NEWER_H

#include "lib/mpi/shim.h"

/* Return a function of the MPI below by its name, or NULL. */
twill_mpi_function *twill_mpi_below(const char *name);
/* Return the function of the MPI below that makes a call of MPI 4, or NULL. */
twill_mpi_function *twill_mpi_newer(const struct twill_mpi_call *call);
/* Pass a call of MPI 4 on to functions that older MPIs have. Returns the entry point's code. */
int twill_mpi_pass_older(const struct twill_mpi_call *call, MPI_Request *request);

#endif
