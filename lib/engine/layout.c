/* SPDX-License-Identifier: Apache-2.0 */
/* Where everything lies: shards of the caller's buffers, blocks of scratch, and segments.
 *
 * A copy of TMP or SHARED holds a segment of each shard, one after the other. If partials are
 * wider than elements, it has two halves, so that blocks never overlap. Raw and final contents are
 * in the first half and partials in the second:
 *
 *     | shard 0 | shard 1 | ... |  shard 0  |  shard 1  | ... |
 *      <-------- elements -----> <--------- partials -------->
 *
 * Shards of one size follow each other without gaps, also in a last segment that is shorter. So an
 * algorithm that packs can send several as one message.
 *
 * Two ranks that swap the halves of SHARED (plan->alternates) store the shards in opposite orders,
 * so that both write alternately to the same cache lines. */
#include "algorithms/select/tuning_file.h"
#include "fabric/shm/mapping.h"
#include "fabric/shm/node_memory.h"
#include "kernels/kernels.h"
#include "lib/base/lists.h"
#include "lib/engine/engine_internal.h"
#include "lib/job/context.h"
#include "lib/job/heap.h"
#include "lib/job/operation.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Set operation, widths and factor of the layout for a sum that a program created for narrow
 * floats. Its partial results are narrow floats. With TWILL_REPRODUCIBLE they are f32, as the
 * algorithm determines where they would be rounded. */
static void describe_narrow(struct twill_request *run)
{
    const struct twill_operation *created = run->layout.created;
    run->layout.op = TWILL_SUM;
    run->layout.narrow = !run->engine->tuning.reproducible;
    run->layout.after = created->finishes ? &created->after : NULL;
    run->layout.element = twill_type_size(run->layout.type);
    run->layout.partial = run->layout.narrow ? run->layout.element
                                             : twill_kernels_partial(run->layout.type, TWILL_SUM);
}

/* Set type, operation and widths. A scaled sum of narrow floats is computed in f32. */
static void describe_operation(struct twill_request *run)
{
    const struct twill_call *call = &run->call;
    run->layout.created = twill_context_operation(run->engine->context, call->op);
    run->layout.type = call->type;
    run->layout.op = call->op;
    run->layout.narrow = false;
    run->layout.after = NULL;
    if (run->layout.created == NULL) {
        bool reduces = twill_collective_facts(call->collective)->reduces;
        run->layout.element =
            reduces ? twill_kernels_element(call->type, call->op) : twill_type_size(call->type);
        run->layout.partial =
            reduces ? twill_kernels_partial(call->type, call->op) : run->layout.element;
        return;
    }
    if (run->layout.created->narrow) {
        describe_narrow(run);
        return;
    }
    if (run->layout.created->scaled) {
        run->layout.op = TWILL_SUM;
        run->layout.type = twill_type_is_narrow(call->type) ? TWILL_F32 : call->type;
    }
    run->layout.element = run->layout.created->element != 0 ? run->layout.created->element
                                                            : twill_type_size(run->layout.type);
    run->layout.partial = run->layout.element;
}

/* Return the bytes from the start of a side to the end of its last shard. */
static size_t side_size(const struct twill_request *run, const struct twill_side *side)
{
    bool sharded = twill_collective_facts(run->call.collective)->sharded;
    uint32_t shards = sharded ? run->engine->world->size : 1;
    size_t end = 0;
    if (!side->has)
        return 0;
    if (side->own)
        return side->even * run->layout.given;
    if (side->count == NULL)
        return ((shards - 1) * side->pitch + side->even) * run->layout.given;
    for (uint32_t p = 0; p < shards; p++)
        if (side->count[p] > 0)
            end = twill_max(end, side->offset[p] + side->count[p]);
    return end * run->layout.given;
}

/* Set *side, SRC or DST of the call, from its buffer and, in a vector call, its `counts`. `holder`
 * says which ranks have this buffer. On other ranks side->base is NULL and `counts` are not read.
 * `bounced` becomes false, and twill_run_describe() sets it later. */
