/* SPDX-License-Identifier: Apache-2.0 */
/* Creates communicators: shared memory on the node, transports between ranks, configuration. */
#include "lib/comm/comm.h"
#include "fabric/rails/rails.h"
#include "lib/api/group.h"
#include "lib/config/log.h"
#include "lib/exec/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *config_setting(const void *settings, const char *variable)
{
    return twill_config_find(settings, variable);
}

static struct twill_transport_params params_of(struct twill_comm *comm)
{
    struct twill_context *context = comm->context;
    const struct twill_config *config = &context->config;
    return (struct twill_transport_params){
        .oob = comm->oob,
        .world = comm->world,
        .comm = comm->number,
        .job = comm->oob->job,
        .node = comm->node,
        .provider = twill_config_text(config, TWILL_VARIABLE_PROVIDER),
        .interface = twill_config_text(config, TWILL_VARIABLE_INTERFACE),
        .topology = context->machine.topology,
        .internode = context->transports.internode,
        .persistent = &context->memory.persistent,
        .log = &context->log,
        .setting = config_setting,
        .settings = config,
    };
}

/* Return the transports that the world needs, as bits. Opening them is collective, so all ranks
 * must come to the same answer: neighbours in node order cover every kind of pair. */
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

/* Warn, on rank 0, if TWILL_PROVIDER or TWILL_RAILS name something that does not exist. On one node
 * they are not used, and the first job on several would fail. May open libfabric. */
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
    if (params.interface != NULL) /* may be a list, of which the first counts */
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

/* Agree on the transport between nodes: once, with the context's own communicator, which has all
 * ranks. */
static twill_status agree_on_between(struct twill_comm *comm, struct twill_transport_params *params)
{
    char why[320];
    if (comm->oob != comm->context->job.oob || comm->world->nodes == 1)
        return TWILL_OK;
    TWILL_TRY(&comm->error, twill_internode_agree(params, why, sizeof(why), &comm->error));
    comm->context->transports.internode = params->internode;
    twill_context_note(comm->context, "between nodes: %s", why);
    return TWILL_OK;
}

/* Limit segments to the transport's best message size in a ring over the nodes, unless
 * TWILL_TUNE=segment_net is set. */
static void suit_segments(struct twill_comm *comm)
{
    const char *source = comm->context->config.source[TWILL_VARIABLE_SEGMENT_NET];
    for (unsigned t = 0; t < comm->links.transports && strcmp(source, "default") == 0; t++) {
        size_t best = comm->links.transport[t]->best_message;
        if (best > 0)
            comm->tuning.segment_net =
                twill_min(comm->tuning.segment_net, best * comm->world->nodes);
    }
}

static twill_status open_transports(struct twill_comm *comm)
{
    struct twill_error *error = &comm->error;
    struct twill_transport_params params = params_of(comm);
    TWILL_TRY(error, agree_on_between(comm, &params));
    uint32_t needed = transports_needed(&params);
    uint8_t place[32] = {0}; /* of registry entry t in comm->links.transport */
    for (size_t t = 0; twill_transport_at(t) != NULL; t++) {
        if (!(needed >> t & 1))
            continue;
        params.common = &comm->context->transports.common[t];
        place[t] = (uint8_t)comm->links.transports;
        TWILL_TRY(error, twill_rails_open(&comm->links.transport[comm->links.transports],
                                          twill_transport_at(t), &params, error));
        comm->links.transports++;
    }
    for (uint32_t r = 0; r < comm->world->size; r++) {
        size_t t = twill_transport_between(&params, comm->rank, r);
        if (r != comm->rank && !(needed >> t & 1))
            return TWILL_FAIL(error, TWILL_ERR_FABRIC, "no transport from %s to %s",
                              TWILL_COMM_RANK_NAME(comm, comm->rank),
                              TWILL_COMM_RANK_NAME(comm, r));
        comm->links.route[r] = place[t];
    }
    suit_segments(comm);
    if (comm->oob != comm->context->job.oob) /* noted with the context's own communicator */
        return TWILL_OK;
    if (params.provider != NULL && comm->world->nodes == 1)
        twill_say(&comm->context->log, TWILL_LOG_INFO,
                  "TWILL_PROVIDER=%s is not used: all ranks are on one node", params.provider);
    check_names(comm);
    for (unsigned t = 0; t < comm->links.transports; t++)
        twill_context_note(comm->context, "transport: %s",
                           comm->links.transport[t]->ops->describe(comm->links.transport[t]));
    twill_comm_note_rails(comm);
    return TWILL_OK;
}

