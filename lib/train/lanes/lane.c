/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes: their communicators, their lock, and their progress in the order of the backward pass. */
#include "lib/train/lanes/lane.h"
#include "lib/base/balance.h"

#include "lib/train/gradients.h"

#include <sched.h>
#include <stdlib.h>

#define LOCK_SPINS 200u /* a holder that does not wait leaves soon */

/* --- set-up ---------------------------------------------------------------------------------- */

twill_status twill_gradients_duplicate(struct twill_gradients *set, twill_comm **made, bool alone)
{
    twill_status status =
        alone ? twill_extend_dup_alone(made, set->parent) : twill_comm_dup(made, set->parent);
    if (status != TWILL_OK)
        return TWILL_FAIL(&set->error, status, "%s", twill_comm_message(set->parent));
    return TWILL_OK;
}

twill_status twill_lanes_open(struct twill_gradients *set)
{
    bool threads = set->options.threads > 0;
    uint32_t lanes = threads ? (uint32_t)set->options.threads : 1;
    set->lane = calloc(lanes, sizeof(*set->lane));
    if (set->lane == NULL)
        return TWILL_FAIL(&set->error, TWILL_ERR_MEMORY, "out of memory for %u lanes", lanes);
    while (set->lanes < lanes) {
        struct twill_lane *lane = &set->lane[set->lanes];
        lane->set = set;
        TWILL_TRY(&set->error, twill_gradients_duplicate(set, &lane->comm, threads));
        set->lanes++;
        if (set->options.order == TWILL_BUCKETS_BY_PRIORITY)
            TWILL_TRY(&set->error, twill_gradients_duplicate(set, &lane->order_comm, threads));
        if (set->update != NULL)
            TWILL_TRY(&set->error, twill_gradients_duplicate(set, &lane->update.comm, threads));
    }
    return TWILL_OK;
}

void twill_lanes_close(struct twill_gradients *set)
{
    for (uint32_t l = 0; l < set->lanes; l++)
        twill_lane_thread_stop(&set->lane[l]);
    twill_gradients_break(set);
    for (uint32_t l = 0; l < set->lanes; l++) {
        twill_comm_destroy(set->lane[l].comm);
        twill_comm_destroy(set->lane[l].order_comm);
        twill_comm_destroy(set->lane[l].update.comm);
    }
    free(set->lane);
    set->lane = NULL;
    set->lanes = 0;
}

size_t twill_bucket_segment(const struct twill_gradients *set, const struct twill_bucket *bucket)
{
    size_t bytes = set->options.segment_bytes;
    if (set->options.order != TWILL_BUCKETS_BY_PRIORITY || bucket->dense != NULL)
        return bucket->wire.used ? bucket->wire.units : bucket->count;
    if (bucket->wire.used)
        return twill_wire_units(set, bytes);
    return twill_max(bytes / twill_type_size(bucket->type), 1);
}

/* Prepare the reduction of `count` elements of a bucket, or units of its codes, from `from` on. */
static twill_status prepare_segment(struct twill_lane *lane, const struct twill_bucket *bucket,
                                    size_t from, size_t count, twill_request **request)
{
    if (bucket->wire.used)
        return twill_wire_request(lane, bucket, from, count, request);
    if (bucket->dense != NULL)
        return twill_dense_request(lane, bucket, request);
    if (lane->set->update != NULL)
        return twill_update_init_reduction(lane, bucket, from, count, request);
    unsigned char *at = bucket->memory + from * twill_type_size(bucket->type);
    return twill_allreduce_init(lane->comm, at, at, count, bucket->type, bucket->op, request);
}

/* Prepare the reductions of a bucket's segments. */
static twill_status prepare_bucket(struct twill_lane *lane, struct twill_bucket *bucket)
{
    struct twill_gradients *set = lane->set;
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
            prepare_segment(lane, bucket, from, count, &bucket->request[bucket->segments]);
        if (status != TWILL_OK)
            return twill_gradients_fail(lane, lane->comm, status);
    }
    return TWILL_OK;
}

