/* SPDX-License-Identifier: Apache-2.0 */
/* Point-to-point calls. Messages have their own lane, so collectives do not wait for them. */
#include "fabric/shm/node_memory.h"
#include "fabric/transports.h"
#include "lib/api/api_internal.h"
#include "lib/engine/device_call.h"
#include "lib/engine/trace_calls.h"

#include <string.h>

/* Return a hash of the type and count, which must be the same on both sides of a message. */
static uint32_t signature_of(twill_type type, size_t count)
{
    uint64_t h = (count ^ (uint64_t)type << 56) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(h >> 32) | 1u;
}

/* Check one direction of a message: its type, its peer, its count, and that the buffer called
 * `name` is not NULL. Returns TWILL_OK or TWILL_ERR_ARGUMENT. */
static twill_status check_way(struct twill_comm *comm, const char *name, const void *buffer,
                              size_t count, twill_type type, const char *peer_name, int peer)
{
    size_t element = twill_type_size(type);
    if (element == 0)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "type %d is not a twill_type",
                          (int)type);
    if (peer < 0 || (uint32_t)peer >= comm->world->size)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "%s: rank %d is outside 0 .. %u",
                          peer_name, peer, comm->world->size - 1);
    if (count > (SIZE_MAX >> 1) / element)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "count %zu overflows memory", count);
    if (count > 0 && buffer == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "%s is NULL", name);
    return TWILL_OK;
}

/* Check the arguments of a message, and that its buffers do not overlap. Returns TWILL_OK or
 * TWILL_ERR_ARGUMENT. */
static twill_status check_point(struct twill_comm *comm, const struct twill_point *p)
{
    if (p->sends)
        TWILL_TRY(&comm->error, check_way(comm, "src", p->src, p->src_count, p->type, "to", p->to));
    if (p->receives)
        TWILL_TRY(&comm->error,
                  check_way(comm, "dst", p->dst, p->dst_count, p->type, "from", p->from));
    uintptr_t src = (uintptr_t)p->src, dst = (uintptr_t)p->dst;
    size_t element = twill_type_size(p->type);
    if (p->sends && p->receives && p->src_count > 0 && p->dst_count > 0 &&
        src < dst + p->dst_count * element && dst < src + p->src_count * element)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "src and dst overlap");
    return TWILL_OK;
}

/* Open the transport by which this rank sends messages to itself. Returns TWILL_OK or the error. */
static twill_status open_self(struct twill_comm *comm)
{
    struct twill_transport_params params = {.oob = comm->oob};
    if (comm->links.transports == TWILL_TRANSPORTS_MOST)
        return TWILL_FAIL(&comm->error, TWILL_ERR_INTERNAL, "too many transports");
    TWILL_TRY(&comm->error,
              twill_self_transport.open(&comm->links.transport[comm->links.transports], &params,
                                        &comm->error));
    comm->links.route[comm->rank] = (uint8_t)comm->links.transports++;
    return TWILL_OK;
}

/* Connect to a rank, which may be this rank itself. Returns TWILL_OK or the error. */
static twill_status connect(struct twill_comm *comm, uint32_t peer)
{
    if (peer == comm->rank && twill_engine_link(&comm->engine, peer)->ops != &twill_self_transport)
        TWILL_TRY(&comm->error, open_self(comm));
    return twill_engine_connect(&comm->engine, peer);
}

/* Return a new transfer with the arguments of a request's send, if `way` is TWILL_OUT, or of its
 * receive, if that is TWILL_IN. It is pending, or complete if the request has none in that
 * direction. */
static struct twill_transfer transfer_of(const struct twill_request *request, int way)
{
    const struct twill_point *p = &request->point;
    void *buffer = way == TWILL_OUT ? (void *)(uintptr_t)p->src : p->dst;
    size_t count = way == TWILL_OUT ? p->src_count : p->dst_count;
    bool used = way == TWILL_OUT ? p->sends : p->receives;
    enum twill_transfer_kind out = p->writes ? TWILL_TRANSFER_WRITE : TWILL_TRANSFER_SEND;
    return (struct twill_transfer){
        .status = used ? TWILL_PENDING : TWILL_OK,
        .kind = (uint8_t)(way == TWILL_OUT ? out : TWILL_TRANSFER_RECV),
        .remote = p->remote,
        .lane = TWILL_POINT_LANE,
        .peer = (uint32_t)(way == TWILL_OUT ? p->to : p->from),
        .signature = signature_of(p->type, count),
        .buffer = request->buffers.device.copied[way] != NULL ? request->buffers.device.copied[way]
                                                              : buffer,
        .bytes = count * twill_type_size(p->type),
    };
}

