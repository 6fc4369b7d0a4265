/* SPDX-License-Identifier: Apache-2.0 */
/* The lane's communicators, its lock, and its progress in the order of the backward pass. */
#include "lib/train/lane.h"

#include "lib/exec/progress.h"
#include "lib/train/gradients.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define LOCK_SPINS    200u   /* a holder that does not wait leaves soon */
#define THREAD_NAP_NS 50000u /* of a wait for another thread to mark a tensor ready */

/* --- set-up ---------------------------------------------------------------------------------- */

twill_status twill_gradients_duplicate(struct twill_gradients *set, twill_comm **made)
{
    twill_status status = twill_comm_dup(made, set->parent);
    if (status != TWILL_OK)
        return TWILL_FAIL(&set->error, status, "%s", twill_comm_message(set->parent));
    return TWILL_OK;
}

twill_status twill_lane_open(struct twill_gradients *set)
{
    TWILL_TRY(&set->error, twill_gradients_duplicate(set, &set->lane.comm));
    if (set->options.order == TWILL_BUCKETS_BY_PRIORITY)
        TWILL_TRY(&set->error, twill_gradients_duplicate(set, &set->lane.order_comm));
    return TWILL_OK;
}

void twill_lane_close(struct twill_gradients *set)
{
    twill_comm_destroy(set->lane.comm);
    twill_comm_destroy(set->lane.order_comm);
    set->lane.comm = set->lane.order_comm = NULL;
}

size_t twill_bucket_segment(const struct twill_gradients *set, const struct twill_bucket *bucket)
{
    size_t bytes = set->options.segment_bytes;
    if (set->options.order != TWILL_BUCKETS_BY_PRIORITY)
        return bucket->wire.used ? bucket->wire.units : bucket->count;
    if (bucket->wire.used)
        return twill_wire_units(set, bytes);
    return twill_max(bytes / twill_type_size(bucket->type), 1);
}

/* Prepare the reduction of `count` elements of a bucket, or units of its codes, from `from` on. */
static twill_status prepare_segment(struct twill_gradients *set, const struct twill_bucket *bucket,
                                    size_t from, size_t count, twill_request **request)
{
    if (bucket->wire.used)
        return twill_wire_request(set, bucket, from, count, request);
    if (set->update != NULL)
        return twill_update_init_reduction(set, bucket, from, count, request);
    unsigned char *at = bucket->memory + from * twill_type_size(bucket->type);
    return twill_allreduce_init(set->lane.comm, at, at, count, bucket->type, bucket->op, request);
}

/* Prepare the reductions of a bucket's segments. */
static twill_status prepare_bucket(struct twill_gradients *set, struct twill_bucket *bucket)
{
    size_t whole = bucket->wire.used ? bucket->wire.units : bucket->count,
           most = twill_bucket_segment(set, bucket), segments = (whole + most - 1) / most;
    if (segments > UINT32_MAX)
        return TWILL_FAIL(&set->error, TWILL_ERR_ARGUMENT, "a bucket of %zu segments", segments);
    bucket->request = calloc(segments, sizeof(twill_request *));
    if (bucket->request == NULL)
        return TWILL_FAIL(&set->error, TWILL_ERR_MEMORY, "out of memory for a bucket");
    for (bucket->segments = 0; bucket->segments < segments; bucket->segments++) {
        size_t from = bucket->segments * most, count = twill_min(most, whole - from);
        twill_status status =
            prepare_segment(set, bucket, from, count, &bucket->request[bucket->segments]);
        if (status != TWILL_OK)
            return twill_gradients_fail(set, set->lane.comm, status);
    }
    return TWILL_OK;
}

twill_status twill_lane_prepare(struct twill_gradients *set)
{
    struct twill_lane *lane = &set->lane;
    uint32_t n = set->buckets;
    lane->order = calloc(n, sizeof(*lane->order));
    lane->flight = calloc(n + TWILL_LANE_SEGMENTS, sizeof(*lane->flight));
    lane->flights_most = (uint32_t)twill_max(n, TWILL_LANE_SEGMENTS);
    lane->next = lane->oldest = lane->flights = 0;
    if (lane->order == NULL || lane->flight == NULL)
        return TWILL_FAIL(&set->error, TWILL_ERR_MEMORY, "out of memory for %u buckets", n);
    for (uint32_t b = 0; b < n; b++) {
        lane->order[b] = b;
        TWILL_TRY(&set->error, prepare_bucket(set, &set->bucket[b]));
    }
    if (lane->order_comm != NULL)
        TWILL_TRY(&set->error, twill_priority_prepare(set));
    return set->update != NULL ? twill_update_prepare(set) : TWILL_OK;
}

