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
    unsigned given;     /* CPUs that the launcher says it gives a rank that is not bound, or 0 */
    unsigned cores;     /* the rank's share of the cores of its host, 0 if unknown */
    unsigned count;     /* of threads, with the caller */
    bool shared;        /* they share cores with each other or with other ranks */
    const char *source; /* where the figures are from, NULL if from another rank */
    struct twill_cpus *cpus;         /* PUs of the cores that the threads are bound to, or NULL */
    struct twill_thread_rates rates; /* figures, the same on all ranks of the job, or empty */
};

/* The threads that a rank has, which all ranks exchange. Sent as it is in memory. */
struct twill_threads_found {
    uint32_t threads, cores; /* with the caller, and the rank's share of cores */
    uint64_t thread_bytes;
};
/* What the rank that measures sends at last. Sent as it is in memory. */
struct twill_thread_figures {
    uint32_t team; /* an enum twill_pool_team */
    struct twill_thread_rates rates;
    uint64_t piece[TWILL_THREAD_STEPS]; /* bytes that a kernel call must write so that all threads
                                           of a step help, 0 if one is faster */
};
/* The threads of a rank while they are set up. Part of a local variable of
 * twill_context_open_job(). */
struct twill_threads_opening {
    bool any;                              /* whether any rank asks for several threads */
    struct twill_threads_found mine, *all; /* [size] */
};

/* Parse TWILL_THREADS. Returns TWILL_OK, or TWILL_ERR_CONFIG if it is malformed. */
twill_status twill_context_configure_threads(struct twill_context *context);
/* Return how many threads this rank asks for, by TWILL_THREADS or by its binding, at least 1. */
uint32_t twill_threads_asked(struct twill_context *context);
/* Return whether all CPUs on which a rank may run, `cpus`, belong to the job's ranks on this host,
 * `ranks` in number, as the launcher gives each of them `given` CPUs. */
bool twill_threads_are_given(unsigned given, unsigned ranks, const struct twill_cpus *cpus);
/* After the first exchange, make machine.pool, and set job.piece to the most that it can become.
 * asked[size] is how many all ranks ask for. If any rank asks for several threads, add a part to
 * the batch, also after a failure. Returns TWILL_OK or the error. */
twill_status twill_threads_offer(struct twill_context *context,
                                 struct twill_threads_opening *opening, const uint32_t *asked,
                                 struct twill_oob_batch *batch);
/* After the second exchange, which has succeeded, let one rank measure if any has a pool. Send its
 * figures to all in another exchange, use them, and set job.piece and job.rank_threads. `status` is
 * that of this rank so far. Returns TWILL_OK or the first error of any rank. */
twill_status twill_threads_agree(struct twill_context *context,
                                 const struct twill_threads_opening *opening, twill_status status);
/* Free what the opening still owns. Called also after a failure. */
void twill_threads_opening_end(struct twill_threads_opening *opening);
/* Add lines on the threads of this rank to twill_context_describe(). */
void twill_threads_note(struct twill_context *context);

#endif
