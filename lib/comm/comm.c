/* SPDX-License-Identifier: Apache-2.0 */
/* Creates communicators, with what their ranks agree on, their shared memory and configuration. */
#include "algorithms/world/world.h"
#include "fabric/rails/rails.h"
#include "fabric/shm/node_memory.h"
#include "fabric/shm/single_copy.h"
#include "fabric/transports.h"
#include "lib/base/plural.h"
#include "lib/base/times.h"
#include "lib/comm/comm_internal.h"
#include "lib/engine/spread_ranks.h"
#include "lib/engine/time_split.h"
#include "lib/engine/trace_calls.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/job/find_levels.h"
#include "lib/job/heap.h"
#include "lib/job/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Yields of a wait before it sleeps, in all of some 100 us. One of a rank that shares its core with
 * others takes as many switches as there are ranks, of twice the time each. */
#define YIELDS               200u
#define YIELDS_SHARED(ranks) twill_max(YIELDS / 2 / (ranks), 1)

/* Set up this communicator's views, in comm->links.view[], of the heaps of all ranks of this node,
 * which are mapped already. Returns TWILL_OK or, if out of memory, the error. */
static twill_status open_views(struct twill_comm *comm)
{
    for (uint32_t l = 0; l < comm->local_size; l++)
        TWILL_TRY(&comm->error,
                  twill_heap_view_open(&comm->links.view[l], &comm->context->memory->heap,
                                       comm->job[comm->node->rank[l]], &comm->error));
    return TWILL_OK;
}

/* Make comm->own the world of ranks[] of `parent`, and use it. Returns TWILL_OK or the error. */
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
    comm->own.by_messages = parent->world->by_messages;
    comm->world = &comm->own;
    return status;
}

/* Set which ranks the communicator has and where they are, allocate what it needs for each rank,
 * and open its engine. `parent` may be NULL (twill_comm_open()). Returns TWILL_OK or the error. */
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
    comm->health->reported = calloc(comm->world->size, sizeof(*comm->health->reported));
    if (comm->links.view == NULL || comm->health->reported == NULL || comm->links.route == NULL ||
        comm->links.connected == NULL || comm->job == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory");
    comm->ports = &twill_comm_ports;
    comm->observer = comm->context->observer;
    TWILL_TRY(&comm->error, twill_engine_open(&comm->engine));
    bool same = comm->world->size == comm->context->job.world.size;
    for (uint32_t r = 0; r < comm->world->size; r++) {
        comm->job[r] = parent != NULL ? parent->job[ranks[r]] : r;
        same = same && comm->job[r] == r;
    }
    if (parent != NULL)
        comm->oob->job = same ? NULL : comm->job;
    return TWILL_OK;
}

/* Return the message size, in bytes, from which stores bypass the caches. It is that of
 * TWILL_TUNE=stream, if set. Otherwise, from there on, SRC and DST of all ranks fill three quarters
 * of the last-level caches. It is 32 MiB if their size is not known. */
static size_t stream_from(const struct twill_comm *comm)
{
    size_t asked = (size_t)comm->context->config->number[TWILL_VARIABLE_STREAM];
    const struct twill_machine *machine = twill_topology_machine(comm->context->machine.topology);
    if (asked > 0)
        return asked;
    /* Each rank counts one core's share only, even if other cores are idle, as a virtual machine
     * may share the caches that it reports. Streaming earlier makes the call faster but the first
     * read of its result slower. */
    bool shared = machine->l3_bytes > 0;
    size_t cache = shared ? machine->l3_bytes * machine->l3_caches : (size_t)machine->l2_bytes;
    size_t sharers = shared ? twill_max(comm->local_size, machine->cores) : 1;
    return cache > 0 ? cache / 8 * 3 / sharers : (size_t)32 << 20;
}

const char *twill_comm_timeout_name(const struct twill_comm *comm)
{
    int64_t set = comm->context->config->number[TWILL_VARIABLE_TIMEOUT];
    return comm->tuning.timeout_ns == (uint64_t)set ? "TWILL_TIMEOUT" : "set by the program";
}

