/* SPDX-License-Identifier: Apache-2.0 */
/* Reducers, with their communicators, lock, and progress in the order of the backward pass. */
#include "lib/base/balance.h"
#include "lib/train/reducers/reducers.h"
#include "lib/wait/wait.h"

#include <stdlib.h>

/* Create *made, a duplicate of the parent, with its own endpoints if there are threads. */
static twill_status duplicate(struct twill_gradients *set, twill_comm **made)
{
    twill_status status = twill_extend_dup(made, set->parent, set->options.threads > 0);
    return twill_explain(&set->error, status, twill_comm_message(set->parent));
}

twill_status twill_reducers_open(struct twill_gradients *set)
{
    uint32_t reducers = set->options.threads > 0 ? (uint32_t)set->options.threads : 1;
    TWILL_NEW(&set->error, set->reducer, reducers, "reducers");
    if (set->update != NULL)
        TWILL_TRY(NULL, twill_update_make_queues(set, reducers));
    while (set->reducers < reducers) {
        struct twill_reducer *reducer = &set->reducer[set->reducers];
        reducer->set = set;
        TWILL_TRY(&set->error, duplicate(set, &reducer->comm));
        set->comm = set->reducer[0].comm;
        set->reducers++;
        if (set->options.order == TWILL_BUCKETS_BY_PRIORITY)
            TWILL_TRY(&set->error, duplicate(set, &reducer->order_comm));
        if (set->update == NULL)
            continue;
        reducer->update = &set->update->queue[reducer - set->reducer];
        TWILL_TRY(&set->error, duplicate(set, &reducer->update->comm));
    }
    return TWILL_OK;
}

/* Store the communicators of a reducer, at most 3, in comms[]. Returns their number. */
static size_t comms_of(const struct twill_reducer *reducer, twill_comm *comms[3])
{
    size_t n = 0;
    comms[n++] = reducer->comm;
    if (reducer->order_comm != NULL)
        comms[n++] = reducer->order_comm;
    if (reducer->update != NULL && reducer->update->comm != NULL)
        comms[n++] = reducer->update->comm;
    return n;
}

/* Break a reducer's communicators with the status and message of `cause`, so that no rank waits on
 * them. The caller has the reducer's lock, or no other thread uses the reducer. */
static void break_reducer(const struct twill_error *cause, const struct twill_reducer *reducer)
{
    twill_comm *comms[3];
    size_t n = comms_of(reducer, comms);
    for (size_t c = 0; c < n; c++)
        (void)twill_extend_fail(comms[c], TWILL_EXTEND_ENDS, "twill_gradients", cause->status,
                                "gradient set: %s", cause->message);
}

/* End a reducer because the set is broken. Break its communicators and wake waiting threads. */
static void end_reducer(struct twill_reducer *reducer)
{
    break_reducer(&reducer->set->error, reducer);
    twill_reducer_note_end(reducer);
}

/* Have all reducers of the broken set end, except `reducer`, which may be NULL. Wake those that
 * have a thread, which ends them. End the others here, unless another thread has them locked. Does
 * not wait. */
static void end_others(struct twill_gradients *set, const struct twill_reducer *reducer)
{
    for (uint32_t l = 0; l < set->reducers; l++) {
        struct twill_reducer *other = &set->reducer[l];
        if (other == reducer)
            continue;
        if (other->own.running)
            twill_reducer_kick(other); /* its thread ends it */
        else if (twill_reducer_try_lock(other)) {
            end_reducer(other);
            atomic_store(&other->locked, false);
        }
    }
}

/* Notify the other ranks of the NaN that was found, if that has not been done. Without
 * TWILL_FIRST_NAN=fail also log it, unless a rank had one in an earlier step or, if `alone`, in
 * this one. */
