/* SPDX-License-Identifier: Apache-2.0 */
/* Requests under way, with the queue of collectives, their instances in flight, and progress. */
#include "fabric/shm/call_records.h"
#include "lib/engine/engine_internal.h"
#include "lib/engine/trace_calls.h"
#include "lib/job/context.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define RARE_LOOKS 128u /* vain looks at what others publish rarely */

static void set_state(struct twill_request *request, enum twill_request_state state)
{
    atomic_store_explicit(&request->state, state, memory_order_release);
}

/* Complete a request with `status`, so that its waiter may reuse it. It is not pending any more. */
static void set_complete(struct twill_request *request, twill_status status)
{
    struct twill_engine *engine = request->engine;
    bool pends = request->pends;
    request->pends = request->has_messages = false;
    request->status = status;
    set_state(request, TWILL_REQUEST_COMPLETE); /* from here on it may be released */
    if (!pends)
        return;
    atomic_fetch_sub_explicit(&engine->context->comms.pending, 1, memory_order_release);
    twill_engine_count_pending(engine, UINT_MAX);
}

bool twill_request_done(const void *request)
{
    const struct twill_request *r = request;
    return atomic_load_explicit(&r->state, memory_order_acquire) != TWILL_REQUEST_ACTIVE;
}

void twill_engine_show(struct twill_engine *engine, const struct twill_call *call,
                       uint64_t sequence, uint64_t ticks)
{
    engine->issue.call = *call;
    engine->issue.sequence = sequence;
    twill_node_enter_call(
        engine->node,
        &(struct twill_call_record){sequence, call->count, twill_call_what(call), call->root},
        ticks);
}

/* Publish in node memory that this rank is in the call of the queue's first request, unless that is
 * already published. If the queue is empty, the last published call stays. */
static void publish_first(struct twill_engine *engine)
{
    if (engine->issue.queue != NULL && engine->issue.queue->sequence != engine->issue.sequence)
        twill_engine_show(engine, &engine->issue.queue->summary, engine->issue.queue->sequence,
                          engine->issue.queue->ticks);
}

void twill_request_enqueue(struct twill_request *request)
{
    struct twill_engine *engine = request->engine;
    request->next = NULL;
    request->has_messages = false;
    set_state(request, TWILL_REQUEST_ACTIVE);
    if (engine->issue.queue == NULL)
        engine->issue.queue = request;
    else
        engine->issue.queue_tail->next = request;
    engine->issue.queue_tail = request;
    bool started = request->started > 0;
    if (engine->issue.filling == NULL && (!started || request->started < request->layout.segments))
        engine->issue.filling = request;
    publish_first(engine);
}

/* Remove a request from the queue. Fewer than TWILL_WINDOW requests are before it. */
static void dequeue(struct twill_request *request)
{
    struct twill_engine *engine = request->engine;
    struct twill_request *before = NULL, *at = engine->issue.queue;
    while (at != request) {
        before = at;
        at = at->next;
    }
    if (before == NULL)
        engine->issue.queue = request->next;
    else
        before->next = request->next;
    if (engine->issue.queue_tail == request)
        engine->issue.queue_tail = before;
}

/* Record and publish that a collective, which is not in the queue, has ended. */
static inline void record_end(struct twill_request *request, twill_status status)
{
    struct twill_engine *engine = request->engine;
    twill_trace_call_end(request, status);
    if (TWILL_UNLIKELY(request->layout.account != NULL))
        engine->observer->ended(request);
    if (TWILL_UNLIKELY(request->exchange.fetch.is_measured) && status == TWILL_OK)
        twill_fetch_end(request);
    engine->issue.joined[request->sequence % TWILL_ENDS_KEPT] = request->summary.joins;
    twill_node_leave_call(engine->node, request->sequence);
    engine->usage.ended = request->sequence;
    engine->usage.last = request->last;
    twill_counter_add(&engine->usage.counters.calls, 1);
}

void twill_request_end(struct twill_request *request)
{
    record_end(request, TWILL_OK);
    request->status = TWILL_OK;
    set_state(request, TWILL_REQUEST_COMPLETE);
}

