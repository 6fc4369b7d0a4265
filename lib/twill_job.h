/* SPDX-License-Identifier: Apache-2.0 */
/** \file twill_job.h
 * \brief State of a running job, read from another process of the same host and user.
 *
 * Each rank keeps its last events in memory that the ranks of its host share. This memory can be
 * read while the job hangs, and also after a rank was killed, as long as another rank of its host
 * lives. The job itself does nothing for that: it is neither stopped nor slowed. twill-info --job
 * prints what is found.
 */
#ifndef TWILL_JOB_H
#define TWILL_JOB_H

#include "twill.h"

#ifdef __cplusplus
extern "C" {
#endif

/** \defgroup twill_jobs Jobs from outside
 * They need no context, and any thread may call them. Lines are valid until the view is closed.
 * @{ */
/** \brief A job as it was at one moment. */
typedef struct twill_job_view twill_job_view;

/** \brief Take a view of the job that a process belongs to. The process must be of the calling
 * user, unless that is root.
 *
 * \param[out] view     the view, which twill_job_view_close() frees, or NULL on failure
 * \param name          the PID of a rank or of the launcher, or the name of the program if it runs
 *                      in one job only
 * \param events        how many of the last events of each rank and communicator to return, up to
 *                      4096
 * \param[out] message  the reason of a failure, or ""
 * \param bytes         size of \p message
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT if there is no such job, ::TWILL_ERR_SYSTEM,
 * ::TWILL_ERR_MEMORY. */
TWILL_API twill_status twill_job_view_open(twill_job_view **view, const char *name, size_t events,
                                           char *message, size_t bytes);
/** \brief Return line \p index, from 0, or NULL behind the last one.
 *
 * Fields are separated by tabs, and an empty field is "-". The first field is one of these words,
 * and the others are:
 * - job: program, ranks found, ranks of the job
 * - rank: rank, PID, state (running, sleeping, stopped, dead ...)
 * - call, one for each rank and communicator: rank, communicator, rank there, ranks of it, "in" a
 *   call, "out" of it, "suspended" (twill_comm_suspend()) or "none", sequence, collective, count,
 *   type, operation, root, bytes (0 if suspended), seconds since it began or, if out, ended, rank
 *   that it waits for, the call in words, failure, rank in the job of the communicator's rank 0,
 *   which tells communicators of one split apart
 * - memory, one for each rank and communicator, in bytes: rank, communicator, shared memory that
 *   exists, what it can grow to, private memory of plans, scratch and requests, rank in the job of
 *   the communicator's rank 0. Suspended communicators are so in their call
 * - link, one for each TCP connection of a rank's process: rank, own address and port, those of the
 *   peer, bytes sent, seconds of sending without those in which the peer had no room for more
 * - recent, one for each rank and communicator, about the last second or less: rank, communicator,
 *   seconds covered, calls and bytes that ended in them, seconds in calls, seconds that it waited
 *   most for one rank (waits of 2 ms and more), that rank, steps of gradient sets in up to 10 s,
 *   seconds that they took, seconds that they were exposed
 * - event: rank, communicator, number, nanoseconds ago, kind, sequence, collective, type,
 *   operation, bytes, peer, detail
 * - finding: a sentence that says which rank is behind, stopped or dead, or in another call */
TWILL_API const char *twill_job_view_line(const twill_job_view *view, size_t index);
/** \brief Free a view. \p view may be NULL. */
TWILL_API void twill_job_view_close(twill_job_view *view);
/** @} */

#ifdef __cplusplus
}
#endif
#endif
