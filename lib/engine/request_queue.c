/* SPDX-License-Identifier: Apache-2.0 */
/* Requests under way: the queue of collectives, their instances in flight, and progress on them. */
#include "fabric/shm/call_records.h"
#include "lib/comm/comm.h"
#include "lib/engine/log_calls.h"
#include "lib/engine/trace_calls.h"

#include <limits.h>
#include <stdlib.h>

static void set_state(struct twill_request *request, enum twill_request_state state)
{
    atomic_store_explicit(&request->state, state, memory_order_release);
}

void twill_comm_unpend(struct twill_comm *comm)
{
    atomic_fetch_sub_explicit(&comm->context->comms.pending, 1, memory_order_release);
    twill_comm_count_pending(comm, UINT_MAX);
}

bool twill_request_done(const void *request)
{
    const struct twill_request *r = request;
    return atomic_load_explicit(&r->state, memory_order_acquire) != TWILL_REQUEST_ACTIVE;
}

/* --- the queue ------------------------------------------------------------------------------- */

void twill_comm_publish(struct twill_comm *comm, const struct twill_request *request)
{
    twill_comm_show(comm, &request->run.summary, request->run.sequence, request->ticks);
}

void twill_comm_show(struct twill_comm *comm, const struct twill_call *call, uint64_t sequence,
                     uint64_t ticks)
{
    comm->issue.call = *call;
    comm->issue.sequence = sequence;
    twill_node_enter_call(
        comm->node,
        &(struct twill_call_record){sequence, call->count, twill_call_what(call), call->root},
        ticks);
}

/* Publish the first request of the queue as the call that this rank is in. */
static void publish_first(struct twill_comm *comm)
{
    if (comm->issue.queue != NULL && comm->issue.queue->run.sequence != comm->issue.sequence)
        twill_comm_publish(comm, comm->issue.queue);
}

void twill_request_enqueue(struct twill_request *request)
{
    struct twill_comm *comm = request->comm;
    request->next = NULL;
    request->has_messages = false;
    set_state(request, TWILL_REQUEST_ACTIVE);
    if (comm->issue.queue == NULL)
        comm->issue.queue = request;
    else
        comm->issue.queue_tail->next = request;
    comm->issue.queue_tail = request;
    bool started = request->run.started > 0;
    if (comm->issue.filling == NULL && (!started || request->run.started < request->run.segments))
        comm->issue.filling = request;
    publish_first(comm);
}

/* Remove a request from the queue. Fewer than TWILL_WINDOW requests are before it. */
static void dequeue(struct twill_request *request)
{
    struct twill_comm *comm = request->comm;
    struct twill_request *before = NULL, *at = comm->issue.queue;
    while (at != request) {
        before = at;
        at = at->next;
    }
    if (before == NULL)
        comm->issue.queue = request->next;
    else
        before->next = request->next;
    if (comm->issue.queue_tail == request)
        comm->issue.queue_tail = before;
}

void twill_request_complete(struct twill_request *request, twill_status status)
{
    struct twill_comm *comm = request->comm;
    if (TWILL_UNLIKELY(comm->traced))
        twill_log_end(request, status);
    if (!request->is_point) {
        dequeue(request);
        twill_trace_call_end(request, status);
        if (TWILL_UNLIKELY(request->run.account != NULL))
            comm->context->observer->ended(request);
        twill_node_leave_call(comm->node, request->run.sequence);
        comm->split.ended = request->run.sequence;
        comm->split.last = request->run.last;
        twill_counter_add(&comm->usage.counters.calls, 1);
        publish_first(comm);
    } else {
        twill_trace_point_end(request, status);
    }
    if (request->has_messages)
        comm->issue.messaging--;
    request->has_messages = false;
    request->status = status;
    bool pends = request->pends;
    request->pends = false;
    set_state(request, TWILL_REQUEST_COMPLETE); /* from here on it may be released */
    if (pends)
        twill_comm_unpend(comm);
}

static void fail_list(struct twill_request *first, twill_status status)
{
    while (first != NULL) {
        struct twill_request *request = first;
        first = request->next;
        if (request->is_point)
            twill_trace_point_end(request, status);
        else
            twill_trace_call_end(request, status);
        bool pends = request->pends;
        request->pends = request->has_messages = false;
        request->status = status;
        set_state(request, TWILL_REQUEST_COMPLETE);
        if (pends)
            twill_comm_unpend(request->comm);
    }
}

