/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the plan for a call, and whether the ranks of a node exchange buffer addresses first. */
#include "algorithms/select/explain.h"
#include "fabric/shm/node_board.h"
#include "fabric/shm/single_copy.h"
#include "kernels/thread_pool.h"
#include "lib/base/times.h"
#include "lib/engine/engine_internal.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/job/heap.h"
#include "lib/job/operation.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(TWILL_PRICE_WORDS == TWILL_BOARD_WORDS, "a record of prices is an entry");

/* Return whether the rank that computes the prices of `entry` has died. */
static bool has_died(struct twill_engine *engine, const struct twill_board_entry *entry)
{
    uint32_t l = atomic_load_explicit(&entry->rank, memory_order_relaxed) - 1;
    return l < engine->node->size && l != engine->node->me &&
           twill_node_owner_dead(engine->node, l);
}

uint64_t twill_engine_price_patience_ns(const struct twill_engine *engine)
{
    return engine->node != NULL && engine->node->size > 1
               ? twill_min(TWILL_PRICE_PATIENCE_NS, engine->tuning.timeout_ns / 8)
               : 0;
}

/* The ask() of struct twill_price_records. Copies the prices of `key` from the node's board to
 * words[] and returns TWILL_RECORD_THERE, or _MINE if this rank is to compute them. If another rank
 * is, returns _THEIRS or, with `wait`, waits. Returns _NONE if the board is full, or that rank has
 * died, given up or not finished in time. */
static enum twill_price_record ask(void *user, uint64_t key, bool wait,
                                   uint64_t words[TWILL_PRICE_WORDS])
{
    struct twill_engine *engine = user;
    uint64_t until = 0;
    bool mine;
    struct twill_board_entry *entry = twill_board_find(engine->node, key, &mine);
    if (entry == NULL || mine)
        return mine ? TWILL_RECORD_MINE : TWILL_RECORD_NONE;
    while (twill_board_state(entry) == TWILL_BOARD_COMPUTING) {
        if (!wait)
            return TWILL_RECORD_THEIRS;
        uint64_t now = twill_now();
        if (until == 0)
            until = now + twill_engine_price_patience_ns(engine);
        if (now >= until || has_died(engine, entry))
            return TWILL_RECORD_NONE;
        twill_board_wait(entry, twill_min(TWILL_PRICE_LOOK_NS, until - now));
    }
    if (twill_board_state(entry) == TWILL_BOARD_ABANDONED)
        return TWILL_RECORD_NONE;
    memcpy(words, entry->word, sizeof(entry->word));
    return TWILL_RECORD_THERE;
}

/* The give() of struct twill_price_records. Posts the prices that this rank has computed, or
 * abandons the entry of `key` if `words` is NULL. */
static void give(void *user, uint64_t key, const uint64_t words[TWILL_PRICE_WORDS])
{
    struct twill_engine *engine = user;
    bool mine;
    twill_board_post(twill_board_find(engine->node, key, &mine), words);
}

twill_status twill_engine_create_chooser(struct twill_chooser **chooser,
                                         struct twill_engine *engine, const char *requested,
                                         struct twill_error *error)
{
    TWILL_TRY(error, twill_chooser_create(chooser, engine->world, engine->context->selection.tuning,
                                          requested, error));
    twill_chooser_crowd(*chooser, engine->tuning.crowded);
    /* a stripe of a team call has no pool, on no rank */
    twill_chooser_threads(*chooser,
                          engine->tuning.pool != NULL ? engine->context->job.rank_threads : 1,
                          twill_thread_pool_rates(engine->tuning.pool));
    if (engine->node != NULL && engine->node->size > 1)
        twill_chooser_share(
            *chooser, &(struct twill_price_records){
                          .ask = ask, .give = give, .user = engine, .rank = engine->node->me});
    return TWILL_OK;
}

/* Return the order in which a reduction must combine its operands. */
static enum twill_order order_of(const struct twill_request *run)
{
    if (!twill_collective_facts(run->call.collective)->reduces)
        return TWILL_ORDER_ANY;
    if (run->engine->tuning.reproducible)
        return TWILL_ORDER_LEFT;
    bool commutes = run->layout.created == NULL || run->layout.created->commutative;
    return commutes ? TWILL_ORDER_ANY : TWILL_ORDER_RANKS;
}