/* Return the most ranks that share a core, or 0 if each has its own or there are several nodes. */
static uint32_t sharers(const struct twill_comm *comm)
{
    const struct twill_level_info *level = comm->context->job.level;
    uint32_t most = 0;
    for (uint32_t r = 0; comm->world->nodes == 1 && r < comm->world->size; r++) {
        const struct twill_level_info *one = &level[comm->job[r]];
        uint32_t sharing = 0;
        if (r > 0 && level[comm->job[r - 1]].cpuset_hash == one->cpuset_hash)
            continue; /* ranks that share cores are mostly neighbours */
        for (uint32_t other = 0; other < comm->world->size; other++)
            sharing += level[comm->job[other]].cpuset_hash == one->cpuset_hash;
        if (one->cpus > 0 && sharing > one->cpus)
            most = twill_max(most, (sharing - 1) / one->cpus + 1);
    }
    return most;
}

/* Set agrees, traced, pace, tuning and waits of a communicator from the configuration. A `stripe`
 * has no pool, as the program has a thread for each. */
static void configure(struct twill_comm *comm, bool stripe)
{
    const struct twill_config *config = comm->context->config;
    comm->agrees = config->number[TWILL_VARIABLE_AGREE] != 0;
    int64_t spin = config->number[TWILL_VARIABLE_SPIN];
    uint32_t crowded = comm->context->job.crowded;
    comm->traced = twill_log_enabled(comm->log, TWILL_LOG_DEBUG);
    comm->pace = (struct twill_pace){
        .spins = spin >= 0      ? (uint32_t)spin
                 : crowded != 0 ? TWILL_SPIN_SHARED
                                : TWILL_SPIN_ALONE,
        .yields = crowded != 0 ? YIELDS_SHARED(crowded) : YIELDS,
        .least_ns = TWILL_SLEEP_LEAST_NS,
        .most_ns = TWILL_SLEEP_MOST_NS,
        .learns = spin < 0,
        .crowded = crowded != 0,
        .apart = comm->context->job.apart,
        .ns = twill_now(),
        .ticks = twill_ticks(),
        .share = comm->tuning.share,
    };
    comm->tuning.timeout_ns = (uint64_t)config->number[TWILL_VARIABLE_TIMEOUT];
    comm->tuning.segment = (size_t)config->number[TWILL_VARIABLE_SEGMENT];
    comm->tuning.segment_net = comm->tuning.segment_least =
        (size_t)config->number[TWILL_VARIABLE_SEGMENT_NET];
    comm->tuning.pool = stripe ? NULL : comm->context->machine.pool;
    comm->tuning.piece = stripe ? 0 : comm->context->job.piece;
    comm->tuning.reproducible = config->number[TWILL_VARIABLE_REPRODUCIBLE] != 0;
    comm->tuning.nan.looks = config->number[TWILL_VARIABLE_FIRST_NAN] > 0;
    comm->tuning.nan.fails = config->number[TWILL_VARIABLE_FIRST_NAN] > 1;
    comm->tuning.stream = stream_from(comm);
    comm->tuning.crowded = sharers(comm);
    comm->waits.ended_at_timeout = UINT64_MAX;
}

/* A communicator, with the parts whose types are known only to the files that use them. Taken from
 * the context's pool of handles by create_empty() and returned there by twill_comm_close(). */
struct whole_comm {
    struct twill_comm comm;
    struct twill_comm_health health;
    struct twill_time_split split;
    struct twill_cpu_share share;
};

/* Number of ended communicators that stay readable, to detect late uses of their handles. */
#define ENDED_KEPT 16u
/* Number of those that say which communicator they were, as they keep their pages. */
#define ENDED_WHOLE 256u

