/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of transports, and the sums of their counters. */
#include "fabric/transports.h"

const struct twill_transport_ops *twill_transport_at(size_t index)
{
    static const struct twill_transport_ops *const transports[] = {
        &twill_self_transport,
        &twill_shm_transport,
        &twill_tcp_transport, /* before those without encryption: the first of equals wins */
        &twill_ofi_transport,
    };
    _Static_assert(TWILL_ARRAY_LENGTH(transports) <= TWILL_TRANSPORTS_MOST,
                   "one entry each in a context");
    return index < TWILL_ARRAY_LENGTH(transports) ? transports[index] : NULL;
}

static void add_counters(struct twill_transport_counters *sum,
                         const struct twill_transport_counters *counters)
{
    sum->messages += twill_counter_read(&counters->messages);
    sum->bytes += twill_counter_read(&counters->bytes);
    sum->header_bytes += twill_counter_read(&counters->header_bytes);
    sum->copied += twill_counter_read(&counters->copied);
    sum->again += twill_counter_read(&counters->again);
    sum->registrations += twill_counter_read(&counters->registrations);
    sum->deregistrations += twill_counter_read(&counters->deregistrations);
    sum->registration_hits += twill_counter_read(&counters->registration_hits);
}

void twill_transport_count(const struct twill_transport *transport,
                           struct twill_transport_counters *sum)
{
    const struct twill_transport *rail;
    *sum = (struct twill_transport_counters){0};
    add_counters(sum, &transport->counters);
    for (size_t i = 0;
         transport->ops->rail != NULL && (rail = transport->ops->rail(transport, i)) != NULL; i++)
        add_counters(sum, &rail->counters);
}

void twill_transport_hold(const struct twill_transport *transport,
                          struct twill_transport_holding *sum)
{
    const struct twill_transport *rail;
    if (transport->ops->hold != NULL)
        transport->ops->hold(transport, sum);
    for (size_t i = 0;
         transport->ops->rail != NULL && (rail = transport->ops->rail(transport, i)) != NULL; i++)
        if (rail->ops->hold != NULL)
            rail->ops->hold(rail, sum);
}
