/* SPDX-License-Identifier: Apache-2.0 */
/* Steps by which the threads that share the work of a rank's kernels are set up. */
#ifndef TWILL_RANK_THREADS_H
#define TWILL_RANK_THREADS_H

#include "fabric/bootstrap/oob_batch.h"
#include "lib/base/thread_rates.h"
#include "lib/job/context.h"

/* The threads that share the work of a rank's kernels. Constant once the context is created. */
struct twill_context_threads {
    uint32_t asked;     /* with the caller, or UINT32_MAX for one for each core */
    const char *why;    /* what asks for them, or NULL if that is not known yet */
    bool implied;       /* not by TWILL_THREADS, but by how the launcher has started the rank */
    unsigned cores;     /* the rank's share of the cores of its host, 0 if unknown */
    unsigned count;     /* of threads, with the caller */
    const char *source; /* where the figures are from, NULL if from another rank */
    struct twill_cpus *cpus;         /* PUs of the cores that the threads are bound to, or NULL */
    struct twill_thread_rates rates; /* figures, the same on all ranks of the job, or empty */
};

/* Facts about a rank's threads that all ranks exchange first. Sent as it is in memory. */
struct twill_threads_info {
    uint32_t asked, cores; /* threads asked for, at least 1, and cores that the rank may run on */
    uint64_t thread_bytes; /* TWILL_TUNE=thread_bytes, or 0 */
};
/* Facts about a rank's threads that all ranks exchange then. Sent as it is in memory. */
struct twill_thread_figures {
    uint32_t threads, team; /* threads of the rank, and an enum twill_pool_team */
    uint64_t thread_bytes;
    struct twill_thread_rates rates; /* empty but for the rank that measures */
};
/* The threads of a rank while they are set up. Part of a local variable of
 * twill_context_open_job(). */
struct twill_threads_opening {
    bool any;                               /* whether any rank asks for several threads */
    int measures;                           /* the rank that measures, or -1 */
    struct twill_thread_figures mine, *all; /* [size] */
};

/* Parse TWILL_THREADS. Returns TWILL_OK, or TWILL_ERR_CONFIG if it is malformed. */
twill_status twill_context_configure_threads(struct twill_context *context);
/* Set *mine to what this rank asks for, by TWILL_THREADS or by its binding. */
void twill_threads_describe(struct twill_context *context, struct twill_threads_info *mine);
/* After the first exchange, make machine.pool, measure if this rank is to, and set job.piece to the
 * most that it can become. all[size] has the facts of all ranks. If any rank asks for several
 * threads, add a part to the batch, also after a failure. Returns TWILL_OK or the error. */
twill_status twill_threads_offer(struct twill_context *context,
                                 struct twill_threads_opening *opening,
                                 const struct twill_threads_info *all,
                                 struct twill_oob_batch *batch);
/* After the second exchange, use the figures, and set job.piece and job.rank_threads. */
void twill_threads_conclude(struct twill_context *context, struct twill_threads_opening *opening);
/* Free what the opening still owns. Called also after a failure. */
void twill_threads_opening_end(struct twill_threads_opening *opening);
/* Add lines on the threads of this rank to twill_context_describe(). */
void twill_threads_note(struct twill_context *context);

#endif