static twill_status open_views(struct twill_comm *comm)
{
    for (uint32_t l = 0; l < comm->local_size; l++)
        TWILL_TRY(&comm->error,
                  twill_heap_view_open(&comm->links.view[l], &comm->context->memory.heap,
                                       comm->job[comm->node->rank[l]], &comm->error));
    return TWILL_OK;
}

/* Probe single-copy access. Noted for the context's own communicator only: others have the same
 * ranks. */
static twill_status open_single_copy(struct twill_comm *comm, const struct twill_comm *parent,
                                     const uint32_t *ranks)
{
    char how[240];
    if (parent != NULL && twill_single_copy_is_known(parent->links.single_copy))
        return twill_single_copy_derive(&comm->links.single_copy, parent->links.single_copy,
                                        parent->world, ranks, comm->world, comm->rank,
                                        &comm->error);
    enum twill_single_copy_kind setting =
        (enum twill_single_copy_kind)comm->context->config.number[TWILL_VARIABLE_REACH];
    TWILL_TRY(&comm->error, twill_single_copy_open(&comm->links.single_copy, comm->oob, comm->world,
                                                   setting, how, sizeof(how), &comm->error));
    if (comm->oob != comm->context->job.oob)
        return TWILL_OK;
    twill_context_note(comm->context, "memory of other ranks: %s", how);
    bool unavailable = setting != TWILL_SINGLE_COPY_AUTO && setting != TWILL_SINGLE_COPY_NONE &&
                       comm->links.single_copy == NULL;
    if (unavailable)
        twill_say(&comm->context->log,
                  twill_log_once(TWILL_LOG_WARN, twill_log_is_first(&comm->context->log)),
                  "TWILL_TUNE=reach=%s: %s",
                  twill_config_text(&comm->context->config, TWILL_VARIABLE_REACH), how);
    return TWILL_OK;
}

