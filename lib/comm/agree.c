/* SPDX-License-Identifier: Apache-2.0 */
/* Drives the agreements of consensus.h over the links of the failure detector. It sends and
 * receives messages, notices which ranks have died or are silent, and waits. The thread that polls
 * the detector handles messages, under the detector's lock. */
#include "fabric/shm/node_memory.h"
#include "lib/base/times.h"
#include "lib/comm/comm_internal.h"
#include "lib/job/context.h"

#include <stdlib.h>
#include <string.h>

#define POLLS_FIRST   20u /* polls before a wait sleeps */
#define DEPARTED_KEPT 16u
/* Longest step of an agreement, as a multiple of the patience with a silent rank, if the awaited
 * ranks are heard but make no progress. A rank that waits for a coordinator waits longer, as the
 * coordinator may come that late itself and then makes two such steps. */
#define STEP_COORDINATOR 2u
#define STEP_JOINED      8u

/* A communicator's agreements, under detector_lock. Made for the first one, and freed by
 * twill_agree_close(). */
struct twill_recovery {
    struct twill_consensus *consensus;
    uint8_t *near; /* [size] nonzero for ranks of this node */
    /* Patience with a rank begins when a message of it arrives. Patience with all ranks begins when
     * consensus->state or consensus->ballot changes, which is a step of this rank. */
    uint64_t *heard; /* [size] twill_now() when the patience with each rank began */
    uint64_t since;  /* twill_now() when this rank's last step was noticed */
    enum twill_consensus_state state; /* consensus->state after that step */
    uint32_t ballot;                  /* consensus->ballot after that step */
};

/* The last decisions of communicators of a context that have ended, as messages with which to
 * answer late ranks. Under detector_lock, and freed with the context. */
struct twill_departed_comms {
    size_t next; /* number of decisions kept so far. comm[next % DEPARTED_KEPT] is replaced next */
    struct twill_departed { /* the last decision of one communicator */
        uint32_t number;    /* of the communicator in its context */
        size_t bytes;       /* of the message, or 0 if the element is unused */
        unsigned char *message;
    } comm[DEPARTED_KEPT];
};

/* Send a message of an agreement to rank `to` of the communicator `user`, through the failure
 * detector. If `last`, wait up to TWILL_AGREE_LAST_NS until it is sent. */
static void send_message(void *user, uint32_t to, const void *message, size_t bytes, bool last)
{
    struct twill_comm *comm = user;
    struct twill_detector *detector = comm->context->health.detector;
    struct twill_notice notice = {
        .comm = comm->number, .status = TWILL_OK, .data = message, .bytes = bytes};
    if (last)
        twill_detector_notify(detector, &notice, &comm->job[to], 1, TWILL_AGREE_LAST_NS);
    else
        twill_detector_send(detector, comm->job[to], &notice);
}

/* Return the agreements of a communicator, or NULL if out of memory. Creates them at first use. */
static struct twill_recovery *recovery_of(struct twill_comm *comm)
{
    uint32_t size = comm->world->size;
    struct twill_recovery *recovery = comm->health->recovery;
    if (recovery != NULL)
        return recovery;
    recovery = calloc(1, sizeof(*recovery));
    uint8_t *near = calloc(size, sizeof(*near));
    uint64_t *heard = calloc(size, sizeof(*heard));
    struct twill_consensus *consensus =
        near != NULL ? twill_consensus_open(size, comm->rank, near, send_message, comm) : NULL;
    if (recovery == NULL || heard == NULL || consensus == NULL) {
        free(recovery);
        free(near);
        free(heard);
        twill_consensus_close(consensus);
        return NULL;
    }
    for (uint32_t r = 0; r < size; r++)
        near[r] = comm->world->node[r] == comm->world->node[comm->rank];
    *recovery = (struct twill_recovery){.consensus = consensus, .near = near, .heard = heard};
    comm->health->recovery = recovery;
    return recovery;
}

