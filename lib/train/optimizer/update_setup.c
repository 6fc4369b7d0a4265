/* SPDX-License-Identifier: Apache-2.0 */
/* Set-up of a sharded update, with its optimizer, memory of parameters and state, and requests. */
#include "lib/train/optimizer/update_internal.h"

#include <stdlib.h>
#include <string.h>

/* Return TWILL_OK if a committed set can take these hyperparameters now. Refuse another rule,
 * another number of states, and a call within a step, with TWILL_ERR_ARGUMENT. */
static twill_status check_change(struct twill_gradients *set, const twill_optimizer *optimizer)
{
    if (set->update == NULL)
        return TWILL_SET_REFUSE(set, "twill_gradients_set_optimizer: the set was committed "
                                     "without an optimizer");
    const twill_optimizer *present = &set->update->optimizer;
    if (optimizer->rule != present->rule)
        return TWILL_SET_REFUSE(set, "the rule is %s since twill_gradients_commit(), not %s",
                                twill_optimizer_name(present->rule),
                                twill_optimizer_name(optimizer->rule));
    if (twill_optimizer_states(optimizer) != twill_optimizer_states(present))
        return TWILL_SET_REFUSE(set, "momentum %g: the set was committed with momentum %g",
                                optimizer->momentum, present->momentum);
    return twill_set_check_between(set, "twill_gradients_set_optimizer");
}

twill_status twill_gradients_set_optimizer(twill_gradients *set, const twill_optimizer *optimizer)
{
    struct twill_error error = {0};
    if (set == NULL)
        return TWILL_ERR_ARGUMENT;
    if (set->broken)
        return TWILL_ERR_BROKEN;
    if (*set->process.fork_guard == 0)
        return TWILL_ERR_FORKED;
    if (optimizer == NULL)
        return TWILL_SET_REFUSE(set, "twill_gradients_set_optimizer: optimizer is NULL");
    if (optimizer->bytes != sizeof(*optimizer))
        return TWILL_SET_REFUSE(set,
                                "optimizer.bytes is %zu, not %zu: "
                                "twill_optimizer_defaults() sets it",
                                optimizer->bytes, sizeof(*optimizer));
    if (twill_optimizer_check(optimizer, &error) != TWILL_OK)
        return TWILL_SET_REFUSE(set, "%s", error.message);
    if (set->committed)
        TWILL_TRY(NULL, check_change(set, optimizer));
    if (set->update == NULL)
        set->update = calloc(1, sizeof(*set->update));
    if (set->update == NULL)
        return TWILL_ERR_MEMORY;
    set->update->optimizer = *optimizer;
    twill_update_end_step(set); /* for the next step, not for a late one under way */
    return TWILL_OK;
}

/* Refuse `call` while a late result is outstanding. Returns TWILL_ERR_ARGUMENT. */
static twill_status refuse_outstanding(struct twill_gradients *set, const char *call)
{
    return TWILL_SET_REFUSE(set,
                            "%s: the result of the last step is outstanding; "
                            "twill_gradients_drain() delivers it",
                            call);
}

twill_status twill_gradients_reload(twill_gradients *set)
{
    if (set == NULL)
        return TWILL_ERR_ARGUMENT;
    if (*set->process.fork_guard == 0)
        return TWILL_ERR_FORKED;
    if (set->update == NULL)
        return TWILL_SET_REFUSE(set, "twill_gradients_reload: the set has no optimizer");
    if (set->late.outstanding)
        return refuse_outstanding(set, "twill_gradients_reload");
    set->update->loads++;
    return TWILL_OK;
}

twill_status twill_update_check_between(struct twill_gradients *set, const char *call)
{
    TWILL_TRY(NULL, twill_set_check_usable(set, call));
    if (set->update == NULL)
        return TWILL_SET_REFUSE(set, "%s: the set has no optimizer", call);
    if (set->late.outstanding)
        return refuse_outstanding(set, call);
    return twill_set_check_between(set, call);
}

void twill_update_note_import(struct twill_gradients *set, uint64_t steps)
{
    struct twill_update *update = set->update;
    for (uint32_t b = 0; b < update->buckets; b++) {
        update->bucket[b].steps = steps;
        for (uint32_t s = 0; s < update->bucket[b].segments; s++)
            update->bucket[b].segment[s].loaded =
                update->loads - (set->bucket[b].type == TWILL_F32); /* without the weights */
    }
}

/* Return whether a[a_bytes] and b[b_bytes] overlap. NULL never does. */
static bool do_overlap(const unsigned char *a, const unsigned char *b, size_t b_bytes,
                       size_t a_bytes)
{
    return a != NULL && b != NULL && a < b + b_bytes && b < a + a_bytes;
}

/* Return TWILL_OK if all parameters have a type with an optimizer and overlap no tensor's gradient
 * or other parameters, else TWILL_ERR_ARGUMENT. */
