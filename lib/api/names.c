/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/select/explain.h"
#include "kernels/thread_pool.h"
#include "lib/api/api_internal.h"
#include "lib/comm/comm.h"
#include "lib/engine/time_split.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/twill_plan.h"
#include "numa/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
    /* A first call of another thread may be about to open the transports. */
    bool open = atomic_load_explicit(&comm->woken, memory_order_acquire);
    for (unsigned t = 0; open && t < comm->links.transports; t++) {
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

/* --- how a call would run --------------------------------------------------------------------- */

/* Set collective and `vector` of the call named `name`. Returns false if there is none. */
static bool find_collective(struct twill_call *call, const char *name)
{
    for (unsigned c = 0; c < TWILL_COLLECTIVE_COUNT; c++) {
        const char *known = twill_collective_name((enum twill_collective)c);
        size_t length = strlen(known);
        bool sharded = twill_collective_facts((enum twill_collective)c)->sharded;
        call->collective = (enum twill_collective)c;
        call->vector = sharded && strcmp(name + strnlen(name, length), "v") == 0;
        if (strncmp(name, known, length) == 0 && (name[length] == '\0' || call->vector))
            return true;
    }
    return false;
}

/* Set the count of a call with `bytes` bytes, whose type, operation and root are checked. Returns
 * TWILL_OK, or TWILL_ERR_ARGUMENT with comm->error set. */
static twill_status set_count(struct twill_comm *comm, struct twill_call *call, size_t bytes)
{
    const struct twill_collective_facts *facts = twill_collective_facts(call->collective);
    TWILL_TRY(&comm->error, twill_call_check_alike(comm, call));
    if (bytes > SIZE_MAX >> 1)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "bytes %zu overflows memory", bytes);
    if (call->collective != TWILL_BARRIER)
        call->count =
            bytes / twill_call_element(comm, call) / (facts->sharded ? comm->world->size : 1);
    return TWILL_OK;
}

/* Convert picoseconds to seconds, TWILL_PRICE_NEVER to NaN. */
static double seconds_of(uint64_t picoseconds)
{
    return picoseconds == TWILL_PRICE_NEVER ? (double)NAN : (double)picoseconds * 1e-12;
}

/* Answer for a call whose arguments are checked. Returns TWILL_OK or the error. */
static twill_status foresee(struct twill_comm *comm, const struct twill_call *call, size_t bytes,
                            int buffers, twill_call_plan *plan)
{
    struct twill_request run = {.engine = &comm->engine, .call = *call};
    struct twill_select_request key;
    struct twill_choice choice;
    struct twill_foreseen seen;
    char name[TWILL_WHY_NAME];
    twill_run_describe(&run);
    TWILL_TRY(&comm->error,
              twill_run_foresee(&run, (buffers & TWILL_PLAN_SHARED) != 0, bytes, &key, &choice));
    twill_why_choice(&seen, plan->reason, sizeof(plan->reason), comm->plan_cache.chooser,
                     comm->world, &key, &choice);
    twill_why_name(&choice, name);
    size_t length = strcspn(name, "@");
    snprintf(plan->algorithm, sizeof(plan->algorithm), "%.*s", (int)length, name);
    snprintf(plan->protocol, sizeof(plan->protocol), "%s", name + length + (name[length] != '\0'));
    snprintf(plan->next, sizeof(plan->next), "%s", seen.next);
    plan->seconds = seconds_of(seen.cost);
    plan->next_seconds = seconds_of(seen.next_cost);
    plan->threads = (int)seen.threads;
    plan->measured = seen.measured;
    size_t shards = twill_collective_facts(call->collective)->sharded ? comm->world->size : 1;
    plan->segment_bytes =
        call->vector ? 0 : run.layout.segment_length * run.layout.element * shards;
    return TWILL_OK;
}

/* Check the arguments and answer. Returns TWILL_OK, or an error without the name of the call. */
static twill_status answer(struct twill_comm *comm, struct twill_call *call, size_t bytes,
                           int buffers, twill_call_plan *plan)
{
    static const char memory[2] = {0}; /* addresses for SRC and DST, which are not accessed */
    if (plan == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "plan is NULL");
    if (plan->bytes < sizeof(*plan))
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT,
                          "plan: bytes is %zu, not sizeof(twill_call_plan)", plan->bytes);
    if ((buffers & ~(TWILL_PLAN_SHARED | TWILL_PLAN_IN_PLACE)) != 0)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT,
                          "buffers %d is no sum of TWILL_PLAN_SHARED and TWILL_PLAN_IN_PLACE",
                          buffers);
    TWILL_TRY(&comm->error, set_count(comm, call, bytes));
    call->src = &memory[0];
    call->dst = (void *)(uintptr_t)&memory[(buffers & TWILL_PLAN_IN_PLACE) == 0];
    return foresee(comm, call, bytes, buffers, plan);
}

twill_status twill_comm_plan_for(twill_comm *comm, const char *collective, size_t bytes,
                                 twill_type type, twill_op op, int root, int buffers,
                                 twill_call_plan *plan)
{
    struct twill_call call = {.type = type};
    TWILL_TRY(NULL, twill_comm_acquire(comm, "twill_comm_plan_for"));
    twill_status status = twill_comm_usable(comm);
    if (status != TWILL_OK)
        goto release;
    if (collective == NULL || !find_collective(&call, collective))
        status = TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "collective \"%s\" is no call",
                            collective != NULL ? collective : "NULL");
    const struct twill_collective_facts *facts = twill_collective_facts(call.collective);
    call.op = facts->reduces ? op : TWILL_SUM;
    call.root = facts->rooted ? (uint32_t)root : 0;
    if (status == TWILL_OK)
        status = answer(comm, &call, bytes, buffers, plan);
    if (status != TWILL_OK) {
        struct twill_error own = comm->error;
        twill_error_clear(&comm->error);
        (void)TWILL_COMM_REFUSE(comm, status, "%s", own.message);
    }
release:
    twill_comm_release(comm);
    return status;
}