/* Answer a message of an agreement, on a communicator that has ended here, with its last decision,
 * if that is kept. A DECIDE is not answered. */
static void answer_departed(struct twill_context *context, const struct twill_notice *notice)
{
    const struct twill_departed_comms *departed = context->health.departed;
    struct twill_consensus_header header;
    if (departed == NULL || notice->bytes < sizeof(header))
        return;
    memcpy(&header, notice->data, sizeof(header));
    for (size_t i = 0; i < DEPARTED_KEPT && header.kind != TWILL_CONSENSUS_DECIDE; i++) {
        const struct twill_departed *comm = &departed->comm[i];
        struct twill_notice answer = {
            .comm = notice->comm, .data = comm->message, .bytes = comm->bytes};
        if (comm->bytes == notice->bytes && comm->number == notice->comm)
            twill_detector_send(context->health.detector, notice->from, &answer);
    }
}

void twill_agree_receive(struct twill_context *context, const struct twill_notice *notice)
{
    uint32_t from;
    twill_context_lock(context);
    struct twill_comm *comm = twill_context_comm_of(context, notice, &from);
    twill_context_unlock(context); /* it stays open: twill_agree_close() takes detector_lock */
    if (comm == NULL) {
        answer_departed(context, notice);
        return;
    }
    struct twill_recovery *recovery = recovery_of(comm);
    if (recovery == NULL)
        return; /* the sender repeats it */
    recovery->heard[from] = twill_now();
    twill_consensus_receive(recovery->consensus, from, notice->data, notice->bytes);
}

/* If a silent rank is on this node, mark it as excluded in the node memory before other ranks
 * continue without it. It then cannot exclude other ranks. Returns false if this rank itself was
 * already excluded there by another one, and true otherwise. */
static bool shut_out(const struct twill_comm *comm, uint32_t rank)
{
    if (comm->world->node[rank] != comm->world->node[comm->rank])
        return true;
    twill_node_exclude(comm->node, comm->world->local[rank]);
    return !twill_node_is_excluded(comm->node, comm->local);
}

/* Return whether a rank of this node, which may be this one, has been shut out by any rank because
 * it was silent. Returns false for ranks of other nodes. */
static bool is_shut_out(const struct twill_comm *comm, uint32_t rank)
{
    return comm->world->node[rank] == comm->world->node[comm->rank] &&
           twill_node_is_excluded(comm->node, comm->world->local[rank]);
}

/* Return whether a rank counts as dead only because its host does not answer. It may be running. */
static bool may_live(const struct twill_comm *comm, uint32_t rank)
{
    return comm->world->node[rank] != comm->world->node[comm->rank] &&
           twill_detector_lost_host(comm->context->health.detector, comm->job[rank]) != NULL;
}

/* Let the patience with every rank begin anew, for the present state and ballot. */
static void renew_patience(const struct twill_comm *comm, struct twill_recovery *recovery)
{
    uint64_t now = twill_now();
    for (uint32_t r = 0; r < comm->world->size; r++)
        recovery->heard[r] = now;
    recovery->since = now;
    recovery->state = recovery->consensus->state;
    recovery->ballot = recovery->consensus->ballot;
}

/* Return how long a rank may be silent, in ns. It may still wait in the previous call, whose data
 * has reached this rank. Before a shrink that call has failed here too, so less is enough. */
static uint64_t patience_ns(const struct twill_comm *comm, const struct twill_consensus *consensus)
{
    bool shrinks = consensus->own->calls == 1u << TWILL_AGREEING_SHRINK;
    return shrinks ? comm->tuning.timeout_ns : twill_silence_bound_ns(comm);
}

/* Return the longest time, in ns, for a step of the agreement in this state. */
static uint64_t longest_step_ns(const struct twill_comm *comm, enum twill_consensus_state state)
{
    return twill_silence_bound_ns(comm) *
           (state == TWILL_CONSENSUS_JOINED ? STEP_JOINED : STEP_COORDINATOR);
}

