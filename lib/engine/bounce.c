/* SPDX-License-Identifier: Apache-2.0 */
/* SRC and DST copied through scratch, segment by segment: scaled inputs, scaled sums of narrow
 * floats, and the source of an all-to-all in place, which the call overwrites. */
#include "kernels/kernels.h"
#include "lib/comm/comm.h"

/* A segment of a shard, in the caller's buffer and in scratch. */
struct segment {
    unsigned char *user, *scratch;
    size_t count;
};

static struct segment segment_of(const struct twill_run *run, const struct twill_instance *instance,
                                 unsigned space, uint32_t shard)
{
    const struct twill_side *side = &run->buffers.side[space];
    size_t whole = side->count != NULL && !side->own ? side->count[shard] : side->even;
    size_t first = side->own ? 0 : side->offset != NULL ? side->offset[shard] : shard * side->even;
    size_t place = side->own ? 0 : shard * side->stride;
    return (struct segment){
        .user = side->base + (first + instance->skip) * run->layout.given,
        .scratch = instance->base[space] + place * run->layout.element,
        .count = whole > instance->skip
                     ? twill_min(whole - instance->skip, run->layout.segment_length)
                     : 0,
    };
}

static uint32_t shards_of(const struct twill_run *run, unsigned space)
{
    return run->buffers.side[space].own ? 1 : run->plan->schedule.shards;
}

void twill_run_bounce_in(struct twill_run *run, const struct twill_instance *instance)
{
    struct twill_comm *comm = run->comm;
    const struct twill_kernels *kernels = comm->context->machine.kernels;
    for (uint32_t p = 0; p < shards_of(run, TWILL_SRC); p++) {
        struct segment segment = segment_of(run, instance, TWILL_SRC, p);
        if (segment.count == 0)
            continue;
        if (run->layout.created != NULL && run->layout.created->scaled)
            twill_kernels_scale(kernels, run->call.type, segment.scratch, segment.user,
                                run->layout.created->factor, run->layout.created->narrow,
                                segment.count, comm->tuning.threads);
        else
            twill_kernels_copy(kernels, segment.scratch, segment.user,
                               segment.count * run->layout.element, 0, comm->tuning.threads);
        twill_counter_add(&comm->usage.counters.bytes_copied, segment.count * run->layout.element);
    }
}

/* A reduction of one operand does no more than round it. */
void twill_run_bounce_out(struct twill_run *run, const struct twill_instance *instance)
{
    const struct twill_comm *comm = run->comm;
    const struct twill_reduction narrow = {.type = run->call.type,
                                           .op = TWILL_SUM,
                                           .divisor = 1,
                                           .partial_sources = 1,
                                           .threads = comm->tuning.threads};
    for (uint32_t p = 0; p < shards_of(run, TWILL_DST); p++) {
        struct segment segment = segment_of(run, instance, TWILL_DST, p);
        const void *source = segment.scratch;
        if (segment.count > 0)
            twill_kernels_reduce(comm->context->machine.kernels, &narrow, segment.user, &source, 1,
                                 segment.count);
    }
}
