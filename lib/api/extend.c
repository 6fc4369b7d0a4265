/* SPDX-License-Identifier: Apache-2.0 */
/* Defines extend.h. Each function claims the communicator where it has to, and calls down. */
#include "lib/extend.h"
#include "fabric/shm/node_memory.h"
#include "lib/api/api_internal.h"
#include "lib/engine/time_split.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/job/heap.h"

#include "lib/base/times.h"
#include "lib/report/recording.h"

#include <stdio.h>

#define AWAIT_SPINS  200u /* polls of the node's memory */
#define AWAIT_YIELDS 50u

_Static_assert(TWILL_EXTEND_TEXT >= TWILL_DEATH_TEXT && TWILL_DEATH_TEXT >= TWILL_RANK_TEXT,
               "texts of ranks are as long");

struct twill_extend_process twill_extend_process(twill_context *context)
{
    const struct twill_config *config = context->config;
    return (struct twill_extend_process){
        .context = context,
        .log = &context->log,
        .kernels = context->machine.kernels,
        .topology = context->machine.topology,
        .timings = context->selection.tuning,
        .gradients = twill_config_text(config, TWILL_VARIABLE_GRADIENTS),
        .timeout_ns = (uint64_t)config->number[TWILL_VARIABLE_TIMEOUT],
        .rank_threads = context->job.rank_threads,
        .pool = context->machine.pool,
        .places_memory = context->memory->user_policy.nodes != 0,
        .fork_guard = context->fork_guard,
        .looks_for_nan = config->number[TWILL_VARIABLE_FIRST_NAN] > 0,
        .fails_at_nan = config->number[TWILL_VARIABLE_FIRST_NAN] > 1};
}

/* Return the communicator's transport that can write into memory of other nodes, or NULL. */
static struct twill_transport *writer_of(const struct twill_comm *comm)
{
    for (unsigned t = 0; t < comm->links.transports; t++)
        if (comm->links.transport[t]->ops->expose != NULL)
            return comm->links.transport[t];
    return NULL;
}

/* The expose() of twill_extend_writes. */
static bool expose_memory(twill_comm *comm, const char *call, void *memory, size_t bytes,
                          struct twill_extend_place *place)
{
    struct twill_remote remote = {0};
    *place = (struct twill_extend_place){0};
    if (twill_comm_acquire(comm, call) != TWILL_OK)
        return false;
    struct twill_transport *transport = comm->broken ? NULL : writer_of(comm);
    bool exposed = transport != NULL && transport->ops->expose(transport, memory, bytes, &remote);
    twill_comm_release(comm);
    *place = (struct twill_extend_place){remote.at, remote.key};
    return exposed;
}

/* The conceal() of twill_extend_writes. */
static void conceal_memory(twill_comm *comm, const char *call, struct twill_extend_place place)
{
    const struct twill_remote remote = {place.at, place.key};
    if (twill_comm_acquire(comm, call) != TWILL_OK)
        return;
    struct twill_transport *transport = writer_of(comm);
    if (transport != NULL)
        transport->ops->conceal(transport, &remote);
    twill_comm_release(comm);
}

/* The start() of twill_extend_writes. */
static twill_status start_write(twill_comm *comm, const char *call, const void *src, size_t bytes,
                                int to, struct twill_extend_place place, twill_request **request)
{
    const struct twill_point point = {.src = src,
                                      .src_count = bytes,
                                      .type = TWILL_U8,
                                      .to = to,
                                      .sends = true,
                                      .writes = true,
                                      .remote = {place.at, place.key}};
    return twill_point_start(comm, &point, request, call);
}

static const struct twill_extend_writes network_writes = {expose_memory, conceal_memory,
                                                          start_write};

/* The watch() of struct twill_extend_comm. */
static bool watch_request(twill_request *request, const struct twill_nan_watch *watch)
{
    return twill_run_watch(twill_request_find(request), watch);
}

struct twill_extend_comm twill_extend_comm(const twill_comm *comm)
{
    twill_comm_wake_idle(twill_comm_of(&comm->engine)); /* used without a call on it */
    return (struct twill_extend_comm){.world = comm->world,
                                      .trace = &comm->trace,
                                      .error = &comm->error,
                                      .timeout_ns = comm->tuning.timeout_ns,
                                      .news = twill_node_news(comm->node),
                                      .timeout_name = twill_comm_timeout_name(comm),
                                      .writes = &network_writes,
                                      .watch = watch_request,
                                      .grouped = twill_group_is_open(comm->group)};
}

twill_status twill_extend_dup(twill_comm **made, twill_comm *comm, bool alone)
{
    TWILL_TRY(NULL, alone ? twill_comm_dup_alone(made, comm) : twill_comm_dup(made, comm));
    (*made)->tuning.nan.looks = false;
    return TWILL_OK;
}

twill_status twill_extend_chooser(struct twill_chooser **chooser, twill_comm *comm,
                                  struct twill_error *error)
{
    return twill_engine_create_chooser(chooser, &comm->engine, NULL, error);
}

bool twill_extend_has_ended(twill_request *request, uint64_t *joined)
{
    const struct twill_request *run = twill_request_find(request);
    bool done = twill_request_done(run);
    if (done && joined != NULL)
        *joined = run->summary.joins ? run->sequence : 0;
    return done;
}