static void tell_nan(struct twill_gradients *set, bool alone)
{
    int found = TWILL_NAN_FOUND;
    const bool fails = set->process.fails_at_nan;
    if (!atomic_compare_exchange_strong(&set->usage.nan.state, &found,
                                        fails ? TWILL_NAN_FAILS : TWILL_NAN_TOLD))
        return;
    bool first = true;
    const uint64_t step = atomic_load(&set->step) + 1;
    for (uint32_t l = 0; l < set->reducers; l++) {
        struct twill_news_words *news = twill_extend_comm(set->reducer[l].comm).news;
        uint64_t told = twill_news_tell(news, TWILL_NEWS_NAN, step);
        first = first && (told == 0 || (told >= step && !(alone && l == 0)));
    }
    if (first && !fails)
        twill_say(set->process.log, TWILL_LOG_WARN, "%s, the first one", set->usage.nan.text);
}

void twill_reducers_tell_nan(struct twill_gradients *set)
{
    tell_nan(set, false);
}

/* The seeks() of the set's watch. */
static bool seeks_nan(const void *set)
{
    return twill_set_looks(set);
}

/* Note that element number `at` of a watched bucket, as rank `rank` contributes it, is a NaN or
 * infinity. Returns false if one was found before, or if the element is in a gap. */
static bool note_nan(struct twill_gradients *set, const struct twill_bucket *bucket, size_t at,
                     int rank)
{
    const size_t width = twill_type_size(bucket->type);
    const unsigned char *place = bucket->memory + at * width;
    for (uint32_t i = 0; i < bucket->tensors; i++) {
        const struct twill_train_tensor *tensor = twill_bucket_tensor(set, bucket, i);
        const unsigned char *begin =
            tensor->own != NULL ? tensor->own : twill_tensor_place(set, tensor, bucket->generation);
        if (place >= begin + bucket->from * width &&
            place < begin + bucket->from * width + twill_bucket_part(bucket, tensor))
            return twill_set_note_nan(set, bucket, tensor, "", rank,
                                      (size_t)(place - begin) / width);
    }
    return false;
}

/* The found() of the set's watch. Finds the bucket to which the request belongs. Several ranks may
 * find one in their shards of it, of which one logs it. */
static const char *found_nan(void *user, const void *request, uint32_t rank, size_t element)
{
    struct twill_gradients *set = user;
    for (uint32_t b = 0; b < set->buckets; b++) {
        const struct twill_bucket *bucket = &set->bucket[b];
        for (uint32_t s = 0; bucket->watched && s < bucket->segments; s++) {
            if (bucket->request[s] != request)
                continue;
            if (!note_nan(set, bucket, s * twill_wire_segment(set, bucket) + element, (int)rank))
                return NULL;
            tell_nan(set, true);
            return set->process.fails_at_nan ? set->usage.nan.text : NULL;
        }
    }
    return NULL;
}

/* Have the reductions of a bucket look for a NaN, if all of them can, in place of a search when its
 * tensors are marked ready. Tensors that are copied are searched then, from the cache. In a set
 * that runs a step late, the next step may have begun before a reduction finds one. */
static void watch_bucket(struct twill_gradients *set, struct twill_bucket *bucket)
{
    bucket->watched = false;
    if (!set->process.looks_for_nan || bucket->copies || bucket->wire.used ||
        bucket->dense != NULL || set->update != NULL || set->generations > 1)
        return;
    set->usage.nan.watch = (struct twill_nan_watch){set, seeks_nan, found_nan};
    const struct twill_extend_comm comm = twill_extend_comm(set->reducer[bucket->reducer].comm);
    bool all = true;
    for (uint32_t s = 0; all && s < bucket->segments; s++)
        all = comm.watch(bucket->request[s], &set->usage.nan.watch);
    bucket->watched = all;
}

twill_status twill_reducers_check(struct twill_gradients *set, twill_status status)
{
    if (status != TWILL_OK && set->broken)
        end_others(set, NULL);
    return status;
}

/* If `status` is an error, end this reducer and the others. Returns `status`. The lock is held. */
static twill_status check_reducer(struct twill_reducer *reducer, twill_status status)
{
    if (status == TWILL_OK)
        return TWILL_OK;
    end_reducer(reducer);
    end_others(reducer->set, reducer);
    return status;
}

twill_status twill_reducer_fail(struct twill_reducer *reducer, twill_comm *comm,
                                twill_status status)
{
    return check_reducer(reducer, twill_set_fail(reducer->set, comm, status));
}

