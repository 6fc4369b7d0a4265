/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that compute (REDUCE, COPY, reduction of messages), and copies of SRC and DST. */
#include "kernels/kernels.h"
#include "kernels/thread_pool.h"
#include "lib/engine/engine_internal.h"
#include "lib/engine/trace_calls.h"
#include "lib/job/operation.h"

#include <stdatomic.h>
#include <string.h>

/* Results for many places are reduced and copied by this many bytes, to copy from the cache. */
#define FUSED_BYTES ((size_t)32 << 10)
/* Bytes from which on lines of peers are fetched ahead. */
#define FETCHED_FROM ((size_t)8 << 10)
/* Bytes for intermediate results of a caller's function, at least one element. */
#define BETWEEN_BYTES ((size_t)2 * TWILL_OPERATION_MOST)
#define HERE          UINT32_MAX

/* A reduction of source[], in order, into each of dst[]. A local variable of the function that
 * executes a step or reduces a chunk of a message. */
struct reduction {
    unsigned flags; /* flags of the step */
    void *dst[TWILL_KERNEL_MAX_DESTINATIONS];
    const void *source[TWILL_STEP_PEERS + 1];
    uint32_t peer[TWILL_STEP_PEERS + 1]; /* rank to fetch source[i] from, or HERE */
    unsigned dsts, sources;
    bool fetches;                            /* some sources must be fetched */
    uint32_t partial_sources;                /* bit i is set if source[i] is a partial */
    uint32_t input_of[TWILL_STEP_PEERS + 1]; /* whose SRC source[i] is, for run->buffers.watch */
    unsigned hints;                          /* enum twill_kernel_flags */
};

/* Return the address of `blocks` blocks of a step's operand, from its block `at` on, and how many
 * elements they have. A peer's operand is that of rank step->peer[0]. If `partial`, the blocks
 * contain partial results. */
static struct twill_elements locate(const struct twill_request *run,
                                    const struct twill_instance *instance,
                                    const struct twill_step *step, twill_operand operand,
                                    uint32_t at, uint32_t blocks, bool partial)
{
    struct twill_operand_place where = {operand, at, blocks, step->peer[0], step->lane, partial};
    return twill_run_locate(run, instance, &where);
}

/* Return the parameters of a reduction for the library's kernels. */
static inline struct twill_reduction for_kernel(const struct twill_request *run,
                                                const struct reduction *f)
{
    const struct twill_engine *engine = run->engine;
    const bool final = (f->flags & TWILL_STEP_FINAL) != 0, narrow = run->layout.narrow;
    return (struct twill_reduction){.type = run->layout.type,
                                    .op = run->layout.op,
                                    .divisor = engine->world->size,
                                    .partial_sources = narrow ? 0 : f->partial_sources,
                                    .partial_result = !final && !narrow,
                                    .after = final ? run->layout.after : NULL,
                                    .flags = f->hints,
                                    .pool = engine->tuning.pool};
}

/* Reduce `count` elements of all f->source[] into each f->dst[] with the library's kernels. */
static void reduce_by_kernel(const struct twill_request *run, const struct reduction *f,
                             size_t count)
{
    const struct twill_engine *engine = run->engine;
    const struct twill_reduction reduction = for_kernel(run, f);
    if (f->dsts == 1)
        twill_kernels_reduce(engine->kernels, &reduction, f->dst[0], (const void *const *)f->source,
                             f->sources, count);
    else
        twill_kernels_spread(engine->kernels, &reduction, f->dst, f->dsts,
                             (const void *const *)f->source, f->sources, count);
}

/* Return the alignment in bytes that a caller's function may rely on for elements of `element`
 * bytes. It is the largest power of two, up to 16, that divides `element`. For an element of a
 * twill_type that is its size. */
static uintptr_t operand_alignment(size_t element)
{
    return twill_min(element & (~element + 1), (size_t)16);
}

/* Set result[n] to left op right by the caller's function, which gets aligned copies of the
 * operands. The `n` elements must fit BETWEEN_BYTES. */