/* Give each bucket to a lane, by its bytes; both of its generations to the same one. */
static twill_status assign_buckets(struct twill_gradients *set)
{
    uint32_t n = twill_buckets_of_step(set);
    uint64_t total[TWILL_LANES_MOST];
    struct twill_load *weight = calloc(n, sizeof(*weight));
    if (weight == NULL)
        return TWILL_FAIL(&set->error, TWILL_ERR_MEMORY, "out of memory for %u buckets", n);
    for (uint32_t b = 0; b < n; b++)
        weight[b] = (struct twill_load){
            .bytes = set->bucket[b].count * twill_type_size(set->bucket[b].type), .item = b};
    twill_balance(weight, n, total, set->lanes);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t b = weight[i].item; b < set->buckets; b += n)
            set->bucket[b].lane = weight[i].bin;
    free(weight);
    return TWILL_OK;
}

static twill_status prepare_lane(struct twill_lane *lane)
{
    struct twill_gradients *set = lane->set;
    lane->order = calloc(set->buckets, sizeof(*lane->order));
    lane->flight = calloc(set->buckets + TWILL_LANE_SEGMENTS, sizeof(*lane->flight));
    lane->buckets = lane->next = lane->oldest = lane->flights = 0;
    if (lane->order == NULL || lane->flight == NULL)
        return TWILL_FAIL(&set->error, TWILL_ERR_MEMORY, "out of memory for %u buckets",
                          set->buckets);
    for (uint32_t b = 0; b < set->buckets; b++)
        if (&set->lane[set->bucket[b].lane] == lane) {
            lane->order[lane->buckets++] = b;
            TWILL_TRY(&set->error, prepare_bucket(lane, &set->bucket[b]));
        }
    lane->flights_most = (uint32_t)twill_max(lane->buckets, TWILL_LANE_SEGMENTS);
    if (lane->order_comm != NULL && lane->buckets > 0)
        TWILL_TRY(&set->error, twill_priority_prepare(lane));
    return TWILL_OK;
}

twill_status twill_lanes_prepare(struct twill_gradients *set)
{
    TWILL_TRY(&set->error, assign_buckets(set));
    for (uint32_t l = 0; l < set->lanes; l++)
        TWILL_TRY(&set->error, prepare_lane(&set->lane[l]));
    if (set->update != NULL)
        TWILL_TRY(&set->error, twill_update_prepare(set));
    for (uint32_t l = 0; l < set->lanes && set->options.threads > 0; l++)
        TWILL_TRY(&set->error, twill_lane_thread_start(&set->lane[l]));
    return TWILL_OK;
}

void twill_lanes_unprepare(struct twill_gradients *set)
{
    for (uint32_t l = 0; l < set->lanes; l++)
        twill_lane_thread_stop(&set->lane[l]);
    for (uint32_t b = 0; b < set->buckets; b++) {
        struct twill_bucket *bucket = &set->bucket[b];
        for (uint32_t s = 0; bucket->request != NULL && s < bucket->segments; s++)
            (void)twill_request_free(&bucket->request[s]);
        free((void *)bucket->request);
        bucket->request = NULL;
    }
    if (set->update != NULL)
        twill_update_unprepare(set);
    for (uint32_t l = 0; l < set->lanes; l++) {
        struct twill_lane *lane = &set->lane[l];
        twill_priority_unprepare(lane);
        free(lane->order);
        free(lane->flight);
        lane->order = NULL;
        lane->flight = NULL;
        lane->buckets = 0;
    }
}

void twill_lanes_finish(struct twill_gradients *set)
{
    for (uint32_t l = 0; l < set->lanes; l++) {
        struct twill_lane *lane = &set->lane[l];
        twill_lane_thread_stop(lane);
        twill_lane_lock(lane);
        while (!set->broken && twill_lane_is_busy(lane)) {
            if (twill_lane_advance(lane) == TWILL_OK && twill_lane_is_busy(lane))
                (void)twill_lane_wait(lane, UINT64_MAX);
        }
        atomic_store(&lane->locked, false);
    }
}

/* --- the lock -------------------------------------------------------------------------------- */

bool twill_lane_try_lock(struct twill_lane *lane)
{
    return !atomic_load_explicit(&lane->locked, memory_order_relaxed) &&
           !atomic_exchange(&lane->locked, true);
}

void twill_lane_lock(struct twill_lane *lane)
{
    for (unsigned spins = 0; !twill_lane_try_lock(lane); spins++) {
        if (spins < LOCK_SPINS)
            twill_pause();
        else
            sched_yield();
    }
}

/* Advance the lane until nothing is wanted, unless another thread holds it: that thread then sees
 * `wanted`, in its wait or after its unlock. */