void twill_reducers_close(struct twill_gradients *set)
{
    struct twill_error failure, *cause = &set->error;
    for (uint32_t l = 0; l < set->reducers; l++)
        twill_reducer_thread_stop(&set->reducer[l]);
    /* If the set or its parent is broken, other ranks need not wait when this one destroys them. */
    if (!set->broken)
        cause = twill_extend_failure(set->parent, false, &failure) ? &failure : NULL;
    for (uint32_t l = 0; cause != NULL && l < set->reducers; l++)
        break_reducer(cause, &set->reducer[l]);
    for (uint32_t l = 0; l < set->reducers; l++) {
        twill_comm *comms[3];
        size_t n = comms_of(&set->reducer[l], comms);
        for (size_t c = 0; c < n; c++)
            twill_comm_destroy(comms[c]);
    }
    free(set->reducer);
    set->reducer = NULL;
    set->comm = NULL;
    set->reducers = 0;
}

/* Prepare the reduction of `count` elements of a bucket, or units of its codes, from `from` on, as
 * a persistent request in *request. Returns TWILL_OK or the error. */
static twill_status prepare_segment(struct twill_reducer *reducer,
                                    const struct twill_bucket *bucket, size_t from, size_t count,
                                    twill_request **request)
{
    if (bucket->wire.used || bucket->dense != NULL)
        return twill_wire_request(reducer->set, reducer->comm, bucket, from, count, request);
    if (reducer->set->update != NULL)
        return twill_update_init_reduction(reducer->set, reducer->comm, bucket, from, count,
                                           request);
    unsigned char *at = bucket->memory + from * twill_type_size(bucket->type);
    return twill_allreduce_init(reducer->comm, at, at, count, bucket->type, bucket->op, request);
}

/* Make a bucket's persistent requests, one for each segment. Collective. Returns the status. */
static twill_status prepare_bucket(struct twill_reducer *reducer, struct twill_bucket *bucket)
{
    struct twill_gradients *set = reducer->set;
    size_t whole = bucket->wire.used ? bucket->wire.units : bucket->count,
           most = twill_wire_segment(set, bucket), segments = (whole + most - 1) / most;
    if (segments > UINT32_MAX)
        return TWILL_FAIL(&set->error, TWILL_ERR_ARGUMENT, "a bucket of %zu segments", segments);
    TWILL_NEW(&set->error, bucket->request, segments, "segments");
    for (bucket->segments = 0; bucket->segments < segments; bucket->segments++) {
        size_t from = bucket->segments * most, count = twill_min(most, whole - from);
        TWILL_TRY(NULL, twill_set_check(set, reducer->comm,
                                        prepare_segment(reducer, bucket, from, count,
                                                        &bucket->request[bucket->segments])));
    }
    watch_bucket(set, bucket);
    return TWILL_OK;
}

/* Give each bucket a reducer, the same in both generations, balancing bytes. Returns the status. */
static twill_status assign_buckets(struct twill_gradients *set)
{
    uint32_t n = twill_buckets_of_step(set);
    uint64_t total[TWILL_REDUCERS_MOST];
    struct twill_load *weight;
    TWILL_NEW(&set->error, weight, n, "buckets");
    for (uint32_t b = 0; b < n; b++)
        weight[b] = (struct twill_load){.bytes = twill_bucket_bytes(&set->bucket[b]), .item = b};
    twill_balance(weight, n, total, set->reducers);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t b = weight[i].item; b < set->buckets; b += n)
            set->bucket[b].reducer = weight[i].bin;
    free(weight);
    return TWILL_OK;
}

