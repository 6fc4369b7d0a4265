/* SPDX-License-Identifier: Apache-2.0 */
/* Checks collective calls, and runs, starts or prepares them. */
#include "algorithms/algorithms.h"
#include "fabric/shm/call_records.h"
#include "lib/api/api_internal.h"
#include "lib/comm/recovery.h"
#include "lib/engine/device_call.h"
#include "lib/job/operation.h"

#include <string.h>

/* Return a hash of one number, in which each bit depends on many bits of it. */
static uint64_t scramble_hash(uint64_t h)
{
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
    return (h ^ h >> 32) * 0x94d049bb133111ebu;
}

/* Set in the hash of a vector call's counts if all ranks know the counts and none is zero. */
#define TWILL_COUNTS_ALL UINT64_C(1)

/* Return a hash of a vector call's counts, one for each rank, with TWILL_COUNTS_ALL as it says. */
static size_t hash_counts(const size_t *counts, uint32_t ranks)
{
    uint64_t hash = 0;
    bool all = true;
    for (uint32_t p = 0; p < ranks; p++) {
        hash = scramble_hash(hash + 0x9e3779b97f4a7c15u + counts[p]);
        all = all && counts[p] > 0;
    }
    return (size_t)(all ? hash | TWILL_COUNTS_ALL : hash & ~TWILL_COUNTS_ALL);
}

/* Return the part of the call that is the same on all ranks, without buffers. A created operation
 * is replaced by its kind. The counts of a vector call are replaced by their hash, or by 0 if not
 * all ranks know them. */
static struct twill_call summary_of(const struct twill_request *run)
{
    struct twill_call call = run->call;
    const struct twill_comm *comm = twill_comm_of(run->engine);
    call.op = twill_context_operation_kind(comm->context, call.op);
    call.src = NULL;
    call.dst = NULL;
    if (!call.vector)
        return call;
    call.src_counts = call.dst_counts = (struct twill_counts){NULL, NULL};
    call.count = 0;
    if (run->layout.known != NULL)
        call.count = hash_counts(run->layout.known, comm->world->size);
    return call;
}

/* Return a hash of the bits of a factor. */
static uint64_t hash_of_factor(float factor)
{
    uint32_t bits;
    memcpy(&bits, &factor, sizeof(bits));
    return scramble_hash((uint64_t)bits + 1);
}

/* Return whether no rank can end the call before it has data of all others. The summary's count is
 * a hash if shards have their own counts, some of which may be zero. */
static bool joins_all(const struct twill_request *run)
{
    switch (run->call.collective) {
    case TWILL_BARRIER:
        return true;
    case TWILL_ALLREDUCE:
    case TWILL_ALLGATHER:
    case TWILL_REDUCE_SCATTER:
    case TWILL_ALLTOALL:
        return run->call.vector ? (run->summary.count & TWILL_COUNTS_ALL) != 0
                                : run->call.count > 0;
    default:
        return false;
    }
}

void twill_run_hash_call(struct twill_request *run)
{
    const struct twill_call *call = &run->summary;
    run->summary.joins = joins_all(run);
    uint64_t h = call->count ^ (uint64_t)run->engine->number << 40;
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
    if (TWILL_UNLIKELY(run->layout.after != NULL))
        h += hash_of_factor(*run->layout.after);
    run->bytes = twill_max(run->buffers.side[TWILL_SRC].bytes, run->buffers.side[TWILL_DST].bytes);
    h ^= (uint64_t)twill_call_what(call) | (uint64_t)call->root << 32;
    run->call_hash = scramble_hash(h);
}

void twill_request_number_refused(struct twill_request *request, const struct twill_call *call)
{
    struct twill_comm *comm = twill_comm_of(request->engine);
    struct twill_call shown = *call;
    shown.type = (twill_type)twill_min((unsigned)call->type, 0xffu);
    shown.op = (twill_op)twill_min((unsigned)twill_context_operation_kind(comm->context, call->op),
                                   0xffffu);
    request->call_hash = UINT64_MAX; /* arguments may differ between ranks, and be wrong on all */
    twill_run_number(request);
    twill_engine_show(&comm->engine, &shown, request->sequence, twill_ticks());
    twill_node_leave_call(comm->node, request->sequence);
}

/* Put the name of this call, which is not in progress, before the message in comm->error. If all
 * ranks refuse the call, also number it. Returns the status of that error. */