static void describe_side(const struct twill_request *run, struct twill_side *side,
                          enum twill_holder holder, const void *buffer,
                          const struct twill_counts *counts)
{
    const struct twill_call *call = &run->call;
    bool has = twill_run_holds(run, holder, run->engine->rank);
    size_t pitch = call->pitch > 0 ? call->pitch : call->count;
    *side = (struct twill_side){.base = has ? (unsigned char *)(uintptr_t)buffer : NULL,
                                .even = call->count,
                                .pitch = pitch,
                                .has = has,
                                .own = holder == TWILL_HOLDS_OWN};
    if (has && call->vector && !side->own) {
        side->count = counts->count;
        side->offset = counts->offset;
    }
    side->bytes = side_size(run, side);
}

void twill_run_describe(struct twill_request *run)
{
    const struct twill_call *call = &run->call;
    const struct twill_collective_facts *facts = twill_collective_facts(call->collective);
    struct twill_side *src = &run->buffers.side[TWILL_SRC], *dst = &run->buffers.side[TWILL_DST];
    describe_operation(run);
    run->layout.given =
        run->layout.type != call->type ? twill_type_size(call->type) : run->layout.element;
    describe_side(run, src, facts->src, call->src, &call->src_counts);
    describe_side(run, dst, facts->dst, call->dst, &call->dst_counts);
    run->layout.known = NULL;
    if (call->vector && call->collective == TWILL_ALLGATHER)
        run->layout.known = dst->count;
    else if (call->vector && call->collective == TWILL_REDUCE_SCATTER)
        run->layout.known = src->count;
    bool scaled = run->layout.created != NULL && run->layout.created->scaled;
    bool swaps = call->collective == TWILL_ALLTOALL && src->base == dst->base;
    src->bounced = (scaled || swaps) && src->base != NULL;
    dst->bounced = run->layout.type != call->type && dst->base != NULL;
}

/* Return the elements of the largest shard, as far as this rank knows. */
static size_t largest_shard(const struct twill_request *run)
{
    size_t most = run->layout.known != NULL ? 0 : run->call.count;
    for (uint32_t p = 0; run->layout.known != NULL && p < run->plan->schedule.shards; p++)
        most = twill_max(most, run->layout.known[p]);
    return most;
}

/* Return the most elements of a shard in a segment, a multiple of 64 if at least 64, so that a copy
 * fits `bytes`. Returns SIZE_MAX without a limit, and 0 if not even one element fits. */
static size_t limit_of(const struct twill_request *run, size_t bytes)
{
    size_t width = run->layout.element +
                   (run->layout.partial != run->layout.element ? run->layout.partial : 0);
    size_t all = run->plan->schedule.shards * width;
    if (bytes == SIZE_MAX)
        return SIZE_MAX;
    if (bytes / all >= TWILL_CACHE_LINE)
        return bytes / all & ~(size_t)(TWILL_CACHE_LINE - 1);
    return bytes > TWILL_COPY_SLACK ? (bytes - TWILL_COPY_SLACK) / all : 0;
}

/* Return the most elements of a shard in a segment. If segments are longer so that all threads
 * help, a message still has TWILL_WINDOW of them, which overlap, unless they would be shorter than
 * without threads. */
static size_t segment_limit(const struct twill_request *run)
{
    const struct twill_plan *plan = run->plan;
    size_t most = limit_of(run, plan->segment_bytes);
    if (plan->overlaps) {
        const struct twill_engine *engine = run->engine;
        const uint32_t shards = plan->schedule.shards;
        return limit_of(run, twill_overlap_segment(&engine->context->selection.tuning->model,
                                                   engine->world->size, shards,
                                                   run->layout.most * shards * run->layout.element,
                                                   plan->segment_bytes));
    }
    if (TWILL_LIKELY(plan->least_bytes == plan->segment_bytes))
        return most;
    size_t each =
        twill_round_up((run->layout.most + TWILL_WINDOW - 1) / TWILL_WINDOW, TWILL_CACHE_LINE);
    return twill_max(limit_of(run, plan->least_bytes), twill_min(each, most));
}

/* Set the size of a slot's scratch in this run, and the offsets in it. It has TMP, bounces of
 * messages, bounced sides and fetched chunks, in this order. */
