/* SPDX-License-Identifier: Apache-2.0 */
/* The data side of a run: from operands to addresses, and the steps that compute. */
#include "lib/comm.h"

/* Results go through the caches in strips, so that what was just reduced is copied from there. */
#define STRIP_BYTES ((size_t)32 << 10)

static unsigned char *imm_of(const struct twill_run *run, const struct twill_instance *instance,
                             const struct twill_step *step, uint32_t local)
{
    unsigned slot = (unsigned)(instance->epoch % TWILL_WINDOW);
    struct twill_node_area *area = run->comm->node->area[local];
    return area->imm[slot * TWILL_SCHEDULE_LANES + step->lane][instance->epoch % TWILL_COPIES]
        .payload;
}

/* First byte of a space, for the part of the message this instance works on. */
static unsigned char *base_of(const struct twill_run *run, const struct twill_instance *instance,
                              unsigned space, bool of_peer, uint32_t local)
{
    const struct twill_comm *comm = run->comm;
    switch (space) {
    case TWILL_SRC: /* never written: the verifier sees to it */
        return (unsigned char *)(uintptr_t)(of_peer ? comm->peer_src[local] + instance->offset
                                                    : instance->src);
    case TWILL_DST:
        return of_peer ? comm->peer_dst[local] + instance->offset : instance->dst;
    case TWILL_TMP:
        return comm->scratch + (instance->epoch % TWILL_WINDOW) * run->plan->tmp_bytes;
    default:
        return comm->node->shared[local] +
               (instance->epoch % TWILL_COPIES) * comm->node->shared_bytes;
    }
}

struct twill_span twill_run_span(const struct twill_run *run, const struct twill_instance *instance,
                                 const struct twill_step *step, twill_operand operand,
                                 uint32_t peer)
{
    const struct twill_comm *comm = run->comm;
    unsigned space = twill_operand_space(operand);
    bool of_peer = twill_operand_is_peer(operand) && peer != comm->rank;
    uint32_t local = of_peer ? comm->world->local[peer] : comm->local;
    if (space == TWILL_IMM)
        return (struct twill_span){imm_of(run, instance, step, local), instance->slice_bytes};
    unsigned char *base = base_of(run, instance, space, of_peer, local);
    if (step->blocks == 0)
        return (struct twill_span){base, 0};
    uint32_t blocks = run->plan->schedule.blocks;
    if (blocks == 1 && twill_operand_block(operand) == 0)
        return (struct twill_span){base, instance->slice_bytes};
    uint32_t first = twill_operand_block(operand);
    size_t from, length, last, last_length;
    twill_block_range(instance->count, run->element, blocks, first % blocks, &from, &length);
    twill_block_range(instance->count, run->element, blocks, (first + step->blocks - 1u) % blocks,
                      &last, &last_length);
    size_t slice = (size_t)(first / blocks) * run->plan->slice_bytes;
    return (struct twill_span){base + slice + from * run->element,
                               (last + last_length - from) * run->element};
}

twill_op twill_run_op(const struct twill_run *run, unsigned flags)
{
    bool divides = (flags & TWILL_STEP_FINAL) != 0 || run->call.op != TWILL_AVG;
    return divides ? run->call.op : TWILL_SUM;
}

/* The kernel over [skip, skip + bytes) of the operands. More than the kernels' eight sources come
 * with ACC only: the destination then goes with the first seven. */
static void fold(struct twill_run *run, unsigned flags, unsigned char *dst, const void **source,
                 unsigned sources, size_t bytes)
{
    const struct twill_comm *comm = run->comm;
    size_t count = bytes / run->element;
    twill_op op = twill_run_op(run, flags);
    unsigned first = sources > TWILL_KERNEL_MAX_SOURCES ? TWILL_KERNEL_MAX_SOURCES : sources;
    twill_kernels_reduce(comm->context->kernels, run->call.type,
                         first < sources && op == TWILL_AVG ? TWILL_SUM : op, dst, source, first,
                         count, comm->world->size, 0, comm->threads);
    if (first < sources) {
        const void *rest[2] = {dst, source[first]};
        twill_kernels_reduce(comm->context->kernels, run->call.type, op, dst, rest, 2, count,
                             comm->world->size, 0, comm->threads);
    }
}

