/* SPDX-License-Identifier: Apache-2.0 */
/* A lane: what reduces some of the buckets of a set, one after the other, on a communicator of its
 * own. A set has one lane, which its callers' threads advance; or, with options.threads, several,
 * each with a thread and a network endpoint of its own. A bucket belongs to one lane.
 *
 * One thread at a time works on a lane, under `lock`; it never blocks there unless it waits for a
 * result. A thread that marks the last tensor of a bucket ready sets `wanted`; if the lock is held,
 * the holder sees that and starts the bucket, also out of a wait. */
#ifndef TWILL_TRAIN_LANES_H
#define TWILL_TRAIN_LANES_H

#include "lib/train/compression/compression.h"
#include "lib/train/optimizer/update.h"

#include <pthread.h>

#define TWILL_LANE_SEGMENTS 2u  /* under way at a time, where they may be overtaken */
#define TWILL_LANES_MOST    64u /* of a set */

/* A reduction under way. */
struct twill_lane_flight {
    uint32_t bucket, segment;
};

/* The thread of a lane: lib/train/lanes/lane_thread.c. */
struct twill_lane_thread {
    pthread_t thread;
    int core;             /* the PU it is bound to; -1: it runs where the caller may */
    bool own_core;        /* of those that the rank may run on: no other is left */
    _Atomic bool running; /* set by the thread that uses the set; others read it */
    _Atomic bool stop;
    _Atomic bool lets_in;   /* it leaves its wait, and the lock to another thread */
    _Atomic uint32_t kicks; /* futex word: changes when the lane is wanted */
    _Atomic uint32_t ends;  /* futex word: changes when a bucket ends, or the set breaks */
};

/* Members are under `lock`, but for the atomics and the thread. */
struct twill_lane {
    struct twill_gradients *set;
    _Atomic bool locked;
    _Atomic bool wanted;    /* a bucket has become ready since the lane was last advanced */
    twill_comm *comm;       /* of the reductions */
    twill_comm *order_comm; /* of the exchanges on their order; NULL: TWILL_BUCKETS_BACKWARD */
    struct twill_update_queue *update; /* NULL: the set has no optimizer */
    struct twill_lane_thread own;

    uint32_t *order; /* [buckets] of this lane, as the backward pass completes them */
    uint32_t buckets;
    uint32_t next; /* TWILL_BUCKETS_BACKWARD: index into order of the next to start */
    struct twill_lane_flight *flight; /* [flights_most] a queue: under way, oldest first */
    uint32_t flights_most, oldest, flights;
    uint32_t collected; /* reductions */

    /* A wait that another thread has interrupted: */
    uint64_t interrupted_ns;        /* when it began, twill_now(); 0: none was */
    const twill_comm *interrupted;  /* on which communicator */
    uint32_t interrupted_collected; /* twill_lane_collected() then */

    /* TWILL_BUCKETS_BY_PRIORITY: an exchange of which buckets are ready here. */
    uint64_t *ready, *agreed; /* [words] bit i for bucket order[i]: of this rank, of all ranks */
    uint32_t words;
    twill_request *exchange;   /* persistent */
    bool exchanging;           /* it is under way */
    uint64_t exchange_from_ns; /* twill_now() before which no other one begins */
};

/* Create all communicators of the set. Collective; later steps of a commit may fail on one rank, as
 * the others are notified on these, and the caller's is not harmed. */
twill_status twill_lanes_open(struct twill_gradients *set);
/* Divide the set's buckets among the lanes, and prepare their reductions. Collective, between
 * steps. */
twill_status twill_lanes_prepare(struct twill_gradients *set);
/* Free what twill_lanes_prepare() made. Nothing is under way. */
void twill_lanes_unprepare(struct twill_gradients *set);
/* Wait for what is under way on all lanes, unless the set is broken. */
void twill_lanes_finish(struct twill_gradients *set);
void twill_lanes_close(struct twill_gradients *set);
/* Have all lanes end if the set is broken, as a lane that has failed does by itself: no rank then
 * waits for this one. Returns `status`. No lane is locked by this thread. */
twill_status twill_lanes_check(struct twill_gradients *set, twill_status status);
/* Record that a call on a communicator of the lane has failed, and have all lanes end. The lane is
 * locked. */
twill_status twill_lane_fail(struct twill_lane *lane, twill_comm *comm, twill_status status);

/* Lock a lane. A holder that waits leaves soon, as it sees `wanted`. */
void twill_lane_lock(struct twill_lane *lane);
bool twill_lane_try_lock(struct twill_lane *lane);
/* Unlock it, and start what has become ready meanwhile. */
void twill_lane_unlock(struct twill_lane *lane);
/* A bucket is ready: start what may start, or have the lane's thread or the holder of the lock do
 * it. Any thread. */
void twill_lane_kick(struct twill_lane *lane);
/* Collect what is complete and start what may start. Returns TWILL_OK or the failure of the set.
 * The lane is locked. */
twill_status twill_lane_advance(struct twill_lane *lane);
/* Advance the lane and the reductions under way, once. The lane is locked. */
twill_status twill_lane_progress(struct twill_lane *lane);
/* Return whether a reduction or an update is under way. The lane is locked. */
bool twill_lane_is_busy(const struct twill_lane *lane);
/* Return the reductions and all-gathers of parameters that are complete. */
uint32_t twill_lane_collected(const struct twill_lane *lane);
/* Wait until a reduction or exchange under way is complete, or a bucket becomes ready, at most
 * until `deadline` (twill_now()) if nothing is under way. Returns TWILL_PENDING at the deadline,
 * < 0 after a failure. The lane is locked. */
twill_status twill_lane_wait(struct twill_lane *lane, uint64_t deadline);

/* --- lib/train/lanes/lane_thread.c --- */

/* Start the lane's thread, on a PU of its own if there is one. */
twill_status twill_lane_thread_start(struct twill_lane *lane);
/* Stop it and wait for its end. */
void twill_lane_thread_stop(struct twill_lane *lane);
/* Wake the thread: the lane is wanted. */
void twill_lane_thread_wake(struct twill_lane *lane);
/* Lock a lane with a thread, which leaves its wait. One caller at a time. */
void twill_lane_interrupt(struct twill_lane *lane);
/* A bucket of the lane has ended, or the set has broken: wake who waits for it. */
void twill_lane_note_end(struct twill_lane *lane);
/* Sleep until lane.own.ends differs from `seen`, some milliseconds at most. */
void twill_lane_await_end(struct twill_lane *lane, uint32_t seen);

/* Describe where a lane's thread runs, and its endpoints, from the package down. */
void twill_lane_describe(const struct twill_lane *lane, char *text, size_t bytes);

/* --- lib/train/lanes/priority.c --- */

twill_status twill_priority_prepare(struct twill_lane *lane);
void twill_priority_unprepare(struct twill_lane *lane);
/* Advance the exchange and start what the ranks agree on. */
twill_status twill_priority_advance(struct twill_lane *lane);

/* --- lib/train/lanes/lane.c, for priority.c --- */

/* Start a segment of a bucket. */
twill_status twill_lane_start(struct twill_lane *lane, uint32_t bucket);
/* Return whether this rank is ready for a reduction of the bucket that is not agreed yet. */
bool twill_bucket_is_ready(const struct twill_bucket *bucket);

#endif
