/* SPDX-License-Identifier: Apache-2.0 */
/* What only this folder uses of a communicator and of its failure and recovery. */
#ifndef TWILL_COMM_INTERNAL_H
#define TWILL_COMM_INTERNAL_H

#include "fabric/detector/detector.h"
#include "lib/comm/recovery.h"

struct twill_internode_choice;
struct twill_rails_opening;

#define TWILL_MAILBOX_REPORTS 4u
#define TWILL_AWAITED_MOST    16u /* of the ranks that a call waits for, those that are looked at */

/* Failures. Any thread puts notices into the mailbox, under the context's lock. */
struct twill_comm_health {
    struct twill_mailbox {
        bool failed;
        struct twill_notice failure;
        unsigned reports; /* received; the last TWILL_MAILBOX_REPORTS are kept */
        struct twill_notice report[TWILL_MAILBOX_REPORTS];
    } mailbox;
    bool notified;              /* notice is set */
    struct twill_notice notice; /* the first failure that another rank reported */
    struct twill_wait_report {
        uint64_t in;                   /* this rank's call when it arrived */
        uint32_t rank;                 /* the root cause as far as the reporter knows */
    } * reported;                      /* [size] */
    struct twill_cause_search *search; /* lib/comm/wait_report.c; NULL: none is under way */
    uint64_t failed_call; /* number of the earlier call that has failed; 0: the current one */
    struct twill_recovery *recovery; /* lib/comm/agree.c: NULL: there was no agreement */
    struct twill_growth *growth;     /* lib/comm/grow.c: rank 0: a handle was made; or NULL */
};

/* --- making and ending one --- */

/* Add a communicator to its context's list of open ones, and remove it: from then on only the
 * caller uses it. */
twill_status twill_context_add(struct twill_context *context, struct twill_comm *comm,
                               struct twill_error *error);
void twill_context_remove(struct twill_context *context, struct twill_comm *comm);
/* Return why its holder must break the communicator; TWILL_OK: it need not, or it is broken. */
twill_status twill_comm_torn(struct twill_comm *comm);
/* Give back the memory of ranks of this node that have died and are in no open communicator: no
 * call uses it any more. Does nothing for a context that is at its end, where ranks have only ended
 * earlier than this one. */
void twill_heap_release_dead(struct twill_context *context);

/* --- lib/comm/split.c, lib/comm/comm_transports.c, lib/comm/comm_bootstrap.c --- */

/* Make a communicator of ranks[0 .. lent->size-1] of comm by an exchange
 * function, waiting timeout_ns at most in each step. Does not hold comm, which other threads may
 * use: reads only what never changes. */
twill_status twill_comm_make_over(struct twill_comm **made, const struct twill_comm *comm,
                                  const uint32_t *ranks, const twill_bootstrap *lent,
                                  uint64_t timeout_ns, struct twill_error *error);
/* The transport between nodes is chosen once, with the context's own
 * communicator, which has all ranks. */
bool twill_comm_chooses_internode(const struct twill_comm *comm);
twill_status twill_comm_offer_internode(struct twill_comm *comm,
                                        struct twill_internode_choice *choice,
                                        struct twill_oob_batch *batch);
void twill_comm_conclude_internode(struct twill_comm *comm, struct twill_internode_choice *choice);
/* How the ranks settle on the rails of that transport. Adds a part only if they are not known yet.
 * *opening is left alone then. The caller ends it. */
twill_status twill_comm_offer_rails(struct twill_comm *comm, struct twill_rails_opening **opening,
                                    struct twill_oob_batch *batch);
twill_status twill_comm_conclude_rails(struct twill_comm *comm,
                                       const struct twill_rails_opening *opening);
/* Note that the communicator has endpoints of its own; and close those. */
void twill_comm_begin_alone(struct twill_comm *comm);
void twill_comm_end_alone(struct twill_comm *comm);
/* Open the transports that the ranks need. Collective. */
twill_status twill_comm_open_transports(struct twill_comm *comm);
/* Note the rails for twill-info. */
void twill_comm_note_rails(struct twill_comm *comm);
/* Out-of-band exchange over an existing communicator, for setting up a new one. Only the new one's
 * members take part, so disjoint groups proceed independently.
 *
 * Open an exchange among ranks[0 .. size-1] of `over`, of which this is number `rank`. Messages use
 * the transports of `over`, which must have nothing under way; a failure breaks `over`. */
twill_status twill_oob_comm_open(struct twill_oob **oob, struct twill_comm *over,
                                 const uint32_t *ranks, uint32_t size, uint32_t rank,
                                 struct twill_error *error);
/* End set-up: `over` is not used any more and may be destroyed. Later exchanges fail. */
void twill_oob_comm_seal(struct twill_oob *oob);

/* --- lib/comm/comm_wait.c --- */

/* Advance the other communicators of the context that have requests pending. Returns the steps
 * made.
 */
int twill_comm_advance_others(struct twill_comm *self);
/* Forget the last timeout if one of the ranks it was for has taken part in a call since. */
void twill_context_forget_timeout(struct twill_context *context);
/* Look whether one of ranks[n], which this rank waits for, has died; those of other nodes only if
 * `distant`. Nothing has come since `quiet`. Returns the error if it is sure; *doubt: it is not
 * yet. */
twill_status twill_comm_look_for_death(struct twill_comm *comm, const uint32_t *ranks, unsigned n,
                                       bool distant, uint64_t quiet, bool *doubt);
/* Fail with a timeout of a wait since that time; name the awaited ranks and the one that all of
 * them wait for. After a short one nothing is asked: it follows another timeout. */
twill_status twill_comm_time_out(struct twill_comm *comm, uint64_t since);

