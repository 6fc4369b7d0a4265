/* SPDX-License-Identifier: Apache-2.0 */
/* The start of a call, and the fast path of small calls. Peers wait for the first store that a
 * rank shows them. So a call that repeats an earlier one makes that store before any bookkeeping:
 * a PUT_IMM, a COPY to SHARED and a SIGNAL, or a SIGNAL. Operands are looked up once, when the run
 * is laid out.
 *
 * twill_request_begin() gets a request whose arguments have been checked. It computes the
 * signature and calls post_stores(). If all that a blocking call awaits is there, end_at_once()
 * issues the other steps and records the call, which was never in the queue. Else enter_call()
 * begins the segment, issues the steps that cannot wait, and numbers, enqueues and publishes the
 * call. So a peer may see the signature of a call before it can read which call that is
 * (twill_run_is_written_down()). A repeated call whose buffers peers access has no plan before it
 * knows where their buffers are now. It publishes its own addresses, and run_mapped() does the
 * rest.
 *
 * Invariants:
 * - The fast path is taken only under three conditions. The queue is empty, so no instance is in
 *   flight and the slot of engine->issue.epoch is free. The run has its plan, so it need not
 *   exchange buffer addresses. All ranks of the node have begun the instance
 *   run->layout.max_ahead before, so the lines and copies of this epoch are free.
 * - twill_run_lay_out() sets run->fast_path, and twill_run_move() updates `from`. Its kind is NONE
 *   unless the run has one segment, one lane, no messages, and first steps as above that read the
 *   caller's buffer directly.
 * - The stores are those of the first `steps` steps of lane 0, with the same lane, epoch and
 *   signature. start_instance() makes the executor skip them.
 * - Nothing here fails, and only run_mapped() waits, for some microseconds at most. If
 *   start_instance() cannot reserve memory, the queue begins the segment again later; repeating
 *   the stores changes nothing. */
#include "fabric/shm/call_records.h"
#include "kernels/kernels.h"
#include "lib/engine/engine_internal.h"
#include "lib/engine/trace_calls.h"
#include "lib/job/operation.h"

/* Ticks between two blocking calls in a stream, some 0.1 us. Peers are often ahead in one. Else an
 * early look for what they publish would take the line away from a peer that is about to write. A
 * processor may still copy when it reads the clock, so half a tick for each byte is added. */
#define STREAM_TICKS 256u
/* Vain looks of a call for what its peers publish before it enters the queue, about 1.5 us. */
#define MAPPED_POLLS 32u
/* Copies to SHARED up to this size are fetched ahead. In longer ones a processor does it itself. */
#define FETCH_MOST 2048u
/* This many instances after this one, peers have read what was in these copies of SHARED. */
#define FETCH_COPIES_AHEAD (TWILL_WINDOW - 1)

/* Set `side`, `at`, `from` and `bytes` of *fast_path to the source of the step. Returns false if
 * this rank has no such buffer, if it is empty, or if it is copied through scratch. */
static bool find_source(const struct twill_request *run, const struct twill_step *step,
                        struct twill_fast_path *fast_path)
{
    unsigned side = twill_operand_space(step->src);
    if (side >= TWILL_SIDES || run->buffers.side[side].bounced ||
        run->buffers.side[side].base == NULL)
        return false;
    const struct twill_instance whole = {
        .length = run->layout.most,
        .base = {run->buffers.side[TWILL_SRC].base, run->buffers.side[TWILL_DST].base}};
    struct twill_operand_place where = {.operand = step->src, .blocks = step->blocks};
    struct twill_elements elements = twill_run_locate(run, &whole, &where);
    fast_path->side = (uint8_t)side;
    fast_path->at = (size_t)(elements.start - run->buffers.side[side].base);
    fast_path->from = elements.start;
    fast_path->bytes = elements.count * run->layout.element;
    return fast_path->bytes > 0;
}

/* Return the offset in bytes of the step's destination in a copy of SHARED. */
static size_t place_in_shared(const struct twill_request *run, const struct twill_step *step)
{
    const struct twill_instance first = {.length = run->layout.most};
    struct twill_operand_place where = {.operand = step->dst, .blocks = step->blocks};
    return (size_t)(twill_run_locate(run, &first, &where).start -
                    twill_run_shared(run, run->engine->local, 0));
}

