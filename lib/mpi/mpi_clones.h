/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators of persistent collectives.
 *
 * All ranks initialise persistent collectives in the same order but may start them in any order.
 * Each therefore has its own twill communicator, a clone of the program's. Once its request is
 * freed on all ranks, the clone serves the next request on the same communicator. */
#ifndef TWILL_MPI_CLONES_H
#define TWILL_MPI_CLONES_H

#include "lib/mpi/mpi_call.h"

/* Allocate a clone of `parent`, for one persistent request, without a twill communicator. It takes
 * over parent->scratch.numbers, to which the call has been bound, and gives the parent a new array.
 * The parent must be locked. Returns NULL if out of memory. */
struct twill_mpi_comm *twill_mpi_clone_create(struct twill_mpi_comm *parent);
/* Make the bound persistent request on a communicator of its own, with collective calls over
 * `parent`. If an earlier clone is idle on all ranks, this is the communicator. Otherwise it is
 * `clone`, which gets its twill communicator here. A rank that lacks something passes `lacks`, or
 * NULL as `clone`, and all ranks then fail. Returns true if all ranks succeed. Then *request is
 * set, and bound->comm is the clone that is used. If `clone` is not used, it is freed. */
bool twill_mpi_clone_set_up(struct twill_mpi_comm *parent, struct twill_mpi_comm *clone, bool lacks,
                            struct twill_mpi_bound *bound, twill_request **request);
/* Keep a clone that has no request any more for a later request, or release it. Does not wait. */
void twill_mpi_clone_free(struct twill_mpi_comm *clone);
/* Queue for release the clones of a freed parent that are idle, because their persistent request
 * was freed. Other clones are released after their request has been freed. */
void twill_mpi_clones_close(struct twill_mpi_comm *parent);
/* Revoke the twill communicators of a parent and of its clones, and mark them as revoked. */
void twill_mpi_clones_revoke(struct twill_mpi_comm *parent);

/* Create comm->comm over the MPI's communicator `handle` and, unless `bound` is NULL, a request on
 * it, on all ranks or on none. A rank that has no memory passes NULL as `comm`, and then all fail.
 * Returns ADOPTED or the reason why not, equal on all ranks. */
enum twill_mpi_fate twill_mpi_comm_set_up(struct twill_mpi_comm *comm, MPI_Comm handle, int size,
                                          const struct twill_mpi_bound *bound,
                                          twill_request **request);
/* Free a clone, or make an entry of the table available to another communicator. The twill
 * communicator does not exist or has been destroyed. */
void twill_mpi_comm_release(struct twill_mpi_comm *comm);
/* Queue an entry for twill_mpi_comms_reap(), which releases it once all ranks are done with it. */
void twill_mpi_comm_defer_free(struct twill_mpi_comm *comm);

#endif
