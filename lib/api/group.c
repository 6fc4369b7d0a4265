/* SPDX-License-Identifier: Apache-2.0 */
/* Groups. Calls between start and end are recorded as requests. twill_group_end() starts all
 * messages, then all collectives in order, and waits for them. Consecutive small allreduces of one
 * type and operation are packed into one, so that its latency is paid once.
 *
 *     a: allreduce, 3 elements   \
 *     b: allreduce, 5 elements    >  | a a a b b b b b c |  one allreduce of 9, then unpacked
 *     c: allreduce, 1 element    /
 */
#include "lib/api/api_internal.h"
#include "lib/engine/device_call.h"
#include "lib/job/context.h"

#include <stdlib.h>
#include <string.h>

/* Most bytes of a fused allreduce. Above that bandwidth counts, not latency. */
#define GROUP_FUSED_BYTES ((size_t)64 << 10)

/* Append a request to the recorded calls of a group. */
static void append_request(struct twill_call_group *group, struct twill_request *request)
{
    request->recorded = NULL;
    if (group->first == NULL)
        group->first = request;
    else
        group->last->recorded = request;
    group->last = request;
}

/* Take the first request off the group's list and return it, or NULL if the list is empty. */
static struct twill_request *take_first(struct twill_call_group *group)
{
    struct twill_request *request = group->first;
    if (request != NULL)
        group->first = request->recorded;
    return request;
}

/* Take all requests off the list of comm->group, and free them. */
static void forget_group(struct twill_comm *comm)
{
    struct twill_request *request;
    while ((request = take_first(comm->group)) != NULL)
        twill_request_give(request);
}

/* Check a call and append it to the open group. Returns TWILL_OK or the error, which all ranks get
 * for the same argument if *alike is set. */
static twill_status record_group(struct twill_comm *comm, const struct twill_call *call,
                                 const struct twill_point *point, bool *alike)
{
    TWILL_TRY(&comm->error, twill_comm_usable(comm));
    struct twill_request *request = twill_request_take(&comm->engine);
    if (request == NULL)
        return TWILL_ERR_MEMORY;
    twill_status status =
        call != NULL ? twill_request_prepare(request, call) : twill_point_prepare(request, point);
    if (status != TWILL_OK) {
        *alike = call != NULL && request->refused_alike;
        if (*alike) {
            comm->issue.started++;
            twill_request_number_refused(request, call);
        }
        twill_request_give(request);
        return status;
    }
    append_request(comm->group, request);
    return TWILL_OK;
}

twill_status twill_group_record(struct twill_comm *comm, const struct twill_call *call,
                                const struct twill_point *point)
{
    bool alike = false;
    twill_status status = record_group(comm, call, point, &alike);
    if (status != TWILL_OK && status != TWILL_ERR_BROKEN) {
        struct twill_error own = comm->error;
        twill_error_clear(&comm->error);
        (void)TWILL_FAIL(&comm->error, status, "%s: in a group: %s",
                         TWILL_ENGINE_RANK_NAME(&comm->engine, comm->rank), own.message);
        status = alike ? status : twill_comm_fail(comm, status, TWILL_CAUSE_ASKED);
    }
    return status;
}

/* Return the bytes of `count` elements of a recorded collective. For an allreduce, which alone may
 * be fused, that is the size of its whole buffer. */
static size_t request_bytes(const struct twill_request *request)
{
    return request->call.count * request->layout.element;
}

/* Return the next collective, or NULL. Messages are skipped, as all ranks fuse the same calls. */
static struct twill_request *collective_after(const struct twill_request *request)
{
    struct twill_request *next = request->recorded;
    while (next != NULL && next->is_point)
        next = next->recorded;
    return next;
}

/* Return whether b may be fused with a and the calls before it, which have `bytes` bytes in all.
 * User-defined operations may not, as ranks may number them differently. */
static bool may_fuse(const struct twill_request *a, const struct twill_request *b, size_t bytes)
{
    return b != NULL && a->call.op < TWILL_OP_COUNT && a->call.collective == TWILL_ALLREDUCE &&
           b->call.collective == TWILL_ALLREDUCE && a->call.type == b->call.type &&
           a->call.op == b->call.op && bytes + request_bytes(b) <= GROUP_FUSED_BYTES;
}

