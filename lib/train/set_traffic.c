/* SPDX-License-Identifier: Apache-2.0 */
/* What a set's communicators have done, for its caller. */
#include "lib/train/gradients.h"

static void add_counters(twill_counters *sum, const twill_comm *comm)
{
    twill_counters one = {0};
    if (comm == NULL || twill_comm_counters(comm, &one) != TWILL_OK)
        return;
    sum->calls += one.calls;
    sum->bytes_sent += one.bytes_sent;
    sum->bytes_wire += one.bytes_wire;
    sum->bytes_copied += one.bytes_copied;
    sum->memory_fallbacks = one.memory_fallbacks; /* of the context */
    sum->seconds += one.seconds;
    sum->registrations += one.registrations;
    sum->deregistrations += one.deregistrations;
    sum->registration_hits += one.registration_hits;
    sum->seconds_waiting += one.seconds_waiting;
    sum->seconds_blocked += one.seconds_blocked;
}

twill_status twill_gradients_traffic(const twill_gradients *set, twill_counters *counters)
{
    if (set == NULL || counters == NULL || !set->committed)
        return TWILL_ERR_ARGUMENT;
    *counters = (twill_counters){0};
    for (uint32_t l = 0; l < set->lanes; l++) {
        add_counters(counters, set->lane[l].comm);
        add_counters(counters, set->lane[l].order_comm);
    }
    return TWILL_OK;
}

const char *twill_gradients_times(twill_gradients *set, size_t index)
{
    if (set == NULL || !set->committed)
        return NULL;
    for (uint32_t l = 0; l < set->lanes; l++) {
        const char *line;
        size_t i = 0;
        while ((line = twill_comm_times(set->lane[l].comm, i)) != NULL && index > 0)
            index--, i++;
        if (line != NULL)
            return line;
    }
    return NULL;
}
