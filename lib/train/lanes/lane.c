/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes: their communicators, their lock, and their progress in the order of the backward pass. */
#include "lib/base/balance.h"
#include "lib/train/lanes/lanes.h"
#include "lib/wait/wait.h"

#include <stdlib.h>

/* --- set-up ---------------------------------------------------------------------------------- */

/* Create a communicator of the parent's ranks; with an endpoint of its own, if lanes have threads.
 */
static twill_status duplicate(struct twill_gradients *set, twill_comm **made)
{
    twill_status status = set->options.threads > 0 ? twill_extend_dup_alone(made, set->parent)
                                                   : twill_comm_dup(made, set->parent);
    return status == TWILL_OK
               ? TWILL_OK
               : TWILL_FAIL(&set->error, status, "%s", twill_comm_message(set->parent));
}

twill_status twill_lanes_open(struct twill_gradients *set)
{
    uint32_t lanes = set->options.threads > 0 ? (uint32_t)set->options.threads : 1;
    TWILL_SET_NEW(set, set->lane, lanes, "lanes");
    if (set->update != NULL)
        TWILL_TRY(NULL, twill_update_make_queues(set, lanes));
    while (set->lanes < lanes) {
        struct twill_lane *lane = &set->lane[set->lanes];
        lane->set = set;
        TWILL_TRY(&set->error, duplicate(set, &lane->comm));
        set->comm = set->lane[0].comm;
        set->lanes++;
        if (set->options.order == TWILL_BUCKETS_BY_PRIORITY)
            TWILL_TRY(&set->error, duplicate(set, &lane->order_comm));
        if (set->update == NULL)
            continue;
        lane->update = &set->update->queue[lane - set->lane];
        TWILL_TRY(&set->error, duplicate(set, &lane->update->comm));
    }
    return TWILL_OK;
}

/* Store the communicators of a lane. Returns how many. */
static size_t comms_of(const struct twill_lane *lane, twill_comm *comms[3])
{
    size_t n = 0;
    comms[n++] = lane->comm;
    if (lane->order_comm != NULL)
        comms[n++] = lane->order_comm;
    if (lane->update != NULL && lane->update->comm != NULL)
        comms[n++] = lane->update->comm;
    return n;
}

/* Break the communicators of a lane, so that no rank waits on them. The lane is locked, or no other
 * thread uses it. */
static void break_lane(const struct twill_error *cause, const struct twill_lane *lane)
{
    twill_comm *comms[3];
    size_t n = comms_of(lane, comms);
    for (size_t c = 0; c < n; c++)
        twill_extend_end(comms[c], "twill_gradients", "gradient set", cause);
}

/* End a lane because the set is broken: break its communicators, and wake who waits for it. */
static void end_lane(struct twill_lane *lane)
{
    break_lane(&lane->set->error, lane);
    twill_lane_note_end(lane);
}

/* Have all lanes end but one, or NULL. */
static void end_others(struct twill_gradients *set, const struct twill_lane *lane)
{
    for (uint32_t l = 0; l < set->lanes; l++) {
        struct twill_lane *other = &set->lane[l];
        if (other == lane)
            continue;
        if (other->own.running)
            twill_lane_kick(other); /* its thread ends it */
        else if (twill_lane_try_lock(other)) {
            end_lane(other);
            atomic_store(&other->locked, false);
        }
    }
}

twill_status twill_lanes_check(struct twill_gradients *set, twill_status status)
{
    if (status != TWILL_OK && set->broken)
        end_others(set, NULL);
    return status;
}

/* End the lane and the others if something on it has failed. It is locked. */
static twill_status check_lane(struct twill_lane *lane, twill_status status)
{
    if (status == TWILL_OK)
        return TWILL_OK;
    end_lane(lane);
    end_others(lane->set, lane);
    return status;
}

twill_status twill_lane_fail(struct twill_lane *lane, twill_comm *comm, twill_status status)
{
    return check_lane(lane, twill_set_fail(lane->set, comm, status));
}

void twill_lanes_close(struct twill_gradients *set)
{
    struct twill_error failure, *cause = &set->error;
    for (uint32_t l = 0; l < set->lanes; l++)
        twill_lane_thread_stop(&set->lane[l]);
    /* If the set or its parent is broken, no rank waits for the others when it destroys them. */
    if (!set->broken)
        cause = twill_extend_failure(set->parent, false, &failure) ? &failure : NULL;
    for (uint32_t l = 0; cause != NULL && l < set->lanes; l++)
        break_lane(cause, &set->lane[l]);
    for (uint32_t l = 0; l < set->lanes; l++) {
        twill_comm *comms[3];
        size_t n = comms_of(&set->lane[l], comms);
        for (size_t c = 0; c < n; c++)
            twill_comm_destroy(comms[c]);
    }
    free(set->lane);
    set->lane = NULL;
    set->comm = NULL;
    set->lanes = 0;
}

