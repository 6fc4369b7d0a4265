/* SPDX-License-Identifier: Apache-2.0 */
/* What a communicator has counted, with that of its transports and its context's memory. */
#include "lib/comm/comm_internal.h"

double twill_comm_seconds(const struct twill_comm *comm, uint64_t ticks)
{
    uint64_t ns = twill_now() - comm->usage.ns_at_start,
             all = twill_ticks() - comm->usage.ticks_at_start;
    return all > 0 ? (double)ticks * (double)ns / (double)all * 1e-9 : 0;
}

void twill_comm_count(const struct twill_comm *comm, twill_counters *counters)
{
    *counters = (twill_counters){
        .calls = twill_counter_read(&comm->usage.counters.calls),
        .bytes_sent = twill_counter_read(&comm->usage.counters.bytes_sent),
        .bytes_copied = twill_counter_read(&comm->usage.counters.bytes_copied),
        .seconds = twill_comm_seconds(comm, twill_counter_read(&comm->usage.ticks)),
        .seconds_waiting = twill_comm_seconds(comm, twill_counter_read(&comm->split.now.waiting)),
    };
    double blocked = twill_comm_seconds(comm, twill_counter_read(&comm->split.now.blocked));
    counters->seconds_blocked =
        blocked > counters->seconds_waiting ? blocked - counters->seconds_waiting : 0;
    for (unsigned t = 0; t < comm->links.transports; t++) {
        const struct twill_transport *transport = comm->links.transport[t];
        struct twill_transport_counters sum;
        twill_transport_count(transport, &sum);
        counters->bytes_copied += sum.copied;
        counters->registrations += sum.registrations;
        counters->deregistrations += sum.deregistrations;
        counters->registration_hits += sum.registration_hits;
        if (!transport->ops->sleeps_on_doorbell)
            counters->bytes_wire += sum.bytes + sum.header_bytes;
    }
    struct twill_memory_stats user, library;
    twill_context_memory_stats(comm->context, &user, &library);
    counters->memory_fallbacks = user.fallbacks + library.fallbacks;
}
