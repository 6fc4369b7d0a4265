/* SPDX-License-Identifier: Apache-2.0 */
/* The list of a context's open communicators, and advancing what is under way on them. */
#include "lib/wait/progress.h"

#include <sched.h>
#include <stdlib.h>

const char twill_held_by_progress[] = "progress";

void twill_comm_pend(struct twill_comm *comm)
{
    twill_comm_count_pending(comm, 1);
    atomic_fetch_add(&comm->context->comms.pending, 1);
    if (comm->context->progress.enabled)
        twill_progress_wake(comm->context);
}

twill_status twill_context_add(struct twill_context *context, struct twill_comm *comm,
                               struct twill_error *error)
{
    twill_status status = TWILL_OK;
    twill_context_lock(context);
    if (context->comms.opened == context->comms.open_capacity) {
        size_t capacity = context->comms.open_capacity * 2 + 4;
        struct twill_comm **open =
            realloc(context->comms.open, capacity * sizeof(struct twill_comm *));
        if (open == NULL)
            status = TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
        else
            context->comms.open = open;
        context->comms.open_capacity = open != NULL ? capacity : context->comms.open_capacity;
    }
    if (status == TWILL_OK)
        context->comms.open[context->comms.opened++] = comm;
    twill_context_unlock(context);
    return status;
}

void twill_context_remove(struct twill_context *context, struct twill_comm *comm)
{
    twill_context_lock(context);
    for (size_t i = 0; i < context->comms.opened; i++)
        if (context->comms.open[i] == comm)
            context->comms.open[i--] = context->comms.open[--context->comms.opened];
    twill_context_unlock(context);
}

/* Return the i-th open communicator, NULL past the end; hold it, and set *taken, if it has requests
 * pending. While it is held it stays open: a thread that destroys it holds it before removing it.
 */
static struct twill_comm *take_comm(struct twill_context *context, size_t i,
                                    const struct twill_comm *except, bool *taken)
{
    twill_context_lock(context);
    struct twill_comm *comm = i < context->comms.opened ? context->comms.open[i] : NULL;
    *taken = comm != NULL && comm != except &&
             atomic_load_explicit(&comm->claim.pending, memory_order_relaxed) > 0 &&
             twill_comm_try_hold(comm);
    twill_context_unlock(context);
    return comm;
}

/* --- advancers -------------------------------------------------------------------------------- */

void twill_advancer_add(struct twill_context *context, struct twill_advancer *advancer)
{
    twill_context_lock(context);
    advancer->context = context;
    advancer->next = context->comms.advancers;
    context->comms.advancers = advancer;
    twill_context_unlock(context);
    atomic_fetch_add(&context->comms.pending, 1);
    if (context->progress.enabled)
        twill_progress_wake(context);
}

static void unlink_advancer(struct twill_advancer *advancer)
{
    struct twill_context *context = advancer->context;
    if (context == NULL)
        return;
    twill_context_lock(context);
    struct twill_advancer **at = &context->comms.advancers;
    while (*at != advancer)
        at = &(*at)->next;
    *at = advancer->next;
    advancer->context = NULL;
    twill_context_unlock(context);
    atomic_fetch_sub_explicit(&context->comms.pending, 1, memory_order_release);
}

bool twill_advancer_remove(struct twill_advancer *advancer, const struct twill_context *context)
{
    const uint64_t patience = (uint64_t)context->config.number[TWILL_VARIABLE_TIMEOUT];
    unlink_advancer(advancer);
    const uint64_t since = twill_now();
    while (atomic_load_explicit(&advancer->calls, memory_order_acquire) > 0 &&
           !twill_context_is_forked(context)) {
        if (twill_now() - since > patience)
            return false;
        sched_yield();
    }
    return true;
}

/* Return the i-th advancer, NULL past the end; count this thread's call of it. */
static struct twill_advancer *enter_advancer(struct twill_context *context, size_t i)
{
    twill_context_lock(context);
    struct twill_advancer *advancer = context->comms.advancers;
    while (advancer != NULL && i-- > 0)
        advancer = advancer->next;
    if (advancer != NULL)
        atomic_fetch_add_explicit(&advancer->calls, 1, memory_order_relaxed);
    twill_context_unlock(context);
    return advancer;
}

static int call_advancers(struct twill_context *context)
{
    int moved = 0;
    struct twill_advancer *advancer;
    for (size_t i = 0; (advancer = enter_advancer(context, i)) != NULL; i++) {
        moved += advancer->advance(advancer->object) ? 1 : 0;
        atomic_fetch_sub_explicit(&advancer->calls, 1, memory_order_release);
    }
    return moved;
}

int twill_context_advance(struct twill_context *context, const struct twill_comm *except)
{
    int moved = 0;
    bool taken;
    struct twill_comm *comm;
    for (size_t i = 0; (comm = take_comm(context, i, except, &taken)) != NULL; i++) {
        if (!taken)
            continue;
        if (atomic_load_explicit(&comm->claim.pending, memory_order_relaxed) > 0) {
            int n = twill_comm_advance(comm);
            if (n < 0 && !comm->broken)
                (void)twill_comm_fail(comm, (twill_status)n);
            if (n > 0)
                comm->waits.moved_at = twill_now();
            moved += n > 0 ? n : 0;
        }
        twill_comm_release(comm);
    }
    return moved + call_advancers(context);
}