static twill_status refuse_call(struct twill_request *request, const struct twill_call *call)
{
    struct twill_comm *comm = twill_comm_of(request->engine);
    struct twill_error own = comm->error;
    comm->issue.call = *call;
    comm->issue.sequence = comm->issue.started;
    twill_error_clear(&comm->error);
    (void)TWILL_COMM_FAIL(comm, own.status, "%s", own.message);
    if (request->refused_alike)
        twill_request_number_refused(request, call);
    return own.status;
}

/* Break the communicator, unless all ranks refuse the call alike. Returns the resulting status. */
static twill_status fail_request(struct twill_request *request, twill_status status)
{
    return request->refused_alike
               ? status
               : twill_comm_fail(twill_comm_of(request->engine), status, TWILL_CAUSE_ASKED);
}

/* Return whether the call differs from the run's last one only in its buffers' addresses. Then its
 * layout still holds, and its plan does if the buffers are accessible as before. A call in place
 * may need another plan. A fused call's summary (lib/api/group.c) holds for no other call. */
static bool repeats(const struct twill_request *run, const struct twill_call *call)
{
    const struct twill_call *last = &run->call;
    return run->plan != NULL && run->layout.created == NULL && call->count == last->count &&
           call->type == last->type && call->op == last->op &&
           call->collective == last->collective && call->root == last->root &&
           call->pitch == last->pitch && !call->vector && !run->summary.vector &&
           (call->src == call->dst) == (last->src == last->dst);
}

/* Prepare the call that carries short shards of a vector call, if there is one. */
static twill_status prepare_carrier(struct twill_request *request)
{
    struct twill_call call = {.src = NULL};
    TWILL_TRY(&request->engine->error, twill_slots_take(request, &call));
    return call.src != NULL ? twill_request_prepare(request->buffers.slots->carrier, &call)
                            : TWILL_OK;
}

twill_status twill_request_prepare(struct twill_request *request, const struct twill_call *call)
{
    struct twill_comm *comm = twill_comm_of(request->engine);
    request->is_point = false;
    request->status = TWILL_OK;
    if (TWILL_LIKELY(repeats(request, call))) {
        if (request->exchange.state >= TWILL_EXCHANGE_PUBLISHED)
            twill_addresses_restart(request);
        if (call->src == request->call.src && call->dst == request->call.dst)
            return TWILL_OK;
        twill_run_move(request, call->src, call->dst);
        twill_status status = twill_call_check_buffers(request);
        if (TWILL_UNLIKELY(status != TWILL_OK))
            request->plan = NULL; /* must be checked again next time */
        return status;
    }
    request->call = *call;
    request->plan = request->exchange.before = NULL;
    request->exchange.state = TWILL_EXCHANGE_IDLE;
    request->exchange.arrived = false;
    twill_run_detach_peers(request);
    TWILL_TRY(&comm->error, twill_call_check(request));
    request->summary = summary_of(request);
    twill_run_hash_call(request);
    return TWILL_UNLIKELY(call->vector) ? prepare_carrier(request) : TWILL_OK;
}

/* Check a collective that was entered at `entered` (in ticks, or 0 if not known) and start it.
 * Returns TWILL_OK, or the error with its message in comm->error. */
static twill_status begin_request(struct twill_request *request, const struct twill_call *call,
                                  uint64_t entered)
{
    struct twill_comm *comm = twill_comm_of(request->engine);
    comm->issue.started++;
    twill_status status = twill_request_prepare(request, call);
    if (TWILL_UNLIKELY(status != TWILL_OK))
        return refuse_call(request, call);
    TWILL_TRY(&comm->error, twill_request_bounce_in(request));
    twill_run_begin_promoted(request);
    if (TWILL_UNLIKELY(request->bytes >= TWILL_POPULATE_FROM))
        twill_run_populate(request);
    twill_request_begin(request, entered);
    return TWILL_OK;
}