void twill_requests_fail(struct twill_comm *comm, twill_status status)
{
    struct twill_request *queue = comm->issue.queue, *points = comm->issue.points;
    comm->issue.queue = comm->issue.queue_tail = comm->issue.filling = comm->issue.points = NULL;
    comm->issue.messaging = 0;
    for (unsigned i = 0; i < TWILL_WINDOW; i++)
        comm->issue.slot[i].instance.active = false;
    fail_list(queue, status);
    fail_list(points, status);
}

/* --- progress -------------------------------------------------------------------------------- */

/* Grow the memory of all free slots, so that later calls of this shape allocate nothing. */
static twill_status reserve_slots(struct twill_run *run)
{
    struct twill_comm *comm = run->comm;
    for (unsigned i = 0; i < TWILL_WINDOW; i++)
        if (!comm->issue.slot[i].instance.active)
            TWILL_TRY(&comm->error, twill_run_reserve(run, &comm->issue.slot[i]));
    return TWILL_OK;
}

bool twill_comm_poll_arrivals(struct twill_comm *comm, uint64_t epoch)
{
    uint64_t all = comm->issue.epoch - 1;
    for (uint32_t l = 0; l < comm->local_size; l++)
        if (l != comm->local)
            all = twill_min(all, twill_node_started(comm->node, l));
    comm->issue.arrived = all > comm->issue.arrived ? all : comm->issue.arrived;
    return comm->issue.arrived >= epoch;
}

/* Store the ranks of the node that keep the next instance from beginning. */
static unsigned ranks_behind(const struct twill_comm *comm, uint32_t *ranks, unsigned most)
{
    const struct twill_run *run =
        comm->issue.filling != NULL ? &comm->issue.filling->run : comm->issue.exchanging;
    unsigned n = 0;
    if (run == NULL || comm->issue.slot[comm->issue.epoch % TWILL_WINDOW].instance.active ||
        (run->plan == NULL && run->exchange.state != TWILL_EXCHANGE_IDLE))
        return 0;
    uint32_t max_ahead = run->plan != NULL ? run->layout.max_ahead : TWILL_WINDOW;
    for (uint32_t l = 0; l < comm->local_size && n < most; l++)
        if (l != comm->local && twill_node_started(comm->node, l) + max_ahead < comm->issue.epoch)
            ranks[n++] = comm->node->rank[l];
    return n;
}

/* Begin the segments that may begin. A segment needs the slot of the one TWILL_WINDOW before it,
 * and a copy of SHARED and immediates that all ranks of the node are done with: they are if they
 * have begun the instance max_ahead before it, hence ended the one TWILL_WINDOW before that.
 * Returns how many have begun, < 0 on error. */
static int begin_segments(struct twill_comm *comm)
{
    int started = 0;
    while (comm->issue.filling != NULL) {
        struct twill_run *run = &comm->issue.filling->run;
        struct twill_slot *slot = &comm->issue.slot[comm->issue.epoch % TWILL_WINDOW];
        if (slot->instance.active)
            break;
        if (run->plan == NULL) {
            int answer = twill_run_choose(run);
            if (answer <= 0)
                return answer < 0 ? answer : started;
            TWILL_TRY(&comm->error, reserve_slots(run));
        }
        if (!twill_comm_has_arrived(comm, comm->issue.epoch - run->layout.max_ahead))
            break;
        if (run->started == 0 && run->plan->most_posted > 0) {
            comm->issue.filling->has_messages = true;
            comm->issue.messaging++;
        }
        TWILL_TRY(&comm->error, twill_run_begin_segment(run, slot, comm->issue.epoch));
        comm->issue.epoch++;
        started++;
        if (run->started == run->segments)
            comm->issue.filling = comm->issue.filling->next;
    }
    return started;
}

static int advance_transports(struct twill_comm *comm)
{
    int moved = 0;
    for (unsigned t = 0; t < comm->links.transports; t++) {
        int answer =
            comm->links.transport[t]->ops->progress(comm->links.transport[t], &comm->error);
        if (answer < 0)
            return answer;
        moved += answer;
    }
    if (moved > 0 && comm->issue.points != NULL) {
        int answer = twill_points_sweep(comm);
        if (answer < 0)
            return answer;
    }
    return moved;
}

