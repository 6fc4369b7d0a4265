/* SPDX-License-Identifier: Apache-2.0 */
/* Exclusive use of a communicator by one call, or by a thread that advances it or breaks a revoked
 * one. A call waits for such a thread, which is done soon. A second call at the same time is
 * refused before it touches anything. The communicator then fails on all ranks, because they no
 * longer agree on its calls. A revocation ends it in the same way. comm->live is its state. */
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/shm/node_memory.h"
#include "fabric/shm/shared_region.h"
#include "lib/base/times.h"
#include "lib/comm/comm_internal.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/job/heap.h"
#include "lib/job/log.h"
#include "lib/twill_recover.h"

#include <stdio.h>
#include <stdlib.h>

#define BREAK_NAPS 1000u /* of a revocation that waits, as the call may have no core */
#define END_YIELDS 100u  /* a revocation is short, but its thread may have no core */

const char twill_held_by_progress[] = "progress";

static twill_status tear(struct twill_comm *comm, twill_status status, const char *format, ...)
    TWILL_PRINTF(3, 4);

/* Mark the communicator as torn with *cause, unless it is torn already or has ended. */
static void mark_torn(struct twill_comm *comm, const struct twill_error *cause)
{
    twill_context_lock(comm->context);
    uint32_t live = atomic_load(&comm->live);
    if (live == TWILL_LIVE || live == TWILL_IDLE) {
        comm->claim.refused = *cause;
        atomic_store(&comm->live, TWILL_TORN);
    }
    twill_context_unlock(comm->context);
}

/* Mark the communicator as torn with this error, unless it is torn already or has ended, so that
 * its holder breaks it. The caller does not hold it and may only read what never changes. Returns
 * `status`. */
static twill_status tear(struct twill_comm *comm, twill_status status, const char *format, ...)
{
    struct twill_error error = {0};
    char before[TWILL_RANK_TEXT + 2];
    va_list arguments;
    va_start(arguments, format);
    snprintf(before, sizeof(before), "%s: ", TWILL_ENGINE_RANK_NAME(&comm->engine, comm->rank));
    (void)twill_error_set_list(&error, status, TWILL_NO_RANK, __FILE__, __LINE__, before, format,
                               arguments);
    va_end(arguments);
    mark_torn(comm, &error);
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

/* Break the communicator if it is torn and not broken yet. The caller holds it. */
static void fail_torn(struct twill_comm *comm)
{
    twill_status torn = twill_comm_torn(comm);
    if (torn == TWILL_OK)
        return;
    twill_comm_wake(comm);
    comm->error = comm->claim.refused;
    (void)twill_comm_fail(comm, torn, TWILL_CAUSE_ASKED);
}

/* Return how long to wait, in ns, for another thread of this process. That thread waits for no
 * rank, but it may never return from an operation of the program, or may have been cancelled. */
static uint64_t patience(const struct twill_comm *comm)
{
    return (uint64_t)comm->context->config->number[TWILL_VARIABLE_TIMEOUT];
}

/* Return whether no thread holds the communicator `awaited` to advance it or to break it. */
static bool is_settled(const void *awaited)
{
    const struct twill_comm *comm = awaited;
    return atomic_load_explicit(&comm->claim.held, memory_order_relaxed) != twill_held_by_progress;
}

bool twill_comm_hold(struct twill_comm *comm, const char *call, const char **inside)
{
    uint64_t deadline = twill_now() + patience(comm);
    do { /* without naps, which would miss the moments in which a busy progress thread lets go */
        *inside = twill_comm_claim(comm, call);
        if (*inside == NULL)
            return true;
        if (*inside != twill_held_by_progress)
            return false;
    } while (twill_wait_for_thread(is_settled, comm, deadline) && twill_now() < deadline);
    *inside = NULL;
    return false;
}

/* Set comm->error for a call in a forked child, and return TWILL_ERR_FORKED. */
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
        twill_comm_wake(comm);
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

/* Return whether the communicator `awaited` is free, or no longer idle. */
static bool is_free_or_awake(const void *awaited)
{
    const struct twill_comm *comm = awaited;
    return atomic_load_explicit(&comm->claim.held, memory_order_relaxed) == NULL ||
           atomic_load(&comm->live) != TWILL_IDLE;
}

void twill_comm_wake_idle(struct twill_comm *comm)
{
    uint64_t deadline = twill_now() + patience(comm);
    while (atomic_load(&comm->live) == TWILL_IDLE && !twill_context_is_forked(comm->context)) {
        if (twill_comm_try_hold(comm)) {
            twill_comm_wake(comm);
            fail_torn(comm);
            twill_comm_release(comm);
        } else if (!twill_wait_for_thread(is_free_or_awake, comm, deadline)) {
            return;
        }
    }
}

void twill_comm_tear(struct twill_comm *comm, const struct twill_error *cause)
{
    mark_torn(comm, cause);
    if (twill_comm_try_hold(comm)) {
        twill_comm_wake(comm);
        if (twill_comm_torn(comm) != TWILL_OK)
            (void)twill_comm_fail(comm, comm->error.status, TWILL_CAUSE_KNOWN);
        twill_comm_release(comm);
    } else {
        twill_node_wake(comm->node, comm->local);
    }
}

/* A wait of twill_comm_revoke() until the torn communicator is broken, on its stack. */
struct tearing {
    struct twill_comm *comm;
    uint64_t until; /* twill_now() */
    bool over;      /* it is broken, or its holder is about to break it */
};

/* The advance() of break_torn(). Breaks the communicator if no thread is in a call. Returns 0. */
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

/* Return whether the wait of break_torn(), `awaited`, is over, because the communicator is broken
 * or its holder is about to break it. */
static bool is_over(const void *awaited)
{
    return ((const struct tearing *)awaited)->over;
}

/* The blocked_on() of break_torn(). Wakes the holder. Returns TWILL_ERR_TIMEOUT once the time is
 * over and enough naps have passed, as that thread may have no core, and TWILL_OK before. */
static twill_status wake_holder(void *of, struct twill_waiting *state)
{
    const struct tearing *tearing = of;
    twill_node_wake(tearing->comm->node, tearing->comm->local);
    return state->polls++ >= BREAK_NAPS && twill_now() >= tearing->until ? TWILL_ERR_TIMEOUT
                                                                         : TWILL_OK;
}

/* Wait until a torn communicator is broken, for little more than TWILL_BREAK_NS. The thread that is
 * in a call on it breaks it at its next check. If no thread is in a call, this one breaks it. When
 * the time has passed, it may still be unbroken. */
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
    /* This load and that of end_if_alone() are sequentially consistent, like the stores before, so
     * one thread sees what the other has stored. While this one is counted, `comm` stays alive. */
    bool live = atomic_load(&comm->live) != TWILL_GONE;
    if (live) {
        (void)tear(comm, TWILL_ERR_REVOKED,
                   "twill_comm_revoke: this rank has revoked communicator %u", comm->number);
        break_torn(comm);
    }
    atomic_fetch_sub(&comm->claim.revoking, 1);
    return live ? TWILL_OK : TWILL_ERR_ARGUMENT;
}

