/* SPDX-License-Identifier: Apache-2.0 */
/* Requests under way: the queue of collectives, their instances in flight, and progress on them. */
#include "fabric/shm/call_records.h"
#include "lib/config/log.h"
#include "lib/exec/progress.h"

#include <stdlib.h>

static void set_state(struct twill_request *request, enum twill_request_state state)
{
    atomic_store_explicit(&request->state, state, memory_order_release);
}

bool twill_request_done(const void *request)
{
    const struct twill_request *r = request;
    return atomic_load_explicit(&r->state, memory_order_acquire) != TWILL_REQUEST_ACTIVE;
}

/* --- the queue ------------------------------------------------------------------------------- */

/* Publish the first request of the queue as the call that this rank is in. */
static void publish_first(struct twill_comm *comm)
{
    if (comm->queue != NULL && comm->queue->run.sequence != comm->sequence)
        twill_comm_publish(comm, comm->queue);
}

void twill_request_enqueue(struct twill_request *request)
{
    struct twill_comm *comm = request->comm;
    request->next = NULL;
    request->has_messages = false;
    set_state(request, TWILL_REQUEST_ACTIVE);
    if (comm->queue == NULL)
        comm->queue = request;
    else
        comm->queue_tail->next = request;
    comm->queue_tail = request;
    bool started = request->run.started > 0;
    if (comm->filling == NULL && (!started || request->run.started < request->run.segments))
        comm->filling = request;
    publish_first(comm);
}

/* Remove a request from the queue. Fewer than TWILL_WINDOW requests are before it. */
static void dequeue(struct twill_request *request)
{
    struct twill_comm *comm = request->comm;
    struct twill_request *before = NULL, *at = comm->queue;
    while (at != request) {
        before = at;
        at = at->next;
    }
    if (before == NULL)
        comm->queue = request->next;
    else
        before->next = request->next;
    if (comm->queue_tail == request)
        comm->queue_tail = before;
}

void twill_request_complete(struct twill_request *request, twill_status status)
{
    struct twill_comm *comm = request->comm;
    if (TWILL_UNLIKELY(comm->traced))
        twill_log_end(request, status);
    if (!request->is_point) {
        dequeue(request);
        twill_node_leave_call(comm->node, request->run.sequence);
        comm->counters.calls++;
        publish_first(comm);
    }
    if (request->has_messages)
        comm->messaging--;
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
    struct twill_request *queue = comm->queue, *points = comm->points;
    comm->queue = comm->queue_tail = comm->filling = comm->points = NULL;
    comm->messaging = 0;
    for (unsigned i = 0; i < TWILL_WINDOW; i++)
        comm->slot[i].instance.active = false;
    fail_list(queue, status);
    fail_list(points, status);
}

/* --- progress -------------------------------------------------------------------------------- */

/* Grow the memory of all free slots, so that later calls of this shape allocate nothing. */
static twill_status reserve_slots(struct twill_run *run)
{
    struct twill_comm *comm = run->comm;
    for (unsigned i = 0; i < TWILL_WINDOW; i++)
        if (!comm->slot[i].instance.active)
            TWILL_TRY(&comm->error, twill_run_reserve(run, &comm->slot[i]));
    return TWILL_OK;
}

bool twill_comm_poll_arrivals(struct twill_comm *comm, uint64_t epoch)
{
    uint64_t all = comm->epoch - 1;
    for (uint32_t l = 0; l < comm->local_size; l++)
        if (l != comm->local)
            all = twill_min(all, twill_node_started(comm->node, l));
    comm->arrived = all > comm->arrived ? all : comm->arrived;
    return comm->arrived >= epoch;
}

/* Store the ranks of the node that keep the next instance from beginning. */
static unsigned ranks_behind(const struct twill_comm *comm, uint32_t *ranks, unsigned most)
{
    const struct twill_run *run = comm->filling != NULL ? &comm->filling->run : comm->exchanging;
    unsigned n = 0;
    if (run == NULL || comm->slot[comm->epoch % TWILL_WINDOW].instance.active ||
        (run->plan == NULL && (run->published || run->collected)))
        return 0;
    uint32_t max_ahead = run->plan != NULL ? run->max_ahead : TWILL_WINDOW;
    for (uint32_t l = 0; l < comm->local_size && n < most; l++)
        if (l != comm->local && twill_node_started(comm->node, l) + max_ahead < comm->epoch)
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
    while (comm->filling != NULL) {
        struct twill_run *run = &comm->filling->run;
        struct twill_slot *slot = &comm->slot[comm->epoch % TWILL_WINDOW];
        if (slot->instance.active)
            break;
        if (run->plan == NULL) {
            int answer = twill_run_choose(run);
            if (answer <= 0)
                return answer < 0 ? answer : started;
            TWILL_TRY(&comm->error, reserve_slots(run));
        }
        if (!twill_comm_has_arrived(comm, comm->epoch - run->max_ahead))
            break;
        if (run->started == 0 && run->plan->most_posted > 0) {
            comm->filling->has_messages = true;
            comm->messaging++;
        }
        TWILL_TRY(&comm->error, twill_run_begin_segment(run, slot, comm->epoch));
        comm->epoch++;
        started++;
        if (run->started == run->segments)
            comm->filling = comm->filling->next;
    }
    return started;
}