static __attribute__((noinline)) void call_on_copies(const struct twill_request *run,
                                                     const void *left, const void *right,
                                                     void *result, size_t n)
{
    const struct twill_operation *created = run->layout.created;
    TWILL_ALIGNED(64) unsigned char copy[2][BETWEEN_BYTES];
    const size_t bytes = n * run->layout.element;
    memcpy(copy[0], left, bytes);
    memcpy(copy[1], right, bytes);
    created->function(copy[0], copy[1], copy[0], n, run->layout.type, created->user);
    memcpy(result, copy[0], bytes);
}

/* Set result[n] to left op right by the caller's function, on copies if one is not aligned. */
static void call_function(const struct twill_request *run, const void *left, const void *right,
                          void *result, size_t n)
{
    const struct twill_operation *created = run->layout.created;
    const uintptr_t bits = (uintptr_t)left | (uintptr_t)right | (uintptr_t)result;
    if (TWILL_UNLIKELY((bits & (operand_alignment(run->layout.element) - 1)) != 0))
        call_on_copies(run, left, right, result, n);
    else
        created->function(left, right, result, n, run->layout.type, created->user);
}

/* Combine f->source[], the operands, by the caller's function from left to right, and store the
 * result in each f->dst[]. As dst[0] may be an operand, results in between go to a buffer of this
 * function. A single operand is copied. */
static void reduce_by_function(const struct twill_request *run, const struct reduction *f,
                               size_t count)
{
    TWILL_ALIGNED(64) unsigned char between[BETWEEN_BYTES];
    size_t most = BETWEEN_BYTES / run->layout.element;
    for (size_t done = 0; done < count; done += most) {
        size_t n = twill_min(most, count - done), skip = done * run->layout.element;
        unsigned char *dst = (unsigned char *)f->dst[0] + skip;
        const void *left = (const unsigned char *)f->source[0] + skip;
        for (unsigned i = 1; i < f->sources; i++) {
            const void *right = (const unsigned char *)f->source[i] + skip;
            void *result = i + 1 == f->sources ? (void *)dst : (void *)between;
            call_function(run, left, right, result, n);
            left = result;
        }
        if (f->sources == 1 && left != dst)
            memcpy(dst, left, n * run->layout.element);
        for (unsigned d = 1; d < f->dsts; d++)
            memcpy((unsigned char *)f->dst[d] + skip, dst, n * run->layout.element);
    }
}

/* Execute a reduction of `count` elements into f->dst[]. Its sources are all in this process. The
 * operation's own function does it or, if there is none, a kernel. */
static void reduce_unrecorded(const struct twill_request *run, const struct reduction *f,
                              size_t count)
{
    if (TWILL_UNLIKELY(run->layout.created != NULL && run->layout.created->function != NULL))
        reduce_by_function(run, f, count);
    else
        reduce_by_kernel(run, f, count);
}

/* Record the begin or the end of a reduction in a detailed trace. */
static void record_reduction(const struct twill_request *run, enum twill_trace_kind kind,
                             size_t count)
{
    if (twill_trace_is_detailed(&run->engine->trace))
        twill_trace_detail(run, kind, TWILL_TRACE_NO_PEER, count * run->layout.element, 0);
}

/* Execute a reduction as reduce_unrecorded() does. A detailed trace records it. */
static void reduce_run(const struct twill_request *run, const struct reduction *f, size_t count)
{
    if (count == 0)
        return;
    record_reduction(run, TWILL_TRACE_REDUCE_BEGIN, count);
    reduce_unrecorded(run, f, count);
    record_reduction(run, TWILL_TRACE_REDUCE_END, count);
}

/* Initialise a reduction with one destination and no sources. Its large arrays are not cleared. */
static void begin_reduction(struct reduction *f, unsigned flags, unsigned char *dst)
{
    f->flags = flags;
    f->dst[0] = dst;
    f->dsts = 1;
    f->sources = 0;
    f->fetches = false;
    f->partial_sources = 0;
    f->hints = 0;
}

