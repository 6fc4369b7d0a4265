/* SPDX-License-Identifier: Apache-2.0 */
/** \file twill_job.h
 * \brief What the ranks of a running job do, read from another process of the same host and user.
 *
 * Each rank keeps its last events in memory that the ranks of its host share; it can be read while
 * the job hangs, and after a rank was killed as long as another rank of its host lives. Nothing is
 * asked of the job: it is neither stopped nor slowed. twill-info --job prints what is found.
 */
#ifndef TWILL_JOB_H
#define TWILL_JOB_H

#include "twill.h"

#ifdef __cplusplus
extern "C" {
#endif

/** \defgroup twill_jobs Jobs from outside
 * These functions need no context.
 * @{ */
/** \brief A job as it was at one moment. */
typedef struct twill_job_view twill_job_view;

/** \brief Look at the job of a process: of the user that calls, or any if that is root.
 *
 * \p name is the PID of a rank or of the launcher, or the name of the program, if it runs in one
 * job only. \p events: the last events of each rank and communicator to return, at most 4096. On
 * failure *view is NULL and \p message, of \p bytes bytes, says why.
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT (no such job), ::TWILL_ERR_SYSTEM, ::TWILL_ERR_MEMORY.
 */
TWILL_API twill_status twill_job_view_open(twill_job_view **view, const char *name, size_t events,
                                           char *message, size_t bytes);
/** \brief Return a line of what was found; NULL behind the last one.
 *
 * Fields are separated by tabs; - stands for nothing. The first one says which line it is:
 * - job: program, ranks found, ranks of the job
 * - rank: rank, PID, state (running, sleeping, stopped, dead ...)
 * - call, one for each rank and communicator: rank, communicator, rank there, ranks of it, "in" a
 *   call, "out" of it or "none", sequence, collective, count, type, operation, root, bytes, seconds
 *   since it began or, if out, ended, rank that it waits for, the call in words, failure
 * - event: rank, communicator, number, nanoseconds ago, kind, sequence, collective, type,
 *   operation, bytes, peer, detail
 * - finding: a sentence: which rank is behind, stopped or dead, or in another call. */
TWILL_API const char *twill_job_view_line(const twill_job_view *view, size_t index);
/** \brief Free a view. NULL is allowed. */
TWILL_API void twill_job_view_close(twill_job_view *view);
/** @} */

#ifdef __cplusplus
}
#endif
#endif
