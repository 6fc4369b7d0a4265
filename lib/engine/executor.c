/* SPDX-License-Identifier: Apache-2.0 */
/* The executor issues the steps of the instances in flight, lane by lane. lib/wait waits. */
#include "fabric/shm/call_records.h"
#include "lib/engine/engine_internal.h"
#include "lib/engine/time_split.h"
#include "lib/engine/trace_calls.h"
#include "lib/job/operation.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(TWILL_IMM_BYTES == TWILL_NODE_PAYLOAD,
               "immediates have the size that schedules assume");

/* Results of a step other than errors. */
enum { BLOCKED = 0, ADVANCED = 1 };

/* Return the lane of node memory and messages for a schedule's lane in the instance's slot. */
static unsigned physical_lane(const struct twill_instance *instance, unsigned lane)
{
    return (unsigned)(instance->epoch % TWILL_WINDOW) * TWILL_SCHEDULE_LANES + lane;
}

/* Return message number `index` of a lane of a slot. */
static struct twill_posted *posted_at(const struct twill_request *run,
                                      const struct twill_slot *slot, unsigned lane, uint32_t index)
{
    return &slot->posted[(size_t)lane * run->plan->most_posted + index];
}

static struct twill_slot *instance_slot(const struct twill_request *run,
                                        const struct twill_instance *instance)
{
    return &run->engine->issue.slot[instance->epoch % TWILL_WINDOW];
}

/* Return the scratch into which a message is received before it is reduced. */
static void *bounce_at(const struct twill_request *run, const struct twill_slot *slot,
                       const struct twill_posted *posted)
{
    size_t index = (size_t)(posted - slot->posted);
    size_t each = run->layout.late ? run->plan->late_bytes : run->plan->bounce_bytes;
    return slot->scratch + run->plan->tmp_bytes + index * each;
}

/* Return the set of enum twill_news that are known of the run's call or an earlier one. */
static __attribute__((noinline)) uint8_t news_of(const struct twill_request *run)
{
    unsigned news = 0;
    for (unsigned i = 0; i < TWILL_NEWS_KINDS; i++) {
        uint64_t told = twill_news_told(twill_node_news(run->engine->node), (enum twill_news)i);
        news |= (unsigned)(told != 0 && told <= run->sequence) << i;
    }
    return (uint8_t)news;
}

/* Publish on this node the set of enum twill_news that a message of the run's call brought. Where
 * the calls of a NaN are not numbered here, it was in an earlier one. */
static __attribute__((noinline)) void note_news(const struct twill_request *run, unsigned news)
{
    struct twill_news_words *words = twill_node_news(run->engine->node);
    bool numbered = run->engine->tuning.nan.looks;
    if (news & 1u << TWILL_NEWS_STOP)
        (void)twill_news_tell(words, TWILL_NEWS_STOP, run->sequence);
    if (news & 1u << TWILL_NEWS_NAN)
        (void)twill_news_tell(words, TWILL_NEWS_NAN, numbered ? run->sequence : 1);
}

/* Return which rank was the last to enter the run's call, and when, to send it with a message. Keep
 * it in run->last. It is this rank until others are known. The entries of the node's ranks are read
 * only if this one entered at least TWILL_SPLIT_TICKS ago. Also give the news of the node. */
static struct twill_last_entry last_entry(struct twill_request *run)
{
    uint64_t entered = run->ticks;
    if (entered > run->last.ticks)
        run->last = (struct twill_last_entry){.ticks = entered, .rank = run->engine->rank};
    if (twill_ticks() - entered >= TWILL_SPLIT_TICKS)
        (void)twill_split_look(run->engine, run->sequence, &run->last);
    struct twill_last_entry last = run->last;
    last.news = 0;
    if (TWILL_UNLIKELY(
            atomic_load_explicit(&twill_node_news(run->engine->node)->any, memory_order_acquire)))
        last.news = news_of(run);
    return last;
}

/* Return whether only the thread that holds the communicator may reduce messages of the run: if the
 * program's function does that, events are recorded, or there are no other threads. */
