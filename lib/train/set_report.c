/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of a set about itself, with description, counters and times. */
#include "lib/base/plural.h"
#include "lib/train/gradients.h"

#include <stdio.h>
#include <string.h>

/* Write line 0 of twill_gradients_describe() to text[bytes], with the options, the state of
 * searches, lateness and the optimizer. */
static void describe_options(const struct twill_gradients *set, char *text, size_t bytes)
{
    static const char *const choices[] = {[TWILL_WIRE_PRICED] = "; compressed where it pays",
                                          [TWILL_WIRE_ALL] = "",
                                          [TWILL_WIRE_NONE] = "; not compressed: does not pay"};
    const twill_gradients_options *o = &set->options;
    const struct twill_searches *searches = set->searches;
    bool tunes = searches != NULL && searches->sizes.candidates > 0;
    size_t used = (size_t)snprintf(text, bytes, "TWILL_GRADIENTS=");
    used += twill_set_entries_describe(set, text + used, bytes - used);
    used += (size_t)twill_print(text + used, bytes - used, " (op %s, scale %g%s)",
                                twill_op_name(o->op), o->scale,
                                !tunes                                   ? ""
                                : twill_search_is_over(&searches->sizes) ? "; autotuned"
                                                                         : "; autotuning");
    if (set->compressor != NULL && searches != NULL)
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%s", choices[set->compressor->choice],
                             twill_search_is_over(&searches->codes) ? "" : "; in a trial");
    if (set->generations > 1)
        used += (size_t)snprintf(text + used, bytes - used, "; %s",
                                 set->late.on ? "one step late" : "not late at present");
    if (set->update != NULL)
        twill_print(text + used, bytes - used, "; %s on shards, rate %g, %zu bytes of state here",
                    twill_optimizer_name(set->update->optimizer.rule), set->update->optimizer.rate,
                    set->update->state_bytes);
}

/* Write a line about bucket `b` to text[bytes]. It names the reducer, the number of tensors, the
 * bytes and type, codes or factors if it has them, and the first and last tensor. */
static void describe_bucket(const struct twill_gradients *set, uint32_t b, char *text, size_t bytes)
{
    char compressed[128] = "";
    if (set->bucket[b].wire.used)
        snprintf(compressed, sizeof(compressed), " compressed to %zu",
                 twill_wire_bytes(set, &set->bucket[b]));
    const struct twill_bucket *bucket = &set->bucket[b];
    const struct twill_dense *dense = twill_bucket_tensor(set, bucket, 0)->dense;
    if (dense != NULL)
        twill_print(compressed, sizeof(compressed),
                    " of %zu x %zu, %s (%.0f us by factors, %.0f by a reduction)", dense->rows,
                    dense->columns, dense->gathers ? "factors gathered" : "reduced",
                    (double)dense->gather_ps * 1e-6, (double)dense->reduce_ps * 1e-6);
    const uint32_t *member = &set->backward[bucket->first];
    char reducer[40] = "", part[64] = "";
    if (set->reducers > 1)
        snprintf(reducer, sizeof(reducer), ", reducer %u", bucket->reducer);
    if (bucket->count < set->tensor[*member].count)
        snprintf(part, sizeof(part), " from element %zu on", bucket->from);
    snprintf(text, bytes, "bucket %u%s: %u tensor%s%s, %zu bytes of %s%s%s, '%.60s' to '%.60s'", b,
             reducer, bucket->tensors, TWILL_PLURAL(bucket->tensors), part,
             twill_bucket_bytes(bucket), twill_type_name(bucket->type), compressed,
             bucket->copies ? ", copied" : "", set->tensor[member[bucket->tensors - 1]].name,
             set->tensor[member[0]].name);
}

const char *twill_gradients_describe(twill_gradients *set, size_t index)
{
    size_t threads = set != NULL && set->options.threads > 0 ? set->reducers : 0;
    if (set == NULL || index > twill_buckets_of_step(set) + threads)
        return NULL;
    if (index == 0)
        describe_options(set, set->line, sizeof(set->line));
    else if (index > twill_buckets_of_step(set))
        twill_reducer_describe(&set->reducer[index - 1 - twill_buckets_of_step(set)], set->line,
                               sizeof(set->line));
    else
        describe_bucket(set, (uint32_t)index - 1, set->line, sizeof(set->line));
    return set->line;
}

/* Add a communicator's counters to *sum, or nothing if it is NULL. */
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
    sum->forks = one.forks; /* of the context */
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

/* Log where a reducer's time went since the last report, options.report_every steps ago, or in all
 * steps if `all`. Locks the reducer meanwhile. */
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
    twill_reducer_hold(reducer);
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
