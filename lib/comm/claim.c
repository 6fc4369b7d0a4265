/* SPDX-License-Identifier: Apache-2.0 */
/* Exclusive use of a communicator, by one call or by a thread that advances it or breaks a revoked
 * one. A call waits for the latter two, which are short. A second call at the same time is refused
 * before it touches anything, and the communicator fails on all ranks, because they no longer agree
 * on its calls. Revocation by any thread ends a communicator in the same way.
 *
 * comm->claim.held says which call has it, and comm->live its state: comm.h has the table. */
#include "fabric/shm/node_memory.h"
#include "lib/base/times.h"
#include "lib/comm/comm_internal.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/twill_recover.h"

#include <stdio.h>
#include <stdlib.h>

#define BREAK_NAPS 1000u /* of a revocation that waits: the call may have no core */
#define END_YIELDS 100u  /* a revocation is short; then its thread may have no core */

const char twill_held_by_progress[] = "progress";

static twill_status tear(struct twill_comm *comm, twill_status status, const char *format, ...)
    TWILL_PRINTF(3, 4);

/* Have the communicator's holder break it, unless it is torn already. The caller does not hold it:
 * it may only read what never changes. Returns status. */
static twill_status tear(struct twill_comm *comm, twill_status status, const char *format, ...)
{
    char before[TWILL_RANK_TEXT + 2];
    va_list arguments;
    va_start(arguments, format);
    twill_context_lock(comm->context);
    if (atomic_load(&comm->live) == TWILL_LIVE) {
        snprintf(before, sizeof(before), "%s: ", TWILL_ENGINE_RANK_NAME(&comm->engine, comm->rank));
        (void)twill_error_set_list(&comm->claim.refused, status, TWILL_NO_RANK, __FILE__, __LINE__,
                                   before, format, arguments);
        atomic_store(&comm->live, TWILL_TORN);
    }
    twill_context_unlock(comm->context);
    va_end(arguments);
    return status;
}

twill_status twill_comm_torn(struct twill_comm *comm)
{
    uint32_t torn = TWILL_TORN;
    if (TWILL_LIKELY(!twill_comm_is_torn(comm)))
        return TWILL_OK;
    (void)atomic_compare_exchange_strong(&comm->live, &torn, TWILL_BREAKING);
    if (comm->broken)
        return TWILL_OK;
    comm->error = comm->claim.refused;
    return comm->error.status;
}

/* Break a communicator that is torn. */
static void fail_torn(struct twill_comm *comm)
{
    twill_status torn = twill_comm_torn(comm);
    if (torn != TWILL_OK)
        (void)twill_comm_fail(comm, torn, TWILL_CAUSE_ASKED);
}

/* How long to wait for another thread, which waits for no rank: an operation of the program that it
 * calls may not return, or it was cancelled. */
static uint64_t patience(const struct twill_comm *comm)
{
    return (uint64_t)comm->context->config->number[TWILL_VARIABLE_TIMEOUT];
}

/* Does no thread advance it? */
static bool is_settled(const void *awaited)
{
    const struct twill_comm *comm = awaited;
    return atomic_load_explicit(&comm->claim.held, memory_order_relaxed) != twill_held_by_progress;
}

bool twill_comm_hold(struct twill_comm *comm, const char *call, const char **inside)
{
    uint64_t deadline = twill_now() + patience(comm);
    do { /* without naps: they would miss the moments in which a busy progress thread lets go */
        *inside = NULL;
        if (atomic_compare_exchange_strong_explicit(&comm->claim.held, inside, call,
                                                    memory_order_acquire, memory_order_relaxed))
            return true;
        if (*inside != twill_held_by_progress)
            return false;
    } while (twill_wait_for_thread(is_settled, comm, deadline) && twill_now() < deadline);
    *inside = NULL;
    return false;
}

static twill_status refuse_forked(struct twill_comm *comm, const char *call)
{
    twill_error_clear(&comm->error);
    return TWILL_FAIL(&comm->error, TWILL_ERR_FORKED,
                      "%s: %s: this process was forked after the context was created",
                      TWILL_ENGINE_RANK_NAME(&comm->engine, comm->rank), call);
}