static bool needs_one_thread(const struct twill_request *run)
{
    const struct twill_operation *created = run->layout.created;
    return run->engine->tuning.pool == NULL || (created != NULL && created->function != NULL) ||
           twill_trace_is_detailed(&run->engine->trace);
}

/* Post the message of a step's `blocks` blocks from block `at` on, which are adjacent. Returns
 * ADVANCED or an error below 0. */
static int post_blocks(struct twill_request *run, struct twill_instance *instance,
                       const struct twill_step *step, uint32_t at, uint32_t blocks)
{
    struct twill_engine *engine = run->engine;
    struct twill_slot *slot = instance_slot(run, instance);
    struct twill_transport *link = twill_engine_link(engine, step->peer[0]);
    bool sends = step->op == TWILL_STEP_SEND, reduces = step->op == TWILL_STEP_RECV_REDUCE;
    bool partial = (step->flags & TWILL_STEP_PARTIAL) != 0;
    struct twill_operand_place where = {
        sends ? step->src : step->dst, at, blocks, step->peer[0], step->lane, partial};
    if (reduces)
        where.partial = (step->flags & TWILL_STEP_FINAL) == 0;
    struct twill_elements elements = twill_run_locate(run, instance, &where);
    if (blocks > 0 && elements.count == 0 && twill_run_slot(run) > 0) /* the peer knows, too */
        return ADVANCED;
    struct twill_posted *posted = posted_at(run, slot, step->lane, instance->posted[step->lane]++);
    struct twill_transfer *request = &posted->request;
    *request = (struct twill_transfer){
        .status = TWILL_PENDING,
        .kind = sends ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
        .lane = (uint8_t)physical_lane(instance, step->lane),
        .peer = step->peer[0],
        .signature = run->signature,
        .buffer = elements.start,
        .bytes = elements.count * twill_run_width(run, partial),
        .call = {.sequence = (uint32_t)run->sequence,
                 .what = twill_call_what(&run->summary),
                 .count = run->summary.count,
                 .root = run->summary.root},
    };
    posted->late = reduces && run->layout.late;
    if (reduces) {
        where.operand = step->src;
        where.partial = (step->flags & TWILL_STEP_PARTIAL_OWN) != 0;
        posted->run = run;
        posted->flags = step->flags;
        posted->dst = elements.start;
        posted->src = twill_run_locate(run, instance, &where).start;
        request->reduce_context = posted;
        request->reduce = posted->late ? NULL : twill_run_reduce;
        request->alone = needs_one_thread(run);
        request->bounce = link->ops->needs_bounce ? bounce_at(run, slot, posted) : NULL;
        if (posted->late)
            request->buffer = bounce_at(run, slot, posted);
    }
    if (sends && !link->ops->sleeps_on_doorbell)
        request->last = last_entry(run);
    if (sends)
        twill_counter_add(&engine->usage.counters.bytes_sent, request->bytes);
    if (twill_trace_is_detailed(&engine->trace))
        twill_trace_detail(run, sends ? TWILL_TRACE_SEND_BEGIN : TWILL_TRACE_RECV_BEGIN,
                           request->peer, request->bytes, request->lane);
    twill_status status = link->ops->post(link, request, &engine->error);
    return status == TWILL_OK ? ADVANCED : status;
}

/* Post the messages of a step. Returns ADVANCED or an error. */
static int post_transfer(struct twill_request *run, struct twill_instance *instance,
                         const struct twill_step *step)
{
    twill_operand operand = step->op == TWILL_STEP_SEND ? step->src : step->dst;
    uint32_t at = 0;
    do {
        uint32_t blocks = step->blocks > 0 ? twill_run_together(run, operand, at, step->blocks) : 0;
        int answer = post_blocks(run, instance, step, at, blocks);
        if (answer != ADVANCED)
            return answer;
        at += blocks;
    } while (at < step->blocks);
    return ADVANCED;
}

