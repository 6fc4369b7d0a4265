/* SPDX-License-Identifier: Apache-2.0 */
/* How a communicator fails. Writes the sentence that names the rank, the call and the reason,
 * compares calls, and breaks the communicator on all ranks. README.md explains the whole. */
#include "fabric/shm/call_records.h"
#include "lib/base/times.h"
#include "lib/comm/comm_internal.h"
#include "lib/engine/trace_calls.h"
#include "lib/job/context.h"

#include <stdio.h>
#include <string.h>

#define COUNT_SENT    ((UINT64_C(1) << 48) - 1) /* bits of a count that a message carries */
#define EXPLAIN_TELLS 10u                       /* turns between attempts to send the last calls */

/* Copy call number `sequence` of local rank `local` to *call. Returns false if there is none, or it
 * is too old. */
static bool read_past(const struct twill_comm *comm, uint32_t local, uint64_t sequence,
                      struct twill_call *call)
{
    struct twill_call_record record;
    bool valid = twill_node_read_call(comm->node, local, sequence, &record);
    *call = twill_call_of(record.what, record.count, record.root);
    return valid;
}

bool twill_comm_read_call(const struct twill_comm *comm, uint32_t peer, struct twill_call *call,
                          uint64_t *sequence, uint64_t *entered)
{
    struct twill_call_record record = {.sequence = 0};
    bool valid = twill_node_read_last_call(comm->node, comm->world->local[peer], &record, entered);
    *call = twill_call_of(record.what, record.count, record.root);
    *sequence = record.sequence;
    return valid;
}

/* Describe where a rank of this node waits, if that is outside the collectives of this communicator
 * and was published in the last seconds. Returns false if it is not known. */
static bool describe_elsewhere(const struct twill_comm *comm, uint32_t peer, char *text,
                               size_t bytes)
{
    struct twill_elsewhere at = twill_node_elsewhere(comm->node, comm->world->local[peer]);
    char name[100] = "a message";
    if (at.ticks == 0 ||
        twill_engine_seconds(&comm->engine, twill_ticks() - at.ticks) > TWILL_ELSEWHERE_SECONDS)
        return false;
    if (at.call.sequence != 0) {
        struct twill_call call = twill_call_of(at.call.what, at.call.count, at.call.root);
        twill_call_describe(&call, at.call.sequence, name, sizeof(name));
    }
    const char *verb = at.call.sequence != 0 ? "is in" : "waits for";
    if (at.comm == comm->number)
        snprintf(text, bytes, "%s %s", verb, name);
    else
        snprintf(text, bytes, "%s %s of communicator %u", verb, name, at.comm);
    return true;
}

void twill_comm_describe_peer(const struct twill_comm *comm, uint32_t peer, char *text,
                              size_t bytes)
{
    struct twill_call call;
    uint64_t sequence, entered;
    uint64_t left = twill_node_left_call(comm->node, comm->world->local[peer]);
    char name[128], elsewhere[128];
    bool has_called = twill_comm_read_call(comm, peer, &call, &sequence, &entered);
    if (has_called)
        twill_call_describe(&call, sequence, name, sizeof(name));
    if (has_called && left != sequence)
        twill_print(text, bytes, "has been in %s for %.1f s", name,
                    twill_engine_seconds(&comm->engine, twill_ticks() - entered));
    else if (describe_elsewhere(comm, peer, elsewhere, sizeof(elsewhere)))
        snprintf(text, bytes, "%s; its last call here was %s", elsewhere,
                 has_called ? name : "none");
    else if (has_called)
        snprintf(text, bytes, "is in no call; its last was %s", name);
    else
        snprintf(text, bytes, "has made no call yet");
}

/* Return whether a peer's call number `sequence` is the same as this rank's of that number, which
 * is copied to *ours. Returns true if `sequence` is 0 or this rank's is not known any more. */
static bool call_is_same(const struct twill_comm *comm, const struct twill_call *theirs,
                         uint64_t sequence, struct twill_call *ours)
{
    return sequence == 0 || !read_past(comm, comm->local, sequence, ours) ||
           (twill_call_what(theirs) == twill_call_what(ours) && theirs->count == ours->count &&
            theirs->root == ours->root);
}

