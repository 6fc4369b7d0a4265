/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations for this folder only, about communicators, their failure and their recovery. */
#ifndef TWILL_COMM_INTERNAL_H
#define TWILL_COMM_INTERNAL_H

#include "fabric/detector/detector.h"
#include "fabric/shm/node_room.h"
#include "lib/comm/recovery.h"

struct twill_internode_choice;
struct twill_rails_opening;
#define TWILL_MAILBOX_REPORTS 4u
#define TWILL_AWAITED_MOST    16u /* ranks that are looked at, of those that a call waits for */

/* State of failure and recovery, a part of one communicator. Any thread puts notices into the
 * mailbox, under the context's lock. `recovery` is under its detector_lock. */
struct twill_comm_health {
    struct twill_mailbox { /* notices that have arrived and are not handled yet */
        bool failed;       /* `failure` is set */
        struct twill_notice failure;
        unsigned reports; /* number received; the last TWILL_MAILBOX_REPORTS are kept */
        struct twill_notice report[TWILL_MAILBOX_REPORTS];
    } mailbox;
    bool notified;              /* `notice` is set */
    struct twill_notice notice; /* failure that another rank reported */
    /* The last report of each rank that waits. Used by the thread that holds the communicator. */
    struct twill_wait_report {
        uint64_t in;                   /* number of this rank's call when it arrived */
        uint32_t rank;                 /* root cause, as far as the reporter knows */
    } * reported;                      /* [size] */
    struct twill_cause_search *search; /* search under way (wait_report.c), or NULL */
    uint64_t failed_call; /* number of the earlier call that has failed, or 0 for the current one */
    struct twill_recovery *recovery; /* agree.c; NULL before the first agreement */
    struct twill_growth *growth;     /* grow.c, or NULL unless rank 0 has made a handle */
};

/* --- making and ending one --- */
/* What each rank contributes to a communicator that is made out of another. Sent as it is. */
struct twill_comm_offer {
    uint64_t what;                 /* hash of the ranks, or 0 */
    uint64_t next;                 /* lowest number that this rank has not used */
    uint64_t has_room;             /* without a parent: a communicator of the context has room */
    struct twill_room_place place; /* for node memory */
};
/* Return what this rank offers for a communicator that is made out of `parent`, or NULL. */
struct twill_comm_offer twill_comm_offer(struct twill_context *context,
                                         const struct twill_comm *parent);
/* Give back an offered place, unless `made`, which may be NULL, or a closed communicator has it. If
 * it is `known` to other ranks, these find *error of this one in the communicator. */
void twill_comm_settle(const struct twill_comm *parent, const struct twill_comm *made,
                       const struct twill_room_place *place, bool known,
                       const struct twill_error *error);
/* Reserve memory to add a communicator, or give it back. Returns TWILL_OK or TWILL_ERR_MEMORY. */
twill_status twill_context_reserve(struct twill_context *context, struct twill_error *error);
void twill_context_unreserve(struct twill_context *context);
/* Add a communicator to its context's list of open ones, in reserved memory. */
void twill_context_add(struct twill_context *context, struct twill_comm *comm);
/* Take a communicator off its context's list of open ones, if it is on it. */
void twill_context_remove(struct twill_context *context, struct twill_comm *comm);
/* If `comm` is torn and not broken, set comm->error to the reason and return its status, with which
 * the holder must break it. Otherwise return TWILL_OK. comm->live of a torn one becomes
 * BREAKING. */
twill_status twill_comm_torn(struct twill_comm *comm);

/* --- lib/comm/split.c, lib/comm/comm_transports.c, lib/comm/comm_bootstrap.c --- */
/* Make *made of ranks[0 .. lent->size-1] of `comm` by an exchange function. Each step waits at most
 * timeout_ns. Only reads what never changes in `comm`. Returns TWILL_OK or the error. */
twill_status twill_comm_make_over(struct twill_comm **made, const struct twill_comm *comm,
                                  const uint32_t *ranks, const twill_bootstrap *lent,
                                  uint64_t timeout_ns, struct twill_error *error);