void twill_comm_close(struct twill_comm *comm)
{
    atomic_store_explicit(&comm->live, TWILL_GONE, memory_order_relaxed);
    struct twill_context *context = comm->context;
    twill_context_remove(context, comm);
    twill_agree_close(comm);
    twill_growth_close(comm);
    for (unsigned t = 0; t < comm->links.transports; t++)
        comm->links.transport[t]->ops->close(comm->links.transport[t]);
    if (context->comms.observer != NULL)
        context->comms.observer->closed(comm);
    if (comm->alone)
        twill_comm_end_alone(comm);
    twill_engine_close(&comm->engine);
    twill_single_copy_close(comm->links.single_copy);
    if (comm->node != NULL)
        twill_node_close(comm->node);
    free(comm->links.route);
    free(comm->links.connected);
    free(comm->health->reported);
    for (uint32_t l = 0; comm->links.view != NULL && l < comm->local_size; l++)
        twill_heap_view_close(&comm->links.view[l]);
    free(comm->links.view);
    free(comm->job);
    twill_world_destroy(&comm->own);
    if (comm->oob != context->job.oob)
        twill_oob_close(comm->oob);
    twill_context_lock(context);
    twill_handle_pool_put(&context->comms.ended, comm, sizeof(struct whole_comm), ENDED_WHOLE);
    twill_context_unlock(context);
}

/* A communicator that is being opened, on the stack of twill_comm_open(). */
struct opening {
    struct twill_comm *comm;
    struct twill_oob_batch batch;
    const struct twill_comm *parent;       /* or NULL */
    const uint32_t *ranks;                 /* [size] ranks in the parent */
    struct twill_comm_offer own;           /* this rank's */
    struct twill_comm_offer *others;       /* [size] exchanged here, or NULL */
    const struct twill_comm_offer *offers; /* [size] of all ranks */
    uint32_t *label;                       /* [size] node of each rank */
    bool reserved;                         /* twill_context_reserve() is not used yet */
    bool probes;                           /* single-copy access is to be tried */
    char how[240];                         /* how that went, in words */
    bool chooses;                          /* the transport between nodes is to be chosen */
    struct twill_internode_choice choice;
    struct twill_rails_opening *rails; /* NULL if they are known, or if there are none */
};

static enum twill_single_copy_kind single_copy_setting(const struct twill_comm *comm)
{
    return (enum twill_single_copy_kind)comm->context->config->number[TWILL_VARIABLE_REACH];
}

/* Add to an exchange what this rank contributes for node memory of its own, single copy and the
 * transport between nodes. Returns TWILL_OK or the error, which also goes to the other
 * ranks. Sizes do not depend on ranks[], as this exchange is what finds that ranks[] differ. */
static twill_status offer_members(struct opening *o, struct twill_oob_batch *batch)
{
    struct twill_comm *comm = o->comm;
    uint32_t size = comm->world->size;
    bool known = o->parent != NULL && twill_single_copy_is_known(o->parent->links.single_copy);
    o->label = calloc(size, sizeof(*o->label));
    twill_status status = twill_node_offer(&comm->node, comm->oob, batch, &comm->error);
    o->probes = !known && twill_single_copy_applies(comm->world, single_copy_setting(comm), o->how,
                                                    sizeof(o->how));
    if (!o->probes || status != TWILL_OK)
        twill_oob_batch_add(batch, NULL, NULL, sizeof(struct twill_single_copy_info));
    else
        status = twill_single_copy_offer(&comm->links.single_copy, comm->rank, comm->world,
                                         single_copy_setting(comm), batch, &comm->error);
    if (known && status == TWILL_OK)
        status = twill_single_copy_derive(&comm->links.single_copy, o->parent->links.single_copy,
                                          o->parent->world, o->ranks, comm->world, comm->rank,
                                          &comm->error);
    o->chooses = twill_comm_chooses_internode(comm);
    if (o->chooses) {
        twill_status offers = twill_comm_offer_internode(comm, &o->choice, batch);
        status = status != TWILL_OK ? status : offers;
    }
    if (status == TWILL_OK && o->label == NULL)
        status = TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory");
    return status;
}