twill_status twill_comm_acquire_slow(struct twill_comm *comm, const char *call)
{
    const char *inside;
    if (!twill_comm_is_live(comm))
        return TWILL_ERR_ARGUMENT;
    if (twill_context_is_forked(comm->context)) /* a thread of the parent may hold it */
        return refuse_forked(comm, call);
    if (twill_comm_hold(comm, call, &inside)) {
        fail_torn(comm);
        return TWILL_OK;
    }
    if (inside != NULL)
        return tear(comm, TWILL_ERR_ARGUMENT,
                    "%s on communicator %u while %s is under way on it, in another thread or "
                    "around this call: a communicator belongs to one thread at a time",
                    call, comm->number, inside);
    return tear(comm, TWILL_ERR_TIMEOUT,
                "%s on communicator %u: a thread that advances it, or is in twill_comm_revoke(), "
                "has held it for %.1f s (TWILL_TIMEOUT)",
                call, comm->number, (double)patience(comm) * 1e-9);
}

/* A communicator that is torn, and until when it is waited for. */
struct tearing {
    struct twill_comm *comm;
    uint64_t until;
    bool over; /* it is broken, or its holder is about to break it */
};

/* Break it, if no thread is in a call on it. */
static int break_if_free(void *of)
{
    struct tearing *tearing = of;
    tearing->over = atomic_load(&tearing->comm->live) != TWILL_TORN;
    if (!tearing->over && twill_comm_try_hold(tearing->comm)) {
        fail_torn(tearing->comm);
        twill_comm_release(tearing->comm);
        tearing->over = true;
    }
    return 0;
}

static bool is_over(const void *awaited)
{
    return ((const struct tearing *)awaited)->over;
}

/* Wake the thread that has it, and give up after a while. Naps are counted, too: that thread may
 * have no core. */
static twill_status wake_holder(void *of, struct twill_waiting *state)
{
    const struct tearing *tearing = of;
    twill_node_wake(tearing->comm->node, tearing->comm->local);
    return state->polls++ >= BREAK_NAPS && twill_now() >= tearing->until ? TWILL_ERR_TIMEOUT
                                                                         : TWILL_OK;
}

/* Break a communicator that is torn, unless the thread that is in a call on it does. That thread
 * may be past its last look, and makes no other call: then this one does it when the call ends. */
static void break_torn(struct twill_comm *comm)
{
    struct tearing tearing = {.comm = comm, .until = twill_now() + TWILL_BREAK_NS};
    const struct twill_waitable waitable = {.advance = break_if_free,
                                            .done = is_over,
                                            .blocked_on = wake_holder,
                                            .of = &tearing,
                                            .awaited = &tearing};
    struct twill_pace pace = {.least_ns = TWILL_THREAD_NAP_NS};
    (void)twill_await(&waitable, &pace, UINT64_MAX);
}

twill_status twill_comm_revoke(twill_comm *comm)
{
    if (!twill_comm_is_live(comm))
        return TWILL_ERR_ARGUMENT;
    if (twill_context_is_forked(comm->context))
        return TWILL_ERR_FORKED;
    atomic_fetch_add(&comm->claim.revoking, 1);
    /* Of this load and the one after end_if_alone()'s store, one sees what the other thread has
     * stored, as all four are sequentially consistent. If it lives, it stays while this thread is
     * counted.
     */
    bool live = atomic_load(&comm->live) != TWILL_GONE;
    if (live) {
        (void)tear(comm, TWILL_ERR_REVOKED,
                   "twill_comm_revoke: this rank has revoked communicator %u", comm->number);
        break_torn(comm);
    }
    atomic_fetch_sub(&comm->claim.revoking, 1);
    return live ? TWILL_OK : TWILL_ERR_ARGUMENT;
}

/* Hold the communicator to end it. Returns false, after a warning, if that is not allowed. */
static bool acquire_last(struct twill_comm *comm, const char *call)
{
    static const char ended[] = "the communicator has already been destroyed";
    if (twill_comm_acquire(comm, call) == TWILL_OK)
        return true;
    if (twill_comm_is_live(comm))
        twill_say(comm->log, TWILL_LOG_WARN, "%s: it is not destroyed",
                  comm->claim.refused.message);
    else if (comm->context != NULL) /* not retired yet, so its context is alive */
        twill_say(comm->log, TWILL_LOG_WARN, "%s: %s", call, ended);
    else
        twill_handle_warn(call, ended);
    return false;
}

