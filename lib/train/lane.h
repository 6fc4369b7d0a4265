/* SPDX-License-Identifier: Apache-2.0 */
/* A lane: what reduces the buckets of a set, one after the other, on a communicator of its own.
 *
 * One thread at a time works on it, under `lock`; it never blocks there unless it waits for a
 * result. A thread that marks the last tensor of a bucket ready sets `wanted`; if the lock is held,
 * the holder sees that and starts the bucket, also out of a wait. */
#ifndef TWILL_TRAIN_LANE_H
#define TWILL_TRAIN_LANE_H

#include "lib/base.h"

#include <stdatomic.h>

struct twill_gradients;
struct twill_bucket;

#define TWILL_LANE_SEGMENTS 2u /* under way at a time, where they may be overtaken */

/* A reduction under way. */
struct twill_lane_flight {
    uint32_t bucket, segment;
};

/* Members are under `lock`, but for the two atomics. */
struct twill_lane {
    _Atomic bool locked;
    _Atomic bool wanted;    /* a bucket has become ready since the lane was last advanced */
    twill_comm *comm;       /* of the reductions */
    twill_comm *order_comm; /* of the exchanges on their order; NULL: TWILL_BUCKETS_BACKWARD */

    uint32_t *order; /* [buckets] in which they are reduced, or by priority */
    uint32_t next;   /* TWILL_BUCKETS_BACKWARD: index into order of the next to start */
    struct twill_lane_flight *flight; /* [flights_most] a queue: under way, oldest first */
    uint32_t flights_most, oldest, flights;
    uint32_t collected; /* reductions, and all-gathers of parameters */

    /* TWILL_BUCKETS_BY_PRIORITY: an exchange of which buckets are ready here. */
    uint64_t *ready, *agreed; /* [words] one bit a bucket: of this rank, of all ranks */
    uint32_t words;
    twill_request *exchange;   /* persistent */
    bool exchanging;           /* it is under way */
    uint64_t exchange_from_ns; /* twill_now() before which no other one begins */
};

/* Create the communicators. Collective. */
twill_status twill_lane_open(struct twill_gradients *set);
/* Prepare the reductions of the set's buckets. Collective, between steps. */
twill_status twill_lane_prepare(struct twill_gradients *set);
/* Free what twill_lane_prepare() made. Nothing is under way. */
void twill_lane_unprepare(struct twill_gradients *set);
void twill_lane_close(struct twill_gradients *set);

/* Lock the lane. A holder that waits leaves soon, as it sees `wanted`. */
void twill_lane_lock(struct twill_lane *lane);
/* Unlock it, and start what has become ready meanwhile. */
void twill_lane_unlock(struct twill_gradients *set);
/* A bucket is ready: start what may start, or have the holder of the lock do it. Any thread. */
void twill_lane_kick(struct twill_gradients *set);
/* Collect what is complete and start what may start. Returns TWILL_OK or the failure of the set.
 * The lane is locked. */
twill_status twill_lane_advance(struct twill_gradients *set);
/* Advance the lane and the reductions under way, once. The lane is locked. */
twill_status twill_lane_progress(struct twill_gradients *set);
/* Return whether a reduction or an update is under way. The lane is locked. */
bool twill_lane_is_busy(const struct twill_gradients *set);
/* Wait until a reduction or exchange under way is complete, or a bucket becomes ready, at most
 * until `deadline` (twill_now()) if nothing is under way. Returns TWILL_PENDING at the deadline,
 * < 0 after a failure. The lane is locked. */
twill_status twill_lane_wait(struct twill_gradients *set, uint64_t deadline);

/* --- lib/train/priority.c --- */

twill_status twill_priority_prepare(struct twill_gradients *set);
void twill_priority_unprepare(struct twill_gradients *set);
/* Advance the exchange and start what the ranks agree on. */
twill_status twill_priority_advance(struct twill_gradients *set);

/* --- lib/train/lane.c, for priority.c --- */

/* Start a segment of a bucket. */
twill_status twill_lane_start(struct twill_gradients *set, uint32_t bucket);
/* Return whether this rank is ready for a reduction of the bucket that is not agreed yet. */
bool twill_bucket_is_ready(const struct twill_bucket *bucket);

#endif