/* Unless the caller has them, exchange what the ranks offer, and for the context's communicator
 * also what offer_members() adds. Returns TWILL_OK or the error. */
static twill_status exchange_offers(struct opening *o)
{
    struct twill_comm *comm = o->comm;
    if (o->offers != NULL)
        return TWILL_OK;
    uint64_t what = o->own.what;
    o->own = twill_comm_offer(comm->context, o->parent);
    o->own.what = what;
    o->offers = o->others = calloc(comm->world->size, sizeof(*o->others));
    twill_oob_batch_add(&o->batch, &o->own, o->others, sizeof(o->own));
    twill_status status = o->parent == NULL ? offer_members(o, &o->batch) : TWILL_OK;
    if (status == TWILL_OK && o->others == NULL)
        status = TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory");
    return twill_oob_batch_exchange(&o->batch, status, &comm->error);
}

/* Set the communicator's number to the lowest that none of its ranks has used. Returns TWILL_OK,
 * TWILL_ERR_MISMATCH if ranks name different members, or TWILL_ERR_UNSUPPORTED if all numbers are
 * used. */
static twill_status take_number(struct opening *o)
{
    struct twill_comm *comm = o->comm;
    uint64_t next = 0;
    for (uint32_t r = 0; r < comm->world->size; r++) {
        next = twill_max(next, o->offers[r].next);
        if (o->offers[r].what != o->own.what)
            return TWILL_FAIL(&comm->error, TWILL_ERR_MISMATCH,
                              "%s makes a communicator with other ranks",
                              TWILL_ENGINE_RANK_NAME(&comm->engine, r));
    }
    if (next >= UINT32_MAX)
        return TWILL_FAIL(&comm->error, TWILL_ERR_UNSUPPORTED,
                          "too many communicators: all numbers are used");
    comm->number = (uint32_t)next;
    twill_context_lock(comm->context);
    comm->context->comms.next_number = /* another thread may have made a later one */
        twill_max(comm->context->comms.next_number, (uint32_t)next + 1);
    twill_context_unlock(comm->context);
    return TWILL_OK;
}

/* Return the owner of the node memory (job, rank, program), for readers outside the job. */
static struct twill_node_owner owner_of(const struct twill_comm *comm)
{
    struct twill_node_owner owner = {
        .job = comm->context->job.id,
        .ticks = comm->usage.ticks_at_start,
        .ns = comm->usage.ns_at_start,
        .number = comm->number,
        .rank = comm->rank,
        .size = comm->world->size,
        .root = comm->job[0],
        .job_rank = comm->job[comm->rank],
        .job_size = (uint32_t)comm->context->job.oob->size,
    };
    snprintf(owner.program, sizeof(owner.program), "%s", program_invocation_short_name);
    return owner;
}

/* Return whether this is a communicator of twill_comm_dup_stripe(). */
static bool is_stripe(const struct opening *o)
{
    return o->parent != NULL && o->parent->makes_stripes > 0;
}

/* Return the bytes of one copy of SHARED in a communicator made out of `parent`, or NULL. A stripe
 * of a message needs its part of that, but at least a segment on one node. */
static size_t shared_bytes(const struct twill_context *context, const struct twill_comm *parent)
{
    size_t whole = twill_context_shared_bytes(context),
           least = (size_t)context->config->number[TWILL_VARIABLE_SEGMENT];
    if (parent == NULL || parent->makes_stripes == 0)
        return whole;
    return twill_round_up(twill_max(least, whole / parent->makes_stripes), 4096);
}

