/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the calls that twill runs, for the entry points that take MPI_Request.
 *
 * As MPI demands, one thread at a time uses a request. Its state is atomic all the same: it changes
 * from active to complete under the lock of its communicator. A persistent request has a
 * communicator of its own. */
#ifndef TWILL_MPI_REQUESTS_H
#define TWILL_MPI_REQUESTS_H

#include "lib/mpi/mpi_call.h"

enum twill_mpi_request_state {
    TWILL_MPI_REQUEST_FREE,    /* its handle is invalid */
    TWILL_MPI_REQUEST_IDLE,    /* persistent, not started */
    TWILL_MPI_REQUEST_ACTIVE,  /* under way */
    TWILL_MPI_REQUEST_COMPLETE /* not yet reported to the program */
};

struct twill_mpi_request {
    struct twill_mpi_bound bound; /* nonblocking or persistent */
    twill_request *request;       /* NULL once a nonblocking one is complete */
    twill_request *instead;       /* runs in place of a persistent one that FAILS, or NULL */
    bool wraps;                   /* a request of the MPI's, and no call of twill: */
    MPI_Request below;            /* that request */
    int below_code;               /* what the MPI returned once it was complete */
    int call; /* nonblocking: which of its communicator's, see twill_mpi_refusal */
    _Atomic int state;
    twill_status status;                      /* valid once complete */
    unsigned number;                          /* part of its handle */
    int index;                                /* in the array that it is taken out of; else -1 */
    struct twill_mpi_request *next;           /* in its list: spare, deferred or taken out */
    struct twill_mpi_request *before, *after; /* others under way on its communicator */
};

/* Return the request of a handle, or NULL if the handle is not, or no longer, one of ours. */
struct twill_mpi_request *twill_mpi_request_find(MPI_Request handle);
static inline MPI_Request twill_mpi_request_handle(const struct twill_mpi_request *request)
{
    return twill_mpi_request_numbered(request->number);
}
static inline int twill_mpi_request_state(const struct twill_mpi_request *request)
{
    return atomic_load_explicit(&request->state, memory_order_acquire);
}

/* Replace a request of the MPI's, which has just been made, by one of ours, so that `memory`, which
 * the MPI may use meanwhile, is freed with it. Returns false, and changes nothing, when out of
 * memory. */
bool twill_mpi_request_wrap(MPI_Request *handle, enum twill_mpi_form form, void *memory);

/* Progress its communicator. Returns true if the request is not under way. */
bool twill_mpi_request_poll(struct twill_mpi_request *request);
/* As twill_mpi_request_poll(), for many requests: within one pass a communicator is progressed with
 * the first of its requests only. */
bool twill_mpi_request_poll_pass(struct twill_mpi_request *request, uint64_t pass);
static inline uint64_t twill_mpi_request_next_pass(void)
{
    return 1 + atomic_fetch_add_explicit(&twill_mpi.requests.passes, 1, memory_order_relaxed);
}
/* Wait until it is not under way. */
void twill_mpi_request_wait(struct twill_mpi_request *request);
/* Complete a request that is not under way for the program: returns its code and sets *handle. A
 * nonblocking request is released. An error goes to *fault, to be raised once the program's array
 * is restored. */
int twill_mpi_request_collect(struct twill_mpi_request *request, MPI_Request *handle,
                              struct twill_mpi_fault *fault);
/* Start a persistent request. Returns MPI's code. */
int twill_mpi_request_start(struct twill_mpi_request *request);
/* Release a request that is not an active nonblocking one. An active persistent one is released
 * when complete. */
void twill_mpi_request_free(struct twill_mpi_request *request);

/* Call the error handler with MPI_ERR_REQUEST for an illegal use of a request (NULL: an invalid
 * handle) and return that code. */
int twill_mpi_request_refuse(const struct twill_mpi_request *request);

/* Wait a moment between polls: first spin, then progress the MPI and yield, then sleep. Starts as
 * {0}. */
struct twill_mpi_backoff {
    unsigned turns;
    uint64_t started;
};
void twill_mpi_backoff(struct twill_mpi_backoff *backoff);

#endif