/* Add an operand in this process to a reduction. */
static void add_source(struct reduction *f, const unsigned char *start, bool partial)
{
    f->partial_sources |= (uint32_t)partial << f->sources;
    f->peer[f->sources] = HERE;
    f->source[f->sources++] = start;
}

/* Set *f to the reduction that the REDUCE `step` makes of `blocks` blocks of its operands, from
 * block `at` on. These must be adjacent in memory. Returns the number of elements that the
 * reduction writes. */
static size_t gather_operands(const struct twill_request *run,
                              const struct twill_instance *instance, const struct twill_step *step,
                              uint32_t at, uint32_t blocks, struct reduction *f)
{
    bool partial = (step->flags & TWILL_STEP_PARTIAL) != 0;
    bool own_partial = (step->flags & TWILL_STEP_PARTIAL_OWN) != 0;
    bool final = (step->flags & TWILL_STEP_FINAL) != 0;
    bool accumulate = (step->flags & TWILL_STEP_ACC) != 0;
    bool last = (step->flags & TWILL_STEP_FIRST) != 0;
    struct twill_elements dst = locate(run, instance, step, step->dst, at, blocks, !final);
    const unsigned char *own = dst.start;
    const bool watched = TWILL_UNLIKELY(run->buffers.watch != NULL);
    if (accumulate && own_partial == final)
        own = locate(run, instance, step, step->dst, at, blocks, own_partial).start;
    begin_reduction(f, step->flags, dst.start);
    if (watched)
        memset(f->input_of, 0xff, sizeof(f->input_of)); /* UINT32_MAX: of no rank */
    if (accumulate && !last)
        add_source(f, own, own_partial);
    for (unsigned i = 0; i < step->nsrc; i++) {
        struct twill_operand_place where = {step->src,     at,         blocks,
                                            step->peer[i], step->lane, partial};
        if ((step->flags & TWILL_STEP_OWN_SRC) && step->peer[i] == run->engine->rank) {
            where.operand = twill_operand_make(TWILL_SRC, twill_operand_block(step->src));
            where.partial = false;
        }
        const unsigned char *start =
            final && twill_run_is_beside(run, where.operand, step->dst, where.partial)
                ? twill_run_beside(run, instance, where.operand, where.peer, dst.start)
                : twill_run_locate(run, instance, &where).start;
        add_source(f, start, where.partial);
        if (watched && twill_operand_space(where.operand) == TWILL_SRC)
            f->input_of[f->sources - 1] = step->peer[i];
        if (twill_run_fetches(run, where.operand) && where.peer != run->engine->rank) {
            f->peer[f->sources - 1] = where.peer;
            f->fetches = true;
        }
    }
    if (accumulate && last)
        add_source(f, own, own_partial);
    return dst.count;
}

/* Copy bytes, unless dst is src. `flags` are those of enum twill_kernel_flags. */
static void copy_result(const struct twill_request *run, unsigned char *dst,
                        const unsigned char *src, size_t bytes, unsigned flags)
{
    if (dst == src || bytes == 0)
        return;
    twill_kernels_copy(run->engine->kernels, dst, src, bytes, flags, run->engine->tuning.pool);
}

/* Return TWILL_KERNEL_STREAM if a COPY to this space bypasses the caches, and 0 otherwise. */
static unsigned stores_to(const struct twill_request *run, const struct twill_instance *instance,
                          unsigned space)
{
    if (space == TWILL_DST)
        return run->layout.store_flags;
    return space == TWILL_SHARED && instance->streams ? TWILL_KERNEL_STREAM : 0;
}

/* Return whether an operand is SHARED or of a peer, so that its lines may be in the caches of
 * another core. */
static bool is_shared(twill_operand operand)
{
    return twill_operand_is_peer(operand) || twill_operand_space(operand) == TWILL_SHARED;
}

/* Wait until other cores can see earlier stores of this thread, also streamed ones. */
static void drain_stores(void)
{
#ifdef __x86_64__
    __asm__ volatile("mfence" : : : "memory");
#else
    __sync_synchronize();
#endif
}