/* Allocate a reducer's queues and prepare its buckets. Collective. Returns the status. */
static twill_status prepare_reducer(struct twill_reducer *reducer)
{
    struct twill_gradients *set = reducer->set;
    TWILL_NEW(&set->error, reducer->order, set->buckets, "buckets");
    TWILL_NEW(&set->error, reducer->flight, set->buckets + TWILL_REDUCER_SEGMENTS, "reductions");
    reducer->buckets = reducer->next = reducer->oldest = reducer->flights = 0;
    for (uint32_t b = 0; b < set->buckets; b++)
        if (&set->reducer[set->bucket[b].reducer] == reducer) {
            reducer->order[reducer->buckets++] = b;
            TWILL_TRY(&set->error, prepare_bucket(reducer, &set->bucket[b]));
        }
    reducer->flights_most = (uint32_t)twill_max(reducer->buckets, TWILL_REDUCER_SEGMENTS);
    if (reducer->order_comm != NULL && reducer->buckets > 0)
        TWILL_TRY(&set->error, twill_priority_prepare(reducer));
    return TWILL_OK;
}

twill_status twill_reducers_prepare(struct twill_gradients *set)
{
    TWILL_TRY(&set->error, assign_buckets(set));
    for (uint32_t l = 0; l < set->reducers; l++)
        TWILL_TRY(&set->error, prepare_reducer(&set->reducer[l]));
    if (set->update != NULL)
        TWILL_TRY(&set->error, twill_update_prepare(set));
    for (uint32_t l = 0; l < set->reducers && set->options.threads > 0; l++)
        TWILL_TRY(&set->error, twill_reducer_thread_start(&set->reducer[l]));
    return TWILL_OK;
}

void twill_reducers_unprepare(struct twill_gradients *set)
{
    for (uint32_t l = 0; l < set->reducers; l++)
        twill_reducer_thread_stop(&set->reducer[l]);
    for (uint32_t b = 0; b < set->buckets; b++) {
        struct twill_bucket *bucket = &set->bucket[b];
        for (uint32_t s = 0; bucket->request != NULL && s < bucket->segments; s++)
            (void)twill_request_free(&bucket->request[s]);
        free((void *)bucket->request);
        bucket->request = NULL;
    }
    if (set->update != NULL)
        twill_update_unprepare(set);
    for (uint32_t l = 0; l < set->reducers; l++) {
        struct twill_reducer *reducer = &set->reducer[l];
        twill_priority_unprepare(reducer);
        free(reducer->order);
        free(reducer->flight);
        reducer->order = NULL;
        reducer->flight = NULL;
        reducer->buckets = 0;
    }
}

void twill_reducers_finish(struct twill_gradients *set)
{
    for (uint32_t l = 0; l < set->reducers; l++) {
        struct twill_reducer *reducer = &set->reducer[l];
        twill_reducer_thread_stop(reducer);
        twill_reducer_lock(reducer);
        while (!set->broken && twill_reducer_is_busy(reducer)) {
            if (twill_reducer_advance(reducer) == TWILL_OK && twill_reducer_is_busy(reducer))
                (void)twill_reducer_wait(reducer, UINT64_MAX);
        }
        atomic_store(&reducer->locked, false);
    }
}

bool twill_reducer_try_lock(struct twill_reducer *reducer)
{
    return !atomic_load_explicit(&reducer->locked, memory_order_relaxed) &&
           !atomic_exchange(&reducer->locked, true);
}

static bool is_unlocked(const void *reducer)
{
    return !atomic_load(&((const struct twill_reducer *)reducer)->locked);
}

void twill_reducer_lock(struct twill_reducer *reducer)
{
    while (!twill_reducer_try_lock(reducer))
        (void)twill_wait_for_thread(is_unlocked, reducer, UINT64_MAX);
}

/* Advance a reducer while it is wanted and not locked. A holder of the lock looks for `wanted`. */
static void advance_wanted(struct twill_reducer *reducer)
{
    while (atomic_load(&reducer->wanted) && twill_reducer_try_lock(reducer)) {
        (void)twill_reducer_advance(reducer); /* a failure has broken the set */
        atomic_store(&reducer->locked, false);
    }
}

void twill_reducer_unlock(struct twill_reducer *reducer)
{
    atomic_store(&reducer->locked, false);
    if (!reducer->own.running)
        advance_wanted(reducer);
}