/* Return the error that a message of another call has arrived, with a description of that call if
 * it is known. A peer of this node has published its calls. Between nodes the message describes it.
 * If that shows no difference, set issue.differs to the peer, which twill_comm_fail() then asks. */
static int call_differs(struct twill_engine *engine, const struct twill_transfer *request)
{
    if (engine->world->node[request->peer] == engine->world->node[engine->rank])
        TWILL_TRY(&engine->error, engine->ports->check_peer(engine, request->peer, true));
    TWILL_TRY(&engine->error,
              engine->ports->check_message(engine, request->peer, &request->peer_call));
    engine->issue.differs = request->peer + 1;
    if (request->peer_bytes == request->bytes)
        return TWILL_ENGINE_FAIL(engine, TWILL_ERR_MISMATCH,
                                 "%s is in another call or has other arguments",
                                 TWILL_ENGINE_RANK_NAME(engine, request->peer));
    return TWILL_ENGINE_FAIL(
        engine, TWILL_ERR_MISMATCH,
        "%s is in another call or has other arguments: its message has %llu bytes, not %zu",
        TWILL_ENGINE_RANK_NAME(engine, request->peer), (unsigned long long)request->peer_bytes,
        request->bytes);
}

/* Raise run->last to the latest entry of a rank into the call that the first `count` messages of a
 * lane report, and publish their news to the node. If one is later than run->last was and than this
 * rank's own entry, publish it to the node. */
static void note_entries(struct twill_request *run, const struct twill_slot *slot, uint32_t count,
                         unsigned lane)
{
    bool later = false;
    for (uint32_t i = 0; i < count; i++) {
        const struct twill_last_entry *last = &posted_at(run, slot, lane, i)->request.last;
        if (TWILL_UNLIKELY(last->news != 0))
            note_news(run, last->news);
        if (last->ticks <= run->last.ticks)
            continue;
        run->last = *last;
        later = true;
    }
    if (later && run->last.ticks > run->ticks)
        twill_node_note_entry(run->engine->node, run->sequence, run->last);
}

/* Record in the event ring that the messages of a lane have ended. */
static void record_messages(struct twill_request *run, const struct twill_instance *instance,
                            unsigned lane)
{
    const struct twill_slot *slot = instance_slot(run, instance);
    for (uint32_t i = 0; i < instance->posted[lane]; i++) {
        const struct twill_transfer *request = &posted_at(run, slot, lane, i)->request;
        bool sends = request->kind == TWILL_TRANSFER_SEND;
        twill_trace_detail(run, sends ? TWILL_TRACE_SEND_END : TWILL_TRACE_RECV_END, request->peer,
                           request->bytes, request->lane);
    }
}

/* Return the error of a message that has failed. Return TWILL_OK if it is complete or pending. */
static twill_status posted_outcome(struct twill_engine *engine,
                                   const struct twill_transfer *request)
{
    if (request->status == TWILL_ERR_MISMATCH)
        return call_differs(engine, request);
    if (request->status < 0)
        return TWILL_ENGINE_FAIL(engine, (twill_status)request->status,
                                 "message with %s failed: %s",
                                 TWILL_ENGINE_RANK_NAME(engine, request->peer),
                                 twill_strerror((twill_status)request->status));
    return TWILL_OK;
}

/* Check the messages of a lane. Returns BLOCKED before all are complete, or an error. Then notes
 * the entries that they report, reduces those that were received to be reduced late, forgets them,
 * and returns ADVANCED. */
static int wait_posted(struct twill_request *run, struct twill_instance *instance, unsigned lane)
{
    const struct twill_slot *slot = instance_slot(run, instance);
    for (uint32_t i = 0; i < instance->posted[lane]; i++) {
        const struct twill_transfer *request = &posted_at(run, slot, lane, i)->request;
        if (request->status == TWILL_PENDING)
            return BLOCKED;
        if (TWILL_UNLIKELY(request->status != TWILL_OK))
            return posted_outcome(run->engine, request);
    }
    note_entries(run, slot, instance->posted[lane], lane);
    if (twill_trace_is_detailed(&run->engine->trace))
        record_messages(run, instance, lane);
    for (uint32_t i = 0; run->layout.late && i < instance->posted[lane]; i++) {
        struct twill_posted *posted = posted_at(run, slot, lane, i);
        if (posted->late)
            twill_run_reduce(&posted->request, 0, posted->request.buffer, posted->request.bytes);
    }
    instance->posted[lane] = 0;
    return ADVANCED;
}