/* Copy the bytes of a COPY and, if this segment is measured, add the ticks to the measurement.
 * Lines of other cores are asked for ahead, except those of SHARED that an exchange writes. Each
 * rank then reads at the same time, and plain stores were 4 % faster on a Granite Rapids. */
static void copy_staged(struct twill_request *run, const struct twill_instance *instance,
                        const struct twill_step *step, unsigned char *dst, const unsigned char *src,
                        size_t bytes)
{
    uint64_t begin = TWILL_UNLIKELY(instance->is_measured) ? twill_ticks() : 0;
    unsigned fetches = 0;
    if (TWILL_UNLIKELY(bytes >= FETCHED_FROM) &&
        (is_shared(step->src) || (run->plan->schedule.eager && is_shared(step->dst))))
        fetches = TWILL_KERNEL_FETCH;
    copy_result(run, dst, src, bytes,
                fetches | stores_to(run, instance, twill_operand_space(step->dst)));
    if (TWILL_UNLIKELY(instance->is_measured)) {
        drain_stores(); /* streamed ones are under way for a while */
        twill_staging_add(run, instance, twill_ticks() - begin);
    }
}

/* Return whether COPYs must multiply by layout.after, the factor for the result of a sum of narrow
 * floats. With several ranks the final REDUCE multiplies by it, but one rank only copies. */
static bool finishes_alone(const struct twill_request *run)
{
    return run->layout.after != NULL && run->engine->world->size == 1;
}

/* Copy `count` elements and multiply them by the factor layout.after, by reducing one operand. */
static void finish_copy(const struct twill_request *run, unsigned char *dst,
                        const unsigned char *src, size_t count)
{
    struct reduction f;
    begin_reduction(&f, TWILL_STEP_FINAL, dst);
    add_source(&f, src, false);
    reduce_run(run, &f, count);
}

/* Return a reduction like *f whose addresses all begin `done` elements later. */
static struct reduction section_of(const struct twill_request *run, const struct reduction *f,
                                   size_t done)
{
    struct reduction section = *f;
    bool partial = (f->flags & TWILL_STEP_FINAL) == 0;
    for (unsigned d = 0; d < f->dsts; d++)
        section.dst[d] = (unsigned char *)f->dst[d] + done * twill_run_width(run, partial);
    for (unsigned i = 0; i < f->sources; i++)
        section.source[i] = (const unsigned char *)f->source[i] +
                            done * twill_run_width(run, f->partial_sources >> i & 1);
    return section;
}

/* A part of a reduction whose operands threads fetch and reduce, of `count` elements, or a copy of
 * `count` bytes from a peer. On the stack of whoever shares it. */
struct fetch {
    const struct twill_request *run;
    const struct reduction *reduction; /* or NULL for a copy */
    unsigned char *to;         /* scratch, with twill_engine_fetch_bytes() for each source */
    const unsigned char *from; /* of a copy */
    uint32_t peer;
    size_t count;
    _Atomic int cause; /* errno of the first part that failed, or 0 */
    unsigned lost;     /* number of the source that this part could not read */
};

/* Record that a part could not read a source, unless another part could not before. */
static void fail_fetch(struct fetch *fetch, unsigned source, int cause)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&fetch->cause, &none, cause))
        fetch->lost = source;
}

/* Fetch the sources of elements `first` to first + count - 1 of a part and reduce them. If a peer's
 * memory cannot be read, record that instead. */
static void fetch_sources(struct fetch *fetch, size_t first, size_t count)
{
    const struct twill_request *run = fetch->run;
    struct reduction section = section_of(run, fetch->reduction, first);
    size_t width = run->layout.element, each = twill_engine_fetch_bytes(run->engine);
    unsigned char *to = fetch->to + first * width;
    for (unsigned i = 0; i < section.sources; i++) {
        if (section.peer[i] == HERE)
            continue;
        int cause = twill_run_try_fetch(run, section.peer[i], to, section.source[i], count * width);
        if (cause != 0) {
            fail_fetch(fetch, i, cause);
            return;
        }
        section.source[i] = to;
        to += each;
    }
    if (count > 0)
        reduce_unrecorded(run, &section, count);
}