/* Return the number of elements of all shards, or 0 if this rank does not know it. */
static size_t elements_of(const struct twill_request *run)
{
    bool sharded = twill_collective_facts(run->call.collective)->sharded;
    uint32_t size = run->engine->world->size;
    size_t sum = 0;
    if (!run->call.vector)
        return (sharded ? size : 1) * run->call.count;
    for (uint32_t p = 0; run->layout.known != NULL && p < size; p++)
        sum += run->layout.known[p];
    return sum;
}

/* Return what the choice of a plan for this run depends on. */
static struct twill_select_request select_request(const struct twill_request *run)
{
    bool own = run->layout.created != NULL && run->layout.created->function != NULL;
    return (struct twill_select_request){
        .collective = run->call.collective,
        .root = run->call.root,
        .bytes = elements_of(run) * run->layout.element,
        .mapped = (run->exchange.allowed & TWILL_ACCESS_MAPPED) != 0,
        .fetched = (run->exchange.allowed & TWILL_ACCESS_FETCHED) != 0,
        .fetch_pays = run->exchange.fetch.pays,
        .vector = run->call.vector,
        .order = order_of(run),
        .type = own ? TWILL_U8 : run->layout.type,
        .narrow = run->layout.narrow,
    };
}

/* Create the engine's chooser unless it exists. Returns TWILL_OK or the error. */
static twill_status have_chooser(struct twill_engine *engine)
{
    if (engine->plan_cache.chooser != NULL)
        return TWILL_OK;
    return twill_engine_create_chooser(
        &engine->plan_cache.chooser, engine,
        twill_config_text(engine->context->config, TWILL_VARIABLE_ALGORITHM), &engine->error);
}

twill_status twill_addresses_needed(struct twill_request *run, bool *exchanges, bool *any_exchanges)
{
    struct twill_engine *engine = run->engine;
    *exchanges = *any_exchanges = false;
    run->exchange.access = run->exchange.allowed = 0;
    run->exchange.fetch = (struct twill_fetch_try){.trial = NULL};
    bool scaled = run->layout.created != NULL && run->layout.created->scaled;
    struct twill_select_request request = select_request(run);
    if (run->call.vector || scaled || request.bytes < TWILL_MAPPED_BYTES)
        return TWILL_OK;
    TWILL_TRY(&engine->error, have_chooser(engine));
    request.fetched =
        engine->world->nodes == 1 && twill_single_copy_fetches(engine->links.single_copy);
    run->exchange.access = twill_mapping_matters(engine->plan_cache.chooser, &request);
    *any_exchanges = run->exchange.access != 0;
    TWILL_TRY(&engine->error, twill_fetch_find(run));
    bool away = run->call.collective == TWILL_BROADCAST &&
                engine->world->node[run->call.root] != engine->world->node[engine->rank];
    bool shares = engine->context->memory->heap.region != NULL || engine->links.single_copy != NULL;
    *exchanges = *any_exchanges && shares && !away;
    return TWILL_OK;
}

/* Store in *choice the algorithm for the request `key`. Nodes may differ in whether their buffers
 * are mapped, but must agree on everything else. So with several nodes, mapped buffers change the
 * protocol on this node only. Returns TWILL_OK or the error. */
static twill_status find_choice(struct twill_choice *choice, struct twill_engine *engine,
                                const struct twill_select_request *key)
{
    struct twill_select_request common = *key;
    common.mapped = key->mapped && engine->world->nodes == 1;
    twill_status status = twill_select(choice, engine->plan_cache.chooser, &common, &engine->error);
    if (status == TWILL_ERR_CONFIG && key->mapped) { /* the user asks for "@mapped" */
        twill_error_clear(&engine->error);
        status = twill_select(choice, engine->plan_cache.chooser, key, &engine->error);
    }
    TWILL_TRY(&engine->error, status);
    struct twill_shape mapped = choice->shape;
    mapped.protocol = TWILL_PROTOCOL_MAPPED;
    if (key->mapped && choice->algorithm->protocols != 0 &&
        choice->shape.protocol == TWILL_PROTOCOL_STAGED &&
        twill_algorithm_applies(choice->algorithm, engine->world, &mapped))
        choice->shape = mapped;
    return TWILL_OK;
}

/* Set run->layout's segments as for a call with this choice. Returns TWILL_OK or the error. */
static twill_status foresee_segments(struct twill_request *run, const struct twill_choice *choice)
{
    struct twill_plan plan;
    twill_status status = twill_plan_sketch(&plan, run->engine, choice);
    run->plan = &plan;
    if (status == TWILL_OK)
        status = twill_run_find_segments(run);
    run->plan = NULL;
    twill_schedule_destroy(&plan.schedule);
    return status;
}

