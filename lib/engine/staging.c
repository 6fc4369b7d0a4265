/* SPDX-License-Identifier: Apache-2.0 */
/* How data is copied into SHARED, either into the caches or past them. Stores into the caches are
 * faster if writer and readers share a cache. Otherwise each line must be taken back from the
 * reader before it is written again. On a virtual machine nothing tells these cases apart, and its
 * cores may even move between caches, so twill measures.
 *
 * A communicator tries both from time to time. It counts its segments, and copies those of a trial
 * in groups of TWILL_STAGING_GROUP, alternately cached and streamed. Each rank sums the ticks that
 * it spends copying (not waiting) in the last segments of a group, when all copies of SHARED have
 * been used in this way. It publishes the least sum of each way in node memory. Until the next
 * trial it then stores in the way whose slowest rank was faster. All ranks count the same segments,
 * so they try the same way at the same time. They need not decide the same for equal results.
 *
 * The context keeps the costs. A later communicator of the same ranks of the node starts with them
 * instead of its first trial, if all these ranks have costs.
 *
 * Broadcasts and similar calls, where one rank writes and others read, are tried separately from
 * exchanges. Reductions are always cached, as they write results where the operands were read. */
#include "fabric/shm/node_memory.h"
#include "lib/engine/engine_internal.h"
#include "lib/job/config.h"
#include "lib/job/context.h"

#include <stdlib.h>
#include <string.h>

/* Bytes from which a segment counts. Smaller ones stay in the first-level cache. */
#define STAGING_LEAST ((size_t)16 << 10)
#define COST_UNIT     ((size_t)64 << 10)
/* Streamed stores must take less than 15/16 of the time of cached ones. */
#define STAGING_GAIN 16u
/* Segments after a trial during which ranks publish their costs. */
#define STAGING_SETTLES 64u
enum { WAY_CACHED, WAY_STREAMED };
/* Values of TWILL_TUNE=staging. */
enum { SET_AUTO, SET_CACHED, SET_STREAMED };

bool twill_staging_applies(const struct twill_request *run, size_t elements)
{
    const struct twill_schedule *s = &run->plan->schedule;
    return s->shared_blocks > 0 && !run->call.vector &&
           !twill_collective_facts(run->call.collective)->reduces &&
           elements * run->layout.element * s->shards >= STAGING_LEAST;
}

/* Set worst[] to the highest costs of cached and of streamed stores that ranks of the node have
 * published for this kind of copies. Returns whether all ranks have published both. */
static bool read_costs(const struct twill_engine *engine, enum twill_staging_kind kind,
                       uint32_t worst[2])
{
    bool all = true;
    worst[WAY_CACHED] = worst[WAY_STREAMED] = 0;
    for (uint32_t l = 0; l < engine->local_size; l++)
        for (unsigned way = WAY_CACHED; way <= WAY_STREAMED; way++) {
            uint32_t cost = twill_node_staging_cost(engine->node, l, kind, way);
            all &= cost > 0;
            worst[way] = twill_max(worst[way], cost);
        }
    return all;
}

bool twill_staging_decide(const struct twill_engine *engine, enum twill_staging_kind kind)
{
    uint32_t worst[2];
    (void)read_costs(engine, kind, worst);
    return worst[WAY_STREAMED] > 0 &&
           worst[WAY_STREAMED] < worst[WAY_CACHED] - worst[WAY_CACHED] / STAGING_GAIN;
}

/* Return a hash of the ranks of the node that does not depend on their order and is never 0. */
static uint64_t hash_of_local_ranks(const struct twill_engine *engine)
{
    uint64_t sum = 0;
    for (uint32_t l = 0; l < engine->local_size; l++)
        sum += twill_hash_mix(1, engine->job[engine->node->rank[l]]);
    return twill_max(sum, UINT64_C(1));
}

/* The costs that a context keeps for one set of ranks of a node (struct twill_staging). */
struct known {
    uint64_t ranks;                        /* hash of the ranks of the node, or 0 if unused */
    uint32_t cost[TWILL_STAGING_KINDS][2]; /* 0 if unknown */
};

/* Measurements of a context's communicators, under its lock. Made at first use, freed with it. */
struct twill_context_staging {
    struct known known[8];
    unsigned next; /* place of the next set of ranks, modulo 8 */
};

/* Return the entry with the costs of `ranks`, or the one to replace. The context is locked. */
static struct known *find_known(struct twill_context_staging *known, uint64_t ranks)
{
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(known->known); i++)
        if (known->known[i].ranks == ranks)
            return &known->known[i];
    return &known->known[known->next % TWILL_ARRAY_LENGTH(known->known)];
}

