/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a sharded update: norms, the optimizer on the shard, the all-gather. */
#include "lib/train/gradients.h"

#include <string.h>

/* --- the shard ------------------------------------------------------------------------------- */

size_t twill_update_tensor_first(const struct twill_gradients *set,
                                 const struct twill_bucket *bucket, uint32_t i)
{
    const struct twill_train_tensor *first = &set->tensor[set->backward[bucket->first]],
                                    *tensor = &set->tensor[set->backward[bucket->first + i]];
    return i == 0 ? 0 : (tensor->place - first->place) / twill_type_size(bucket->type);
}

struct twill_bucket_range twill_update_range_of_tensor(const struct twill_gradients *set,
                                                       const struct twill_bucket *bucket,
                                                       uint32_t i, struct twill_bucket_range range)
{
    size_t first = twill_update_tensor_first(set, bucket, i),
           end = first + set->tensor[set->backward[bucket->first + i]].count;
    first = twill_max(first, range.first);
    end = twill_min(end, range.first + range.count);
    return (struct twill_bucket_range){first, end > first ? end - first : 0};
}

/* Copy parameters of a range between the bucket and the caller's memory. */
static void copy_parameters(struct twill_gradients *set, uint32_t b,
                            struct twill_bucket_range range, bool in)
{
    const struct twill_bucket *bucket = &set->bucket[b];
    unsigned char *parameters = set->update->bucket[b].parameters;
    size_t width = twill_type_size(bucket->type), copied = 0;
    for (uint32_t i = 0; i < bucket->tensors; i++) {
        unsigned char *own = set->tensor[set->backward[bucket->first + i]].parameters;
        struct twill_bucket_range part = twill_update_range_of_tensor(set, bucket, i, range);
        if (own == NULL || part.count == 0)
            continue;
        unsigned char *theirs =
                          own + (part.first - twill_update_tensor_first(set, bucket, i)) * width,
                      *ours = parameters + part.first * width;
        memcpy(in ? ours : theirs, in ? theirs : ours, part.count * width);
        copied += part.count * width;
    }
    atomic_fetch_add_explicit(&set->usage.bytes_copied, copied, memory_order_relaxed);
}

void twill_update_deliver(struct twill_gradients *set, const struct twill_bucket *bucket)
{
    uint32_t b = (uint32_t)(bucket - set->bucket);
    if (set->update->bucket[b].copies)
        copy_parameters(set, b, (struct twill_bucket_range){0, bucket->count}, false);
}

/* Read the parameters of this rank's shard, as far as the update needs them: they may be the
 * caller's, and have changed. */
static void load_shard(struct twill_gradients *set, uint32_t b,
                       struct twill_update_segment *segment)
{
    const struct twill_update_bucket *bucket = &set->update->bucket[b];
    twill_type type = set->bucket[b].type;
    bool loads = segment->loaded != set->update->loads;
    if (type != TWILL_F32 && !loads)
        return;
    if (bucket->copies)
        copy_parameters(
            set, b, (struct twill_bucket_range){segment->shard_first, segment->shard_count}, true);
    if (type != TWILL_F32 && segment->shard_count > 0)
        set->context->machine.kernels->widen[type](
            segment->master, bucket->parameters + segment->shard_first * twill_type_size(type),
            segment->shard_count);
    segment->loaded = set->update->loads;
}

void twill_update_load(struct twill_gradients *set)
{
    for (uint32_t b = 0; b < set->update->buckets; b++)
        for (uint32_t s = 0; s < set->update->bucket[b].segments; s++)
            load_shard(set, b, &set->update->bucket[b].segment[s]);
}