/* Set comm->error to say that a peer's call number `sequence` was a different one here. `does` is
 * the verb before the call. Returns TWILL_ERR_MISMATCH. */
static twill_status fail_past(struct twill_comm *comm, uint32_t peer, const char *does,
                              const struct twill_call *theirs, const struct twill_call *ours,
                              uint64_t sequence)
{
    char name[128], own[128];
    twill_call_describe(theirs, sequence, name, sizeof(name));
    twill_call_describe(ours, sequence, own, sizeof(own));
    return TWILL_COMM_FAIL(comm, TWILL_ERR_MISMATCH,
                           "%s %s %s, which was a different call here: %s",
                           TWILL_ENGINE_RANK_NAME(&comm->engine, peer), does, name, own);
}

twill_status twill_comm_compare(struct twill_comm *comm, uint32_t peer,
                                const struct twill_call *theirs, uint64_t sequence)
{
    struct twill_call ours;
    if (call_is_same(comm, theirs, sequence, &ours))
        return TWILL_OK;
    bool over = comm->issue.queue == NULL && comm->making == NULL; /* waits for a message */
    if (sequence != comm->issue.sequence || over) { /* the peer did not need our data in it */
        comm->health->failed_call = sequence;
        return fail_past(comm, peer, "is still in", theirs, &ours, sequence);
    }
    char name[128];
    twill_call_describe(theirs, sequence, name, sizeof(name));
    return TWILL_COMM_FAIL(comm, TWILL_ERR_MISMATCH, "%s calls %s instead",
                           TWILL_ENGINE_RANK_NAME(&comm->engine, peer), name);
}

twill_status twill_comm_compare_past(struct twill_comm *comm, uint32_t peer,
                                     const struct twill_call *theirs, uint64_t sequence)
{
    struct twill_call ours;
    return call_is_same(comm, theirs, sequence, &ours)
               ? TWILL_OK
               : fail_past(comm, peer, "called", theirs, &ours, sequence);
}

/* Return the error if a peer's message is of a call that was a different one here. Return TWILL_OK
 * if it was the same, or if this rank has not made it yet or does not know it any more. */
static twill_status check_message(struct twill_engine *engine, uint32_t peer,
                                  const struct twill_message_call *call)
{
    struct twill_comm *comm = twill_comm_of(engine);
    struct twill_call ours, theirs = twill_call_of(call->what, call->count, call->root);
    int32_t ahead = (int32_t)(call->sequence - (uint32_t)comm->issue.sequence);
    uint64_t sequence = comm->issue.sequence + (uint64_t)(int64_t)ahead;
    if (call->sequence == 0 || ahead > 0 || !read_past(comm, comm->local, sequence, &ours))
        return TWILL_OK;
    theirs.count |= ours.count & ~(size_t)COUNT_SENT; /* a message carries only part of a hash */
    return ahead == 0 ? twill_comm_compare(comm, peer, &theirs, sequence)
                      : twill_comm_compare_past(comm, peer, &theirs, sequence);
}

/* The comparison of messages that have arrived early, on the stack of its only user. */
struct early_look {
    struct twill_comm *comm;
    twill_status status; /* TWILL_OK, or the error of the first that differs */
};

/* Compare the call of which an early message from rank `from` is a part with this rank's call of
 * the same number. Keep the error in `user`, a struct early_look. Do nothing if an earlier message
 * differed. */
static void compare_early(void *user, uint32_t from, const struct twill_message_call *call)
{
    struct early_look *look = user;
    if (look->status == TWILL_OK)
        look->status = check_message(&look->comm->engine, from, call);
}

twill_status twill_comm_compare_early(struct twill_comm *comm, bool all)
{
    struct early_look look = {.comm = comm, .status = TWILL_OK};
    for (unsigned t = 0; t < comm->links.transports; t++) {
        struct twill_transport *link = comm->links.transport[t];
        if (link->ops->early != NULL)
            link->ops->early(link, all, compare_early, &look);
    }
    return look.status;
}

/* Return TWILL_OK, or the error if one of this rank's last TWILL_PAST calls was another call on a
 * peer of this node. The present call is not compared. Calls in which no rank waits for another may
 * differ unnoticed. */