static void size_scratch(struct twill_request *run)
{
    const struct twill_plan *plan = run->plan;
    size_t bounce = run->layout.late ? plan->late_bytes : plan->bounce_bytes;
    run->layout.bounced_at =
        plan->tmp_bytes + (size_t)TWILL_SCHEDULE_LANES * plan->most_posted * bounce;
    run->layout.scratch_bytes = run->layout.bounced_at;
    for (unsigned i = 0; i < TWILL_SIDES; i++) {
        if (run->buffers.side[i].bounced)
            run->layout.scratch_bytes += run->layout.copy_bytes;
    }
    run->layout.fetched_at = run->layout.scratch_bytes;
    if (plan->fetches && twill_collective_facts(run->call.collective)->reduces)
        run->layout.scratch_bytes += twill_min(run->engine->local_size, TWILL_STEP_PEERS) *
                                     twill_engine_fetch_bytes(run->engine);
}

/* Return whether the call does not reduce, or no rank reduces in place, as far as this rank knows.
 * With mapped buffers it knows the buffers of all ranks of its node, else only its own. In place,
 * dst is in the cache, where streaming stores are two to three times slower. */
static bool lies_apart(const struct twill_request *run)
{
    bool apart = run->buffers.side[TWILL_SRC].base != run->buffers.side[TWILL_DST].base;
    if (!twill_collective_facts(run->call.collective)->reduces)
        return true;
    bool mapped = (run->exchange.allowed & TWILL_ACCESS_MAPPED) != 0;
    for (uint32_t l = 0; mapped && l < run->engine->local_size; l++)
        apart &= run->buffers.peer[l].at[TWILL_SRC] != run->buffers.peer[l].at[TWILL_DST];
    return apart;
}

void twill_run_choose_stores(struct twill_request *run)
{
    bool large = run->layout.most * run->plan->schedule.shards * run->layout.element >=
                 run->engine->tuning.stream;
    run->layout.store_flags = large && lies_apart(run) ? TWILL_KERNEL_STREAM : 0;
}

/* Set layout.joined of a run whose segments are known. If messages of several shards come from SRC,
 * where they are not adjacent, each segment is first copied. */
static void join_shards(struct twill_request *run)
{
    const bool all = run->plan->schedule.shards == 1 ||
                     (!run->call.vector && run->call.pitch == 0 && run->layout.segments == 1 &&
                      !run->layout.shared.mirrored);
    const bool packs = run->plan->choice.algorithm->packs && !run->call.vector;
    run->layout.joined = all     ? TWILL_JOINED
                         : packs ? TWILL_JOINED_IN_SCRATCH
                                 : TWILL_JOINED_NOWHERE;
    struct twill_side *src = &run->buffers.side[TWILL_SRC];
    if (run->layout.joined == TWILL_JOINED_IN_SCRATCH && run->plan->packs_src)
        src->bounced = src->base != NULL;
}

/* Least bytes of SHARED through which short segments go before they use the same place again, if
 * some ranks only write and others only read. If the writer comes back sooner, it takes lines back
 * that the reader has just got: on a Granite Rapids a broadcast of 256 KiB took 16 us with 256 KiB
 * of SHARED or more, and 27 us with 128 KiB. More would leave the L2 of some processors. */
#define OVERLAP_BYTES ((size_t)256 << 10)

/* Set layout.place, max_ahead and shared of a run whose copies have their size. */
static void place_shared(struct twill_request *run)
{
    const struct twill_schedule *s = &run->plan->schedule;
    size_t bytes = run->layout.copy_bytes * (s->shared_blocks / s->blocks);
    uint32_t copies = TWILL_COPIES;
    if (run->layout.shared.single && run->layout.segment_length != SIZE_MAX)
        bytes = twill_round_up(run->layout.segment_length * run->layout.element, TWILL_CACHE_LINE);
    run->layout.place = TWILL_SHARED_LARGE;
    if (run->plan->signals_once && bytes <= TWILL_IMM_BYTES)
        run->layout.place = TWILL_SHARED_IMM;
    else if (s->eager && s->shared_blocks > 0 && bytes <= TWILL_SMALL_BYTES)
        run->layout.place = TWILL_SHARED_SMALL;
    else if (s->eager && s->shared_blocks > 0 && bytes <= TWILL_MEDIUM_BYTES)
        run->layout.place = TWILL_SHARED_MEDIUM;
    if (s->shared_blocks == 0 || run->layout.place == TWILL_SHARED_IMM)
        copies = TWILL_LINES;
    else if (run->layout.place == TWILL_SHARED_SMALL)
        copies = TWILL_SMALLS;
    else if (run->layout.place == TWILL_SHARED_MEDIUM)
        copies = TWILL_MEDIUMS;
    run->layout.max_ahead = copies - TWILL_WINDOW;
    run->layout.shared.round = TWILL_COPIES * (run->plan->alternates ? 2 : 1);
    run->layout.shared.turns = 1;
    run->layout.shared.bytes = bytes;
    if (!run->plan->overlaps || run->layout.place != TWILL_SHARED_LARGE || bytes == 0)
        return;
    /* Of several shards, a rank copies one. */
    size_t all = run->layout.shared.round * bytes / (run->layout.shared.single ? 1 : s->shards);
    size_t most = run->engine->node->shared_bytes / bytes;
    run->layout.shared.turns =
        (uint32_t)twill_max(twill_min((OVERLAP_BYTES + all - 1) / all, most), (size_t)1);
}

