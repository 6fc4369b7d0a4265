/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a sharded update, with norms, the optimizer on the shard, and the all-gather. */
#include "lib/train/optimizer/update_internal.h"

#include <math.h>
#include <string.h>

size_t twill_update_tensor_first(const struct twill_gradients *set,
                                 const struct twill_bucket *bucket, uint32_t i)
{
    const struct twill_train_tensor *first = twill_bucket_tensor(set, bucket, 0),
                                    *tensor = twill_bucket_tensor(set, bucket, i);
    return i == 0 ? 0 : (tensor->place - first->place) / twill_type_size(bucket->type);
}

size_t twill_update_in_tensor(const struct twill_gradients *set, const struct twill_bucket *bucket,
                              uint32_t i, size_t at)
{
    return at - twill_update_tensor_first(set, bucket, i) + bucket->from;
}

struct twill_bucket_range twill_update_range_of_tensor(const struct twill_gradients *set,
                                                       const struct twill_bucket *bucket,
                                                       uint32_t i, struct twill_bucket_range range)
{
    size_t first = twill_update_tensor_first(set, bucket, i),
           end = first + twill_bucket_tensor(set, bucket, i)->count;
    first = twill_max(first, range.first);
    end = twill_min(end, range.first + range.count);
    return (struct twill_bucket_range){first, end > first ? end - first : 0};
}