static int advance_transports(struct twill_comm *comm)
{
    int moved = 0;
    for (unsigned t = 0; t < comm->transports; t++) {
        int answer = comm->transport[t]->ops->progress(comm->transport[t], &comm->error);
        if (answer < 0)
            return answer;
        moved += answer;
    }
    if (moved > 0 && comm->points != NULL) {
        int answer = twill_points_sweep(comm);
        if (answer < 0)
            return answer;
    }
    return moved;
}

int twill_comm_advance(struct twill_comm *comm)
{
    int moved = TWILL_UNLIKELY(comm->exchanging != NULL)
                    ? twill_addresses_exchange(comm->exchanging)
                    : begin_segments(comm);
    if (moved < 0)
        return moved;
    for (unsigned i = 0; i < TWILL_WINDOW; i++) { /* the oldest first */
        struct twill_slot *slot = &comm->slot[(comm->epoch + i) % TWILL_WINDOW];
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
    if (comm->messaging > 0) {
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
        n += twill_run_waits_for(&comm->slot[i], ranks + n, most - n, step);
    const struct twill_run *exchanging =
        comm->filling != NULL ? &comm->filling->run : comm->exchanging;
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
    for (const struct twill_request *r = comm->points; r != NULL; r = r->next)
        n += transfers_wait_for(r->transfer, ranks + n, most - n, "message", step);
    if (comm->setting_up != NULL)
        n += transfers_wait_for(comm->setting_up, ranks + n, most - n, "set-up message", step);
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
        if (comm->slot[i].instance.active && comm->slot[i].instance.run->plan->polled)
            return true;
    for (const struct twill_request *r = comm->points; r != NULL; r = r->next)
        if (are_polled(comm, r->transfer))
            return true;
    return comm->setting_up != NULL && are_polled(comm, comm->setting_up);
}

/* --- memory ---------------------------------------------------------------------------------- */

twill_status twill_request_open(struct twill_request *request, struct twill_comm *comm)
{
    request->comm = request->run.comm = comm;
    request->born = request->generation;
    request->run.peer_src = calloc(comm->local_size, sizeof(*request->run.peer_src));
    request->run.peer_dst = calloc(comm->local_size, sizeof(*request->run.peer_dst));
    request->run.address = calloc(comm->local_size, TWILL_SIDES * sizeof(*request->run.address));
    request->run.region = calloc(comm->local_size, TWILL_SIDES * sizeof(*request->run.region));
    if (request->run.peer_src == NULL || request->run.peer_dst == NULL ||
        request->run.address == NULL || request->run.region == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory for a request");
    return TWILL_OK;
}

void twill_request_close(struct twill_request *request)
{
    struct twill_comm *comm = request->comm;
    if (comm == NULL)
        return;
    twill_context_give(comm->context, request->bounce_memory, request->bounce_memory_bytes);
    if (request->run.region != NULL)
        twill_run_detach_peers(&request->run);
    free((void *)request->run.peer_src);
    free((void *)request->run.peer_dst);
    free(request->run.address);
    free((void *)request->run.region);
    free(request->counts);
    *request = (struct twill_request){.generation = request->generation + 1};
}

/* Get more requests from the context's pool, which other threads may use at the same time. */
static twill_status take_slab(struct twill_comm *comm)
{
    struct twill_context *context = comm->context;
    twill_context_lock(context);
    struct twill_request_slab *slab = twill_handle_pool_get(&context->slabs, sizeof(*slab), 0);
    twill_context_unlock(context);
    if (slab == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory for a request");
    slab->next = comm->slab;
    comm->slab = slab;
    comm->unused = TWILL_SLAB_REQUESTS;
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
    struct twill_request *request = comm->spare;
    if (request != NULL) {
        comm->spare = request->next;
        return assign_handle(request);
    }
    if (comm->unused == 0 && take_slab(comm) != TWILL_OK)
        return NULL;
    request = twill_slab_request(comm->slab, comm->unused - 1);
    if (twill_request_open(request, comm) != TWILL_OK) {
        twill_request_close(request);
        return NULL;
    }
    comm->unused--;
    return assign_handle(request);
}

void twill_request_give(struct twill_request *request)
{
    twill_run_detach_peers(&request->run);
    request->next = request->comm->spare;
    request->persistent = false;
    request->generation++;
    request->handle = NULL;
    set_state(request, TWILL_REQUEST_IDLE);
    request->comm->spare = request;
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
    while (comm->slab != NULL) {
        struct twill_request_slab *slab = comm->slab;
        comm->slab = slab->next;
        for (unsigned i = comm->unused; i < TWILL_SLAB_REQUESTS; i++)
            twill_request_close(twill_slab_request(slab, i));
        comm->unused = 0; /* the other slabs are used wholly */
        twill_context_lock(comm->context);
        twill_handle_pool_put(&comm->context->slabs, slab, sizeof(*slab));
        twill_context_unlock(comm->context);
    }
    twill_request_close(&comm->blocking);
    twill_request_close(&comm->blocking_point);
    for (unsigned i = 0; i < TWILL_WINDOW; i++) {
        struct twill_slot *slot = &comm->slot[i];
        twill_context_give(comm->context, slot->scratch, slot->scratch_bytes);
        free(slot->posted);
    }
}