void twill_lane_unprepare(struct twill_gradients *set)
{
    struct twill_lane *lane = &set->lane;
    for (uint32_t b = 0; b < set->buckets; b++) {
        struct twill_bucket *bucket = &set->bucket[b];
        for (uint32_t s = 0; bucket->request != NULL && s < bucket->segments; s++)
            (void)twill_request_free(&bucket->request[s]);
        free((void *)bucket->request);
        bucket->request = NULL;
    }
    twill_priority_unprepare(set);
    if (set->update != NULL)
        twill_update_unprepare(set);
    free(lane->order);
    free(lane->flight);
    lane->order = NULL;
    lane->flight = NULL;
}

/* --- the lock -------------------------------------------------------------------------------- */

static bool try_lock(struct twill_lane *lane)
{
    return !atomic_load_explicit(&lane->locked, memory_order_relaxed) &&
           !atomic_exchange(&lane->locked, true);
}

void twill_lane_lock(struct twill_lane *lane)
{
    for (unsigned spins = 0; !try_lock(lane); spins++) {
        if (spins < LOCK_SPINS)
            twill_pause();
        else
            sched_yield();
    }
}

/* Advance the lane until nothing is wanted, unless another thread holds it: that thread then sees
 * `wanted`, in its wait or after its unlock. */
static void advance_wanted(struct twill_gradients *set)
{
    struct twill_lane *lane = &set->lane;
    while (atomic_load(&lane->wanted) && try_lock(lane)) {
        (void)twill_lane_advance(set); /* a failure has broken the set */
        atomic_store(&lane->locked, false);
    }
}

void twill_lane_unlock(struct twill_gradients *set)
{
    atomic_store(&set->lane.locked, false);
    advance_wanted(set);
}

void twill_lane_kick(struct twill_gradients *set)
{
    struct twill_lane *lane = &set->lane;
    atomic_store(&lane->wanted, true);
    advance_wanted(set);
    if (atomic_load(&lane->wanted)) /* the holder may sleep in its wait */
        twill_node_ring_doorbell(lane->comm->node, lane->comm->local);
}

/* --- progress -------------------------------------------------------------------------------- */

bool twill_bucket_is_ready(const struct twill_bucket *bucket)
{
    return atomic_load_explicit(&bucket->filled, memory_order_acquire) != bucket->agreed;
}

twill_status twill_lane_start(struct twill_gradients *set, uint32_t b)
{
    struct twill_lane *lane = &set->lane;
    struct twill_bucket *bucket = &set->bucket[b];
    uint32_t segment = bucket->started % bucket->segments;
    twill_status status = twill_request_start(bucket->request[segment]);
    if (status != TWILL_OK)
        return twill_gradients_fail(set, lane->comm, status);
    lane->flight[(lane->oldest + lane->flights++) % lane->flights_most] =
        (struct twill_lane_flight){b, segment};
    bucket->started++;
    twill_counter_add(&set->usage.operations, 1);
    return TWILL_OK;
}

static struct twill_request *oldest_request(const struct twill_gradients *set)
{
    const struct twill_lane *lane = &set->lane;
    if (lane->flights == 0)
        return NULL;
    const struct twill_lane_flight *flight = &lane->flight[lane->oldest];
    return twill_request_find(set->bucket[flight->bucket].request[flight->segment]);
}

/* Collect the reductions that are complete, oldest first. */
static twill_status collect(struct twill_gradients *set)
{
    struct twill_lane *lane = &set->lane;
    while (lane->flights > 0 && twill_request_done(oldest_request(set))) {
        const struct twill_lane_flight *flight = &lane->flight[lane->oldest];
        struct twill_bucket *bucket = &set->bucket[flight->bucket];
        twill_status status = twill_wait(&bucket->request[flight->segment]);
        if (status != TWILL_OK)
            return twill_gradients_fail(set, lane->comm, status);
        lane->collected++;
        if (set->update != NULL)
            twill_update_queue(set, flight->bucket, flight->segment);
        else
            bucket->ended++;
        lane->oldest = (lane->oldest + 1) % lane->flights_most;
        lane->flights--;
    }
    return TWILL_OK;
}

/* Start the buckets that are ready, each after those before it. */
static twill_status start_in_order(struct twill_gradients *set)
{
    struct twill_lane *lane = &set->lane;
    while (lane->flights < lane->flights_most) {
        uint32_t b = lane->order[lane->next];
        if (!twill_bucket_is_ready(&set->bucket[b]))
            break;
        set->bucket[b].agreed++;
        TWILL_TRY(&set->error, twill_lane_start(set, b));
        lane->next = (lane->next + 1) % set->buckets;
    }
    return TWILL_OK;
}