void twill_reducer_kick(struct twill_reducer *reducer)
{
    atomic_store(&reducer->wanted, true);
    if (reducer->own.running)
        twill_reducer_thread_wake(reducer);
    else
        advance_wanted(reducer);
    if (atomic_load(&reducer->wanted)) /* the holder may sleep in its wait */
        twill_extend_ring(reducer->comm, (uint32_t)twill_comm_rank(reducer->comm));
}

bool twill_bucket_is_ready(const struct twill_bucket *bucket)
{
    return atomic_load_explicit(&bucket->filled, memory_order_acquire) != bucket->agreed;
}

twill_status twill_reducer_start(struct twill_reducer *reducer, uint32_t b)
{
    struct twill_gradients *set = reducer->set;
    struct twill_bucket *bucket = &set->bucket[b];
    uint32_t segment = (uint32_t)(bucket->started % bucket->segments);
    if (TWILL_UNLIKELY(atomic_load(&set->usage.nan.state) == TWILL_NAN_FAILS))
        return twill_set_fail_with(set, reducer->comm, "twill_gradients_ready", TWILL_ERR_ARGUMENT,
                                   set->usage.nan.text);
    if (segment == 0)
        twill_set_record(set, TWILL_TRACE_BUCKET_BEGIN, b, twill_bucket_bytes(bucket));
    TWILL_TRY(NULL,
              twill_set_check(set, reducer->comm, twill_request_start(bucket->request[segment])));
    reducer->flight[(reducer->oldest + reducer->flights++) % reducer->flights_most] =
        (struct twill_reducer_flight){b, segment};
    bucket->started++;
    atomic_fetch_add_explicit(&set->usage.operations, 1, memory_order_relaxed);
    return TWILL_OK;
}

/* Return the oldest reduction under way, or NULL. */
static twill_request *oldest_request(const struct twill_reducer *reducer)
{
    if (reducer->flights == 0)
        return NULL;
    const struct twill_reducer_flight *flight = &reducer->flight[reducer->oldest];
    return reducer->set->bucket[flight->bucket].request[flight->segment];
}

/* End the reductions that are complete, oldest first, without waiting. Each goes to the queue of
 * updates (reducer->update) or, without an optimizer, counts as an ended segment of its bucket.
 * Returns TWILL_OK or the error. */
static twill_status collect(struct twill_reducer *reducer)
{
    struct twill_gradients *set = reducer->set;
    uint64_t joined = 0;
    while (reducer->flights > 0 && twill_extend_has_ended(oldest_request(reducer), &joined)) {
        const struct twill_reducer_flight *flight = &reducer->flight[reducer->oldest];
        struct twill_bucket *bucket = &set->bucket[flight->bucket];
        TWILL_TRY(NULL, twill_set_check(set, reducer->comm,
                                        twill_wait(&bucket->request[flight->segment])));
        reducer->joined[bucket->generation] =
            twill_max(reducer->joined[bucket->generation], joined);
        reducer->collected++;
        if (set->update != NULL)
            twill_update_enqueue(reducer->update, flight->bucket, flight->segment);
        else {
            twill_bucket_end(set, bucket, 1);
            twill_reducer_note_end(reducer);
        }
        reducer->oldest = (reducer->oldest + 1) % reducer->flights_most;
        reducer->flights--;
    }
    return TWILL_OK;
}

/* Start ready buckets in backward order, up to one that is not. Returns TWILL_OK or the error. */
static twill_status start_in_order(struct twill_reducer *reducer)
{
    struct twill_gradients *set = reducer->set;
    while (reducer->buckets > 0 && reducer->flights < reducer->flights_most) {
        uint32_t b = reducer->order[reducer->next];
        if (!twill_bucket_is_ready(&set->bucket[b]))
            break;
        set->bucket[b].agreed++;
        TWILL_TRY(NULL, twill_reducer_start(reducer, b));
        reducer->next = (reducer->next + 1) % reducer->buckets;
    }
    return TWILL_OK;
}

/* Collect complete all-gathers, and if there was one, wake the threads that wait for a bucket.
 * Returns TWILL_OK or the error. */
static twill_status collect_gathers(struct twill_reducer *reducer)
{
    uint32_t collected = reducer->update->collected;
    twill_status status = twill_update_collect(reducer->update);
    if (reducer->update->collected != collected)
        twill_reducer_note_end(reducer);
    return status;
}

