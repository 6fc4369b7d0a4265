/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/shm/node_memory.h"
#include "lib/api/api_internal.h"
#include "lib/engine/device_call.h"
#include "lib/twill_recover.h"

/* Return whether there is no request, or it is not started or was waited for since. */
static bool request_is_idle(const struct twill_request *request)
{
    return request == NULL ||
           atomic_load_explicit(&request->state, memory_order_relaxed) == TWILL_REQUEST_IDLE;
}

/* Return TWILL_ERR_ARGUMENT for a handle whose request has ended. Its message is stored in the
 * communicator, unless that is destroyed or broken or another thread is in a call on it. */
static twill_status refuse_ended(const twill_request *handle, const char *call)
{
    struct twill_comm *comm = twill_comm_of(twill_request_past_engine(handle));
    if (!twill_comm_is_live(comm) || !twill_comm_try_hold(comm))
        return TWILL_ERR_ARGUMENT;
    if (!comm->broken) {
        twill_error_clear(&comm->error);
        (void)TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT,
                         "%s: %s: this request has been waited for or freed before",
                         TWILL_ENGINE_RANK_NAME(&comm->engine, comm->rank), call);
    }
    twill_comm_release(comm);
    return TWILL_ERR_ARGUMENT;
}

/* Find the request of a handle, store it in *request, and hold its communicator for `call`. Returns
 * TWILL_OK, or the error if the handle is NULL or has ended or the communicator cannot be held. */
static twill_status hold_request(twill_request *handle, struct twill_request **request,
                                 const char *call)
{
    if (handle == NULL)
        return TWILL_ERR_ARGUMENT;
    *request = twill_request_find(handle);
    return *request != NULL ? twill_comm_acquire_live(twill_comm_of((*request)->engine), call)
                            : refuse_ended(handle, call);
}

/* Return TWILL_OK if a request is persistent and was not started, or was waited for since. Else set
 * the communicator's error and return TWILL_ERR_ARGUMENT, also if it is complete but was not waited
 * for. */
static twill_status check_rests(const struct twill_request *request)
{
    if (request->persistent && request_is_idle(request))
        return TWILL_OK;
    return TWILL_COMM_REFUSE(twill_comm_of(request->engine), TWILL_ERR_ARGUMENT,
                             "the request is %s",
                             request->persistent ? "under way" : "not persistent");
}

/* The values of twill_ticks() and comm->usage.idle when a wait or test began, passed by value. */
struct wait_start {
    uint64_t ticks; /* 0 if not counted, as the request is a message or complete */
    uint64_t idle;
};

/* Return the start of a wait or test for this request, which begins now. */
static struct wait_start begin_time(const struct twill_request *request)
{
    bool counted = !request->is_point && !twill_request_done(request);
    return (struct wait_start){counted ? twill_ticks() : 0, request->engine->usage.idle};
}

/* Replace the communicator's timeout by a request's own, unless that is 0. Otherwise nothing is
 * written, as other threads may read it. Returns the replaced one, or 0, for restore_timeout(). */
static uint64_t use_timeout(struct twill_comm *comm, uint64_t timeout_ns)
{
    uint64_t of_comm = timeout_ns != 0 ? comm->tuning.timeout_ns : 0;
    if (timeout_ns != 0)
        comm->tuning.timeout_ns = timeout_ns;
    return of_comm;
}

/* Set the communicator's timeout to what use_timeout() has returned, unless that is 0. */
static void restore_timeout(struct twill_comm *comm, uint64_t of_comm)
{
    if (of_comm != 0)
        comm->tuning.timeout_ns = of_comm;
}

/* Add the time since `start` to the communicator's time in calls, if it is to be counted. */
static void count_time(struct twill_comm *comm, const struct wait_start *start)
{
    if (start->ticks != 0)
        twill_engine_count_time(&comm->engine, start->ticks, twill_ticks(), start->idle, false);
}

/* End a complete request and return its status. If its buffers are device memory, first copy the
 * result there, and break the communicator if that fails. Unless it is persistent, free it and set
 * *handle to NULL. */
static twill_status finish_request(struct twill_request *r, twill_request **handle)
{
    struct twill_comm *comm = twill_comm_of(r->engine);
    twill_status status = r->status;
    if (status == TWILL_OK) {
        if (twill_run_has_promoted(r))
            twill_run_leave_promoted(r);
        status = twill_request_bounce_out(r);
        if (status != TWILL_OK)
            (void)twill_comm_fail(comm, status, TWILL_CAUSE_ASKED);
    }
    atomic_store_explicit(&r->state, TWILL_REQUEST_IDLE, memory_order_relaxed);
    if (r->persistent)
        return status;
    *handle = NULL;
    twill_request_give(r);
    return status;
}