uint64_t twill_agree_bound_ns(const struct twill_comm *comm)
{
    uint64_t step = longest_step_ns(comm, TWILL_CONSENSUS_JOINED), ranks = comm->world->size;
    return twill_min(step, UINT64_MAX / 2 / ranks) * ranks;
}

/* Record the failure of awaited ranks that have died, were shut out, or have been silent for too
 * long. Silent ones of this node are shut out here. Returns false if this rank has been shut out,
 * and true otherwise. */
static bool check_awaited_ranks(struct twill_comm *comm, struct twill_recovery *recovery)
{
    struct twill_consensus *consensus = recovery->consensus;
    if (is_shut_out(comm, comm->rank)) /* the awaited ranks may wait for others that wait for it */
        return false;
    for (uint32_t r = twill_consensus_awaits(consensus, 0); r != UINT32_MAX;
         r = twill_consensus_awaits(consensus, r + 1)) {
        if (recovery->state != consensus->state || recovery->ballot != consensus->ballot)
            renew_patience(comm, recovery);
        uint64_t now = twill_now();
        bool silent = now - recovery->heard[r] > patience_ns(comm, consensus) ||
                      now - recovery->since > longest_step_ns(comm, consensus->state) ||
                      is_shut_out(comm, r);
        if (twill_comm_is_dead_locked(comm, r)) {
            twill_context_receive_notices(comm->context); /* it may have decided before */
            twill_consensus_fail(consensus, r, may_live(comm, r));
        } else if (silent) {
            if (!shut_out(comm, r))
                return false;
            twill_consensus_fail(consensus, r, true);
        }
    }
    return true;
}

twill_status twill_recovery_conclude(struct twill_comm *comm, twill_status status,
                                     const struct twill_error *error)
{
    if (status == TWILL_OK)
        return status;
    comm->error = *error;
    comm->error.status = status;
    if (strncmp(error->message, "rank ", 5) != 0)
        twill_error_prefix(&comm->error,
                           "%s: %s: ", TWILL_ENGINE_RANK_NAME(&comm->engine, comm->rank),
                           atomic_load_explicit(&comm->claim.held, memory_order_relaxed));
    twill_context_lock(comm->context);
    /* If it is torn but not yet broken, its next holder breaks it with the cause given there. */
    if (comm->broken && twill_comm_is_torn(comm))
        comm->claim.refused = comm->error;
    twill_context_unlock(comm->context);
    return status;
}

/* A wait until an agreement is decided, on the stack of await_decision(). */
struct deciding {
    struct twill_comm *comm;
    struct twill_recovery *recovery;
    uint64_t tick, next; /* ns between checks, and twill_now() of the next one */
    bool decided;
};

/* The advance() of a wait for a decision. Receives messages, checks the awaited ranks and advances
 * other communicators, as another rank may come only once its call on one of those, or on a
 * parameter server here, has ended. Returns the number of steps on the others, 0 once it is
 * decided, or TWILL_ERR_EXCLUDED if this rank has been shut out. */
static int advance_decision(void *of)
{
    struct deciding *d = of;
    pthread_mutex_t *lock = &d->comm->context->health.detector_lock;
    bool in = true;
    pthread_mutex_lock(lock);
    twill_context_receive_notices(d->comm->context);
    if (twill_now() >= d->next) {
        twill_consensus_tick(d->recovery->consensus);
        in = check_awaited_ranks(d->comm, d->recovery);
        d->tick = twill_min(2 * d->tick, TWILL_AGREE_TICK_MOST_NS);
        d->next = twill_now() + d->tick;
    }
    d->decided = twill_consensus_decision(d->recovery->consensus) != NULL;
    pthread_mutex_unlock(lock);
    if (!in)
        return TWILL_ERR_EXCLUDED;
    return d->decided ? 0 : twill_comm_advance_others(d->comm);
}