static twill_status node_open(struct twill_comm *comm)
{
    uint32_t size = comm->world->size;
    const char *why = NULL;
    uint32_t *label = calloc(size, sizeof(*label));
    if (label == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory");
    for (uint32_t r = 0; r < size; r++)
        label[r] = comm->world->node[r];
    size_t shared = twill_max(comm->tuning.segment, comm->tuning.segment_net);
    struct twill_shm_region_placer placer = twill_context_placer(comm->context);
    twill_status status =
        twill_node_open(&comm->node, comm->oob, label, twill_round_up(shared, 4096),
                        twill_shm_channel_bytes(comm->local_size), &placer, &why, &comm->error);
    free(label);
    if (status == TWILL_OK && why != NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_SYSTEM,
                          "ranks of a node that shared memory before cannot now: %s", why);
    return status;
}

/* Make the world of ranks[] of the parent, with its nodes and levels. */
static twill_status world_make(struct twill_comm *comm, const struct twill_comm *parent,
                               const uint32_t *ranks)
{
    uint32_t size = (uint32_t)comm->oob->size;
    uint32_t *label = calloc(size, sizeof(*label));
    if (label == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory");
    for (uint32_t r = 0; r < size; r++)
        label[r] = parent->world->node[ranks[r]];
    twill_status status = twill_world_create(&comm->own, size, label, &comm->error);
    for (unsigned level = TWILL_LEVEL_COUNT; status == TWILL_OK && level-- > 0;) {
        const uint32_t *unit = parent->world->unit[level];
        if (level == TWILL_LEVEL_NODE || unit == NULL)
            continue;
        for (uint32_t r = 0; r < size; r++)
            label[r] = unit[ranks[r]];
        status = twill_world_set_level(&comm->own, (twill_level)level, label, &comm->error);
    }
    free(label);
    comm->world = &comm->own;
    return status;
}

static twill_status locate_ranks(struct twill_comm *comm, const struct twill_comm *parent,
                                 const uint32_t *ranks)
{
    if (parent != NULL)
        TWILL_TRY(&comm->error, world_make(comm, parent, ranks));
    comm->rank = (uint32_t)comm->oob->rank;
    comm->local = comm->world->local[comm->rank];
    comm->local_size = comm->world->node_size[comm->world->node[comm->rank]];
    comm->job = calloc(comm->world->size, sizeof(*comm->job));
    comm->links.route = calloc(comm->world->size, sizeof(*comm->links.route));
    comm->links.connected = calloc(comm->world->size, sizeof(*comm->links.connected));
    comm->links.view = calloc(comm->local_size, sizeof(*comm->links.view));
    comm->health.reported = calloc(comm->world->size, sizeof(*comm->health.reported));
    if (comm->links.view == NULL || comm->health.reported == NULL || comm->links.route == NULL ||
        comm->links.connected == NULL || comm->job == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory");
    TWILL_TRY(&comm->error, twill_request_open(&comm->issue.blocking, comm));
    TWILL_TRY(&comm->error, twill_request_open(&comm->issue.blocking_point, comm));
    bool same = comm->world->size == comm->context->job.world.size;
    for (uint32_t r = 0; r < comm->world->size; r++) {
        comm->job[r] = parent != NULL ? parent->job[ranks[r]] : r;
        same = same && comm->job[r] == r;
    }
    if (parent != NULL)
        comm->oob->job = same ? NULL : comm->job;
    return TWILL_OK;
}

/* Agree on the communicator's number, the lowest that none of its ranks has used, and make a nonce
 * that is unique in the job: its first rank is in no other communicator of that number. */
static twill_status agree_on_number(struct twill_comm *comm, uint64_t what)
{
    struct number_info {
        uint64_t what, next;
    } mine = {what, comm->context->comms.next_number}, *all;
    uint32_t size = comm->world->size;
    all = calloc(size, sizeof(*all));
    if (all == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory");
    twill_status status = twill_oob_allgather(comm->oob, &mine, all, sizeof(mine), &comm->error);
    uint64_t next = mine.next;
    for (uint32_t r = 0; status == TWILL_OK && r < size; r++) {
        next = all[r].next > next ? all[r].next : next;
        if (all[r].what != what)
            status =
                TWILL_FAIL(&comm->error, TWILL_ERR_MISMATCH,
                           "%s makes a communicator of other ranks", TWILL_COMM_RANK_NAME(comm, r));
    }
    free(all);
    if (status == TWILL_OK && next >= UINT32_MAX)
        status = TWILL_FAIL(&comm->error, TWILL_ERR_UNSUPPORTED,
                            "too many communicators: their numbers are used up");
    TWILL_TRY(&comm->error, status);
    comm->number = (uint32_t)next;
    comm->context->comms.next_number = (uint32_t)next + 1;
    if (comm->oob == comm->context->job.oob)
        return TWILL_OK;
    memcpy(comm->oob->nonce, comm->context->job.oob->nonce, TWILL_NONCE_BYTES);
    for (unsigned i = 0; i < 4; i++) {
        comm->oob->nonce[4 + i] ^= (uint8_t)(comm->number >> 8 * i);
        comm->oob->nonce[8 + i] ^= (uint8_t)(comm->job[0] >> 8 * i);
    }
    return TWILL_OK;
}

/* Return the message size, in bytes, from which stores bypass the caches: SRC and DST of all ranks
 * that share a last-level cache fill three quarters of it. Measured on Sapphire Rapids (2 ranks,
 * 260 MiB of L3), allreduce out of place: from 4 MiB on streaming makes the call 20 % faster, but
 * reading the result afterwards 25 % slower; at 64 MiB reading is 30 % faster, too. */
static size_t stream_from(const struct twill_comm *comm)
{
    size_t asked = (size_t)comm->context->config.number[TWILL_VARIABLE_STREAM];
    const struct twill_machine *machine = twill_topology_machine(comm->context->machine.topology);
    if (asked > 0)
        return asked;
    bool shared = machine->l3_bytes > 0;
    size_t cache = shared ? machine->l3_bytes : machine->l2_bytes;
    size_t sharers = shared ? comm->local_size / twill_max(machine->packages, 1u) : 1;
    return cache > 0 ? cache / 8 * 3 / twill_max(sharers, 1) : (size_t)32 << 20;
}

static void configure(struct twill_comm *comm)
{
    const struct twill_config *config = &comm->context->config;
    int64_t spin = config->number[TWILL_VARIABLE_SPIN];
    comm->tuning.learns = spin < 0;
    comm->traced = twill_log_enabled(&comm->context->log, TWILL_LOG_DEBUG);
    comm->tuning.spin = spin >= 0                    ? (uint32_t)spin
                        : comm->context->job.crowded ? TWILL_SPIN_SHARED
                                                     : TWILL_SPIN_ALONE;
    comm->tuning.timeout_ns = (uint64_t)config->number[TWILL_VARIABLE_TIMEOUT];
    comm->tuning.segment = (size_t)config->number[TWILL_VARIABLE_SEGMENT];
    comm->tuning.segment_net = (size_t)config->number[TWILL_VARIABLE_SEGMENT_NET];
    comm->tuning.threads = (int)config->number[TWILL_VARIABLE_THREADS];
    comm->tuning.reproducible = config->number[TWILL_VARIABLE_REPRODUCIBLE] != 0;
    comm->tuning.stream = stream_from(comm);
    comm->waits.test_wait.suspect = UINT32_MAX;
    comm->waits.ended_at_timeout = UINT64_MAX;
    comm->issue.epoch = TWILL_LINES; /* above 0, the epoch of unused lines */
    comm->issue.arrived = comm->issue.epoch - 1;
    comm->usage.ticks_at_start = twill_ticks();
    comm->usage.ns_at_start = twill_now();
}

/* Ended communicators kept readable, to detect late uses of their handles. */
#define ENDED_KEPT 16u

void twill_comm_close(struct twill_comm *comm)
{
    atomic_store_explicit(&comm->live, TWILL_GONE, memory_order_relaxed);
    struct twill_context *context = comm->context;
    for (unsigned t = 0; t < comm->links.transports; t++)
        comm->links.transport[t]->ops->close(comm->links.transport[t]);
    twill_plans_destroy(comm);
    twill_chooser_destroy(comm->plan_cache.chooser);
    twill_group_destroy(comm);
    twill_requests_destroy(comm);
    twill_single_copy_close(comm->links.single_copy);
    if (comm->node != NULL)
        twill_node_close(comm->node);
    free(comm->links.route);
    free(comm->links.connected);
    free(comm->health.reported);
    for (uint32_t l = 0; comm->links.view != NULL && l < comm->local_size; l++)
        twill_heap_view_close(&comm->links.view[l]);
    free(comm->links.view);
    free(comm->job);
    twill_world_destroy(&comm->own);
    if (comm->oob != context->job.oob)
        twill_oob_close(comm->oob);
    twill_context_lock(context);
    twill_handle_pool_put(&context->comms.ended, comm, sizeof(*comm));
    twill_context_unlock(context);
}

/* Open everything. The last exchange is a barrier: no rank uses the communicator before all have
 * it. No later step can fail: completing that exchange proves that every rank has its communicator.
 */
static twill_status open_members(struct twill_comm *comm, const struct twill_comm *parent,
                                 const uint32_t *ranks, uint64_t what)
{
    uint8_t fine = 1;
    TWILL_TRY(&comm->error, locate_ranks(comm, parent, ranks));
    TWILL_TRY(&comm->error, agree_on_number(comm, what));
    configure(comm);
    TWILL_TRY(&comm->error, node_open(comm));
    TWILL_TRY(&comm->error, open_views(comm));
    TWILL_TRY(&comm->error, open_single_copy(comm, parent, ranks));
    TWILL_TRY(&comm->error, open_transports(comm));
    uint8_t *all = malloc(comm->world->size);
    if (all == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory");
    twill_status status = twill_context_add(comm->context, comm, &comm->error);
    if (status == TWILL_OK) {
        status = twill_oob_allgather(comm->oob, &fine, all, sizeof(fine), &comm->error);
        if (status != TWILL_OK)
            twill_context_remove(comm->context, comm);
    }
    free(all);
    if (status == TWILL_OK)
        twill_log_comm(comm);
    return status;
}

twill_status twill_comm_open(struct twill_comm **made, struct twill_context *context,
                             const struct twill_comm *parent, struct twill_oob *oob,
                             const uint32_t *ranks, uint64_t what, struct twill_error *error)
{
    twill_context_lock(context);
    struct twill_comm *comm =
        twill_handle_pool_get(&context->comms.ended, sizeof(*comm), ENDED_KEPT);
    twill_context_unlock(context);
    if (comm == NULL) {
        if (oob != context->job.oob)
            twill_oob_close(oob);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
    }
    *comm = (struct twill_comm){.context = context, .world = &context->job.world, .oob = oob};
    twill_status status = open_members(comm, parent, ranks, what);
    if (status != TWILL_OK) {
        *error = comm->error;
        twill_comm_close(comm);
        return status;
    }
    atomic_store_explicit(&comm->live, TWILL_LIVE, memory_order_release);
    *made = comm;
    return TWILL_OK;
}

twill_status twill_comm_connect(struct twill_comm *comm, uint32_t peer)
{
    struct twill_transport *link = twill_comm_link(comm, peer);
    if (!comm->links.connected[peer] && link->ops->connect != NULL)
        TWILL_TRY(&comm->error, link->ops->connect(link, peer, &comm->error));
    comm->links.connected[peer] = 1;
    return TWILL_OK;
}

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
    };
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
