/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the calls that twill runs: for the entry points that take requests.
 *
 * A request is of one thread at a time, as MPI has it; its state is atomic all the same, and
 * changes from active to complete under the lock of its communicator, which is a persistent one's
 * own. */
#ifndef TWILL_MPI_REQUESTS_H
#define TWILL_MPI_REQUESTS_H

#include "lib/mpi/mpi_call.h"

enum twill_mpi_request_state {
    TWILL_MPI_REQUEST_FREE,    /* its handle means nothing */
    TWILL_MPI_REQUEST_IDLE,    /* persistent, not started */
    TWILL_MPI_REQUEST_ACTIVE,  /* under way */
    TWILL_MPI_REQUEST_COMPLETE /* and the program has not been told yet */
};

struct twill_mpi_request {
    struct twill_mpi_bound bound; /* its form: nonblocking or persistent */
    twill_request *request;       /* NULL: a nonblocking one that is complete */
    twill_request *instead;       /* under way instead of a persistent one that FAILS, or NULL */
    _Atomic int state;
    twill_status status;            /* once complete */
    unsigned number;                /* in its handle */
    int index;                      /* where it was in the array it is taken out of; else -1 */
    struct twill_mpi_request *next; /* in the list it is in: spare, doomed, taken out */
    struct twill_mpi_request *before, *after; /* those under way on its communicator */
};

/* NULL: the handle is not, or no longer, one of ours. */
struct twill_mpi_request *twill_mpi_request_find(MPI_Request handle);
static inline MPI_Request twill_mpi_request_handle(const struct twill_mpi_request *request)
{
    return (MPI_Request)(TWILL_MPI_REQUESTS_BASE + request->number);
}
static inline int twill_mpi_request_state(const struct twill_mpi_request *request)
{
    return atomic_load_explicit(&request->state, memory_order_acquire);
}

/* Is it not under way? Moves things along. */
bool twill_mpi_request_poll(struct twill_mpi_request *request);
/* The same for many, once a glance: what is under way on a communicator is moved along with the
 * first of them, and not all are asked after each time. */
bool twill_mpi_request_glance(struct twill_mpi_request *request, uint64_t glance);
static inline uint64_t twill_mpi_request_next_glance(void)
{
    return 1 + atomic_fetch_add_explicit(&twill_mpi.requests.glances, 1, memory_order_relaxed);
}
/* Until it is not. */
void twill_mpi_request_wait(struct twill_mpi_request *request);
/* One that is not under way: the code to return for it, and *handle is what the program is to have
 * now. The request is gone if it was nonblocking. An error is noted in *fault, which is to be told
 * once the program's array is as it is to be. */
int twill_mpi_request_collect(struct twill_mpi_request *request, MPI_Request *handle,
                              struct twill_mpi_fault *fault);
/* Start a persistent one. */
int twill_mpi_request_start(struct twill_mpi_request *request);
/* Free one that is not an active nonblocking one; an active persistent one goes when complete. */
void twill_mpi_request_free(struct twill_mpi_request *request);

/* What a program must not do with this request (NULL: a handle that means nothing). */
int twill_mpi_request_refuse(const struct twill_mpi_request *request);

/* The status of what sent no message; its MPI_ERROR stays. MPI_STATUS_IGNORE is allowed. */
void twill_mpi_status_empty(MPI_Status *status);

/* Between the polls of a loop: spin, then see to the MPI below too and give the core away, then
 * sleep for moments. Starts as {0}. */
struct twill_mpi_backoff {
    unsigned turns;
    uint64_t started;
};
void twill_mpi_backoff(struct twill_mpi_backoff *backoff);

#endif