/* Complete a request with `status`, and log and trace its end. A collective is also removed from
 * the queue and counted, and the next one is published. The caller has unlinked a point-to-point
 * request. The waiter may reuse the request at once. */
static void complete_request(struct twill_request *request, twill_status status)
{
    struct twill_engine *engine = request->engine;
    if (TWILL_UNLIKELY(engine->traced))
        twill_log_end(request, status);
    if (!request->is_point) {
        dequeue(request);
        record_end(request, status);
        publish_first(engine);
    } else {
        twill_trace_point_end(request, status);
    }
    if (request->has_messages)
        engine->issue.messaging--;
    set_complete(request, status);
}

/* Complete all requests of a list, which `next` links, with the error `status`. Record their ends
 * in the trace. */
static void fail_list(struct twill_request *first, twill_status status)
{
    while (first != NULL) {
        struct twill_request *request = first;
        first = request->next;
        if (request->is_point)
            twill_trace_point_end(request, status);
        else
            twill_trace_call_end(request, status);
        set_complete(request, status);
    }
}

void twill_requests_fail(struct twill_engine *engine, twill_status status)
{
    struct twill_request *queue = engine->issue.queue, *points = engine->issue.points;
    engine->issue.queue = engine->issue.queue_tail = engine->issue.filling = engine->issue.points =
        NULL;
    engine->issue.messaging = 0;
    for (unsigned i = 0; i < TWILL_WINDOW; i++)
        engine->issue.slot[i].instance.active = false;
    fail_list(queue, status);
    fail_list(points, status);
}

/* --- point to point: which requests have completed (begun by lib/api/point_to_point.c) -------- */
/* Set the engine's error to say that a message (TWILL_OUT or TWILL_IN) does not match its peer's,
 * and issue.differs to the peer. Returns TWILL_ERR_MISMATCH. */
static twill_status point_differs(struct twill_request *request, int way)
{
    struct twill_engine *engine = request->engine;
    const struct twill_point *p = &request->point;
    const struct twill_transfer *t = &request->transfer[way];
    char theirs[64] = "";
    if (t->peer_bytes != t->bytes)
        snprintf(theirs, sizeof(theirs), ": there are %llu bytes of it",
                 (unsigned long long)t->peer_bytes);
    engine->issue.differs = t->peer + 1;
    return TWILL_FAIL(
        &engine->error, TWILL_ERR_MISMATCH,
        "%s: %s %s (count %zu, %s): that rank has another count or type%s",
        TWILL_ENGINE_RANK_NAME(engine, engine->rank), way == TWILL_OUT ? "send to" : "recv from",
        TWILL_ENGINE_RANK_NAME(engine, t->peer), way == TWILL_OUT ? p->src_count : p->dst_count,
        twill_type_name(p->type), theirs);
}

/* Return the error of a message of a point-to-point request that has failed, or TWILL_OK, also
 * while messages are pending. */
static twill_status point_outcome(struct twill_request *request)
{
    struct twill_engine *engine = request->engine;
    for (int way = TWILL_OUT; way <= TWILL_IN; way++) {
        int status = request->transfer[way].status;
        if (status == TWILL_ERR_MISMATCH)
            return point_differs(request, way);
        if (status < 0)
            return TWILL_FAIL(&engine->error, (twill_status)status,
                              "%s: message with %s failed: %s",
                              TWILL_ENGINE_RANK_NAME(engine, engine->rank),
                              TWILL_ENGINE_RANK_NAME(engine, request->transfer[way].peer),
                              twill_strerror((twill_status)status));
    }
    return TWILL_OK;
}

int twill_points_sweep(struct twill_engine *engine)
{
    int completed = 0;
    for (struct twill_request **link = &engine->issue.points; *link != NULL;) {
        struct twill_request *request = *link;
        TWILL_TRY(&engine->error, point_outcome(request));
        if (request->transfer[TWILL_OUT].status == TWILL_PENDING ||
            request->transfer[TWILL_IN].status == TWILL_PENDING) {
            link = &request->next;
            continue;
        }
        *link = request->next;
        complete_request(request, TWILL_OK);
        completed++;
    }
    return completed;
}