struct twill_comm_offer twill_comm_offer(struct twill_context *context,
                                         const struct twill_comm *parent)
{
    twill_context_lock(context);
    struct twill_comm_offer offer = {.next = context->comms.next_number};
    for (size_t i = 0; parent == NULL && i < context->comms.opened; i++)
        offer.has_room = offer.has_room || context->comms.open[i]->node->room != NULL;
    twill_context_unlock(context);
    if (parent != NULL && parent->node->room != NULL)
        offer.place = twill_room_take(
            parent->node->room, twill_node_part_bytes(shared_bytes(context, parent),
                                                      twill_shm_pair_bytes(), parent->local_size));
    return offer;
}

void twill_comm_settle(const struct twill_comm *parent, const struct twill_comm *made,
                       const struct twill_room_place *place, bool known,
                       const struct twill_error *error)
{
    struct twill_room *room = parent->node->room;
    bool used = made != NULL && made->node->room != NULL;
    if (used || room == NULL || !twill_room_holds(room, place))
        return;
    if (known)
        twill_node_refuse(parent->node, place, error->status, error->message);
    else
        twill_room_give(room, place, true);
}

/* Prepare the second exchange: share the node memory, try single-copy access, and add the rails of
 * this rank. Returns TWILL_OK or the error, which also goes to the other ranks. */
static twill_status attach_members(struct opening *o)
{
    struct twill_comm *comm = o->comm;
    for (uint32_t r = 0; r < comm->world->size; r++)
        o->label[r] = comm->world->node[r];
    struct twill_shm_region_placer placer = twill_context_placer(comm->context);
    struct twill_node_owner owner = owner_of(comm);
    bool reserves = o->parent == NULL; /* one room for a context, as it takes much address space */
    for (uint32_t r = 0; r < comm->world->size; r++)
        reserves = reserves && !o->offers[r].has_room;
    if (reserves)
        twill_node_reserve(comm->node, comm->context->job.room);
    twill_status status =
        twill_node_attach(comm->node, comm->oob, o->label, shared_bytes(comm->context, o->parent),
                          twill_shm_pair_bytes(), &placer, &o->batch, &comm->error);
    if (status == TWILL_OK)
        twill_node_introduce(comm->node, comm->oob, &owner);
    if (o->probes)
        twill_single_copy_probe(comm->links.single_copy, comm->rank, comm->world, &o->batch);
    if (o->chooses) {
        twill_status rails = twill_comm_offer_rails(comm, &o->rails, &o->batch);
        status = status != TWILL_OK ? status : rails;
    }
    return status;
}

/* In the context's notes, say whether single copy works, and warn if the kind that TWILL_TUNE=reach
 * asks for does not. Do so only for the context's own communicator, which has all ranks. */
static void note_single_copy(const struct opening *o)
{
    struct twill_context *context = o->comm->context;
    enum twill_single_copy_kind setting = single_copy_setting(o->comm);
    if (o->comm->oob != context->job.oob)
        return;
    twill_context_note(context, "memory of other ranks: %s", o->how);
    bool unavailable = setting != TWILL_SINGLE_COPY_AUTO && setting != TWILL_SINGLE_COPY_NONE &&
                       o->comm->links.single_copy == NULL;
    if (unavailable)
        twill_say(&context->log, twill_log_once(TWILL_LOG_WARN, twill_log_is_first(&context->log)),
                  "TWILL_TUNE=reach=%s: %s",
                  twill_config_text(context->config, TWILL_VARIABLE_REACH), o->how);
}

/* Complete the node memory, single copy and the views of heaps by what the ranks have said in the
 * second exchange. Returns TWILL_OK, or the error if a part that must work does not. */
static twill_status conclude_members(struct opening *o)
{
    struct twill_comm *comm = o->comm;
    const char *why = NULL;
    TWILL_TRY(&comm->error,
              twill_node_conclude(comm->node, comm->oob, o->label, &why, &comm->error));
    if (why != NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_SYSTEM,
                          "ranks of a node shared memory before, but cannot now: %s", why);
    const struct twill_machine *machine = twill_topology_machine(comm->context->machine.topology);
    if (comm->node->room != NULL && machine->is_this_machine && machine->numa_nodes > 1)
        twill_room_near(comm->node->room, twill_machine_own_node(machine));
    twill_staging_recall(&comm->engine);
    if (o->probes)
        twill_single_copy_conclude(&comm->links.single_copy, comm->rank, comm->world, o->how,
                                   sizeof(o->how));
    note_single_copy(o);
    twill_trace_open(&comm->engine, o->parent == NULL);
    return open_views(comm);
}