twill_status twill_run_find_segments(struct twill_request *run)
{
    const struct twill_schedule *s = &run->plan->schedule;
    bool unknown =
        run->call.vector && run->layout.known == NULL; /* no rank knows the largest shard */
    run->layout.most = largest_shard(run);
    size_t limit = segment_limit(run);
    run->layout.segments = 1;
    if (unknown) {
        run->layout.segment_length = SIZE_MAX;
    } else if (run->layout.most <= limit) {
        run->layout.segment_length = run->layout.most;
    } else if (limit == 0) {
        return TWILL_ENGINE_FAIL(
            run->engine, TWILL_ERR_UNSUPPORTED,
            "TWILL_TUNE=segment is too small for an element of %zu bytes of %u ranks",
            run->layout.element, s->shards);
    } else {
        run->layout.segment_length = limit;
        run->layout.segments = (run->layout.most + limit - 1) / limit;
    }
    return TWILL_OK;
}

/* Return whether each shard is at the same place in SRC and in DST. */
static bool sides_are_parallel(const struct twill_side *side)
{
    const struct twill_side *src = &side[TWILL_SRC], *dst = &side[TWILL_DST];
    return src->count == NULL && dst->count == NULL && src->offset == NULL && dst->offset == NULL &&
           !src->own && !dst->own && !src->bounced && !dst->bounced && src->pitch == dst->pitch;
}

twill_status twill_run_lay_out(struct twill_request *run)
{
    const struct twill_schedule *s = &run->plan->schedule;
    TWILL_TRY(&run->engine->error, twill_run_find_segments(run));
    bool unknown = run->layout.segment_length == SIZE_MAX;
    run->layout.shard_blocks = s->blocks / s->shards;
    run->layout.shared.mirrored = run->plan->alternates && s->shards == 2;
    run->layout.shared.single = run->plan->shares_one && run->layout.partial == run->layout.element;
    join_shards(run);
    size_t elements = unknown ? 0 : s->shards * run->layout.segment_length;
    run->layout.partial_at = 0;
    run->layout.copy_bytes = twill_round_up(elements * run->layout.element, TWILL_CACHE_LINE);
    if (run->layout.partial != run->layout.element) {
        run->layout.partial_at = run->layout.copy_bytes;
        run->layout.copy_bytes += twill_round_up(elements * run->layout.partial, TWILL_CACHE_LINE);
    }
    place_shared(run);
    run->layout.late =
        run->layout.element > 8 || (run->layout.element & (run->layout.element - 1)) != 0;
    size_scratch(run);
    run->started = run->finished = 0;
    twill_run_choose_stores(run);
    run->buffers.looks = twill_run_looks(run);
    run->layout.parallel = sides_are_parallel(run->buffers.side);
    twill_run_find_fast_path(run);
    const struct twill_observer *observer = run->engine->observer;
    return TWILL_UNLIKELY(observer != NULL) ? observer->planned(run) : TWILL_OK;
}

unsigned char *twill_run_shared(const struct twill_request *run, uint32_t l, uint64_t epoch)
{
    const struct twill_node *node = run->engine->node;
    if (run->layout.place == TWILL_SHARED_IMM)
        return twill_node_imm_at(node, l, 0, epoch)->payload;
    unsigned char *copy =
        twill_node_shared(node, l, epoch, run->plan->alternates, run->layout.place);
    if (TWILL_LIKELY(run->layout.shared.turns == 1))
        return copy;
    return copy +
           epoch / run->layout.shared.round % run->layout.shared.turns * run->layout.shared.bytes;
}