twill_status twill_point_prepare(struct twill_request *request, const struct twill_point *point)
{
    struct twill_comm *comm = twill_comm_of(request->engine);
    request->is_point = true;
    request->status = TWILL_OK;
    request->point = *point;
    TWILL_TRY(&comm->error, check_point(comm, point));
    if (point->sends)
        TWILL_TRY(&comm->error, connect(comm, (uint32_t)point->to));
    if (point->receives)
        TWILL_TRY(&comm->error, connect(comm, (uint32_t)point->from));
    return TWILL_OK;
}

/* Return the number of sends of this rank to itself that are in progress, minus its receives. */
static int to_itself(const struct twill_comm *comm)
{
    int open = 0;
    for (const struct twill_request *r = comm->issue.points; r != NULL; r = r->next)
        for (int way = TWILL_OUT; way <= TWILL_IN; way++)
            if (r->transfer[way].status == TWILL_PENDING && r->transfer[way].peer == comm->rank)
                open += way == TWILL_OUT ? 1 : -1;
    return open;
}

twill_status twill_point_check_itself(struct twill_comm *comm, int sends, int receives)
{
    if (TWILL_LIKELY(sends == 0 && receives == 0))
        return TWILL_OK;
    int left = to_itself(comm) + sends - receives; /* they match in order, so the last are left */
    if (sends > 0 && left > 0)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT,
                          "a send to this rank itself, which has posted no receive for it, would "
                          "wait forever");
    if (receives > 0 && left < 0)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT,
                          "a receive from this rank itself, which has sent nothing for it, would "
                          "wait forever");
    return TWILL_OK;
}

twill_status twill_point_begin(struct twill_request *request)
{
    struct twill_comm *comm = twill_comm_of(request->engine);
    const struct twill_point *p = &request->point;
    bool used[2] = {p->sends, p->receives};
    if (TWILL_UNLIKELY(comm->traced)) {
        request->ticks = twill_ticks();
        twill_log_begin(request);
    }
    request->next = comm->issue.points;
    comm->issue.points = request;
    request->has_messages = true;
    comm->issue.messaging++;
    atomic_store_explicit(&request->state, TWILL_REQUEST_ACTIVE, memory_order_release);
    TWILL_TRY(&comm->error, twill_point_bounce_in(request));
    for (int way = TWILL_IN; way >= TWILL_OUT; way--) {
        struct twill_transfer *transfer = &request->transfer[way];
        *transfer = transfer_of(request, way);
        if (!used[way])
            continue;
        struct twill_transport *link = twill_engine_link(&comm->engine, transfer->peer);
        if (way == TWILL_OUT)
            twill_counter_add(&comm->usage.counters.bytes_sent, transfer->bytes);
        TWILL_TRY(&comm->error, link->ops->post(link, transfer, &comm->error));
    }
    twill_trace_point_begin(request);
    return TWILL_OK;
}

bool twill_point_is_lonely(const struct twill_request *request)
{
    const struct twill_transfer *t = request->transfer;
    uint32_t self = request->engine->rank;
    return request->is_point && !twill_request_done(request) &&
           ((t[TWILL_OUT].status == TWILL_PENDING && t[TWILL_OUT].peer == self) ||
            (t[TWILL_IN].status == TWILL_PENDING && t[TWILL_IN].peer == self));
}

/* Break the communicator, naming this rank in the message. Returns the resulting status. */
static twill_status fail_point(struct twill_comm *comm, twill_status status)
{
    struct twill_error own = comm->error;
    if (comm->broken || strncmp(own.message, "rank ", 5) == 0)
        return twill_comm_fail(comm, status, TWILL_CAUSE_ASKED);
    twill_error_clear(&comm->error);
    (void)TWILL_FAIL(&comm->error, status, "%s: point to point: %s",
                     TWILL_ENGINE_RANK_NAME(&comm->engine, comm->rank), own.message);
    return twill_comm_fail(comm, status, TWILL_CAUSE_ASKED);
}

