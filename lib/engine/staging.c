/* SPDX-License-Identifier: Apache-2.0 */
/* Two trials of how data pass between the ranks of a node. The first one is how they are copied
 * into SHARED, the second one, at the end of this file, whether they are read without SHARED.
 *
 * The first trial: data is copied into SHARED either into the caches or past them. Stores into the
 * caches are faster if writer and readers share a cache. Otherwise each line must be taken back
 * from the reader before it is written again. On a virtual machine nothing tells these cases apart,
 * and its cores may even move between caches, so twill measures.
 *
 * A communicator tries both from time to time. It counts its segments, and copies those of a trial
 * in groups of TWILL_STAGING_GROUP, alternately cached and streamed. Each rank sums the ticks that
 * it spends copying (not waiting) in the last segments of a group, when all copies of SHARED have
 * been used in this way. It publishes the least sum of each way in node memory. Until the next
 * trial it then streams if that was faster for the slowest rank, which limits long calls, and for
 * all ranks together, as readers of a short call wait for its writer. All ranks count the same
 * segments, so they try the same way at the same time. They need not decide the same for equal
 * results.
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

/* Return whether all ranks of the node have published the costs of cached and of streamed stores
 * for this kind of copies. */
static bool has_costs(const struct twill_engine *engine, enum twill_staging_kind kind)
{
    bool all = true;
    for (uint32_t l = 0; l < engine->local_size; l++)
        for (unsigned way = WAY_CACHED; way <= WAY_STREAMED; way++)
            all &= twill_node_staging_cost(engine->node, l, kind, way) > 0;
    return all;
}

/* Return whether streamed stores take so much less time than cached ones that they are taken. */
static bool is_gain(uint64_t streamed, uint64_t cached)
{
    return streamed < cached - cached / STAGING_GAIN;
}