/* Fetch part number `part` of `parts` of `job`, a struct fetch. Parts begin at multiples of 64
 * elements. */
static void fetch_part(void *job, unsigned part, unsigned parts)
{
    struct fetch *fetch = job;
    size_t each = twill_round_up((fetch->count + parts - 1) / parts, TWILL_CACHE_LINE);
    size_t first = twill_min(part * each, fetch->count);
    size_t count = twill_min(each, fetch->count - first);
    if (fetch->reduction != NULL) {
        fetch_sources(fetch, first, count);
        return;
    }
    int cause =
        twill_run_try_fetch(fetch->run, fetch->peer, fetch->to + first, fetch->from + first, count);
    if (cause != 0)
        fail_fetch(fetch, 0, cause);
}

/* Do all of a fetch of `bytes` bytes, in several threads if that pays and they need not call the
 * program's function. */
static void run_fetch(struct fetch *fetch, size_t bytes)
{
    const struct twill_operation *created = fetch->run->layout.created;
    struct twill_thread_pool *pool = fetch->run->engine->tuning.pool;
    bool calls = fetch->reduction != NULL && created != NULL && created->function != NULL;
    twill_pool_share(calls ? NULL : pool, bytes, bytes, TWILL_FETCH_THREADS, fetch_part, fetch);
}

/* Copy bytes from a peer's process. Returns TWILL_OK or the error. */
static twill_status copy_fetched(struct twill_request *run, uint32_t peer, unsigned char *to,
                                 const unsigned char *from, size_t bytes)
{
    struct fetch fetch = {.run = run, .to = to, .from = from, .peer = peer, .count = bytes};
    run_fetch(&fetch, bytes);
    return twill_run_end_fetch(run, peer, from, bytes, fetch.cause);
}

/* Execute a COPY, untimed. Returns TWILL_OK or the error of a fetch. */
static twill_status copy_blocks(struct twill_request *run, const struct twill_instance *instance,
                                const struct twill_step *step)
{
    bool fetches = twill_run_fetches(run, step->src);
    bool to_caller = twill_operand_space(step->dst) == TWILL_DST;
    bool partial = (step->flags & TWILL_STEP_PARTIAL) != 0;
    for (uint32_t at = 0; at < step->blocks;) {
        uint32_t blocks = twill_run_together(run, step->dst, at, step->blocks);
        if (run->layout.joined == TWILL_JOINED_IN_SCRATCH)
            blocks =
                (uint32_t)twill_min(blocks, twill_run_together(run, step->src, at, step->blocks));
        struct twill_elements dst = locate(run, instance, step, step->dst, at, blocks, partial);
        struct twill_elements src = locate(run, instance, step, step->src, at, blocks, partial);
        size_t bytes = dst.count * twill_run_width(run, partial);
        if (TWILL_UNLIKELY(finishes_alone(run)))
            finish_copy(run, dst.start, src.start, dst.count);
        else if (fetches)
            TWILL_TRY(&run->engine->error,
                      copy_fetched(run, step->peer[0], dst.start, src.start, bytes));
        else
            copy_staged(run, instance, step, dst.start, src.start, bytes);
        if (!to_caller || twill_operand_space(step->src) == TWILL_SHARED)
            twill_counter_add(&run->engine->usage.counters.bytes_copied, bytes);
        at += blocks;
    }
    return TWILL_OK;
}

twill_status twill_run_copy(struct twill_request *run, const struct twill_instance *instance,
                            const struct twill_step *step)
{
    if (TWILL_LIKELY(!run->exchange.fetch.is_measured))
        return copy_blocks(run, instance, step);
    uint64_t begin = twill_ticks();
    twill_status status = copy_blocks(run, instance, step);
    run->exchange.fetch.ticks += twill_ticks() - begin;
    return status;
}