/* Return whether this communicator chooses the transport between nodes. Only the context's own
 * communicator, which has all ranks, does that, and only on several nodes. */
bool twill_comm_chooses_internode(const struct twill_comm *comm);
/* Set *choice to the priorities of the transports between nodes on this rank, and add them to an
 * exchange. It fills choice->all with those of all ranks, so *choice must stay until then. The
 * caller then calls twill_comm_conclude_internode() and frees choice->all, also after an error.
 * Returns TWILL_OK or TWILL_ERR_MEMORY. */
twill_status twill_comm_offer_internode(struct twill_comm *comm,
                                        struct twill_internode_choice *choice,
                                        struct twill_oob_batch *batch);
/* Set the context's transport between nodes to the best one by the priorities of all ranks in
 * *choice, or to NULL if none works on all ranks. Add a note that says why. Called after the
 * exchange of twill_comm_offer_internode(). Does not free choice->all. */
void twill_comm_conclude_internode(struct twill_comm *comm, struct twill_internode_choice *choice);
/* Add this rank's rails to an exchange, and store *opening, which the caller ends later. If there
 * are none or they are known, leave *opening NULL. Returns TWILL_OK or the error. */
twill_status twill_comm_offer_rails(struct twill_comm *comm, struct twill_rails_opening **opening,
                                    struct twill_oob_batch *batch);
/* After the exchange, store the rails of the job as the transport between nodes. `opening` is what
 * twill_comm_offer_rails() stored, and remains the caller's. If it is NULL, do nothing. Returns
 * TWILL_OK, or an error that is the same on all ranks, except out of memory. */
twill_status twill_comm_conclude_rails(struct twill_comm *comm,
                                       const struct twill_rails_opening *opening);
/* Note in the context that the communicator has its own endpoints. */
void twill_comm_begin_alone(struct twill_comm *comm);
/* Close the communicator's own endpoints, and take them off the context's list. */
void twill_comm_end_alone(struct twill_comm *comm);
/* Open the transports that the communicator needs, set the route to each rank, and fit the lengths
 * of segments to the transports. For the communicator of all ranks, also add notes to the context.
 * Collective. Returns TWILL_OK or the error. */
twill_status twill_comm_open_transports(struct twill_comm *comm);
/* Return whether twill_comm_open_transports() exchanges something, so that all ranks must call it
 * while the communicator is made. */
bool twill_comm_transports_meet(struct twill_comm *comm);
/* Add a note of the rails in use to the context, for twill-info. */
void twill_comm_note_rails(struct twill_comm *comm);
/* Open *oob, an out-of-band exchange over an existing communicator, to set up a new one. Its
 * members are ranks[0 .. size-1] of `over`, and this rank is number `rank` of them. No other rank
 * takes part, so disjoint groups proceed independently. Messages use the transports of `over`,
 * which must have nothing under way. A failure breaks `over`. Returns TWILL_OK or the error. */
twill_status twill_oob_comm_open(struct twill_oob **oob, struct twill_comm *over,
                                 const uint32_t *ranks, uint32_t size, uint32_t rank,
                                 struct twill_error *error);
/* End the set-up for which twill_oob_comm_open() has opened the exchange. It no longer uses the
 * communicator that it was opened over, which may then be destroyed. Later exchanges return
 * TWILL_ERR_INTERNAL. */
void twill_oob_comm_seal(struct twill_oob *oob);

/* --- lib/comm/comm_wait.c --- */
/* Advance the other communicators of the context that have requests pending, and its advancers
 * (struct twill_advancer). Returns the steps made, or 0 at once if nothing of them is pending. */
int twill_comm_advance_others(struct twill_comm *self);
/* Forget the context's last timeout if a rank that it was for has taken part in a call since. */
void twill_context_forget_timeout(struct twill_context *context);
/* Look whether one of ranks[0 .. n-1], which this rank waits for, has died, on other nodes only if
 * `distant`. Nothing has arrived since `quiet`, a twill_now(). Returns TWILL_ERR_PEER, with
 * comm->error set, if a death is certain, and TWILL_OK otherwise. *doubt says whether one seems
 * dead but may have sent more. */