/* Complete the messages whose transfers have ended. Returns TWILL_OK or the error. */
static twill_status sweep_points(struct twill_comm *comm)
{
    int swept = twill_points_sweep(&comm->engine);
    return swept < 0 ? (twill_status)swept : TWILL_OK;
}

/* Send, receive or both, and wait. Returns TWILL_OK or the error, which breaks the communicator. */
static twill_status run_point(struct twill_comm *comm, const struct twill_point *point)
{
    struct twill_request *request = &comm->issue.blocking_point;
    twill_status status = twill_comm_usable(comm);
    if (status != TWILL_OK)
        return status;
    status = twill_point_prepare(request, point);
    if (status == TWILL_OK)
        status = twill_point_check_itself(comm, point->sends && point->to == (int)comm->rank,
                                          point->receives && point->from == (int)comm->rank);
    if (status == TWILL_OK)
        status = twill_point_begin(request);
    if (status == TWILL_OK)
        status = sweep_points(comm);
    if (status == TWILL_OK && !twill_request_done(request))
        status = twill_comm_wait(comm, twill_request_done, request);
    if (status == TWILL_OK)
        status = request->status;
    if (status == TWILL_OK)
        status = twill_request_bounce_out(request);
    return status == TWILL_OK ? TWILL_OK : fail_point(comm, status);
}

twill_status twill_point_run(struct twill_comm *comm, const struct twill_point *point,
                             const char *name)
{
    twill_status status = twill_comm_acquire(comm, name);
    if (status != TWILL_OK)
        return status;
    status = twill_group_is_open(comm->group) ? twill_group_record(comm, NULL, point)
                                              : run_point(comm, point);
    twill_comm_release(comm);
    return status;
}

/* Make a message's request, not started, and store its handle in *request. The caller holds the
 * communicator. Returns TWILL_OK or the error. *request is then NULL, and the communicator broken
 * unless the call was not admitted (twill_request_admit()). */
static twill_status make_point(struct twill_comm *comm, const struct twill_point *point,
                               bool persistent, twill_request **request)
{
    TWILL_TRY(&comm->error, twill_request_admit(comm, request));
    struct twill_request *made = twill_request_take(&comm->engine);
    if (made == NULL)
        return fail_point(comm, TWILL_ERR_MEMORY);
    twill_status status = twill_point_prepare(made, point);
    made->persistent = persistent;
    if (status != TWILL_OK) {
        twill_request_give(made);
        return fail_point(comm, status);
    }
    *request = made->handle.given;
    return TWILL_OK;
}

twill_status twill_point_launch(struct twill_request *request)
{
    struct twill_comm *comm = twill_comm_of(request->engine);
    request->pends = true;
    twill_comm_pend(comm);
    twill_status status = twill_point_begin(request);
    if (status == TWILL_OK)
        status = sweep_points(comm);
    return status == TWILL_OK ? TWILL_OK : fail_point(comm, status);
}

/* Acquire the communicator for the public function `name`, create a request, start it unless it is
 * persistent, and store its handle in *request. Then release the communicator. Returns TWILL_OK, or
 * the error of acquiring or creating. If only the start fails, the wait returns that error. */
static twill_status point_request(struct twill_comm *comm, const struct twill_point *point,
                                  bool persistent, struct twill_request **request, const char *name)
{
    twill_status status = twill_comm_acquire(comm, name);
    if (status != TWILL_OK)
        return status;
    status = make_point(comm, point, persistent, request);
    if (status == TWILL_OK && !persistent)
        (void)twill_point_launch(twill_request_find(*request)); /* the wait returns a failure */
    twill_comm_release(comm);
    return status;
}

twill_status twill_point_start(struct twill_comm *comm, const struct twill_point *point,
                               struct twill_request **request, const char *name)
{
    return point_request(comm, point, false, request, name);
}

twill_status twill_point_init(struct twill_comm *comm, const struct twill_point *point,
                              struct twill_request **request, const char *name)
{
    return point_request(comm, point, true, request, name);
}