/* Log a communicator that is complete. At level info, once a node, that is its size, its levels and
 * where this rank is. At level debug it is the number of its exchanges and its transports. For the
 * communicator of all ranks, also log the notes of the context. */
static void log_comm(const struct twill_comm *comm)
{
    const struct twill_log *log = comm->log;
    char levels[160];
    if (!twill_log_enabled(log, TWILL_LOG_INFO))
        return;
    if (comm->oob == comm->context->job.oob) /* only this one adds notes */
        twill_log_notes(comm->context);
    (void)twill_world_summarize(comm->world, levels, sizeof(levels));
    twill_say(log, twill_log_once(TWILL_LOG_INFO, comm->local == 0),
              "communicator %u: %u rank%s: %s; here rank %u, %u of %u on node %u", comm->number,
              comm->world->size, TWILL_PLURAL(comm->world->size), levels, comm->rank, comm->local,
              comm->local_size, comm->world->node[comm->rank]);
    twill_say(log, TWILL_LOG_DEBUG, "communicator %u: exchanges of set-up so far: %u", comm->number,
              comm->oob->rounds);
    for (unsigned t = 0; t < comm->links.transports; t++)
        twill_say(log, TWILL_LOG_DEBUG, "communicator %u: transport: %s", comm->number,
                  comm->links.transport[t]->ops->describe(comm->links.transport[t]));
}

/* Return whether all ranks have a place in the room of the parent. */
static bool all_have_places(const struct opening *o)
{
    bool all = o->parent != NULL;
    for (uint32_t r = 0; all && r < o->comm->world->size; r++)
        all = o->offers[r].place.at > 0;
    return all;
}

/* Prepare what can fail on this rank alone, before the exchange after which all ranks have the
 * communicator. Returns TWILL_OK or the error. */
static twill_status prepare_members(struct opening *o)
{
    struct twill_comm *comm = o->comm;
    const struct twill_comm *parent = o->parent;
    TWILL_TRY(&comm->error, locate_ranks(comm, parent, o->ranks));
    TWILL_TRY(&comm->error, twill_context_reserve(comm->context, &comm->error));
    o->reserved = true;
    if (parent == NULL || parent->node->room == NULL)
        return TWILL_OK;
    TWILL_TRY(&comm->error,
              twill_node_share(&comm->node, parent->node, comm->local_size, comm->local,
                               shared_bytes(comm->context, parent), &comm->error));
    if (!twill_single_copy_is_known(parent->links.single_copy))
        return TWILL_OK;
    return twill_single_copy_derive(&comm->links.single_copy, parent->links.single_copy,
                                    parent->world, o->ranks, comm->world, comm->rank, &comm->error);
}

/* Open single copy between the ranks of a communicator whose parent does not say what works, as it
 * has none or maps memory (xpmem), by two exchanges. Returns TWILL_OK or the error. */
static twill_status probe_single_copy(struct opening *o)
{
    struct twill_comm *comm = o->comm;
    twill_status status =
        twill_single_copy_offer(&comm->links.single_copy, comm->rank, comm->world,
                                single_copy_setting(comm), &o->batch, &comm->error);
    TWILL_TRY(&comm->error, twill_oob_batch_exchange(&o->batch, status, &comm->error));
    twill_single_copy_probe(comm->links.single_copy, comm->rank, comm->world, &o->batch);
    TWILL_TRY(&comm->error, twill_oob_batch_exchange(&o->batch, TWILL_OK, &comm->error));
    twill_single_copy_conclude(&comm->links.single_copy, comm->rank, comm->world, o->how,
                               sizeof(o->how));
    return TWILL_OK;
}