bool twill_engine_poll_arrivals(struct twill_engine *engine, uint64_t epoch)
{
    const struct twill_node *node = engine->node;
    uint64_t all = engine->issue.epoch - 1;
    /* If the others may be many instances behind, look first at what they publish rarely, and now
     * and then at the rest, as a rank whose core is taken looks seldom. */
    bool rare = all >= epoch + TWILL_REACHED * 3 / 2 && engine->issue.looks < RARE_LOOKS &&
                engine->issue.looks % 16 != 15;
    for (uint32_t l = 0; l < engine->local_size; l++)
        if (l != engine->local)
            all = twill_min(all, rare ? twill_node_reached(node, l) : twill_node_started(node, l));
    engine->issue.arrived = twill_max(all, engine->issue.arrived);
    engine->issue.looks = engine->issue.arrived >= epoch ? 0 : engine->issue.looks + 1;
    return engine->issue.arrived >= epoch;
}

/* Store up to `most` ranks of the node for which the next instance waits. Returns how many. */
static unsigned ranks_behind(const struct twill_engine *engine, uint32_t *ranks, unsigned most)
{
    const struct twill_request *run =
        engine->issue.filling != NULL ? engine->issue.filling : engine->issue.exchanging;
    unsigned n = 0;
    if (run == NULL || engine->issue.slot[engine->issue.epoch % TWILL_WINDOW].instance.active ||
        (run->plan == NULL && run->exchange.state != TWILL_EXCHANGE_IDLE))
        return 0;
    uint32_t max_ahead = run->plan != NULL ? run->layout.max_ahead : TWILL_WINDOW;
    for (uint32_t l = 0; l < engine->local_size && n < most; l++)
        if (l != engine->local &&
            twill_node_started(engine->node, l) + max_ahead < engine->issue.epoch)
            ranks[n++] = engine->node->rank[l];
    return n;
}

/* Begin the segments that may begin, after choosing the call's plan. A segment needs the slot of
 * the segment TWILL_WINDOW before it. It also needs a copy of SHARED, and lines of immediates, that
 * are free since all ranks have begun the instance `max_ahead` before. Returns how many have begun,
 * or an error below 0. */
static int begin_segments(struct twill_engine *engine)
{
    int started = 0;
    while (engine->issue.filling != NULL) {
        struct twill_request *run = engine->issue.filling;
        struct twill_slot *slot = &engine->issue.slot[engine->issue.epoch % TWILL_WINDOW];
        if (slot->instance.active)
            break;
        if (run->plan == NULL) {
            int answer = twill_run_choose(run);
            if (answer <= 0)
                return answer < 0 ? answer : started;
            TWILL_TRY(&engine->error, twill_run_reserve_slots(run));
        }
        if (!twill_engine_has_arrived(engine, engine->issue.epoch - run->layout.max_ahead))
            break;
        if (run->started == 0 && run->plan->most_posted > 0) {
            engine->issue.filling->has_messages = true;
            engine->issue.messaging++;
        }
        TWILL_TRY(&engine->error, twill_run_begin_segment(run, slot, engine->issue.epoch));
        engine->issue.epoch++;
        started++;
        if (run->started == run->layout.segments)
            engine->issue.filling = engine->issue.filling->next;
    }
    return started;
}

/* Advance all transports of the engine, and complete point-to-point calls whose messages are
 * complete. Returns how many messages completed or moved data, or an error below 0. */
static int advance_transports(struct twill_engine *engine)
{
    int moved = 0;
    for (unsigned t = 0; t < engine->links.transports; t++) {
        int answer =
            engine->links.transport[t]->ops->progress(engine->links.transport[t], &engine->error);
        if (answer < 0)
            return answer;
        moved += answer;
    }
    if (moved > 0 && engine->issue.points != NULL) {
        int answer = twill_points_sweep(engine);
        if (answer < 0)
            return answer;
    }
    return moved;
}

/* End a carrier or a run with slots, whose segments have ended. A carrier first delivers what it
 * has brought. The run that it carries for is complete when both have ended. It then has no plan,
 * so that it does not begin before its carrier next time. Returns TWILL_OK or the error. */
