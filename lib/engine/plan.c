/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and caches plans, with all that a run needs, so that later calls allocate nothing. */
#include "fabric/shm/node_memory.h"
#include "lib/base/thread_rates.h"
#include "lib/engine/engine_internal.h"
#include "lib/job/config.h"
#include "lib/job/context.h"

#include <stdlib.h>
#include <string.h>

/* Bytes per rank of a segment that goes through SHARED on one node. Each of two ranks then gives
 * the other 32 KiB. With less, lines are still dirty in L1 when the peer fetches them, which takes
 * longer. With more, fewer segments overlap and less stays in L2. The price model has the same
 * value as segment_rank (algorithms/select/machine_model.h). */
#define SEGMENT_RANK ((size_t)64 << 10)
/* The same if ranks share cores, nothing is reduced and TWILL_TUNE=segment is not set. Each segment
 * takes a change of ranks on a core. With other programs, a broadcast of 64 MiB among four ranks on
 * two cores took 39 ms instead of 127. Reductions are slower, as segments do not stay in L2. */
#define SEGMENT_RANK_CROWDED ((size_t)1 << 20)
/* Most bytes of TMP in an instance. */
#define SCRATCH_MOST ((size_t)64 << 20)

/* Return whether a step posts a message to a transport, that is SEND, RECV or RECV_REDUCE. */
static bool is_message(const struct twill_step *step)
{
    return step->op == TWILL_STEP_SEND || step->op == TWILL_STEP_RECV ||
           step->op == TWILL_STEP_RECV_REDUCE;
}

/* How many copies of the message schedules need in TMP and in SHARED. A local variable while a plan
 * is made. */
struct copies {
    size_t tmp, shared;
};

/* Raise copies->tmp and copies->shared to the number of copies of the whole message that a schedule
 * needs in TMP and in SHARED. */
static void plan_count_copies(struct copies *copies, const struct twill_schedule *s)
{
    copies->tmp = twill_max(copies->tmp, s->tmp_blocks / s->blocks);
    copies->shared = twill_max(copies->shared, s->shared_blocks / s->blocks);
}

/* Set *copies to how many copies of the message the plan's schedule needs in TMP and in SHARED.
 * Nodes may differ in whether buffers are mapped, but not in their segments. So between nodes the
 * schedules for `mapped` and for `staged` both count. Returns TWILL_OK, or the error of a
 * schedule. */
static twill_status count_declared(struct twill_engine *engine, const struct twill_plan *plan,
                                   struct copies *copies)
{
    const struct twill_choice *choice = &plan->choice;
    *copies = (struct copies){0};
    plan_count_copies(copies, &plan->schedule);
    if (engine->world->nodes == 1 || choice->algorithm->protocols == 0 ||
        !twill_protocol_is_sharded(choice->shape.protocol))
        return TWILL_OK;
    struct twill_shape other = choice->shape;
    struct twill_schedule schedule = {0};
    other.protocol =
        other.protocol == TWILL_PROTOCOL_MAPPED ? TWILL_PROTOCOL_STAGED : TWILL_PROTOCOL_MAPPED;
    if (!twill_algorithm_applies(choice->algorithm, engine->world, &other))
        return TWILL_OK;
    TWILL_TRY(&engine->error, twill_schedule_emit(&schedule, choice->algorithm, engine->world,
                                                  engine->rank, &other, &engine->error));
    plan_count_copies(copies, &schedule);
    twill_schedule_destroy(&schedule);
    return TWILL_OK;
}

/* Return the most bytes of a segment, over all shards, when data goes through SHARED and the
 * communicator has one node. Unless TWILL_TUNE=segment is set, it is larger if ranks share cores
 * and the collective in `choice` reduces nothing, and so that all threads of each rank help. */