/* Prepare the reduction of `count` elements of a bucket, or units of its codes, from `from` on. */
static twill_status prepare_segment(struct twill_lane *lane, const struct twill_bucket *bucket,
                                    size_t from, size_t count, twill_request **request)
{
    if (bucket->wire.used || bucket->dense != NULL)
        return twill_wire_request(lane->set, lane->comm, bucket, from, count, request);
    if (lane->set->update != NULL)
        return twill_update_init_reduction(lane->set, lane->comm, bucket, from, count, request);
    unsigned char *at = bucket->memory + from * twill_type_size(bucket->type);
    return twill_allreduce_init(lane->comm, at, at, count, bucket->type, bucket->op, request);
}

/* Prepare the reductions of a bucket's segments. */
static twill_status prepare_bucket(struct twill_lane *lane, struct twill_bucket *bucket)
{
    struct twill_gradients *set = lane->set;
    size_t whole = bucket->wire.used ? bucket->wire.units : bucket->count,
           most = twill_wire_segment(set, bucket), segments = (whole + most - 1) / most;
    if (segments > UINT32_MAX)
        return TWILL_FAIL(&set->error, TWILL_ERR_ARGUMENT, "a bucket of %zu segments", segments);
    TWILL_SET_NEW(set, bucket->request, segments, "segments");
    for (bucket->segments = 0; bucket->segments < segments; bucket->segments++) {
        size_t from = bucket->segments * most, count = twill_min(most, whole - from);
        TWILL_TRY(NULL, twill_set_check(set, lane->comm,
                                        prepare_segment(lane, bucket, from, count,
                                                        &bucket->request[bucket->segments])));
    }
    return TWILL_OK;
}