/* Return the address to which an operand's offset within the segment is added. `space` is
 * TWILL_SRC, TWILL_DST, TWILL_TMP or TWILL_SHARED. SRC and DST are those of local rank `local` if
 * `of_peer`, else this rank's. TMP is always this rank's, and SHARED that of `local`. */
static unsigned char *base_of(const struct twill_request *run,
                              const struct twill_instance *instance, unsigned space, bool of_peer,
                              uint32_t local)
{
    const struct twill_engine *engine = run->engine;
    if (space <= TWILL_DST && of_peer) /* SRC is never written, as the verifier checks */
        return run->buffers.peer[local].at[space] + instance->skip * run->layout.element;
    if (space <= TWILL_DST)
        return instance->base[space];
    if (space == TWILL_TMP)
        return engine->issue.slot[instance->epoch % TWILL_WINDOW].scratch;
    return twill_run_shared(run, local, instance->epoch);
}

/* Return the number of elements of the instance's segment in a shard of SRC, DST, TMP or SHARED. */
static size_t segment_elements(const struct twill_request *run,
                               const struct twill_instance *instance, unsigned space,
                               uint32_t shard)
{
    const size_t *count = run->layout.known;
    size_t whole = run->layout.most;
    if (!run->call.vector)
        return instance->length;
    if (space == TWILL_SRC || space == TWILL_DST) {
        count = run->buffers.side[space].count;
        whole = run->buffers.side[space].even;
    }
    if (count != NULL)
        whole = count[shard];
    if (twill_run_carries(run, whole))
        return 0;
    return whole > instance->skip ? twill_min(whole - instance->skip, run->layout.segment_length)
                                  : 0;
}

/* Return the offset in bytes of a shard in SRC, DST, TMP or SHARED (`space`), counted from what
 * base_of() returns. `copy` numbers the copies of the message in TMP or SHARED. `partial` selects
 * the part of a copy for partial results, and `local` the local rank that has the SHARED. */
static size_t offset_of(const struct twill_request *run, const struct twill_instance *instance,
                        unsigned space, uint32_t local, uint32_t copy, uint32_t shard, bool partial)
{
    if (space == TWILL_TMP || space == TWILL_SHARED) {
        uint32_t place = shard;
        if (space == TWILL_SHARED && run->layout.shared.single)
            place = 0;
        else if (space == TWILL_SHARED && run->layout.shared.mirrored)
            place = shard ^ local;
        return copy * run->layout.copy_bytes + (partial ? run->layout.partial_at : 0) +
               place * twill_run_stride(run, instance) * twill_run_width(run, partial);
    }
    const struct twill_side *side = &run->buffers.side[space];
    if (side->own)
        return 0;
    if (side->bounced)
        return shard * twill_run_stride(run, instance) * run->layout.element;
    return (side->offset != NULL ? side->offset[shard] : shard * side->pitch) * run->layout.element;
}

unsigned char *twill_run_beside(const struct twill_request *run,
                                const struct twill_instance *instance, twill_operand operand,
                                uint32_t peer, const unsigned char *dst)
{
    const struct twill_engine *engine = run->engine;
    bool of_peer = twill_operand_is_peer(operand) && peer != engine->rank;
    unsigned char *base = base_of(run, instance, twill_operand_space(operand), of_peer,
                                  of_peer ? engine->world->local[peer] : engine->local);
    return base + (dst - instance->base[TWILL_DST]);
}