int twill_comm_advance(struct twill_comm *comm)
{
    int moved = TWILL_UNLIKELY(comm->issue.exchanging != NULL)
                    ? twill_addresses_exchange(comm->issue.exchanging)
                    : begin_segments(comm);
    if (moved < 0)
        return moved;
    for (unsigned i = 0; i < TWILL_WINDOW; i++) { /* the oldest first */
        struct twill_slot *slot = &comm->issue.slot[(comm->issue.epoch + i) % TWILL_WINDOW];
        struct twill_run *run = slot->instance.run;
        if (!slot->instance.active)
            continue;
        int answer = twill_run_advance(slot);
        if (answer < 0)
            return answer;
        moved += answer;
        if (!slot->instance.active && run->finished == run->segments)
            twill_request_complete(twill_request_of(run), TWILL_OK);
    }
    if (comm->issue.messaging > 0) {
        int answer = advance_transports(comm);
        if (answer < 0)
            return answer;
        moved += answer;
    }
    return moved;
}

static unsigned transfers_wait_for(const struct twill_transfer transfer[2], uint32_t *ranks,
                                   unsigned most, const char *name, const char **step)
{
    unsigned n = 0;
    for (unsigned i = 2; i-- > 0 && n < most;)
        if (transfer[i].status == TWILL_PENDING && (n == 0 || ranks[0] != transfer[i].peer))
            ranks[n++] = transfer[i].peer;
    if (n > 0)
        *step = name;
    return n;
}

/* Remove repeated ranks: several calls may wait for one rank. */
static unsigned drop_repeated(uint32_t *ranks, unsigned n)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < n; i++) {
        unsigned k = 0;
        while (k < kept && ranks[k] != ranks[i])
            k++;
        if (k == kept)
            ranks[kept++] = ranks[i];
    }
    return kept;
}

unsigned twill_comm_waits_for(struct twill_comm *comm, uint32_t *ranks, unsigned most,
                              const char **step)
{
    unsigned n = 0;
    for (unsigned i = 0; i < TWILL_WINDOW; i++)
        n += twill_run_waits_for(&comm->issue.slot[i], ranks + n, most - n, step);
    const struct twill_run *exchanging =
        comm->issue.filling != NULL ? &comm->issue.filling->run : comm->issue.exchanging;
    if (exchanging != NULL && exchanging->plan == NULL) {
        unsigned missing = twill_addresses_missing(exchanging, ranks + n, most - n);
        if (missing > 0)
            *step = "entry";
        n += missing;
    }
    unsigned late = ranks_behind(comm, ranks + n, most - n);
    if (late > 0)
        *step = "entry";
    n += late;
    for (const struct twill_request *r = comm->issue.points; r != NULL; r = r->next)
        n += transfers_wait_for(r->transfer, ranks + n, most - n, "message", step);
    if (comm->issue.setting_up != NULL)
        n +=
            transfers_wait_for(comm->issue.setting_up, ranks + n, most - n, "set-up message", step);
    if (comm->waits.elsewhere != 0 && n < most)
        ranks[n++] = comm->waits.elsewhere - 1;
    return drop_repeated(ranks, n);
}

static bool are_polled(const struct twill_comm *comm, const struct twill_transfer transfer[2])
{
    for (unsigned i = 0; i < 2; i++)
        if (transfer[i].status == TWILL_PENDING &&
            !twill_comm_link(comm, transfer[i].peer)->ops->sleeps_on_doorbell)
            return true;
    return false;
}

bool twill_comm_is_polled(const struct twill_comm *comm)
{
    for (unsigned i = 0; i < TWILL_WINDOW; i++)
        if (comm->issue.slot[i].instance.active && comm->issue.slot[i].instance.run->plan->polled)
            return true;
    for (const struct twill_request *r = comm->issue.points; r != NULL; r = r->next)
        if (are_polled(comm, r->transfer))
            return true;
    return comm->issue.setting_up != NULL && are_polled(comm, comm->issue.setting_up);
}

/* --- memory ---------------------------------------------------------------------------------- */

twill_status twill_comm_reserve(struct twill_comm *comm, unsigned char **memory, size_t *held,
                                size_t bytes)
{
    if (bytes <= *held)
        return TWILL_OK;
    twill_context_give(comm->context, *memory, *held);
    *memory = NULL;
    *held = 0;
    void *grown;
    TWILL_TRY(&comm->error, twill_context_take(comm->context, &grown, bytes, &comm->error));
    *memory = grown;
    *held = bytes;
    return TWILL_OK;
}

