/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the transports that a communicator needs, and the one that is used between nodes. */
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/rails/rails.h"
#include "fabric/transports.h"
#include "kernels/kernels.h"
#include "kernels/thread_pool.h"
#include "lib/base/plural.h"
#include "lib/comm/comm_internal.h"
#include "lib/engine/plan.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/job/heap.h"

#include <stdio.h>
#include <string.h>

/* Return the text of a variable in `settings`, a struct twill_config, or NULL if it is not set. */
static const char *config_setting(const void *settings, const char *variable)
{
    return twill_config_find(settings, variable);
}

/* Return whether threads of the pool pay in copies of 1 MiB, as between kernel and user. */
static bool shares_copies(const struct twill_thread_pool *pool)
{
    return twill_pool_threads(pool, 1 << 20, 1 << 20) > 1;
}

/* Return what a transport needs to know of a communicator, whose pointers it borrows. */
static struct twill_transport_params params_of(struct twill_comm *comm)
{
    struct twill_context *context = comm->context;
    const struct twill_config *config = context->config;
    return (struct twill_transport_params){
        .oob = comm->oob,
        .world = comm->world,
        .comm = comm->number,
        .job = comm->oob->job,
        .node = comm->node,
        .single_copy = comm->links.single_copy,
        .provider = twill_config_text(config, TWILL_VARIABLE_PROVIDER),
        .interface = twill_config_text(config, TWILL_VARIABLE_INTERFACE),
        .topology = context->machine.topology,
        .internode = context->transports.internode,
        .persistent = &context->memory->persistent,
        .crc32c = context->machine.kernels->crc32c,
        .pool = shares_copies(comm->tuning.pool) ? comm->tuning.pool : NULL,
        .pool_run = twill_pool_run,
        .piece = comm->tuning.piece,
        .log = &context->log,
        .setting = config_setting,
        .settings = config,
    };
}

/* Return the transports that the world needs, as a bit set of registry indices. As opening them is
 * collective, all ranks must get the same result. It is enough to look at each rank and the next
 * one, node by node. They are pairs of all kinds, within nodes and between them. */
static uint32_t transports_needed(const struct twill_transport_params *params)
{
    const struct twill_world *world = params->world;
    uint32_t needed = 0;
    for (uint32_t i = 0; i < world->size; i++) {
        uint32_t to = world->member[(i + 1) % world->size];
        needed |= 1u << twill_transport_between(params, world->member[i], to);
    }
    return needed;
}

bool twill_comm_transports_meet(struct twill_comm *comm)
{
    struct twill_transport_params params = params_of(comm);
    uint32_t needed = transports_needed(&params);
    for (size_t t = 0; twill_transport_at(t) != NULL; t++)
        if ((needed >> t & 1) && twill_transport_at(t) != &twill_self_transport &&
            twill_transport_at(t) != &twill_shm_transport)
            return true;
    return false;
}

/* On rank 0 of a job on one node, warn if TWILL_PROVIDER or TWILL_RAILS names something that does
 * not exist. It is unused there, but a job on several nodes would fail. May open libfabric. */
static void check_names(struct twill_comm *comm)
{
    struct twill_context *context = comm->context;
    struct twill_oob oob = *context->job.oob;
    struct twill_comm nowhere = {.context = context, .world = &context->job.world, .oob = &oob};
    struct twill_transport_params params = params_of(&nowhere);
    struct twill_error error = {0};
    char why[320], text[320];
    bool listed = twill_rails_are_listed(twill_transport_setting(&params, "TWILL_RAILS"));
    if (comm->rank != 0 || comm->world->nodes > 1 || (params.provider == NULL && !listed))
        return;
    twill_internode_guess(&params, why, sizeof(why));
    const struct twill_transport_ops *ops = params.internode;
    twill_status status = TWILL_OK;
    if (listed && ops != NULL && ops->rails != NULL)
        status = twill_rails_check(ops, &params, &error);
    if (status == TWILL_OK && params.provider != NULL && ops != NULL && ops->preview != NULL)
        status = ops->preview(&params, text, sizeof(text), &error);
    if (status != TWILL_OK)
        twill_say(&context->log, TWILL_LOG_WARN, "%s (all ranks are on one node: not used)",
                  error.message);
}