twill_status twill_comm_look_for_death(struct twill_comm *comm, const uint32_t *ranks, unsigned n,
                                       bool distant, uint64_t quiet, bool *doubt);
/* Record in the context that a wait has timed out, which began at `since` (a twill_now()). Set
 * comm->error to a message with the awaited ranks and the rank that all of them wait for. The ranks
 * are asked for that, unless a timeout of another communicator has shown it or the deadline was a
 * shortened one. Returns TWILL_ERR_TIMEOUT, or another error that has come up meanwhile. The caller
 * then breaks the communicator. */
twill_status twill_comm_time_out(struct twill_comm *comm, uint64_t since);

/* --- lib/comm/failure.c --- */
/* Value of a published twill_call.collective while a communicator is being made out of this one. */
#define TWILL_CALL_MAKES ((enum twill_collective)TWILL_COLLECTIVE_COUNT)
/* The functions of a communicator that its engine calls. */
extern const struct twill_engine_ports twill_comm_ports;
/* Compare this rank's calls with the last published call of a rank of its node and, if `past`, with
 * its last TWILL_PAST. Returns TWILL_ERR_MISMATCH if one differs, and TWILL_OK otherwise. */
twill_status twill_comm_check_peer(struct twill_engine *engine, uint32_t peer, bool past);
/* Copy the last published call of a rank of this node, its number, and when it was entered in
 * twill_ticks(). Returns false if the rank has made no call or is just publishing one. */
bool twill_comm_read_call(const struct twill_comm *comm, uint32_t peer, struct twill_call *call,
                          uint64_t *sequence, uint64_t *entered);
/* Write to text[bytes] which call a rank of this node is in, such as "has been in allreduce #4
 * (...) for 1.0 s". If it is in none, write where else it waits, if that is known, and its last
 * call. */
void twill_comm_describe_peer(const struct twill_comm *comm, uint32_t peer, char *text,
                              size_t bytes);
/* Compare a peer's call number `sequence`, which it is in, with this rank's call of that number.
 * Returns TWILL_ERR_MISMATCH, with comm->error set, if they differ, and TWILL_OK if not or if this
 * rank's is not known. */
twill_status twill_comm_compare(struct twill_comm *comm, uint32_t peer,
                                const struct twill_call *theirs, uint64_t sequence);
/* Compare the call of each message that arrived before its receive was posted with this rank's call
 * of the same number. A rank that does not answer may have sent one. With `all`, include ranks that
 * this rank has not connected to, which may cost memory. Returns TWILL_OK or the first error,
 * TWILL_ERR_MISMATCH. */
twill_status twill_comm_compare_early(struct twill_comm *comm, bool all);
/* Compare a peer's call number `sequence`, which may have ended there, with this rank's of that
 * number. Returns TWILL_ERR_MISMATCH, with comm->error set, if they differ, and TWILL_OK if not or
 * if this rank's is not known. */
twill_status twill_comm_compare_past(struct twill_comm *comm, uint32_t peer,
                                     const struct twill_call *theirs, uint64_t sequence);

/* --- lib/comm/notification.c --- */
#define TWILL_NOTICE_LEFT 1 /* state[1] of the notice of a failure without a reason */
/* Return whether the notice of a failure states a reason, so that its sender has not just left. */
static inline bool twill_notice_has_reason(const struct twill_notice *notice)
{
    return notice->state[1] != TWILL_NOTICE_LEFT;
}
/* Notify all ranks of a failure, blocking for at most patience_ns. */
void twill_comm_notify(struct twill_comm *comm, const struct twill_notice *notice,
                       uint64_t patience_ns);