twill_status twill_lane_advance(struct twill_gradients *set)
{
    struct twill_lane *lane = &set->lane;
    atomic_store(&lane->wanted, false);
    if (set->broken)
        return TWILL_ERR_BROKEN;
    TWILL_TRY(&set->error, collect(set));
    if (set->update != NULL)
        TWILL_TRY(&set->error, twill_update_advance(set));
    return lane->order_comm != NULL ? twill_priority_advance(set) : start_in_order(set);
}

bool twill_lane_is_busy(const struct twill_gradients *set)
{
    return set->lane.flights > 0 || twill_update_is_busy(set);
}

twill_status twill_lane_progress(struct twill_gradients *set)
{
    struct twill_lane *lane = &set->lane;
    TWILL_TRY(&set->error, twill_lane_advance(set));
    if (!twill_lane_is_busy(set) && !lane->exchanging)
        return TWILL_OK;
    struct twill_comm *comm = lane->flights > 0           ? lane->comm
                              : twill_update_is_busy(set) ? set->update->comm
                                                          : lane->order_comm;
    twill_status status = twill_comm_acquire(comm, "twill_gradients_test");
    if (status == TWILL_OK) {
        status = twill_comm_progress(comm); /* also of the context's other communicators */
        twill_comm_release(comm);
    }
    if (status != TWILL_OK)
        return twill_gradients_fail(set, comm, status);
    return twill_lane_advance(set);
}

/* --- waiting --------------------------------------------------------------------------------- */

/* What ends a wait. */
struct awaited {
    const struct twill_lane *lane;
    const struct twill_request *any[4]; /* or NULL: the oldest reduction, the exchange, a gather of
                                           parameters, one of norms */
};

static bool has_arrived(const void *of)
{
    const struct awaited *awaited = of;
    bool any = atomic_load_explicit(&awaited->lane->wanted, memory_order_acquire);
    for (size_t i = 0; !any && i < TWILL_ARRAY_LENGTH(awaited->any); i++)
        any = awaited->any[i] != NULL && twill_request_done(awaited->any[i]);
    return any;
}

/* Wait for another thread, or for the time of the next exchange; other communicators of the
 * context are advanced meanwhile. */
static twill_status wait_for_thread(struct twill_gradients *set, uint64_t deadline)
{
    struct twill_comm *comm = set->lane.comm;
    uint64_t now = twill_now(), until = set->lane.exchange_from_ns;
    while (!atomic_load(&set->lane.wanted) && (until == 0 || now < until)) {
        if (now >= deadline)
            return TWILL_PENDING;
        if (twill_comm_acquire(comm, "twill_gradients_wait") != TWILL_OK)
            return twill_gradients_fail(set, comm, TWILL_ERR_ARGUMENT);
        twill_status status = twill_comm_poll_failures(comm, true);
        if (status != TWILL_OK)
            status = twill_comm_fail(comm, status);
        twill_comm_release(comm);
        if (status != TWILL_OK)
            return twill_gradients_fail(set, comm, status);
        if (twill_context_advance(set->context, NULL) == 0) {
            struct timespec nap = {.tv_nsec = THREAD_NAP_NS};
            (void)nanosleep(&nap, NULL);
        }
        now = twill_now();
    }
    return TWILL_OK;
}

twill_status twill_lane_wait(struct twill_gradients *set, uint64_t deadline)
{
    struct twill_lane *lane = &set->lane;
    struct awaited awaited = {lane,
                              {oldest_request(set),
                               lane->exchanging ? twill_request_find(lane->exchange) : NULL,
                               twill_update_gather_awaited(set), twill_update_norms_awaited(set)}};
    struct twill_comm *comm = awaited.any[0] != NULL                             ? lane->comm
                              : awaited.any[2] != NULL || awaited.any[3] != NULL ? set->update->comm
                              : awaited.any[1] != NULL                           ? lane->order_comm
                                                                                 : NULL;
    if (comm == NULL)
        return wait_for_thread(set, deadline);
    twill_status status = twill_comm_acquire(comm, "twill_gradients_wait");
    if (status == TWILL_OK) {
        if (!has_arrived(&awaited) && !comm->broken)
            status = twill_comm_wait(comm, has_arrived, &awaited);
        if (status != TWILL_OK)
            status = twill_comm_fail(comm, status);
        twill_comm_release(comm);
    }
    return status == TWILL_OK ? TWILL_OK : twill_gradients_fail(set, comm, status);
}
