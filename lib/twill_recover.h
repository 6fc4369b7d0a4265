/* SPDX-License-Identifier: Apache-2.0 */
/** \file twill_recover.h
 * \brief Going on after ranks have failed, and with new ones.
 *
 * A call that fails because a rank has died breaks its communicator, on all ranks. The survivors
 * then call twill_comm_shrink(), which gives them a communicator without the failed ranks, and
 * twill_comm_leave() or twill_comm_destroy() on the broken one:
 *
 *     twill_comm *smaller;
 *     while (twill_allreduce(comm, x, x, n, TWILL_F32, TWILL_SUM) != TWILL_OK) {
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
 * call it at any time before twill_comm_destroy() or twill_comm_leave() has returned; it does not
 * wait for other ranks, and for a thread that computes in a call on it some 0.1 s. Those two wait
 * for it, at most TWILL_TIMEOUT: then they keep the communicator, with a warning. */
TWILL_API twill_status twill_comm_revoke(twill_comm *comm);

/** \brief Agree on the bitwise AND of \p *flags over the ranks that live, and on which ranks have
 * failed. All that return
 * ::TWILL_OK have the same result, whichever ranks die meanwhile. A failed rank's flags may or may
 * not be in it. ::TWILL_ERR_MISMATCH: a rank was in twill_comm_shrink() or another call. \p comm
 * may be broken, and stays so. */
TWILL_API twill_status twill_comm_agree(twill_comm *comm, uint64_t *flags);

/** \brief Make a communicator of the ranks that live, in the same order, in the same context:
 * memory of twill_alloc() and registrations are kept. All survivors get it, or none. If \p comm was
 * made by twill_init(), \p *smaller takes its place: twill_finalize() it at the end. \p comm stays
 * as it was: end it with twill_comm_leave(). If a rank of this node is left behind alive, it must
 * not write to the survivors' memory any more: memory of twill_alloc() then moves to pages of this
 * process alone, at the same addresses, and large messages in it are copied from now on. No other
 * thread may write to it during the call. */
TWILL_API twill_status twill_comm_shrink(twill_comm **smaller, twill_comm *comm);

/** @} */

/** \defgroup twill_growth Growing
 *
 * New processes join a job that runs. Its rank 0 makes a handle, a line of text that says where the
 * job is, and the caller brings it to them, by a file or a store of its own. Then all ranks call
 * twill_comm_grow(), each new process twill_comm_join(), and all have a larger communicator: the
 * old ranks keep their numbers, the new ones follow.
 *
 *     char handle[TWILL_HANDLE_BYTES];
 *     if (rank == 0 && twill_comm_handle(comm, 1, handle) == TWILL_OK)
 *         bring_to_new_process(handle);
 *     if (twill_comm_grow(&larger, comm) == TWILL_OK) {
 *         twill_comm_leave(comm);
 *         comm = larger;
 *     }
 *
 * A new process shows that it belongs to the job by the job's key: TWILL_JOB, or a key file
 * (TWILL_KEY_FILE, ~/.twill/key). Its variables must agree with those of the job as at the start.
 * @{ */

#define TWILL_HANDLE_BYTES 256 /**< \brief space for a handle */

/** \brief Make the handle by which \p joining new processes join. Only rank 0 calls it. It listens
 * for them from then on, until the next twill_comm_grow() or the end of \p comm; another handle
 * replaces it. The handle has no secret in it, and is good for one growth. Without TWILL_INTERFACE
 * only processes of the same host can join a job that is on one host.
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT, ::TWILL_ERR_SYSTEM, ::TWILL_ERR_MEMORY */
TWILL_API twill_status twill_comm_handle(twill_comm *comm, int joining, char *handle);

/** \brief Make a communicator of the ranks of \p comm, in the same order, and of the new processes
 * after them. All ranks of \p comm call it; all get it, or none. \p comm must not be broken and
 * stays as it was, also if this fails: end it with twill_comm_leave(). \p *larger belongs to a new
 * context: operations, registrations and the function of twill_context_idle() are its, too, and
 * twill_alloc() memory of the old one stays valid: the new ranks do not share it, so that large
 * messages in it are copied. If \p comm was made by twill_init(), \p *larger takes its place:
 * twill_finalize() it at the end, free memory by its context, and do not use the old context any
 * more. Waits for new processes at most for the timeout of \p comm.
 * \return as described in twill_collectives(3), and: ::TWILL_ERR_BROKEN, ::TWILL_ERR_PEER (a rank
 * has failed: call twill_comm_shrink()), ::TWILL_ERR_TIMEOUT, ::TWILL_ERR_CONFIG */
TWILL_API twill_status twill_comm_grow(twill_comm **larger, twill_comm *comm);

/** \brief Join a job by its handle, in place of twill_init(). Collective with twill_comm_grow(),
 * for which it waits at most for TWILL_TIMEOUT. \p settings, \p message and \p bytes are those of
 * twill_init_with().
 * \return those of twill_init_with(); ::TWILL_ERR_ARGUMENT also for what is no handle,
 * ::TWILL_ERR_BOOTSTRAP for a handle that is out of date. */
TWILL_API twill_status twill_comm_join(twill_comm **comm, const char *handle,
                                       const char *const *settings, char *message, size_t bytes);

/** \brief Take in the processes that twillrun --elastic has started in place of ranks that have
 * died; all ranks call it, between steps. If none waits \p *larger is NULL, and \p comm goes on.
 * Else this is twill_comm_grow(), with a deadline of 10 seconds. The new processes are in
 * twill_init(), which returns there with twill_comm_epoch() above 0. Without twillrun --elastic it
 * does nothing; with it, it costs a broadcast of 8 bytes. \return those of twill_comm_grow() and
 * twill_broadcast() */