void twill_context_preview(struct twill_context *context)
{
    struct twill_oob oob = *context->job.oob;
    struct twill_comm nowhere = {.context = context, .world = &context->job.world, .oob = &oob};
    struct twill_transport_params params = params_of(&nowhere);
    struct twill_error unreached = {0};
    if (twill_interface_choose(oob.address, oob.interface, params.interface, NULL, oob.address_why,
                               sizeof(oob.address_why), &unreached) == TWILL_OK)
        twill_context_note(context, "between hosts it would be: %s address %s: %s", oob.interface,
                           oob.address, oob.address_why);
    char why[320], text[320];
    if (params.interface != NULL) /* may be a list, whose first entry counts */
        params.interface = oob.address;
    twill_internode_guess(&params, why, sizeof(why));
    const struct twill_transport_ops *ops = params.internode;
    struct twill_error error = {0};
    if (ops == NULL || ops->preview == NULL)
        return;
    if (ops->preview(&params, text, sizeof(text), &error) != TWILL_OK)
        snprintf(text, sizeof(text), "none: %.150s", error.message);
    twill_context_note(context, "between nodes it would be: %s", text);
    twill_context_note(context, "why that: %s", why);
}

bool twill_comm_chooses_internode(const struct twill_comm *comm)
{
    return comm->oob == comm->context->job.oob && comm->world->nodes > 1;
}

twill_status twill_comm_offer_internode(struct twill_comm *comm,
                                        struct twill_internode_choice *choice,
                                        struct twill_oob_batch *batch)
{
    struct twill_transport_params params = params_of(comm);
    return twill_internode_offer(&params, choice, batch, &comm->error);
}

void twill_comm_conclude_internode(struct twill_comm *comm, struct twill_internode_choice *choice)
{
    char why[320];
    struct twill_transport_params params = params_of(comm);
    twill_internode_conclude(&params, choice, why, sizeof(why));
    comm->context->transports.internode = params.internode;
    twill_context_note(comm->context, "between nodes: %s", why);
}

/* Return where the shared state of transport t of the registry is kept. */
static struct twill_common **place_of_common(struct twill_comm *comm, size_t t)
{
    return comm->alone ? &comm->ends.common[t] : &comm->context->transports.common[t];
}

/* Return where the shared state of the transport between nodes is kept. */
static struct twill_common **internode_common(struct twill_comm *comm)
{
    size_t t = 0;
    while (twill_transport_at(t) != comm->context->transports.internode)
        t++;
    return place_of_common(comm, t);
}

void twill_comm_begin_alone(struct twill_comm *comm)
{
    struct twill_context_transports *transports = &comm->context->transports;
    comm->alone = true;
    pthread_mutex_lock(&transports->alone_lock);
    comm->ends.next = transports->alone;
    transports->alone = &comm->ends;
    pthread_mutex_unlock(&transports->alone_lock);
}

void twill_comm_end_alone(struct twill_comm *comm)
{
    struct twill_context_transports *transports = &comm->context->transports;
    pthread_mutex_lock(&transports->alone_lock);
    struct twill_alone **at = &transports->alone;
    while (*at != &comm->ends)
        at = &(*at)->next;
    *at = comm->ends.next;
    pthread_mutex_unlock(&transports->alone_lock);
    for (size_t t = 0; t < TWILL_TRANSPORTS_MOST; t++)
        if (comm->ends.common[t] != NULL)
            comm->ends.common[t]->close(comm->ends.common[t]);
}

twill_status twill_comm_offer_rails(struct twill_comm *comm, struct twill_rails_opening **opening,
                                    struct twill_oob_batch *batch)
{
    struct twill_transport_params params = params_of(comm);
    const struct twill_transport_ops *ops = params.internode;
    if (ops == NULL || ops->rails == NULL || *internode_common(comm) != NULL)
        return TWILL_OK;
    return twill_rails_offer(opening, ops, &params, batch, &comm->error);
}

twill_status twill_comm_conclude_rails(struct twill_comm *comm,
                                       const struct twill_rails_opening *opening)
{
    struct twill_transport_params params = params_of(comm);
    struct twill_rails_choice *choice;
    if (opening == NULL)
        return TWILL_OK;
    TWILL_TRY(&comm->error, twill_rails_conclude(opening, &params, &choice, &comm->error));
    twill_common_put(internode_common(comm), &choice->common);
    return TWILL_OK;
}

/* Raise segment_net, so that a ring sends messages that occupy threads of a rank, but limit it,
 * so that none is above the transport's best size. Also set segment_exchange. Messages of an
 * alltoall between nodes do not wait for others, so that may be longer (twill_exchange_segment()).
 * If TWILL_TUNE=segment_net is set, both are that. */
static void suit_segments(struct twill_comm *comm)
{
    comm->tuning.segment_exchange = comm->tuning.segment_least = comm->tuning.segment_net;
    if (twill_config_is_set(comm->context->config, TWILL_VARIABLE_SEGMENT_NET))
        return;
    comm->tuning.segment_exchange =
        twill_exchange_segment(comm->tuning.segment_net, comm->world->size);
    size_t usual = comm->tuning.segment_net;
    size_t piece = twill_min(comm->tuning.piece, TWILL_PIECE_NET_MOST);
    comm->tuning.segment_net = twill_piece_segment(usual, piece, comm->world->size);
    for (unsigned t = 0; t < comm->links.transports; t++) {
        size_t best = comm->links.transport[t]->best_message;
        if (best > 0)
            comm->tuning.segment_net =
                twill_min(comm->tuning.segment_net, best * comm->world->nodes);
    }
    comm->tuning.segment_least = twill_min(usual, comm->tuning.segment_net);
}