static size_t staged_limit(const struct twill_engine *engine, const struct twill_choice *choice)
{
    bool reduces = twill_collective_facts(choice->shape.collective)->reduces;
    size_t usual = twill_min(engine->tuning.segment, SEGMENT_RANK * engine->world->size);
    if (twill_config_is_set(engine->context->config, TWILL_VARIABLE_SEGMENT))
        return usual;
    if (engine->tuning.crowded && !reduces)
        return twill_min(engine->tuning.segment_net, SEGMENT_RANK_CROWDED * engine->world->size);
    return twill_piece_segment(usual, engine->tuning.piece, engine->world->size);
}

/* Return the most bytes of a segment of messages, of which `blocks` blocks are reduced one by one.
 */
static size_t net_limit(const struct twill_engine *engine, const struct twill_choice *choice,
                        uint32_t blocks)
{
    const struct twill_engine_tuning *tuning = &engine->tuning;
    size_t piece = twill_min(tuning->piece, TWILL_PIECE_NET_MOST);
    if (twill_choice_exchanges(choice))
        return tuning->segment_exchange;
    return twill_min(tuning->segment_net,
                     twill_piece_segment(tuning->segment_least, piece,
                                         (uint32_t)twill_min(blocks, engine->world->size)));
}

/* Return whether some ranks only copy into SHARED, and others only out of it, so that segments
 * overlap and their best length depends on that of the message (twill_overlap_segment()). It does
 * not if TWILL_TUNE=segment is set, ranks share cores, or all threads of a rank must help. */
static bool decide_overlap(const struct twill_engine *engine, const struct twill_plan *plan)
{
    const struct twill_choice *choice = &plan->choice;
    return engine->world->nodes == 1 && plan->schedule.eager && choice->algorithm->protocols != 0 &&
           choice->shape.protocol == TWILL_PROTOCOL_STAGED &&
           !twill_collective_facts(choice->shape.collective)->reduces && !engine->tuning.crowded &&
           engine->tuning.piece == 0 &&
           !twill_config_is_set(engine->context->config, TWILL_VARIABLE_SEGMENT);
}

/* Set plan->segment_bytes and tmp_bytes, equally on all ranks, whose segments must be the same.
 * Data that goes through SHARED should stay in the caches, and messages between nodes should not be
 * too small. On one node, buffers that peers access directly are not cut, unless TMP is needed. */
static void size_segments(const struct twill_engine *engine, struct twill_plan *plan,
                          const struct copies *copies)
{
    const struct twill_choice *choice = &plan->choice;
    const struct twill_schedule *s = &plan->schedule;
    size_t bytes = engine->tuning.segment;
    if (choice->algorithm->protocols != 0 && choice->shape.protocol == TWILL_PROTOCOL_IMM)
        bytes = 2 * TWILL_IMM_BYTES * (size_t)s->blocks + TWILL_COPY_SLACK; /* one segment */
    else if (engine->world->nodes > 1 || choice->algorithm->protocols == 0)
        bytes = net_limit(engine, choice, s->blocks);
    else if (choice->shape.protocol >= TWILL_PROTOCOL_MAPPED && copies->tmp == 0)
        bytes = SIZE_MAX;
    else
        bytes = staged_limit(engine, choice);
    if (copies->tmp > 0)
        bytes = twill_min(bytes, SCRATCH_MOST / copies->tmp);
    if (copies->shared > 0)
        bytes = twill_min(bytes, engine->node->shared_bytes / copies->shared);
    if (bytes != SIZE_MAX)
        bytes &= ~(size_t)(TWILL_CACHE_LINE - 1);
    plan->segment_bytes = plan->least_bytes = bytes;
    if (engine->world->nodes > 1 && engine->tuning.piece > 0 && !twill_choice_exchanges(choice))
        plan->least_bytes = twill_min(bytes, engine->tuning.segment_least);
    if (copies->tmp > 0)
        plan->tmp_bytes = (bytes + TWILL_COPY_SLACK) * (s->tmp_blocks / s->blocks);
}

