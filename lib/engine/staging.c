/* SPDX-License-Identifier: Apache-2.0 */
/* Trials of cached and streamed stores into SHARED: see staging.h. */
#include "lib/engine/staging.h"
#include "lib/comm/comm.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of a segment from which it counts: smaller ones stay in the first-level cache. */
#define STAGING_LEAST ((size_t)16 << 10)
#define COST_UNIT     ((size_t)64 << 10)
/* Streamed stores must take less than 15/16 of the time of cached ones. */
#define STAGING_GAIN 16u
/* Segments after a trial in which ranks publish their costs. */
#define STAGING_SETTLES 64u

enum { WAY_CACHED, WAY_STREAMED };
/* TWILL_TUNE=staging, in the order of its choices. */
enum { SET_AUTO, SET_CACHED, SET_STREAMED };

static size_t segment_bytes_of(const struct twill_run *run, const struct twill_instance *instance)
{
    return instance->length * run->layout.element * run->plan->schedule.shards;
}

bool twill_staging_applies(const struct twill_run *run, size_t elements)
{
    const struct twill_schedule *s = &run->plan->schedule;
    return s->shared_blocks > 0 && !run->call.vector &&
           !twill_collective_facts(run->call.collective)->reduces &&
           elements * run->layout.element * s->shards >= STAGING_LEAST;
}

bool twill_staging_decide(const struct twill_comm *comm, enum twill_staging_kind kind)
{
    uint32_t worst[2] = {0, 0};
    for (uint32_t l = 0; l < comm->local_size; l++)
        for (unsigned way = WAY_CACHED; way <= WAY_STREAMED; way++)
            worst[way] = twill_max(worst[way], twill_node_staging_cost(comm->node, l, kind, way));
    return worst[WAY_STREAMED] > 0 &&
           worst[WAY_STREAMED] < worst[WAY_CACHED] - worst[WAY_CACHED] / STAGING_GAIN;
}

/* Return a hash of the ranks of the node, which is the same in any order and never 0. */
static uint64_t hash_of_local_ranks(const struct twill_comm *comm)
{
    uint64_t sum = 0;
    for (uint32_t l = 0; l < comm->local_size; l++)
        sum += twill_hash_mix(1, comm->job[comm->node->rank[l]]);
    return twill_max(sum, UINT64_C(1));
}

/* Costs that the context keeps, as of struct twill_staging. */
struct known {
    uint64_t ranks; /* hash of the ranks of the node, in any order; 0: unused */
    uint32_t cost[TWILL_STAGING_KINDS][2];
};

/* What communicators have measured; under the context's lock. */
struct twill_context_staging {
    struct known known[8];
    unsigned next; /* place of the next set of ranks, modulo 8 */
};

/* Return where the context keeps the costs of some ranks, or the unused or oldest place if it has
 * none of them. Under the context's lock. */
static struct known *find_known(struct twill_context_staging *known, uint64_t ranks)
{
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(known->known); i++)
        if (known->known[i].ranks == ranks)
            return &known->known[i];
    return &known->known[known->next % TWILL_ARRAY_LENGTH(known->known)];
}

void twill_staging_recall(struct twill_comm *comm)
{
    struct twill_context *context = comm->context;
    uint64_t ranks = hash_of_local_ranks(comm);
    struct known known = {.ranks = 0};
    twill_context_lock(context);
    if (context->comms.staging == NULL) /* without memory nothing is kept */
        context->comms.staging = calloc(1, sizeof(*context->comms.staging));
    if (context->comms.staging != NULL)
        known = *find_known(context->comms.staging, ranks);
    twill_context_unlock(context);
    for (unsigned kind = 0; known.ranks == ranks && kind < TWILL_STAGING_KINDS; kind++)
        for (unsigned way = WAY_CACHED; way <= WAY_STREAMED; way++)
            twill_node_put_staging_cost(comm->node, kind, way, known.cost[kind][way]);
}

/* Keep the costs of a kind, both of which are known, in the context. */
static void remember_costs(struct twill_comm *comm, enum twill_staging_kind kind)
{
    struct twill_context *context = comm->context;
    uint64_t ranks = hash_of_local_ranks(comm);
    twill_context_lock(context);
    struct known *known =
        context->comms.staging != NULL ? find_known(context->comms.staging, ranks) : NULL;
    if (known != NULL && known->ranks != ranks) {
        *known = (struct known){.ranks = ranks};
        context->comms.staging->next++;
    }
    if (known != NULL)
        memcpy(known->cost[kind], comm->staging[kind].cost, sizeof(known->cost[kind]));
    twill_context_unlock(context);
}

/* Return whether all ranks of the node have published their costs. */
static bool are_costs_known(const struct twill_comm *comm, enum twill_staging_kind kind)
{
    for (uint32_t l = 0; l < comm->local_size; l++)
        for (unsigned way = WAY_CACHED; way <= WAY_STREAMED; way++)
            if (twill_node_staging_cost(comm->node, l, kind, way) == 0)
                return false;
    return true;
}

void twill_staging_begin(struct twill_run *run, struct twill_instance *instance)
{
    struct twill_comm *comm = run->comm;
    instance->streams = instance->is_measured = false;
    if (TWILL_LIKELY(!twill_staging_applies(run, instance->length)))
        return;
    enum twill_staging_kind kind =
        run->plan->schedule.eager ? TWILL_STAGING_ONE_WAY : TWILL_STAGING_EXCHANGE;
    struct twill_staging *staging = &comm->staging[kind];
    uint32_t trial = TWILL_STAGING_GROUP * TWILL_STAGING_GROUPS;
    /* No rank publishes both costs of a trial before all have begun its first segment. */
    if (staging->begun == 0 && are_costs_known(comm, kind))
        staging->begun = trial;
    uint32_t number = staging->begun++ % TWILL_STAGING_PERIOD;
    instance->staging = kind;
    int64_t setting = comm->context->config.number[TWILL_VARIABLE_STAGING];
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
        staging->streams = twill_staging_decide(comm, kind);
    instance->streams = staging->streams;
}

void twill_staging_add(struct twill_run *run, const struct twill_instance *instance, uint64_t ticks)
{
    run->comm->staging[instance->staging].ticks += ticks;
}

void twill_staging_end(struct twill_run *run, const struct twill_instance *instance)
{
    struct twill_comm *comm = run->comm;
    struct twill_staging *staging = &comm->staging[instance->staging];
    staging->bytes += segment_bytes_of(run, instance);
    if (++staging->ended < TWILL_STAGING_MEASURED)
        return;
    uint64_t cost = 1 + staging->ticks * COST_UNIT / staging->bytes;
    uint32_t *least = &staging->cost[instance->streams ? WAY_STREAMED : WAY_CACHED];
    if (*least == 0 || cost < *least)
        *least = (uint32_t)twill_min(cost, UINT32_MAX);
    for (unsigned way = WAY_CACHED; way <= WAY_STREAMED; way++)
        twill_node_put_staging_cost(comm->node, instance->staging, way, staging->cost[way]);
    if (staging->cost[WAY_CACHED] > 0 && staging->cost[WAY_STREAMED] > 0)
        remember_costs(comm, instance->staging);
    staging->ticks = staging->bytes = 0;
    staging->ended = 0;
}