bool twill_run_is_written_down(const struct twill_request *run, uint32_t peer)
{
    const struct twill_engine *engine = run->engine;
    struct twill_call_record record;
    uint64_t entered;
    return engine->issue.sequence >= run->sequence &&
           twill_node_read_last_call(engine->node, engine->world->local[peer], &record, &entered) &&
           record.sequence >= run->sequence;
}

int twill_run_differs(struct twill_request *run, uint32_t peer, bool is_known)
{
    struct twill_engine *engine = run->engine;
    TWILL_TRY(&engine->error, engine->ports->check_peer(engine, peer, is_known));
    if (!is_known)
        return BLOCKED;
    return TWILL_ENGINE_FAIL(engine, TWILL_ERR_MISMATCH,
                             "%s was in another call or had other arguments",
                             TWILL_ENGINE_RANK_NAME(engine, peer));
}

/* Handle a flag of `peer` whose signature is not this rank's, perhaps that of a later instance.
 * Returns ADVANCED if the peer began instance `epoch` with this rank's signature. Else returns the
 * error if the peer's call differs, or BLOCKED if it is not published yet. That is read before the
 * signature, as the peer stores them in opposite order. */
static int signature_differs(struct twill_request *run, uint64_t epoch, uint32_t peer)
{
    bool is_known = twill_run_is_written_down(run, peer);
    if (twill_node_signature(run->engine->node, run->engine->world->local[peer], epoch) ==
        run->signature)
        return ADVANCED;
    return twill_run_differs(run, peer, is_known);
}

/* Return ADVANCED if the peer's flag or immediate has arrived, else BLOCKED. If it is of another
 * call, return an error or, if `early`, BLOCKED, as this call is not published then. Always inline,
 * as every small call waits here. */
__attribute__((always_inline)) static inline int
check_arrival(struct twill_request *run, const struct twill_instance *instance,
              const struct twill_step *step, uint32_t peer, bool early)
{
    const struct twill_node *node = run->engine->node;
    uint32_t local = run->engine->world->local[peer];
    unsigned lane = physical_lane(instance, step->lane);
    uint32_t signature;
    if ((step->flags & TWILL_STEP_IMM) != 0 || twill_run_signals_by_imm(run)) {
        const struct twill_immediate *line = twill_node_imm(node, local, lane, instance->epoch);
        if (line == NULL)
            return BLOCKED;
        signature = line->signature;
    } else {
        uint64_t value = twill_node_flag(node, local, lane);
        if (value < twill_node_flag_value(instance->epoch, step->ordinal))
            return BLOCKED;
        signature = twill_node_flag_signature(node, local, lane);
    }
    if (TWILL_LIKELY(signature == run->signature))
        return ADVANCED;
    if (early)
        return twill_node_signature(node, local, instance->epoch) == run->signature ? ADVANCED
                                                                                    : BLOCKED;
    return signature_differs(run, instance->epoch, peer);
}

/* Return ADVANCED if all arrivals that an AWAIT needs are there, or what check_arrival() returns
 * for the first that is not. */
__attribute__((always_inline)) static inline int flags_await(struct twill_request *run,
                                                             const struct twill_instance *instance,
                                                             const struct twill_step *step,
                                                             bool early)
{
    for (unsigned i = 0; i < step->nsrc; i++) {
        if (step->peer[i] == run->engine->rank)
            continue;
        int answer = check_arrival(run, instance, step, step->peer[i], early);
        if (answer != ADVANCED)
            return answer;
    }
    return ADVANCED;
}

