/* SPDX-License-Identifier: Apache-2.0 */
/* What a layer above the public calls may use besides them: the gradient set (lib/train) and the
 * parameter server (lib/server) include this header, the public ones, lib/base and the waiter,
 * lib/wait/wait.h, which also starts their threads, and no other of the library. lib/api/extend.c
 * has the definitions.
 *
 * A layer has communicators of its own, made by twill_comm_dup() or twill_extend_dup_alone(), and
 * one thread at a time uses each of them. Unless said otherwise a function here claims its
 * communicator as a public call does: `call` names that call in sentences, and a communicator that
 * is in another call gives TWILL_ERR_ARGUMENT. */
#ifndef TWILL_EXTEND_H
#define TWILL_EXTEND_H

#include "algorithms/world/world.h"
#include "lib/base/base.h"
#include "lib/base/trace.h"
#include "lib/twill.h"

struct twill_chooser;
struct twill_kernels;
struct twill_topology;
struct twill_tuning;
struct twill_waitable;

/* --- what is there ---------------------------------------------------------------------------- */

/* What a context has; it lives as long as the context, and does not change. */
struct twill_extend_process {
    twill_context *context;
    const struct twill_log *log;
    const struct twill_kernels *kernels;
    const struct twill_topology *topology;
    const struct twill_tuning *timings; /* by which algorithms are selected */
    const char *gradients;              /* TWILL_GRADIENTS, or NULL */
    uint64_t timeout_ns;                /* TWILL_TIMEOUT */
    int threads;                        /* TWILL_TUNE=threads: most OpenMP threads of a kernel */
    bool places_memory;                 /* TWILL_MEMORY says on which NUMA nodes memory is */
};
struct twill_extend_process twill_extend_process(twill_context *context);
/* Is this a forked child of the process that has made the context? */
bool twill_extend_is_forked(const twill_context *context);

/* What a communicator has: the pointers are valid as long as it is, the time limit is the present
 * one. Claims nothing. */
struct twill_extend_comm {
    const struct twill_world *world; /* which ranks are on which node */
    const struct twill_trace *trace; /* for twill_trace_emit_other() */
    const struct twill_error *error; /* of its last call, for the thread that made that */
    uint64_t timeout_ns;             /* of waits */
    const char *timeout_name;        /* what has set it, for sentences */
};
struct twill_extend_comm twill_extend_comm(const twill_comm *comm);

/* Do what twill_comm_dup() does, with network endpoints and completion queues that no other
 * communicator uses, for a thread of its own. */
twill_status twill_extend_dup_alone(twill_comm **made, twill_comm *comm);
/* Create a chooser of algorithms, whose prices the ranks of a node compute together. Free it with
 * twill_chooser_destroy(), before the communicator ends. The communicator is in no other call. */
twill_status twill_extend_chooser(struct twill_chooser **chooser, twill_comm *comm,
                                  struct twill_error *error);

/* --- waits and progress ----------------------------------------------------------------------- */

/* Return whether an operation that was started has ended; twill_wait() then returns at once. Any
 * thread may ask, without advancing anything. */
bool twill_extend_has_ended(twill_request *request);
/* Advance the communicator, and others of its context, until done(of), or once if `done` is NULL.
 * The wait times out when the time limit has passed since `*since` (twill_now()) without progress;
 * if there was some, *since becomes 0. An error has broken the communicator. */
twill_status twill_extend_wait(twill_comm *comm, const char *call, bool (*done)(const void *of),
                               const void *of, uint64_t *since);
/* Wait for something else than the communicator, as lib/wait/wait.h has it: twill_await(), whose
 * sleeps end when a rank of the node rings. Claims nothing, as twill_extend_ring() does. */
twill_status twill_extend_await(twill_comm *comm, struct twill_waitable waitable,
                                uint64_t deadline);
/* End the sleep of a rank, if it is on this node. */
void twill_extend_ring(twill_comm *comm, uint32_t rank);

/* --- failures --------------------------------------------------------------------------------- */

/* What becomes of a communicator. */
enum twill_extend_failure {
    TWILL_EXTEND_REFUSES, /* it stays usable: its message is "rank R: call: ..." */
    TWILL_EXTEND_FAILS,   /* it breaks on all ranks, unless another rank's failure is the cause of
                             this one's: then it breaks with that */
    TWILL_EXTEND_ENDS     /* it breaks on all ranks, unless it is broken, because what used it has
                             failed with a known cause */
};
/* Fail a call with a sentence. Returns the status that it has failed with. */
twill_status twill_extend_fail(twill_comm *comm, enum twill_extend_failure what, const char *call,
                               twill_status status, const char *format, ...) TWILL_PRINTF(5, 6);
/* Copy the failure that has broken the communicator; if `polls`, find out before whether another
 * rank has. Returns false if it is not broken, has ended, or a thread is in a call on it, which
 * then reports the failure. */
bool twill_extend_failure(twill_comm *comm, bool polls, struct twill_error *failure);
/* Return whether a rank's process has ended, or destroyed its context; false while in doubt. Any
 * thread may ask. */
bool twill_extend_is_dead(twill_comm *comm, uint32_t rank);
/* Print what a sentence says of a rank, or of the communicator's endpoints. Returns text. */
#define TWILL_EXTEND_TEXT 160
enum twill_extend_noun {
    TWILL_EXTEND_RANK,      /* "rank R", with its rank in the job */
    TWILL_EXTEND_DEAD_RANK, /* that, and how its death is known */
    TWILL_EXTEND_ENDPOINTS  /* "; endpoint and queue of its own: ..." */
};
const char *twill_extend_describe(twill_comm *comm, enum twill_extend_noun noun, uint32_t rank,
                                  char *text, size_t bytes);
/* Shorten the deadlines of a communicator that is about to be destroyed, if a wait for one of its
 * ranks has just timed out. The communicator is in no other call. */
void twill_extend_hurry(twill_comm *comm);

/* --- memory of the node ----------------------------------------------------------------------- */

/* Return where the memory that a rank of this node shares is mapped here, and its size; or zeros if
 * it shares none. Of twill_alloc(), all is shared unless that is full. */
struct twill_extend_memory {
    unsigned char *base;
    size_t bytes; /* of this rank's own; of another rank's 0 */
};
struct twill_extend_memory twill_extend_memory(const twill_comm *comm, uint32_t rank);

/* --- what others see -------------------------------------------------------------------------- */

/* Name tensor number `index` in the events that follow. */
void twill_extend_name_tensor(twill_comm *comm, uint32_t index, const char *name);
/* Print where the time of the communicator's calls went, after `what`: since the last report, or
 * since its creation. */
void twill_extend_report(twill_comm *comm, const char *call, const char *what, bool all);

#endif