/* Return how many requests from `first` on are fused into one call, at least 1, and set *bytes to
 * the sum of their bytes. */
static unsigned count_fused(const struct twill_request *first, size_t *bytes)
{
    unsigned n = 1;
    *bytes = request_bytes(first);
    for (const struct twill_request *r = first; may_fuse(r, collective_after(r), *bytes); n++) {
        r = collective_after(r);
        *bytes += request_bytes(r);
    }
    return n;
}

/* Copy the inputs of n collectives from `first` on to `to`. Returns TWILL_OK or the error. */
static twill_status pack_requests(struct twill_request *first, unsigned n, unsigned char *to)
{
    for (; n > 0; n--, first = collective_after(first)) {
        size_t bytes = request_bytes(first);
        if (bytes > 0)
            TWILL_TRY(&first->engine->error, twill_request_read(first, to, bytes));
        if (twill_run_looks(first))
            TWILL_TRY(&first->engine->error, twill_run_find_nan(first, to, 0, first->call.count,
                                                                first->engine->issue.started + 1));
        to += bytes;
    }
    return TWILL_OK;
}

/* Copy the results at `from` to n collectives from `first` on. Returns TWILL_OK or the error. */
static twill_status unpack_requests(struct twill_request *first, unsigned n,
                                    const unsigned char *from)
{
    for (; n > 0; n--, first = collective_after(first)) {
        size_t bytes = request_bytes(first);
        if (bytes > 0)
            TWILL_TRY(&first->engine->error, twill_request_write(first, from, bytes));
        from += bytes;
    }
    return TWILL_OK;
}

/* Start a prepared collective. Returns TWILL_OK, or the error if device memory cannot be copied. */
static twill_status begin_collective(struct twill_request *request)
{
    struct twill_comm *comm = twill_comm_of(request->engine);
    comm->issue.started++;
    TWILL_TRY(&comm->error, twill_request_bounce_in(request));
    twill_run_begin_promoted(request);
    twill_request_begin(request, 0);
    return TWILL_OK;
}

/* Wait until a request is complete. Returns its status, or the error that ended the wait. */
static twill_status wait_request(struct twill_request *request)
{
    struct twill_comm *comm = twill_comm_of(request->engine);
    if (!twill_request_done(request))
        TWILL_TRY(&comm->error, twill_comm_wait(comm, twill_request_done, request));
    return request->status;
}

/* Run one allreduce for n recorded ones from `first` on, and store their results. Returns TWILL_OK
 * or the error. */
static twill_status run_fused(struct twill_comm *comm, struct twill_request *first, unsigned n)
{
    struct twill_call_group *group = comm->group;
    size_t count = 0, counts = 0;
    const struct twill_request *r = first;
    for (unsigned i = 0; i < n; i++, r = collective_after(r)) {
        count += r->call.count;
        counts = (counts ^ r->call.count) * 0x9e3779b97f4a7c15u + 1;
    }
    TWILL_TRY(&comm->error, twill_engine_reserve(&comm->engine, &group->packed,
                                                 &group->packed_bytes, GROUP_FUSED_BYTES));
    struct twill_call call = first->call;
    call.src = call.dst = group->packed;
    call.count = count;
    TWILL_TRY(&comm->error, pack_requests(first, n, group->packed));
    TWILL_TRY(&comm->error, twill_request_prepare(&comm->issue.blocking, &call));
    /* Ranks compare a hash of all counts, instead of their sum. */
    comm->issue.blocking.summary.vector = true;
    comm->issue.blocking.summary.count = counts;
    twill_run_hash_call(&comm->issue.blocking);
    TWILL_TRY(&comm->error, begin_collective(&comm->issue.blocking));
    TWILL_TRY(&comm->error, wait_request(&comm->issue.blocking));
    return unpack_requests(first, n, group->packed);
}