/* Run the first pass of LARS and LAMB, or the update, on a part of this rank's shard. */
static struct twill_optimizer_norms update_part(struct twill_gradients *set, uint32_t b,
                                                const struct twill_update_segment *segment,
                                                struct twill_bucket_range part, bool norms,
                                                float trust)
{
    const struct twill_update *update = set->update;
    const struct twill_bucket *bucket = &set->bucket[b];
    size_t width = twill_type_size(bucket->type), from = part.first - segment->shard_first;
    const void *gradient = bucket->memory + part.first * width;
    struct twill_optimizer_step step = {.optimizer = &update->optimizer,
                                        .step = update->bucket[b].steps + 1,
                                        .gradient_type = bucket->type,
                                        .sources = 1,
                                        .gradient = &gradient,
                                        .scale = bucket->wire.used ? 1 : update->scale,
                                        .parameter_type = bucket->type,
                                        .parameter =
                                            update->bucket[b].parameters + part.first * width,
                                        .trust = trust,
                                        .threads = update->comm->tuning.threads};
    if (segment->master != NULL)
        step.master = segment->master + from;
    for (unsigned i = 0; i < TWILL_OPTIMIZER_MAX_STATES; i++)
        if (segment->state[i] != NULL)
            step.state[i] = segment->state[i] + from;
    if (norms)
        return twill_optimizer_norms(set->context->machine.kernels, &step, part.count);
    twill_gradients_record(set, TWILL_TRACE_UPDATE_BEGIN, b, part.count * width);
    twill_optimizer_update(set->context->machine.kernels, &step, part.count);
    twill_gradients_record(set, TWILL_TRACE_UPDATE_END, b, part.count * width);
    return (struct twill_optimizer_norms){0, 0};
}

/* Compute the norms of what this rank has of each tensor of a bucket. */
static void compute_norms(struct twill_gradients *set, uint32_t b)
{
    const struct twill_bucket *bucket = &set->bucket[b];
    struct twill_update_bucket *update = &set->update->bucket[b];
    memset(update->norms, 0, bucket->tensors * sizeof(*update->norms));
    for (uint32_t s = 0; s < update->segments; s++) {
        struct twill_update_segment *segment = &update->segment[s];
        load_shard(set, b, segment);
        struct twill_bucket_range shard = {segment->shard_first, segment->shard_count};
        for (uint32_t i = 0; i < bucket->tensors; i++) {
            struct twill_bucket_range part = twill_update_range_of_tensor(set, bucket, i, shard);
            if (part.count == 0)
                continue;
            struct twill_optimizer_norms norms = update_part(set, b, segment, part, true, 0);
            update->norms[i].weights += norms.weights;
            update->norms[i].update += norms.update;
        }
    }
}

/* Update this rank's shard of a segment. */
static void update_shard(struct twill_gradients *set, uint32_t b,
                         struct twill_update_segment *segment)
{
    const struct twill_bucket *bucket = &set->bucket[b];
    const struct twill_update_bucket *update = &set->update->bucket[b];
    struct twill_bucket_range shard = {segment->shard_first, segment->shard_count};
    if (update->norms_request == NULL) {
        load_shard(set, b, segment);
        if (shard.count > 0)
            (void)update_part(set, b, segment, shard, false, 1);
        return;
    }
    for (uint32_t i = 0; i < bucket->tensors; i++) {
        struct twill_bucket_range part = twill_update_range_of_tensor(set, bucket, i, shard);
        float trust = twill_optimizer_trust(&set->update->optimizer, update->norms[i]);
        if (part.count > 0)
            (void)update_part(set, b, segment, part, false, trust);
    }
}

/* --- the queue ------------------------------------------------------------------------------- */

static struct twill_update_unit *unit_at(const struct twill_update *update, uint32_t i)
{
    return &update->unit[i & (update->units_most - 1)];
}

void twill_update_queue(struct twill_gradients *set, uint32_t bucket, uint32_t segment)
{
    struct twill_update *update = set->update;
    const struct twill_update_bucket *updated = &update->bucket[bucket];
    const struct twill_bucket *reduced = &set->bucket[bucket];
    if (updated->norms_request == NULL && !reduced->wire.used)
        *unit_at(update, update->end++) = (struct twill_update_unit){
            .bucket = bucket, .segment = segment, .segments = 1, .reductions = 1};
    else if (segment == reduced->segments - 1)
        *unit_at(update, update->end++) = (struct twill_update_unit){
            .bucket = bucket, .segments = updated->segments, .reductions = reduced->segments};
}

bool twill_update_is_busy(const struct twill_gradients *set)
{
    return set->update != NULL && set->update->oldest != set->update->end;
}

/* Return the first all-gather of a unit that is not collected. */
static twill_request **first_gather(const struct twill_update *update,
                                    const struct twill_update_unit *unit)
{
    return &update->bucket[unit->bucket].segment[unit->segment + unit->gathered].gather;
}