static __attribute__((noinline)) twill_status end_carried(struct twill_request *run)
{
    struct twill_slots *slots = run->buffers.slots;
    if (run == slots->carrier) {
        TWILL_TRY(&run->engine->error, twill_slots_unpack(slots));
        complete_request(run, TWILL_OK);
        run = slots->carried;
        if (run->plan == NULL || run->finished != run->layout.segments)
            return TWILL_OK;
    } else if (twill_run_slot(run) > 0 && !twill_request_done(slots->carrier)) {
        return TWILL_OK;
    }
    if (twill_run_slot(run) > 0)
        run->plan = NULL;
    complete_request(run, TWILL_OK);
    return TWILL_OK;
}

int twill_engine_advance(struct twill_engine *engine)
{
    int moved = TWILL_UNLIKELY(engine->issue.exchanging != NULL)
                    ? twill_addresses_exchange(engine->issue.exchanging)
                    : begin_segments(engine);
    if (moved < 0)
        return moved;
    for (unsigned i = 0; i < TWILL_WINDOW; i++) { /* the oldest first */
        struct twill_slot *slot = &engine->issue.slot[(engine->issue.epoch + i) % TWILL_WINDOW];
        struct twill_request *run = slot->instance.run;
        if (!slot->instance.active)
            continue;
        int answer = twill_run_advance(slot);
        if (answer < 0)
            return answer;
        moved += answer;
        if (slot->instance.active || run->finished != run->layout.segments)
            continue;
        if (TWILL_LIKELY(run->buffers.slots == NULL))
            complete_request(run, TWILL_OK);
        else
            TWILL_TRY(&engine->error, end_carried(run));
    }
    if (engine->issue.messaging > 0) {
        int answer = advance_transports(engine);
        if (answer < 0)
            return answer;
        moved += answer;
    }
    return moved;
}

/* Store up to `most` peers of pending transfers. Returns how many. If any, sets *step to `name`. */
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

/* Remove repeated ranks, as several calls may wait for one rank. Returns how many are left. */
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

unsigned twill_engine_waits_for(struct twill_engine *engine, uint32_t *ranks, unsigned most,
                                const char **step)
{
    unsigned n = 0;
    for (unsigned i = 0; i < TWILL_WINDOW; i++)
        n += twill_run_waits_for(&engine->issue.slot[i], ranks + n, most - n, step);
    const struct twill_request *exchanging =
        engine->issue.filling != NULL ? engine->issue.filling : engine->issue.exchanging;
    if (exchanging != NULL && exchanging->plan == NULL) {
        unsigned missing = twill_addresses_missing(exchanging, ranks + n, most - n);
        if (missing > 0)
            *step = "entry";
        n += missing;
    }
    unsigned late = ranks_behind(engine, ranks + n, most - n);
    if (late > 0)
        *step = "entry";
    n += late;
    for (const struct twill_request *r = engine->issue.points; r != NULL; r = r->next)
        n += transfers_wait_for(r->transfer, ranks + n, most - n, "message", step);
    if (engine->issue.setting_up != NULL)
        n += transfers_wait_for(engine->issue.setting_up, ranks + n, most - n, "set-up message",
                                step);
    if (engine->issue.elsewhere != 0 && n < most) {
        ranks[n++] = engine->issue.elsewhere - 1;
        *step = "set-up message";
    }
    return drop_repeated(ranks, n);
}

/* Return whether a pending transfer uses a transport that must be polled. */
static bool are_polled(const struct twill_engine *engine, const struct twill_transfer transfer[2])
{
    for (unsigned i = 0; i < 2; i++)
        if (transfer[i].status == TWILL_PENDING &&
            !twill_engine_link(engine, transfer[i].peer)->ops->sleeps_on_doorbell)
            return true;
    return false;
}

bool twill_engine_is_polled(const struct twill_engine *engine)
{
    for (unsigned i = 0; i < TWILL_WINDOW; i++)
        if (engine->issue.slot[i].instance.active &&
            engine->issue.slot[i].instance.run->plan->polled)
            return true;
    for (const struct twill_request *r = engine->issue.points; r != NULL; r = r->next)
        if (are_polled(engine, r->transfer))
            return true;
    return engine->issue.setting_up != NULL && are_polled(engine, engine->issue.setting_up);
}