/* Find the node memory in the rooms of the parent's region, without communication, and open single
 * copy. Returns TWILL_OK or the error. */
static twill_status share_members(struct opening *o)
{
    struct twill_comm *comm = o->comm;
    const struct twill_comm *parent = o->parent;
    const struct twill_world *world = comm->world;
    const uint32_t *in_region = parent->node->in_region;
    size_t bytes =
        twill_node_part_bytes(comm->node->shared_bytes, comm->node->pair_bytes, comm->node->size);
    for (uint32_t r = 0; r < world->size; r++)
        if (world->node[r] == world->node[comm->rank] &&
            !twill_room_open(parent->node->room, in_region[parent->world->local[o->ranks[r]]],
                             &o->offers[r].place, bytes))
            return TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY,
                              "no access to the memory that %s shares",
                              TWILL_ENGINE_RANK_NAME(&comm->engine, r));
    for (uint32_t r = 0; r < world->size; r++)
        if (world->node[r] == world->node[comm->rank])
            twill_node_find(comm->node, parent->node, world->local[r], r,
                            in_region[parent->world->local[o->ranks[r]]], &o->offers[r].place);
    bool probes =
        !twill_single_copy_is_known(parent->links.single_copy) &&
        twill_single_copy_applies(world, single_copy_setting(comm), o->how, sizeof(o->how));
    return probes ? probe_single_copy(o) : TWILL_OK;
}

/* Open node memory that is not in the parent's room, by exchanges. Returns TWILL_OK or the error.
 */
static twill_status open_own(struct opening *o)
{
    struct twill_comm *comm = o->comm;
    struct twill_error *error = &comm->error;
    if (o->parent != NULL) {
        twill_node_close(comm->node); /* of prepare_members() */
        twill_single_copy_close(comm->links.single_copy);
        comm->node = NULL;
        comm->links.single_copy = NULL;
        TWILL_TRY(error, twill_oob_batch_exchange(&o->batch, offer_members(o, &o->batch), error));
    }
    if (o->chooses)
        twill_comm_conclude_internode(comm, &o->choice);
    TWILL_TRY(error, twill_oob_batch_exchange(&o->batch, attach_members(o), error));
    TWILL_TRY(error, conclude_members(o));
    TWILL_TRY(error, twill_comm_conclude_rails(comm, o->rails));
    comm->woken = true;
    return twill_comm_open_transports(comm);
}

/* Open what an idle communicator lacks, with node memory of share_members(). Returns TWILL_OK or
 * the error. Waits for other ranks only if it has several nodes. */
static twill_status open_shared(struct twill_comm *comm)
{
    struct twill_shm_region_placer placer = twill_context_placer(comm->context);
    struct twill_node_owner owner = owner_of(comm);
    twill_node_use(comm->node, &placer, &owner);
    twill_staging_recall(&comm->engine);
    twill_trace_open(&comm->engine, false);
    twill_status status = open_views(comm);
    if (status == TWILL_OK)
        status = twill_comm_open_transports(comm);
    comm->woken = true;
    return status;
}

void twill_comm_wake(struct twill_comm *comm)
{
    uint32_t idle = TWILL_IDLE;
    twill_status status = TWILL_OK;
    if (!comm->woken)
        status = open_shared(comm);
    else if (twill_node_suspended_here(comm->node))
        twill_node_resume(comm->node);
    (void)atomic_compare_exchange_strong(&comm->live, &idle, TWILL_LIVE);
    if (status != TWILL_OK)
        (void)twill_comm_fail(comm, status, TWILL_CAUSE_KNOWN);
}

/* Open everything. The communicator of the context, and one without a place in its parent's room,
 * take three exchanges, besides those of transports. The others take one, or none if the caller has
 * made that. If transports exchange something, there is a barrier at the end, so that no rank's
 * notice arrives before all others are ready. Returns TWILL_OK or the error. */