/* Set plan->late_bytes to the bytes of the largest RECV_REDUCE message, and bounce_bytes to the
 * same over transports that need a bounce. A block has up to one cache line more than its even part
 * of the data, or four lines with partials. Eight are allowed for. */
static void size_bounces(const struct twill_engine *engine, struct twill_plan *plan)
{
    const struct twill_schedule *s = &plan->schedule;
    size_t widest_block = plan->segment_bytes / s->blocks + 8 * TWILL_CACHE_LINE;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct twill_step *step = &s->steps[i];
        if (step->op != TWILL_STEP_RECV_REDUCE)
            continue;
        size_t most = twill_min(step->blocks * widest_block, plan->segment_bytes);
        most = twill_round_up(most, TWILL_CACHE_LINE);
        plan->late_bytes = twill_max(plan->late_bytes, most);
        if (twill_engine_link(engine, step->peer[0])->ops->needs_bounce)
            plan->bounce_bytes = twill_max(plan->bounce_bytes, most);
    }
}

/* Return the number of messages of a step if each shard is sent separately. */
static uint32_t messages_of(const struct twill_schedule *s, const struct twill_step *step)
{
    uint32_t first = twill_operand_block(step->op == TWILL_STEP_SEND ? step->src : step->dst);
    uint32_t shard_blocks = s->blocks / s->shards;
    if (step->blocks == 0)
        return 1;
    return (first + step->blocks - 1u) / shard_blocks - first / shard_blocks + 1;
}

/* Set plan->most_posted, the most messages that a lane posts between two WAITs, and packs_src. */
static void count_messages(struct twill_plan *plan)
{
    const struct twill_schedule *s = &plan->schedule;
    const bool packs = plan->choice.algorithm->packs;
    for (uint32_t lane = 0; lane < s->lanes; lane++) {
        uint32_t posted = 0;
        for (uint32_t i = s->lane_first[lane]; i < s->lane_first[lane + 1]; i++) {
            uint32_t messages = is_message(&s->steps[i]) ? messages_of(s, &s->steps[i]) : 0;
            posted =
                s->steps[i].op == TWILL_STEP_WAIT ? 0 : posted + (packs ? messages > 0 : messages);
            plan->packs_src |= packs && messages > 1 && s->steps[i].op == TWILL_STEP_SEND &&
                               twill_operand_space(s->steps[i].src) == TWILL_SRC;
            plan->most_posted = posted > plan->most_posted ? posted : plan->most_posted;
        }
    }
}

/* Connect to each peer with which the schedule exchanges messages. Set plan->polled if the
 * transport of one must be polled. Returns TWILL_OK or the error. */
static twill_status connect_peers(struct twill_engine *engine, struct twill_plan *plan)
{
    for (uint32_t i = 0; i < plan->schedule.count; i++) {
        const struct twill_step *step = &plan->schedule.steps[i];
        if (!is_message(step))
            continue;
        plan->polled |= !twill_engine_link(engine, step->peer[0])->ops->sleeps_on_doorbell;
        TWILL_TRY(&engine->error, twill_engine_connect(engine, step->peer[0]));
    }
    return TWILL_OK;
}

/* Return whether a step of a schedule writes to a peer's SHARED. */
static bool writes_to_peers(const struct twill_schedule *s)
{
    bool writes = false;
    for (uint32_t i = 0; i < s->count; i++)
        writes |= twill_operand_space(s->steps[i].dst) == TWILL_SHARED &&
                  twill_operand_is_peer(s->steps[i].dst);
    return writes;
}

/* Add to the set *places which places of SHARED a schedule uses, that of local rank `local` of two.
 * Bit 0 is the shard of the rank whose SHARED it is, bit 1 that of the other rank. */