/* Run the optimizer on what is reduced, and collect complete all-gathers of parameters. After
 * publishing its part of a norm, have the set's other reducers on this rank advance, as they may
 * wait for it. Returns TWILL_OK, also if norms are missing, or the error. */
static twill_status advance_update(struct twill_reducer *reducer)
{
    struct twill_gradients *set = reducer->set;
    uint64_t published;
    TWILL_TRY(NULL, collect_gathers(reducer));
    do {
        published = reducer->update->clip.published_steps;
        TWILL_TRY(NULL, twill_update_advance(reducer->update));
        for (uint32_t l = 0;
             l < set->reducers && published != reducer->update->clip.published_steps; l++)
            if (&set->reducer[l] != reducer && set->reducer[l].buckets > 0)
                twill_reducer_kick(&set->reducer[l]);
    } while (published != reducer->update->clip.published_steps);
    return collect_gathers(reducer);
}

/* Collect complete reductions, advance updates and start what is ready, without waiting. Returns
 * TWILL_OK, also if there is nothing to do, or the error. After an error the caller ends the
 * reducer. */
static twill_status advance(struct twill_reducer *reducer)
{
    TWILL_TRY(NULL, collect(reducer));
    if (reducer->update != NULL)
        TWILL_TRY(NULL, advance_update(reducer));
    return reducer->exchange != NULL ? twill_priority_advance(reducer) : start_in_order(reducer);
}

twill_status twill_reducer_advance(struct twill_reducer *reducer)
{
    atomic_store(&reducer->wanted, false);
    if (!reducer->set->broken)
        return check_reducer(reducer, advance(reducer));
    end_reducer(reducer);
    return TWILL_ERR_BROKEN;
}

bool twill_reducer_is_busy(const struct twill_reducer *reducer)
{
    return reducer->flights > 0 || twill_update_is_busy(reducer->update);
}

uint32_t twill_reducer_collected(const struct twill_reducer *reducer)
{
    return reducer->collected + (reducer->update != NULL ? reducer->update->collected : 0);
}

twill_status twill_reducer_progress(struct twill_reducer *reducer)
{
    TWILL_TRY(NULL, twill_reducer_advance(reducer));
    if (!twill_reducer_is_busy(reducer) && !reducer->exchanging)
        return TWILL_OK;
    twill_comm *comm = reducer->flights > 0                    ? reducer->comm
                       : twill_update_is_busy(reducer->update) ? reducer->update->comm
                                                               : reducer->order_comm;
    twill_status status = twill_extend_wait(comm, "twill_gradients_test", NULL, NULL, NULL);
    if (status != TWILL_OK)
        return twill_reducer_fail(reducer, comm, status);
    return twill_reducer_advance(reducer);
}

/* The events that end one twill_reducer_wait(), on its stack. */
struct awaited {
    const struct twill_reducer *reducer;
    twill_request *any[4]; /* each may be NULL: reduction, exchange, gather, norms */
};

/* Return whether a twill_reducer_wait() may end. `of` is its struct awaited. One of its requests
 * must have ended, another thread must want the reducer or its lock, or the set must be broken. */
static bool has_arrived(const void *of)
{
    const struct awaited *awaited = of;
    bool any = atomic_load_explicit(&awaited->reducer->wanted, memory_order_acquire) ||
               atomic_load_explicit(&awaited->reducer->own.lets_in, memory_order_acquire) ||
               atomic_load_explicit(&awaited->reducer->set->broken, memory_order_acquire);
    for (size_t i = 0; !any && i < TWILL_ARRAY_LENGTH(awaited->any); i++)
        any = awaited->any[i] != NULL && twill_extend_has_ended(awaited->any[i], NULL);
    return any;
}

/* One wait_idle(), on its stack. `failure` is that of another rank, or TWILL_OK. */
struct idle_wait {
    struct twill_reducer *reducer;
    twill_status failure;
};

/* The advance() of wait_idle(), with its struct idle_wait as `of`. Advances the communicators and
 * advancers of the set's context. Returns how many steps were made. */