/* Return whether a rank's process has ended or destroyed its context. detector_lock is held. */
bool twill_comm_is_dead_locked(struct twill_comm *comm, uint32_t peer);
/* Return whether a rank is dead and all that it sent before has arrived (twill_detector_is_sure()).
 * The caller has received nothing since `quiet`, a twill_now(). *doubt becomes whether the rank
 * seems to be dead now, even if that is not sure yet and the result is false. */
bool twill_comm_is_surely_dead(struct twill_comm *comm, uint32_t peer, uint64_t quiet, bool *doubt);
/* Deliver the notices that the detector has received. The caller holds detector_lock. */
void twill_context_receive_notices(struct twill_context *context);
/* Return the open communicator that a notice is for, or NULL, and set *from to the sender's rank in
 * it. As unrelated communicators may share a number, the sender decides. The context is locked. */
struct twill_comm *twill_context_comm_of(struct twill_context *context,
                                         const struct twill_notice *notice, uint32_t *from);
/* Return the rank in this communicator of a rank of the job, or UINT32_MAX if it is no member. */
uint32_t twill_comm_rank_of(const struct twill_comm *comm, uint32_t job);

/* --- lib/comm/wait_report.c --- */
/* Handle another rank's report of its wait, and answer it if it asks. Returns TWILL_ERR_MISMATCH if
 * the rank has made another call than this rank under one number, and TWILL_OK otherwise. */
twill_status twill_comm_take_report(struct twill_comm *comm, const struct twill_notice *notice);
/* Return whether a notice is a report that asks for an answer. */
bool twill_report_asks(const struct twill_notice *notice);
/* Find the rank that blocks ranks[0 .. n-1], for which this rank has waited too long. Ask them whom
 * they wait for, then ask those, and so on. Sets *cause to the first rank that does not answer, or
 * else to the first that waits for none. If there is neither, *cause is twill_comm_missing() of
 * ranks[0]. If *cause was asked, writes where it is, or that it does not answer, to place[bytes].
 * Otherwise place[] is left as it is. Returns the error if another rank reports a failure
 * meanwhile, and TWILL_OK otherwise. Takes at most TWILL_SEARCH_NS. */
twill_status twill_comm_find_cause(struct twill_comm *comm, const uint32_t *ranks, unsigned n,
                                   uint32_t *cause, char *place, size_t bytes);
/* Report to those of ranks[0 .. n-1] that are on other nodes that this rank waits for them, in
 * which call, and which rank it knows as the root cause. Publish that rank on this node. */
void twill_comm_report(struct twill_comm *comm, const uint32_t *ranks, unsigned n);
/* Return the rank that a wait for `peer` is due to, as far as published calls and reports show. */
uint32_t twill_comm_missing(const struct twill_comm *comm, uint32_t peer);
/* Describe the first missing connection to one of ranks[0 .. n-1], after the text `before`. Returns
 * `text`, or "" if none is missing. */
const char *twill_comm_describe_way(const struct twill_comm *comm, const uint32_t *ranks,
                                    unsigned n, const char *before, char *text, size_t bytes);
/* Send this rank's last TWILL_PAST calls, the oldest first, to rank `to`, which fails on the first
 * that differs from its own. Returns whether all were sent, which needs a connection. A rank of
 * this node reads them in the node memory. For that one, this sends nothing and returns true. */
bool twill_comm_tell_calls(struct twill_comm *comm, uint32_t to);
/* Answer rank `to` where this rank is, in no call on `comm`. The caller has locked the context. */
void twill_comm_answer_idle(struct twill_comm *comm, uint32_t to);

/* --- lib/comm/agree.c --- */
/* Handle a notice that carries a message of an agreement. The caller holds detector_lock. */
void twill_agree_receive(struct twill_context *context, const struct twill_notice *notice);
/* While the survivors of a shrink connect, receive messages, and send the last decision to ranks
 * that lack it. Returns true if a survivor, which could not connect, has already begun the next
 * agreement, so that connecting is in vain. */
bool twill_agree_is_over(struct twill_comm *comm);
/* Free the agreements of a communicator that ends, but keep its last decision for late ranks. */
void twill_agree_close(struct twill_comm *comm);

#endif
