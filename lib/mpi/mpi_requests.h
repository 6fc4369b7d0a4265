/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the calls that twill runs, for the entry points that take MPI_Request.
 *
 * As MPI demands, one thread at a time uses a request. Its state is atomic nevertheless, because
 * another thread may change it from active to complete under the lock of its communicator. A
 * persistent request has its own communicator (mpi_clones.h). */
#ifndef TWILL_MPI_REQUESTS_H
#define TWILL_MPI_REQUESTS_H

#include "lib/mpi/mpi_call.h"

enum twill_mpi_request_state {
    TWILL_MPI_REQUEST_FREE,    /* the handle is invalid */
    TWILL_MPI_REQUEST_IDLE,    /* persistent, not started */
    TWILL_MPI_REQUEST_ACTIVE,  /* under way */
    TWILL_MPI_REQUEST_COMPLETE /* complete, not yet reported to the program */
};

/* A request that twill handles, in a slot of the process's pool, to which it returns when freed.
 * Its communicator's lock protects it while it is under way. Otherwise the thread that has its
 * handle does. The pool's lock protects its place in a list. */
struct twill_mpi_request {
    struct twill_mpi_bound bound;
    twill_request *request; /* NULL once a nonblocking request is complete */
    twill_request *instead; /* barrier in place of a persistent call that must fail, or NULL */
    bool wraps;             /* it wraps the MPI's request `below`, without a call of twill */
    MPI_Request below;
    int below_code; /* result of the MPI once it was complete */
    int call;       /* nonblocking: index among the communicator's calls (twill_mpi_refusal) */
    _Atomic int state;
    twill_status status;            /* valid once complete */
    unsigned number;                /* part of its handle */
    int index;                      /* in the array that a wait or test took it out of, or -1 */
    struct twill_mpi_request *next; /* in the pool's lists, or among those out of an array */
    struct twill_mpi_request *before, *after; /* neighbours under way on its communicator */
};

/* Return twill's request of a handle, or NULL if the handle is the MPI's or no longer valid. */
struct twill_mpi_request *twill_mpi_request_find(MPI_Request handle);
/* Return the handle of a request. */
static inline MPI_Request twill_mpi_request_handle(const struct twill_mpi_request *request)
{
    return twill_mpi_request_numbered(request->number);
}
/* Return the state of a request, an enum twill_mpi_request_state. */
static inline int twill_mpi_request_state(const struct twill_mpi_request *request)
{
    return atomic_load_explicit(&request->state, memory_order_acquire);
}

/* Replace *handle, a new request of the MPI, by that of a twill request, which completes with it.
 * `form` is nonblocking or persistent. The MPI may use `memory`, which is from malloc() and freed
 * with the twill request. Returns false and changes nothing if out of memory. */
bool twill_mpi_request_wrap(MPI_Request *handle, enum twill_mpi_form form, void *memory);

/* Make progress without waiting. Returns true if the request is not or no longer under way. If
 * another thread holds the communicator's lock, returns false at once. */
bool twill_mpi_request_poll(struct twill_mpi_request *request);
/* Return whether the request is not under way, because it is complete or is not started. A caller
 * that polls many requests gets a `pass` from twill_mpi_request_next_pass() for each round. The
 * first call in a round for a communicator makes progress on that. Others only look at the state.
 * Does not wait, and returns false if another thread works on the communicator. */
bool twill_mpi_request_poll_pass(struct twill_mpi_request *request, uint64_t pass);
/* Return a new number for one round of polling over many requests, for
 * twill_mpi_request_poll_pass(). Numbers count the rounds of the process from 1. */
static inline uint64_t twill_mpi_request_next_pass(void)
{
    return 1 + atomic_fetch_add_explicit(&twill_mpi.requests.passes, 1, memory_order_relaxed);
}
/* Wait until the request is not under way. */
void twill_mpi_request_wait(struct twill_mpi_request *request);
/* Finish a complete request for the program and return MPI's code. A nonblocking request is
 * released, and *handle becomes MPI_REQUEST_NULL. A persistent one becomes idle, and one that is
 * idle already is left so. The first failure of twill is also stored in *fault, for
 * twill_mpi_raise() once the program's array is restored. */
int twill_mpi_request_collect(struct twill_mpi_request *request, MPI_Request *handle,
                              struct twill_mpi_fault *fault);
/* Start a persistent request. Returns MPI's code, which is MPI_ERR_REQUEST if it is not idle. For
 * an error, calls the error handler first. */
int twill_mpi_request_start(struct twill_mpi_request *request);
/* Release a request, at once or, if it is under way, when it is complete. Does not wait. */
void twill_mpi_request_free(struct twill_mpi_request *request);

/* Call the error handler with MPI_ERR_REQUEST and return that, for a call that `request` does not
 * allow in its state, such as a start while it is under way. `request` is NULL if the program's
 * handle names no request. The handler is that of the request's communicator, or of MPI_COMM_WORLD
 * if NULL. In a forked child, calls no handler, prints a line once and returns MPI_ERR_OTHER. */
int twill_mpi_request_refuse(const struct twill_mpi_request *request);

/* State of a thread that waits between polls, on its stack. It spins first, then yields and lets
 * the MPI progress, then sleeps. Starts as {0}. */
struct twill_mpi_backoff {
    unsigned turns;
    uint64_t started; /* twill_now() when it first yielded, or 0 */
};
/* Spin, yield or nap once, by the stage of *backoff, and advance it. */
void twill_mpi_backoff(struct twill_mpi_backoff *backoff);

#endif