twill_status twill_extend_wait(twill_comm *comm, const char *call, bool (*done)(const void *of),
                               const void *of, uint64_t *since)
{
    TWILL_TRY(NULL, twill_comm_acquire(comm, call));
    twill_status status = TWILL_OK;
    uint64_t from = twill_ticks(), idle = comm->usage.idle;
    if (done == NULL) {
        status = twill_comm_progress(comm);
    } else if (!done(of) && !comm->broken) {
        comm->waits.wait_since = *since;
        status = twill_comm_wait(comm, done, of);
        if (comm->waits.wait_since == 0)
            *since = 0;
        comm->waits.wait_since = 0;
        twill_engine_count_time(&comm->engine, from, twill_ticks(), idle, false);
        if (status != TWILL_OK)
            status = twill_comm_fail(comm, status, TWILL_CAUSE_ASKED);
    }
    twill_comm_release(comm);
    return status;
}

twill_status twill_extend_await(twill_comm *comm, struct twill_waitable waitable, uint64_t deadline)
{
    struct twill_pace pace = {.spins = AWAIT_SPINS,
                              .yields = AWAIT_YIELDS,
                              .least_ns = TWILL_EXTEND_SLEEP_NS,
                              .most_ns = TWILL_EXTEND_SLEEP_NS};
    waitable.doorbell = comm->node;
    return twill_await(&waitable, &pace, deadline);
}

void twill_extend_ring(twill_comm *comm, uint32_t rank)
{
    if (comm->world->node[rank] == comm->world->node[comm->rank])
        twill_node_ring_doorbell(comm->node, comm->world->local[rank]);
}

twill_status twill_extend_fail(twill_comm *comm, enum twill_extend_failure what, const char *call,
                               twill_status status, const char *format, ...)
{
    char message[sizeof(((struct twill_error *)NULL)->message)];
    va_list arguments;
    va_start(arguments, format);
    (void)twill_print_list(message, sizeof(message), format, arguments);
    va_end(arguments);
    TWILL_TRY(NULL, twill_comm_acquire(comm, call));
    if (what == TWILL_EXTEND_REFUSES) {
        twill_error_clear(&comm->error);
        status = TWILL_COMM_REFUSE(comm, status, "%s", message);
    } else if (what == TWILL_EXTEND_FAILS || !comm->broken) {
        status = TWILL_COMM_FAIL(comm, status, "%s", message);
        status = twill_comm_fail(
            comm, status, what == TWILL_EXTEND_FAILS ? TWILL_CAUSE_ASKED : TWILL_CAUSE_KNOWN);
    }
    twill_comm_release(comm);
    return status;
}

bool twill_extend_failure(twill_comm *comm, bool polls, struct twill_error *failure)
{
    const char *inside;
    if (!twill_comm_is_live(comm) || !twill_comm_hold(comm, twill_held_by_progress, &inside))
        return false;
    if (polls && !comm->broken) {
        twill_status status = twill_comm_poll_failures(comm, true);
        if (status != TWILL_OK) {
            struct twill_error error = comm->error;
            twill_comm_wake(comm);
            comm->error = error;
            (void)twill_comm_fail(comm, status, TWILL_CAUSE_ASKED);
        }
    }
    bool fails = comm->broken && comm->error.status != TWILL_OK;
    if (fails)
        *failure = comm->error;
    twill_comm_release(comm);
    return fails;
}

bool twill_extend_is_dead(twill_comm *comm, uint32_t rank)
{
    return twill_comm_is_dead(comm, rank);
}

/* Write to text[bytes], for each transport, whether it has its own endpoint, and which. */
static void describe_endpoints(const struct twill_comm *comm, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (unsigned t = 0; t < comm->links.transports && used < bytes; t++) {
        struct twill_transport *transport = comm->links.transport[t];
        used += (size_t)snprintf(text + used, bytes - used, "; %s of its own: %s",
                                 comm->alone ? "endpoint and queue" : "no endpoint",
                                 transport->ops->describe(transport));
    }
}

const char *twill_extend_describe(twill_comm *comm, enum twill_extend_noun noun, uint32_t rank,
                                  char *text, size_t bytes)
{
    char death[TWILL_DEATH_TEXT];
    if (noun == TWILL_EXTEND_ENDPOINTS)
        describe_endpoints(comm, text, bytes);
    else
        snprintf(text, bytes, "%s",
                 noun == TWILL_EXTEND_DEAD_RANK
                     ? twill_comm_death_text(comm, rank, death)
                     : twill_engine_rank_text(&comm->engine, rank, death));
    return text;
}

void twill_extend_hurry(twill_comm *comm)
{
    twill_comm_shorten_deadline(comm);
}

struct twill_extend_memory twill_extend_memory(const twill_comm *comm, uint32_t rank)
{
    const struct twill_heap *heap = &comm->context->memory->heap;
    twill_comm_wake_idle(twill_comm_of(&comm->engine));
    if (rank != comm->rank)
        return (struct twill_extend_memory){comm->links.view[comm->world->local[rank]].base, 0};
    if (heap->region == NULL || heap->fenced)
        return (struct twill_extend_memory){NULL, 0};
    return (struct twill_extend_memory){heap->base, heap->bytes};
}

bool twill_extend_pin(twill_context *context, const void *memory, size_t bytes, int change)
{
    bool found = false;
    for (; context != NULL && !found; context = context->older) {
        twill_context_lock(context);
        found = twill_heap_pin(&context->memory->heap, memory, bytes, change) >= 0;
        twill_context_unlock(context);
    }
    return found;
}

void twill_extend_name_tensor(twill_comm *comm, uint32_t index, const char *name)
{
    twill_timeline_name_tensor(comm, index, name);
}

void twill_extend_report(twill_comm *comm, const char *call, const char *what, bool all)
{
    if (twill_comm_acquire(comm, call) != TWILL_OK)
        return;
    if (all)
        twill_split_report_all(&comm->engine, what);
    else
        twill_split_report(&comm->engine, what);
    twill_comm_release(comm);
}
