/* SPDX-License-Identifier: Apache-2.0 */
/* What a set's communicators have done, for its caller. */
#include "lib/base/plural.h"
#include "lib/train/gradients.h"

#include <stdio.h>

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
    for (uint32_t l = 0; l < set->reducers; l++) {
        add_counters(counters, set->reducer[l].comm);
        add_counters(counters, set->reducer[l].order_comm);
        if (set->update != NULL)
            add_counters(counters, set->update->queue[l].comm);
    }
    return TWILL_OK;
}

const char *twill_gradients_times(twill_gradients *set, size_t index)
{
    if (set == NULL || !set->committed)
        return NULL;
    for (uint32_t l = 0; l < set->reducers; l++) {
        const char *line;
        size_t i = 0;
        while ((line = twill_comm_times(set->reducer[l].comm, i)) != NULL && index > 0)
            index--, i++;
        if (line != NULL)
            return line;
    }
    return NULL;
}

/* Print the shares of one reducer. It may have a thread. */
static void report_reducer(struct twill_reducer *reducer, bool all)
{
    const struct twill_gradients *set = reducer->set;
    char what[80];
    uint64_t steps = all ? set->usage.steps : (uint64_t)set->options.report_every;
    size_t used = (size_t)snprintf(what, sizeof(what),
                                   "gradient set: %llu step%s: ", (unsigned long long)steps,
                                   TWILL_PLURAL(steps));
    if (set->reducers > 1)
        used += (size_t)snprintf(what + used, sizeof(what) - used,
                                 "reducer %td: ", reducer - set->reducer);
    if (all)
        snprintf(what + used, sizeof(what) - used, "in all ");
    if (reducer->own.running)
        twill_reducer_interrupt(reducer);
    else
        twill_reducer_lock(reducer);
    twill_extend_report(reducer->comm, "twill_gradients_wait_all", what, all);
    twill_reducer_unlock(reducer);
}

void twill_gradients_report(struct twill_gradients *set, bool all)
{
    uint64_t every = (uint64_t)set->options.report_every, steps = set->usage.steps;
    if (every == 0 || steps == 0 || twill_comm_rank(set->comm) != 0 || (!all && steps % every != 0))
        return;
    for (uint32_t l = 0; l < set->reducers; l++)
        report_reducer(&set->reducer[l], all);
}