const struct twill_request *twill_update_gather_awaited(const struct twill_gradients *set)
{
    const struct twill_update *update = set->update;
    if (update == NULL || update->oldest == update->next)
        return NULL;
    return twill_request_find(*first_gather(update, unit_at(update, update->oldest)));
}

const struct twill_request *twill_update_norms_awaited(const struct twill_gradients *set)
{
    const struct twill_update *update = set->update;
    if (update == NULL || !update->norms_started)
        return NULL;
    return twill_request_find(update->bucket[unit_at(update, update->next)->bucket].norms_request);
}

/* Collect the all-gathers that are complete, oldest first. */
static twill_status collect_gathers(struct twill_gradients *set)
{
    struct twill_update *update = set->update;
    while (update->oldest != update->next) {
        struct twill_update_unit *unit = unit_at(update, update->oldest);
        if (!twill_request_done(twill_update_gather_awaited(set)))
            break;
        twill_status status = twill_wait(first_gather(update, unit));
        if (status != TWILL_OK)
            return twill_gradients_fail(&set->lane[0], update->comm, status);
        set->lane[0].collected++;
        if (++unit->gathered < unit->segments)
            continue;
        twill_bucket_end(&set->lane[0], &set->bucket[unit->bucket], unit->reductions);
        update->oldest++;
    }
    return TWILL_OK;
}

/* Exchange the norms of a unit. Returns TWILL_PENDING until they are complete. */
static twill_status exchange_norms(struct twill_gradients *set,
                                   const struct twill_update_unit *unit)
{
    struct twill_update *update = set->update;
    struct twill_update_bucket *bucket = &update->bucket[unit->bucket];
    twill_status status = TWILL_OK;
    if (!update->norms_started) {
        compute_norms(set, unit->bucket);
        status = twill_request_start(bucket->norms_request);
        update->norms_started = status == TWILL_OK;
    }
    if (status == TWILL_OK) {
        if (!twill_request_done(twill_request_find(bucket->norms_request)))
            return TWILL_PENDING;
        update->norms_started = false;
        status = twill_wait(&bucket->norms_request);
    }
    return status == TWILL_OK ? TWILL_OK
                              : twill_gradients_fail(&set->lane[0], update->comm, status);
}

/* Update the shards of a unit and start gathering the parameters. */
static twill_status update_unit(struct twill_gradients *set, const struct twill_update_unit *unit)
{
    struct twill_update *update = set->update;
    struct twill_update_bucket *bucket = &update->bucket[unit->bucket];
    for (uint32_t s = unit->segment; s < unit->segment + unit->segments; s++) {
        update_shard(set, unit->bucket, &bucket->segment[s]);
        twill_status status = twill_request_start(bucket->segment[s].gather);
        if (status != TWILL_OK)
            return twill_gradients_fail(&set->lane[0], update->comm, status);
    }
    if (unit->segment + unit->segments == bucket->segments)
        bucket->steps++;
    return TWILL_OK;
}

/* Compute the gradients of a unit from what was exchanged, if that is not the gradients. */
static void decode_unit(struct twill_gradients *set, const struct twill_update_unit *unit)
{
    const struct twill_bucket *bucket = &set->bucket[unit->bucket];
    const struct twill_update_segment *segment =
        &set->update->bucket[unit->bucket].segment[unit->segment];
    twill_wire_decode(set, bucket);
    twill_dense_rebuild(set, bucket, segment->shard_first, segment->shard_count);
}

twill_status twill_update_advance(struct twill_gradients *set)
{
    struct twill_update *update = set->update;
    TWILL_TRY(&set->error, collect_gathers(set));
    while (update->next != update->end) {
        const struct twill_update_unit *unit = unit_at(update, update->next);
        if (!update->norms_started)
            decode_unit(set, unit);
        if (update->bucket[unit->bucket].norms_request != NULL) {
            twill_status status = exchange_norms(set, unit);
            if (status == TWILL_PENDING)
                return TWILL_OK;
            TWILL_TRY(&set->error, status);
        }
        TWILL_TRY(&set->error, update_unit(set, unit));
        update->next++;
    }
    return collect_gathers(set);
}