static void add_places(const struct twill_schedule *s, uint32_t local, unsigned *places)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const struct twill_step *step = &s->steps[i];
        const twill_operand operands[] = {step->src, step->dst};
        for (unsigned o = 0; o < TWILL_ARRAY_LENGTH(operands); o++) {
            if (twill_operand_space(operands[o]) != TWILL_SHARED)
                continue;
            uint32_t first = twill_operand_block(operands[o]) % s->blocks, each = s->blocks / 2;
            uint32_t holder = twill_operand_is_peer(operands[o]) ? 1 - local : local;
            *places |= 1u << (first / each ^ holder);
            *places |= 1u << ((first + twill_max(step->blocks, 1) - 1) / each % 2 ^ holder);
        }
    }
}

/* Set plan->alternates if two ranks swap the halves of SHARED every time (twill_node_area_index()).
 * This pays if they only read each other's SHARED. If one writes results to the other's, lines
 * return anyway. Also set plan->shares_one. Both ranks decide the same. Returns TWILL_OK, or the
 * error of a schedule. */
static twill_status decide_alternation(struct twill_engine *engine, struct twill_plan *plan)
{
    const struct twill_schedule *s = &plan->schedule;
    struct twill_schedule other = {0};
    unsigned places = 0;
    if (engine->local_size != 2 || s->shared_blocks == 0)
        return TWILL_OK;
    TWILL_TRY(&engine->error, twill_schedule_emit(&other, plan->choice.algorithm, engine->world,
                                                  engine->node->rank[1 - engine->local],
                                                  &plan->choice.shape, &engine->error));
    plan->alternates = !writes_to_peers(s) && !writes_to_peers(&other);
    if (plan->alternates && engine->world->size == 2 && s->shards == 2 &&
        s->shared_blocks == s->blocks) {
        add_places(s, engine->local, &places);
        add_places(&other, 1 - engine->local, &places);
        plan->shares_one = places == 1 || places == 2;
    }
    twill_schedule_destroy(&other);
    return TWILL_OK;
}

/* Return whether each rank of a plan signals at most once, from its SHARED, and puts nothing into
 * IMM. This is known only of an algorithm that signals alike. */
static bool decide_once(const struct twill_plan *plan)
{
    const struct twill_schedule *s = &plan->schedule;
    unsigned signals = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        signals += s->steps[i].op == TWILL_STEP_SIGNAL;
        if (s->steps[i].op == TWILL_STEP_AWAIT && s->steps[i].ordinal > 1)
            return false;
    }
    return signals <= 1 && s->lanes == 1 && s->shared_blocks > 0 && !s->uses_imm &&
           plan->choice.algorithm->signals_alike;
}

/* Return how many steps at the start of the plan's schedule are an entry barrier that may be
 * skipped. It is 0 if there is none, or the plan is not one for mapped buffers on one node. All
 * ranks get the same, which tests/unit/algorithms/test_algorithms_sweep.c checks. */
static uint32_t entry_steps_of(const struct twill_engine *engine, const struct twill_plan *plan)
{
    const struct twill_choice *choice = &plan->choice;
    if (engine->world->nodes > 1 || choice->algorithm->protocols == 0 ||
        choice->shape.protocol != TWILL_PROTOCOL_MAPPED)
        return 0;
    return twill_schedule_entry_steps(&plan->schedule, engine->rank, engine->world->size);
}

/* Set all sizes and flags of a plan that has its schedule. Returns TWILL_OK or the error. */
static twill_status bind_plan(struct twill_engine *engine, struct twill_plan *plan)
{
    struct copies copies;
    TWILL_TRY(&engine->error, decide_alternation(engine, plan));
    plan->signals_once = decide_once(plan);
    plan->overlaps = decide_overlap(engine, plan);
    plan->entry_steps = entry_steps_of(engine, plan);
    TWILL_TRY(&engine->error, count_declared(engine, plan, &copies));
    plan->fetches = plan->choice.shape.protocol == TWILL_PROTOCOL_FETCHED &&
                    (plan->schedule.uses_peer_src || plan->schedule.uses_peer_dst);
    size_segments(engine, plan, &copies);
    count_messages(plan);
    size_bounces(engine, plan);
    return TWILL_OK;
}