static twill_status check_past(struct twill_comm *comm, uint32_t peer)
{
    uint64_t first = comm->issue.sequence > TWILL_PAST ? comm->issue.sequence - TWILL_PAST + 1 : 1;
    for (uint64_t sequence = first; sequence < comm->issue.sequence; sequence++) {
        struct twill_call theirs;
        if (read_past(comm, comm->world->local[peer], sequence, &theirs))
            TWILL_TRY(&comm->error, twill_comm_compare_past(comm, peer, &theirs, sequence));
    }
    return TWILL_OK;
}

twill_status twill_comm_check_peer(struct twill_engine *engine, uint32_t peer, bool past)
{
    struct twill_comm *comm = twill_comm_of(engine);
    struct twill_call theirs;
    uint64_t sequence, entered;
    /* A peer that is ahead may have made another call under this number. */
    if (read_past(comm, comm->world->local[peer], comm->issue.sequence, &theirs))
        TWILL_TRY(&comm->error, twill_comm_compare(comm, peer, &theirs, comm->issue.sequence));
    if (twill_comm_read_call(comm, peer, &theirs, &sequence, &entered))
        TWILL_TRY(&comm->error, twill_comm_compare(comm, peer, &theirs, sequence));
    return past ? check_past(comm, peer) : TWILL_OK;
}

/* If *own is about another rank that has died, replace *own by TWILL_ERR_PEER with a message that
 * says so. Returns own->status. */
static twill_status check_death(struct twill_comm *comm, struct twill_error *own)
{
    char text[TWILL_DEATH_TEXT];
    if (own->rank >= comm->world->size || own->rank == comm->rank ||
        !twill_comm_is_dead(comm, own->rank))
        return own->status;
    uint32_t peer = own->rank;
    twill_error_clear(&comm->error);
    (void)TWILL_COMM_FAIL(comm, TWILL_ERR_PEER, "%s", twill_comm_death_text(comm, peer, text));
    *own = comm->error;
    own->rank = peer;
    twill_error_clear(&comm->error);
    return own->status;
}

/* Return the status to break the communicator with, and set comm->error to its message. They are
 * those of a notice of the cause by another rank, else `status` or, if an unreachable rank has
 * died, TWILL_ERR_PEER. On several nodes, wait for a notice if a transport or peer has failed or
 * calls differ. A notice that its sender has just left counts only for an error of that sender. */
static twill_status explain(struct twill_comm *comm, twill_status status)
{
    struct twill_error own = comm->error;
    uint64_t patience = status == TWILL_ERR_PEER ? TWILL_EXPLAIN_DEATH_NS : TWILL_EXPLAIN_NS;
    uint64_t deadline = twill_now() + patience;
    bool notified = comm->health->notified; /* then the error is the notice */
    uint32_t peer = comm->issue.differs - 1;
    bool differs = status == TWILL_ERR_MISMATCH && !notified && comm->issue.differs > 0;
    bool waits = comm->context->job.world.nodes > 1 &&
                 (status == TWILL_ERR_FABRIC || status == TWILL_ERR_PEER || differs);
    twill_status left = TWILL_OK;
    twill_error_clear(&comm->error);
    bool told = !differs;
    /* Turns are also counted, because nothing arrives while this host is stopped. */
    for (uint64_t turn = 0;
         waits && (turn < patience / TWILL_EXPLAIN_TURN_NS || twill_now() < deadline); turn++) {
        twill_error_clear(&comm->error);
        if (!told && turn % EXPLAIN_TELLS == 0) {
            twill_comm_report(comm, &peer, 1);
            told = twill_comm_tell_calls(comm, peer);
        }
        left = twill_comm_poll_failures(comm, true);
        if (left != TWILL_OK &&
            (left != TWILL_ERR_PEER || twill_notice_has_reason(&comm->health->notice)))
            return left;
        if (status == TWILL_ERR_FABRIC)
            status = check_death(comm, &own);
        uint32_t word = twill_node_sleep_begin(comm->node);
        twill_node_sleep(comm->node, word, TWILL_EXPLAIN_TURN_NS);
        twill_node_sleep_end(comm->node);
    }
    bool same = own.status != TWILL_OK && own.rank == comm->health->notice.from;
    if (left != TWILL_OK && (notified || (!differs && same)))
        return left;
    comm->health->notified = notified; /* otherwise this rank's own finding is sent to all */
    comm->error = own;
    if (strncmp(own.message, "rank ", 5) == 0)
        return status;
    twill_error_clear(&comm->error);
    (void)TWILL_COMM_FAIL(comm, status, "%s",
                          own.message[0] != '\0' ? own.message : twill_strerror(status));
    comm->error.rank = own.status != TWILL_OK ? own.rank : TWILL_NO_RANK;
    return status;
}

