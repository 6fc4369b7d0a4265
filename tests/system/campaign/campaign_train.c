/* SPDX-License-Identifier: Apache-2.0 */
/* A campaign's gradient set: one step, whose sums, or parameters that an optimizer has made of
 * them, are checked. */
#include "tests/system/campaign/campaign.h"

#include <stdio.h>
#include <string.h>

#define TENSORS 6
#define RATE    0.5 /* sums of small integers stay exact */

static size_t elements_of(const struct campaign_trial *trial, int tensor)
{
    static const size_t counts[] = {1, 10, 333, 4096, 20000, 70000};
    return counts[(trial->seed + (uint64_t)tensor * 5) % 6];
}

/* Element i of rank r's gradient. */
static float gradient(uint64_t step, int r, size_t i)
{
    return (float)((uint64_t)(r + 1) * (1 + (i + step) % 5));
}

static twill_status make_set(twill_gradients **set, twill_comm *comm,
                             const struct campaign_trial *trial)
{
    twill_gradients_options options;
    twill_optimizer optimizer;
    twill_gradients_defaults(&options);
    twill_optimizer_defaults(&optimizer, TWILL_OPTIMIZER_SGD);
    options.op = TWILL_SUM;
    options.threads = trial->threads;
    options.bucket_bytes = 64u << 10;
    options.first_bucket_bytes = 8u << 10;
    options.segment_bytes = 16u << 10;
    options.order = trial->seed % 3 == 0 ? TWILL_BUCKETS_BY_PRIORITY : TWILL_BUCKETS_BACKWARD;
    optimizer.rate = RATE;
    twill_status status = twill_gradients_create(set, comm, &options);
    for (int t = 0; t < TENSORS && status == TWILL_OK; t++) {
        char name[16];
        snprintf(name, sizeof(name), "layer%d", t);
        const twill_tensor tensor = {
            .name = name, .count = elements_of(trial, t), .type = TWILL_F32, .priority = t};
        status = twill_gradients_add(*set, &tensor, NULL);
    }
    if (status == TWILL_OK && trial->optimizer)
        status = twill_gradients_set_optimizer(*set, &optimizer);
    return status == TWILL_OK ? twill_gradients_commit(*set) : status;
}

/* Fill and mark the tensors as a backward pass does, last first. */
static twill_status mark_all(twill_gradients *set, const struct campaign_trial *trial, int rank,
                             uint64_t step)
{
    twill_status status = TWILL_OK;
    for (int t = TENSORS - 1; t >= 0 && status == TWILL_OK; t--) {
        float *memory = twill_gradients_memory(set, t), *weights;
        for (size_t i = 0; i < elements_of(trial, t); i++)
            memory[i] = gradient(step, rank, i);
        weights = trial->optimizer ? twill_gradients_parameters(set, t) : NULL;
        if (weights != NULL)
            memset(weights, 0, elements_of(trial, t) * sizeof(*weights));
        status = twill_gradients_ready(set, t);
    }
    return status;
}

static size_t count_wrong(const twill_gradients *set, const struct campaign_trial *trial, int size,
                          uint64_t step)
{
    size_t wrong = 0;
    for (int t = 0; t < TENSORS; t++) {
        const float *result =
            trial->optimizer ? twill_gradients_parameters(set, t) : twill_gradients_result(set, t);
        for (size_t i = 0; i < elements_of(trial, t); i++) {
            float expected = 0;
            for (int r = 0; r < size; r++)
                expected += gradient(step, r, i);
            wrong += result[i] != (trial->optimizer ? (float)-RATE * expected : expected);
        }
    }
    return wrong;
}

twill_status campaign_train(twill_gradients **set, twill_comm *comm,
                            const struct campaign_trial *trial, uint64_t step, atomic_ulong *wrong)
{
    int rank = twill_comm_rank(comm), size = twill_comm_size(comm);
    twill_status status = *set == NULL ? make_set(set, comm, trial) : TWILL_OK;
    if (status == TWILL_OK)
        status = mark_all(*set, trial, rank, step);
    if (status == TWILL_OK)
        status = twill_gradients_wait_all(*set);
    if (status == TWILL_OK)
        atomic_fetch_add(wrong, count_wrong(*set, trial, size, step));
    return status;
}