/* End the handle, if no thread is in twill_comm_revoke(). One that begins to revoke finds that it
 * has ended, or is counted. */
static int end_if_alone(void *of)
{
    struct twill_comm *comm = of;
    fail_torn(comm);
    twill_context_lock(comm->context);
    uint32_t live = atomic_load(&comm->live);
    if (live != TWILL_TORN && atomic_load(&comm->claim.revoking) == 0) {
        atomic_store(&comm->live, TWILL_GONE);
        if (atomic_load(&comm->claim.revoking) > 0)
            atomic_store(&comm->live, live);
    }
    twill_context_unlock(comm->context);
    return 0;
}

static bool has_ended(const void *awaited)
{
    return !twill_comm_is_live(awaited);
}

/* End the handle of a held communicator, once all ranks are told of a revocation that has begun.
 * Returns false, after a warning and the release, if a thread is in one for TWILL_TIMEOUT. */
static bool end_handle(struct twill_comm *comm, const char *call)
{
    const struct twill_waitable waitable = {
        .advance = end_if_alone, .done = has_ended, .of = comm, .awaited = comm};
    struct twill_pace pace = {.yields = END_YIELDS, .least_ns = TWILL_THREAD_NAP_NS};
    if (twill_await(&waitable, &pace, twill_now() + patience(comm)) == TWILL_OK)
        return true;
    twill_say(comm->log, TWILL_LOG_WARN,
              "%s: %s: a thread has been in twill_comm_revoke() on communicator %u for %.1f s "
              "(TWILL_TIMEOUT): it is not destroyed",
              TWILL_ENGINE_RANK_NAME(&comm->engine, comm->rank), call, comm->number,
              (double)patience(comm) * 1e-9);
    twill_comm_release(comm);
    return false;
}

bool twill_comm_leave_by(struct twill_comm *comm, const char *call,
                         void (*barrier)(struct twill_comm *comm))
{
    if (twill_comm_is_live(comm) && twill_context_is_forked(comm->context))
        return true; /* all that is in it belongs to the parent */
    if (!acquire_last(comm, call))
        return false;
    if (barrier != NULL && !comm->broken) {
        twill_comm_shorten_deadline(comm);
        barrier(comm);
        twill_context_forget_timeout(comm->context);
    }
    if (!end_handle(comm, call))
        return false;
    struct twill_context *context = comm->context;
    twill_comm_close(comm);
    for (struct twill_context *c = context; c != NULL; c = c->older)
        twill_heap_release_dead(c);
    twill_context_drop_older(context);
    return true;
}

/* --- the open communicators of a context, which waits and threads advance -------------------- */

void twill_comm_pend(struct twill_comm *comm)
{
    twill_engine_count_pending(&comm->engine, 1);
    atomic_fetch_add(&comm->context->comms.pending, 1);
    if (comm->context->progress.enabled)
        twill_progress_wake(comm->context);
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
             atomic_load_explicit(&comm->pending, memory_order_relaxed) > 0 &&
             twill_comm_try_hold(comm);
    twill_context_unlock(context);
    return comm;
}

/* Advance all others: context->comms.advance. */
static int advance_open(struct twill_context *context, const struct twill_comm *except)
{
    int moved = 0;
    bool taken;
    struct twill_comm *comm;
    for (size_t i = 0; (comm = take_comm(context, i, except, &taken)) != NULL; i++) {
        if (!taken)
            continue;
        if (atomic_load_explicit(&comm->pending, memory_order_relaxed) > 0) {
            int n = twill_engine_advance(&comm->engine);
            if (n < 0 && !comm->broken)
                (void)twill_comm_fail(comm, (twill_status)n, TWILL_CAUSE_ASKED);
            if (n > 0)
                comm->waits.moved_at = twill_now();
            moved += n > 0 ? n : 0;
        }
        twill_comm_release(comm);
    }
    return moved;
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
    atomic_store_explicit(&context->comms.advance, advance_open, memory_order_release);
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
