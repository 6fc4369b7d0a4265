/* SPDX-License-Identifier: Apache-2.0 */
/* A reducer reduces some of the buckets of a set, one after the other, on its own communicator. A
 * set has one reducer, which its callers' threads advance. With options.threads it has several,
 * each with its own thread and network endpoint. A bucket belongs to one reducer.
 *
 * One thread at a time works on a reducer, under `lock`, and blocks there only to wait for a
 * result. A thread that marks the last tensor of a bucket ready sets `wanted`. If the lock is held,
 * the holder sees that, even in a wait, and starts the bucket. */
#ifndef TWILL_TRAIN_REDUCERS_H
#define TWILL_TRAIN_REDUCERS_H

#include "lib/train/compression/compression.h"
#include "lib/train/optimizer/update.h"

#include <pthread.h>

#define TWILL_REDUCER_SEGMENTS 2u  /* under way at a time, if others may overtake them */
#define TWILL_REDUCERS_MOST    64u /* most reducers of a set */

/* A reduction under way, of one segment of a bucket, in the queue of its reducer. */
struct twill_reducer_flight {
    uint32_t bucket, segment;
};

/* A reducer's thread. Only the thread that uses the set writes what is not atomic. */
struct twill_reducer_thread {
    pthread_t thread;
    int pu;               /* PU it is bound to, or -1 if it runs where the caller may */
    bool own_pu;          /* that PU is one of the rank's own, as no other is left */
    _Atomic bool running; /* set by the thread that uses the set, read by others */
    _Atomic bool stop;
    _Atomic bool lets_in;   /* it ends its wait and leaves the lock to another thread */
    _Atomic uint32_t kicks; /* futex word that changes when the reducer is wanted */
    _Atomic uint32_t ends;  /* futex word that changes when a bucket ends or the set breaks */
};

/* A part of a gradient set that reduces some of its buckets on its own communicators. Made by
 * twill_reducers_open(), freed by twill_reducers_close(). Under its lock, except atomics. */
struct twill_reducer {
    struct twill_gradients *set;
    _Atomic bool locked;
    _Atomic bool wanted;    /* a bucket has become ready since the last advance */
    twill_comm *comm;       /* for reductions */
    twill_comm *order_comm; /* for exchanges on their order; NULL if TWILL_BUCKETS_BACKWARD */
    struct twill_update_queue *update; /* NULL without an optimizer */
    struct twill_reducer_thread own;

    uint32_t *order; /* [buckets] of this reducer, in the order of the backward pass */
    uint32_t buckets;
    uint32_t next; /* index in order[] of the next to start, if TWILL_BUCKETS_BACKWARD */
    struct twill_reducer_flight *flight; /* [flights_most] queue of those under way, oldest first */
    uint32_t flights_most, oldest, flights; /* room, index of the oldest, and number */
    uint32_t collected;                     /* number of reductions collected */
    uint64_t joined[2]; /* [generation] number of the last call collected that joined all ranks */

    /* A wait that another thread has interrupted. */
    uint64_t interrupted_ns;        /* twill_now() at its beginning, or 0 */
    const twill_comm *interrupted;  /* its communicator */
    uint32_t interrupted_collected; /* twill_reducer_collected() at that time */

    /* The exchange of which buckets are ready, with TWILL_BUCKETS_BY_PRIORITY. */
    uint64_t *ready, *agreed; /* [words] bit i is for bucket order[i], of this rank and of all */
    uint32_t words;
    twill_request *exchange;   /* persistent */
    bool exchanging;           /* the exchange is under way */
    uint64_t exchange_from_ns; /* twill_now() before which no other exchange begins */
};
/* Make the reducers of the set, with all communicators. Collective. If a later step of the commit
 * fails on a rank, the others learn it on these, so the caller's stays intact. Returns TWILL_OK or
 * the error. */
twill_status twill_reducers_open(struct twill_gradients *set);
/* Divide the buckets among reducers, prepare and start these. Collective. Returns the status. */
twill_status twill_reducers_prepare(struct twill_gradients *set);
/* Stop the threads and free what twill_reducers_prepare() made. Nothing may be under way. */
void twill_reducers_unprepare(struct twill_gradients *set);
/* Stop the threads of all reducers. Then, unless the set is broken, wait until nothing is under way
 * on any reducer. */
void twill_reducers_finish(struct twill_gradients *set);
/* Stop the threads, and destroy the reducers and their communicators. If the set or the caller's
 * communicator is broken, these are broken first, so that no rank waits for another. */
void twill_reducers_close(struct twill_gradients *set);
/* If this thread is the first to see set->usage.nan.text complete, tell all ranks, and log it or
 * have the next reduction fail. */
void twill_reducers_tell_nan(struct twill_gradients *set);
/* If the set is broken and `status` is an error, have all reducers end, so that no rank waits for
 * this one. A reducer that fails does that itself. Returns `status`. This thread holds no lock. */