void twill_staging_recall(struct twill_engine *engine)
{
    struct twill_context *context = engine->context;
    uint64_t ranks = hash_of_local_ranks(engine);
    struct known known = {.ranks = 0};
    twill_context_lock(context);
    if (context->comms.staging == NULL) /* without memory, nothing is kept */
        context->comms.staging = calloc(1, sizeof(*context->comms.staging));
    if (context->comms.staging != NULL)
        known = *find_known(context->comms.staging, ranks);
    twill_context_unlock(context);
    for (unsigned kind = 0; known.ranks == ranks && kind < TWILL_STAGING_KINDS; kind++)
        for (unsigned way = WAY_CACHED; way <= WAY_STREAMED; way++)
            twill_node_put_staging_cost(engine->node, kind, way, known.cost[kind][way]);
}

/* Keep in the context, for later communicators, the costs of cached and of streamed stores for one
 * kind of copies. Both costs must be known. If the context has no memory for them, do nothing. */
static void remember_costs(struct twill_engine *engine, enum twill_staging_kind kind)
{
    struct twill_context *context = engine->context;
    uint64_t ranks = hash_of_local_ranks(engine);
    twill_context_lock(context);
    struct known *known =
        context->comms.staging != NULL ? find_known(context->comms.staging, ranks) : NULL;
    if (known != NULL && known->ranks != ranks) {
        *known = (struct known){.ranks = ranks};
        context->comms.staging->next++;
    }
    if (known != NULL)
        memcpy(known->cost[kind], engine->staging[kind].cost, sizeof(known->cost[kind]));
    twill_context_unlock(context);
}

void twill_staging_begin(struct twill_request *run, struct twill_instance *instance)
{
    struct twill_engine *engine = run->engine;
    instance->streams = instance->is_measured = false;
    if (TWILL_LIKELY(!twill_staging_applies(run, instance->length)))
        return;
    enum twill_staging_kind kind =
        run->plan->schedule.eager ? TWILL_STAGING_ONE_WAY : TWILL_STAGING_EXCHANGE;
    struct twill_staging *staging = &engine->staging[kind];
    uint32_t trial = TWILL_STAGING_GROUP * TWILL_STAGING_GROUPS, worst[2];
    /* No rank publishes both costs of a trial before all have begun its first segment. */
    if (staging->begun == 0 && read_costs(engine, kind, worst))
        staging->begun = trial;
    uint32_t number = staging->begun++ % TWILL_STAGING_PERIOD;
    instance->staging = kind;
    int64_t setting = engine->context->config->number[TWILL_VARIABLE_STAGING];
    if (setting != SET_AUTO) {
        instance->streams = setting == SET_STREAMED;
        return;
    }
    if (number == 0)
        staging->cost[WAY_CACHED] = staging->cost[WAY_STREAMED] = 0;
    if (number < trial) {
        instance->streams = number / TWILL_STAGING_GROUP % 2 == WAY_STREAMED;
        instance->is_measured =
            number % TWILL_STAGING_GROUP >= TWILL_STAGING_GROUP - TWILL_STAGING_MEASURED;
        return;
    }
    if (number < trial + STAGING_SETTLES)
        staging->streams = twill_staging_decide(engine, kind);
    instance->streams = staging->streams;
}

void twill_staging_add(struct twill_request *run, const struct twill_instance *instance,
                       uint64_t ticks)
{
    run->engine->staging[instance->staging].ticks += ticks;
}

void twill_staging_end(struct twill_request *run, const struct twill_instance *instance)
{
    struct twill_engine *engine = run->engine;
    struct twill_staging *staging = &engine->staging[instance->staging];
    staging->bytes += instance->length * run->layout.element * run->plan->schedule.shards;
    if (++staging->ended < TWILL_STAGING_MEASURED)
        return;
    uint64_t cost = 1 + staging->ticks * COST_UNIT / staging->bytes;
    uint32_t *least = &staging->cost[instance->streams ? WAY_STREAMED : WAY_CACHED];
    if (*least == 0 || cost < *least)
        *least = (uint32_t)twill_min(cost, UINT32_MAX);
    for (unsigned way = WAY_CACHED; way <= WAY_STREAMED; way++)
        twill_node_put_staging_cost(engine->node, instance->staging, way, staging->cost[way]);
    if (staging->cost[WAY_CACHED] > 0 && staging->cost[WAY_STREAMED] > 0)
        remember_costs(engine, instance->staging);
    staging->ticks = staging->bytes = 0;
    staging->ended = 0;
}