twill_status twill_comm_open_transports(struct twill_comm *comm)
{
    struct twill_error *error = &comm->error;
    struct twill_transport_params params = params_of(comm);
    uint32_t needed = transports_needed(&params);
    uint8_t place[32] = {0}; /* index in comm->links.transport of registry entry t */
    for (size_t t = 0; twill_transport_at(t) != NULL; t++) {
        if (!(needed >> t & 1))
            continue;
        params.common = place_of_common(comm, t);
        place[t] = (uint8_t)comm->links.transports;
        TWILL_TRY(error, twill_rails_open(&comm->links.transport[comm->links.transports],
                                          twill_transport_at(t), &params, error));
        comm->links.transports++;
    }
    for (uint32_t r = 0; r < comm->world->size; r++) {
        size_t t = twill_transport_between(&params, comm->rank, r);
        if (r != comm->rank && !(needed >> t & 1))
            return TWILL_FAIL(error, TWILL_ERR_FABRIC, "no transport from %s to %s",
                              TWILL_ENGINE_RANK_NAME(&comm->engine, comm->rank),
                              TWILL_ENGINE_RANK_NAME(&comm->engine, r));
        comm->links.route[r] = place[t];
    }
    suit_segments(comm);
    if (comm->oob != comm->context->job.oob) /* only the context's own communicator notes them */
        return TWILL_OK;
    if (params.provider != NULL && comm->world->nodes == 1)
        twill_say(comm->log, twill_log_once(TWILL_LOG_INFO, comm->local == 0),
                  "TWILL_PROVIDER=%s is not used: all ranks are on one node", params.provider);
    check_names(comm);
    for (unsigned t = 0; t < comm->links.transports; t++) {
        struct twill_transport *transport = comm->links.transport[t];
        const char *text = transport->ops->describe(transport);
        if (transport->ops->priority != NULL) /* between nodes: with this rank's address */
            twill_context_note_rank(comm->context, "transport: %s", text);
        else
            twill_context_note(comm->context, "transport: %s", text);
    }
    twill_comm_note_rails(comm);
    return TWILL_OK;
}

/* Return the number of rails of a transport, or 0 if it is not used between nodes. */
static size_t rails_count(const struct twill_transport *transport)
{
    size_t count = 0;
    if (transport->ops->rail == NULL)
        return transport->label != NULL ? 1 : 0;
    while (transport->ops->rail(transport, count) != NULL)
        count++;
    return count;
}

/* Return the communicator's rail number `index`, or NULL past the last one. */
static const struct twill_transport *rail_at(const struct twill_comm *comm, size_t index)
{
    for (unsigned t = 0; t < comm->links.transports; t++) {
        const struct twill_transport *transport = comm->links.transport[t];
        size_t count = rails_count(transport);
        if (index < count)
            return transport->ops->rail != NULL ? transport->ops->rail(transport, index)
                                                : transport;
        index -= count;
    }
    return NULL;
}

/* Return the label of a rail or, if it has none, the description of its transport. */
static const char *rail_name(const struct twill_transport *rail)
{
    return rail->label != NULL ? rail->label : rail->ops->describe(rail);
}

void twill_comm_note_rails(struct twill_comm *comm)
{
    const struct twill_transport *rail;
    for (size_t i = 0; (rail = rail_at(comm, i)) != NULL; i++)
        twill_context_note(comm->context, "rail %zu: %s", i, rail_name(rail));
    for (size_t t = 0; twill_transport_at(t) != NULL; t++) {
        const struct twill_rails_choice *choice =
            (const struct twill_rails_choice *)comm->context->transports.common[t];
        if (twill_transport_at(t)->rails == NULL || choice == NULL)
            continue;
        twill_context_note(comm->context, "rails of this node: %s (%s)", choice->taken,
                           choice->why);
    }
}

const char *twill_comm_rail(twill_comm *comm, size_t index)
{
    const struct twill_transport *rail = twill_comm_is_live(comm) ? rail_at(comm, index) : NULL;
    struct twill_transport_counters count;
    if (rail == NULL)
        return NULL;
    twill_transport_count(rail, &count);
    snprintf(comm->rail_line, sizeof(comm->rail_line),
             "rail %zu: %.96s: %llu message%s, %llu bytes, %llu of headers", index, rail_name(rail),
             (unsigned long long)count.messages, TWILL_PLURAL(count.messages),
             (unsigned long long)count.bytes, (unsigned long long)count.header_bytes);
    return comm->rail_line;
}