/* Start a persistent request. Returns TWILL_OK, or why it has not started. */
static twill_status restart_request(struct twill_request *request)
{
    struct twill_comm *comm = twill_comm_of(request->engine);
    TWILL_TRY(&comm->error, twill_comm_usable(comm));
    TWILL_TRY(&comm->error, check_rests(request));
    if (twill_group_is_open(comm->group))
        return TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT,
                                 "a nonblocking or persistent call is not allowed in a group");
    if (request->is_point) {
        (void)twill_point_launch(request); /* a failure is returned by the wait */
        return TWILL_OK;
    }
    comm->issue.started++;
    if (request->exchange.state >= TWILL_EXCHANGE_PUBLISHED || twill_run_has_promoted(request))
        twill_run_follow_fence(request);
    twill_status status = twill_request_bounce_in(request);
    if (status == TWILL_OK && twill_run_has_promoted(request))
        status = twill_run_restart_promoted(request);
    if (status != TWILL_OK)
        return twill_comm_fail(comm, status, TWILL_CAUSE_ASKED);
    twill_request_begin(request, 0);
    (void)twill_request_launch(request);
    twill_request_count_start(request);
    return TWILL_OK;
}

twill_status twill_request_start(twill_request *handle)
{
    struct twill_request *request;
    TWILL_TRY(NULL, hold_request(handle, &request, "twill_request_start"));
    struct twill_comm *comm = twill_comm_of(request->engine);
    twill_status status = restart_request(request);
    if (TWILL_UNLIKELY(
            twill_node_suspended_here(comm->node))) /* the launch needs no pages before */
        twill_comm_wake(comm);
    twill_comm_release(comm);
    return status;
}

twill_status twill_test(twill_request **handle, int *done)
{
    if (done == NULL)
        return TWILL_ERR_ARGUMENT;
    *done = 1;
    if (handle == NULL || *handle == NULL)
        return TWILL_OK;
    struct twill_request *request = twill_request_find(*handle);
    if (request == NULL)
        return refuse_ended(*handle, "twill_test");
    struct twill_comm *comm = twill_comm_of(request->engine);
    if (request_is_idle(request))
        return TWILL_OK;
    twill_status status = twill_comm_acquire_live(comm, "twill_test");
    if (status != TWILL_OK)
        return status;
    struct wait_start start = begin_time(request);
    if (!twill_request_done(request)) {
        uint64_t of_comm = use_timeout(comm, request->timeout_ns);
        (void)twill_comm_progress(comm); /* a failure also fails the request */
        restore_timeout(comm, of_comm);
    }
    *done = twill_request_done(request);
    if (*done)
        status = finish_request(request, handle);
    count_time(comm, &start);
    twill_comm_release(comm);
    return status;
}

/* Wait until done(of) is true or the held communicator breaks. Returns TWILL_OK, also at once if it
 * is broken already, or the status with which this wait has broken it. */
static twill_status wait_until(struct twill_comm *comm, bool (*done)(const void *of),
                               const void *of)
{
    twill_status status = TWILL_OK;
    if (!done(of) && !comm->broken)
        status = twill_comm_wait(comm, done, of);
    return status == TWILL_OK ? TWILL_OK : twill_comm_fail(comm, status, TWILL_CAUSE_ASKED);
}

/* Refuse a wait for a message of this rank to itself whose counterpart only this thread could post.
 * Returns TWILL_ERR_ARGUMENT, or TWILL_ERR_BROKEN if the communicator is broken. The request does
 * not change. The communicator is held. */
static twill_status refuse_lonely(struct twill_comm *comm)
{
    TWILL_TRY(&comm->error, twill_comm_usable(comm));
    return TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT,
                             "a message of rank %u to itself has no counterpart, and none can be "
                             "posted while this rank waits",
                             comm->rank);
}

/* Wait for one request, and return its status. *since is the time since which an earlier wait of
 * twill_wait_all() made no progress, or 0. The deadline counts from there, and *since is updated
 * for the next wait. Returns TWILL_OK if there is no request or it is not started. */
static twill_status wait_one(twill_request **handle, uint64_t *since)
{
    if (handle == NULL || *handle == NULL)
        return TWILL_OK;
    struct twill_request *request = twill_request_find(*handle);
    if (request == NULL)
        return refuse_ended(*handle, "twill_wait");
    struct twill_comm *comm = twill_comm_of(request->engine);
    if (request_is_idle(request))
        return TWILL_OK;
    twill_status status = twill_comm_acquire_live(comm, "twill_wait");
    if (status != TWILL_OK)
        return status;
    if (TWILL_UNLIKELY(twill_point_is_lonely(request))) {
        status = refuse_lonely(comm);
    } else {
        struct wait_start start = begin_time(request);
        comm->waits.wait_since = *since;
        comm->waits.timed_out_since = 0;
        uint64_t of_comm = use_timeout(comm, request->timeout_ns);
        (void)wait_until(comm, twill_request_done, request);
        restore_timeout(comm, of_comm);
        comm->waits.wait_since = 0;
        if (comm->waits.timed_out_since != 0)
            *since = comm->waits.timed_out_since;
        status = finish_request(request, handle);
        count_time(comm, &start);
    }
    twill_comm_release(comm);
    return status;
}

