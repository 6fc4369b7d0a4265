/* SPDX-License-Identifier: Apache-2.0 */
/* Events of calls that are too rare to be recorded inline. */
#include "lib/engine/trace_calls.h"
#include "fabric/shm/mapping.h"

_Static_assert(sizeof(struct twill_trace_ring) <= TWILL_NODE_BOARD_AT,
               "the ring fits the node memory");

void twill_trace_open(struct twill_comm *comm, bool is_first)
{
    comm->trace.ring = twill_node_trace(comm->node, comm->node->me);
    if (is_first)
        twill_mapping_populate(comm->trace.ring, offsetof(struct twill_trace_ring, other));
}

void twill_trace_point_begin(const struct twill_request *request)
{
    const struct twill_point *point = &request->point;
    unsigned way = point->sends ? 0 : 1;
    twill_trace_emit(&request->comm->trace,
                     (struct twill_trace_event){
                         .tick = twill_ticks(),
                         .bytes = request->transfer[way].bytes,
                         .peer = request->transfer[way].peer,
                         .detail = (uint16_t)(point->sends | point->receives << 1),
                         .kind = TWILL_TRACE_POINT_BEGIN,
                     });
}

void twill_trace_point_end(const struct twill_request *request, twill_status status)
{
    const struct twill_trace *trace = &request->comm->trace;
    unsigned way = request->point.sends ? 0 : 1;
    twill_trace_emit(trace, (struct twill_trace_event){
                                .tick = twill_trace_is_detailed(trace) ? twill_ticks() : 0,
                                .bytes = request->transfer[way].bytes,
                                .peer = request->transfer[way].peer,
                                .detail = (uint16_t)-status,
                                .kind = TWILL_TRACE_POINT_END,
                            });
}

void twill_trace_wait_begin(const struct twill_comm *comm, uint32_t peer, uint64_t ns)
{
    twill_trace_emit(&comm->trace,
                     (struct twill_trace_event){.tick = twill_ticks(),
                                                .bytes = ns,
                                                .sequence = (uint32_t)comm->issue.sequence,
                                                .peer = peer,
                                                .kind = TWILL_TRACE_WAIT_BEGIN});
    TWILL_PROBE(wait_begin, comm->number, comm->issue.sequence, peer);
}

void twill_trace_wait_end(const struct twill_comm *comm)
{
    twill_trace_emit(&comm->trace,
                     (struct twill_trace_event){.tick = twill_ticks(),
                                                .sequence = (uint32_t)comm->issue.sequence,
                                                .peer = TWILL_TRACE_NO_PEER,
                                                .kind = TWILL_TRACE_WAIT_END});
    TWILL_PROBE(wait_end, comm->number, comm->issue.sequence, 0);
}

void twill_trace_failure(const struct twill_comm *comm, twill_status status, uint32_t from)
{
    if (comm->trace.ring != NULL)
        twill_trace_emit(&comm->trace,
                         (struct twill_trace_event){.tick = twill_ticks(),
                                                    .sequence = (uint32_t)comm->issue.sequence,
                                                    .peer = from,
                                                    .detail = (uint16_t)-status,
                                                    .kind = TWILL_TRACE_FAILURE});
    TWILL_PROBE(failure, comm->number, comm->issue.sequence, status);
}

void twill_trace_detail(const struct twill_run *run, enum twill_trace_kind kind, uint32_t peer,
                        size_t bytes, unsigned detail)
{
    twill_trace_emit(&run->comm->trace,
                     (struct twill_trace_event){.tick = twill_ticks(),
                                                .bytes = bytes,
                                                .sequence = (uint32_t)run->sequence,
                                                .peer = peer,
                                                .what = run->what,
                                                .detail = (uint16_t)detail,
                                                .kind = (uint8_t)kind});
}