/* Give each bucket to a lane, by its bytes; both of its generations to the same one. */
static twill_status assign_buckets(struct twill_gradients *set)
{
    uint32_t n = twill_buckets_of_step(set);
    uint64_t total[TWILL_LANES_MOST];
    struct twill_load *weight;
    TWILL_SET_NEW(set, weight, n, "buckets");
    for (uint32_t b = 0; b < n; b++)
        weight[b] = (struct twill_load){.bytes = twill_bucket_bytes(&set->bucket[b]), .item = b};
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
    TWILL_SET_NEW(set, lane->order, set->buckets, "buckets");
    TWILL_SET_NEW(set, lane->flight, set->buckets + TWILL_LANE_SEGMENTS, "reductions");
    lane->buckets = lane->next = lane->oldest = lane->flights = 0;
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

static bool is_unlocked(const void *lane)
{
    return !atomic_load(&((const struct twill_lane *)lane)->locked);
}

void twill_lane_lock(struct twill_lane *lane)
{
    while (!twill_lane_try_lock(lane))
        (void)twill_wait_for_thread(is_unlocked, lane, UINT64_MAX);
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
        twill_set_record(set, TWILL_TRACE_BUCKET_BEGIN, b, twill_bucket_bytes(bucket));
    TWILL_TRY(NULL,
              twill_set_check(set, lane->comm, twill_request_start(bucket->request[segment])));
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

/* Collect the reductions that are complete, oldest first. */
static twill_status collect(struct twill_lane *lane)
{
    struct twill_gradients *set = lane->set;
    while (lane->flights > 0 && twill_extend_has_ended(oldest_request(lane))) {
        const struct twill_lane_flight *flight = &lane->flight[lane->oldest];
        struct twill_bucket *bucket = &set->bucket[flight->bucket];
        TWILL_TRY(NULL,
                  twill_set_check(set, lane->comm, twill_wait(&bucket->request[flight->segment])));
        lane->collected++;
        if (set->update != NULL)
            twill_update_enqueue(lane->update, flight->bucket, flight->segment);
        else {
            twill_bucket_end(set, bucket, 1);
            twill_lane_note_end(lane);
        }
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

/* Collect the all-gathers of parameters that are complete. */
static twill_status collect_gathers(struct twill_lane *lane)
{
    uint32_t collected = lane->update->collected;
    twill_status status = twill_update_collect(lane->update);
    if (lane->update->collected != collected)
        twill_lane_note_end(lane);
    return status;
}

/* Update what is reduced. When this lane has published its part of a norm, others may wait for it.
 */
static twill_status advance_update(struct twill_lane *lane)
{
    struct twill_gradients *set = lane->set;
    uint64_t published;
    TWILL_TRY(NULL, collect_gathers(lane));
    do {
        published = lane->update->clip.published_steps;
        TWILL_TRY(NULL, twill_update_advance(lane->update));
        for (uint32_t l = 0; l < set->lanes && published != lane->update->clip.published_steps; l++)
            if (&set->lane[l] != lane && set->lane[l].buckets > 0)
                twill_lane_kick(&set->lane[l]);
    } while (published != lane->update->clip.published_steps);
    return collect_gathers(lane);
}

/* As twill_lane_advance(), without an end of the lane after a failure. */
static twill_status advance(struct twill_lane *lane)
{
    TWILL_TRY(NULL, collect(lane));
    if (lane->update != NULL)
        TWILL_TRY(NULL, advance_update(lane));
    return lane->exchange != NULL ? twill_priority_advance(lane) : start_in_order(lane);
}

twill_status twill_lane_advance(struct twill_lane *lane)
{
    atomic_store(&lane->wanted, false);
    if (!lane->set->broken)
        return check_lane(lane, advance(lane));
    end_lane(lane);
    return TWILL_ERR_BROKEN;
}

bool twill_lane_is_busy(const struct twill_lane *lane)
{
    return lane->flights > 0 || twill_update_is_busy(lane->update);
}

uint32_t twill_lane_collected(const struct twill_lane *lane)
{
    return lane->collected + (lane->update != NULL ? lane->update->collected : 0);
}

twill_status twill_lane_progress(struct twill_lane *lane)
{
    TWILL_TRY(NULL, twill_lane_advance(lane));
    if (!twill_lane_is_busy(lane) && !lane->exchanging)
        return TWILL_OK;
    twill_comm *comm = lane->flights > 0                    ? lane->comm
                       : twill_update_is_busy(lane->update) ? lane->update->comm
                                                            : lane->order_comm;
    twill_status status = twill_extend_wait(comm, "twill_gradients_test", NULL, NULL, NULL);
    if (status != TWILL_OK)
        return twill_lane_fail(lane, comm, status);
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

/* A wait for another thread, or for the time of the next exchange. */
struct idle_wait {
    struct twill_lane *lane;
    twill_status failure;
};

static int advance_others(void *of)
{
    const struct idle_wait *wait = of;
    return twill_context_advance(wait->lane->set->process.context, NULL);
}

static bool is_wanted(const void *of)
{
    const struct twill_lane *lane = ((const struct idle_wait *)of)->lane;
    uint64_t until = lane->exchange_from_ns;
    return atomic_load(&lane->wanted) || lane->set->broken || (until != 0 && twill_now() >= until);
}

/* Has another rank failed? */
static twill_status look_for_failure(void *of, struct twill_waiting *state)
{
    struct idle_wait *wait = of;
    struct twill_error failure;
    state->polled = true; /* others of the context may have endpoints that ring no doorbell */
    if (twill_extend_failure(wait->lane->comm, true, &failure))
        wait->failure = failure.status;
    return wait->failure;
}

/* Nothing is under way on the lane: advance other communicators of the context meanwhile. */
static twill_status wait_idle(struct twill_lane *lane, uint64_t deadline)
{
    struct idle_wait wait = {lane, TWILL_OK};
    const struct twill_waitable waitable = {.advance = advance_others,
                                            .done = is_wanted,
                                            .blocked_on = look_for_failure,
                                            .of = &wait,
                                            .awaited = &wait};
    if (!is_wanted(&wait) && twill_now() >= deadline) /* the waits for exchanges are short */
        return TWILL_PENDING;
    twill_status status = twill_extend_await(lane->comm, waitable, deadline);
    if (wait.failure != TWILL_OK)
        return twill_lane_fail(lane, lane->comm, wait.failure);
    return status == TWILL_OK ? TWILL_OK : TWILL_PENDING;
}

/* Wait on a communicator. A wait that another thread interrupts, as it does when its
 * own wait for the lane times out, goes on with the same deadline: else the two would put it off
 * for ever. */
static twill_status wait_on(struct twill_lane *lane, twill_comm *comm,
                            const struct awaited *awaited)
{
    if (lane->interrupted_ns == 0 || lane->interrupted != comm ||
        lane->interrupted_collected != twill_lane_collected(lane))
        lane->interrupted_ns = twill_now();
    twill_status status = twill_extend_wait(comm, "twill_gradients_wait", has_arrived, awaited,
                                            &lane->interrupted_ns);
    if (!atomic_load(&lane->own.lets_in))
        lane->interrupted_ns = 0;
    lane->interrupted = comm;
    lane->interrupted_collected = twill_lane_collected(lane);
    return status;
}

twill_status twill_lane_wait(struct twill_lane *lane, uint64_t deadline)
{
    struct awaited awaited = {lane,
                              {oldest_request(lane), lane->exchanging ? lane->exchange : NULL,
                               twill_update_gather_awaited(lane->update),
                               twill_update_norms_awaited(lane->update)}};
    twill_comm *comm = awaited.any[0] != NULL                             ? lane->comm
                       : awaited.any[2] != NULL || awaited.any[3] != NULL ? lane->update->comm
                       : awaited.any[1] != NULL                           ? lane->order_comm
                                                                          : NULL;
    if (comm == NULL)
        return wait_idle(lane, deadline);
    if (has_arrived(&awaited))
        return TWILL_OK;
    twill_status status = wait_on(lane, comm, &awaited);
    return status == TWILL_OK ? TWILL_OK : twill_lane_fail(lane, comm, status);
}