twill_status twill_plan_sketch(struct twill_plan *plan, struct twill_engine *engine,
                               const struct twill_choice *choice)
{
    *plan = (struct twill_plan){.choice = *choice};
    TWILL_TRY(&engine->error, twill_schedule_emit(&plan->schedule, choice->algorithm, engine->world,
                                                  engine->rank, &choice->shape, &engine->error));
    return bind_plan(engine, plan);
}

#ifndef NDEBUG
/* In debug builds up to 32 ranks, verify the schedules of all. Returns TWILL_OK or the error. */
static twill_status verify_schedules(struct twill_engine *engine, const struct twill_choice *choice)
{
    const struct twill_world *world = engine->world;
    if (world->size > 32)
        return TWILL_OK;
    struct twill_schedule all[32] = {0};
    twill_status status = TWILL_OK;
    for (uint32_t r = 0; r < world->size && status == TWILL_OK; r++)
        status = twill_schedule_emit(&all[r], choice->algorithm, world, r, &choice->shape,
                                     &engine->error);
    if (status == TWILL_OK)
        status = twill_schedule_verify(all, world, &choice->shape, false, &engine->error);
    for (uint32_t r = 0; r < world->size; r++)
        twill_schedule_destroy(&all[r]);
    return status;
}
#endif

/* Make a plan, add it to the cache and store it in *made. Returns TWILL_OK or the error. */
static twill_status make_plan(struct twill_engine *engine, const struct twill_choice *choice,
                              struct twill_plan **made)
{
    struct twill_plan *plan = calloc(1, sizeof(*plan));
    if (plan == NULL)
        return TWILL_FAIL(&engine->error, TWILL_ERR_MEMORY, "out of memory for a plan");
    twill_status status = TWILL_OK;
#ifndef NDEBUG
    TWILL_TRY_OR_FAIL(&engine->error, verify_schedules(engine, choice));
#endif
    TWILL_TRY_OR_FAIL(&engine->error, twill_plan_sketch(plan, engine, choice));
    TWILL_TRY_OR_FAIL(&engine->error, connect_peers(engine, plan));
    plan->next = engine->plan_cache.plans;
    engine->plan_cache.plans = plan;
    twill_engine_publish_bytes(engine);
    *made = plan;
    return TWILL_OK;
fail:
    twill_schedule_destroy(&plan->schedule);
    free(plan);
    return status;
}

/* Return whether two choices have the same plan. Their sizes do not count. */
static bool choices_match(const struct twill_choice *a, const struct twill_choice *b)
{
    return a->algorithm == b->algorithm && a->shape.collective == b->shape.collective &&
           a->shape.root == b->shape.root && a->shape.vector == b->shape.vector &&
           a->shape.order == b->shape.order &&
           memcmp(a->shape.parameter, b->shape.parameter, sizeof(a->shape.parameter)) == 0 &&
           (a->algorithm->protocols == 0 || a->shape.protocol == b->shape.protocol);
}

twill_status twill_plan_get(struct twill_engine *engine, const struct twill_choice *choice,
                            struct twill_plan **plan)
{
    for (struct twill_plan *p = engine->plan_cache.plans; p != NULL; p = p->next) {
        if (choices_match(&p->choice, choice)) {
            *plan = p;
            return TWILL_OK;
        }
    }
    return make_plan(engine, choice, plan);
}

void twill_plans_destroy(struct twill_engine *engine)
{
    while (engine->plan_cache.plans != NULL) {
        struct twill_plan *plan = engine->plan_cache.plans;
        engine->plan_cache.plans = plan->next;
        twill_schedule_destroy(&plan->schedule);
        free(plan);
    }
}