static twill_status check_parameters(struct twill_gradients *set)
{
    for (uint32_t t = 0; t < set->tensors; t++) {
        const struct twill_train_tensor *tensor = &set->tensor[t];
        const unsigned char *own = tensor->parameters;
        if (tensor->type != TWILL_F32 && tensor->type != TWILL_F16 && tensor->type != TWILL_BF16)
            return TWILL_FAIL(&set->error, TWILL_ERR_ARGUMENT,
                              "tensor '%s': there is no optimizer for %s, only for f32, f16, bf16",
                              tensor->name, twill_type_name(tensor->type));
        for (uint32_t o = 0; own != NULL && o < set->tensors; o++) {
            const struct twill_train_tensor *other = &set->tensor[o];
            if (do_overlap(own, other->own, other->bytes, tensor->bytes) ||
                (o < t && do_overlap(own, other->parameters, other->bytes, tensor->bytes)))
                return TWILL_FAIL(&set->error, TWILL_ERR_ARGUMENT,
                                  "the parameters of tensor '%s' overlap the memory of tensor '%s'",
                                  tensor->name, other->name);
        }
    }
    return TWILL_OK;
}

/* Place the parameters like the gradients, from the last tensor to the first, so that those of a
 * fused bucket have the same distances. Then allocate their memory, zeroed. A tensor that is never
 * fused stays in the caller's memory, if it has any. Returns TWILL_OK or the error. */
static twill_status place_parameters(struct twill_gradients *set)
{
    struct twill_update *update = set->update;
    for (uint32_t i = 0; i < set->tensors; i++) {
        struct twill_train_tensor *tensor = &set->tensor[set->backward[i]];
        tensor->whole = twill_optimizer_takes_norms(update->optimizer.rule);
        tensor->parameter_place = SIZE_MAX;
        if (tensor->place == SIZE_MAX && tensor->parameters != NULL)
            continue;
        tensor->parameter_place = update->arena[tensor->type].bytes;
        update->arena[tensor->type].bytes += twill_round_up(tensor->bytes, TWILL_BUCKET_ALIGN);
    }
    for (int type = 0; type < TWILL_TYPE_COUNT; type++) {
        size_t bytes = update->arena[type].bytes * set->generations;
        void *memory = NULL;
        if (bytes == 0)
            continue;
        TWILL_TRY(&set->error, twill_set_allocate(set, &memory, bytes, "for parameters"));
        update->arena[type].memory = memset(memory, 0, bytes);
    }
    return TWILL_OK;
}

unsigned char *twill_update_arena_place(const struct twill_gradients *set,
                                        const struct twill_train_tensor *tensor,
                                        uint32_t generation)
{
    return set->update->arena[tensor->type].memory +
           generation * set->update->arena[tensor->type].bytes + tensor->parameter_place;
}

unsigned char *twill_update_place(const struct twill_gradients *set, uint32_t tensor,
                                  uint32_t generation)
{
    unsigned char *own = set->tensor[tensor].parameters;
    return own != NULL ? own : twill_update_arena_place(set, &set->tensor[tensor], generation);
}

unsigned char *twill_update_parameters(const struct twill_gradients *set, uint32_t tensor)
{
    return twill_update_place(set, tensor, set->late.delivered);
}

void *twill_gradients_parameters(const twill_gradients *set, int index)
{
    if (set == NULL || index < 0 || (uint32_t)index >= set->tensors || !set->committed ||
        set->update == NULL)
        return NULL;
    return twill_update_parameters(set, (uint32_t)index);
}

twill_status twill_update_make_queues(struct twill_gradients *set, uint32_t queues)
{
    struct twill_update *update = set->update;
    TWILL_NEW(&set->error, update->queue, queues, "reducers");
    for (uint32_t q = 0; q < queues; q++)
        update->queue[q].set = set;
    update->queues = queues;
    return TWILL_OK;
}

twill_status twill_update_open(struct twill_gradients *set)
{
    struct twill_update *update = set->update;
    int size = twill_comm_size(set->parent);
    TWILL_TRY(&set->error, check_parameters(set));
    TWILL_TRY(&set->error, place_parameters(set));
    update->scale = set->options.op == TWILL_AVG ? (float)(1.0 / size) : 1;
    update->loads = 1;
    update->used[0] = update->used[1] = update->optimizer;
    TWILL_NEW(&set->error, update->counts, (size_t)size, "shards");
    for (int i = 0; i < 2; i++)
        TWILL_NEW(&set->error, update->sums[i], update->queues, "norms");
    return TWILL_OK;
}

void twill_update_close(struct twill_gradients *set)
{
    struct twill_update *update = set->update;
    if (update == NULL)
        return;
    free(update->sums[0]);
    free(update->sums[1]);
    for (int type = 0; type < TWILL_TYPE_COUNT; type++)
        (void)twill_free(set->process.context, update->arena[type].memory);
    free(update->counts);
    free(update->queue);
    free(update);
    set->update = NULL;
}

