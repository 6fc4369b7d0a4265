/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as callers know them: started again, asked about, waited for, freed. */
#include "lib/device.h"
#include "lib/group.h"
#include "lib/progress.h"

static bool is_idle(const struct twill_request *request)
{
    return request == NULL ||
           atomic_load_explicit(&request->state, memory_order_relaxed) == TWILL_REQUEST_IDLE;
}

/* What the caller gets of a request that is complete. The communicator is held. */
static twill_status finish(twill_request **request)
{
    struct twill_request *r = *request;
    struct twill_comm *comm = r->comm;
    twill_status status = r->status;
    if (status == TWILL_OK && !r->is_point) {
        status = twill_request_unstage(r);
        if (status != TWILL_OK)
            (void)twill_comm_fail(comm, status);
    }
    atomic_store_explicit(&r->state, TWILL_REQUEST_IDLE, memory_order_relaxed);
    if (r->persistent)
        return status;
    *request = NULL;
    twill_request_give(r);
    return status;
}

static twill_status start_again(struct twill_request *request)
{
    struct twill_comm *comm = request->comm;
    TWILL_TRY(&comm->error, twill_comm_usable(comm));
    if (!request->persistent || !is_idle(request))
        return TWILL_COMM_FAIL(comm, TWILL_ERR_ARGUMENT, "the request is %s",
                               request->persistent ? "under way" : "not persistent");
    if (twill_group_is_open(comm->group))
        return TWILL_COMM_FAIL(comm, TWILL_ERR_ARGUMENT,
                               "a nonblocking or persistent call inside a group");
    if (request->is_point) {
        (void)twill_point_launch(request); /* its waiter hears of a failure */
        return TWILL_OK;
    }
    comm->begun++;
    twill_status status = twill_request_stage(request);
    if (status != TWILL_OK)
        return twill_comm_fail(comm, status);
    twill_request_begin(request);
    (void)twill_request_launch(request);
    return TWILL_OK;
}

twill_status twill_request_start(twill_request *request)
{
    if (request == NULL)
        return TWILL_ERR_ARGUMENT;
    struct twill_comm *comm = request->comm;
    twill_comm_hold(comm);
    twill_status status = start_again(request);
    twill_comm_release(comm);
    return status;
}

twill_status twill_test(twill_request **request, int *done)
{
    twill_status status = TWILL_OK;
    if (done == NULL)
        return TWILL_ERR_ARGUMENT;
    *done = 1;
    if (request == NULL || is_idle(*request))
        return TWILL_OK;
    struct twill_comm *comm = (*request)->comm;
    twill_comm_hold(comm);
    if (!twill_request_done(*request))
        (void)twill_comm_poke(comm); /* a failure is the request's too */
    *done = twill_request_done(*request);
    if (*done)
        status = finish(request);
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

/* *since: another one has been waited for in vain since then, and this one with it; 0: none has. */
static twill_status wait_one(twill_request **request, uint64_t *since)
{
    if (request == NULL || is_idle(*request))
        return TWILL_OK;
    struct twill_comm *comm = (*request)->comm;
    twill_comm_hold(comm);
    comm->stands_since = *since;
    comm->stood_since = 0;
    (void)wait_until(comm, twill_request_done, *request);
    comm->stands_since = 0;
    if (comm->stood_since != 0)
        *since = comm->stood_since;
    twill_status status = finish(request);
    twill_comm_release(comm);
    return status;
}

twill_status twill_wait(twill_request **request)
{
    uint64_t since = 0;
    return wait_one(request, &since);
}

struct several {
    size_t count;
    twill_request **requests;
};

static size_t first_done(const struct several *several)
{
    size_t i = 0;
    while (i < several->count &&
           (is_idle(several->requests[i]) || !twill_request_done(several->requests[i])))
        i++;
    return i;
}

static bool some_done(const void *of)
{
    const struct several *several = of;
    return first_done(several) < several->count;
}

/* Waiting on one communicator moves those of the others along. */
twill_status twill_wait_any(size_t count, twill_request **requests, int *index)
{
    struct several several = {count, requests};
    size_t i = 0;
    if (index == NULL || (count > 0 && requests == NULL))
        return TWILL_ERR_ARGUMENT;
    *index = -1;
    while (i < count && is_idle(requests[i]))
        i++;
    if (i == count)
        return TWILL_OK;
    struct twill_comm *comm = requests[i]->comm;
    twill_comm_hold(comm);
    (void)wait_until(comm, some_done, &several);
    twill_comm_release(comm);
    i = first_done(&several);
    *index = (int)i;
    comm = requests[i]->comm;
    twill_comm_hold(comm);
    twill_status status = finish(&requests[i]);
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

twill_status twill_request_free(twill_request **request)
{
    twill_status status = TWILL_OK;
    if (request == NULL || *request == NULL)
        return TWILL_OK;
    struct twill_comm *comm = (*request)->comm;
    twill_comm_hold(comm);
    if (!(*request)->persistent || !is_idle(*request)) {
        status = TWILL_COMM_FAIL(comm, TWILL_ERR_ARGUMENT, "the request is %s",
                                 (*request)->persistent ? "under way" : "not persistent");
    } else {
        twill_request_give(*request);
        *request = NULL;
    }
    twill_comm_release(comm);
    return status;
}
