/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators of persistent collectives.
 *
 * Persistent collectives are initialised in one order on all ranks but started in any, so each has
 * a twill communicator of its own while it exists: a clone of the program's. Once its request is
 * freed on all ranks it serves the next one that is initialised on the same communicator. */
#ifndef TWILL_MPI_CLONES_H
#define TWILL_MPI_CLONES_H

#include "lib/mpi/mpi_call.h"

/* Allocate a clone without a twill communicator. It takes over parent->numbers, to which the call
 * has been bound, and gives the parent a new array; the parent must be locked. Returns NULL when
 * out of memory. */
struct twill_mpi_comm *twill_mpi_clone_create(struct twill_mpi_comm *parent);
/* Give the clone its twill communicator and make the bound request on it, collectively over
 * `parent`. lacks: this rank cannot. Returns false, and frees the clone (NULL is allowed), unless
 * all ranks succeed; else bound->comm is the clone, or one that has served before. */
bool twill_mpi_clone_set_up(struct twill_mpi_comm *parent, struct twill_mpi_comm *clone, bool lacks,
                            struct twill_mpi_bound *bound, twill_request **request);
/* Keep a clone, which has no request any more, for another request, or release it. Does not wait
 * for other ranks. */
void twill_mpi_clone_free(struct twill_mpi_comm *clone);
/* The parent is freed: release the clones that are kept; those in use follow their requests. */
void twill_mpi_clones_close(struct twill_mpi_comm *parent);
/* Revoke the twill communicator of a parent and of its clones. */
void twill_mpi_clones_revoke(struct twill_mpi_comm *parent);

/* Of mpi_comms.c: create comm->comm over the MPI's communicator and, unless bound is NULL, a
 * request on it, on all ranks or on none. Returns ADOPTED or why not. */
enum twill_mpi_fate twill_mpi_comm_set_up(struct twill_mpi_comm *comm, MPI_Comm handle, int size,
                                          const struct twill_mpi_bound *bound,
                                          twill_request **request);
/* Release an entry whose twill communicator is destroyed. */
void twill_mpi_comm_release(struct twill_mpi_comm *comm);
/* Destroy the twill communicator of an entry, and release it, once all ranks are done with it. */
void twill_mpi_comm_defer_free(struct twill_mpi_comm *comm);

#endif