static twill_status open_members(struct opening *o)
{
    struct twill_comm *comm = o->comm;
    struct twill_error *error = &comm->error;
    const struct twill_comm_observer *observer = comm->context->comms.observer;
    if (observer != NULL)
        TWILL_TRY(error, observer->opening(comm->context, error));
    TWILL_TRY(error, prepare_members(o));
    TWILL_TRY(error, exchange_offers(o));
    configure(comm, is_stripe(o));
    TWILL_TRY(error, take_number(o));
    bool shares = all_have_places(o);
    TWILL_TRY(error, shares ? share_members(o) : open_own(o));
    if (!is_stripe(o)) /* the program places its threads */
        twill_spread_prepare(&comm->engine);
    if (shares && twill_comm_transports_meet(comm))
        TWILL_TRY(error, open_shared(comm));
    twill_context_add(comm->context, comm);
    o->reserved = false;
    twill_status status =
        comm->woken ? twill_oob_batch_exchange(&o->batch, TWILL_OK, error) : TWILL_OK;
    if (status == TWILL_OK)
        log_comm(comm);
    else
        (void)twill_comm_fail(comm, status, TWILL_CAUSE_KNOWN);
    return status;
}

/* Return a communicator that is zero except for pointers, or NULL if out of memory. They point to
 * the context, to what the context owns and lends (log, kernels, fork guard), to `oob`, and to the
 * communicator's own further parts. twill_comm_close() frees it. */
static struct twill_comm *create_empty(struct twill_context *context, struct twill_oob *oob)
{
    twill_context_lock(context);
    struct whole_comm *whole =
        twill_handle_pool_get(&context->comms.ended, sizeof(*whole), ENDED_KEPT);
    twill_context_unlock(context);
    if (whole == NULL)
        return NULL;
    *whole = (struct whole_comm){.comm = {.context = context,
                                          .world = &context->job.world,
                                          .oob = oob,
                                          .log = &context->log,
                                          .kernels = context->machine.kernels,
                                          .fork_guard = context->fork_guard,
                                          .health = &whole->health,
                                          .split = &whole->split,
                                          .tuning.share = &whole->share}};
    return &whole->comm;
}

twill_status twill_comm_open(struct twill_comm **made, struct twill_context *context,
                             const struct twill_comm *parent, struct twill_oob *oob,
                             const uint32_t *ranks, const struct twill_comm_offer *offers,
                             uint64_t what, struct twill_error *error)
{
    struct twill_comm *comm = create_empty(context, oob);
    if (comm == NULL) {
        if (oob != context->job.oob)
            twill_oob_close(oob);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
    }
    struct opening o = {.comm = comm,
                        .batch = {.oob = oob},
                        .parent = parent,
                        .ranks = ranks,
                        .own = {.what = what},
                        .offers = offers};
    if (parent != NULL && parent->makes_alone)
        twill_comm_begin_alone(comm);
    twill_status status = open_members(&o);
    if (parent != NULL)
        comm->tuning.timeout_ns = parent->tuning.timeout_ns;
    if (o.reserved)
        twill_context_unreserve(context);
    free(o.others);
    free(o.label);
    free(o.choice.all);
    twill_rails_opening_end(o.rails);
    if (status != TWILL_OK) {
        *error = comm->error;
        if (parent != NULL && comm->node != NULL && comm->node->room != NULL)
            twill_node_abort(comm->node, status, comm->rank, 0, error->message);
        twill_comm_close(comm);
    }
    if (offers == NULL && parent != NULL)
        twill_comm_settle(parent, status == TWILL_OK ? comm : NULL, &o.own.place,
                          status != TWILL_OK, error);
    if (status != TWILL_OK)
        return status;
    atomic_store_explicit(&comm->live, comm->woken ? TWILL_LIVE : TWILL_IDLE, memory_order_release);
    if (context->comms.observer != NULL)
        context->comms.observer->opened(comm);
    *made = comm;
    return TWILL_OK;
}