static void advance_wanted(struct twill_lane *lane)
{
    while (atomic_load(&lane->wanted) && twill_lane_try_lock(lane)) {
        (void)twill_lane_advance(lane); /* a failure has broken the set */
        atomic_store(&lane->locked, false);
    }
}

void twill_lane_unlock(struct twill_lane *lane)
{
    atomic_store(&lane->locked, false);
    if (!lane->own.running)
        advance_wanted(lane);
}

void twill_lane_kick(struct twill_lane *lane)
{
    atomic_store(&lane->wanted, true);
    if (lane->own.running)
        twill_lane_thread_wake(lane);
    else
        advance_wanted(lane);
    if (atomic_load(&lane->wanted)) /* the holder may sleep in its wait */
        twill_extend_ring(lane->comm, (uint32_t)twill_comm_rank(lane->comm));
}

/* --- progress -------------------------------------------------------------------------------- */

bool twill_bucket_is_ready(const struct twill_bucket *bucket)
{
    return atomic_load_explicit(&bucket->filled, memory_order_acquire) != bucket->agreed;
}

twill_status twill_lane_start(struct twill_lane *lane, uint32_t b)
{
    struct twill_gradients *set = lane->set;
    struct twill_bucket *bucket = &set->bucket[b];
    uint32_t segment = (uint32_t)(bucket->started % bucket->segments);
    if (segment == 0)
        twill_gradients_record(set, TWILL_TRACE_BUCKET_BEGIN, b,
                               bucket->count * twill_type_size(bucket->type));
    twill_status status = twill_request_start(bucket->request[segment]);
    if (status != TWILL_OK)
        return twill_gradients_fail(lane, lane->comm, status);
    lane->flight[(lane->oldest + lane->flights++) % lane->flights_most] =
        (struct twill_lane_flight){b, segment};
    bucket->started++;
    atomic_fetch_add_explicit(&set->usage.operations, 1, memory_order_relaxed);
    return TWILL_OK;
}

static twill_request *oldest_request(const struct twill_lane *lane)
{
    if (lane->flights == 0)
        return NULL;
    const struct twill_lane_flight *flight = &lane->flight[lane->oldest];
    return lane->set->bucket[flight->bucket].request[flight->segment];
}

void twill_bucket_end(struct twill_lane *lane, struct twill_bucket *bucket, uint32_t segments)
{
    const struct twill_gradients *set = lane->set;
    uint64_t ended =
        atomic_fetch_add_explicit(&bucket->ended, segments, memory_order_release) + segments;
    if (ended % bucket->segments == 0)
        twill_gradients_record(set, TWILL_TRACE_BUCKET_END, (uint32_t)(bucket - set->bucket),
                               bucket->count * twill_type_size(bucket->type));
    twill_lane_note_end(lane);
}

/* Collect the reductions that are complete, oldest first. */
static twill_status collect(struct twill_lane *lane)
{
    struct twill_gradients *set = lane->set;
    while (lane->flights > 0 && twill_extend_has_ended(oldest_request(lane))) {
        const struct twill_lane_flight *flight = &lane->flight[lane->oldest];
        struct twill_bucket *bucket = &set->bucket[flight->bucket];
        twill_status status = twill_wait(&bucket->request[flight->segment]);
        if (status != TWILL_OK)
            return twill_gradients_fail(lane, lane->comm, status);
        lane->collected++;
        if (set->update != NULL)
            twill_update_enqueue(lane, flight->bucket, flight->segment);
        else
            twill_bucket_end(lane, bucket, 1);
        lane->oldest = (lane->oldest + 1) % lane->flights_most;
        lane->flights--;
    }
    return TWILL_OK;
}

/* Start the buckets that are ready, each after those before it. */
static twill_status start_in_order(struct twill_lane *lane)
{
    struct twill_gradients *set = lane->set;
    while (lane->buckets > 0 && lane->flights < lane->flights_most) {
        uint32_t b = lane->order[lane->next];
        if (!twill_bucket_is_ready(&set->bucket[b]))
            break;
        set->bucket[b].agreed++;
        TWILL_TRY(NULL, twill_lane_start(lane, b));
        lane->next = (lane->next + 1) % lane->buckets;
    }
    return TWILL_OK;
}