/* Return whether the agreement of `awaited`, a struct deciding, is decided. */
static bool is_decided(const void *awaited)
{
    return ((const struct deciding *)awaited)->decided;
}

/* Wait until the agreement is decided. Returns false if this rank has been shut out. The loop
 * terminates: each awaited rank answers, dies, or counts as silent. A rank whose messages still
 * arrive but that makes no progress also counts as silent. */
static bool await_decision(struct twill_comm *comm, struct twill_recovery *recovery)
{
    struct deciding deciding = {comm, recovery, TWILL_AGREE_TICK_FIRST_NS,
                                twill_now() + TWILL_AGREE_TICK_FIRST_NS, false};
    const struct twill_waitable waitable = {
        .advance = advance_decision, .done = is_decided, .of = &deciding, .awaited = &deciding};
    struct twill_pace pace = {.yields = POLLS_FIRST, .least_ns = TWILL_AGREE_POLL_NS};
    return twill_await(&waitable, &pace, UINT64_MAX) == TWILL_OK;
}

/* Break the communicator, for this rank only, because the others continue without it. Nothing that
 * ends it may then wait for them. Returns TWILL_ERR_EXCLUDED. */
static twill_status exclude_self(struct twill_comm *comm, const char *why,
                                 struct twill_error *error)
{
    pthread_mutex_lock(&comm->context->health.detector_lock);
    if (comm->health->recovery != NULL && twill_agree_last(comm) == NULL)
        twill_consensus_leave(comm->health->recovery->consensus);
    pthread_mutex_unlock(&comm->context->health.detector_lock);
    (void)twill_comm_fail(comm, TWILL_ERR_EXCLUDED, TWILL_CAUSE_OWN);
    return TWILL_FAIL(error, TWILL_ERR_EXCLUDED, "%s", why);
}

/* If this rank is not among the survivors of a decision, break the communicator here and return
 * TWILL_ERR_EXCLUDED. Return TWILL_ERR_PEER if the survivors may not continue, and TWILL_OK
 * otherwise. */
static twill_status check_decision(struct twill_comm *comm, const struct twill_decision *decision,
                                   struct twill_error *error)
{
    uint32_t live = 0, lost = comm->rank;
    for (uint32_t r = comm->world->size; r-- > 0;) {
        bool failed = twill_rank_set_has(decision->set, r);
        live += !failed;
        lost = failed ? r : lost;
    }
    if (twill_rank_set_has(decision->set, comm->rank))
        return exclude_self(comm, "the other ranks have excluded this one, because it was silent",
                            error);
    if (decision->refused)
        return TWILL_FAIL(error, TWILL_ERR_PEER,
                          "%s does not answer but may be alive, and the %u of %u ranks that remain "
                          "are no majority",
                          TWILL_ENGINE_RANK_NAME(&comm->engine, lost), live, comm->world->size);
    return TWILL_OK;
}

