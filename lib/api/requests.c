/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as callers know them: started again, asked about, waited for, freed. */
#include "lib/api/group.h"
#include "lib/exec/device_call.h"
#include "lib/exec/progress.h"

static bool request_is_idle(const struct twill_request *request)
{
    return request == NULL ||
           atomic_load_explicit(&request->state, memory_order_relaxed) == TWILL_REQUEST_IDLE;
}

/* The error for a handle whose request has ended. Its communicator is told, unless somebody is in a
 * call on it, who is not to blame. */
static twill_status refuse_ended(const twill_request *handle, const char *call)
{
    struct twill_comm *comm = twill_request_past_comm(handle);
    char rank[TWILL_RANK_TEXT];
    if (!twill_comm_is_live(comm) || !twill_comm_try_hold(comm))
        return TWILL_ERR_ARGUMENT;
    if (!comm->broken) {
        twill_error_clear(&comm->error);
        (void)TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT,
                         "%s: %s: this request has been waited for, or freed, before",
                         twill_comm_rank_text(comm, comm->rank, rank), call);
    }
    twill_comm_release(comm);
    return TWILL_ERR_ARGUMENT;
}

/* When a call on a collective's request began that may take time; 0: it is not to be counted. */
static uint64_t begin_time(const struct twill_request *request)
{
    return request->is_point || twill_request_done(request) ? 0 : twill_ticks();
}

static void count_time(struct twill_comm *comm, uint64_t started)
{
    if (started != 0)
        comm->ticks += twill_ticks() - started;
}

/* What the caller gets of a request that is complete. The communicator is held. */
static twill_status finish_request(struct twill_request *r, twill_request **handle)
{
    struct twill_comm *comm = r->comm;
    twill_status status = r->status;
    if (status == TWILL_OK) {
        status = twill_request_bounce_out(r);
        if (status != TWILL_OK)
            (void)twill_comm_fail(comm, status);
    }
    atomic_store_explicit(&r->state, TWILL_REQUEST_IDLE, memory_order_relaxed);
    if (r->persistent)
        return status;
    *handle = NULL;
    twill_request_give(r);
    return status;
}

static twill_status restart_request(struct twill_request *request)
{
    struct twill_comm *comm = request->comm;
    TWILL_TRY(&comm->error, twill_comm_usable(comm));
    if (!request->persistent || !request_is_idle(request))
        return TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT, "the request is %s",
                                 request->persistent ? "under way" : "not persistent");
    if (twill_group_is_open(comm->group))
        return TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT,
                                 "a nonblocking or persistent call inside a group");
    if (request->is_point) {
        (void)twill_point_launch(request); /* its waiter hears of a failure */
        return TWILL_OK;
    }
    comm->started++;
    twill_status status = twill_request_bounce_in(request);
    if (status != TWILL_OK)
        return twill_comm_fail(comm, status);
    twill_request_begin(request);
    (void)twill_request_launch(request);
    twill_request_count_start(request);
    return TWILL_OK;
}

twill_status twill_request_start(twill_request *handle)
{
    if (handle == NULL)
        return TWILL_ERR_ARGUMENT;
    struct twill_request *request = twill_request_find(handle);
    if (request == NULL)
        return refuse_ended(handle, "twill_request_start");
    struct twill_comm *comm = request->comm;
    twill_status status = twill_comm_acquire_live(comm, "twill_request_start");
    if (status != TWILL_OK)
        return status;
    status = restart_request(request);
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
    struct twill_comm *comm = request->comm;
    if (request_is_idle(request))
        return TWILL_OK;
    twill_status status = twill_comm_acquire_live(comm, "twill_test");
    if (status != TWILL_OK)
        return status;
    uint64_t started = begin_time(request);
    if (!twill_request_done(request))
        (void)twill_comm_progress(comm); /* a failure is the request's too */
    *done = twill_request_done(request);
    if (*done)
        status = finish_request(request, handle);
    count_time(comm, started);
    twill_comm_release(comm);
    return status;
}