/* Reduce with operands in other processes. They are fetched in chunks into scratch, which stays in
 * the caches, and reduced there. Returns TWILL_OK, or the error of a fetch. */
static twill_status reduce_fetched(struct twill_request *run, const struct twill_instance *instance,
                                   const struct reduction *f, size_t count)
{
    const struct twill_slot *slot = &run->engine->issue.slot[instance->epoch % TWILL_WINDOW];
    size_t width = run->layout.element, at_once = twill_engine_fetch_bytes(run->engine) / width;
    for (size_t done = 0; done < count; done += at_once) {
        size_t n = twill_min(at_once, count - done);
        struct reduction section = section_of(run, f, done);
        struct fetch fetch = {.run = run,
                              .reduction = &section,
                              .to = slot->scratch + run->layout.fetched_at,
                              .count = n};
        record_reduction(run, TWILL_TRACE_REDUCE_BEGIN, n);
        run_fetch(&fetch, n * width);
        record_reduction(run, TWILL_TRACE_REDUCE_END, n);
        for (unsigned i = 0; i < f->sources; i++)
            if (f->peer[i] != HERE)
                TWILL_TRY(&run->engine->error,
                          twill_run_end_fetch(run, f->peer[i], section.source[i], n * width,
                                              i == fetch.lost ? fetch.cause : 0));
    }
    return TWILL_OK;
}

/* Execute a reduction, and fetch operands if needed. Returns TWILL_OK or the error of a fetch. */
static twill_status reduce_all(struct twill_request *run, const struct twill_instance *instance,
                               const struct reduction *f, size_t count)
{
    if (TWILL_UNLIKELY(f->fetches))
        return reduce_fetched(run, instance, f, count);
    reduce_run(run, f, count);
    return TWILL_OK;
}

/* Return where the COPY step `copy`, which follows a REDUCE to `dst`, puts the blocks from `at` on.
 */
static unsigned char *taken_to(const struct twill_request *run,
                               const struct twill_instance *instance, const struct twill_step *copy,
                               uint32_t at, uint32_t blocks, const unsigned char *dst)
{
    bool partial = (copy->flags & TWILL_STEP_PARTIAL) != 0;
    if (twill_run_is_beside(run, copy->dst, copy->src, partial))
        return twill_run_beside(run, instance, copy->dst, copy->peer[0], dst);
    return locate(run, instance, copy, copy->dst, at, blocks, partial).start;
}

/* Execute a reduction for run->buffers.watch. Where results are finite, so are the operands. From
 * the first one on that may not be, search some operands before results overwrite them, and go on
 * behind those. Returns TWILL_OK, or the error of the watch. */
static __attribute__((noinline, cold)) twill_status
reduce_watched(struct twill_request *run, const struct reduction *f, size_t count)
{
    const struct twill_reduction reduction = for_kernel(run, f);
    const size_t most =
        run->engine->tuning.pool == NULL ? FUSED_BYTES / run->layout.element : SIZE_MAX;
    for (size_t done = 0; done < count;) {
        struct reduction rest = section_of(run, f, done);
        done += twill_kernels_spread_finite(run->engine->kernels, &reduction, rest.dst, rest.dsts,
                                            (const void *const *)rest.source, rest.sources,
                                            count - done);
        const size_t n = twill_min(most, count - done);
        rest = section_of(run, f, done);
        TWILL_TRY(&run->engine->error,
                  twill_run_search(run, rest.source, rest.input_of, rest.sources, n));
        reduce_run(run, &rest, n);
        done += n;
    }
    return TWILL_OK;
}

/* Execute the REDUCE `step` for `blocks` adjacent blocks, from block `at` on, and the `copies`
 * COPYs that follow. The kernel stores to as many destinations as it can, and its result is copied
 * to the others. If kernels have one thread, this goes FUSED_BYTES by FUSED_BYTES. Also search the
 * operands for a NaN if run->buffers.watch wants that. Returns TWILL_OK, or the error of a fetch or
 * of the watch. */