twill_status twill_wait(twill_request **handle)
{
    uint64_t since = 0;
    return wait_one(handle, &since);
}

/* The arguments of twill_wait_any(), on its stack. */
struct several {
    size_t count;
    twill_request **requests;
};

/* Return request i, which may be complete but was not waited for. Return NULL if the handle is NULL
 * or has ended, or if the request is not started. */
static struct twill_request *active_at(const struct several *several, size_t i)
{
    twill_request *handle = several->requests[i];
    struct twill_request *request = handle != NULL ? twill_request_find(handle) : NULL;
    return request_is_idle(request) ? NULL : request;
}

/* Return the index of the first complete request that was not waited for, or `count` if none. */
static size_t first_done(const struct several *several)
{
    size_t i = 0;
    for (; i < several->count; i++) {
        const struct twill_request *request = active_at(several, i);
        if (request != NULL && twill_request_done(request))
            break;
    }
    return i;
}

/* Return the least of the requests' own timeouts, in ns, or 0 if none has one. */
static uint64_t least_timeout(const struct several *several)
{
    uint64_t least = 0;
    for (size_t i = 0; i < several->count; i++) {
        const struct twill_request *request = active_at(several, i);
        if (request != NULL && request->timeout_ns != 0)
            least = least == 0 ? request->timeout_ns : twill_min(least, request->timeout_ns);
    }
    return least;
}

/* Return whether a request of `of`, a struct several, is complete. */
static bool some_done(const void *of)
{
    const struct several *several = of;
    return first_done(several) < several->count;
}

/* Wait on the communicator of `request`, which also advances the others, until one of the requests
 * is complete or this communicator breaks. Returns an error only if it cannot be held. */
static twill_status wait_on(struct twill_request *request, const struct several *several)
{
    struct twill_comm *comm = twill_comm_of(request->engine);
    twill_status status = twill_comm_acquire_live(comm, "twill_wait_any");
    if (status != TWILL_OK)
        return status;
    struct wait_start start = begin_time(request);
    if (some_done(several))
        start.ticks = 0;
    uint64_t of_comm = use_timeout(comm, least_timeout(several));
    (void)wait_until(comm, some_done, several);
    restore_timeout(comm, of_comm);
    count_time(comm, &start);
    twill_comm_release(comm);
    return TWILL_OK;
}

twill_status twill_wait_any(size_t count, twill_request **requests, int *index)
{
    struct several several = {count, requests};
    struct twill_request *first = NULL;
    if (index == NULL || (count > 0 && requests == NULL))
        return TWILL_ERR_ARGUMENT;
    *index = -1;
    for (size_t i = 0; i < count; i++) {
        if (requests[i] != NULL && twill_request_find(requests[i]) == NULL) {
            *index = (int)i;
            return refuse_ended(requests[i], "twill_wait_any");
        }
        first = first == NULL ? active_at(&several, i) : first;
    }
    if (first == NULL)
        return TWILL_OK;
    twill_status status = wait_on(first, &several);
    if (status != TWILL_OK)
        return status;
    size_t i = first_done(&several);
    if (i == count) /* the wait has failed on a communicator of one rank, which stays usable */
        return TWILL_ERR_ARGUMENT;
    *index = (int)i;
    TWILL_TRY(NULL, hold_request(requests[i], &first, "twill_wait_any"));
    struct twill_comm *comm = twill_comm_of(first->engine);
    status = finish_request(first, &requests[i]);
    twill_comm_release(comm);
    return status;
}

twill_status twill_wait_all(size_t count, twill_request **requests)
{
    twill_status first = TWILL_OK;
    uint64_t since = 0; /* one deadline for all */
    if (count > 0 && requests == NULL)
        return TWILL_ERR_ARGUMENT;
    for (size_t i = 0; i < count; i++) {
        twill_status status = wait_one(&requests[i], &since);
        if (first == TWILL_OK)
            first = status;
    }
    return first;
}

twill_status twill_request_free(twill_request **handle)
{
    if (handle == NULL || *handle == NULL)
        return TWILL_OK;
    struct twill_request *request;
    TWILL_TRY(NULL, hold_request(*handle, &request, "twill_request_free"));
    struct twill_comm *comm = twill_comm_of(request->engine);
    twill_status status = check_rests(request);
    if (status == TWILL_OK) {
        twill_request_give(request);
        *handle = NULL;
    }
    twill_comm_release(comm);
    return status;
}

twill_status twill_request_set_timeout(twill_request *handle, double seconds)
{
    struct twill_request *request;
    TWILL_TRY(NULL, hold_request(handle, &request, "twill_request_set_timeout"));
    struct twill_comm *comm = twill_comm_of(request->engine);
    twill_status status = twill_comm_check_timeout(comm, seconds);
    if (status == TWILL_OK)
        request->timeout_ns = (uint64_t)(seconds * 1e9);
    twill_comm_release(comm);
    return status;
}