twill_status twill_call_held(struct twill_comm *comm, const struct twill_call *call)
{
    struct twill_request *request = &comm->issue.blocking;
    uint64_t ticks = twill_ticks(), idle = comm->usage.idle;
    twill_status status = twill_comm_usable(comm);
    if (TWILL_UNLIKELY(status != TWILL_OK))
        return status;
    status = begin_request(request, call, ticks);
    if (TWILL_LIKELY(status == TWILL_OK)) {
        if (atomic_load_explicit(&request->state, memory_order_relaxed) != TWILL_REQUEST_ACTIVE)
            twill_comm_pass(comm);
        else
            status = twill_comm_wait(comm, twill_request_done, request);
    }
    if (TWILL_LIKELY(status == TWILL_OK))
        status = request->status;
    if (TWILL_LIKELY(status == TWILL_OK))
        status = twill_request_bounce_out(request);
    if (TWILL_UNLIKELY(status != TWILL_OK))
        return fail_request(request, status);
    if (twill_run_has_promoted(request))
        twill_run_leave_promoted(request);
    bool is_copied = request->buffers.device.place != NULL; /* after its end */
    twill_engine_count_time(&comm->engine, ticks,
                            TWILL_UNLIKELY(is_copied) ? twill_ticks() : request->ended, idle, true);
    return TWILL_OK;
}

/* Run a collective on a communicator that is held, or only record it if a group is open. Returns
 * its status. With comm->agrees, the ranks then agree on the outcome of a reduction, so that it
 * succeeds on all survivors or fails on all. */
static twill_status perform_call(struct twill_comm *comm, const struct twill_call *call)
{
    if (TWILL_UNLIKELY(twill_group_is_open(comm->group)))
        return twill_group_record(comm, call, NULL);
    twill_status status = twill_call_held(comm, call);
    if (TWILL_UNLIKELY(comm->agrees) && twill_collective_facts(call->collective)->reduces)
        status = twill_agree_outcome(comm, status);
    return status;
}

twill_status twill_call_run(struct twill_comm *comm, const struct twill_call *call,
                            const char *name)
{
    twill_status status = twill_comm_acquire(comm, name);
    if (TWILL_UNLIKELY(status != TWILL_OK))
        return status;
    status = perform_call(comm, call);
    twill_comm_release(comm);
    return status;
}

/* Wait in a barrier. summary.vector makes its hash differ from that of a program's barrier. */
void twill_call_last(struct twill_comm *comm)
{
    static const struct twill_call barrier = {.collective = TWILL_BARRIER, .type = TWILL_F32};
    struct twill_request *request = &comm->issue.blocking;
    twill_status status = twill_comm_usable(comm);
    if (status != TWILL_OK)
        return;
    comm->issue.started++;
    status = twill_request_prepare(request, &barrier);
    if (status == TWILL_OK) {
        request->summary.vector = true;
        twill_run_hash_call(request);
        twill_request_begin(request, 0);
        status = twill_comm_wait(comm, twill_request_done, request);
    }
    if (status != TWILL_OK)
        (void)twill_comm_fail(comm, status, TWILL_CAUSE_ASKED);
}

twill_status twill_request_admit(struct twill_comm *comm, struct twill_request **request)
{
    if (request != NULL)
        *request = NULL;
    TWILL_TRY(&comm->error, twill_comm_usable(comm));
    if (request == NULL)
        return TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT, "request is NULL");
    if (twill_group_is_open(comm->group))
        return TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT,
                                 "a nonblocking or persistent call is not allowed in a group");
    return TWILL_OK;
}

twill_status twill_request_launch(struct twill_request *request)
{
    struct twill_comm *comm = twill_comm_of(request->engine);
    request->pends = true;
    twill_comm_pend(comm);
    int moved = twill_engine_advance(&comm->engine);
    return moved < 0 ? twill_comm_fail(comm, (twill_status)moved, TWILL_CAUSE_ASKED) : TWILL_OK;
}

/* Start a collective and store its handle. Returns TWILL_OK, or why it has not started. */
static twill_status start_call(struct twill_comm *comm, const struct twill_call *call,
                               struct twill_request **request)
{
    TWILL_TRY(&comm->error, twill_request_admit(comm, request));
    struct twill_request *made = twill_request_take(&comm->engine);
    if (made == NULL)
        return twill_comm_fail(comm, TWILL_ERR_MEMORY, TWILL_CAUSE_ASKED);
    twill_status status = begin_request(made, call, 0);
    if (status != TWILL_OK) {
        status = fail_request(made, status);
        twill_request_give(made);
        return status;
    }
    *request = made->handle.given;
    (void)twill_request_launch(made); /* a failure is returned by the wait */
    twill_request_count_start(made);
    return TWILL_OK;
}

/* Acquire the communicator, create *request with make(), which is start_call() or init(), and
 * release the communicator, also if make() has failed. Returns the status of make(), or why the
 * communicator cannot be acquired. */