/* Addresses of the operands in folding order; returns how many. */
static unsigned gather(const struct twill_run *run, const struct twill_instance *instance,
                       const struct twill_step *step, unsigned char *dst,
                       const unsigned char **source)
{
    unsigned n = 0;
    bool accumulate = (step->flags & TWILL_STEP_ACC) != 0;
    bool last = (step->flags & TWILL_STEP_FIRST) != 0;
    if (accumulate && !last)
        source[n++] = dst;
    for (unsigned i = 0; i < step->nsrc; i++) {
        twill_operand src = step->src;
        if ((step->flags & TWILL_STEP_OWN_SRC) && step->peer[i] == run->comm->rank)
            src = twill_operand_make(TWILL_SRC, twill_operand_block(src));
        source[n++] = twill_run_span(run, instance, step, src, step->peer[i]).start;
    }
    if (accumulate && last)
        source[n++] = dst;
    return n;
}

static void reduce_strip(struct twill_run *run, const struct twill_step *step, unsigned char *dst,
                         const unsigned char *const *source, unsigned sources, size_t skip,
                         size_t bytes)
{
    const void *at[TWILL_STEP_PEERS + 1];
    for (unsigned i = 0; i < sources; i++)
        at[i] = source[i] + skip;
    fold(run, step->flags, dst + skip, at, sources, bytes);
}

static void copy(struct twill_run *run, unsigned char *dst, const unsigned char *src, size_t bytes,
                 unsigned flags)
{
    if (dst == src || bytes == 0)
        return;
    twill_kernels_copy(run->comm->context->kernels, dst, src, bytes, flags, run->comm->threads);
}

void twill_run_copy(struct twill_run *run, const struct twill_instance *instance,
                    const struct twill_step *step)
{
    struct twill_span dst = twill_run_span(run, instance, step, step->dst, step->peer[0]);
    struct twill_span src = twill_run_span(run, instance, step, step->src, step->peer[0]);
    bool to_caller = twill_operand_space(step->dst) == TWILL_DST;
    copy(run, dst.start, src.start, dst.bytes, to_caller ? run->copy_flags : 0);
    if (!to_caller || twill_operand_space(step->src) == TWILL_SHARED)
        run->comm->counters.bytes_copied += dst.bytes;
}

uint32_t twill_run_reduce_and_copy(struct twill_run *run, const struct twill_instance *instance,
                                   const struct twill_step *step, const struct twill_step *end)
{
    uint32_t copies = 0;
    while (step + 1 + copies < end && step[1 + copies].op == TWILL_STEP_COPY &&
           step[1 + copies].src == step->dst && step[1 + copies].blocks == step->blocks)
        copies++;
    const unsigned char *source[TWILL_STEP_PEERS + 1];
    struct twill_span dst = twill_run_span(run, instance, step, step->dst, step->peer[0]);
    unsigned sources = gather(run, instance, step, dst.start, source);
    size_t strip = copies == 0 || run->comm->threads > 1 ? dst.bytes : STRIP_BYTES;
    for (size_t skip = 0; skip < dst.bytes; skip += strip) {
        size_t bytes = twill_min(strip, dst.bytes - skip);
        reduce_strip(run, step, dst.start, source, sources, skip, bytes);
        for (uint32_t c = 1; c <= copies; c++) {
            const struct twill_step *s = &step[c];
            struct twill_span to = twill_run_span(run, instance, s, s->dst, s->peer[0]);
            copy(run, to.start + skip, dst.start + skip, bytes,
                 twill_operand_space(s->dst) == TWILL_DST ? run->copy_flags : 0);
        }
    }
    return copies;
}

void twill_run_fold(struct twill_transfer *request, size_t offset, const void *data, size_t bytes)
{
    struct twill_posted *posted = request->fold_with;
    struct twill_comm *comm = posted->run->comm;
    const void *source[2] = {posted->src + offset, data};
    if (posted->message_first) {
        source[0] = data;
        source[1] = posted->src + offset;
    }
    twill_kernels_reduce(comm->context->kernels, posted->run->call.type, posted->op,
                         posted->dst + offset, source, 2, bytes / posted->run->element,
                         comm->world->size, 0, comm->threads);
}
