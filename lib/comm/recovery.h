/* SPDX-License-Identifier: Apache-2.0 */
/* Recovery of a communicator of which ranks have failed: agreement among the survivors, and what is
 * built on it. The public calls are in lib/twill_recover.h. */
#ifndef TWILL_RECOVERY_H
#define TWILL_RECOVERY_H

#include "lib/comm/comm.h"
#include "lib/comm/consensus.h"

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
                         uint32_t port, const struct twill_decision **decision,
                         struct twill_error *error);
/* End a call of recovery: its error, if it has failed, replaces that of an earlier failure. Returns
 * the status. */
twill_status twill_recovery_conclude(struct twill_comm *comm, twill_status status,
                                     const struct twill_error *error);
/* Agree on a reduction that has returned `status` here. Returns TWILL_OK on all survivors or on
 * none. */
twill_status twill_agree_outcome(struct twill_comm *comm, twill_status status);
/* Make a communicator of the survivors of one that the caller holds, broken or not. */
twill_status twill_shrink(struct twill_comm **smaller, struct twill_comm *comm,
                          struct twill_error *error);
/* lib/comm/shrink.c. Listen for `ranks` others on a free port of a numeric address. The caller
 * closes *listener unless it is below 0, also after a failure. */
twill_status twill_recovery_listen(const char *address, uint32_t ranks, int *listener,
                                   uint16_t *port, struct twill_error *error);
/* lib/comm/shrink.c. Keep ranks that are left behind from writing to this process's memory. */
twill_status twill_recovery_fence(struct twill_comm *comm, struct twill_error *error);
/* lib/comm/grow.c. Rank 0: make the handle by which `joining` new processes join, and listen for
 * them; it replaces an earlier one. */
twill_status twill_growth_open(struct twill_comm *comm, uint32_t joining, char *handle,
                               struct twill_error *error);
/* Drop that handle, if there is one. */
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
                        const struct twill_growth_limits *limits, struct twill_error *error);
/* Make the communicator of all ranks of a new context, and end with the others. */
twill_status twill_grow_conclude(struct twill_comm **made, struct twill_context *context);

/* Return the last decision, or NULL. */
const struct twill_decision *twill_agree_last(const struct twill_comm *comm);

#endif
