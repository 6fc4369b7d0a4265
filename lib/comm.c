/* SPDX-License-Identifier: Apache-2.0 */
/* Creates communicators: shared lines and staging memory on the node, transports between ranks. */
#include "lib/comm.h"
#include "fabric/registry.h"
#include "lib/progress.h"

#include <stdio.h>
#include <stdlib.h>

#define SPIN_ALONE   500u /* polls: some 10 us; yielding a core nobody wants costs little */
#define SPIN_CROWDED 20u

static struct twill_transport_params params_of(struct twill_comm *comm)
{
    struct twill_context *context = comm->context;
    const struct twill_config *config = &context->config;
    return (struct twill_transport_params){
        .boot = context->boot,
        .world = comm->world,
        .comm = comm->number,
        .node = comm->node,
        .provider = twill_config_text(config, TWILL_VARIABLE_PROVIDER),
        .interface = twill_config_text(config, TWILL_VARIABLE_INTERFACE),
        .domain = twill_config_text(config, TWILL_VARIABLE_DOMAIN),
        .mock = twill_config_text(config, TWILL_VARIABLE_MOCK),
        .log = &context->log,
    };
}

/* Registry index of the transport between two ranks. */
static size_t transport_between(const struct twill_transport_params *params, uint32_t from,
                                uint32_t to)
{
    size_t t = 0;
    while (twill_transport_at(t) != NULL && !twill_transport_at(t)->reaches(params, from, to))
        t++;
    return t;
}

/* Which transports the world needs: neighbours in node order show every kind of pair, and so every
 * rank comes to the same answer, because opening is collective. */
static uint32_t transports_needed(const struct twill_transport_params *params)
{
    const struct twill_world *world = params->world;
    uint32_t needed = 0;
    for (uint32_t i = 0; i < world->size; i++) {
        uint32_t to = world->member[(i + 1) % world->size];
        needed |= 1u << transport_between(params, world->member[i], to);
    }
    return needed;
}

void twill_context_preview(struct twill_context *context)
{
    struct twill_comm nowhere = {.context = context, .world = &context->world};
    struct twill_transport_params params = params_of(&nowhere);
    for (size_t t = 0; twill_transport_at(t) != NULL; t++) {
        const struct twill_transport_ops *ops = twill_transport_at(t);
        char text[200];
        struct twill_error error = {0};
        if (ops->preview == NULL)
            continue;
        if (ops->preview(&params, text, sizeof(text), &error) != TWILL_OK)
            snprintf(text, sizeof(text), "none: %.150s", error.message);
        twill_context_note(context, "between nodes it would be: %s", text);
    }
}

static twill_status open_transports(struct twill_comm *comm)
{
    struct twill_error *error = &comm->context->error;
    struct twill_transport_params params = params_of(comm);
    uint32_t needed = transports_needed(&params);
    uint8_t place[32] = {0}; /* of registry entry t in comm->transport */
    for (size_t t = 0; twill_transport_at(t) != NULL; t++) {
        if (!(needed >> t & 1))
            continue;
        if (comm->transports == TWILL_COMM_TRANSPORTS)
            return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "more transports than %d",
                              TWILL_COMM_TRANSPORTS);
        place[t] = (uint8_t)comm->transports;
        TWILL_TRY(error,
                  twill_transport_at(t)->open(&comm->transport[comm->transports], &params, error));
        comm->transports++;
    }
    for (uint32_t r = 0; r < comm->world->size; r++) {
        size_t t = transport_between(&params, comm->rank, r);
        if (r != comm->rank && !(needed >> t & 1))
            return TWILL_FAIL(error, TWILL_ERR_FABRIC, "no transport from rank %u to rank %u",
                              comm->rank, r);
        comm->route[r] = place[t];
    }
    if (params.provider != NULL && comm->world->nodes == 1)
        twill_say(&comm->context->log, TWILL_LOG_INFO,
                  "TWILL_PROVIDER=%s is not used: all ranks are on one node", params.provider);
    for (unsigned t = 0; t < comm->transports; t++)
        twill_context_note(comm->context, "transport: %s",
                           comm->transport[t]->ops->describe(comm->transport[t]));
    return TWILL_OK;
}