/* Until done() says so; the communicator is held. */
static twill_status wait_until(struct twill_comm *comm, bool (*done)(const void *of),
                               const void *of)
{
    twill_status status = TWILL_OK;
    if (!done(of) && !comm->broken)
        status = twill_comm_wait(comm, done, of);
    return status == TWILL_OK ? TWILL_OK : twill_comm_fail(comm, status);
}

/* A message to or from this rank itself that nobody can meet while this thread waits; the request
 * stays as it is. The communicator is held. */
static twill_status refuse_lonely(struct twill_comm *comm)
{
    TWILL_TRY(&comm->error, twill_comm_usable(comm));
    return TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT,
                             "a message of rank %u to itself has no counterpart, and nobody can "
                             "make one while this rank waits",
                             comm->rank);
}

/* *since: another one has been waited for in vain since then, and this one with it; 0: none has. */
static twill_status wait_one(twill_request **handle, uint64_t *since)
{
    if (handle == NULL || *handle == NULL)
        return TWILL_OK;
    struct twill_request *request = twill_request_find(*handle);
    if (request == NULL)
        return refuse_ended(*handle, "twill_wait");
    struct twill_comm *comm = request->comm;
    if (request_is_idle(request))
        return TWILL_OK;
    twill_status status = twill_comm_acquire_live(comm, "twill_wait");
    if (status != TWILL_OK)
        return status;
    if (TWILL_UNLIKELY(twill_point_is_lonely(request))) {
        status = refuse_lonely(comm);
    } else {
        uint64_t started = begin_time(request);
        comm->wait_since = *since;
        comm->timed_out_since = 0;
        (void)wait_until(comm, twill_request_done, request);
        comm->wait_since = 0;
        if (comm->timed_out_since != 0)
            *since = comm->timed_out_since;
        status = finish_request(request, handle);
        count_time(comm, started);
    }
    twill_comm_release(comm);
    return status;
}

twill_status twill_wait(twill_request **handle)
{
    uint64_t since = 0;
    return wait_one(handle, &since);
}

struct several {
    size_t count;
    twill_request **requests;
};

/* NULL: there is none, or it is not under way. */
static struct twill_request *active_at(const struct several *several, size_t i)
{
    twill_request *handle = several->requests[i];
    struct twill_request *request = handle != NULL ? twill_request_find(handle) : NULL;
    return request_is_idle(request) ? NULL : request;
}

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

static bool some_done(const void *of)
{
    const struct several *several = of;
    return first_done(several) < several->count;
}

/* Waiting on one communicator moves those of the others along. */
static twill_status wait_on(struct twill_request *request, const struct several *several)
{
    struct twill_comm *comm = request->comm;
    twill_status status = twill_comm_acquire_live(comm, "twill_wait_any");
    if (status != TWILL_OK)
        return status;
    uint64_t started = request->is_point || some_done(several) ? 0 : twill_ticks();
    (void)wait_until(comm, some_done, several);
    count_time(comm, started);
    twill_comm_release(comm);
    return TWILL_OK;
}

static twill_status finish_one(struct twill_request *request, twill_request **handle)
{
    struct twill_comm *comm = request->comm;
    twill_status status = twill_comm_acquire_live(comm, "twill_wait_any");
    if (status != TWILL_OK)
        return status;
    status = finish_request(request, handle);
    twill_comm_release(comm);
    return status;
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
    *index = (int)i;
    return finish_one(active_at(&several, i), &requests[i]);
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
    struct twill_request *request = twill_request_find(*handle);
    if (request == NULL)
        return refuse_ended(*handle, "twill_request_free");
    struct twill_comm *comm = request->comm;
    twill_status status = twill_comm_acquire_live(comm, "twill_request_free");
    if (status != TWILL_OK)
        return status;
    if (!request->persistent || !request_is_idle(request)) {
        status = TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT, "the request is %s",
                                   request->persistent ? "under way" : "not persistent");
    } else {
        twill_request_give(request);
        *handle = NULL;
    }
    twill_comm_release(comm);
    return status;
}