struct twill_elements twill_run_locate(const struct twill_request *run,
                                       const struct twill_instance *instance,
                                       const struct twill_operand_place *where)
{
    const struct twill_engine *engine = run->engine;
    const struct twill_schedule *s = &run->plan->schedule;
    unsigned space = twill_operand_space(where->operand);
    bool of_peer = twill_operand_is_peer(where->operand) && where->peer != engine->rank;
    uint32_t local = of_peer ? engine->world->local[where->peer] : engine->local;
    if (space == TWILL_IMM)
        return (struct twill_elements){
            twill_node_imm_at(run->engine->node, local,
                              (unsigned)(instance->epoch % TWILL_WINDOW) * TWILL_SCHEDULE_LANES +
                                  where->lane,
                              instance->epoch)
                ->payload,
            0};
    unsigned char *base = base_of(run, instance, space, of_peer, local);
    if (where->blocks == 0)
        return (struct twill_elements){base, 0};
    uint32_t first = twill_operand_block(where->operand) + where->at;
    if (where->blocks == 1 && run->layout.shard_blocks == 1 &&
        first < s->blocks) /* one shard: no division */
        return (struct twill_elements){
            base + offset_of(run, instance, space, local, 0, first, where->partial),
            segment_elements(run, instance, space, first)};
    uint32_t end = first + where->blocks - 1u; /* inclusive */
    uint32_t shard = first % s->blocks / run->layout.shard_blocks,
             end_shard = end % s->blocks / run->layout.shard_blocks;
    size_t from, length, last, last_length, whole = segment_elements(run, instance, space, shard);
    twill_block_range(whole, run->layout.element, run->layout.shard_blocks,
                      first % run->layout.shard_blocks, &from, &length);
    last = from;
    last_length = length;
    if (end != first)
        twill_block_range(whole, run->layout.element, run->layout.shard_blocks,
                          end % run->layout.shard_blocks, &last, &last_length);
    return (struct twill_elements){
        base + offset_of(run, instance, space, local, first / s->blocks, shard, where->partial) +
            from * twill_run_width(run, where->partial),
        (end_shard - shard) * whole + last + last_length - from};
}

/* --- results in memory that was never touched, as glibc and JAX return it for each large result.
 * Page faults cost more than all the copying, and mapping in one call half of that. */
#define POPULATE_AT_ONCE ((size_t)64 << 20) /* bytes; about 0.03 s */
#define POPULATE_SHARE   8u                 /* of the timeout */

/* Return whether a buffer's middle has no page. (The first may have the allocator's header.) */
static bool is_untouched(const struct twill_side *side)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t middle = ((uintptr_t)side->base + side->bytes / 2) & -page;
    unsigned char resident = 1;
    return mincore((void *)middle, 1, &resident) == 0 && (resident & 1) == 0;
}

/* Return whether all of DST is also SRC. The root does not write the result of an in-place call,
 * although it would store the same bytes. Stores would copy pages of a private file mapping. */
static bool lies_in_src(const struct twill_run_buffers *buffers)
{
    const struct twill_side *src = &buffers->side[TWILL_SRC], *dst = &buffers->side[TWILL_DST];
    const uintptr_t from = (uintptr_t)src->base, to = (uintptr_t)dst->base;
    return to >= from && to + dst->bytes <= from + src->bytes;
}

/* Map a buffer's pages, for about 1/8 of the timeout at most, as this rank sends nothing then. */
static void populate(const struct twill_side *side, uint64_t timeout_ns)
{
    const uint64_t begin = twill_now();
    for (size_t at = 0; at < side->bytes; at += POPULATE_AT_ONCE) {
        twill_mapping_populate(side->base + at, twill_min(POPULATE_AT_ONCE, side->bytes - at));
        if (twill_now() - begin >= timeout_ns / POPULATE_SHARE)
            return;
    }
}

void twill_run_populate(const struct twill_request *run)
{
    const struct twill_side *dst = &run->buffers.side[TWILL_DST];
    const bool gaps = dst->offset != NULL || dst->pitch != dst->even; /* maybe never touched */
    if (dst->base != NULL && dst->bytes >= TWILL_POPULATE_FROM && !gaps &&
        !lies_in_src(&run->buffers) && run->engine->tuning.pool == NULL && is_untouched(dst))
        populate(dst, run->engine->tuning.timeout_ns);
}

/* --- buffers of twill_promote() --------------------------------------------------------------- */
/* Use another address of the same memory for a side of a call that has a plan or not. */
static void move_side(struct twill_request *run, struct twill_side *side, unsigned char *base)
{
    side->base = base;
    run->fast_path.from = run->buffers.side[run->fast_path.side].base + run->fast_path.at;
}