/* Execute a PUT_IMM. Returns ADVANCED or an error. */
static int imm_put(struct twill_request *run, const struct twill_instance *instance,
                   const struct twill_step *step)
{
    bool partial = (step->flags & TWILL_STEP_PARTIAL) != 0;
    struct twill_operand_place where = {step->src,     0,          step->blocks,
                                        step->peer[0], step->lane, partial};
    struct twill_elements src = twill_run_locate(run, instance, &where);
    size_t bytes = src.count * twill_run_width(run, partial);
    if (TWILL_UNLIKELY(bytes > TWILL_IMM_BYTES)) /* the selector prevents this */
        return TWILL_ENGINE_FAIL(run->engine, TWILL_ERR_INTERNAL,
                                 "%zu bytes do not fit an immediate", bytes);
    const void *payload = bytes > 0 ? src.start : (const void *)step; /* memcpy() allows no NULL */
    twill_node_put(run->engine->node, physical_lane(instance, step->lane), instance->epoch,
                   run->signature, payload, bytes);
    return ADVANCED;
}

void twill_run_signal_by_imm(const struct twill_request *run, uint64_t epoch)
{
    struct twill_node *node = run->engine->node;
    bool has_data = run->layout.place == TWILL_SHARED_IMM;
    twill_node_show_imm(twill_node_imm_at(node, node->me, 0, epoch), epoch, run->signature,
                        has_data ? run->layout.shared.bytes : 0);
    twill_node_ring_doorbells(node);
}

/* Issue one step and, after a REDUCE, the COPYs of its result that follow. Returns ADVANCED,
 * BLOCKED if it must be tried again, or an error below 0. */
static int issue_step(struct twill_request *run, struct twill_instance *instance,
                      const struct twill_step *step)
{
    switch ((enum twill_step_op)step->op) {
    case TWILL_STEP_SEND:
    case TWILL_STEP_RECV:
    case TWILL_STEP_RECV_REDUCE:
        return post_transfer(run, instance, step);
    case TWILL_STEP_REDUCE: {
        const struct twill_schedule *s = &run->plan->schedule;
        uint32_t copies;
        TWILL_TRY(&run->engine->error,
                  twill_run_reduce_and_copy(run, instance, step,
                                            s->steps + s->lane_first[step->lane + 1], &copies));
        instance->at[step->lane] += copies;
        return ADVANCED;
    }
    case TWILL_STEP_COPY:
        TWILL_TRY(&run->engine->error, twill_run_copy(run, instance, step));
        return ADVANCED;
    case TWILL_STEP_PUT_IMM:
        return imm_put(run, instance, step);
    case TWILL_STEP_WAIT:
        return wait_posted(run, instance, step->lane);
    case TWILL_STEP_SIGNAL:
        if (twill_run_signals_by_imm(run)) {
            twill_run_signal_by_imm(run, instance->epoch);
            return ADVANCED;
        }
        twill_node_signal(run->engine->node, physical_lane(instance, step->lane),
                          twill_node_flag_value(instance->epoch, ++instance->signalled[step->lane]),
                          run->signature);
        return ADVANCED;
    case TWILL_STEP_AWAIT:
        return flags_await(run, instance, step, false);
    case TWILL_STEP_OP_COUNT:
        break;
    }
    return TWILL_ENGINE_FAIL(run->engine, TWILL_ERR_INTERNAL, "unknown step %u", step->op);
}

/* Issue the steps of a lane, which must not have ended, until one blocks or, if `nonblocking`,
 * until an AWAIT or WAIT, which may block. Returns how many were issued, and one more if the lane
 * ends, or a negative status. */
static int advance_lane(struct twill_request *run, struct twill_instance *instance, unsigned lane,
                        bool nonblocking)
{
    const struct twill_schedule *s = &run->plan->schedule;
    uint32_t length = s->lane_first[lane + 1] - s->lane_first[lane];
    const struct twill_step *steps = s->steps + s->lane_first[lane];
    int moved = 0;
    while (instance->at[lane] < length) {
        const struct twill_step *step = &steps[instance->at[lane]];
        if (nonblocking && (step->op == TWILL_STEP_AWAIT || step->op == TWILL_STEP_WAIT))
            return moved;
        int answer = issue_step(run, instance, step);
        if (answer < 0)
            return answer;
        if (answer == BLOCKED)
            return moved;
        instance->at[lane]++;
        moved++;
    }
    instance->at[lane] = UINT32_MAX; /* ended */
    instance->lanes_left--;
    return moved + 1;
}