twill_status twill_agree(struct twill_comm *comm, enum twill_agreeing_call call, uint64_t flags,
                         uint32_t port, const struct twill_decision **decision,
                         struct twill_error *error)
{
    static const char shut[] =
        "the other ranks of this node have excluded this one, because it was silent";
    if (is_shut_out(comm, comm->rank))
        return exclude_self(comm, shut, error);
    pthread_mutex_lock(&comm->context->health.detector_lock);
    struct twill_recovery *recovery = recovery_of(comm);
    if (recovery != NULL) {
        twill_consensus_enter(recovery->consensus, call, flags, comm->usage.counters.calls, port);
        renew_patience(comm, recovery);
    }
    pthread_mutex_unlock(&comm->context->health.detector_lock);
    if (recovery == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
    if (!await_decision(comm, recovery) || is_shut_out(comm, comm->rank))
        return exclude_self(comm, shut, error);
    *decision = twill_agree_last(comm);
    return check_decision(comm, *decision, error);
}

bool twill_agree_is_over(struct twill_comm *comm)
{
    pthread_mutex_lock(&comm->context->health.detector_lock);
    twill_context_receive_notices(comm->context);
    const struct twill_consensus *consensus = comm->health->recovery->consensus;
    bool over = consensus->gathers > consensus->instance;
    pthread_mutex_unlock(&comm->context->health.detector_lock);
    return over;
}

twill_status twill_agree_outcome(struct twill_comm *comm, twill_status status)
{
    const struct twill_decision *decision;
    if (status == TWILL_ERR_BROKEN || (status != TWILL_OK && !comm->broken))
        return status; /* the call did not begin */
    struct twill_error error = {0};
    twill_status agreed =
        twill_agree(comm, TWILL_AGREEING_OUTCOME, status == TWILL_OK, 0, &decision, &error);
    if (status != TWILL_OK)
        return status;
    if (agreed == TWILL_OK && decision->flags != 0 &&
        twill_agreeing_alike(decision, TWILL_AGREEING_OUTCOME))
        return TWILL_OK;
    if (agreed == TWILL_OK)
        agreed = TWILL_FAIL(&error, TWILL_ERR_PEER,
                            "complete here, but not on all living ranks, because others have "
                            "failed (TWILL_AGREE=every)");
    return twill_comm_fail(comm, twill_recovery_conclude(comm, agreed, &error), TWILL_CAUSE_ASKED);
}

const struct twill_decision *twill_agree_last(const struct twill_comm *comm)
{
    const struct twill_recovery *recovery = comm->health->recovery;
    return recovery != NULL ? twill_consensus_decision(recovery->consensus) : NULL;
}

/* Free the decisions that keep_decision() has kept, when the context ends. */
static void forget_decisions(struct twill_context *context)
{
    for (size_t i = 0; context->health.departed != NULL && i < DEPARTED_KEPT; i++)
        free(context->health.departed->comm[i].message);
    free(context->health.departed);
    context->health.departed = NULL;
}

/* Keep the last decision of a communicator that ends, for answer_departed(). Does nothing if there
 * is none, if this rank was excluded, or if out of memory. */
static void keep_decision(struct twill_comm *comm)
{
    struct twill_context *context = comm->context;
    const struct twill_consensus *consensus = comm->health->recovery->consensus;
    const struct twill_decision *decision = twill_consensus_decision(consensus);
    if (context->health.departed == NULL) {
        context->health.departed = calloc(1, sizeof(*context->health.departed));
        if (context->health.departed == NULL)
            return;
        twill_context_lock(context);
        twill_context_at_end(context, forget_decisions);
        twill_context_unlock(context);
    }
    if (decision == NULL || consensus->excluded)
        return;
    struct twill_departed *kept =
        &context->health.departed->comm[context->health.departed->next++ % DEPARTED_KEPT];
    struct twill_consensus_header header = {.kind = TWILL_CONSENSUS_DECIDE,
                                            .instance = consensus->instance};
    size_t bytes = twill_decision_bytes(comm->world->size);
    free(kept->message);
    kept->number = comm->number;
    kept->message = malloc(sizeof(header) + bytes);
    kept->bytes = kept->message != NULL ? sizeof(header) + bytes : 0;
    if (kept->message == NULL)
        return;
    memcpy(kept->message, &header, sizeof(header));
    memcpy(kept->message + sizeof(header), decision, bytes);
}

void twill_agree_close(struct twill_comm *comm)
{
    if (comm->context->health.detector == NULL)
        return;
    pthread_mutex_lock(&comm->context->health.detector_lock);
    struct twill_recovery *recovery = comm->health->recovery;
    if (recovery != NULL) {
        keep_decision(comm);
        twill_consensus_close(recovery->consensus);
        free(recovery->near);
        free(recovery->heard);
        free(recovery);
        comm->health->recovery = NULL;
    }
    pthread_mutex_unlock(&comm->context->health.detector_lock);
}
