/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a communicator's calls, waits and messages, recorded by the thread that holds it. */
#ifndef TWILL_TRACE_CALLS_H
#define TWILL_TRACE_CALLS_H

#include "lib/engine/engine.h"

/* Probes for SystemTap, bpftrace and perf, provider "twill", if <sys/sdt.h> exists. An unused probe
 * costs a nop. The arguments are the numbers of the communicator and of its call, and a value. */
#ifdef TWILL_WITH_PROBES
#include <sys/sdt.h>
#define TWILL_PROBE(name, comm, sequence, value) DTRACE_PROBE3(twill, name, comm, sequence, value)
#else
#define TWILL_PROBE(name, comm, sequence, value) ((void)0)
#endif

/* Record events into this rank's node memory from now on. The ring of the context's first
 * communicator (`is_first`) is mapped at once, and that of others as events come. */
void twill_trace_open(struct twill_engine *engine, bool is_first);
/* Record in the trace the begin or end (`kind`) of a collective at `tick`, a value of
 * twill_ticks(). `status` is its result, or TWILL_OK at its begin. */
static inline void twill_trace_call(const struct twill_request *request, enum twill_trace_kind kind,
                                    uint64_t tick, twill_status status)
{
    twill_trace_emit(&request->engine->trace,
                     (struct twill_trace_event){.tick = tick,
                                                .bytes = request->bytes,
                                                .sequence = (uint32_t)request->sequence,
                                                .peer = TWILL_TRACE_NO_PEER,
                                                .what = twill_call_what(&request->summary),
                                                .detail = (uint16_t)-status,
                                                .kind = (uint8_t)kind});
}
/* Record that a call has begun, at request->ticks. */
static inline void twill_trace_call_begin(const struct twill_request *request)
{
    twill_trace_call(request, TWILL_TRACE_CALL_BEGIN, request->ticks, TWILL_OK);
    TWILL_PROBE(call_begin, request->engine->number, request->sequence, request->bytes);
}
/* Record that a call has ended, and set request->ended. */
static inline void twill_trace_call_end(struct twill_request *request, twill_status status)
{
    request->ended = twill_ticks();
    twill_trace_call(request, TWILL_TRACE_CALL_END, request->ended, status);
    TWILL_PROBE(call_end, request->engine->number, request->sequence, status);
}
/* Record the beginning of a point-to-point call. */
void twill_trace_point_begin(const struct twill_request *request);
/* Record the end of a point-to-point call with the result `status`. */
void twill_trace_point_end(const struct twill_request *request, twill_status status);
/* Record in the trace that a wait for rank `peer` began `ns` nanoseconds ago.
 * twill_trace_wait_end() records its end. */
void twill_trace_wait_begin(const struct twill_engine *engine, uint32_t peer, uint64_t ns);
/* Record in the trace that the wait of the last twill_trace_wait_begin() has ended. */
void twill_trace_wait_end(const struct twill_engine *engine);
/* Record that the communicator has failed with `status`, as rank `from` has found. */
void twill_trace_failure(const struct twill_engine *engine, twill_status status, uint32_t from);
/* Record an event of a run. For a message, `peer` is the other rank and `detail` the lane. For a
 * segment, `peer` is the epoch and `bytes` those of one shard. For a reduction, `peer` is
 * TWILL_TRACE_NO_PEER and `bytes` those of the result. `detail` is 0 but for messages. Call it only
 * if twill_trace_is_detailed(). */
void twill_trace_detail(const struct twill_request *run, enum twill_trace_kind kind, uint32_t peer,
                        size_t bytes, unsigned detail);

#endif