/* Grow the slot's memory to what an instance of this run needs. Returns TWILL_OK or the error. */
static twill_status reserve_slot(struct twill_request *run, struct twill_slot *slot)
{
    struct twill_engine *engine = run->engine;
    size_t posted = (size_t)TWILL_SCHEDULE_LANES * run->plan->most_posted;
    if (TWILL_UNLIKELY(run->layout.scratch_bytes > slot->scratch_bytes))
        TWILL_TRY(&engine->error, twill_engine_reserve(engine, &slot->scratch, &slot->scratch_bytes,
                                                       run->layout.scratch_bytes));
    if (TWILL_LIKELY(posted <= slot->posted_count))
        return TWILL_OK;
    free(slot->posted);
    slot->posted_count = 0;
    slot->posted = aligned_alloc(TWILL_CACHE_LINE,
                                 twill_round_up(posted * sizeof(*slot->posted), TWILL_CACHE_LINE));
    if (slot->posted == NULL)
        return TWILL_FAIL(&engine->error, TWILL_ERR_MEMORY, "out of memory for %zu requests",
                          posted);
    slot->posted_count = posted;
    twill_engine_publish_bytes(engine);
    return TWILL_OK;
}

twill_status twill_run_reserve_slots(struct twill_request *run)
{
    struct twill_engine *engine = run->engine;
    for (unsigned i = 0; i < TWILL_WINDOW; i++)
        if (!engine->issue.slot[i].instance.active)
            TWILL_TRY(&engine->error, reserve_slot(run, &engine->issue.slot[i]));
    return TWILL_OK;
}

twill_status twill_run_begin_segment(struct twill_request *run, struct twill_slot *slot,
                                     uint64_t epoch)
{
    struct twill_instance *instance = &slot->instance;
    size_t bounced_at = run->layout.bounced_at, skip = run->started * run->layout.segment_length;
    TWILL_TRY(&run->engine->error, reserve_slot(run, slot));
    if (TWILL_UNLIKELY(run->buffers.looks))
        TWILL_TRY(&run->engine->error,
                  twill_run_find_nan(run, run->buffers.side[TWILL_SRC].base, skip,
                                     twill_min(run->layout.segment_length, run->layout.most - skip),
                                     run->sequence));
    /* Field by field, as gcc would clear all with a string instruction that takes 10 ns. */
    instance->active = true;
    instance->epoch = epoch;
    instance->run = run;
    instance->skip = skip;
    instance->length = twill_min(run->layout.segment_length, run->layout.most - skip);
    instance->lanes_left = run->plan->schedule.lanes;
    for (unsigned lane = 0; lane < TWILL_SCHEDULE_LANES; lane++)
        instance->at[lane] = instance->posted[lane] = instance->signalled[lane] = 0;
    if (run->exchange.arrived && run->plan->entry_steps > 0) {
        instance->at[0] = run->plan->entry_steps;
        instance->signalled[0] = 1; /* flag values count the skipped SIGNAL, on all ranks */
    }
    run->exchange.arrived = false;
    for (unsigned i = 0; i < TWILL_SIDES; i++) {
        const struct twill_side *side = &run->buffers.side[i];
        instance->base[i] = side->base != NULL ? side->base + skip * run->layout.element : NULL;
        if (TWILL_UNLIKELY(side->bounced)) {
            instance->base[i] = slot->scratch + bounced_at;
            bounced_at += run->layout.copy_bytes;
        }
    }
    if (TWILL_UNLIKELY(run->buffers.side[TWILL_SRC].bounced))
        twill_run_bounce_in(run, instance);
    twill_staging_begin(run, instance);
    run->started++;
    if (twill_trace_is_detailed(&run->engine->trace))
        twill_trace_detail(run, TWILL_TRACE_SEGMENT_BEGIN, (uint32_t)epoch,
                           instance->length * run->layout.element, 0);
    twill_node_start(run->engine->node, epoch, run->signature);
    if (run->plan->schedule.eager) /* a rank may wait just for that: ranks_behind() */
        twill_node_ring_doorbells(run->engine->node);
    return TWILL_OK;
}