TWILL_API twill_status twill_comm_admit(twill_comm **larger, twill_comm *comm);

/** \brief A process's end of a reconfiguration; see twill_handle_create(). */
typedef struct twill_handle twill_handle;

/** \brief Make a handle of this process, for one twill_comm_reconfigure(), and listen for others.
 * \p comm is the communicator that the process has, broken or not, or NULL; then \p settings are
 * those of twill_context_create(). \p text, of ::TWILL_HANDLE_BYTES, gets a line that is to be
 * given to the other processes. Destroy the handle with twill_handle_destroy(). \return ::TWILL_OK,
 * ::TWILL_ERR_ARGUMENT, ::TWILL_ERR_SYSTEM, ::TWILL_ERR_MEMORY,
 * ::TWILL_ERR_CONFIG; the reason is printed */
TWILL_API twill_status twill_handle_create(twill_handle **own, const twill_comm *comm,
                                           const char *const *settings, char *text);
TWILL_API void twill_handle_destroy(twill_handle *own); /**< \brief NULL is allowed. */

/** \brief What all processes of a reconfiguration are given. */
typedef struct twill_reconfiguration {
    const char *const *handles;  /**< of all processes that take part, this one among them */
    int count;                   /**< how many */
    int ordered;                 /**< 1: ranks in this order, the same on all; 0: a set */
    double seconds;              /**< deadline for each wait; 0: TWILL_TIMEOUT */
    const char *const *settings; /**< as for the handle */
} twill_reconfiguration;

/** \brief Make a communicator of processes that have exchanged their handles, whichever
 * communicators they have had: the survivors of one, new processes, or both. Collective over the
 * processes in the list; no other one takes part, so that it needs no agreement over \p comm, which
 * stays as it was. If \p comm is not NULL, its context's memory, registrations and operations go on
 * as with twill_comm_grow(); if it is broken, memory of twill_alloc() moves to pages of this
 * process alone first, as a rank that is left behind may live. TWILL_LAYOUT=nodes holds only if the
 * number of ranks stays. \p message and \p bytes are those of twill_init_with().
 * \return those of twill_comm_join(); ::TWILL_ERR_MISMATCH for lists that differ */
TWILL_API twill_status twill_comm_reconfigure(twill_comm **made, twill_comm *comm,
                                              twill_handle *own, const twill_reconfiguration *how,
                                              char *message, size_t bytes);

/** \brief Return how often the job had grown or been reconfigured when this communicator was made:
 * 0 before the first time; -1 if \p comm is NULL or destroyed. Local. */
TWILL_API int twill_comm_epoch(const twill_comm *comm);
/** @} */

/** \addtogroup twill_recovery
 * @{ */

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

/** \defgroup twill_deadlines Deadlines
 *
 * Every wait ends. A rank waits for others for TWILL_TIMEOUT seconds without any progress, or for
 * the time set here; then its call fails with ::TWILL_ERR_TIMEOUT on all ranks. Ranks may set
 * different times: the first to expire counts.
 * @{ */
/** \brief Set how long later waits on the communicator, and on those made of it from then on, last
 * without progress. Local. \p seconds: 0.001 to 10^6, or 0 for TWILL_TIMEOUT.
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT */
TWILL_API twill_status twill_comm_set_timeout(twill_comm *comm, double seconds);
/** \brief Set the same for waits and tests of one request only; of a persistent request, for all
 * its starts. twill_wait_any() uses the least of its requests'. 0: the communicator's. Local.
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT */
TWILL_API twill_status twill_request_set_timeout(twill_request *request, double seconds);

/** \brief Seconds within which a call ends in which this rank waits, from when all other ranks that
 * live are in it, if their processes get a core. */
typedef struct twill_bounds {
    double silent; /**< the awaited rank lives but does not come: the timeout, up to 1.2 s to ask
                      which rank the awaited ones wait for, and the time until all ranks know;
                      where ranks share a node, also an eighth of the timeout, at most 0.25 s, as
                      one of them computes prices for the others */
    double death;  /**< its process has died, on this host or one that answers. If others there
                      get both ports of its failure detector in that time, and do not close
                      connections that do not show the key, as `silent` */
    double host;   /**< its host does not answer any more; 0: the job has one host */
    double agree;  /**< twill_comm_agree(): a silent rank takes it as long as `silent`, one that
                      is heard but does not come further at most eight times that; this is the
                      latter for every rank in turn */
    double meet;   /**< twill_comm_shrink() agrees, lets the survivors connect, and agrees again; no
                      step of it (there are at most eight) waits longer than this. If a rank
                      fails meanwhile it begins anew, but not more often than there are ranks and
                      four times more; without such a rank there are at most five attempts */
    double grow;   /**< twill_comm_grow(), twill_comm_admit(): a rank does not come further while
                      the new processes connect, which they are to do in three quarters of the
                      timeout, or 10 s in twill_comm_admit() if that is less; the others wait half
                      as long for the reason of rank 0, at most 2 s, and 0.1 s; then all agree */
} twill_bounds;
/** \brief Read the bounds that hold for the communicator now. Local. \return ::TWILL_OK,
 * ::TWILL_ERR_ARGUMENT */
TWILL_API twill_status twill_comm_bounds(const twill_comm *comm, twill_bounds *bounds);
/** @} */

#ifdef __cplusplus
}
#endif
#endif