/* Log the failure, record it in the event ring, and notify the other ranks. One that another rank
 * has reported is published on this node only, with its original sentence and sender. That rank has
 * notified the other nodes. */
static void tell_others(struct twill_comm *comm, twill_status status)
{
    twill_say(comm->log, TWILL_LOG_INFO, "communicator %u fails: %s: %s", comm->number,
              twill_strerror(status), comm->error.message);
    twill_trace_failure(&comm->engine, status,
                        comm->health->notified ? comm->health->notice.from : comm->rank);
    /* 0 means any call. Messages under way have no number and can no longer be sent. */
    bool any = status == TWILL_ERR_REVOKED || comm->issue.points != NULL;
    uint64_t sequence = any                             ? 0
                        : comm->health->failed_call > 0 ? comm->health->failed_call
                                                        : comm->issue.sequence;
    twill_node_abort(comm->node, status,
                     comm->health->notified ? comm->health->notice.from : comm->rank, sequence,
                     comm->health->notified ? comm->health->notice.message : comm->error.message);
    if (comm->context->job.world.nodes > 1 && !comm->health->notified) {
        struct twill_notice notice = {.from = comm->rank, .comm = comm->number, .status = status};
        notice.state[0] = sequence;
        snprintf(notice.message, sizeof(notice.message), "%.*s", (int)sizeof(notice.message) - 1,
                 comm->error.message);
        twill_comm_notify(comm, &notice, TWILL_FAILURE_NOTIFY_NS);
    }
}

twill_status twill_comm_fail(struct twill_comm *comm, twill_status status, enum twill_cause cause)
{
    if (!comm->broken && cause == TWILL_CAUSE_ASKED)
        status = explain(comm, status);
    if (comm->world->size == 1 && status == TWILL_ERR_ARGUMENT && cause == TWILL_CAUSE_ASKED &&
        atomic_load(&comm->live) != TWILL_BREAKING)
        return status; /* no other rank is concerned */
    comm->broken = true;
    if (cause != TWILL_CAUSE_OWN)
        tell_others(comm, status);
    for (unsigned t = 0; t < comm->links.transports; t++)
        comm->links.transport[t]->ops->cancel(comm->links.transport[t]);
    twill_requests_fail(&comm->engine, status);
    if (comm->context->comms.observer != NULL)
        comm->context->comms.observer->broken(comm);
    return status;
}

twill_status twill_comm_usable_again(struct twill_comm *comm)
{
    if (TWILL_UNLIKELY(comm->broken))
        return TWILL_ERR_BROKEN;
    twill_error_clear(&comm->error);
    return TWILL_OK;
}

/* Return the name of the public call for an error message, or NULL if the message should name the
 * collective by its number. It is NULL only if `numbered`, a collective was called before, and no
 * communicator is being made. */
static const char *call_of_error(const struct twill_engine *engine, bool numbered)
{
    const struct twill_comm *comm = twill_comm_of(engine);
    const char *caller = atomic_load_explicit(&comm->claim.held, memory_order_relaxed);
    if (!numbered)
        return caller != NULL ? caller : "twill";
    if (comm->making != NULL)
        return comm->making;
    return comm->issue.sequence == 0 ? caller : NULL; /* 0: no collective so far */
}

/* The poll_failures() of twill_comm_ports. Returns TWILL_OK, or the error if another rank has
 * failed in this rank's call or an earlier one, or has revoked the communicator. */
static twill_status poll_failures(struct twill_engine *engine)
{
    return twill_comm_poll_failures(twill_comm_of(engine), false);
}

const struct twill_engine_ports twill_comm_ports = {
    .call_of_error = call_of_error,
    .check_peer = twill_comm_check_peer,
    .check_message = check_message,
    .poll_failures = poll_failures,
};