void twill_run_advance_ready(struct twill_slot *slot)
{
    struct twill_request *run = slot->instance.run;
    for (unsigned lane = 0; lane < run->plan->schedule.lanes; lane++)
        (void)advance_lane(run, &slot->instance, lane, true);
}

/* Begin to fetch what the copies of the fast path will read of SHARED some instances later. */
static void fetch_copied(const struct twill_request *run, uint64_t epoch)
{
    for (unsigned i = 0; i < run->fast_path.copies; i++) {
        const struct twill_fast_copy *copy = &run->fast_path.copy[i];
        if (copy->space == TWILL_SHARED)
            twill_node_fetch(twill_run_shared(run, copy->local, epoch) + copy->at, copy->bytes);
    }
}

/* Begin to fetch what a step awaits some instances later, as its peers are ahead: immediates, and
 * SHARED if that is small or medium. */
static void fetch_later(const struct twill_request *run, const struct twill_instance *instance,
                        const struct twill_step *step)
{
    bool by_imm = (step->flags & TWILL_STEP_IMM) != 0 || twill_run_signals_by_imm(run);
    bool is_small = run->layout.place == TWILL_SHARED_SMALL;
    for (unsigned i = 0; i < step->nsrc && by_imm; i++) {
        uint32_t local = run->engine->world->local[step->peer[i]];
        if (step->peer[i] == run->engine->rank)
            continue;
        twill_node_fetch_imm(run->engine->node, local, physical_lane(instance, step->lane),
                             instance->epoch);
        if (is_small && run->fast_path.copies == 0)
            twill_node_fetch(twill_run_shared(run, local, instance->epoch + TWILL_FETCH_AHEAD),
                             run->layout.shared.bytes);
    }
    if (is_small)
        fetch_copied(run, instance->epoch + TWILL_FETCH_AHEAD);
    else if (run->layout.place == TWILL_SHARED_MEDIUM) /* farther ahead would not fit the L1 */
        fetch_copied(run, instance->epoch + TWILL_WINDOW);
}

/* Issue the COPYs and REDUCEs of the only lane from step `first` on. */
static void issue_at_once(struct twill_request *run, struct twill_instance *instance,
                          const struct twill_step *first)
{
    const struct twill_schedule *s = &run->plan->schedule;
    instance->skip = 0;
    instance->length = run->layout.most;
    instance->streams = instance->is_measured = false;
    for (unsigned i = 0; i < TWILL_SIDES; i++)
        instance->base[i] = run->buffers.side[i].base;
    for (const struct twill_step *step = first, *end = s->steps + s->count; step < end; step++) {
        uint32_t copies = 0;
        if (step->op == TWILL_STEP_COPY)
            (void)twill_run_copy(run, instance, step);
        else if (step->op == TWILL_STEP_REDUCE)
            (void)twill_run_reduce_and_copy(run, instance, step, end, &copies);
        step += copies;
    }
}

bool twill_run_at_once(struct twill_request *run, struct twill_slot *slot, uint64_t epoch)
{
    const struct twill_schedule *s = &run->plan->schedule;
    const struct twill_step *first = s->steps + run->fast_path.steps, *end = s->steps + s->count;
    struct twill_instance *instance = &slot->instance;
    instance->epoch = epoch;
    for (const struct twill_step *step = first; step < end; step++)
        if (step->op == TWILL_STEP_AWAIT && flags_await(run, instance, step, true) != ADVANCED)
            return false;
    for (const struct twill_step *step = first; step < end && s->eager; step++)
        if (step->op == TWILL_STEP_AWAIT)
            fetch_later(run, instance, step);
    if (run->fast_path.copies > 0)
        twill_run_make_copies(run, epoch);
    else
        issue_at_once(run, instance, first);
    if (!s->eager)
        run->engine->issue.arrived = epoch;
    return true;
}

