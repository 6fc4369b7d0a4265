/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of what is under way on a communicator by others than its owner: threads that wait on
 * another communicator of the context, and the thread of TWILL_PROGRESS=thread.
 *
 * `pending` counts requests under way that others may advance; others take a communicator only
 * while that is not 0, and never while a call is in it: lib/exec/claim.c. */
#ifndef TWILL_PROGRESS_H
#define TWILL_PROGRESS_H

#include "lib/comm/comm.h"

/* In place of a call's name: somebody moves a communicator along. */
extern const char twill_held_by_progress[];

/* Take it if it is free. Who is not the owner then looks at pending, and leaves at once if it is 0;
 * twill_comm_release() ends it. */
static inline bool twill_comm_try_hold(struct twill_comm *comm)
{
    const char *expected = NULL;
    return atomic_load_explicit(&comm->held, memory_order_relaxed) == NULL &&
           atomic_compare_exchange_strong_explicit(&comm->held, &expected, twill_held_by_progress,
                                                   memory_order_acquire, memory_order_relaxed);
}

/* A request is under way from now on, which others may advance; the communicator is held. The first
 * one of a context wakes, or starts, its progress thread if there is to be one. */
void twill_comm_pend(struct twill_comm *comm);
/* And it is complete; the communicator is held. */
void twill_comm_unpend(struct twill_comm *comm);

/* Move every communicator of the context along but `except` (or NULL) that has something pending
 * and that nobody holds: how much moved, never an error. One that fails is broken, alone. Cheap
 * when nothing is pending. */
int twill_context_advance(struct twill_context *context, const struct twill_comm *except);
static inline int twill_context_advance_others(struct twill_comm *self)
{
    unsigned own = atomic_load_explicit(&self->pending, memory_order_relaxed);
    if (TWILL_LIKELY(atomic_load_explicit(&self->context->pending, memory_order_relaxed) == own))
        return 0;
    return twill_context_advance(self->context, self);
}

/* lib/exec/request_queue.c. Move what is under way along: how much moved, or an error, upon which
 * the caller breaks the communicator unless that has been done. The communicator is held. */
int twill_comm_advance(struct twill_comm *comm);

/* lib/exec/progress_thread.c. What TWILL_PROGRESS asks for; where the thread is to run beside n
 * ranks of this host, of which this is `me`; start the thread or wake it; stop and join it if there
 * is one.
 */
twill_status twill_progress_configure(struct twill_context *context);
void twill_progress_place(struct twill_context *context, const struct twill_cpus *ranks, unsigned n,
                          unsigned me);
void twill_progress_wake(struct twill_context *context);
void twill_progress_stop(struct twill_context *context);

/* Make a communicator one of the open ones of its context, and no longer so: then nobody but the
 * caller has it. */
twill_status twill_context_add(struct twill_context *context, struct twill_comm *comm,
                               struct twill_error *error);
void twill_context_remove(struct twill_context *context, struct twill_comm *comm);

#endif
