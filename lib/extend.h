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

/* Return which ranks are on which node. Claims nothing, as none of the next three does. */
const struct twill_world *twill_extend_world(const twill_comm *comm);
/* Return the time limit of waits, and store what has set it, for sentences, if `name` is not NULL.
 */
uint64_t twill_extend_timeout_ns(const twill_comm *comm, const char **name);
/* Print the network endpoints of the communicator: "; endpoint and queue of its own: ...". */
void twill_extend_describe_endpoints(const twill_comm *comm, char *text, size_t bytes);

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

/* Refuse a call on the communicator, which stays usable: its message is "rank R: call: message".
 * Returns the status. */
twill_status twill_extend_refuse(twill_comm *comm, const char *call, twill_status status,
                                 const char *message);
/* Break the communicator on all ranks with a sentence. Returns the status that it has failed with:
 * another rank's failure may be the cause of this one's, and then takes its place. */
twill_status twill_extend_fail(twill_comm *comm, const char *call, twill_status status,
                               const char *format, ...) TWILL_PRINTF(4, 5);
/* Break the communicator on all ranks, unless it is NULL or broken, as what used it has failed with
 * `cause`: no other rank is asked for another one. `what` failed, in the sentence. */
void twill_extend_end(twill_comm *comm, const char *call, const char *what,
                      const struct twill_error *cause);
/* Copy the failure that has broken the communicator; if `polls`, find out before whether another
 * rank has. Returns false if it is not broken, has ended, or a thread is in a call on it, which
 * then reports the failure. */
bool twill_extend_failure(twill_comm *comm, bool polls, struct twill_error *failure);
/* Return the last error of a call on the communicator, whose thread this is. Claims nothing. */
const struct twill_error *twill_extend_error(const twill_comm *comm);
/* Return whether a rank's process has ended, or destroyed its context; false while in doubt. Any
 * thread may ask. */
bool twill_extend_is_dead(twill_comm *comm, uint32_t rank);
/* Print "rank R", with its rank in the job, and if it is dead how that is known. Returns text. */
#define TWILL_EXTEND_TEXT 160
const char *twill_extend_name_rank(twill_comm *comm, uint32_t rank, bool dead,
                                   char text[TWILL_EXTEND_TEXT]);
/* Shorten the deadlines of a communicator that is about to be destroyed, if a wait for one of its
 * ranks has just timed out. The communicator is in no other call. */
void twill_extend_hurry(twill_comm *comm);

/* --- memory of the node ----------------------------------------------------------------------- */

/* Return where memory lies in what this process shares with the node, for twill_extend_map();
 * TWILL_EXTEND_NOWHERE: it is not shared, as all of twill_alloc() is unless that is full. */
#define TWILL_EXTEND_NOWHERE UINT64_MAX
uint64_t twill_extend_offset(const twill_context *context, const void *memory, size_t bytes);
/* Return where memory that a rank of this node shares is mapped here. */
void *twill_extend_map(const twill_comm *comm, uint32_t rank, uint64_t offset);

/* --- what others see -------------------------------------------------------------------------- */

/* Record an event of the communicator: an index (of a tensor, say) and bytes. Any thread. */
void twill_extend_record(const twill_comm *comm, enum twill_trace_kind kind, uint32_t index,
                         size_t bytes);
/* Name tensor number `index` in the events that follow. */
void twill_extend_name_tensor(twill_comm *comm, uint32_t index, const char *name);
/* Print where the time of the communicator's calls went, after `what`: since the last report, or
 * since its creation. */
void twill_extend_report(twill_comm *comm, const char *call, const char *what, bool all);

#endif
