/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/thread_pool.h"
#include "lib/comm/comm.h"
#include "lib/engine/time_split.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "numa/memory.h"

#include <stdio.h>

const char *twill_comm_message(const twill_comm *comm)
{
    if (comm == NULL)
        return "the communicator is NULL";
    if (!twill_comm_is_live(comm))
        return "the communicator has been destroyed";
    return twill_comm_is_torn(comm) ? comm->claim.refused.message : comm->error.message;
}

const char *twill_context_message(const twill_context *context)
{
    if (context == NULL)
        return "the context is NULL";
    return twill_context_is_live(context) ? context->error.message
                                          : "the context has been destroyed";
}

/* Return line `which` of the context's present memory figures, or NULL past the last. */
static const char *live_line(struct twill_context *context, unsigned which)
{
    enum { MEMORY_HELD, MEMORY_FALLBACKS };
    struct twill_memory_stats user, library;
    twill_context_memory_stats(context, &user, &library);
    if (which == MEMORY_HELD)
        snprintf(context->notes.live_line, sizeof(context->notes.live_line),
                 "memory held: twill_alloc %llu KiB, %llu of it MCDRAM/HBM; library %llu KiB, "
                 "%llu of it MCDRAM/HBM",
                 (unsigned long long)user.bytes >> 10, (unsigned long long)user.bytes_hbw >> 10,
                 (unsigned long long)library.bytes >> 10,
                 (unsigned long long)library.bytes_hbw >> 10);
    else if (which == MEMORY_FALLBACKS)
        snprintf(context->notes.live_line, sizeof(context->notes.live_line),
                 "memory fallbacks: %llu so far",
                 (unsigned long long)(user.fallbacks + library.fallbacks));
    return which <= MEMORY_FALLBACKS ? context->notes.live_line : NULL;
}

const char *twill_context_describe(twill_context *context, size_t index)
{
    if (!twill_context_is_live(context))
        return NULL;
    if (index == context->notes.lines && context->ready && !context->notes.previewed) {
        context->notes.previewed = true; /* asking libfabric takes long: only if all are read */
        if (context->job.world.nodes == 1)
            twill_context_preview(context);
    }
    if (index < context->notes.lines)
        return context->notes.line[index];
    return context->ready ? live_line(context, (unsigned)(index - context->notes.lines)) : NULL;
}

const char *twill_context_variable(twill_context *context, size_t index)
{
    if (!twill_context_is_live(context) || index >= TWILL_VARIABLE_COUNT ||
        context->config->text[index] == NULL)
        return NULL;
    const struct twill_variable *v = &twill_variables[index];
    const char *text = twill_config_shown(context->config, (enum twill_variable_id)index);
    snprintf(context->notes.variable_line, sizeof(context->notes.variable_line),
             "%s\t%s\t%s\t%s\t%s", v->name, text, v->fallback, context->config->source[index],
             v->help);
    return context->notes.variable_line;
}

#define GET(comm, expression) (twill_comm_is_live(comm) ? (int)(expression) : -1)

int twill_comm_rank(const twill_comm *comm)
{
    return GET(comm, comm->rank);
}

int twill_comm_size(const twill_comm *comm)
{
    return GET(comm, comm->world->size);
}

int twill_comm_node(const twill_comm *comm)
{
    return GET(comm, comm->world->node[comm->rank]);
}

int twill_comm_nodes(const twill_comm *comm)
{
    return GET(comm, comm->world->nodes);
}

int twill_comm_local_rank(const twill_comm *comm)
{
    return GET(comm, comm->world->local[comm->rank]);
}

int twill_comm_local_size(const twill_comm *comm)
{
    return GET(comm, comm->world->node_size[comm->world->node[comm->rank]]);
}

twill_context *twill_comm_context(const twill_comm *comm)
{
    return twill_comm_is_live(comm) ? comm->context : NULL;
}

twill_status twill_comm_counters(const twill_comm *comm, twill_counters *counters)
{
    if (!twill_comm_is_live(comm) || counters == NULL)
        return TWILL_ERR_ARGUMENT;
    *counters = (twill_counters){
        .calls = twill_counter_read(&comm->usage.counters.calls),
        .bytes_sent = twill_counter_read(&comm->usage.counters.bytes_sent),
        .bytes_copied = twill_counter_read(&comm->usage.counters.bytes_copied),
        .seconds = twill_engine_seconds(&comm->engine, twill_counter_read(&comm->usage.ticks)),
        .seconds_waiting =
            twill_engine_seconds(&comm->engine, twill_counter_read(&comm->split->now.waiting)),
    };
    double blocked =
        twill_engine_seconds(&comm->engine, twill_counter_read(&comm->split->now.blocked));
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
    counters->forks = twill_pool_forks(comm->context->machine.pool);
    return TWILL_OK;
}

const char *twill_comm_times(twill_comm *comm, size_t index)
{
    return twill_comm_is_live(comm) ? twill_split_line(&comm->engine, index) : NULL;
}

twill_status twill_comm_times_reset(twill_comm *comm)
{
    twill_status status = twill_comm_acquire(comm, "twill_comm_times_reset");
    if (status != TWILL_OK)
        return status;
    twill_split_begin(&comm->engine, TWILL_SPLIT_PROGRAM);
    twill_comm_release(comm);
    return TWILL_OK;
}