/* Return TWILL_OK if the group's messages of this rank to itself match, else TWILL_ERR_ARGUMENT. */
static twill_status check_itself(struct twill_comm *comm)
{
    int sends = 0, receives = 0, self = (int)comm->rank;
    for (const struct twill_request *r = comm->group->first; r != NULL; r = r->recorded) {
        sends += r->is_point && r->point.sends && r->point.to == self;
        receives += r->is_point && r->point.receives && r->point.from == self;
    }
    return twill_point_check_itself(comm, sends, receives);
}

/* Check and post the messages of the group. Returns TWILL_OK or the first error. */
static twill_status begin_points(struct twill_comm *comm)
{
    TWILL_TRY(&comm->error, check_itself(comm));
    for (struct twill_request *r = comm->group->first; r != NULL; r = r->recorded)
        if (r->is_point)
            TWILL_TRY(&comm->error, twill_point_begin(r));
    return TWILL_OK;
}

/* Start the collectives of the group in order. Fused ones are also waited for, and their results
 * stored. Returns TWILL_OK or the first error. */
static twill_status begin_collectives(struct twill_comm *comm)
{
    struct twill_request *r = comm->group->first;
    while (r != NULL && r->is_point)
        r = r->recorded;
    while (r != NULL) {
        size_t bytes;
        unsigned n = count_fused(r, &bytes);
        if (n > 1)
            TWILL_TRY(&comm->error, run_fused(comm, r, n));
        else
            TWILL_TRY(&comm->error, begin_collective(r));
        for (; n > 0; n--)
            r = collective_after(r);
    }
    return TWILL_OK;
}

/* Wait for all calls of the group, and copy results to buffers in device memory. Returns TWILL_OK
 * or the first error. */
static twill_status wait_requests(struct twill_comm *comm)
{
    int swept = twill_points_sweep(&comm->engine);
    if (swept < 0)
        return (twill_status)swept;
    for (struct twill_request *r = comm->group->first; r != NULL; r = r->recorded) {
        TWILL_TRY(&comm->error, wait_request(r));
        if (twill_run_has_promoted(r))
            twill_run_leave_promoted(r);
        TWILL_TRY(&comm->error, twill_request_bounce_out(r));
    }
    return TWILL_OK;
}

/* Start all calls of the group and wait for them. Returns TWILL_OK or the first error. */
static twill_status end_group(struct twill_comm *comm)
{
    TWILL_TRY(&comm->error, twill_comm_usable(comm));
    TWILL_TRY(&comm->error, begin_points(comm));
    TWILL_TRY(&comm->error, begin_collectives(comm));
    return wait_requests(comm);
}

twill_status twill_group_start(twill_comm *comm)
{
    twill_status status = twill_comm_acquire(comm, "twill_group_start");
    if (status != TWILL_OK)
        return status;
    status = twill_comm_usable(comm);
    if (comm->group == NULL)
        comm->group = calloc(1, sizeof(*comm->group));
    if (status == TWILL_OK && comm->group == NULL)
        status = TWILL_COMM_REFUSE(comm, TWILL_ERR_MEMORY, "out of memory for a group");
    else if (status == TWILL_OK && comm->group->open)
        status = TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT, "groups do not nest");
    if (status == TWILL_OK)
        comm->group->open = true;
    twill_comm_release(comm);
    return status;
}

twill_status twill_group_end(twill_comm *comm)
{
    twill_status status = twill_comm_acquire(comm, "twill_group_end");
    if (status != TWILL_OK)
        return status;
    uint64_t ticks = twill_ticks(), idle = comm->usage.idle;
    if (!twill_group_is_open(comm->group)) {
        status = twill_comm_usable(comm);
        if (status == TWILL_OK)
            status = TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT, "the group has not been started");
    } else {
        comm->group->open = false;
        status = end_group(comm);
        if (status != TWILL_OK && !comm->broken)
            status = twill_comm_fail(comm, status, TWILL_CAUSE_ASKED);
        forget_group(comm);
        twill_engine_count_time(&comm->engine, ticks, twill_ticks(), idle, true);
    }
    twill_comm_release(comm);
    return status;
}

void twill_group_close(struct twill_comm *comm)
{
    if (comm->group != NULL)
        twill_context_give(comm->context, comm->group->packed, comm->group->packed_bytes);
    free(comm->group);
    comm->group = NULL;
}