/* Copy a side's partial pages between two addresses of its memory. */
static void copy_ends(struct twill_request *run, const struct twill_side *side, unsigned char *to,
                      const unsigned char *from)
{
    const size_t end = side->bytes - side->tail;
    twill_counter_add(&run->engine->usage.counters.bytes_copied, side->head + side->tail);
    memcpy(to, from, side->head);
    memcpy(to + end, from + end, side->tail);
}

/* Copy the partial pages of promoted buffers to the heap. */
static void enter_promoted(struct twill_request *run)
{
    for (unsigned i = 0; i < TWILL_SIDES; i++) {
        const struct twill_side *side = &run->buffers.side[i];
        if (side->given != NULL)
            copy_ends(run, side, side->base, side->given);
    }
}

twill_status twill_run_restart_promoted(struct twill_request *run)
{
    for (unsigned i = 0; i < TWILL_SIDES; i++) {
        const struct twill_side *side = &run->buffers.side[i];
        struct twill_promoted found;
        if (side->given != NULL &&
            (!twill_promoted_find(run->engine->context, side->given, side->bytes, &found) ||
             found.at != side->base))
            return TWILL_ENGINE_FAIL(run->engine, TWILL_ERR_ARGUMENT,
                                     "the %s of a persistent call was freed or demoted",
                                     i == TWILL_SRC ? "src" : "dst");
    }
    enter_promoted(run);
    return TWILL_OK;
}

/* If DST is SRC, which is promoted, use its memory in the region for DST as well, without asking
 * the kernel again. Returns whether it is. */
static bool use_promoted_src(struct twill_request *run)
{
    const struct twill_side *src = &run->buffers.side[TWILL_SRC];
    struct twill_side *dst = &run->buffers.side[TWILL_DST];
    if (src->given == NULL || dst->base != src->given || dst->bytes != src->bytes)
        return false;
    dst->given = src->given;
    dst->head = src->head;
    dst->tail = src->tail;
    move_side(run, dst, src->base);
    return true;
}

void twill_run_find_promoted(struct twill_request *run)
{
    struct twill_context *context = run->engine->context;
    const size_t promotes = run->persistent || run->buffers.device.place != NULL
                                ? 0
                                : context->memory->preloaded.promotes;
    if (promotes == 0 &&
        atomic_load_explicit(&context->memory->promoted, memory_order_relaxed) == 0)
        return;
    const struct twill_collective_facts *facts = twill_collective_facts(run->call.collective);
    size_t all = (facts->sharded ? run->engine->world->size : 1) * run->call.count; /* elements */
    if (run->call.vector || all * run->layout.element < TWILL_PROMOTED_LEAST)
        return;
    const unsigned char *noted = NULL;
    for (unsigned i = 0; i < TWILL_SIDES; i++) {
        struct twill_side *side = &run->buffers.side[i];
        struct twill_promoted found;
        if (promotes > 0 && side->base != NULL && side->base != noted)
            twill_promoted_note(context, side->base, side->bytes);
        noted = side->base;
        if ((i == TWILL_DST && use_promoted_src(run)) || side->base == NULL ||
            !twill_promoted_find(context, side->base, side->bytes, &found))
            continue;
        side->given = side->base;
        side->head = found.head;
        side->tail = found.tail;
        move_side(run, side, found.at);
    }
    enter_promoted(run);
}

void twill_run_drop_promoted(struct twill_request *run)
{
    for (unsigned i = 0; i < TWILL_SIDES; i++) {
        struct twill_side *side = &run->buffers.side[i];
        if (side->given != NULL)
            move_side(run, side, side->given);
        side->given = NULL;
    }
}

void twill_run_follow_fence(struct twill_request *run)
{
    if (run->exchange.fenced || !run->engine->context->memory->heap.fenced)
        return;
    run->exchange.fenced = true;
    twill_run_drop_promoted(run);
    if (run->exchange.state >= TWILL_EXCHANGE_PUBLISHED)
        twill_addresses_restart(run);
}

void twill_run_leave_promoted(struct twill_request *run)
{
    const struct twill_side *dst = &run->buffers.side[TWILL_DST];
    bool root = run->call.collective == TWILL_BROADCAST && run->engine->rank == run->call.root;
    if (dst->given != NULL && !(root && run->call.src == run->call.dst))
        copy_ends(run, dst, dst->given, dst->base);
    if (!run->persistent)
        twill_run_drop_promoted(run);
}