/* Copy parameters of a range from the caller's memory to the bucket (`in`), or back. */
static void copy_parameters(struct twill_gradients *set, uint32_t b,
                            struct twill_bucket_range range, bool in)
{
    const struct twill_bucket *bucket = &set->bucket[b];
    unsigned char *parameters = set->update->bucket[b].parameters;
    size_t width = twill_type_size(bucket->type), copied = 0;
    for (uint32_t i = 0; i < bucket->tensors; i++) {
        unsigned char *own = twill_bucket_tensor(set, bucket, i)->parameters;
        struct twill_bucket_range part = twill_update_range_of_tensor(set, bucket, i, range);
        if (own == NULL || part.count == 0)
            continue;
        unsigned char *theirs = own + twill_update_in_tensor(set, bucket, i, part.first) * width,
                      *ours = parameters + part.first * width;
        twill_set_copy(set, in ? ours : theirs, in ? theirs : ours, part.count * width);
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

/* Return the bucket of generation 0 that belongs to b and holds what both generations share. */
static struct twill_update_bucket *shared_bucket(const struct twill_gradients *set, uint32_t b)
{
    return &set->update->bucket[b % twill_buckets_of_step(set)];
}

/* Return the optimizer as the present step of a bucket uses it. */
static const twill_optimizer *optimizer_of(const struct twill_gradients *set, uint32_t bucket)
{
    return &set->update->used[set->bucket[bucket].generation];
}

/* Read segment->master, the f32 weights of this rank's shard of a segment of bucket b, from
 * parameters. These are the caller's or, where it gave no memory, the set's of a generation (0 or
 * 1). If `newer`, always read the set's, which the caller has not got yet. */
static void load_master(struct twill_gradients *set, uint32_t b,
                        const struct twill_update_segment *segment, uint32_t generation, bool newer)
{
    const struct twill_bucket *bucket = &set->bucket[b];
    size_t width = twill_type_size(bucket->type);
    struct twill_bucket_range shard = {segment->shard_first, segment->shard_count};
    for (uint32_t i = 0; i < bucket->tensors; i++) {
        struct twill_bucket_range part = twill_update_range_of_tensor(set, bucket, i, shard);
        if (part.count == 0)
            continue;
        uint32_t t = set->backward[bucket->first + i];
        const unsigned char *from =
            (newer ? twill_update_arena_place(set, &set->tensor[t], generation)
                   : twill_update_place(set, t, generation)) +
            twill_update_in_tensor(set, bucket, i, part.first) * width;
        float *to = segment->master + (part.first - shard.first);
        if (bucket->type == TWILL_F32)
            twill_set_copy(set, to, from, part.count * sizeof(*to));
        else
            set->process.kernels->widen[bucket->type](to, from, part.count);
    }
}

/* Read this rank's shard of a segment of bucket b from the parameters, which the caller may have
 * changed. If there are f32 weights and they are out of date, set them, segment->master. Without
 * f32 weights, copy parameters in the caller's memory to the set's memory. Parameters that are only
 * in the set's memory are read from this generation (0 or 1), which has the last result. */
static void load_shard(struct twill_gradients *set, uint32_t b,
                       struct twill_update_segment *segment, uint32_t generation)
{
    const struct twill_update_bucket *bucket = &set->update->bucket[b];
    uint32_t *loaded = &shared_bucket(set, b)->segment[segment - bucket->segment].loaded;
    bool loads = *loaded != set->update->loads;
    if (loads && twill_update_has_master(set, set->bucket[b].type))
        load_master(set, b, segment, generation, false);
    else if (bucket->copies && !twill_update_has_master(set, set->bucket[b].type))
        copy_parameters(
            set, b, (struct twill_bucket_range){segment->shard_first, segment->shard_count}, true);
    *loaded = set->update->loads;
}

void twill_update_load(struct twill_gradients *set)
{
    for (uint32_t b = 0; b < twill_buckets_of_step(set); b++)
        for (uint32_t s = 0; s < set->update->bucket[b].segments; s++)
            load_shard(set, b, &set->update->bucket[b].segment[s], set->late.delivered);
}

void twill_update_load_carried(struct twill_gradients *set)
{
    for (uint32_t b = 0; b < twill_buckets_of_step(set); b++)
        for (uint32_t s = 0; s < set->update->bucket[b].segments; s++) {
            struct twill_update_segment *segment = &set->update->bucket[b].segment[s];
            if (segment->loaded == set->update->loads)
                continue;
            load_master(set, b, segment, set->generations - 1, true);
            segment->loaded = set->update->loads;
        }
}

/* Return the generation (0 or 1) in which the step of bucket b finds the parameters. */
static uint32_t generation_before(const struct twill_gradients *set, uint32_t b)
{
    return set->generations - 1 - set->bucket[b].generation;
}

/* Apply the optimizer to `part` of this rank's shard, for LARS and LAMB with the rate multiplied by
 * `trust`, and return zeros. If `norms`, leave the parameters, and return the squared norms of the
 * part's weights and update, from which `trust` is computed. */
static struct twill_optimizer_norms update_part(const struct twill_update_queue *queue, uint32_t b,
                                                const struct twill_update_segment *segment,
                                                struct twill_bucket_range part, bool norms,
                                                float trust)
{
    struct twill_gradients *set = queue->set;
    const struct twill_update *update = set->update;
    const struct twill_bucket *bucket = &set->bucket[b];
    size_t width = twill_type_size(bucket->type), from = part.first - segment->shard_first;
    float scale = bucket->wire.used ? 1 : update->scale;
    const void *gradient = bucket->memory + part.first * width;
    struct twill_optimizer_step step = {.optimizer = optimizer_of(set, b),
                                        .step = shared_bucket(set, b)->steps + 1,
                                        .gradient_type = bucket->type,
                                        .sources = 1,
                                        .gradient = &gradient,
                                        .scale = scale * queue->clip.factor,
                                        .parameter_type = bucket->type,
                                        .parameter =
                                            update->bucket[b].parameters + part.first * width,
                                        .trust = trust,
                                        .pool = set->process.pool};
    if (segment->master != NULL)
        step.master = segment->master + from;
    if (segment->master != NULL && bucket->type == TWILL_F32) /* in a set of two generations */
        step.parameter = step.master;
    for (unsigned i = 0; i < TWILL_OPTIMIZER_MAX_STATES; i++)
        if (segment->state[i] != NULL)
            step.state[i] = segment->state[i] + from;
    if (norms)
        return twill_optimizer_norms(set->process.kernels, &step, part.count);
    twill_set_record(set, TWILL_TRACE_UPDATE_BEGIN, b, part.count * width);
    twill_optimizer_update(set->process.kernels, &step, part.count);
    if (step.parameter == step.master)
        twill_set_copy(set, update->bucket[b].parameters + part.first * width, step.master,
                       part.count * width);
    twill_set_record(set, TWILL_TRACE_UPDATE_END, b, part.count * width);
    return (struct twill_optimizer_norms){0, 0};
}

/* Set update->norms[i] of bucket b, for each tensor i, to the squared norms of weights and update
 * in this rank's shards. Read the parameters before, if needed. */
static void compute_norms(const struct twill_update_queue *queue, uint32_t b)
{
    struct twill_gradients *set = queue->set;
    const struct twill_bucket *bucket = &set->bucket[b];
    struct twill_update_bucket *update = &set->update->bucket[b];
    memset(update->norms, 0, bucket->tensors * sizeof(*update->norms));
    for (uint32_t s = 0; s < update->segments; s++) {
        struct twill_update_segment *segment = &update->segment[s];
        load_shard(set, b, segment, generation_before(set, b));
        struct twill_bucket_range shard = {segment->shard_first, segment->shard_count};
        for (uint32_t i = 0; i < bucket->tensors; i++) {
            struct twill_bucket_range part = twill_update_range_of_tensor(set, bucket, i, shard);
            if (part.count == 0)
                continue;
            struct twill_optimizer_norms norms = update_part(queue, b, segment, part, true, 0);
            update->norms[i].weights += norms.weights;
            update->norms[i].update += norms.update;
        }
    }
}

/* Update this rank's shard of a segment of bucket b, whose parameters are first read if needed. */
static void update_shard(const struct twill_update_queue *queue, uint32_t b,
                         struct twill_update_segment *segment)
{
    struct twill_gradients *set = queue->set;
    const struct twill_bucket *bucket = &set->bucket[b];
    const struct twill_update_bucket *update = &set->update->bucket[b];
    struct twill_bucket_range shard = {segment->shard_first, segment->shard_count};
    if (update->norms_request == NULL) {
        load_shard(set, b, segment, generation_before(set, b));
        if (shard.count > 0)
            (void)update_part(queue, b, segment, shard, false, 1);
        return;
    }
    for (uint32_t i = 0; i < bucket->tensors; i++) {
        struct twill_bucket_range part = twill_update_range_of_tensor(set, bucket, i, shard);
        float trust = twill_optimizer_trust(optimizer_of(set, b), update->norms[i]);
        if (part.count > 0)
            (void)update_part(queue, b, segment, part, false, trust);
    }
}

/* Return the element with running number `i` in the ring queue->unit. Numbers are counted from the
 * last division of the tensors into buckets. `i` is from queue->oldest to queue->end. */
static struct twill_update_unit *unit_at(const struct twill_update_queue *queue, uint32_t i)
{
    return &queue->unit[i & (queue->units_most - 1)];
}

void twill_update_enqueue(struct twill_update_queue *queue, uint32_t bucket, uint32_t segment)
{
    const struct twill_update_bucket *updated = &queue->set->update->bucket[bucket];
    const struct twill_bucket *reduced = &queue->set->bucket[bucket];
    if (updated->norms_request == NULL && !reduced->wire.used)
        *unit_at(queue, queue->end++) = (struct twill_update_unit){
            .bucket = bucket, .segment = segment, .segments = 1, .reductions = 1};
    else if (segment == reduced->segments - 1)
        *unit_at(queue, queue->end++) = (struct twill_update_unit){
            .bucket = bucket, .segments = updated->segments, .reductions = reduced->segments};
}

bool twill_update_is_busy(const struct twill_update_queue *queue)
{
    return queue != NULL && queue->oldest != queue->end;
}

/* Return the first all-gather of a unit that is not collected. */
static twill_request **first_gather(const struct twill_update *update,
                                    const struct twill_update_unit *unit)
{
    return &update->bucket[unit->bucket].segment[unit->segment + unit->gathered].gather;
}

twill_request *twill_update_gather_awaited(const struct twill_update_queue *queue)
{
    if (queue == NULL || queue->oldest == queue->next)
        return NULL;
    return *first_gather(queue->set->update, unit_at(queue, queue->oldest));
}

twill_request *twill_update_norms_awaited(const struct twill_update_queue *queue)
{
    if (queue != NULL && queue->clip.started)
        return queue->clip.request;
    if (queue == NULL || !queue->norms_started)
        return NULL;
    const struct twill_update_unit *unit = unit_at(queue, queue->next);
    return queue->set->update->bucket[unit->bucket].norms_request;
}

twill_status twill_update_collect(struct twill_update_queue *queue)
{
    while (queue->oldest != queue->next) {
        struct twill_update_unit *unit = unit_at(queue, queue->oldest);
        if (!twill_extend_has_ended(twill_update_gather_awaited(queue), NULL))
            break;
        TWILL_TRY(NULL, twill_set_check(queue->set, queue->comm,
                                        twill_wait(first_gather(queue->set->update, unit))));
        queue->collected++;
        if (++unit->gathered < unit->segments)
            continue;
        twill_bucket_end(queue->set, &queue->set->bucket[unit->bucket], unit->reductions);
        queue->oldest++;
    }
    return TWILL_OK;
}

/* Compute the squared norms of weights and update for each tensor of a LARS or LAMB unit, and sum
 * them over the ranks in bucket->norms. The first call starts the sum, and each later one looks for
 * its end. Returns TWILL_PENDING before, and then TWILL_OK or the error. */
static twill_status exchange_norms(struct twill_update_queue *queue,
                                   const struct twill_update_unit *unit)
{
    struct twill_update_bucket *bucket = &queue->set->update->bucket[unit->bucket];
    twill_status status = TWILL_OK;
    if (!queue->norms_started) {
        compute_norms(queue, unit->bucket);
        status = twill_request_start(bucket->norms_request);
        queue->norms_started = status == TWILL_OK;
    }
    if (status == TWILL_OK) {
        if (!twill_extend_has_ended(bucket->norms_request, NULL))
            return TWILL_PENDING;
        queue->norms_started = false;
        status = twill_wait(&bucket->norms_request);
    }
    return twill_set_check(queue->set, queue->comm, status);
}

/* Update a unit's shards and start gathering the parameters. After the last unit of its bucket,
 * count the bucket's update. Returns TWILL_OK or the error. */
static twill_status update_unit(struct twill_update_queue *queue,
                                const struct twill_update_unit *unit)
{
    struct twill_update_bucket *bucket = &queue->set->update->bucket[unit->bucket];
    for (uint32_t s = unit->segment; s < unit->segment + unit->segments; s++) {
        update_shard(queue, unit->bucket, &bucket->segment[s]);
        TWILL_TRY(NULL, twill_set_check(queue->set, queue->comm,
                                        twill_request_start(bucket->segment[s].gather)));
    }
    if (unit->segment + unit->segments == bucket->segments)
        shared_bucket(queue->set, unit->bucket)->steps++;
    return TWILL_OK;
}

/* Compute the gradients of a unit, once, if codes or factors were exchanged. */
static void decode_unit(struct twill_gradients *set, struct twill_update_unit *unit)
{
    const struct twill_bucket *bucket = &set->bucket[unit->bucket];
    const struct twill_update_segment *segment =
        &set->update->bucket[unit->bucket].segment[unit->segment];
    if (unit->decoded)
        return;
    twill_wire_decode(set, bucket, segment->shard_first, segment->shard_count);
    unit->decoded = true;
}

/* Clipping by the norm of all gradients of a step (Pascanu, Mikolov and Bengio 2013). Each rank
 * adds the squares of its shards as they are reduced, separately for each reducer. The queues of a
 * reducer on all ranks exchange their sums, and each waits for the sums of the other reducers
 * before it updates anything. Sums are added in the order of the reducers, for equal bits. */
#define NORM_EPSILON 1e-6 /* as in torch.nn.utils.clip_grad_norm_ */

/* Decode a unit, if that has not been done, and add the squares of this rank's shards of its
 * gradients to queue->clip.sum. */
static void add_squares(struct twill_update_queue *queue, struct twill_update_unit *unit)
{
    struct twill_gradients *set = queue->set;
    const struct twill_bucket *bucket = &set->bucket[unit->bucket];
    double scale = bucket->wire.used ? 1 : (double)set->update->scale, sum = 0;
    decode_unit(set, unit);
    for (uint32_t s = unit->segment; s < unit->segment + unit->segments; s++) {
        const struct twill_update_segment *segment = &set->update->bucket[unit->bucket].segment[s];
        sum += twill_kernels_sum_of_squares(set->process.kernels, bucket->type,
                                            bucket->memory + segment->shard_first *
                                                                 twill_type_size(bucket->type),
                                            segment->shard_count, set->process.pool);
    }
    queue->clip.sum += sum * scale * scale;
}

/* Sum clip.sum over the ranks and store the result for the set's other queues. Returns
 * TWILL_PENDING, or the error. Call it until it has set clip.published, as it starts the exchange
 * and returns at once while that is under way. */
static twill_status publish_sum(struct twill_update_queue *queue)
{
    struct twill_gradients *set = queue->set;
    struct twill_update_clip *clip = &queue->clip;
    if (!clip->started)
        TWILL_TRY(NULL, twill_set_check(set, queue->comm, twill_request_start(clip->request)));
    clip->started = true;
    if (!twill_extend_has_ended(clip->request, NULL))
        return TWILL_PENDING;
    clip->started = false;
    TWILL_TRY(NULL, twill_set_check(set, queue->comm, twill_wait(&clip->request)));
    set->update->sums[clip->published_steps % 2][queue - set->update->queue] = clip->sum;
    clip->published = true;
    clip->published_steps++;
    /* This order matters, as the other reducers clear `wanted` before they read this. */
    atomic_fetch_add(&set->update->summed, 1);
    return TWILL_PENDING;
}

/* Return the factor, at most 1, that clips a step's gradients to the norm `limit`, from all
 * reducers' sums. Also store the norm in update->norm. `step` is the step's number among those with
 * a norm. */
static float factor_of(struct twill_gradients *set, double limit, uint64_t step)
{
    double sum = 0;
    for (uint32_t l = 0; l < set->update->queues; l++)
        if (set->update->queue[l].of_step > 0)
            sum += set->update->sums[step % 2][l];
    double norm = sqrt(sum), factor = limit / (norm + NORM_EPSILON);
    set->update->norm = norm;
    return factor < 1 || isnan(factor) ? (float)factor : 1;
}

/* Set queue->clip.factor for the gradients of the next unit's step. Returns TWILL_OK once it is
 * set, and an error if the exchange fails. Returns TWILL_PENDING while gradients are missing, here
 * or in another queue, and once when this queue publishes its sum. */
static twill_status advance_clip(struct twill_update_queue *queue)
{
    struct twill_update_clip *clip = &queue->clip;
    struct twill_update *update = queue->set->update;
    if (queue->left == 0) { /* a step begins */
        queue->left = queue->of_step;
        clip->units = 0;
        clip->sum = 0;
        clip->published = false;
        clip->factor = 1;
    }
    double limit = optimizer_of(queue->set, unit_at(queue, queue->next)->bucket)->clip_norm;
    if (!(limit > 0) || queue->left < queue->of_step)
        return TWILL_OK;
    for (; clip->units < queue->of_step && queue->next + clip->units != queue->end; clip->units++)
        add_squares(queue, unit_at(queue, queue->next + clip->units));
    if (clip->units < queue->of_step)
        return TWILL_PENDING;
    if (!clip->published)
        return publish_sum(queue);
    if (atomic_load(&update->summed) < clip->published_steps * update->summing_queues)
        return TWILL_PENDING;
    clip->factor = factor_of(queue->set, limit, clip->published_steps - 1);
    return TWILL_OK;
}

/* Update the next reduced segment or bucket, queue->unit number `next`, which must be queued.
 * Returns TWILL_OK when it is updated and its all-gather has started. Returns TWILL_PENDING if
 * norms are missing for that, or an error. */
static twill_status advance_unit(struct twill_update_queue *queue)
{
    struct twill_update_unit *unit = unit_at(queue, queue->next);
    twill_status status = advance_clip(queue);
    if (status != TWILL_OK)
        return status;
    decode_unit(queue->set, unit);
    if (queue->set->update->bucket[unit->bucket].norms_request != NULL)
        status = exchange_norms(queue, unit);
    if (status != TWILL_OK)
        return status;
    status = update_unit(queue, unit);
    queue->next++;
    queue->left--;
    return status;
}

twill_status twill_update_advance(struct twill_update_queue *queue)
{
    twill_status status = TWILL_OK;
    while (status == TWILL_OK && queue->next != queue->end)
        status = advance_unit(queue);
    return status == TWILL_PENDING ? TWILL_OK : status;
}

void twill_update_end_step(struct twill_gradients *set)
{
    if (set->update != NULL)
        set->update->used[atomic_load(&set->step) % set->generations] = set->update->optimizer;
}
