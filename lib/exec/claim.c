/* SPDX-License-Identifier: Apache-2.0 */
/* Exclusive use of a communicator, by one call or by a thread that advances or revokes it. A call
 * waits for the latter two, which are short. A second call at the same time is refused before it
 * touches anything, and the communicator fails on all ranks, because they no longer agree on its
 * calls. Revocation by any thread ends a communicator in the same way. */
#include "lib/exec/progress.h"
#include "lib/twill_recover.h"

#include <sched.h>
#include <time.h>

const char twill_held_by_revocation[] = "twill_comm_revoke";

#define CLAIM_SPINS  200u /* an advance is short; then its thread may have lost the core */
#define BREAK_NS     UINT64_C(100000000) /* a revocation waits for a call that computes no longer */
#define BREAK_NAPS   1000u               /* counted, too: the call may have no core */
#define BREAK_NAP_NS 20000

/* Refuse a second caller. It may only read what never changes, and `refused` under the lock. */
static twill_status refuse_claim(struct twill_comm *comm, const char *call, const char *inside)
{
    char rank[TWILL_RANK_TEXT];
    uint32_t live = TWILL_LIVE;
    twill_context_lock(comm->context);
    if (atomic_load(&comm->live) == TWILL_LIVE)
        (void)TWILL_FAIL(
            &comm->claim.refused, TWILL_ERR_ARGUMENT,
            "%s: %s on communicator %u while %s is under way on it, in another thread or "
            "around this call: a communicator belongs to one thread at a time",
            twill_comm_rank_text(comm, comm->rank, rank), call, comm->number, inside);
    /* Within the lock: another thread that still finds it live would change the sentence. */
    (void)atomic_compare_exchange_strong(&comm->live, &live, TWILL_TORN);
    twill_context_unlock(comm->context);
    return TWILL_ERR_ARGUMENT;
}

twill_status twill_comm_torn(struct twill_comm *comm)
{
    if (TWILL_LIKELY(atomic_load_explicit(&comm->live, memory_order_acquire) != TWILL_TORN))
        return TWILL_OK;
    atomic_store(&comm->claim.noticed, true);
    if (comm->broken)
        return TWILL_OK;
    comm->error = comm->claim.refused;
    return comm->error.status;
}

/* Break a communicator that is torn. */
static void fail_torn(struct twill_comm *comm)
{
    twill_status torn = twill_comm_torn(comm);
    if (torn == TWILL_OK)
        return;
    (void)twill_comm_fail(comm, torn);
    if (!comm->broken) /* twill_comm_fail() leaves a communicator of one rank as it is */
        twill_comm_stop(comm, torn);
}

twill_status twill_comm_acquire_slow(struct twill_comm *comm, const char *call)
{
    if (!twill_comm_is_live(comm))
        return TWILL_ERR_ARGUMENT;
    const char *inside = NULL;
    for (unsigned spins = 0; !atomic_compare_exchange_weak_explicit(
             &comm->claim.held, &inside, call, memory_order_acquire, memory_order_relaxed);
         spins++) {
        if (inside != NULL && inside != twill_held_by_progress &&
            inside != twill_held_by_revocation)
            return refuse_claim(comm, call, inside);
        inside = NULL;
        if (spins < CLAIM_SPINS)
            twill_pause();
        else
            sched_yield();
    }
    fail_torn(comm);
    return TWILL_OK;
}

/* Break a communicator that is torn, unless the thread that is in a call on it does. That thread
 * may be past its last look, and makes no other call: then this one does it when the call ends. */
static void break_torn(struct twill_comm *comm)
{
    const struct timespec nap = {.tv_nsec = BREAK_NAP_NS};
    const uint64_t until = twill_now() + BREAK_NS;
    for (unsigned naps = 0; !atomic_load(&comm->claim.noticed); naps++) {
        const char *inside = NULL;
        if (atomic_compare_exchange_strong(&comm->claim.held, &inside, twill_held_by_revocation)) {
            fail_torn(comm);
            twill_comm_release(comm);
            return;
        }
        twill_node_wake(comm->node, comm->local);
        if (naps >= BREAK_NAPS && twill_now() >= until)
            return;
        (void)nanosleep(&nap, NULL);
    }
}

twill_status twill_comm_revoke(twill_comm *comm)
{
    char rank[TWILL_RANK_TEXT];
    uint32_t live = TWILL_LIVE;
    if (!twill_comm_is_live(comm))
        return TWILL_ERR_ARGUMENT;
    if (twill_context_is_forked(comm->context))
        return TWILL_ERR_FORKED;
    atomic_fetch_add(&comm->claim.revoking, 1);
    twill_context_lock(comm->context);
    if (atomic_load(&comm->live) == TWILL_LIVE)
        (void)TWILL_FAIL(&comm->claim.refused, TWILL_ERR_REVOKED,
                         "%s: twill_comm_revoke: this rank has revoked communicator %u",
                         twill_comm_rank_text(comm, comm->rank, rank), comm->number);
    (void)atomic_compare_exchange_strong(&comm->live, &live, TWILL_TORN);
    twill_context_unlock(comm->context);
    break_torn(comm);
    atomic_fetch_sub_explicit(&comm->claim.revoking, 1, memory_order_release);
    return TWILL_OK;
}

bool twill_comm_acquire_last(struct twill_comm *comm, const char *call)
{
    if (twill_comm_acquire(comm, call) == TWILL_OK) {
        /* The thread that has revoked it may still be in that call. */
        while (atomic_load_explicit(&comm->claim.revoking, memory_order_acquire) > 0)
            (void)sched_yield();
        return true;
    }
    static const char ended[] = "the communicator has already been destroyed";
    if (twill_comm_is_live(comm))
        twill_say(&comm->context->log, TWILL_LOG_WARN, "%s: it is not destroyed",
                  comm->claim.refused.message);
    else if (comm->context != NULL) /* not retired yet, so its context is alive */
        twill_say(&comm->context->log, TWILL_LOG_WARN, "%s: %s", call, ended);
    else
        twill_handle_warn(call, ended);
    return false;
}