twill_status twill_run_foresee(struct twill_request *run, bool in_heap, size_t bytes,
                               struct twill_select_request *key, struct twill_choice *choice)
{
    struct twill_engine *engine = run->engine;
    enum twill_collective collective = run->call.collective;
    bool exchanges, any_exchanges;
    TWILL_TRY(&engine->error, twill_addresses_needed(run, &exchanges, &any_exchanges));
    if (exchanges)
        twill_addresses_assume(run, in_heap);
    *key = select_request(run);
    if (run->call.vector && (collective == TWILL_ALLGATHER || collective == TWILL_REDUCE_SCATTER))
        key->bytes = bytes; /* all ranks know the counts */
    TWILL_TRY(&engine->error, have_chooser(engine));
    TWILL_TRY(&engine->error, find_choice(choice, engine, key));
    return foresee_segments(run, choice);
}

/* If the choice is a substitute, warn once, on rank 0, that TWILL_ALGORITHM cannot do this call. */
static void log_substitute(struct twill_engine *engine, const struct twill_choice *choice)
{
    if (!choice->substituted || engine->plan_cache.logged_substitute || engine->rank != 0)
        return;
    engine->plan_cache.logged_substitute = true;
    twill_say(engine->log, TWILL_LOG_WARN,
              "TWILL_ALGORITHM=%s cannot do every %s (order of operands, uneven shards): this call "
              "uses %s",
              twill_config_text(engine->context->config, TWILL_VARIABLE_ALGORITHM),
              twill_collective_name(choice->shape.collective), choice->algorithm->name);
}

/* Log the choice of a plan, once for each plan and power of two of bytes. The first rank of each
 * node logs it at level info, because nodes may differ, and the others at level debug. */
static void log_choice(const struct twill_engine *engine, struct twill_plan *plan,
                       const struct twill_choice *choice)
{
    char why[400], name[TWILL_WHY_NAME];
    struct twill_foreseen seen;
    const struct twill_select_request *request = &plan->key;
    unsigned class = request->bytes > 0 ? 64u - (unsigned)__builtin_clzll(request->bytes) : 0;
    uint64_t bit = UINT64_C(1) << twill_min(class, 63);
    if ((plan->logged & bit) != 0)
        return;
    plan->logged |= bit;
    twill_why_choice(&seen, why, sizeof(why), engine->plan_cache.chooser, engine->world, request,
                     choice);
    const char *type = twill_type_name(request->type);
    twill_say(engine->log, twill_log_once(TWILL_LOG_INFO, engine->local == 0),
              "communicator %u: %s%s of %zu bytes, %s: %s, %s", engine->number,
              twill_collective_name(request->collective), request->vector ? "v" : "",
              request->bytes, type != NULL ? type : "?", twill_why_name(choice, name), why);
}

/* Make the plan of the other protocol that a trial compares, so that no later call of this shape
 * allocates memory for it. Returns TWILL_OK or the error. */
static twill_status make_alternative(struct twill_engine *engine,
                                     const struct twill_select_request *key)
{
    struct twill_select_request other = *key;
    struct twill_choice choice;
    struct twill_plan *unused;
    other.fetched = other.fetch_pays = !key->fetch_pays;
    TWILL_TRY(&engine->error, find_choice(&choice, engine, &other));
    return twill_plan_get(engine, &choice, &unused);
}

/* Set run->plan to the plan of the last call or the one before, if that fits. Otherwise choose a
 * plan, make it unless it is in the cache, and log the choice. Returns TWILL_OK or the error. */
static twill_status find_plan(struct twill_request *run)
{
    struct twill_engine *engine = run->engine;
    struct twill_select_request key = select_request(run);
    struct twill_plan *plan = engine->plan_cache.last;
    if (TWILL_LIKELY(plan != NULL && twill_requests_match(&plan->key, &key))) {
        run->plan = plan;
        return TWILL_OK;
    }
    struct twill_plan *before = engine->plan_cache.before;
    if (plan != NULL)
        engine->plan_cache.before = plan;
    if (before != NULL && twill_requests_match(&before->key, &key)) {
        run->plan = engine->plan_cache.last = before;
        return TWILL_OK;
    }
    struct twill_choice choice;
    TWILL_TRY(&engine->error, have_chooser(engine));
    TWILL_TRY(&engine->error, find_choice(&choice, engine, &key));
    log_substitute(engine, &choice);
    if (run->exchange.fetch.trial != NULL && !key.mapped)
        TWILL_TRY(&engine->error, make_alternative(engine, &key));
    TWILL_TRY(&engine->error, twill_plan_get(engine, &choice, &plan));
    plan->key = key;
    run->plan = engine->plan_cache.last = plan;
    if (TWILL_UNLIKELY(twill_log_enabled(engine->log, TWILL_LOG_INFO)))
        log_choice(engine, plan, &choice);
    return TWILL_OK;
}