twill_status twill_reducers_check(struct twill_gradients *set, twill_status status);
/* Break the set because a call on a reducer's communicator has failed, and have all reducers end.
 * Returns `status`. The caller holds the reducer's lock. */
twill_status twill_reducer_fail(struct twill_reducer *reducer, twill_comm *comm,
                                twill_status status);
/* Lock a reducer. Waits until the thread that has it locked unlocks it. A thread that sleeps there
 * for a result does so soon only if the caller has set `wanted` before. */
void twill_reducer_lock(struct twill_reducer *reducer);
/* Lock a reducer if it is not locked. Returns whether it was locked by this call. */
bool twill_reducer_try_lock(struct twill_reducer *reducer);
/* Unlock a reducer. If it has no thread, also start what has become ready meanwhile. */
void twill_reducer_unlock(struct twill_reducer *reducer);
/* Set `wanted`, as a bucket of the reducer has become ready, and have the reducer advanced, which
 * starts the bucket. The reducer's thread does that, or without one the thread that has the reducer
 * locked, or else this thread. */
void twill_reducer_kick(struct twill_reducer *reducer);
/* Collect what is complete and start what may start, with the lock held. If that fails, have all
 * reducers end and return the error. If the set was broken before, end this reducer and return
 * TWILL_ERR_BROKEN. Otherwise return TWILL_OK. */
twill_status twill_reducer_advance(struct twill_reducer *reducer);
/* Advance a locked reducer and its reductions once. Returns TWILL_OK or the set's failure. */
twill_status twill_reducer_progress(struct twill_reducer *reducer);
/* Return whether a reduction or an update is under way. The caller holds the lock. */
bool twill_reducer_is_busy(const struct twill_reducer *reducer);
/* Return how many reductions and all-gathers of parameters have been found complete and ended. Only
 * differences count, as a new division of the tensors may set parts of it to 0. */
uint32_t twill_reducer_collected(const struct twill_reducer *reducer);
/* Wait, with the lock held, until something under way is complete, a bucket is ready, another
 * thread wants the lock, or the set is broken. If nothing is under way, wait until `deadline` (a
 * twill_now()) at most. Returns TWILL_OK, TWILL_PENDING at the deadline, or the error. */
twill_status twill_reducer_wait(struct twill_reducer *reducer, uint64_t deadline);

/* --- lib/train/reducers/reducer_thread.c --- */
/* Start the reducer's thread, unless it runs, bound to a PU if one is left. Returns TWILL_OK or,
 * after stopping the threads of all reducers, TWILL_ERR_SYSTEM. */
twill_status twill_reducer_thread_start(struct twill_reducer *reducer);
/* Stop the thread and wait for its end. */
void twill_reducer_thread_stop(struct twill_reducer *reducer);
/* Wake the reducer's thread if it sleeps. The caller has set `wanted` before. */
void twill_reducer_thread_wake(struct twill_reducer *reducer);
/* Lock a reducer whose thread runs, interrupting its wait. One caller at a time. */
void twill_reducer_interrupt(struct twill_reducer *reducer);
/* Lock a reducer, interrupting the wait of its thread if it has one. One caller at a time. */
void twill_reducer_hold(struct twill_reducer *reducer);
/* Wake threads that wait for a bucket of the reducer, as one has ended or the set has broken. */
void twill_reducer_note_end(struct twill_reducer *reducer);
/* Sleep until reducer.own.ends differs from `seen`, for a few milliseconds at most. */
void twill_reducer_await_end(struct twill_reducer *reducer, uint32_t seen);
/* Describe in text[bytes] where a reducer's thread runs, from the package down, and its network
 * endpoints. */
void twill_reducer_describe(const struct twill_reducer *reducer, char *text, size_t bytes);

/* --- lib/train/reducers/priority.c --- */
/* Prepare the exchange of which buckets are ready. Collective. Returns TWILL_OK or the error. */
twill_status twill_priority_prepare(struct twill_reducer *reducer);
/* Free what twill_priority_prepare() made. */
void twill_priority_unprepare(struct twill_reducer *reducer);
/* Advance the exchanges by which ranks agree on buckets that are ready on all. Each one that ends
 * starts the next segment of an agreed bucket. Returns TWILL_OK once this cannot continue without
 * waiting, or the error. */
twill_status twill_priority_advance(struct twill_reducer *reducer);

/* --- lib/train/reducers/reducer.c, for priority.c --- */
/* Start the reduction of the next segment of a bucket. Returns TWILL_OK or the error. */
twill_status twill_reducer_start(struct twill_reducer *reducer, uint32_t bucket);
/* Return whether a bucket is ready in a step for which the reducer has not yet counted it as ready
 * on all ranks (bucket->agreed). Ready means that all its tensors are marked. */
bool twill_bucket_is_ready(const struct twill_bucket *bucket);

#endif