twill_status twill_engine_reserve(struct twill_engine *engine, unsigned char **memory, size_t *held,
                                  size_t bytes)
{
    if (bytes <= *held)
        return TWILL_OK;
    twill_context_give(engine->context, *memory, *held);
    *memory = NULL;
    *held = 0;
    void *grown;
    TWILL_TRY(&engine->error, twill_context_take(engine->context, &grown, bytes, &engine->error));
    *memory = grown;
    *held = bytes;
    twill_engine_publish_bytes(engine);
    return TWILL_OK;
}

twill_status twill_request_open(struct twill_request *request, struct twill_engine *engine)
{
    request->engine = engine;
    request->handle.born = request->handle.generation;
    request->buffers.peer = calloc(engine->local_size, sizeof(*request->buffers.peer));
    if (request->buffers.peer == NULL)
        return TWILL_FAIL(&engine->error, TWILL_ERR_MEMORY, "out of memory for a request");
    return TWILL_OK;
}

/* Free what a request has, and mark its memory as unused, so that its handle is no longer valid.
 * Does nothing if that has been done. */
static void close_request(struct twill_request *request)
{
    struct twill_engine *engine = request->engine;
    if (engine == NULL)
        return;
    twill_context_give_shared(engine->context, request->buffers.device.bounce,
                              request->buffers.device.bounce_bytes);
    if (request->buffers.peer != NULL)
        twill_run_detach_peers(request);
    struct twill_slots *slots = request->buffers.slots;
    if (slots != NULL && slots->carried == request) {
        close_request(slots->carrier);
        twill_context_give(engine->context, slots->memory, slots->memory_bytes);
        free(slots->carrier);
        free(slots);
    }
    free(request->buffers.peer);
    free(request->buffers.counts);
    *request = (struct twill_request){.handle.generation = request->handle.generation + 1};
}

/* Get a slab of unused requests from the context's pool or, if that is empty, map one, and put it
 * first in the engine's list. Returns TWILL_OK or TWILL_ERR_MEMORY. */
static twill_status take_slab(struct twill_engine *engine)
{
    struct twill_context *context = engine->context;
    twill_context_lock(context);
    struct twill_request_slab *slab =
        twill_handle_pool_get(&context->comms.slabs, sizeof(*slab), 0);
    twill_context_unlock(context);
    if (slab == NULL)
        return TWILL_FAIL(&engine->error, TWILL_ERR_MEMORY, "out of memory for a request");
    slab->next = engine->issue.slab;
    engine->issue.slab = slab;
    engine->issue.unused = TWILL_SLAB_REQUESTS;
    return TWILL_OK;
}

/* Give an unused request its handle. Returns the request. */
static struct twill_request *assign_handle(struct twill_request *request)
{
    uintptr_t turn = request->handle.generation % TWILL_GENERATIONS;
    request->handle.given = (twill_request *)((uintptr_t)request | turn);
    return request;
}

struct twill_request *twill_request_take(struct twill_engine *engine)
{
    struct twill_request *request = engine->issue.spare;
    if (request != NULL) {
        engine->issue.spare = request->next;
        return assign_handle(request);
    }
    if (engine->issue.unused == 0 && take_slab(engine) != TWILL_OK)
        return NULL;
    request = twill_slab_request(engine->issue.slab, engine->issue.unused - 1);
    if (twill_request_open(request, engine) != TWILL_OK) {
        close_request(request);
        return NULL;
    }
    engine->issue.unused--;
    return assign_handle(request);
}

void twill_request_give(struct twill_request *request)
{
    twill_run_detach_peers(request);
    twill_run_drop_promoted(request);
    request->next = request->engine->issue.spare;
    request->persistent = request->refused_alike = false;
    request->buffers.watch = NULL;
    request->timeout_ns = 0;
    request->handle.generation++;
    request->handle.given = NULL;
    set_state(request, TWILL_REQUEST_IDLE);
    request->engine->issue.spare = request;
}

struct twill_engine *twill_request_past_engine(const twill_request *handle)
{
    uintptr_t word = (uintptr_t)handle;
    uint32_t turn = (uint32_t)(word % TWILL_GENERATIONS);
    const struct twill_request *memory = (void *)(word - turn);
    uint32_t ago = (memory->handle.generation - turn - 1) % TWILL_GENERATIONS + 1;
    return memory->handle.generation - memory->handle.born >= ago ? memory->engine : NULL;
}