/* Return whether a step copies adjacent blocks of this rank into its SHARED. */
static bool is_copy_in(const struct twill_request *run, const struct twill_step *step)
{
    return step->op == TWILL_STEP_COPY && step->flags == 0 && step->blocks > 0 &&
           twill_operand_space(step->dst) == TWILL_SHARED && !twill_operand_is_peer(step->dst) &&
           !twill_operand_is_peer(step->src) &&
           twill_run_together(run, step->dst, 0, step->blocks) == step->blocks;
}

/* Set *copy to the copy of the operand `src`, a peer's one in the memory of rank `peer`, to the
 * step's blocks in DST of this rank. Returns false if the operand is not in SRC, IMM or SHARED, if
 * the blocks are not adjacent, or if they have more than TWILL_MEDIUM_BYTES. */
static bool find_copy(const struct twill_request *run, const struct twill_step *step,
                      twill_operand src, uint32_t peer, struct twill_fast_copy *copy)
{
    const struct twill_engine *engine = run->engine;
    const struct twill_instance first = {
        .length = run->layout.most,
        .base = {run->buffers.side[TWILL_SRC].base, run->buffers.side[TWILL_DST].base}};
    struct twill_operand_place from = {src, 0, step->blocks, peer, step->lane, false};
    struct twill_operand_place to = {.operand = step->dst, .blocks = step->blocks};
    unsigned space = twill_operand_space(src);
    if (step->blocks == 0 || step->dst >> TWILL_BLOCK_BITS != TWILL_DST || space == TWILL_DST ||
        space == TWILL_TMP || run->layout.after != NULL ||
        run->layout.joined == TWILL_JOINED_IN_SCRATCH ||
        twill_run_together(run, step->dst, 0, step->blocks) != step->blocks)
        return false;
    bool is_peer = twill_operand_is_peer(src);
    copy->space = (uint8_t)space;
    copy->local = is_peer ? engine->world->local[peer] : engine->local;
    struct twill_elements dst = twill_run_locate(run, &first, &to);
    const unsigned char *start = twill_run_locate(run, &first, &from).start;
    const unsigned char *base = run->buffers.side[TWILL_SRC].base;
    if (space == TWILL_SHARED)
        base = twill_run_shared(run, copy->local, 0);
    copy->at = space == TWILL_IMM ? 0 : (size_t)(start - base);
    copy->to = (size_t)(dst.start - run->buffers.side[TWILL_DST].base);
    size_t bytes = dst.count * run->layout.element;
    copy->bytes = (uint16_t)bytes;
    return bytes <= TWILL_MEDIUM_BYTES;
}

/* Set copy[], `copies` and `reduced` of *fast_path to the sources of a REDUCE. Returns false if
 * they are too many or partial, if a function reduces them, if the result is empty or partial, or
 * if find_copy() does not accept a source. */
static bool find_reduction(const struct twill_request *run, const struct twill_step *step,
                           struct twill_fast_path *fast_path)
{
    const struct twill_operation *created = run->layout.created;
    if ((step->flags & ~TWILL_STEP_OWN_SRC) != TWILL_STEP_FINAL || step->nsrc > TWILL_FAST_COPIES ||
        (created != NULL && created->function != NULL))
        return false;
    for (unsigned i = 0; i < step->nsrc; i++) {
        twill_operand src = step->src;
        if ((step->flags & TWILL_STEP_OWN_SRC) != 0 && step->peer[i] == run->engine->rank)
            src = twill_operand_make(TWILL_SRC, twill_operand_block(src));
        if (!find_copy(run, step, src, step->peer[i], &fast_path->copy[i]))
            return false;
    }
    fast_path->reduced = (uint16_t)(fast_path->copy[0].bytes / run->layout.element);
    fast_path->copies = step->nsrc;
    return fast_path->reduced > 0;
}

/* Set copy[], `copies` and `reduced` of *fast_path, if all steps from number `from` on are AWAITs
 * and either COPYs, not too many, or one REDUCE. Else set `copies` to 0. */
static void find_copies(const struct twill_request *run, unsigned from,
                        struct twill_fast_path *fast_path)
{
    const struct twill_schedule *s = &run->plan->schedule;
    bool found = true;
    for (unsigned i = from; i < s->count && found; i++) {
        const struct twill_step *step = &s->steps[i];
        if (step->op == TWILL_STEP_AWAIT)
            continue;
        if (step->op == TWILL_STEP_REDUCE)
            found = fast_path->copies == 0 && find_reduction(run, step, fast_path);
        else
            found = step->op == TWILL_STEP_COPY && step->flags == 0 && fast_path->reduced == 0 &&
                    fast_path->copies < TWILL_FAST_COPIES &&
                    find_copy(run, step, step->src, step->peer[0],
                              &fast_path->copy[fast_path->copies++]);
    }
    if (!found)
        fast_path->copies = 0;
}

