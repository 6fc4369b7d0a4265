/* SPDX-License-Identifier: Apache-2.0 */
/* Events of calls that are too rare to be recorded inline, and calls in the log at level debug. */
#include "lib/engine/trace_calls.h"
#include "algorithms/select/explain.h"
#include "fabric/shm/mapping.h"
#include "fabric/shm/node_memory.h"
#include "lib/engine/engine_internal.h"

#include <stdio.h>

_Static_assert(sizeof(struct twill_trace_ring) <= TWILL_NODE_BOARD_AT,
               "the ring fits the node memory");

void twill_trace_open(struct twill_engine *engine, bool is_first)
{
    engine->trace.ring = twill_node_trace(engine->node, engine->node->me);
    if (is_first)
        twill_mapping_populate(engine->trace.ring, offsetof(struct twill_trace_ring, other));
}

/* Record an event of a request's send, or of its receive if it does not send. */
static void emit_point(const struct twill_request *request, enum twill_trace_kind kind,
                       uint64_t tick, int detail)
{
    const struct twill_transfer *transfer = &request->transfer[request->point.sends ? 0 : 1];
    twill_trace_emit(&request->engine->trace, (struct twill_trace_event){.tick = tick,
                                                                         .bytes = transfer->bytes,
                                                                         .peer = transfer->peer,
                                                                         .detail = (uint16_t)detail,
                                                                         .kind = (uint8_t)kind});
}

void twill_trace_point_begin(const struct twill_request *request)
{
    const struct twill_point *point = &request->point;
    emit_point(request, TWILL_TRACE_POINT_BEGIN, twill_ticks(),
               point->sends | point->receives << 1);
}

void twill_trace_point_end(const struct twill_request *request, twill_status status)
{
    uint64_t tick = twill_trace_is_detailed(&request->engine->trace) ? twill_ticks() : 0;
    emit_point(request, TWILL_TRACE_POINT_END, tick, -status);
}

/* Record an event of the call that this rank is in. */
static void emit_now(const struct twill_engine *engine, enum twill_trace_kind kind, uint32_t peer,
                     uint64_t bytes, int detail)
{
    twill_trace_emit(&engine->trace,
                     (struct twill_trace_event){.tick = twill_ticks(),
                                                .bytes = bytes,
                                                .sequence = (uint32_t)engine->issue.sequence,
                                                .peer = peer,
                                                .detail = (uint16_t)detail,
                                                .kind = (uint8_t)kind});
}

void twill_trace_wait_begin(const struct twill_engine *engine, uint32_t peer, uint64_t ns)
{
    emit_now(engine, TWILL_TRACE_WAIT_BEGIN, peer, ns, 0);
    TWILL_PROBE(wait_begin, engine->number, engine->issue.sequence, peer);
}

void twill_trace_wait_end(const struct twill_engine *engine)
{
    emit_now(engine, TWILL_TRACE_WAIT_END, TWILL_TRACE_NO_PEER, 0, 0);
    TWILL_PROBE(wait_end, engine->number, engine->issue.sequence, 0);
}

void twill_trace_failure(const struct twill_engine *engine, twill_status status, uint32_t from)
{
    if (engine->trace.ring != NULL)
        emit_now(engine, TWILL_TRACE_FAILURE, from, 0, -status);
    TWILL_PROBE(failure, engine->number, engine->issue.sequence, status);
}

void twill_trace_detail(const struct twill_request *run, enum twill_trace_kind kind, uint32_t peer,
                        size_t bytes, unsigned detail)
{
    twill_trace_emit(&run->engine->trace,
                     (struct twill_trace_event){.tick = twill_ticks(),
                                                .bytes = bytes,
                                                .sequence = (uint32_t)run->sequence,
                                                .peer = peer,
                                                .what = twill_call_what(&run->summary),
                                                .detail = (uint16_t)detail,
                                                .kind = (uint8_t)kind});
}

/* Write to text[bytes] what a point-to-point call sends and receives. */
static void describe_point(const struct twill_point *p, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    if (p->sends)
        used = (size_t)snprintf(text, bytes, "send of %zu %s to rank %d", p->src_count,
                                twill_type_name(p->type), p->to);
    if (p->receives && used < bytes)
        snprintf(text + used, bytes - used, "%srecv of %zu %s from rank %d", used > 0 ? ", " : "",
                 p->dst_count, twill_type_name(p->type), p->from);
}

/* Write to text[bytes] what a request does. */
static void describe_request(const struct twill_request *request, char *text, size_t bytes)
{
    if (request->is_point)
        describe_point(&request->point, text, bytes);
    else
        twill_call_describe(&request->call, request->sequence, text, bytes);
}

void twill_log_begin(const struct twill_request *request)
{
    const struct twill_engine *engine = request->engine;
    char call[200];
    describe_request(request, call, sizeof(call));
    const void *src = request->is_point ? request->point.src : request->call.src;
    const void *dst = request->is_point ? request->point.dst : request->call.dst;
    twill_say(engine->log, TWILL_LOG_DEBUG, "communicator %u: %s begins: src %p, dst %p",
              engine->number, call, src, dst);
}

void twill_log_end(const struct twill_request *request, twill_status status)
{
    const struct twill_engine *engine = request->engine;
    char call[200], how[TWILL_WHY_NAME] = "point to point";
    describe_request(request, call, sizeof(call));
    if (!request->is_point && request->plan != NULL)
        twill_why_name(&request->plan->choice, how);
    twill_say(engine->log, TWILL_LOG_DEBUG, "communicator %u: %s ends: %s, %s, %.1f us",
              engine->number, call, twill_strerror(status), how,
              1e6 * twill_engine_seconds(engine, twill_ticks() - request->ticks));
}
