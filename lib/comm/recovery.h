/* SPDX-License-Identifier: Apache-2.0 */
/* Recovery of a communicator of which ranks have failed: agreement among the survivors, and what is
 * built on it. The public calls are in lib/twill_recover.h. */
#ifndef TWILL_RECOVERY_H
#define TWILL_RECOVERY_H

#include "fabric/bootstrap/join_handle.h"
#include "lib/comm/comm.h"
#include "lib/comm/consensus.h"

/* In state[1] of the notice of a failure: the sender has left the communicator, and does not say
 * why. Another notice may. */
#define TWILL_NOTICE_LEFT 1
static inline bool twill_notice_has_reason(const struct twill_notice *notice)
{
    return notice->state[1] != TWILL_NOTICE_LEFT;
}
/* Describe, after `before`, the first missing connection to these ranks. Returns text, or "". */
const char *twill_comm_describe_way(const struct twill_comm *comm, const uint32_t *ranks,
                                    unsigned n, const char *before, char *text, size_t bytes);
/* Report whether all ranks that contributed to a decision were in this call. */
static inline bool twill_agreeing_alike(const struct twill_decision *decision,
                                        enum twill_agreeing_call call)
{
    return decision->calls == 1u << call;
}
/* Agree among the ranks that live, for a call. flags: this rank's; port: see struct twill_decision.
 * The caller holds the communicator, which may be broken. *decision is valid until the next
 * agreement. Returns TWILL_ERR_EXCLUDED, TWILL_ERR_PEER if too few ranks remain, TWILL_ERR_MEMORY.
 */
twill_status twill_agree(struct twill_comm *comm, enum twill_agreeing_call call, uint64_t flags,
                         uint32_t port, const struct twill_decision **decision);
/* Set the sentence of a recovery that has failed, which replaces that of an earlier failure, and
 * return the status. Use the macro. */
twill_status twill_recovery_fail(struct twill_comm *comm, twill_status status, const char *file,
                                 int line, const char *format, ...) TWILL_PRINTF(5, 6);
#define TWILL_RECOVERY_FAIL(comm, status, ...)                                                     \
    twill_recovery_fail((comm), (status), __FILE__, __LINE__, __VA_ARGS__)
/* Handle a notice with data. The caller holds detector_lock. */
void twill_agree_receive(struct twill_context *context, const struct twill_notice *notice);
/* While the ranks connect after an agreement: answer those that have not learnt its decision.
 * Returns whether a rank has begun the next agreement, as it could not connect. */
bool twill_agree_is_over(struct twill_comm *comm);
/* A communicator ends: keep its last decision for ranks that ask for it later. */
void twill_agree_close(struct twill_comm *comm);
/* Agree on a reduction that has returned `status` here. Returns TWILL_OK on all survivors or on
 * none. */
twill_status twill_agree_outcome(struct twill_comm *comm, twill_status status);
/* Make a communicator of the survivors of one that the caller holds, broken or not. */
twill_status twill_shrink(struct twill_comm **smaller, struct twill_comm *comm);
/* lib/comm/shrink.c. Listen for `ranks` others on a free port of a numeric address. The caller
 * closes *listener unless it is below 0, also after a failure. */
twill_status twill_recovery_listen(const char *address, uint32_t ranks, int *listener,
                                   uint16_t *port, struct twill_error *error);
/* lib/comm/shrink.c. Keep ranks that are left behind from writing to this process's memory. */
twill_status twill_recovery_fence(struct twill_comm *comm, struct twill_error *error);
/* lib/comm/grow.c. Rank 0: make the handle by which `joining` new processes join, and listen for
 * them; it replaces an earlier one. */
twill_status twill_growth_open(struct twill_comm *comm, uint32_t joining,
                               char handle[TWILL_JOIN_HANDLE_TEXT]);
void twill_growth_close(struct twill_comm *comm);
/* How long to wait for new processes, if not for TWILL_TIMEOUT. */
struct twill_growth_limits {
    uint64_t timeout_ns;
    bool (*lacks)(const void *user); /* Report whether one of them has died; asked on rank 0 */
    const void *user;
};
/* Make a communicator of the ranks of comm, which is whole, and of the new processes that its rank
 * 0 has made a handle for. limits: NULL for none. */
twill_status twill_grow(struct twill_comm **larger, struct twill_comm *comm,
                        const struct twill_growth_limits *limits);
/* New process: make that communicator, and its context, which also has the error. */
twill_status twill_grow_into(struct twill_comm **made, struct twill_context **context,
                             const char *handle, const char *const *settings);
/* Make the communicator of all ranks of a new context, and end with the others. */
twill_status twill_grow_conclude(struct twill_comm **made, struct twill_context *context);
/* lib/api/init.c. End a call that makes a context and its communicator, which then owns it. Else
 * destroy it and say why, which is in `error`. */
twill_status twill_init_finish(struct twill_comm **comm, struct twill_context *context,
                               twill_status status, const struct twill_error *error, char *message,
                               size_t bytes);

/* lib/comm/elastic.c. Jobs of twillrun --elastic. */
/* Report whether this process was started to join a job that runs. */
bool twill_elastic_joins(void);
/* Report whether this is such a job and all its ranks have failed; has_ended() of struct twill_join
 * in a new process. */
bool twill_elastic_is_over(void *user, uint32_t rank);
/* Return the address at which other hosts of an elastic job reach this one, or NULL. */
const char *twill_elastic_address(char address[TWILL_ADDRESS_TEXT]);
/* The new process is a rank of the job now. */
void twill_elastic_joined(void);
/* Wait for the handle of that job, until *deadline; 0: it is set, TWILL_TIMEOUT from now. */
twill_status twill_elastic_await(const char *const *settings, uint64_t *deadline,
                                 char handle[TWILL_JOIN_HANDLE_TEXT], struct twill_error *error);
/* The job has started: from now on twillrun replaces ranks that die. */
void twill_elastic_started(const struct twill_comm *comm);
/* Take in the processes that wait, if any: else *larger is not changed. The caller holds comm,
 * which is released. */
twill_status twill_elastic_admit(struct twill_comm **larger, struct twill_comm *comm);

/* Return the last decision, or NULL. */
const struct twill_decision *twill_agree_last(const struct twill_comm *comm);

/* lib/comm/failure.c. Return the error if a peer's call of number `sequence`, which may have
 * ended there, was another one here. */
twill_status twill_comm_compare_past(struct twill_comm *comm, uint32_t peer,
                                     const struct twill_call *theirs, uint64_t sequence);
/* lib/comm/wait_report.c. Send a rank of another node the last calls of this one, the oldest
 * first: it fails by the first that was another one there. Returns whether all were sent: not while
 * the connection is made. */
bool twill_comm_tell_calls(struct twill_comm *comm, uint32_t to);
/* lib/comm/wait_report.c. Answer a question to a communicator that no thread of this process is
 * in a call on: where this rank is. The context is locked. */
void twill_comm_answer_idle(struct twill_comm *comm, uint32_t to);

#endif