/* Return whether a blocking call can issue all steps from number `from` on outside the queue, once
 * all arrivals that they await are there. They only await, copy and reduce, in one segment, with
 * the caller's own buffers. */
static bool ends_at_once(const struct twill_request *run, unsigned from)
{
    const struct twill_schedule *s = &run->plan->schedule;
    bool bounced = run->buffers.side[TWILL_SRC].bounced || run->buffers.side[TWILL_DST].bounced;
    if (run->engine->world->nodes > 1 || bounced || s->uses_peer_src || s->uses_peer_dst ||
        s->tmp_blocks > 0 || run->buffers.slots != NULL ||
        twill_staging_applies(run, run->layout.most))
        return false;
    for (unsigned i = from; i < s->count; i++)
        if (s->steps[i].op != TWILL_STEP_AWAIT && s->steps[i].op != TWILL_STEP_COPY &&
            s->steps[i].op != TWILL_STEP_REDUCE)
            return false;
    return true;
}

void twill_run_find_fast_path(struct twill_request *run)
{
    const struct twill_schedule *s = &run->plan->schedule;
    const struct twill_step *step = s->steps;
    struct twill_fast_path found = {.kind = TWILL_FAST_NONE};
    run->fast_path = found;
    if (run->plan->most_posted > 0 || run->layout.segments != 1 || s->lanes != 1 || s->count == 0 ||
        run->layout.segment_length == SIZE_MAX || run->buffers.looks)
        return;
    if (step->op == TWILL_STEP_SIGNAL) {
        found.kind = TWILL_FAST_SIGNAL;
    } else if (step->op == TWILL_STEP_PUT_IMM && step->flags == 0 &&
               find_source(run, step, &found) && found.bytes <= TWILL_IMM_BYTES) {
        bool is_short = found.bytes - sizeof(uint64_t) <= sizeof(uint64_t); /* 8 to 16 bytes */
        found.kind = is_short ? TWILL_FAST_IMM16 : TWILL_FAST_IMM;
    } else if (s->count > 1 && is_copy_in(run, step) && step[1].op == TWILL_STEP_SIGNAL &&
               !twill_staging_applies(run, run->layout.most) && find_source(run, step, &found)) {
        found.kind = TWILL_FAST_COPY;
        found.to = place_in_shared(run, step);
    }
    found.signals = found.kind == TWILL_FAST_COPY || found.kind == TWILL_FAST_SIGNAL;
    bool has_own_copies =
        run->layout.place == TWILL_SHARED_SMALL || run->layout.place == TWILL_SHARED_MEDIUM;
    if (s->eager && found.kind != TWILL_FAST_NONE &&
        (found.signals == 0 || twill_run_signals_by_imm(run)))
        found.fetches = has_own_copies ? 1 : found.to + found.bytes;
    found.fetches_copy = s->eager && found.kind == TWILL_FAST_COPY &&
                         run->layout.place == TWILL_SHARED_SMALL && found.bytes <= FETCH_MOST;
    found.steps = found.kind == TWILL_FAST_COPY ? 2 : found.kind != TWILL_FAST_NONE;
    found.at_once = ends_at_once(run, found.steps) ? UINT64_MAX : 0;
    for (unsigned i = found.steps; i < s->count && found.at_once != 0; i++)
        if (s->steps[i].op == TWILL_STEP_AWAIT)
            found.at_once = STREAM_TICKS + run->bytes / 2;
    if (found.at_once != 0)
        find_copies(run, found.steps, &found);
    run->fast_path = found;
}

/* Return the number of the first lane of an epoch's slot in node memory. */
static inline unsigned epoch_lane(uint64_t epoch)
{
    return (unsigned)(epoch % TWILL_WINDOW) * TWILL_SCHEDULE_LANES;
}