twill_status twill_request_open(struct twill_request *request, struct twill_comm *comm)
{
    request->comm = request->run.comm = comm;
    request->born = request->generation;
    request->run.buffers.peer_src =
        calloc(comm->local_size, sizeof(*request->run.buffers.peer_src));
    request->run.buffers.peer_dst =
        calloc(comm->local_size, sizeof(*request->run.buffers.peer_dst));
    request->run.buffers.address =
        calloc(comm->local_size, TWILL_SIDES * sizeof(*request->run.buffers.address));
    request->run.buffers.region =
        calloc(comm->local_size, TWILL_SIDES * sizeof(*request->run.buffers.region));
    if (request->run.buffers.peer_src == NULL || request->run.buffers.peer_dst == NULL ||
        request->run.buffers.address == NULL || request->run.buffers.region == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory for a request");
    return TWILL_OK;
}

void twill_request_close(struct twill_request *request)
{
    struct twill_comm *comm = request->comm;
    if (comm == NULL)
        return;
    twill_context_give_shared(comm->context, request->bounce_memory, request->bounce_memory_bytes);
    if (request->run.buffers.region != NULL)
        twill_run_detach_peers(&request->run);
    free((void *)request->run.buffers.peer_src);
    free((void *)request->run.buffers.peer_dst);
    free(request->run.buffers.address);
    free((void *)request->run.buffers.region);
    free(request->counts);
    *request = (struct twill_request){.generation = request->generation + 1};
}

/* Get more requests from the context's pool, which other threads may use at the same time. */
static twill_status take_slab(struct twill_comm *comm)
{
    struct twill_context *context = comm->context;
    twill_context_lock(context);
    struct twill_request_slab *slab =
        twill_handle_pool_get(&context->comms.slabs, sizeof(*slab), 0);
    twill_context_unlock(context);
    if (slab == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory for a request");
    slab->next = comm->issue.slab;
    comm->issue.slab = slab;
    comm->issue.unused = TWILL_SLAB_REQUESTS;
    return TWILL_OK;
}

/* Give an unused request its handle. */
static struct twill_request *assign_handle(struct twill_request *request)
{
    uintptr_t turn = request->generation % TWILL_GENERATIONS;
    request->handle = (twill_request *)((uintptr_t)request | turn);
    return request;
}

struct twill_request *twill_request_take(struct twill_comm *comm)
{
    struct twill_request *request = comm->issue.spare;
    if (request != NULL) {
        comm->issue.spare = request->next;
        return assign_handle(request);
    }
    if (comm->issue.unused == 0 && take_slab(comm) != TWILL_OK)
        return NULL;
    request = twill_slab_request(comm->issue.slab, comm->issue.unused - 1);
    if (twill_request_open(request, comm) != TWILL_OK) {
        twill_request_close(request);
        return NULL;
    }
    comm->issue.unused--;
    return assign_handle(request);
}

void twill_request_give(struct twill_request *request)
{
    twill_run_detach_peers(&request->run);
    request->next = request->comm->issue.spare;
    request->persistent = request->refused_alike = false;
    request->timeout_ns = 0;
    request->generation++;
    request->handle = NULL;
    set_state(request, TWILL_REQUEST_IDLE);
    request->comm->issue.spare = request;
}

struct twill_comm *twill_request_past_comm(const twill_request *handle)
{
    uintptr_t word = (uintptr_t)handle;
    uint32_t turn = (uint32_t)(word % TWILL_GENERATIONS);
    const struct twill_request *memory = (void *)(word - turn);
    uint32_t ago = (memory->generation - turn - 1) % TWILL_GENERATIONS + 1;
    return memory->generation - memory->born >= ago ? memory->comm : NULL;
}

void twill_requests_destroy(struct twill_comm *comm)
{
    while (comm->issue.slab != NULL) {
        struct twill_request_slab *slab = comm->issue.slab;
        comm->issue.slab = slab->next;
        for (unsigned i = comm->issue.unused; i < TWILL_SLAB_REQUESTS; i++)
            twill_request_close(twill_slab_request(slab, i));
        comm->issue.unused = 0; /* the other slabs are used wholly */
        twill_context_lock(comm->context);
        twill_handle_pool_put(&comm->context->comms.slabs, slab, sizeof(*slab));
        twill_context_unlock(comm->context);
    }
    twill_request_close(&comm->issue.blocking);
    twill_request_close(&comm->issue.blocking_point);
    for (unsigned i = 0; i < TWILL_WINDOW; i++) {
        struct twill_slot *slot = &comm->issue.slot[i];
        twill_context_give(comm->context, slot->scratch, slot->scratch_bytes);
        free(slot->posted);
    }
}