void twill_requests_destroy(struct twill_engine *engine)
{
    while (engine->issue.slab != NULL) {
        struct twill_request_slab *slab = engine->issue.slab;
        engine->issue.slab = slab->next;
        for (unsigned i = engine->issue.unused; i < TWILL_SLAB_REQUESTS; i++)
            close_request(twill_slab_request(slab, i));
        engine->issue.unused = 0; /* the other slabs are used wholly */
        twill_context_lock(engine->context);
        twill_handle_pool_put(&engine->context->comms.slabs, slab, sizeof(*slab), UINT_MAX);
        twill_context_unlock(engine->context);
    }
    close_request(&engine->issue.blocking);
    close_request(&engine->issue.blocking_point);
    for (unsigned i = 0; i < TWILL_WINDOW; i++) {
        struct twill_slot *slot = &engine->issue.slot[i];
        twill_context_give(engine->context, slot->scratch, slot->scratch_bytes);
        free(slot->posted);
    }
}

/* --- memory --------------------------------------------------------------------------------------
 */

/* Return the next request of the engine's slabs after *slab and *i, or NULL. Begin with the first
 * slab and its unused requests. */
static struct twill_request *next_request(struct twill_request_slab **slab, unsigned *i)
{
    if (*slab != NULL && *i == TWILL_SLAB_REQUESTS) {
        *slab = (*slab)->next;
        *i = 0; /* the other slabs are used wholly */
    }
    return *slab != NULL ? twill_slab_request(*slab, (*i)++) : NULL;
}

bool twill_engine_has_persistent(const struct twill_engine *engine)
{
    struct twill_request_slab *slab = engine->issue.slab;
    const struct twill_request *request;
    unsigned i = engine->issue.unused;
    while ((request = next_request(&slab, &i)) != NULL)
        if (request->persistent)
            return true;
    return false;
}

/* Have a request that is not under way, and the one that carries for it, choose its plan anew. */
static void forget_plan(struct twill_request *request)
{
    const struct twill_slots *slots = request->buffers.slots;
    request->plan = request->exchange.before = NULL;
    if (slots != NULL && slots->carried == request)
        slots->carrier->plan = slots->carrier->exchange.before = NULL;
}

void twill_engine_trim(struct twill_engine *engine)
{
    struct twill_request_slab *slab = engine->issue.slab;
    struct twill_request *request;
    unsigned i = engine->issue.unused;
    while ((request = next_request(&slab, &i)) != NULL)
        forget_plan(request);
    forget_plan(&engine->issue.blocking);
    forget_plan(&engine->issue.blocking_point);
    for (i = 0; i < TWILL_WINDOW; i++) {
        struct twill_slot *slot = &engine->issue.slot[i];
        twill_context_give(engine->context, slot->scratch, slot->scratch_bytes);
        free(slot->posted);
        *slot = (struct twill_slot){.instance.active = false};
    }
    twill_plans_destroy(engine);
    engine->plan_cache.last = engine->plan_cache.before = NULL;
    twill_engine_publish_bytes(engine);
}

size_t twill_engine_bytes(const struct twill_engine *engine)
{
    size_t bytes = twill_fetch_bytes(engine);
    for (const struct twill_request_slab *slab = engine->issue.slab; slab != NULL;
         slab = slab->next)
        bytes += sizeof(*slab);
    for (unsigned i = 0; i < TWILL_WINDOW; i++) {
        const struct twill_slot *slot = &engine->issue.slot[i];
        bytes += slot->scratch_bytes + slot->posted_count * sizeof(*slot->posted);
    }
    for (const struct twill_plan *plan = engine->plan_cache.plans; plan != NULL; plan = plan->next)
        bytes += sizeof(*plan) + plan->schedule.count * sizeof(*plan->schedule.steps);
    return bytes;
}

void twill_engine_publish_bytes(const struct twill_engine *engine)
{
    struct twill_node *node = engine->node;
    atomic_store_explicit(&node->area[node->me]->suspend.private_bytes, twill_engine_bytes(engine),
                          memory_order_relaxed);
}
