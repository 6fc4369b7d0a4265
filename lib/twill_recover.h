/* SPDX-License-Identifier: Apache-2.0 */
/** \file twill_recover.h
 * \brief Recovery after ranks have failed, and growth by new ones.
 *
 * A call that fails because a rank has died breaks its communicator on all ranks. The survivors
 * then call twill_comm_shrink(), which gives them a communicator without the failed ranks. They end
 * the broken one with twill_comm_leave() or twill_comm_destroy():
 *
 *     twill_comm *smaller;
 *     while (twill_allreduce(comm, x, x, n, TWILL_F32, TWILL_SUM) != TWILL_OK) {
 *         if (twill_comm_shrink(&smaller, comm) != TWILL_OK)
 *             return give_up(twill_comm_message(comm));
 *         twill_comm_leave(comm);
 *         comm = smaller;
 *     }
 *
 * Conventions are those of twill.h. Ranks are processes here, as threads of one process die
 * together.
 */
#ifndef TWILL_RECOVER_H
#define TWILL_RECOVER_H

#include "twill.h"

#ifdef __cplusplus
extern "C" {
#endif

/** \defgroup twill_recovery Recovery
 *
 * All survivors call these functions alike and in the same order, except for twill_comm_revoke().
 * Every rank waits for each other rank for at most the communicator's timeout (TWILL_TIMEOUT,
 * twill_comm_set_timeout()). A rank that lives but does not call is then treated as failed, and
 * gets ::TWILL_ERR_EXCLUDED when it does call. If ranks on other hosts are silent but not known to
 * be dead, the survivors continue only if they are a majority, or half of the ranks with the lowest
 * one among them. So a network that falls apart does not leave two jobs.
 * \return as described in twill_collectives(3), and ::TWILL_ERR_EXCLUDED.
 * @{ */

/** \brief End the communicator on all its ranks.
 *
 * Calls and requests under way on it return ::TWILL_ERR_REVOKED, on all ranks and in all threads.
 * On a rank with none under way, its next call may return that. All calls after that return
 * ::TWILL_ERR_BROKEN. Any thread may call it at any time before twill_comm_destroy() or
 * twill_comm_leave() has returned. It does not wait for other ranks. For a thread that computes in
 * a call on the communicator it waits some 0.1 s. twill_comm_destroy() and twill_comm_leave() wait
 * for it, for at most TWILL_TIMEOUT. Then they keep the communicator, with a warning.
 * \return ::TWILL_OK, ::TWILL_ERR_FORKED, or ::TWILL_ERR_ARGUMENT if the communicator has ended. */
TWILL_API twill_status twill_comm_revoke(twill_comm *comm);

/** \brief Agree on the bitwise AND of \p *flags over the ranks that live, and on which ranks have
 * failed. All ranks that return ::TWILL_OK have the same result, even if ranks die meanwhile. The
 * flags of a failed rank may or may not be in it. \p comm may be broken, and stays so. \return as
 * described in twill_collectives(3), ::TWILL_ERR_EXCLUDED, ::TWILL_ERR_PEER if too few ranks remain
 * to continue, or ::TWILL_ERR_MISMATCH if a rank was in twill_comm_shrink() or another call. */
TWILL_API twill_status twill_comm_agree(twill_comm *comm, uint64_t *flags);

/** \brief Make a communicator of the ranks that live, in the same order and the same context. All
 * survivors get it, or none. Memory of twill_alloc() and registrations are kept. \p comm stays as
 * it was: end it with twill_comm_leave(). If it was made by twill_init(), pass *smaller to
 * twill_finalize() at the end, in its place. A rank of this node that is left behind alive must not
 * write to the survivors' memory any more. If there is one, memory of twill_alloc() moves to
 * private pages of this process, at the same addresses, and large messages in it are copied from
 * now on. No other thread may write to it during the call. */
TWILL_API twill_status twill_comm_shrink(twill_comm **smaller, twill_comm *comm);

/** @} */

/** \defgroup twill_stopping Stopping together
 *
 * A batch system warns a job by a signal some time before it ends it. Often only one rank gets it.
 * twill_stop() notes the wish, and the next calls of the communicator tell all ranks. Each of them
 * then learns of the same call after which to stop, save and exit:
 *
 *     uint64_t after;
 *     do
 *         train_a_step(comm);
 *     while (twill_comm_stop_requested(comm, &after) == TWILL_OK && after == 0);
 *     save(comm);
 *
 * No message is sent for that. The wish travels with collectives in which each rank needs data of
 * all others: twill_allreduce(), twill_allgather(), twill_reduce_scatter(), twill_alltoall() of at
 * least one element, and twill_barrier(). With others alone nothing is agreed.
 * @{ */

/** \brief Note that this process wishes to stop. May be called at any time, by any thread and in a
 * signal handler. twill_init() and twill_context_create() install a handler that does this if the
 * variable TWILL_STOP_SIGNAL names a signal. */
TWILL_API void twill_stop(void);

/** \brief Ask whether the ranks have agreed to stop. All ranks call it at the same places, where
 * the same requests are outstanding. Local, and it waits for nothing.
 *
 * \param comm        the communicator
 * \param[out] after  0 if nothing is agreed. Otherwise the number, from 1, of the collective on
 *                    this communicator by which all ranks knew of the wish. It is the same on all
 *                    of them, and stays. Collectives of the library itself are numbered as well.
 * \return ::TWILL_OK, or why not: ::TWILL_ERR_ARGUMENT, ::TWILL_ERR_BROKEN, ::TWILL_ERR_FORKED. */
TWILL_API twill_status twill_comm_stop_requested(twill_comm *comm, uint64_t *after);
/** @} */

/** \defgroup twill_growth Growing
 *
 * New processes join a running job. Rank 0 of the job makes a handle, a line of text that says
 * where the job is, and the caller brings it to them, in a file or in any other way. Then all ranks
 * call twill_comm_grow(), and each new process calls twill_comm_join(). All of them get a larger
 * communicator, in which the old ranks keep their numbers and the new ones follow.
 *
 *     char handle[TWILL_HANDLE_BYTES];
 *     if (rank == 0 && twill_comm_handle(comm, 1, handle) == TWILL_OK)
 *         bring_to_new_process(handle);
 *     if (twill_comm_grow(&larger, comm) == TWILL_OK) {
 *         twill_comm_leave(comm);
 *         comm = larger;
 *     }
 *
 * A new process proves that it belongs to the job by the job's key, from TWILL_JOB or a key file
 * (TWILL_KEY_FILE, ~/.twill/key). Its variables must agree with those of the job as at the start.
 * @{ */

#define TWILL_HANDLE_BYTES 256 /**< \brief Bytes that a handle needs. */

/** \brief Make the handle by which \p joining new processes join. Only rank 0 calls it.
 *
 * Rank 0 then listens for the new processes until the next twill_comm_grow() or the end of \p comm.
 * Another handle replaces this one. The handle contains no secret, and is good for one growth. If
 * the job is on one host, only processes of that host can join it unless TWILL_INTERFACE is set.
 * \p joining is at least 1, and \p handle gets a string in ::TWILL_HANDLE_BYTES bytes.
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT, ::TWILL_ERR_SYSTEM, ::TWILL_ERR_MEMORY */
TWILL_API twill_status twill_comm_handle(twill_comm *comm, int joining, char *handle);

/** \brief Make a communicator of the ranks of \p comm, in the same order, and of the new processes
 * after them.
 *
 * All ranks of \p comm call it, and all get it or none. \p comm must not be broken. It stays as it
 * was, also if this fails: end it with twill_comm_leave(). *larger belongs to a new context, which
 * also has the operations, registrations and the function of twill_context_idle() of the old one.
 * Memory that the old context has allocated stays valid. The new ranks do not share it, so large
 * messages in it are copied. If \p comm was made by twill_init(), pass *larger to twill_finalize()
 * at the end, in its place, free memory by the new context, and do not use the old one any more.
 * The call waits for new processes for at most the timeout of \p comm. \return as described in
 * twill_collectives(3), and: ::TWILL_ERR_BROKEN, ::TWILL_ERR_PEER if a rank has failed, which calls
 * for twill_comm_shrink(), ::TWILL_ERR_TIMEOUT, ::TWILL_ERR_CONFIG */
TWILL_API twill_status twill_comm_grow(twill_comm **larger, twill_comm *comm);

/** \brief Join a job by its handle, in place of twill_init(). Collective with twill_comm_grow(),
 * for which it waits for at most TWILL_TIMEOUT. \p settings, \p message and \p bytes are those of
 * twill_init_with().
 * \return those of twill_init_with(), ::TWILL_ERR_ARGUMENT also for a text that is no handle, and
 * ::TWILL_ERR_BOOTSTRAP for a handle that is out of date. */
TWILL_API twill_status twill_comm_join(twill_comm **comm, const char *handle,
                                       const char *const *settings, char *message, size_t bytes);

/** \brief Take in the processes that twillrun --elastic has started in place of ranks that have
 * died. All ranks call it, between steps. If no process waits, *larger is NULL and \p comm may be
 * used as before. Otherwise this is twill_comm_grow(), with a deadline of 10 seconds. The new
 * processes are in twill_init(), which returns there with twill_comm_epoch() above 0. Without
 * twillrun --elastic the call does nothing. With it, it costs a broadcast of 8 bytes. \return those
 * of twill_comm_grow() and twill_broadcast() */
TWILL_API twill_status twill_comm_admit(twill_comm **larger, twill_comm *comm);

/** \brief One process's part of a reconfiguration, see twill_handle_create(). */
typedef struct twill_handle twill_handle;

/** \brief Make a handle of this process for one twill_comm_reconfigure(), and listen for others.
 * Local.
 *
 * \param[out] own   the handle, which twill_handle_destroy() frees
 * \param comm       the communicator that the process has, broken or not, or NULL
 * \param settings   those of twill_context_create(), read if \p comm is NULL
 * \param[out] text  a line for the other processes, in ::TWILL_HANDLE_BYTES bytes
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT, ::TWILL_ERR_SYSTEM, ::TWILL_ERR_MEMORY,
 * ::TWILL_ERR_CONFIG. The reason is printed, except for a wrong argument. */
TWILL_API twill_status twill_handle_create(twill_handle **own, const twill_comm *comm,
                                           const char *const *settings, char *text);
TWILL_API void twill_handle_destroy(twill_handle *own); /**< \brief Free a handle, or NULL. */

/** \brief The arguments of a reconfiguration, which all processes give. */
typedef struct twill_reconfiguration {
    const char *const *handles;  /**< of all processes that take part, including this one */
    int count;                   /**< number of handles, at least 1 */
    int ordered;                 /**< 1 if ranks have the order of the handles, which is then the
                                      same on all processes. 0 if each process may list them in its
                                      own order. Ranks then have the order of the sorted texts */
    double seconds;              /**< deadline for each wait, up to 10^6, or 0 for TWILL_TIMEOUT */
    const char *const *settings; /**< those of twill_context_create() for the new context, read if
                                      no old communicator is passed */
} twill_reconfiguration;

/** \brief Make a communicator of processes that have exchanged their handles.
 *
 * These may be the survivors of a communicator, new processes, or both. Collective over the
 * processes in the list. No other process takes part, so it needs no agreement over \p comm, which
 * stays as it was. If \p comm is not NULL, memory, registrations and operations of its context
 * continue as with twill_comm_grow(). If it is broken, a rank that is left behind may live, so
 * memory of twill_alloc() first moves to private pages of this process. TWILL_LAYOUT=nodes holds
 * only if the number of ranks stays the same. \p message and \p bytes are those of
 * twill_init_with(). \return those of twill_comm_join(), ::TWILL_ERR_MISMATCH if lists differ */
TWILL_API twill_status twill_comm_reconfigure(twill_comm **made, twill_comm *comm,
                                              twill_handle *own, const twill_reconfiguration *how,
                                              char *message, size_t bytes);

/** \brief Return how often the job had grown or been reconfigured when this communicator was made.
 * That is 0 before the first time. Returns -1 if \p comm is NULL or destroyed. Local. */
TWILL_API int twill_comm_epoch(const twill_comm *comm);
/** @} */

/** \addtogroup twill_recovery
 * @{ */

/** \brief Findings of the last twill_comm_agree() or twill_comm_shrink(), the same on all
 * survivors. The caller provides one, and twill_comm_outcome() fills it. */
typedef struct twill_outcome {
    int failed;             /**< number of ranks of the communicator that have failed */
    int survivors;          /**< number of the others */
    uint64_t complete;      /**< collectives that are complete on all survivors, counted from the
                               communicator's start */
    uint64_t complete_some; /**< collectives that are complete on at least one survivor. If it is
                               equal to `complete`, none is complete on only some of them */
} twill_outcome;
/** \brief Store the findings of the last twill_comm_agree() or twill_comm_shrink() in *outcome.
 * Local. \return ::TWILL_OK, or ::TWILL_ERR_ARGUMENT if there was none, if an argument is NULL, or
 * if \p comm is destroyed. */
TWILL_API twill_status twill_comm_outcome(const twill_comm *comm, twill_outcome *outcome);
/** \brief Return failed rank number \p index, from 0, that the last twill_comm_agree() or
 * twill_comm_shrink() found, or -1 if there is none. Local. */
TWILL_API int twill_comm_failed_rank(const twill_comm *comm, int index);
/** @} */

/** \defgroup twill_deadlines Deadlines
 *
 * Every wait ends. A rank waits for others for TWILL_TIMEOUT seconds without any progress, or for
 * the time set here. Then its call fails with ::TWILL_ERR_TIMEOUT on all ranks. Ranks may set
 * different times, and the first to expire counts. \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT
 * @{ */
/** \brief Set how many seconds later waits last without progress, on the communicator and on those
 * that are made of it later. Local. \p seconds is 0.001 to 10^6, or 0 for TWILL_TIMEOUT. */
TWILL_API twill_status twill_comm_set_timeout(twill_comm *comm, double seconds);
/** \brief Set how long waits and tests of one request last without progress, for a persistent
 * request in all its starts. Local. \p seconds is 0.001 to 10^6, or 0 for the communicator's.
 * twill_wait_any() uses the least of its requests' times. */
TWILL_API twill_status twill_request_set_timeout(twill_request *request, double seconds);

/** \brief Seconds within which a call ends in which this rank waits, as twill_comm_bounds() stores
 * them. They count from when all other ranks that live are in the call, and hold if their processes
 * get a core. */
typedef struct twill_bounds {
    double silent; /**< the awaited rank lives but does not come. This is the timeout, up to 1.2 s
                      to ask which rank the awaited ones wait for, and the time until all ranks
                      know. Where ranks share a node, an eighth of the timeout, at most 0.25 s, is
                      added, as one of them computes prices for the others */
    double death;  /**< the awaited process has died, on this host or one that answers. This is the
                      time until ranks notice it and notify each other, whatever the timeout. It is
                      as `silent` if other programs there take both ports of its failure detector
                      in that time, and keep connections open that do not show the key */
    double host;   /**< the awaited rank's host does not answer; 0 if the job has one host */
    double agree;  /**< twill_comm_agree(). It waits for a silent rank as long as `silent`, and for
                      one that is heard but makes no progress at most eight times that. The bound
                      is eight times that, times the number of ranks of the communicator */
    double meet;   /**< one step of twill_comm_shrink(), which agrees, lets the survivors connect,
                      and agrees again, in at most eight steps. If a rank fails meanwhile it begins
                      anew, at most as often as there are ranks plus four. Without such a rank
                      there are at most five attempts */
    double grow;   /**< twill_comm_grow() and twill_comm_admit(), if a rank makes no progress while
                      the new processes connect. They have three quarters of the timeout for that,
                      or 10 s in twill_comm_admit() if that is less. If they do not come, the
                      other ranks wait until rank 0 sends them the reason. That adds half of the
                      first time, at most 2 s, and 0.1 s. Then all agree, which adds `silent` */
} twill_bounds;
/** \brief Store in *bounds how long, in seconds, calls on the communicator may wait, by its present
 * timeout. Local. \return ::TWILL_OK, or ::TWILL_ERR_ARGUMENT if \p comm has ended or \p bounds is
 * NULL. */
TWILL_API twill_status twill_comm_bounds(const twill_comm *comm, twill_bounds *bounds);
/** @} */

#ifdef __cplusplus
}
#endif
#endif
