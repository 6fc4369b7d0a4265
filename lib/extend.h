/* SPDX-License-Identifier: Apache-2.0 */
/* Functions for layers above the public calls, which are the gradient set (lib/train) and the
 * parameter server (lib/server). These include no other headers of the library than this one, the
 * public ones, lib/base and the waiter (lib/wait/wait.h). lib/api/extend.c has the definitions. A
 * layer makes its own communicators by twill_comm_dup() or twill_extend_dup(), and one thread
 * at a time uses each of them. Unless said otherwise, a function here claims its communicator as a
 * public call does. `call` is the name of that call for messages. If the communicator is in another
 * call, the function returns TWILL_ERR_ARGUMENT. */
#ifndef TWILL_EXTEND_H
#define TWILL_EXTEND_H

#include "algorithms/world/world.h"
#include "lib/base/base.h"
#include "lib/base/trace.h"
#include "lib/twill.h"

struct twill_chooser;
struct twill_kernels;
struct twill_thread_pool;
struct twill_topology;
struct twill_tuning;
struct twill_waitable;

/* --- properties ------------------------------------------------------------------------------- */
/* Properties of a context, as twill_extend_process() returns them. They never change, and the
 * pointers are valid as long as the context. */
struct twill_extend_process {
    twill_context *context;
    const struct twill_log *log;
    const struct twill_kernels *kernels;
    const struct twill_topology *topology;
    const struct twill_tuning *timings; /* timings by which algorithms are selected */
    const char *gradients;              /* TWILL_GRADIENTS, or NULL */
    uint64_t timeout_ns;                /* TWILL_TIMEOUT */
    uint32_t rank_threads;              /* of the rank of the job that has fewest, at least 1 */
    struct twill_thread_pool *pool;     /* threads that share the work of kernels, or NULL */
    bool places_memory;                 /* whether TWILL_MEMORY names NUMA nodes */
    const uint64_t *fork_guard;         /* a word that is 0 in a forked child */
    bool looks_for_nan, fails_at_nan;   /* TWILL_FIRST_NAN is set, or is "fail" */
};
/* Return the properties of a context. Any thread may call it. */
struct twill_extend_process twill_extend_process(twill_context *context);
/* Where data go in memory that another rank has exposed. */
struct twill_extend_place {
    uint64_t at, key;
};
/* Functions with which the network writes into memory of ranks on other nodes. */
struct twill_extend_writes {
    /* Let ranks of other nodes write into memory of this rank, until conceal() or the end of the
     * communicator, and set *place to where it begins. With 0 bytes, only ask. Returns whether the
     * network can write and has registered the memory. */
    bool (*expose)(twill_comm *comm, const char *call, void *memory, size_t bytes,
                   struct twill_extend_place *place);
    /* End the exposure that begins at `place`. No rank may be writing there. */
    void (*conceal)(twill_comm *comm, const char *call, struct twill_extend_place place);
    /* Start to write `bytes` bytes to a place of rank `to`, which is on another node. Both ranks
     * have exposed memory. The request ends when `src` may be changed. Messages to that rank that
     * are started later arrive after the data. Returns TWILL_OK, or why it has not started. */
    twill_status (*start)(twill_comm *comm, const char *call, const void *src, size_t bytes, int to,
                          struct twill_extend_place place, twill_request **request);
};
/* Properties of a communicator, as twill_extend_comm() returns them. The pointers are valid as long
 * as the communicator. Reading them does not claim it. */
struct twill_extend_comm {
    const struct twill_world *world; /* which ranks are on which node */
    const struct twill_trace *trace; /* for twill_trace_emit_other() */
    const struct twill_error *error; /* error of its last call, for the thread that made it */
    uint64_t timeout_ns;             /* present timeout of waits */
    struct twill_news_words *news;   /* of this node, for which the user counts in steps from 1 */
    const char *timeout_name;        /* what has set the timeout, for messages */
    const struct twill_extend_writes *writes; /* functions, also where the network has none */
    bool grouped;                             /* a group of calls is open */
    /* Have an idle persistent request of the communicator look for a NaN or infinity in what it
     * reduces, in the operands of all ranks, while they are in the cache. It notifies `watch`,
     * which must last as long as the request. Returns false, and does not look, if the request's
     * algorithm does not allow that. */
    bool (*watch)(twill_request *request, const struct twill_nan_watch *watch);
};
/* Return the present properties of a communicator, without claiming it. */
struct twill_extend_comm twill_extend_comm(const twill_comm *comm);
/* Do what twill_comm_dup() does and return its status. If `alone`, give the new communicator
 * network endpoints and completion queues that no other uses, so that a thread may have them to
 * itself. Its calls do not look for a NaN (TWILL_FIRST_NAN), as its user does. */
twill_status twill_extend_dup(twill_comm **made, twill_comm *comm, bool alone);
/* Create *chooser, which selects algorithms for the ranks of `comm`. It is not collective. Ranks of
 * a node that need the same prices share them. Use the chooser, and free it by
 * twill_chooser_destroy(), only while `comm` exists and no call is on it. Returns TWILL_OK or the
 * error. */
twill_status twill_extend_chooser(struct twill_chooser **chooser, twill_comm *comm,
                                  struct twill_error *error);