/* Divide `count` elements among the ranks, in update->counts. Returns where this rank's begin. */
static size_t divide_shards(const struct twill_gradients *set, twill_type type, size_t count)
{
    size_t *counts = set->update->counts, ranks = (size_t)twill_comm_size(set->parent), mine = 0,
           first = 0;
    size_t each =
        twill_round_up((count + ranks - 1) / ranks, TWILL_SHARD_ALIGN / twill_type_size(type));
    for (size_t r = 0; r < ranks; r++) {
        if ((int)r == twill_comm_rank(set->parent))
            mine = first;
        counts[r] = twill_min(each, count - first);
        first += counts[r];
    }
    return mine;
}

twill_status twill_update_init_reduction(struct twill_gradients *set, twill_comm *comm,
                                         const struct twill_bucket *bucket, size_t first,
                                         size_t count, twill_request **request)
{
    size_t width = twill_type_size(bucket->type), shard = divide_shards(set, bucket->type, count);
    unsigned char *from = bucket->memory + first * width;
    return twill_reduce_scatterv_init(comm, from, from + shard * width, set->update->counts,
                                      bucket->type, bucket->op, request);
}

/* Return how many f32 values are kept for an element, for the rule and the master weight. */
static size_t states_of(const struct twill_gradients *set, twill_type type)
{
    return twill_optimizer_states(&set->update->optimizer) + twill_update_has_master(set, type);
}

bool twill_update_has_master(const struct twill_gradients *set, twill_type type)
{
    return type != TWILL_F32 || set->generations > 1;
}

/* Return the queue of bucket b's reducer. */
static struct twill_update_queue *queue_of(const struct twill_gradients *set, uint32_t b)
{
    return &set->update->queue[set->bucket[b].reducer];
}

/* Set which elements segment s of bucket b has, and which of them are this rank's shard. Prepare
 * segment->gather, the all-gather of the updated parameters. Also count the bytes of state.
 * Collective. Returns TWILL_OK or the error. */
static twill_status prepare_segment(struct twill_gradients *set, uint32_t b, uint32_t s)
{
    struct twill_update *update = set->update;
    const struct twill_bucket *bucket = &set->bucket[b];
    struct twill_update_segment *segment = &update->bucket[b].segment[s];
    struct twill_comm *comm = queue_of(set, b)->comm;
    size_t width = twill_type_size(bucket->type),
           most = bucket->wire.used ? bucket->count : twill_wire_segment(set, bucket);
    segment->first = s * most;
    segment->count = twill_min(most, bucket->count - segment->first);
    size_t shard = divide_shards(set, bucket->type, segment->count);
    segment->shard_first = segment->first + shard;
    segment->shard_count = update->counts[twill_comm_rank(set->parent)];
    if (bucket->generation == 0)
        update->state_bytes +=
            twill_round_up(segment->shard_count * sizeof(float), 64) * states_of(set, bucket->type);
    unsigned char *to = update->bucket[b].parameters + segment->first * width;
    return twill_set_check(set, comm,
                           twill_allgatherv_init(comm, to + shard * width, to, update->counts, NULL,
                                                 bucket->type, &segment->gather));
}

/* Set where a bucket's parameters lie, and prepare its segments and, for LARS and LAMB, the sum of
 * its norms. Count its units in its reducer's queue. Collective. Returns TWILL_OK or the error. */
static twill_status prepare_bucket(struct twill_gradients *set, uint32_t b)
{
    struct twill_update *update = set->update;
    const struct twill_bucket *bucket = &set->bucket[b];
    struct twill_update_bucket *made = &update->bucket[b];
    const struct twill_train_tensor *first = twill_bucket_tensor(set, bucket, 0);
    bool in_place = bucket->tensors == 1 && first->parameters != NULL && set->generations == 1;
    for (uint32_t i = 0; !in_place && i < bucket->tensors; i++)
        made->copies |= twill_bucket_tensor(set, bucket, i)->parameters != NULL;
    made->parameters =
        in_place ? first->parameters : twill_update_arena_place(set, first, bucket->generation);
    made->parameters += bucket->from * twill_type_size(bucket->type);
    made->segments = bucket->wire.used ? 1 : bucket->segments;
    TWILL_NEW(&set->error, made->segment, made->segments, "segments");
    TWILL_NEW(&set->error, made->norms, bucket->tensors, "norms");
    for (uint32_t s = 0; s < made->segments; s++)
        TWILL_TRY(&set->error, prepare_segment(set, b, s));
    struct twill_update_queue *queue = queue_of(set, b);
    bool takes_norms = twill_optimizer_takes_norms(update->optimizer.rule);
    queue->units_most += made->segments;
    if (bucket->generation == 0)
        queue->of_step += takes_norms || bucket->wire.used ? 1 : made->segments;
    if (!takes_norms)
        return TWILL_OK;
    return twill_set_check(set, queue->comm,
                           twill_allreduce_init(queue->comm, made->norms, made->norms,
                                                2 * (size_t)bucket->tensors, TWILL_F64, TWILL_SUM,
                                                &made->norms_request));
}