/* Return what a copy of the fast path reads in instance `epoch`. */
static inline const unsigned char *source_of(const struct twill_request *run,
                                             const struct twill_fast_copy *copy, uint64_t epoch)
{
    const struct twill_node *node = run->engine->node;
    if (copy->space == TWILL_IMM)
        return twill_node_imm_at(node, copy->local, epoch_lane(epoch), epoch)->payload;
    if (copy->space == TWILL_SHARED)
        return twill_run_shared(run, copy->local, epoch) + copy->at;
    return run->buffers.side[TWILL_SRC].base + copy->at;
}

/* Make the reduction whose sources are the copies of the fast path in instance `epoch`. */
static void make_reduction(const struct twill_request *run, uint64_t epoch)
{
    const struct twill_fast_path *fast_path = &run->fast_path;
    const struct twill_engine *engine = run->engine;
    const void *source[TWILL_FAST_COPIES];
    for (unsigned i = 0; i < fast_path->copies; i++)
        source[i] = source_of(run, &fast_path->copy[i], epoch);
    twill_kernels_reduce_raw(engine->kernels, run->layout.type, run->layout.op,
                             run->buffers.side[TWILL_DST].base + fast_path->copy[0].to, source,
                             fast_path->copies, fast_path->reduced, engine->world->size, 0,
                             engine->tuning.pool);
}

void twill_run_make_copies(const struct twill_request *run, uint64_t epoch)
{
    const struct twill_fast_path *fast_path = &run->fast_path;
    if (fast_path->reduced > 0) {
        make_reduction(run, epoch);
        return;
    }
    for (unsigned i = 0; i < fast_path->copies; i++) {
        const struct twill_fast_copy *copy = &fast_path->copy[i];
        const unsigned char *src = source_of(run, copy, epoch);
        unsigned char *dst = run->buffers.side[TWILL_DST].base + copy->to;
        if (copy->space == TWILL_SHARED)
            twill_counter_add(&run->engine->usage.counters.bytes_copied, copy->bytes);
        if (dst != src && copy->bytes > 0)
            memcpy(dst, src, copy->bytes);
    }
}

/* Set run->signature from the hash of the call and that of all calls before. Even if no rank had to
 * wait for another in calls that differed, the next call in which one has to wait detects that. */
static inline void compute_signature(const struct twill_engine *engine, struct twill_request *run)
{
    run->signature =
        (uint32_t)((run->call_hash ^ engine->issue.chain_hash) * 0x9e3779b97f4a7c15u >> 32);
}

/* Number a call whose signature is set, and add it to the chain hash. */
static inline void number_call(struct twill_engine *engine, struct twill_request *run)
{
    run->sequence = engine->issue.started;
    engine->issue.chain_hash = (uint64_t)run->signature << 32 ^ run->sequence;
}

void twill_run_number(struct twill_request *run)
{
    compute_signature(run->engine, run);
    number_call(run->engine, run);
    run->engine->issue.joined[run->sequence % TWILL_ENDS_KEPT] = false; /* no call comes of it */
}

/* Copy what the fast path copies into this rank's SHARED of instance `epoch`. */
static void copy_to_shared(struct twill_engine *engine, const struct twill_request *run,
                           uint64_t epoch)
{
    const struct twill_fast_path *fast_path = &run->fast_path;
    unsigned char *shared = twill_run_shared(run, engine->local, epoch);
    if (fast_path->bytes <= TWILL_MEDIUM_BYTES)
        memcpy(shared + fast_path->to, fast_path->from, fast_path->bytes);
    else
        twill_kernels_copy(engine->kernels, shared + fast_path->to, fast_path->from,
                           fast_path->bytes, 0, engine->tuning.pool);
    twill_counter_add(&engine->usage.counters.bytes_copied, fast_path->bytes);
}

/* Make the fast path's stores, whose kind is neither NONE nor IMM16, for the next instance, which
 * has the epoch engine->issue.epoch. */
static __attribute__((noinline)) void post_others(struct twill_engine *engine,
                                                  const struct twill_request *run)
{
    const struct twill_fast_path *fast_path = &run->fast_path;
    struct twill_node *node = engine->node;
    uint64_t epoch = engine->issue.epoch;
    unsigned lane = epoch_lane(epoch);
    if (fast_path->kind == TWILL_FAST_IMM)
        twill_node_put(node, lane, epoch, run->signature, fast_path->from, fast_path->bytes);
    if (fast_path->kind == TWILL_FAST_COPY)
        copy_to_shared(engine, run, epoch);
    if (fast_path->signals > 0 && twill_run_signals_by_imm(run))
        twill_run_signal_by_imm(run, epoch);
    else if (fast_path->signals > 0)
        twill_node_signal(node, lane, twill_node_flag_value(epoch, 1), run->signature);
    if (fast_path->fetches > 0)
        twill_node_fetch_own(node, lane, epoch, fast_path->fetches);
    if (fast_path->fetches_copy)
        twill_fetch_to_write(twill_run_shared(run, engine->local, epoch + FETCH_COPIES_AHEAD) +
                                 fast_path->to,
                             fast_path->bytes);
}

