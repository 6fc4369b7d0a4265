/* SPDX-License-Identifier: Apache-2.0 */
/* Progress on a communicator by other threads than its owner: threads that wait on another
 * communicator of the context, and the thread of TWILL_PROGRESS=thread.
 *
 * comm->claim.pending counts requests under way that other threads may advance. They take a
 * communicator only while that is not 0, and never while a call is in it: lib/comm/claim.c. */
#ifndef TWILL_PROGRESS_H
#define TWILL_PROGRESS_H

#include "lib/comm/comm.h"

/* comm->claim.held while a thread advances the communicator, or breaks it in twill_comm_revoke(),
 * in place of a call's name. */
extern const char twill_held_by_progress[];

/* Hold the communicator, if it is free, to advance it. Threads other than the owner must then check
 * comm->claim.pending and leave at once if it is 0. Pair with twill_comm_release(). */
static inline bool twill_comm_try_hold(struct twill_comm *comm)
{
    const char *expected = NULL;
    return atomic_load_explicit(&comm->claim.held, memory_order_relaxed) == NULL &&
           atomic_compare_exchange_strong_explicit(&comm->claim.held, &expected,
                                                   twill_held_by_progress, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* lib/comm/claim.c. Hold the communicator for `call`, unless another thread is in a call on it:
 * wait for one that advances or breaks it, at most TWILL_TIMEOUT. If it returns false, *inside is
 * that call, or NULL at the deadline. Pair with twill_comm_release(). */
bool twill_comm_hold(struct twill_comm *comm, const char *call, const char **inside);
/* Set the communicator's error to "rank R: call: message"; it stays usable. Returns the status, or
 * TWILL_ERR_ARGUMENT if it cannot be held. */
twill_status twill_comm_refuse_call(struct twill_comm *comm, const char *call, twill_status status,
                                    const char *message);

/* Count a request that other threads may advance, and wake or start the progress thread, if there
 * is to be one. Pair with twill_comm_unpend(). The communicator is held. */
void twill_comm_pend(struct twill_comm *comm);

/* Advance every communicator of the context that has requests pending and is not held, other than
 * `except` (or NULL), and the advancers. Returns how many steps were made, never an error: a
 * failure breaks its communicator only. Cheap when nothing is pending. */
int twill_context_advance(struct twill_context *context, const struct twill_comm *except);
static inline int twill_context_advance_others(struct twill_comm *self)
{
    unsigned own = atomic_load_explicit(&self->claim.pending, memory_order_relaxed);
    if (TWILL_LIKELY(atomic_load_explicit(&self->context->comms.pending, memory_order_relaxed) ==
                     own))
        return 0;
    return twill_context_advance(self->context, self);
}

/* What waits advance besides communicators, for its owner: a server's cores. `advance` is called by
 * any thread that waits on some communicator, by several at once and from within itself, so it does
 * nothing while another call is in it. It returns whether it has made progress. */
struct twill_advancer {
    bool (*advance)(void *object);
    void *object;
    struct twill_context *context; /* NULL: not added */
    struct twill_advancer *next;
    _Atomic unsigned calls; /* that are in it now */
};

void twill_advancer_add(struct twill_context *context, struct twill_advancer *advancer);
/* Remove it, if it was added, and wait at most TWILL_TIMEOUT of this context until no thread is in
 * it. Returns false if one still is: then all that `advance` uses has to stay, the context among
 * it. It may be called again. */
bool twill_advancer_remove(struct twill_advancer *advancer, const struct twill_context *context);

/* --- lib/wait/progress_thread.c --- */

/* Start a thread of the library: with all signals blocked, as they are for the program's own
 * threads, and bound to a CPU unless core is -1. Returns 0 or an errno. */
int twill_thread_start(pthread_t *thread, const char *name, int core, void *(*run)(void *),
                       void *argument);
/* Return a CPU for helper thread `index` of the `count` that each rank of the job has, as
 * twill_topology_helper() does; -1: none is left, or unknown. */
int twill_thread_choose_cpu(const struct twill_context *context, unsigned count, unsigned index,
                            bool *own);
/* Wake the thread; start it at the first call. */
void twill_progress_wake(struct twill_context *context);

/* Add a communicator to its context's list of open ones, and remove it: from then on only the
 * caller uses it. */
twill_status twill_context_add(struct twill_context *context, struct twill_comm *comm,
                               struct twill_error *error);
void twill_context_remove(struct twill_context *context, struct twill_comm *comm);

#endif