/* --- lib/comm/failure.c --- */

/* In twill_call.collective, as published: a communicator is being made out of this one. */
#define TWILL_CALL_MAKES ((enum twill_collective)TWILL_COLLECTIVE_COUNT)
/* What the engine of a communicator asks. */
extern const struct twill_engine_ports twill_comm_ports;
/* struct twill_engine_ports */
twill_status twill_comm_check_peer(struct twill_engine *engine, uint32_t peer, bool past);
/* Copy the published call of a rank of the node. Returns false if it has none or is writing it. */
bool twill_comm_read_call(const struct twill_comm *comm, uint32_t peer, struct twill_call *call,
                          uint64_t *sequence, uint64_t *entered);
/* Describe the call that a rank of this node is in: "has been in allreduce #4 (...) for 1.0 s". */
void twill_comm_describe_peer(const struct twill_comm *comm, uint32_t peer, char *text,
                              size_t bytes);
/* Return the error if a peer's call of number `sequence` was another one here. */
twill_status twill_comm_compare(struct twill_comm *comm, uint32_t peer,
                                const struct twill_call *theirs, uint64_t sequence);
/* The same by the messages that have arrived too early (twill_transport_ops.early): a rank that
 * does not answer may have sent one. */
twill_status twill_comm_compare_early(struct twill_comm *comm, bool all);
/* Return the error if a peer's call of number `sequence`, which may have ended there, was another
 * one here. */
twill_status twill_comm_compare_past(struct twill_comm *comm, uint32_t peer,
                                     const struct twill_call *theirs, uint64_t sequence);

/* --- lib/comm/notification.c --- */

/* In state[1] of the notice of a failure: the sender has left the communicator, and does not say
 * why. Another notice may. */
#define TWILL_NOTICE_LEFT 1
static inline bool twill_notice_has_reason(const struct twill_notice *notice)
{
    return notice->state[1] != TWILL_NOTICE_LEFT;
}
/* Notify all ranks of a failure, within patience_ns. */
void twill_comm_notify(struct twill_comm *comm, const struct twill_notice *notice,
                       uint64_t patience_ns);
/* twill_comm_is_dead() for a caller that holds detector_lock. */
bool twill_comm_is_dead_locked(struct twill_comm *comm, uint32_t peer);
/* Is it dead, and all that it sent before has arrived: twill_detector_is_sure()? If not, *doubt
 * tells whether it is dead. */
bool twill_comm_is_surely_dead(struct twill_comm *comm, uint32_t peer, uint64_t quiet, bool *doubt);
/* Deliver what the detector has received, for all communicators. The caller holds detector_lock. */
void twill_context_receive_notices(struct twill_context *context);
/* Return the open communicator that a notice is for, or NULL; set *from to the sender's rank in it.
 * Two communicators may have the same number if no rank is in both: the sender identifies the right
 * one. The context is locked. */
struct twill_comm *twill_context_comm_of(struct twill_context *context,
                                         const struct twill_notice *notice, uint32_t *from);
/* Return the rank in this communicator of a rank of the job, or UINT32_MAX. */
uint32_t twill_comm_rank_of(const struct twill_comm *comm, uint32_t job);

/* --- lib/comm/wait_report.c --- */

/* Handle the report of another rank: answer it. Returns the error if that rank is in a call of this
 * rank's number with other arguments. */
twill_status twill_comm_take_report(struct twill_comm *comm, const struct twill_notice *notice);
/* Report whether a notice is a report that is to be answered. */
bool twill_report_asks(const struct twill_notice *notice);
/* Ask ranks[n], for which this rank has waited for too long, whom they wait for, and so on. Sets
 * *cause to the rank that does not answer or waits for none; else as twill_comm_missing(); and
 * place[bytes] to where it is, if it was asked. Returns the error if another rank reports a failure
 * meanwhile. Takes TWILL_SEARCH_NS at most. */
twill_status twill_comm_find_cause(struct twill_comm *comm, const uint32_t *ranks, unsigned n,
                                   uint32_t *cause, char *place, size_t bytes);
/* Report to ranks[n] on other nodes that this rank waits for them, in which call, and which rank is
 * the root cause as far as it knows. On the node, publish that rank. */
void twill_comm_report(struct twill_comm *comm, const uint32_t *ranks, unsigned n);
/* Return the root cause when this rank waits for `peer`: the rank that has not arrived, as far as
 * published calls and reports say. */
uint32_t twill_comm_missing(const struct twill_comm *comm, uint32_t peer);
/* Describe, after `before`, the first missing connection to these ranks. Returns text, or "". */
const char *twill_comm_describe_way(const struct twill_comm *comm, const uint32_t *ranks,
                                    unsigned n, const char *before, char *text, size_t bytes);
/* Send a rank of another node the last calls of this one, the oldest first: it fails by the first
 * that was another one there. Returns whether all were sent: not while the connection is made. */
bool twill_comm_tell_calls(struct twill_comm *comm, uint32_t to);
/* Answer a question to a communicator that no thread of this process is in a call on: where this
 * rank is. The context is locked. */
void twill_comm_answer_idle(struct twill_comm *comm, uint32_t to);

/* --- lib/comm/agree.c --- */

/* Handle a notice with data. The caller holds detector_lock. */
void twill_agree_receive(struct twill_context *context, const struct twill_notice *notice);
/* While the ranks connect after an agreement: answer those that have not learnt its decision.
 * Returns whether a rank has begun the next agreement, as it could not connect. */
bool twill_agree_is_over(struct twill_comm *comm);
/* A communicator ends: keep its last decision for ranks that ask for it later. */
void twill_agree_close(struct twill_comm *comm);

#endif
