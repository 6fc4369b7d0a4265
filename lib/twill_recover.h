/* SPDX-License-Identifier: Apache-2.0 */
/** \file twill_recover.h
 * \brief Going on after ranks have failed.
 *
 * A call that fails because a rank has died breaks its communicator, on all ranks. The survivors
 * then call twill_comm_shrink(), which gives them a communicator without the failed ranks, and
 * twill_comm_leave() or twill_comm_destroy() on the broken one:
 *
 *     while (twill_allreduce(comm, src, dst, count, TWILL_F32, TWILL_SUM) != TWILL_OK) {
 *         twill_comm *smaller;
 *         if (twill_comm_shrink(&smaller, comm) != TWILL_OK)
 *             return give_up(twill_comm_message(comm));
 *         twill_comm_leave(comm);
 *         comm = smaller;
 *     }
 *
 * Conventions are those of twill.h. Ranks are processes here: threads of one process die together.
 */
#ifndef TWILL_RECOVER_H
#define TWILL_RECOVER_H

#include "twill.h"

#ifdef __cplusplus
extern "C" {
#endif

/** \defgroup twill_recovery Recovery
 *
 * Except twill_comm_revoke(), all survivors call these functions alike, in the same order. Every
 * rank waits for each other at most for the communicator's timeout (TWILL_TIMEOUT,
 * twill_comm_set_timeout()): a rank that lives but does not call is then treated as failed, and
 * gets ::TWILL_ERR_EXCLUDED when it does. If ranks on other hosts are silent but not known to be
 * dead, the survivors go on only if they are a majority, or half with the lowest rank, so that a
 * network that falls apart does not leave two jobs. \return as described in twill_collectives(3),
 * and: ::TWILL_ERR_EXCLUDED.
 * @{ */

/** \brief End the communicator on all its ranks: pending and later calls, also those that other
 * threads and ranks are in, return ::TWILL_ERR_REVOKED, then ::TWILL_ERR_BROKEN. Any thread may
 * call it at any time; it does not wait for other ranks. */
TWILL_API twill_status twill_comm_revoke(twill_comm *comm);

/** \brief Agree on the bitwise AND of \p *flags over the ranks that live, and on which ranks have
 * failed. All that return
 * ::TWILL_OK have the same result, whichever ranks die meanwhile. A failed rank's flags may or may
 * not be in it. \p comm may be broken, and stays so. */
TWILL_API twill_status twill_comm_agree(twill_comm *comm, uint64_t *flags);

/** \brief Make a communicator of the ranks that live, in the same order, in the same context:
 * memory of twill_alloc() and registrations are kept. All survivors get it, or none. If \p comm was
 * made by twill_init(), \p *smaller takes its place: twill_finalize() it at the end. \p comm stays
 * as it was: end it with twill_comm_leave(). If a rank of this node is left behind alive, it must
 * not write to the survivors' memory any more: memory of twill_alloc() then moves to pages of this
 * process alone, at the same addresses, and large messages in it are copied from now on. No other
 * thread may write to it during the call. */
TWILL_API twill_status twill_comm_shrink(twill_comm **smaller, twill_comm *comm);

/** \brief What the last twill_comm_agree() or twill_comm_shrink() found, the same on all survivors.
 */
typedef struct twill_outcome {
    int failed;             /**< ranks of the communicator that have failed */
    int survivors;          /**< the others */
    uint64_t complete;      /**< collectives that are complete on all survivors, counted from the
                               communicator's start */
    uint64_t complete_some; /**< collectives that are complete on some survivor: if it is the same
                               number, the last collective either is complete on all survivors or on
                               none */
} twill_outcome;
/** \brief Return the outcome of the last agreement. Local. \return ::TWILL_ERR_ARGUMENT if there
 * was none. */
TWILL_API twill_status twill_comm_outcome(const twill_comm *comm, twill_outcome *outcome);
/** \brief Return the \p index-th failed rank of the last agreement, ascending from index 0; -1: no
 * more. Local. */
TWILL_API int twill_comm_failed_rank(const twill_comm *comm, int index);
/** @} */

#ifdef __cplusplus
}
#endif
#endif