static twill_status reduce_blocks(struct twill_request *run, const struct twill_instance *instance,
                                  const struct twill_step *step, uint32_t copies, uint32_t at,
                                  uint32_t blocks)
{
    struct reduction f;
    bool final = (step->flags & TWILL_STEP_FINAL) != 0;
    size_t count = gather_operands(run, instance, step, at, blocks, &f);
    size_t width = twill_run_width(run, !final), at_once = count;
    uint32_t c = 1;
    bool to_caller = twill_operand_space(step->dst) == TWILL_DST;
    for (; c <= copies && f.dsts < TWILL_KERNEL_MAX_DESTINATIONS; c++) {
        f.dst[f.dsts++] = taken_to(run, instance, &step[c], at, blocks, f.dst[0]);
        to_caller &= twill_operand_space(step[c].dst) == TWILL_DST;
    }
    const struct twill_nan_watch *watch = run->buffers.watch;
    const bool searches =
        TWILL_UNLIKELY(watch != NULL) && !run->buffers.looks && watch->seeks(watch->user);
    if (c <= copies && run->engine->tuning.pool == NULL)
        at_once = twill_max(FUSED_BYTES / run->layout.element, 1);
    if (c > copies && to_caller)
        f.hints = run->layout.store_flags;
    if (TWILL_UNLIKELY(count * run->layout.element >= FETCHED_FROM) &&
        twill_operand_is_peer(step->src))
        f.hints |= TWILL_KERNEL_FETCH;
    if (TWILL_LIKELY(c > copies))
        return TWILL_UNLIKELY(searches) ? reduce_watched(run, &f, count)
                                        : reduce_all(run, instance, &f, count);
    for (size_t done = 0; done < count; done += at_once) {
        size_t n = twill_min(at_once, count - done);
        struct reduction section = section_of(run, &f, done);
        TWILL_TRY(&run->engine->error, searches ? reduce_watched(run, &section, n)
                                                : reduce_all(run, instance, &section, n));
        for (uint32_t rest = c; rest <= copies; rest++)
            copy_result(run,
                        taken_to(run, instance, &step[rest], at, blocks, f.dst[0]) + done * width,
                        section.dst[0], n * width,
                        stores_to(run, instance, twill_operand_space(step[rest].dst)));
    }
    return TWILL_OK;
}

/* Return the number of COPYs before `end` that follow the REDUCE `step` directly and copy its
 * result. */
static uint32_t copies_count(const struct twill_step *step, const struct twill_step *end)
{
    uint32_t copies = 0;
    bool final = (step->flags & TWILL_STEP_FINAL) != 0;
    while (step + 1 + copies < end && step[1 + copies].op == TWILL_STEP_COPY &&
           step[1 + copies].src == step->dst && step[1 + copies].blocks == step->blocks &&
           ((step[1 + copies].flags & TWILL_STEP_PARTIAL) == 0) == final)
        copies++;
    return copies;
}

twill_status twill_run_reduce_and_copy(struct twill_request *run,
                                       const struct twill_instance *instance,
                                       const struct twill_step *step, const struct twill_step *end,
                                       uint32_t *copies)
{
    *copies = copies_count(step, end);
    for (uint32_t at = 0; at < step->blocks;) {
        uint32_t blocks = twill_run_together(run, step->dst, at, step->blocks);
        TWILL_TRY(&run->engine->error, reduce_blocks(run, instance, step, *copies, at, blocks));
        at += blocks;
    }
    return TWILL_OK;
}