/* Get the bytes of a slot for the run's collective from TWILL_TUNE=slot, or else by
 * twill_slot_pays(), whose answer is kept. Returns TWILL_OK or the error. */
static twill_status find_slot(struct twill_engine *engine, enum twill_collective collective,
                              size_t *bytes)
{
    int64_t asked = engine->context->config->number[TWILL_VARIABLE_SLOT];
    size_t *kept = &engine->plan_cache.slot[collective];
    if (asked >= 0) {
        *bytes = (size_t)asked;
        return TWILL_OK;
    }
    if (*kept == 0) {
        TWILL_TRY(&engine->error, have_chooser(engine));
        TWILL_TRY(&engine->error,
                  twill_slot_pays(bytes, engine->plan_cache.chooser, engine->world,
                                  engine->context->selection.tuning, collective, &engine->error));
        *kept = *bytes + 1;
    }
    *bytes = *kept - 1;
    return TWILL_OK;
}

/* Have slots and a carrier for a request that has none yet. Returns TWILL_OK or the error. */
static twill_status create_slots(struct twill_request *request)
{
    struct twill_engine *engine = request->engine;
    struct twill_slots *slots = calloc(1, sizeof(*slots));
    struct twill_request *carrier = aligned_alloc(TWILL_CACHE_LINE, sizeof(*carrier));
    twill_status status = TWILL_ERR_MEMORY;
    if (slots == NULL || carrier == NULL) {
        TWILL_FAIL(&engine->error, status, "out of memory for a vector call");
        goto fail;
    }
    memset(carrier, 0, sizeof(*carrier));
    TWILL_TRY_OR_FAIL(&engine->error, twill_request_open(carrier, engine));
    *slots = (struct twill_slots){.carried = request, .carrier = carrier};
    request->buffers.slots = carrier->buffers.slots = slots;
    return TWILL_OK;
fail:
    free(carrier);
    free(slots);
    return status;
}

twill_status twill_slots_take(struct twill_request *request, struct twill_call *call)
{
    struct twill_engine *engine = request->engine;
    size_t bytes = 0, size = engine->world->size;
    if (request->layout.known == NULL && size > 1)
        TWILL_TRY(&engine->error, find_slot(engine, request->call.collective, &bytes));
    bytes = bytes > TWILL_SLOT_HEADER ? bytes : 0;
    if (request->buffers.slots != NULL)
        request->buffers.slots->bytes = bytes;
    if (bytes == 0)
        return TWILL_OK;
    if (request->buffers.slots == NULL)
        TWILL_TRY(&engine->error, create_slots(request));
    struct twill_slots *slots = request->buffers.slots;
    slots->bytes = bytes;
    TWILL_TRY(&engine->error,
              twill_engine_reserve(engine, &slots->memory, &slots->memory_bytes, 2 * size * bytes));
    *call = (struct twill_call){.collective = request->call.collective,
                                .src = slots->memory,
                                .dst = slots->memory + size * bytes,
                                .count = bytes,
                                .type = TWILL_U8,
                                .root = request->call.root};
    return TWILL_OK;
}

#define SLOT_TYPE_SHIFT 56 /* a count in a slot is below 2^56 */

/* Return the slot of a shard of SRC or DST (`space`). A side of one shard has the first one only.
 */
static unsigned char *slot_at(const struct twill_slots *slots, unsigned space, uint32_t shard)
{
    size_t first = space == TWILL_DST ? slots->carried->engine->world->size : 0;
    return slots->memory + (first + shard) * slots->bytes;
}

/* A shard of the caller's SRC or DST. A plain value. */
struct vector_shard {
    unsigned char *start;
    size_t count;
};

/* Return where a shard of SRC or DST (`space`) is, and the number of its elements. */
static struct vector_shard vector_shard_of(const struct twill_request *run, unsigned space,
                                           uint32_t shard)
{
    const struct twill_side *side = &run->buffers.side[space];
    size_t at = side->own ? 0 : side->offset[shard];
    return (struct vector_shard){side->base + at * run->layout.element,
                                 side->own ? side->even : side->count[shard]};
}