/* Hold the communicator to end it, for `call`. Returns false, after a warning, if it cannot. */
static bool acquire_last(struct twill_comm *comm, const char *call)
{
    static const char ended[] = "the communicator has already been destroyed";
    bool idle = comm != NULL && atomic_load(&comm->live) == TWILL_IDLE; /* it need not wake */
    if ((idle ? twill_comm_acquire_live(comm, call) : twill_comm_acquire(comm, call)) == TWILL_OK)
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

/* Break the communicator `of` if it is torn. Then mark it as ended (TWILL_GONE), unless another
 * thread is in twill_comm_revoke() on it. A thread that enters that at the same time is either
 * noticed here or sees the mark. Always returns 0, so the caller looks for the mark by
 * has_ended(). */
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

/* Return whether `awaited`, a communicator, has ended. */
static bool has_ended(const void *awaited)
{
    return !twill_comm_is_live(awaited);
}

/* Mark a held communicator as ended (TWILL_GONE), once no thread is in twill_comm_revoke() on it,
 * and return true. If a thread is still in it after TWILL_TIMEOUT, log a warning, release the
 * communicator, which does not end, and return false. */
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

/* The wait of all_unused(), on its stack. */
struct unused_wait {
    const struct twill_comm *comm;
    enum twill_room_outcome outcome;
};

/* The advance() of all_unused(). Always returns 0. */
static int look_unused(void *of)
{
    struct unused_wait *wait = of;
    wait->outcome = twill_room_outcome(wait->comm->node, false);
    return 0;
}

static bool is_decided(const void *awaited)
{
    return ((const struct unused_wait *)awaited)->outcome != TWILL_ROOM_AWAITED;
}

/* Return whether no rank of a communicator of one node has used it, so that none waits for another.
 * If others do not arrive soon, return false: the barrier, which all then run, finds out why. */
static bool all_unused(struct twill_comm *comm)
{
    if (comm->node->room == NULL || comm->world->nodes > 1)
        return false;
    twill_room_arrive(comm->node, comm->woken);
    struct unused_wait wait = {.comm = comm};
    const struct twill_waitable waitable = {
        .advance = look_unused, .done = is_decided, .of = &wait, .awaited = &wait};
    struct twill_pace pace = {.yields = END_YIELDS, .least_ns = TWILL_THREAD_NAP_NS};
    if (!comm->woken)
        (void)twill_await(&waitable, &pace, twill_now() + TWILL_UNUSED_NS);
    return twill_room_outcome(comm->node, true) == TWILL_ROOM_UNUSED;
}

/* Return whether rank `job` of the job is in an open communicator. The context is locked. */
static bool is_in_open_comm(const struct twill_context *context, uint32_t job)
{
    for (size_t i = 0; i < context->comms.opened; i++)
        if (twill_comm_rank_of(context->comms.open[i], job) != UINT32_MAX)
            return true;
    return false;
}

/* Unmap the node memory of rank `job` of the job if it has died. A region with room is of a
 * communicator of all ranks, so it numbers them as the job does. The context is locked. Returns
 * whether any was unmapped. */
static bool release_node_memory(const struct twill_context *context, uint32_t job)
{
    bool released = false;
    struct twill_room *room = NULL; /* mostly one for all */
    for (size_t i = 0; i < context->comms.opened; i++) {
        struct twill_room *next = context->comms.open[i]->node->room;
        released |= next != NULL && next != room && twill_room_release(next, job);
        room = next != NULL ? next : room;
    }
    return released;
}

/* Unmap the memory of ranks of this node that have died and are in no open communicator, as no call
 * uses it any more. If the context has no open communicator and no newer context replaces it, do
 * nothing. The job then ends, and a rank that ended a little earlier has not failed. */
static void release_dead(struct twill_context *context)
{
    struct twill_shm_region *region = context->memory->heap.region;
    const struct twill_world *world = &context->job.world;
    twill_context_lock(context);
    bool ends = context->comms.opened == 0 && context->newer == NULL;
    uint32_t own = world->node[context->job.oob->rank];
    for (uint32_t r = 0; !ends && r < world->size; r++) {
        if (world->node[r] != own || is_in_open_comm(context, r))
            continue;
        bool released = region != NULL && twill_shm_region_at(region, r) != NULL &&
                        twill_shm_region_release(region, r);
        if (release_node_memory(context, r) || released)
            twill_say(&context->log, TWILL_LOG_INFO,
                      "unmapped the memory of rank %u, which has ended", r);
    }
    twill_context_unlock(context);
}

bool twill_comm_leave_by(struct twill_comm *comm, const char *call,
                         void (*barrier)(struct twill_comm *comm))
{
    if (twill_comm_is_live(comm) && twill_context_is_forked(comm->context))
        return true; /* its contents belong to the parent */
    if (!acquire_last(comm, call))
        return false;
    bool meets = barrier != NULL && !comm->broken && !comm->parted;
    comm->parted = comm->parted || meets; /* once, even if it then cannot end */
    if (meets && !all_unused(comm)) {
        twill_comm_wake(comm);
        twill_comm_shorten_deadline(comm);
        barrier(comm);
        twill_context_forget_timeout(comm->context);
    }
    if (!end_handle(comm, call))
        return false;
    struct twill_context *context = comm->context;
    twill_comm_close(comm);
    for (struct twill_context *c = context; c != NULL; c = c->older)
        release_dead(c);
    twill_context_drop_older(context);
    return true;
}

void twill_comm_pend(struct twill_comm *comm)
{
    twill_engine_count_pending(&comm->engine, 1);
    atomic_fetch_add(&comm->context->comms.pending, 1);
    if (comm->context->progress.enabled)
        twill_progress_wake(comm->context);
}

/* Return the i-th open communicator, or NULL past the end. If it has requests pending, is not
 * `except` and is free, hold it and set *taken to true, else to false. Being held, it stays
 * open. */
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

/* Advance all open communicators that have requests pending, except one and those that another
 * thread holds. Breaks those that fail. Returns the number of steps made. */
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

twill_status twill_context_reserve(struct twill_context *context, struct twill_error *error)
{
    twill_status status = TWILL_OK;
    twill_context_lock(context);
    if (context->comms.opened + context->comms.reserved == context->comms.open_capacity) {
        size_t capacity = context->comms.open_capacity * 2 + 4;
        struct twill_comm **open =
            realloc(context->comms.open, capacity * sizeof(struct twill_comm *));
        if (open == NULL)
            status = TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
        else
            context->comms.open = open;
        context->comms.open_capacity = open != NULL ? capacity : context->comms.open_capacity;
    }
    context->comms.reserved += status == TWILL_OK;
    twill_context_unlock(context);
    return status;
}

void twill_context_unreserve(struct twill_context *context)
{
    twill_context_lock(context);
    context->comms.reserved--;
    twill_context_unlock(context);
}

void twill_context_add(struct twill_context *context, struct twill_comm *comm)
{
    twill_context_lock(context);
    context->comms.reserved--;
    context->comms.open[context->comms.opened++] = comm;
    atomic_store_explicit(&context->comms.advance, advance_open, memory_order_release);
    twill_context_unlock(context);
}

void twill_context_remove(struct twill_context *context, struct twill_comm *comm)
{
    twill_context_lock(context);
    for (size_t i = 0; i < context->comms.opened; i++)
        if (context->comms.open[i] == comm)
            context->comms.open[i--] = context->comms.open[--context->comms.opened];
    twill_context_unlock(context);
}
