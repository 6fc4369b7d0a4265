/* SPDX-License-Identifier: Apache-2.0 */
/* Clipping by the norm of all gradients of a step (Pascanu, Mikolov and Bengio 2013): each rank
 * adds the squares of its shards, as they are reduced, a reducer at a time; their queues exchange
 * their sums, and each waits for those of the others before it updates anything. Sums are added in
 * the order of the reducers, so all have the same bits. */
#include "lib/train/optimizer/update_internal.h"

#include <math.h>
#include <stdlib.h>

#define NORM_EPSILON 1e-6 /* that of torch.nn.utils.clip_grad_norm_ */

twill_status twill_clip_open(struct twill_gradients *set)
{
    struct twill_update *update = set->update;
    for (int i = 0; i < 2; i++)
        TWILL_NEW(&set->error, update->sums[i], update->queues, "norms");
    return TWILL_OK;
}

void twill_clip_close(struct twill_gradients *set)
{
    free(set->update->sums[0]);
    free(set->update->sums[1]);
}

twill_status twill_clip_prepare(struct twill_update_queue *queue)
{
    struct twill_update_clip *clip = &queue->clip;
    *clip = (struct twill_update_clip){.factor = 1};
    return twill_set_check(queue->set, queue->comm,
                           twill_allreduce_init(queue->comm, &clip->sum, &clip->sum, 1, TWILL_F64,
                                                TWILL_SUM, &clip->request));
}

void twill_clip_unprepare(struct twill_update_queue *queue)
{
    (void)twill_request_free(&queue->clip.request);
}

/* Add the squares of what this rank has of a unit. */
static void add_squares(struct twill_update_queue *queue, struct twill_update_unit *unit)
{
    struct twill_gradients *set = queue->set;
    const struct twill_bucket *bucket = &set->bucket[unit->bucket];
    double scale = bucket->wire.used ? 1 : (double)set->update->scale, sum = 0;
    twill_update_decode(set, unit);
    for (uint32_t s = unit->segment; s < unit->segment + unit->segments; s++) {
        const struct twill_update_segment *segment = &set->update->bucket[unit->bucket].segment[s];
        sum += twill_kernels_sum_of_squares(set->process.kernels, bucket->type,
                                            bucket->memory + segment->shard_first *
                                                                 twill_type_size(bucket->type),
                                            segment->shard_count, set->process.threads);
    }
    queue->clip.sum += sum * scale * scale;
}

/* Exchange the sum of this queue, and publish it for the others. Returns TWILL_PENDING until then,
 * and when it is done. */
static twill_status publish_sum(struct twill_update_queue *queue)
{
    struct twill_gradients *set = queue->set;
    struct twill_update_clip *clip = &queue->clip;
    if (!clip->started)
        TWILL_TRY(NULL, twill_set_check(set, queue->comm, twill_request_start(clip->request)));
    clip->started = true;
    if (!twill_extend_has_ended(clip->request))
        return TWILL_PENDING;
    clip->started = false;
    TWILL_TRY(NULL, twill_set_check(set, queue->comm, twill_wait(&clip->request)));
    set->update->sums[clip->published_steps % 2][queue - set->update->queue] = clip->sum;
    clip->published = true;
    clip->published_steps++;
    /* In one order with `wanted` of the others' reducers, which they clear before they read this.
     */
    atomic_fetch_add(&set->update->summed, 1);
    return TWILL_PENDING;
}

/* Compute the factor of a step from the sums of all reducers. */
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

twill_status twill_clip_advance(struct twill_update_queue *queue)
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
    double limit =
        twill_update_optimizer(queue->set, twill_update_unit_at(queue, queue->next)->bucket)
            ->clip_norm;
    if (!(limit > 0) || queue->left < queue->of_step)
        return TWILL_OK;
    for (; clip->units < queue->of_step && queue->next + clip->units != queue->end; clip->units++)
        add_squares(queue, twill_update_unit_at(queue, queue->next + clip->units));
    if (clip->units < queue->of_step)
        return TWILL_PENDING;
    if (!clip->published)
        return publish_sum(queue);
    if (atomic_load(&update->summed) < clip->published_steps * update->summing_queues)
        return TWILL_PENDING;
    clip->factor = factor_of(queue->set, limit, clip->published_steps - 1);
    return TWILL_OK;
}