static twill_status call_request(struct twill_comm *comm, const struct twill_call *call,
                                 struct twill_request **request, const char *name,
                                 twill_status (*make)(struct twill_comm *comm,
                                                      const struct twill_call *call,
                                                      struct twill_request **request))
{
    twill_status status = twill_comm_acquire(comm, name);
    if (status != TWILL_OK)
        return status;
    status = make(comm, call, request);
    twill_comm_release(comm);
    return status;
}

twill_status twill_call_start(struct twill_comm *comm, const struct twill_call *call,
                              struct twill_request **request, const char *name)
{
    return call_request(comm, call, request, name, start_call);
}

/* Return whether no collective is under way on communicator `comm`. For twill_comm_wait(). */
static bool queue_is_empty(const void *comm)
{
    return ((const struct twill_comm *)comm)->issue.queue == NULL;
}

/* Return whether a run has exchanged its buffers' addresses with the ranks of the node. */
static bool is_collected(const void *run)
{
    return twill_exchange_is_over(&((const struct twill_request *)run)->exchange);
}

/* Exchange the buffers' addresses with the node's ranks, as a numbered call, if any rank needs
 * that. The barrier keeps addresses until all have read them. Returns TWILL_OK or the error. */
static twill_status exchange_addresses(struct twill_request *request)
{
    static const struct twill_call barrier = {.collective = TWILL_BARRIER};
    struct twill_comm *comm = twill_comm_of(request->engine);
    bool exchanges, any_exchanges;
    TWILL_TRY(&comm->error, twill_addresses_needed(request, &exchanges, &any_exchanges));
    request->exchange.state = exchanges ? TWILL_EXCHANGE_IDLE : TWILL_EXCHANGE_UNNEEDED;
    if (!any_exchanges)
        return TWILL_OK;
    comm->issue.started++;
    twill_run_number(request);
    request->ticks = twill_ticks();
    twill_engine_show(&comm->engine, &request->summary, request->sequence, request->ticks);
    comm->issue.exchanging = request;
    twill_status status = twill_comm_wait(comm, is_collected, request);
    comm->issue.exchanging = NULL;
    request->exchange.arrived = false; /* each start of the request sets it again */
    TWILL_TRY(&comm->error, status);
    return twill_call_held(comm, &barrier);
}

/* Wait until the communicator has no call under way. Then check a persistent collective and choose
 * its plan, for which its buffers' addresses may be exchanged. Returns TWILL_OK or the error. */
static twill_status prepare_request(struct twill_request *request, const struct twill_call *call)
{
    struct twill_comm *comm = twill_comm_of(request->engine);
    TWILL_TRY(&comm->error, twill_comm_wait(comm, queue_is_empty, comm));
    if (twill_request_prepare(request, call) != TWILL_OK) {
        comm->issue.started++;
        return refuse_call(request, call);
    }
    TWILL_TRY(&comm->error, twill_request_bounce_in(request));
    twill_run_begin_promoted(request);
    if (call->vector && request->buffers.slots != NULL && request->buffers.slots->bytes > 0)
        return TWILL_OK; /* its plan is chosen when its carrier has begun */
    TWILL_TRY(&comm->error, exchange_addresses(request));
    int answer = twill_run_choose(request);
    if (answer < 0)
        return (twill_status)answer;
    return twill_run_reserve_slots(request);
}

/* Make a persistent request, not started, and set *request to its handle, or to NULL on failure.
 * Waits for the calls under way, and may exchange buffers' addresses with the node's ranks. Returns
 * TWILL_OK or the error. */
static twill_status init(struct twill_comm *comm, const struct twill_call *call,
                         struct twill_request **request)
{
    uint64_t ticks = twill_ticks(), before = comm->usage.ticks;
    TWILL_TRY(&comm->error, twill_request_admit(comm, request));
    struct twill_request *made = twill_request_take(&comm->engine);
    if (made == NULL)
        return twill_comm_fail(comm, TWILL_ERR_MEMORY, TWILL_CAUSE_ASKED);
    twill_status status = prepare_request(made, call);
    if (status != TWILL_OK) {
        status = comm->broken ? status : fail_request(made, status);
        twill_request_give(made);
        return status;
    }
    made->persistent = true;
    *request = made->handle.given;
    twill_counter_set(&comm->usage.ticks, before + (twill_ticks() - ticks)); /* with its barrier */
    return TWILL_OK;
}

twill_status twill_call_init(struct twill_comm *comm, const struct twill_call *call,
                             struct twill_request **request, const char *name)
{
    return call_request(comm, call, request, name, init);
}