static int advance_others(void *of)
{
    const struct idle_wait *wait = of;
    return twill_context_advance(wait->reducer->set->process.context, NULL);
}

/* The done() of wait_idle(), with its struct idle_wait as `of`. Returns true if a thread has set
 * reducer->wanted, if the set is broken, or if it is time for the next exchange of which buckets
 * are ready. */
static bool is_wanted(const void *of)
{
    const struct twill_reducer *reducer = ((const struct idle_wait *)of)->reducer;
    uint64_t until = reducer->exchange_from_ns;
    return atomic_load(&reducer->wanted) || reducer->set->broken ||
           (until != 0 && twill_now() >= until);
}

/* The blocked_on() of wait_idle(). Returns the status of a failure on another rank, or TWILL_OK. */
static twill_status look_for_failure(void *of, struct twill_waiting *state)
{
    struct idle_wait *wait = of;
    struct twill_error failure;
    state->polled = true; /* others of the context may have endpoints that ring no doorbell */
    if (twill_extend_failure(wait->reducer->comm, true, &failure))
        wait->failure = failure.status;
    return wait->failure;
}

/* Wait while nothing is under way on the reducer, and advance other communicators of the context.
 * Returns TWILL_OK when it is wanted, TWILL_PENDING at the deadline, or the error. */
static twill_status wait_idle(struct twill_reducer *reducer, uint64_t deadline)
{
    struct idle_wait wait = {reducer, TWILL_OK};
    const struct twill_waitable waitable = {.advance = advance_others,
                                            .done = is_wanted,
                                            .blocked_on = look_for_failure,
                                            .of = &wait,
                                            .awaited = &wait};
    if (!is_wanted(&wait) && twill_now() >= deadline) /* waits for an exchange are short */
        return TWILL_PENDING;
    twill_status status = twill_extend_await(reducer->comm, waitable, deadline);
    if (wait.failure != TWILL_OK)
        return twill_reducer_fail(reducer, reducer->comm, wait.failure);
    return status == TWILL_OK ? TWILL_OK : TWILL_PENDING;
}

/* Wait on one of the reducer's communicators until has_arrived(). Returns TWILL_OK, or the error
 * with which the wait has broken it. A thread that has waited for its timeout interrupts this wait
 * (own.lets_in). The next wait then keeps the deadline of this one, if nothing was collected
 * meanwhile, as repeated interruptions would defer it forever. */
static twill_status wait_on(struct twill_reducer *reducer, twill_comm *comm,
                            const struct awaited *awaited)
{
    if (reducer->interrupted_ns == 0 || reducer->interrupted != comm ||
        reducer->interrupted_collected != twill_reducer_collected(reducer))
        reducer->interrupted_ns = twill_now();
    twill_status status = twill_extend_wait(comm, "twill_gradients_wait", has_arrived, awaited,
                                            &reducer->interrupted_ns);
    if (!atomic_load(&reducer->own.lets_in))
        reducer->interrupted_ns = 0;
    reducer->interrupted = comm;
    reducer->interrupted_collected = twill_reducer_collected(reducer);
    return status;
}

twill_status twill_reducer_wait(struct twill_reducer *reducer, uint64_t deadline)
{
    struct awaited awaited = {reducer,
                              {oldest_request(reducer),
                               reducer->exchanging ? reducer->exchange : NULL,
                               twill_update_gather_awaited(reducer->update),
                               twill_update_norms_awaited(reducer->update)}};
    twill_comm *comm = awaited.any[0] != NULL                             ? reducer->comm
                       : awaited.any[2] != NULL || awaited.any[3] != NULL ? reducer->update->comm
                       : awaited.any[1] != NULL                           ? reducer->order_comm
                                                                          : NULL;
    if (comm == NULL)
        return wait_idle(reducer, deadline);
    if (has_arrived(&awaited))
        return TWILL_OK;
    twill_status status = wait_on(reducer, comm, &awaited);
    return status == TWILL_OK ? TWILL_OK : twill_reducer_fail(reducer, comm, status);
}