/* Make the second generation of buckets use the state of the first. */
static void use_state_twice(struct twill_gradients *set)
{
    uint32_t n = twill_buckets_of_step(set);
    for (uint32_t b = n; b < set->buckets; b++)
        for (uint32_t s = 0; s < set->update->bucket[b].segments; s++) {
            const struct twill_update_segment *from = &set->update->bucket[b - n].segment[s];
            struct twill_update_segment *to = &set->update->bucket[b].segment[s];
            memcpy((void *)to->state, (const void *)from->state, sizeof(to->state));
            to->master = from->master;
        }
}

/* Allocate the state of all shards, all zero, and divide it among the segments. The second
 * generation shares that of the first. Returns TWILL_OK or the error. */
static twill_status place_state(struct twill_gradients *set)
{
    struct twill_update *update = set->update;
    unsigned states = twill_optimizer_states(&update->optimizer);
    if (update->state_bytes == 0)
        return TWILL_OK;
    float *next = aligned_alloc(64, update->state_bytes);
    if (next == NULL)
        return TWILL_FAIL(&set->error, TWILL_ERR_MEMORY, "out of memory for %zu bytes of state",
                          update->state_bytes);
    update->state = memset(next, 0, update->state_bytes);
    for (uint32_t b = 0; b < twill_buckets_of_step(set); b++)
        for (uint32_t s = 0; s < update->bucket[b].segments; s++) {
            struct twill_update_segment *segment = &update->bucket[b].segment[s];
            size_t floats =
                twill_round_up(segment->shard_count * sizeof(float), 64) / sizeof(float);
            for (unsigned i = 0; i < states; i++, next += floats)
                segment->state[i] = next;
            if (!twill_update_has_master(set, set->bucket[b].type))
                continue;
            segment->master = next;
            next += floats;
        }
    use_state_twice(set);
    return TWILL_OK;
}

/* Allocate the ring queue->unit, for the units that its buckets have counted in units_most, and
 * prepare its sum for clipping (clip.request). Collective. Returns TWILL_OK or the error. */
static twill_status prepare_queue(struct twill_update_queue *queue)
{
    uint32_t held = 1;
    while (held < queue->units_most)
        held *= 2;
    queue->units_most = held;
    TWILL_NEW(&queue->set->error, queue->unit, queue->units_most, "segments");
    queue->set->update->summing_queues += queue->of_step > 0;
    struct twill_update_clip *clip = &queue->clip;
    *clip = (struct twill_update_clip){.factor = 1};
    return twill_set_check(queue->set, queue->comm,
                           twill_allreduce_init(queue->comm, &clip->sum, &clip->sum, 1, TWILL_F64,
                                                TWILL_SUM, &clip->request));
}

twill_status twill_update_prepare(struct twill_gradients *set)
{
    struct twill_update *update = set->update;
    TWILL_NEW(&set->error, update->bucket, set->buckets, "buckets");
    update->buckets = set->buckets;
    for (uint32_t b = 0; b < set->buckets; b++)
        TWILL_TRY(&set->error, prepare_bucket(set, b));
    for (uint32_t q = 0; q < update->queues; q++)
        TWILL_TRY(&set->error, prepare_queue(&update->queue[q]));
    return place_state(set);
}

void twill_update_unprepare(struct twill_gradients *set)
{
    struct twill_update *update = set->update;
    for (uint32_t b = 0; b < update->buckets; b++) {
        struct twill_update_bucket *bucket = &update->bucket[b];
        for (uint32_t s = 0; bucket->segment != NULL && s < bucket->segments; s++)
            (void)twill_request_free(&bucket->segment[s].gather);
        (void)twill_request_free(&bucket->norms_request);
        free(bucket->segment);
        free(bucket->norms);
    }
    for (uint32_t q = 0; q < update->queues; q++) {
        struct twill_update_queue *queue = &update->queue[q];
        (void)twill_request_free(&queue->clip.request);
        free(queue->unit);
        /* Keep the communicator, whose counters another thread may be reading. */
        const size_t after = offsetof(struct twill_update_queue, unit);
        memset((unsigned char *)queue + after, 0, sizeof(*queue) - after);
    }
    free(update->bucket);
    free(update->state);
    update->bucket = NULL;
    update->state = NULL;
    update->buckets = update->summing_queues = 0;
    update->state_bytes = 0;
    atomic_store(&update->summed, 0);
}