int twill_run_advance(struct twill_slot *slot)
{
    struct twill_instance *instance = &slot->instance;
    struct twill_request *run = instance->run;
    int moved = 0;
    for (unsigned lane = 0; lane < run->plan->schedule.lanes; lane++) {
        if (instance->at[lane] == UINT32_MAX)
            continue;
        int answer = advance_lane(run, instance, lane, false);
        if (answer < 0)
            return answer;
        moved += answer;
    }
    if (instance->lanes_left > 0)
        return moved;
    if (TWILL_UNLIKELY(run->buffers.side[TWILL_DST].bounced))
        twill_run_bounce_out(run, instance);
    if (TWILL_UNLIKELY(instance->is_measured))
        twill_staging_end(run, instance);
    instance->active = false;
    if (twill_trace_is_detailed(&run->engine->trace))
        twill_trace_detail(run, TWILL_TRACE_SEGMENT_END, (uint32_t)instance->epoch,
                           instance->length * run->layout.element, 0);
    if (!run->plan->schedule.eager && run->engine->issue.arrived < instance->epoch &&
        twill_run_slot(run) == 0) /* with slots, messages do not prove that all have started */
        run->engine->issue.arrived = instance->epoch;
    run->finished++;
    return moved + 1;
}

/* Store in ranks[] up to `most` ranks that a lane's next step waits for, and "signal" or "message"
 * in *name. Returns how many. */
static unsigned lane_waits_for(const struct twill_slot *slot, unsigned lane, uint32_t *ranks,
                               unsigned most, const char **name)
{
    const struct twill_instance *instance = &slot->instance;
    struct twill_request *run = instance->run;
    const struct twill_schedule *s = &run->plan->schedule;
    const struct twill_step *step = &s->steps[s->lane_first[lane] + instance->at[lane]];
    unsigned n = 0;
    if (step->op == TWILL_STEP_AWAIT) {
        *name = "signal";
        for (unsigned i = 0; i < step->nsrc && n < most; i++)
            if (step->peer[i] != run->engine->rank &&
                check_arrival(run, instance, step, step->peer[i], false) == BLOCKED)
                ranks[n++] = step->peer[i];
    } else if (step->op == TWILL_STEP_WAIT) {
        *name = "message";
        for (uint32_t i = 0; i < instance->posted[lane] && n < most; i++) {
            const struct twill_transfer *request = &posted_at(run, slot, lane, i)->request;
            if (request->status == TWILL_PENDING && (n == 0 || ranks[n - 1] != request->peer))
                ranks[n++] = request->peer;
        }
    }
    return n;
}

twill_status twill_engine_check_posted(struct twill_engine *engine)
{
    for (unsigned i = 0; i < TWILL_WINDOW * TWILL_SCHEDULE_LANES; i++) {
        const struct twill_slot *slot = &engine->issue.slot[i / TWILL_SCHEDULE_LANES];
        const struct twill_instance *instance = &slot->instance;
        unsigned lane = i % TWILL_SCHEDULE_LANES;
        for (uint32_t m = 0; instance->active && m < instance->posted[lane]; m++)
            TWILL_TRY(&engine->error,
                      posted_outcome(engine, &posted_at(instance->run, slot, lane, m)->request));
    }
    return TWILL_OK;
}

unsigned twill_run_waits_for(const struct twill_slot *slot, uint32_t *ranks, unsigned most,
                             const char **step)
{
    const struct twill_instance *instance = &slot->instance;
    unsigned n = 0;
    if (!instance->active)
        return 0;
    for (unsigned lane = 0; lane < instance->run->plan->schedule.lanes; lane++)
        if (instance->at[lane] != UINT32_MAX)
            n += lane_waits_for(slot, lane, ranks + n, most - n, step);
    return n;
}
