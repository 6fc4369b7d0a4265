/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the MPI below or its header may lack: those of MPI 4 and later, and MPIX. */
#ifndef TWILL_MPI_NEWER_H
#define TWILL_MPI_NEWER_H

#include "lib/mpi/shim.h"

/* Return a function of the MPI below by its name, or NULL. */
twill_mpi_function *twill_mpi_below(const char *name);
/* Return the function of the MPI below that makes a call of MPI 4, or NULL. */
twill_mpi_function *twill_mpi_newer(const struct twill_mpi_call *call);
/* Pass a call of MPI 4 on to functions that older MPIs have. Returns the entry point's code. */
int twill_mpi_pass_older(const struct twill_mpi_call *call, MPI_Request *request);

#if defined(MPI_SESSION_NULL)
typedef MPI_Session twill_mpi_session;
#else
typedef void *twill_mpi_session; /* in the standard ABI and Open MPI 5 */
#endif
TWILL_EXPORTED int MPI_Session_init(MPI_Info info, MPI_Errhandler errhandler,
                                    twill_mpi_session *session);

#if !defined(MPI_ABI_VERSION) /* the standard ABI has no such function */
TWILL_EXPORTED int MPIX_Comm_revoke(MPI_Comm comm);
#endif

#endif