void twill_run_reduce(struct twill_transfer *request, size_t offset, const void *data, size_t bytes)
{
    const struct twill_posted *posted = request->reduce_context;
    const struct twill_request *run = posted->run;
    bool partial = (posted->flags & TWILL_STEP_PARTIAL) != 0;
    bool own_partial = (posted->flags & TWILL_STEP_PARTIAL_OWN) != 0;
    bool result_partial = (posted->flags & TWILL_STEP_FINAL) == 0;
    size_t first = offset / twill_run_width(run, partial);
    const unsigned char *own = posted->src + first * twill_run_width(run, own_partial);
    struct reduction f;
    begin_reduction(&f, posted->flags, posted->dst + first * twill_run_width(run, result_partial));
    if (posted->flags & TWILL_STEP_FIRST)
        add_source(&f, data, partial);
    add_source(&f, own, own_partial);
    if ((posted->flags & TWILL_STEP_FIRST) == 0)
        add_source(&f, data, partial);
    if (TWILL_UNLIKELY(!request->alone)) /* perhaps another thread, which must not record events */
        reduce_unrecorded(run, &f, bytes / twill_run_width(run, partial));
    else
        reduce_run(run, &f, bytes / twill_run_width(run, partial));
}

/* --- SRC and DST copied through scratch by segments: scaled inputs, scaled sums of narrow floats,
 *     and the source of an in-place all-to-all, which the call overwrites ---------------------- */

/* Where a segment of a shard lies in the caller's buffer and in scratch, and the number of its
 * elements, 0 if the shard is shorter. segment_of() returns it. */
struct segment {
    unsigned char *user, *scratch;
    size_t count;
};

/* Return where the instance's segment of a shard of SRC or DST (`space`) lies. */
static struct segment segment_of(const struct twill_request *run,
                                 const struct twill_instance *instance, unsigned space,
                                 uint32_t shard)
{
    const struct twill_side *side = &run->buffers.side[space];
    size_t whole = side->count != NULL && !side->own ? side->count[shard] : side->even;
    size_t first = side->own ? 0 : side->offset != NULL ? side->offset[shard] : shard * side->pitch;
    size_t place = side->own ? 0 : shard * twill_run_stride(run, instance);
    return (struct segment){
        .user = side->base + (first + instance->skip) * run->layout.given,
        .scratch = instance->base[space] + place * run->layout.element,
        .count = whole > instance->skip
                     ? twill_min(whole - instance->skip, run->layout.segment_length)
                     : 0,
    };
}

/* Return the number of shards that this rank has of SRC or DST. */
static uint32_t shards_of(const struct twill_request *run, unsigned space)
{
    return run->buffers.side[space].own ? 1 : run->plan->schedule.shards;
}

void twill_run_bounce_in(struct twill_request *run, const struct twill_instance *instance)
{
    struct twill_engine *engine = run->engine;
    const struct twill_kernels *kernels = engine->kernels;
    for (uint32_t p = 0; p < shards_of(run, TWILL_SRC); p++) {
        struct segment segment = segment_of(run, instance, TWILL_SRC, p);
        if (segment.count == 0)
            continue;
        if (run->layout.created != NULL && run->layout.created->scaled)
            twill_kernels_scale(kernels, run->call.type, segment.scratch, segment.user,
                                run->layout.created->factor, run->layout.created->narrow,
                                segment.count, engine->tuning.pool);
        else
            twill_kernels_copy(kernels, segment.scratch, segment.user,
                               segment.count * run->layout.element, 0, engine->tuning.pool);
        twill_counter_add(&engine->usage.counters.bytes_copied,
                          segment.count * run->layout.element);
    }
}

/* Copy a segment of DST out of scratch, by a reduction of one operand, which only rounds it. */
void twill_run_bounce_out(struct twill_request *run, const struct twill_instance *instance)
{
    const struct twill_engine *engine = run->engine;
    const struct twill_reduction narrow = {.type = run->call.type,
                                           .op = TWILL_SUM,
                                           .divisor = 1,
                                           .partial_sources = 1,
                                           .pool = engine->tuning.pool};
    for (uint32_t p = 0; p < shards_of(run, TWILL_DST); p++) {
        struct segment segment = segment_of(run, instance, TWILL_DST, p);
        const void *source = segment.scratch;
        if (segment.count > 0)
            twill_kernels_reduce(engine->kernels, &narrow, segment.user, &source, 1, segment.count);
    }
}