bool twill_staging_decide(const struct twill_engine *engine, enum twill_staging_kind kind)
{
    uint64_t worst[2] = {0, 0}, sum[2] = {0, 0};
    for (uint32_t l = 0; l < engine->local_size; l++)
        for (unsigned way = WAY_CACHED; way <= WAY_STREAMED; way++) {
            uint64_t cost = twill_node_staging_cost(engine->node, l, kind, way);
            worst[way] = twill_max(worst[way], cost);
            sum[way] += cost;
        }
    return worst[WAY_STREAMED] > 0 && is_gain(worst[WAY_STREAMED], worst[WAY_CACHED]) &&
           is_gain(sum[WAY_STREAMED], sum[WAY_CACHED]);
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
    uint32_t trial = TWILL_STAGING_GROUP * TWILL_STAGING_GROUPS;
    /* No rank publishes both costs of a trial before all have begun its first segment. */
    if (staging->begun == 0 && has_costs(engine, kind))
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
        run->exchange.fetch.is_measured &= instance->streams == staging->streams;
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

/* --- the trial of reads by a system call --- */

/* Whether ranks of a node read each other's memory by a system call (FETCHED) or copy through
 * SHARED (STAGED), in calls that move long shards and reduce nothing. What a read costs depends on
 * the machine, and on where the data are. Data that the owner has just written come from its
 * caches, which takes several times as long as reading data that the reader has kept from an
 * earlier call. Neither a price nor a measurement at set-up knows that, so calls are measured.
 *
 * Each rank measures the time that it copies (not waits) in the calls of each collective and length
 * of shards. The cost of a way is the median of its last calls, which a single disturbance does not
 * move. The way that is not in use is tried from time to time:
 *
 *           left = 0                 GROUP calls later
 *     STAGED ------> TRIES_FETCHED ------------------> FETCHED <---+ GROUP calls later
 *       ^                                               |   |      |
 *       +----------- STAGED costs less now -------------+   +-> TRIES_STAGED
 *                                                      left = 0
 *
 * With FETCHED, ranks publish their costs with the addresses of their buffers. So all ranks decide
 * each of these calls from the same numbers, those of its slowest rank, and decide alike. They
 * leave FETCHED as soon as it becomes dearer than STAGED was. With STAGED, they exchange nothing
 * more than before. All count the same calls, and a way is tried so seldom that this costs less
 * than 1 % of the time. */

#define GROUP         8u /* calls in a trial, of which the last ones count */
#define PERIOD_LEAST  32u
#define PERIOD_MOST   512u
#define SELDOM        128u /* part of the time that a trial may cost */
#define BUFFERS_NOTED 16u  /* buffers, of which calls often alternate several */
#define TICKS_OF      ((size_t)64 << 10)
/* Lengths of shards that are tried separately, by powers of two. */
#define LENGTHS 8u
_Static_assert(TWILL_FETCH_TRIED_LEAST << LENGTHS == TWILL_FETCH_TRIED_MOST, "all have one");
enum { WAY_STAGED, WAY_FETCHED };
/* The states of a trial, as above. The first one is that of zeroed memory. */
enum { STAGED, TRIES_FETCHED, FETCHED, TRIES_STAGED };
_Static_assert(GROUP > TWILL_FETCH_MEASURED, "the first call of a way is not measured");

/* The trials of an engine, freed with it. */
struct twill_fetch_trials {
    struct twill_fetch_trial trial[TWILL_COLLECTIVE_COUNT][LENGTHS];
    struct twill_readable readable[BUFFERS_NOTED]; /* by a hash of the address */
};

size_t twill_fetch_bytes(const struct twill_engine *engine)
{
    return engine->trials != NULL ? sizeof(*engine->trials) : 0;
}

/* Return the bytes of a shard of the call. */
static size_t shard_bytes(const struct twill_request *run)
{
    return run->call.count * run->layout.element;
}

/* Return the trial of calls like this one, to which trials apply. */
static struct twill_fetch_trial *trial_of(const struct twill_request *run)
{
    unsigned length = 0;
    while (length < LENGTHS - 1 && shard_bytes(run) >> (length + 1) >= TWILL_FETCH_TRIED_LEAST)
        length++;
    return &run->engine->trials->trial[run->call.collective][length];
}

/* Return the trials of an engine, all of which begin with a group of calls by STAGED, or NULL if
 * out of memory. */
static struct twill_fetch_trials *create_trials(void)
{
    struct twill_fetch_trials *trials = calloc(1, sizeof(*trials));
    for (unsigned c = 0; c < TWILL_COLLECTIVE_COUNT && trials != NULL; c++)
        for (unsigned l = 0; l < LENGTHS; l++)
            trials->trial[c][l].left = GROUP;
    return trials;
}

twill_status twill_fetch_find(struct twill_request *run)
{
    struct twill_engine *engine = run->engine;
    run->exchange.fetch = (struct twill_fetch_try){.trial = NULL};
    if ((run->exchange.access & TWILL_ACCESS_TRIED) == 0)
        return TWILL_OK;
    if (engine->trials == NULL) {
        engine->trials = create_trials();
        if (engine->trials == NULL)
            return TWILL_FAIL(&engine->error, TWILL_ERR_MEMORY,
                              "out of memory for the choice of algorithms");
        twill_engine_publish_bytes(engine);
    }
    run->exchange.fetch.trial = trial_of(run);
    return TWILL_OK;
}

void twill_fetch_costs(const struct twill_request *run, uint32_t cost[2])
{
    const struct twill_fetch_trial *trial = run->exchange.fetch.trial;
    cost[WAY_STAGED] = trial != NULL ? trial->cost[WAY_STAGED] : 0;
    cost[WAY_FETCHED] = trial != NULL ? trial->cost[WAY_FETCHED] : 0;
}

struct twill_readable *twill_fetch_readable(const struct twill_request *run, const void *memory)
{
    return &run->engine->trials
                ->readable[twill_hash_mix(0, (uint64_t)(uintptr_t)memory) % BUFFERS_NOTED];
}

/* Return the number of calls until the next trial, by the costs of the way in use and the other. */
static uint32_t period_of(uint32_t cost, uint32_t other)
{
    if (cost == 0 || other == 0)
        return GROUP;
    uint64_t dearer = other > cost ? other - cost : 0;
    uint64_t calls = SELDOM * GROUP * dearer / cost;
    return (uint32_t)twill_max(twill_min(calls, PERIOD_MOST), PERIOD_LEAST);
}

/* Count a call, and change the state of its trial if it is time for that. */
static void count_call(struct twill_fetch_trial *trial)
{
    if (trial->left == 0) {
        bool tries = trial->state == STAGED || trial->state == FETCHED;
        trial->state = trial->state == STAGED    ? TRIES_FETCHED
                       : trial->state == FETCHED ? TRIES_STAGED
                                                 : FETCHED;
        trial->left = tries ? GROUP : PERIOD_MOST;
        trial->begins = !tries;
    }
    trial->left--;
}

/* Return whether this run is one call, not the beginning of a persistent request, whose calls keep
 * the plan. */
static bool is_call(const struct twill_request *run)
{
    return !run->persistent &&
           atomic_load_explicit(&run->state, memory_order_relaxed) == TWILL_REQUEST_ACTIVE;
}

unsigned twill_fetch_begin(struct twill_request *run)
{
    struct twill_fetch_trial *trial = run->exchange.fetch.trial;
    unsigned access = run->exchange.access & ~(unsigned)TWILL_ACCESS_TRIED;
    if (trial == NULL)
        return access;
    if (is_call(run))
        count_call(trial);
    bool asks = trial->state == FETCHED || (trial->state == TRIES_FETCHED && is_call(run));
    return asks ? access : access & ~(unsigned)TWILL_ACCESS_FETCHED;
}

/* Decide whether a call of a trial in FETCHED, whose costs are known, is fetched. If not, it and
 * the calls after it are STAGED. */
static bool decide(struct twill_fetch_trial *trial, const uint32_t worst[2], size_t shard)
{
    const uint32_t staged = worst[WAY_STAGED], fetched = worst[WAY_FETCHED];
    bool pays = twill_fetch_pays(staged, fetched, shard);
    if (!pays) {
        trial->state = STAGED;
        trial->left = period_of(staged, fetched);
    } else if (trial->begins) {
        trial->left = period_of(fetched, staged);
    }
    trial->begins = false;
    return pays;
}

void twill_fetch_choose(struct twill_request *run)
{
    struct twill_fetch_try *fetch = &run->exchange.fetch;
    struct twill_fetch_trial *trial = fetch->trial;
    if (trial == NULL)
        return;
    fetch->pays = fetch->is_measured = false;
    fetch->ticks = 0;
    if ((run->exchange.allowed & TWILL_ACCESS_MAPPED) != 0)
        return;
    if ((run->exchange.allowed & TWILL_ACCESS_FETCHED) != 0)
        fetch->pays = trial->state == TRIES_FETCHED ||
                      (trial->state == FETCHED && is_call(run)
                           ? decide(trial, fetch->worst, shard_bytes(run))
                           : twill_fetch_pays(fetch->worst[WAY_STAGED], fetch->worst[WAY_FETCHED],
                                              shard_bytes(run)));
    if (!is_call(run))
        return;
    fetch->is_measured = fetch->pays == trial->fetched;
    if (!fetch->is_measured)
        trial->measured = 0;
    trial->fetched = fetch->pays;
}

/* Return the median of three costs. */
static uint32_t median(const uint32_t cost[TWILL_FETCH_MEASURED])
{
    uint32_t low = (uint32_t)twill_min(cost[0], cost[1]);
    uint32_t high = (uint32_t)twill_max(cost[0], cost[1]);
    return (uint32_t)twill_max(low, twill_min(high, cost[2]));
}

/* If some ranks copy in while others copy out, the first segment overlaps nothing, unless the call
 * before is still under way. So half of it is added. */
void twill_fetch_end(struct twill_request *run)
{
    struct twill_fetch_try *fetch = &run->exchange.fetch;
    struct twill_fetch_trial *trial = fetch->trial;
    const size_t segments = run->layout.segments;
    const bool fetched = run->plan->fetches;
    uint64_t ticks = fetch->ticks;
    fetch->is_measured = false;
    if (fetched != trial->fetched) /* later calls have another way */
        return;
    if (!fetched && run->plan->schedule.eager)
        ticks += ticks / twill_max(2 * segments, (size_t)2);
    uint64_t cost = 1 + ticks * TICKS_OF / shard_bytes(run);
    trial->last[trial->measured++ % TWILL_FETCH_MEASURED] = (uint32_t)twill_min(cost, UINT32_MAX);
    if (trial->measured >= TWILL_FETCH_MEASURED)
        trial->cost[fetched] = median(trial->last);
}