/* Return the first word of a slot. It has what the two ranks of a shard must agree on. */
static uint64_t slot_header(const struct twill_request *run, size_t count)
{
    return (uint64_t)run->call.type << SLOT_TYPE_SHIFT | count;
}

/* Return the name of a type, which may have come from another rank. */
static const char *name_of_type(uint64_t type)
{
    const char *name = twill_type_name((twill_type)twill_min(type, (uint64_t)INT_MAX));
    return name != NULL ? name : "unknown";
}

/* Return the number of slots of SRC or DST (`space`) on this rank. */
static uint32_t slots_of(const struct twill_request *run, unsigned space)
{
    const struct twill_side *side = &run->buffers.side[space];
    return !side->has ? 0 : side->own ? 1 : run->engine->world->size;
}

void twill_slots_pack(const struct twill_slots *slots)
{
    const struct twill_request *run = slots->carried;
    for (uint32_t p = 0; p < slots_of(run, TWILL_SRC); p++) {
        struct vector_shard shard = vector_shard_of(run, TWILL_SRC, p);
        unsigned char *slot = slot_at(slots, TWILL_SRC, p);
        uint64_t header = slot_header(run, shard.count);
        memcpy(slot, &header, sizeof(header));
        if (shard.count > 0 && twill_run_carries(run, shard.count))
            memcpy(slot + TWILL_SLOT_HEADER, shard.start, shard.count * run->layout.element);
    }
}

twill_status twill_slots_unpack(const struct twill_slots *slots)
{
    const struct twill_request *run = slots->carried;
    for (uint32_t p = 0; p < slots_of(run, TWILL_DST); p++) {
        struct vector_shard shard = vector_shard_of(run, TWILL_DST, p);
        const unsigned char *slot = slot_at(slots, TWILL_DST, p);
        uint32_t from = run->buffers.side[TWILL_DST].own ? run->call.root : p;
        uint64_t header, expected = slot_header(run, shard.count);
        memcpy(&header, slot, sizeof(header));
        if (header != expected)
            return TWILL_ENGINE_FAIL(
                run->engine, TWILL_ERR_MISMATCH,
                "%s sends a count of %llu of type %s, where this rank gives %zu of type %s",
                TWILL_ENGINE_RANK_NAME(run->engine, from),
                (unsigned long long)(header & ((UINT64_C(1) << SLOT_TYPE_SHIFT) - 1)),
                name_of_type(header >> SLOT_TYPE_SHIFT), shard.count, name_of_type(run->call.type));
        bool stays = from == run->engine->rank && /* it is in place */
                     shard.start == vector_shard_of(run, TWILL_SRC, from).start;
        if (shard.count > 0 && !stays && twill_run_carries(run, shard.count))
            memcpy(shard.start, slot + TWILL_SLOT_HEADER, shard.count * run->layout.element);
    }
    return TWILL_OK;
}

void twill_addresses_restart(struct twill_request *run)
{
    run->exchange.before = run->plan;
    run->exchange.allowed_before = run->exchange.allowed;
    twill_run_detach_peers(run);
    run->plan = NULL;
    run->exchange.state = TWILL_EXCHANGE_IDLE;
    run->exchange.arrived = false;
}

int twill_run_choose(struct twill_request *run)
{
    struct twill_engine *engine = run->engine;
    if (run->exchange.before == NULL && run->exchange.state == TWILL_EXCHANGE_IDLE) {
        bool exchanges, any_exchanges;
        TWILL_TRY(&engine->error, twill_addresses_needed(run, &exchanges, &any_exchanges));
        run->exchange.state = exchanges ? TWILL_EXCHANGE_IDLE : TWILL_EXCHANGE_UNNEEDED;
    }
    if (!twill_exchange_is_over(&run->exchange)) {
        int answer = twill_addresses_exchange(run);
        if (answer <= 0)
            return answer;
    }
    bool paid = run->exchange.fetch.pays;
    twill_fetch_choose(run);
    if (TWILL_LIKELY(run->exchange.before != NULL && run->exchange.fetch.pays == paid &&
                     run->exchange.allowed == run->exchange.allowed_before)) {
        run->plan = run->exchange.before;
        TWILL_TRY(&engine->error, twill_run_attach_peers(run));
        twill_run_choose_stores(run);
        return 1;
    }
    TWILL_TRY(&engine->error, find_plan(run));
    TWILL_TRY(&engine->error, twill_run_attach_peers(run));
    TWILL_TRY(&engine->error, twill_run_lay_out(run));
    return 1;
}