/* --- waits and progress ----------------------------------------------------------------------- */
/* Return whether a request that was started and not waited for has completed or failed, so that
 * twill_wait() would return at once. If so, and unless `joined` is NULL, set *joined to the number
 * of its collective, or to 0 if a rank could end that before it had data of all others. Any thread
 * may ask. Nothing is advanced or claimed. */
bool twill_extend_has_ended(twill_request *request, uint64_t *joined);
/* Advance the communicator, and others of its context, until done(of) is true, or once if `done` is
 * NULL. The wait times out when the timeout has passed without progress since *since (a
 * twill_now(), or 0 for now). If there was progress, *since becomes 0. Returns TWILL_OK, also at
 * once if the communicator is broken already, or the error, which has broken it. */
twill_status twill_extend_wait(twill_comm *comm, const char *call, bool (*done)(const void *of),
                               const void *of, uint64_t *since);
/* Wait until `waitable`, which is not the communicator, is done, or until `deadline` (a
 * twill_now()). Its sleeps also end when a rank of the node calls twill_extend_ring(). Does not
 * claim the communicator, so that may be in a call. Returns TWILL_OK, TWILL_ERR_TIMEOUT at the
 * deadline, or the error of the waitable's own functions. */
twill_status twill_extend_await(twill_comm *comm, struct twill_waitable waitable,
                                uint64_t deadline);
/* Wake a rank that sleeps in a wait, or do nothing if the rank is on another node. Does not claim
 * the communicator. */
void twill_extend_ring(twill_comm *comm, uint32_t rank);

/* --- failures --------------------------------------------------------------------------------- */
/* How a failed call affects its communicator. */
enum twill_extend_failure {
    TWILL_EXTEND_REFUSES, /* it stays usable, and its message is "rank R: call: ..." */
    TWILL_EXTEND_FAILS,   /* it breaks on all ranks. If another rank's failure has caused this one,
                             it breaks with that */
    TWILL_EXTEND_ENDS     /* it breaks on all ranks, unless it is broken already, because its user
                             has failed with a known cause */
};
/* Fail the public function `call` with `status` and a formatted message. `what` says whether the
 * communicator stays usable or breaks on all ranks. Returns the status with which the function has
 * failed. It is not `status` if another rank's failure was the cause, or if a thread is in another
 * call on the communicator. */
twill_status twill_extend_fail(twill_comm *comm, enum twill_extend_failure what, const char *call,
                               twill_status status, const char *format, ...) TWILL_PRINTF(5, 6);
/* Copy the failure that has broken the communicator to *failure, and return true. If `polls`, first
 * find out whether another rank has broken it. Returns false if it is not broken, if it has ended,
 * or if a thread is in a call on it, which then reports the failure. */
bool twill_extend_failure(twill_comm *comm, bool polls, struct twill_error *failure);
/* Return whether a rank's process certainly ended or destroyed its context. Any thread may ask. */
bool twill_extend_is_dead(twill_comm *comm, uint32_t rank);
#define TWILL_EXTEND_TEXT 160 /* bytes that a text of twill_extend_describe() may need */
enum twill_extend_noun {
    TWILL_EXTEND_RANK,      /* "rank R", with its rank in the job */
    TWILL_EXTEND_DEAD_RANK, /* the same, and how its death is known */
    TWILL_EXTEND_ENDPOINTS  /* for each transport, whether it has an endpoint to itself */
};
/* Write a text for a message to text[bytes], and return `text`. TWILL_EXTEND_RANK gives the name of
 * rank `rank` of the communicator, and TWILL_EXTEND_DEAD_RANK also how its death is known.
 * TWILL_EXTEND_ENDPOINTS describes the transports of this rank and does not read `rank`. Another
 * thread may be in a call on the communicator. */
const char *twill_extend_describe(twill_comm *comm, enum twill_extend_noun noun, uint32_t rank,
                                  char *text, size_t bytes);
/* Shorten the deadlines of a communicator that is about to be destroyed, if a wait for one of its
 * ranks has just timed out. The communicator must be in no call, as it is not claimed. */
void twill_extend_hurry(twill_comm *comm);

/* --- memory of the node ----------------------------------------------------------------------- */
/* Where the memory that a rank of this node shares is mapped in this process. All zeros if it
 * shares none. All memory of twill_alloc() is shared until the shared memory is full. */
struct twill_extend_memory {
    unsigned char *base;
    size_t bytes; /* size of this rank's own memory, or 0 for another rank's */
};
/* Return the memory that a rank of this node shares. Does not claim the communicator. */
struct twill_extend_memory twill_extend_memory(const twill_comm *comm, uint32_t rank);
/* Add `change` to the number of pins of the memory of twill_alloc() that contains these bytes,
 * which twill_free() refuses while there are any. Returns false if they are no such memory. */
bool twill_extend_pin(twill_context *context, const void *memory, size_t bytes, int change);

/* --- timelines and reports -------------------------------------------------------------------- */
/* Set the name of tensor `index` in later events of timelines. Does not claim the communicator. */
void twill_extend_name_tensor(twill_comm *comm, uint32_t index, const char *name);
/* Log one line after the text `what`, with the shares of the time of the communicator's calls since
 * the last report, or since its creation if `all`. `call` is the public function that does so. Does
 * nothing if the communicator is in another call. */
void twill_extend_report(twill_comm *comm, const char *call, const char *what, bool all);

#endif