static twill_status open_views(struct twill_comm *comm)
{
    struct twill_context *context = comm->context;
    for (uint32_t l = 0; l < comm->local_size; l++)
        TWILL_TRY(&context->error, twill_heap_view_open(&comm->view[l], &context->heap,
                                                        comm->node->rank[l], &context->error));
    return TWILL_OK;
}

static twill_status open_node(struct twill_comm *comm)
{
    struct twill_context *context = comm->context;
    uint32_t size = comm->world->size;
    const char *why = NULL;
    uint32_t *label = calloc(size, sizeof(*label));
    if (label == NULL)
        return TWILL_FAIL(&context->error, TWILL_ERR_MEMORY, "out of memory");
    for (uint32_t r = 0; r < size; r++)
        label[r] = comm->world->node[r];
    size_t shared = twill_max(comm->segment, comm->segment_net);
    twill_status status =
        twill_node_open(&comm->node, context->boot, label, twill_round_up(shared, 4096),
                        twill_shm_channel_bytes(comm->local_size), &why, &context->error);
    free(label);
    if (status == TWILL_OK && why != NULL)
        return TWILL_FAIL(&context->error, TWILL_ERR_SYSTEM,
                          "ranks of a node that shared memory before cannot now: %s", why);
    return status;
}

static twill_status allocate(struct twill_comm *comm)
{
    comm->route = calloc(comm->world->size, sizeof(*comm->route));
    comm->connected = calloc(comm->world->size, sizeof(*comm->connected));
    comm->view = calloc(comm->local_size, sizeof(*comm->view));
    comm->peer_src = calloc(comm->local_size, sizeof(*comm->peer_src));
    comm->peer_dst = calloc(comm->local_size, sizeof(*comm->peer_dst));
    comm->heard = calloc(comm->world->size, sizeof(*comm->heard));
    if (comm->view == NULL || comm->heard == NULL || comm->route == NULL ||
        comm->connected == NULL || comm->peer_src == NULL || comm->peer_dst == NULL)
        return TWILL_FAIL(&comm->context->error, TWILL_ERR_MEMORY, "out of memory");
    return TWILL_OK;
}

/* Past this size stores go around the caches: what lies in between is flushed anyway. */
static size_t stream_from(const struct twill_context *context)
{
    size_t asked = (size_t)context->config.number[TWILL_VARIABLE_STREAM];
    const struct twill_machine *machine = twill_topology_machine(context->topology);
    if (asked > 0)
        return asked;
    size_t cache = machine->l3_bytes > 0 ? machine->l3_bytes : machine->l2_bytes;
    return cache > 0 ? cache : (size_t)32 << 20;
}

static void configure(struct twill_comm *comm)
{
    const struct twill_config *config = &comm->context->config;
    int64_t spin = config->number[TWILL_VARIABLE_SPIN];
    comm->spin = spin >= 0 ? (uint32_t)spin : comm->context->crowded ? SPIN_CROWDED : SPIN_ALONE;
    comm->timeout_ns = (uint64_t)config->number[TWILL_VARIABLE_TIMEOUT];
    comm->segment = (size_t)config->number[TWILL_VARIABLE_SEGMENT];
    comm->segment_net = (size_t)config->number[TWILL_VARIABLE_SEGMENT_NET];
    comm->threads = (int)config->number[TWILL_VARIABLE_THREADS];
    comm->stream = stream_from(comm->context);
    comm->epoch = TWILL_COPIES; /* lines say 0 before their first use */
    comm->ticks_at_start = twill_ticks();
    comm->ns_at_start = twill_now();
}

static void release(struct twill_comm *comm)
{
    for (unsigned t = 0; t < comm->transports; t++)
        comm->transport[t]->ops->close(comm->transport[t]);
    twill_plans_destroy(comm);
    twill_chooser_destroy(comm->chooser);
    if (comm->scratch != NULL)
        twill_memory_free(comm->context->library_memory, comm->scratch, comm->scratch_bytes);
    if (comm->staging != NULL)
        twill_memory_free(comm->context->library_memory, comm->staging, comm->staging_bytes);
    if (comm->node != NULL)
        twill_node_close(comm->node);
    free(comm->posted);
    free(comm->route);
    free(comm->connected);
    free(comm->heard);
    for (uint32_t l = 0; comm->view != NULL && l < comm->local_size; l++)
        twill_heap_view_close(&comm->view[l]);
    free(comm->view);
    free((void *)comm->peer_src);
    free((void *)comm->peer_dst);
    free(comm);
}