/* Ring the doorbells of the ranks of the node that sleep, out of line. */
static __attribute__((noinline)) void ring_doorbells(struct twill_node *node)
{
    twill_node_ring_doorbells(node);
}

/* Make the fast path's stores, if any, for the next instance, which has the epoch
 * engine->issue.epoch. The caller advances the epoch later. Code that runs after the first store,
 * or rarely, is out of line, so that no register is saved for it before that store. */
static inline void post_stores(struct twill_engine *engine, const struct twill_request *run)
{
    const struct twill_fast_path *fast_path = &run->fast_path;
    if (TWILL_LIKELY(fast_path->kind == TWILL_FAST_IMM16)) {
        struct twill_node *node = engine->node;
        uint64_t epoch = engine->issue.epoch;
        twill_node_put_words(node, epoch_lane(epoch), epoch, run->signature, fast_path->from,
                             fast_path->bytes);
        if (fast_path->fetches > 0)
            twill_node_fetch_own(node, epoch_lane(epoch), epoch, fast_path->bytes);
    } else if (fast_path->kind != TWILL_FAST_NONE) {
        post_others(engine, run);
    }
}

/* Begin the first segment of a call after post_stores() has done its first steps, and issue the
 * steps after these up to the first AWAIT. Does nothing if the plan has messages or memory is
 * short. */
static void start_instance(struct twill_engine *engine, struct twill_request *run)
{
    struct twill_slot *slot = &engine->issue.slot[engine->issue.epoch % TWILL_WINDOW];
    if (run->plan->most_posted > 0 ||
        twill_run_begin_segment(run, slot, engine->issue.epoch) != TWILL_OK)
        return; /* begin_segments() tries again and reports the error */
    engine->issue.epoch++;
    slot->instance.at[0] = run->fast_path.steps;
    slot->instance.signalled[0] = run->fast_path.signals;
    twill_run_advance_ready(slot);
}

/* Publish that this rank enters the call at tick `entered`, or now if it is 0. Returns the tick. */
static inline uint64_t note_entry(struct twill_engine *engine, uint64_t entered)
{
    struct twill_last_entry own = {.ticks = entered != 0 ? entered : twill_ticks(),
                                   .rank = engine->rank};
    twill_node_note_entry(engine->node, engine->issue.started, own);
    return own.ticks;
}

/* Number, trace and enqueue a call whose signature is set. `entered` is the tick at which this rank
 * entered it and published that, or 0 to do both here. If `is_fast`, post_stores() has done its
 * first steps, and the first segment begins here. */
static __attribute__((noinline)) void enter_call(struct twill_request *request, uint64_t entered,
                                                 bool is_fast)
{
    struct twill_engine *engine = request->engine;
    request->started = request->finished = 0;
    request->last.ticks = 0;
    number_call(engine, request);
    if (TWILL_LIKELY(is_fast))
        start_instance(engine, request);
    request->ticks = entered;
    if (entered == 0)
        request->ticks = note_entry(engine, 0);
    if (TWILL_UNLIKELY(engine->traced))
        twill_log_begin(request);
    twill_trace_call_begin(request);
    twill_request_enqueue(request);
}

/* Begin the carrier of a call, which has no plan yet, before the call. Returns what to pass on as
 * the tick at which this rank entered the call. */
static __attribute__((noinline)) uint64_t begin_carrier(struct twill_request *request,
                                                        uint64_t entered)
{
    struct twill_engine *engine = request->engine;
    twill_slots_pack(request->buffers.slots);
    twill_request_begin(request->buffers.slots->carrier, entered);
    engine->issue.started++;
    compute_signature(engine, request);
    return note_entry(engine, entered);
}

/* Run a blocking call at once, whose first steps post_stores() has done, if all that it awaits has
 * arrived. Returns whether it did, and so the call is complete. */
