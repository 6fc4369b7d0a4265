/* SPDX-License-Identifier: Apache-2.0 */
/* A reducer: what reduces some of the buckets of a set, one after the other, on a communicator of
 * its own. A set has one reducer, which its callers' threads advance; or, with options.threads,
 * several, each with a thread and a network endpoint of its own. A bucket belongs to one reducer.
 *
 * One thread at a time works on a reducer, under `lock`; it never blocks there unless it waits for
 * a result. A thread that marks the last tensor of a bucket ready sets `wanted`; if the lock is
 * held, the holder sees that and starts the bucket, also out of a wait. */
#ifndef TWILL_TRAIN_REDUCERS_H
#define TWILL_TRAIN_REDUCERS_H

#include "lib/train/compression/compression.h"
#include "lib/train/optimizer/update.h"

#include <pthread.h>

#define TWILL_REDUCER_SEGMENTS 2u  /* under way at a time, where they may be overtaken */
#define TWILL_REDUCERS_MOST    64u /* of a set */

/* A reduction under way. */
struct twill_reducer_flight {
    uint32_t bucket, segment;
};

/* The thread of a reducer: lib/train/reducers/reducer_thread.c. */
struct twill_reducer_thread {
    pthread_t thread;
    int pu;               /* the PU it is bound to; -1: it runs where the caller may */
    bool own_pu;          /* of those that the rank may run on: no other is left */
    _Atomic bool running; /* set by the thread that uses the set; others read it */
    _Atomic bool stop;
    _Atomic bool lets_in;   /* it leaves its wait, and the lock to another thread */
    _Atomic uint32_t kicks; /* futex word: changes when the reducer is wanted */
    _Atomic uint32_t ends;  /* futex word: changes when a bucket ends, or the set breaks */
};

/* Members are under `lock`, but for the atomics and the thread. */
struct twill_reducer {
    struct twill_gradients *set;
    _Atomic bool locked;
    _Atomic bool wanted;    /* a bucket has become ready since the reducer was last advanced */
    twill_comm *comm;       /* of the reductions */
    twill_comm *order_comm; /* of the exchanges on their order; NULL: TWILL_BUCKETS_BACKWARD */
    struct twill_update_queue *update; /* NULL: the set has no optimizer */
    struct twill_reducer_thread own;

    uint32_t *order; /* [buckets] of this reducer, as the backward pass completes them */
    uint32_t buckets;
    uint32_t next; /* TWILL_BUCKETS_BACKWARD: index into order of the next to start */
    struct twill_reducer_flight *flight; /* [flights_most] a queue: under way, oldest first */
    uint32_t flights_most, oldest, flights;
    uint32_t collected; /* reductions */

    /* A wait that another thread has interrupted: */
    uint64_t interrupted_ns;        /* when it began, twill_now(); 0: none was */
    const twill_comm *interrupted;  /* on which communicator */
    uint32_t interrupted_collected; /* twill_reducer_collected() then */

    /* TWILL_BUCKETS_BY_PRIORITY: an exchange of which buckets are ready here. */
    uint64_t *ready, *agreed; /* [words] bit i for bucket order[i]: of this rank, of all ranks */
    uint32_t words;
    twill_request *exchange;   /* persistent */
    bool exchanging;           /* it is under way */
    uint64_t exchange_from_ns; /* twill_now() before which no other one begins */
};

/* Create all communicators of the set. Collective; later steps of a commit may fail on one rank, as
 * the others are notified on these, and the caller's is not harmed. */
twill_status twill_reducers_open(struct twill_gradients *set);
/* Divide the set's buckets among the reducers, and prepare their reductions. Collective, between
 * steps. */
twill_status twill_reducers_prepare(struct twill_gradients *set);
/* Free what twill_reducers_prepare() made. Nothing is under way. */
void twill_reducers_unprepare(struct twill_gradients *set);
/* Wait for what is under way on all reducers, unless the set is broken. */
void twill_reducers_finish(struct twill_gradients *set);
void twill_reducers_close(struct twill_gradients *set);
/* Have all reducers end if the set is broken, as a reducer that has failed does by itself: no rank
 * then waits for this one. Returns `status`. No reducer is locked by this thread. */
twill_status twill_reducers_check(struct twill_gradients *set, twill_status status);
/* Record that a call on a communicator of the reducer has failed, and have all reducers end. The
 * reducer is locked. */
twill_status twill_reducer_fail(struct twill_reducer *reducer, twill_comm *comm,
                                twill_status status);

/* Lock a reducer. A holder that waits leaves soon, as it sees `wanted`. */
void twill_reducer_lock(struct twill_reducer *reducer);
bool twill_reducer_try_lock(struct twill_reducer *reducer);
/* Unlock it, and start what has become ready meanwhile. */
void twill_reducer_unlock(struct twill_reducer *reducer);
/* A bucket is ready: start what may start, or have the reducer's thread or the holder of the lock
 * do it. Any thread. */
void twill_reducer_kick(struct twill_reducer *reducer);
/* Collect what is complete and start what may start. Returns TWILL_OK or the failure of the set.
 * The reducer is locked. */
twill_status twill_reducer_advance(struct twill_reducer *reducer);
/* Advance the reducer and the reductions under way, once. The reducer is locked. */
twill_status twill_reducer_progress(struct twill_reducer *reducer);
/* Return whether a reduction or an update is under way. The reducer is locked. */
bool twill_reducer_is_busy(const struct twill_reducer *reducer);
/* Return the reductions and all-gathers of parameters that are complete. */
uint32_t twill_reducer_collected(const struct twill_reducer *reducer);
/* Wait until a reduction or exchange under way is complete, or a bucket becomes ready, at most
 * until `deadline` (twill_now()) if nothing is under way. Returns TWILL_PENDING at the deadline,
 * < 0 after a failure. The reducer is locked. */
twill_status twill_reducer_wait(struct twill_reducer *reducer, uint64_t deadline);

/* --- lib/train/reducers/reducer_thread.c --- */

/* Start the reducer's thread, on a PU of its own if there is one. */
twill_status twill_reducer_thread_start(struct twill_reducer *reducer);
/* Stop it and wait for its end. */
void twill_reducer_thread_stop(struct twill_reducer *reducer);
/* Wake the thread: the reducer is wanted. */
void twill_reducer_thread_wake(struct twill_reducer *reducer);
/* Lock a reducer with a thread, which leaves its wait. One caller at a time. */
void twill_reducer_interrupt(struct twill_reducer *reducer);
/* A bucket of the reducer has ended, or the set has broken: wake who waits for it. */
void twill_reducer_note_end(struct twill_reducer *reducer);
/* Sleep until reducer.own.ends differs from `seen`, some milliseconds at most. */
void twill_reducer_await_end(struct twill_reducer *reducer, uint32_t seen);

/* Describe where a reducer's thread runs, and its endpoints, from the package down. */
void twill_reducer_describe(const struct twill_reducer *reducer, char *text, size_t bytes);

/* --- lib/train/reducers/priority.c --- */

twill_status twill_priority_prepare(struct twill_reducer *reducer);
void twill_priority_unprepare(struct twill_reducer *reducer);
/* Advance the exchange and start what the ranks agree on. */
twill_status twill_priority_advance(struct twill_reducer *reducer);

/* --- lib/train/reducers/reducer.c, for priority.c --- */

/* Start a segment of a bucket. */
twill_status twill_reducer_start(struct twill_reducer *reducer, uint32_t bucket);
/* Return whether this rank is ready for a reduction of the bucket that is not agreed yet. */
bool twill_bucket_is_ready(const struct twill_bucket *bucket);

#endif