twill_status twill_comm_create(twill_comm **comm, twill_context *context)
{
    if (comm == NULL || context == NULL)
        return TWILL_ERR_ARGUMENT;
    *comm = NULL;
    if (!context->ready)
        return TWILL_ERR_ARGUMENT;
    twill_error_clear(&context->error);
    if (twill_context_is_forked(context))
        return TWILL_FAIL(&context->error, TWILL_ERR_FORKED,
                          "this process was forked after the context was created");
    struct twill_comm *made =
        aligned_alloc(TWILL_CACHE_LINE, twill_round_up(sizeof(*made), TWILL_CACHE_LINE));
    if (made == NULL)
        return TWILL_FAIL(&context->error, TWILL_ERR_MEMORY, "out of memory");
    *made = (struct twill_comm){.context = context, .world = &context->world};
    made->rank = (uint32_t)context->boot->rank;
    made->local = context->world.local[made->rank];
    made->local_size = context->world.node_size[context->world.node[made->rank]];
    made->number = context->comms++;
    twill_status status = TWILL_OK;
    configure(made);
    TWILL_TRY_OR_FAIL(&context->error, allocate(made));
    TWILL_TRY_OR_FAIL(&context->error, open_node(made));
    TWILL_TRY_OR_FAIL(&context->error, open_views(made));
    TWILL_TRY_OR_FAIL(&context->error, open_transports(made));
    TWILL_TRY_OR_FAIL(&context->error, twill_context_add(context, made, &context->error));
    *comm = made;
    return TWILL_OK;
fail:
    release(made);
    return status;
}

void twill_comm_destroy(twill_comm *comm)
{
    if (comm == NULL || twill_context_is_forked(comm->context))
        return;        /* a child must not close the parent's connections */
    if (!comm->broken) /* nobody may still be reading what we unmap, or sending to us */
        (void)twill_barrier(comm);
    twill_context_remove(comm->context, comm);
    release(comm);
}

twill_status twill_init(twill_comm **comm)
{
    if (comm == NULL)
        return TWILL_ERR_ARGUMENT;
    *comm = NULL;
    twill_context *context = NULL;
    twill_status status = twill_context_create(&context, NULL, NULL);
    if (status == TWILL_OK)
        status = twill_comm_create(comm, context);
    if (status == TWILL_OK) {
        (*comm)->owns_context = true;
        return TWILL_OK;
    }
    if (context != NULL)
        twill_say(&context->log, TWILL_LOG_WARN, "%s: %s", twill_strerror(status),
                  context->error.message);
    twill_context_destroy(context);
    return status;
}

void twill_finalize(twill_comm *comm)
{
    if (comm == NULL)
        return;
    twill_context *context = comm->owns_context ? comm->context : NULL;
    twill_comm_destroy(comm);
    twill_context_destroy(context);
}

twill_status twill_comm_grow(struct twill_comm *comm, unsigned char **memory, size_t *held,
                             size_t bytes)
{
    struct twill_memory *pool = comm->context->library_memory;
    if (bytes <= *held)
        return TWILL_OK;
    if (*memory != NULL)
        twill_memory_free(pool, *memory, *held);
    *memory = NULL;
    *held = 0;
    void *grown;
    TWILL_TRY(&comm->error, twill_memory_alloc(pool, &grown, bytes, &comm->error));
    *memory = grown;
    *held = bytes;
    return TWILL_OK;
}

double twill_comm_seconds(const struct twill_comm *comm, uint64_t ticks)
{
    uint64_t ns = twill_now() - comm->ns_at_start, all = twill_ticks() - comm->ticks_at_start;
    return all > 0 ? (double)ticks * (double)ns / (double)all * 1e-9 : 0;
}

void twill_comm_count(const struct twill_comm *comm, twill_counters *counters)
{
    *counters = comm->counters;
    counters->seconds = twill_comm_seconds(comm, comm->ticks);
    for (unsigned t = 0; t < comm->transports; t++) {
        const struct twill_transport *transport = comm->transport[t];
        counters->bytes_copied += transport->counters.copied;
        if (!transport->ops->sleeps_on_bell)
            counters->bytes_wire += transport->counters.bytes + transport->counters.header_bytes;
    }
    counters->memory_fallbacks = twill_context_fallbacks(comm->context);
}