static __attribute__((noinline)) bool end_at_once(struct twill_request *request, uint64_t entered)
{
    struct twill_engine *engine = request->engine;
    uint64_t epoch = engine->issue.epoch;
    if (TWILL_UNLIKELY(engine->traced) || twill_trace_is_detailed(&engine->trace) ||
        engine->issue.messaging > 0 || /* messages need the progress of a wait */
        !twill_run_at_once(request, &engine->issue.slot[epoch % TWILL_WINDOW], epoch))
        return false;
    engine->issue.epoch++;
    twill_node_start(engine->node, epoch, request->signature);
    ring_doorbells(engine->node);
    number_call(engine, request);
    request->last.ticks = 0;
    request->ticks = entered;
    twill_trace_call_begin(request);
    twill_engine_show(engine, &request->summary, request->sequence, entered);
    twill_request_end(request);
    return true;
}

/* Begin the only segment of a call that has exchanged addresses, and issue its steps as they become
 * ready, with up to *polls vain looks. Returns whether all have ended. If not, the queue continues
 * the call, and meets the same error again if there was one. */
static bool issue_mapped(struct twill_request *request, unsigned *polls)
{
    struct twill_engine *engine = request->engine;
    struct twill_slot *slot = &engine->issue.slot[engine->issue.epoch % TWILL_WINDOW];
    if (twill_run_choose(request) <= 0 || twill_run_reserve_slots(request) != TWILL_OK ||
        request->plan->most_posted > 0 || request->layout.segments != 1 ||
        !twill_engine_has_arrived(engine, engine->issue.epoch - request->layout.max_ahead) ||
        twill_run_begin_segment(request, slot, engine->issue.epoch) != TWILL_OK)
        return false;
    engine->issue.epoch++;
    for (;;) {
        int moved = twill_run_advance(slot);
        if (!slot->instance.active)
            return true;
        if (moved < 0 || (moved == 0 && *polls == 0))
            return false;
        *polls -= moved == 0;
        if (moved == 0)
            twill_pause();
    }
}

/* Run a blocking call whose addresses are published, as it repeats one that exchanged them. The
 * call is recorded while they reach the peers. It enters the queue only if peers are late. */
static __attribute__((noinline)) void run_mapped(struct twill_request *request, uint64_t entered)
{
    struct twill_engine *engine = request->engine;
    unsigned polls = engine->tuning.crowded > 0 ? 0 : MAPPED_POLLS;
    request->started = request->finished = 0;
    request->last.ticks = 0;
    number_call(engine, request);
    request->ticks = entered;
    twill_trace_call_begin(request);
    twill_engine_show(engine, &request->summary, request->sequence, entered);
    int exchanged;
    while ((exchanged = twill_addresses_exchange(request)) == 0 && polls > 0) {
        polls--;
        twill_pause();
    }
    if (exchanged > 0 && issue_mapped(request, &polls))
        twill_request_end(request);
    else
        twill_request_enqueue(request);
}

/* Return whether run_mapped() may run a call, which it may once its addresses are published. */
static bool is_mapped(const struct twill_request *request)
{
    const struct twill_engine *engine = request->engine;
    return request->exchange.state == TWILL_EXCHANGE_PUBLISHED && !TWILL_UNLIKELY(engine->traced) &&
           !twill_trace_is_detailed(&engine->trace) && engine->issue.messaging == 0;
}

void twill_request_begin(struct twill_request *request, uint64_t entered)
{
    struct twill_engine *engine = request->engine;
    compute_signature(engine, request);
    if (entered != 0 || engine->world->nodes > 1)
        entered = note_entry(engine, entered); /* before peers can end the call or report it */
    bool is_fast =
        engine->issue.queue == NULL && request->plan != NULL &&
        twill_engine_has_arrived(engine, engine->issue.epoch - request->layout.max_ahead);
    if (TWILL_LIKELY(is_fast)) {
        post_stores(engine, request);
        if (entered != 0 && entered - request->ended < request->fast_path.at_once &&
            end_at_once(request, entered))
            return;
        if (request->fast_path.kind == TWILL_FAST_IMM16)
            ring_doorbells(engine->node);
    } else if (twill_run_slot(request) > 0) {
        entered = begin_carrier(request, entered);
    } else if (engine->issue.queue == NULL && request->plan == NULL) {
        twill_addresses_begin(request);
        if (entered != 0 && is_mapped(request)) {
            run_mapped(request, entered);
            return;
        }
    }
    enter_call(request, entered, is_fast);
}
