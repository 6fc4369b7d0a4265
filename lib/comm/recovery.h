/* SPDX-License-Identifier: Apache-2.0 */
/* Recovery of a communicator some of whose ranks have failed, by agreement among the survivors, and
 * shrinking and growing on top of that. The public calls are in lib/twill_recover.h. */
#ifndef TWILL_RECOVERY_H
#define TWILL_RECOVERY_H

#include "lib/comm/comm.h"
#include "lib/comm/consensus.h"

/* Return whether all ranks that contributed to a decision were in this call. */
static inline bool twill_agreeing_alike(const struct twill_decision *decision,
                                        enum twill_agreeing_call call)
{
    return decision->calls == 1u << call;
}
/* Agree among the live ranks, for `call`. `flags` and `port` are this rank's contribution (struct
 * twill_decision). The caller holds the communicator, which may be broken. Returns TWILL_OK and the
 * decision, which is valid until the next agreement. Returns TWILL_ERR_EXCLUDED if the others
 * continue without this rank, which then also breaks the communicator here. Returns TWILL_ERR_PEER
 * if too few ranks remain, or TWILL_ERR_MEMORY. */
twill_status twill_agree(struct twill_comm *comm, enum twill_agreeing_call call, uint64_t flags,
                         uint32_t port, const struct twill_decision **decision,
                         struct twill_error *error);
/* If `status` is an error, set comm->error to it, with the message of `error` after the names of
 * this rank and its public call. Returns `status`. */
twill_status twill_recovery_conclude(struct twill_comm *comm, twill_status status,
                                     const struct twill_error *error);
/* Agree with the other ranks on a reduction that has returned `status` here. Returns TWILL_OK if it
 * is complete on all survivors. Otherwise all return an error, and the communicator breaks. A call
 * that did not begin, as it was refused or the communicator was broken, is not agreed on, and its
 * `status` is returned. */
twill_status twill_agree_outcome(struct twill_comm *comm, twill_status status);
/* Make *smaller of the survivors of `comm`, which is held. Returns TWILL_OK on all, or an error. On
 * success *smaller owns the context if `comm` did (twill_init()). */
twill_status twill_shrink(struct twill_comm **smaller, struct twill_comm *comm,
                          struct twill_error *error);
/* lib/comm/shrink.c. Listen on a free port of a numeric address, for up to `ranks` ranks. The
 * caller closes *listener if it is not negative. Stores *port. Returns TWILL_OK or the error. */
twill_status twill_recovery_listen(const char *address, uint32_t ranks, int *listener,
                                   uint16_t *port, struct twill_error *error);
/* lib/comm/shrink.c. Keep ranks that are left behind from writing to this process's memory. Returns
 * TWILL_OK, also where that is impossible, after a warning in the log, or the error. */
twill_status twill_recovery_fence(struct twill_comm *comm, struct twill_error *error);
/* lib/comm/grow.c. On rank 0, listen for `joining` new processes and write their handle to
 * handle[TWILL_JOIN_HANDLE_TEXT], in place of an earlier one. Returns TWILL_OK or the error. */
twill_status twill_growth_open(struct twill_comm *comm, uint32_t joining, char *handle,
                               struct twill_error *error);
/* Drop the handle of twill_growth_open(), if there is one, and stop listening. */
void twill_growth_close(struct twill_comm *comm);
/* Limits of the wait for new processes, in addition to TWILL_TIMEOUT. On the caller's stack. */
struct twill_growth_limits {
    uint64_t timeout_ns;
    bool (*lacks)(const void *user); /* called on rank 0; returns whether a new process has died */
    const void *user;
};
/* Make *larger of the ranks of `comm`, all of which must live, and of the new processes that join
 * by the handle of rank 0. Collective over all of them. `limits` may be NULL. Returns TWILL_OK on
 * all ranks of `comm`, or an error on all. The handle is dropped in both cases. On success, if
 * `comm` owned its context (twill_init()), *larger owns that and its new one. */
twill_status twill_grow(struct twill_comm **larger, struct twill_comm *comm,
                        const struct twill_growth_limits *limits, struct twill_error *error);
/* In a new process, make *made, the communicator of all ranks of its context, together with the old
 * ranks and the other new processes. Returns TWILL_OK if all of them have made it. Otherwise
 * returns the error, with its message in the context. *made is then NULL, or unchanged if it could
 * not be opened here. */
twill_status twill_grow_conclude(struct twill_comm **made, struct twill_context *context);
/* Return the decision of the last agreement on a communicator, or NULL if there is none. */
const struct twill_decision *twill_agree_last(const struct twill_comm *comm);

#endif