twill_status twill_lane_advance(struct twill_lane *lane)
{
    atomic_store(&lane->wanted, false);
    if (lane->set->broken)
        return twill_gradients_leave(lane);
    TWILL_TRY(NULL, collect(lane));
    if (lane->set->update != NULL)
        TWILL_TRY(NULL, twill_update_advance(lane));
    return lane->exchange != NULL ? twill_priority_advance(lane) : start_in_order(lane);
}

bool twill_lane_is_busy(const struct twill_lane *lane)
{
    return lane->flights > 0 || twill_update_is_busy(lane);
}

twill_status twill_lane_progress(struct twill_lane *lane)
{
    TWILL_TRY(NULL, twill_lane_advance(lane));
    if (!twill_lane_is_busy(lane) && !lane->exchanging)
        return TWILL_OK;
    twill_comm *comm = lane->flights > 0            ? lane->comm
                       : twill_update_is_busy(lane) ? lane->update.comm
                                                    : lane->order_comm;
    twill_status status = twill_extend_progress(comm, "twill_gradients_test");
    if (status != TWILL_OK)
        return twill_gradients_fail(lane, comm, status);
    return twill_lane_advance(lane);
}

/* --- waiting --------------------------------------------------------------------------------- */

/* What ends a wait. */
struct awaited {
    const struct twill_lane *lane;
    twill_request *any[4]; /* or NULL: the oldest reduction, the exchange, a gather of
                                           parameters, one of norms */
};

static bool has_arrived(const void *of)
{
    const struct awaited *awaited = of;
    bool any = atomic_load_explicit(&awaited->lane->wanted, memory_order_acquire) ||
               atomic_load_explicit(&awaited->lane->own.lets_in, memory_order_acquire) ||
               atomic_load_explicit(&awaited->lane->set->broken, memory_order_acquire);
    for (size_t i = 0; !any && i < TWILL_ARRAY_LENGTH(awaited->any); i++)
        any = awaited->any[i] != NULL && twill_extend_has_ended(awaited->any[i]);
    return any;
}

/* Wait for another thread, or for the time of the next exchange; other communicators of the
 * context are advanced meanwhile. */
static twill_status wait_for_thread(struct twill_lane *lane, uint64_t deadline)
{
    uint64_t now = twill_now(), until = lane->exchange_from_ns;
    while (!atomic_load(&lane->wanted) && !lane->set->broken && (until == 0 || now < until)) {
        if (now >= deadline)
            return TWILL_PENDING;
        twill_status status = twill_extend_idle(lane->comm, "twill_gradients_wait");
        if (status != TWILL_OK)
            return twill_gradients_fail(lane, lane->comm, status);
        now = twill_now();
    }
    return TWILL_OK;
}

/* Wait on a communicator. A wait that another thread interrupts, as it does when its
 * own wait for the lane times out, goes on with the same deadline: else the two would put it off
 * for ever. */
static twill_status wait_on(struct twill_lane *lane, twill_comm *comm,
                            const struct awaited *awaited)
{
    if (lane->interrupted_ns == 0 || lane->interrupted != comm ||
        lane->interrupted_collected != lane->collected)
        lane->interrupted_ns = twill_now();
    twill_status status = twill_extend_wait(comm, "twill_gradients_wait", has_arrived, awaited,
                                            &lane->interrupted_ns);
    if (!atomic_load(&lane->own.lets_in))
        lane->interrupted_ns = 0;
    lane->interrupted = comm;
    lane->interrupted_collected = lane->collected;
    return status;
}

twill_status twill_lane_wait(struct twill_lane *lane, uint64_t deadline)
{
    struct awaited awaited = {lane,
                              {oldest_request(lane), lane->exchanging ? lane->exchange : NULL,
                               twill_update_gather_awaited(lane),
                               twill_update_norms_awaited(lane)}};
    twill_comm *comm = awaited.any[0] != NULL                             ? lane->comm
                       : awaited.any[2] != NULL || awaited.any[3] != NULL ? lane->update.comm
                       : awaited.any[1] != NULL                           ? lane->order_comm
                                                                          : NULL;
    if (comm == NULL)
        return wait_for_thread(lane, deadline);
    if (has_arrived(&awaited))
        return TWILL_OK;
    twill_status status = wait_on(lane, comm, &awaited);
    return status == TWILL_OK ? TWILL_OK : twill_gradients_fail(lane, comm, status);
}
