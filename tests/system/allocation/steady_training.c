/* SPDX-License-Identifier: Apache-2.0 */
/* Run steps of gradient sets while the interposer counts, which must find no allocation of ours
 * after the commit: with an optimizer and a dense layer, and one step late. */
#include "interposer.h"

#include <dlfcn.h>
#include <stdio.h>
#include <twill_train.h>

#define TENSORS 6
#define ROWS    30
#define COLUMNS 70
#define STEPS   5

static twill_status fill_set(twill_gradients *set, const twill_optimizer *optimizer)
{
    const twill_tensor dense = {.name = "dense", .count = ROWS * COLUMNS, .type = TWILL_F32};
    twill_status status = twill_gradients_add_dense(set, &dense, ROWS, COLUMNS, 2, NULL);
    for (int t = 1; status == TWILL_OK && t < TENSORS; t++) {
        char name[2] = {(char)('a' + t), '\0'};
        const twill_tensor tensor = {.name = name, .count = 3000, .type = TWILL_F32};
        status = twill_gradients_add(set, &tensor, NULL);
    }
    if (status == TWILL_OK && optimizer != NULL)
        status = twill_gradients_set_optimizer(set, optimizer);
    return status == TWILL_OK ? twill_gradients_commit(set) : status;
}

static twill_status run_step(twill_gradients *set)
{
    static const float factors[2 * COLUMNS];
    twill_status status = TWILL_OK;
    for (int t = TENSORS; t-- > 1 && status == TWILL_OK;)
        status = twill_gradients_ready(set, t);
    if (status == TWILL_OK)
        status = twill_gradients_ready_factors(set, 0, factors, factors, 2);
    return status == TWILL_OK ? twill_gradients_wait_all(set) : status;
}

/* Returns the number of allocations of a set's steps, or -1 after a failure. */
static long count_steps(twill_comm *comm, int late, const twill_optimizer *optimizer)
{
    allocation_begin_fn *begin = (allocation_begin_fn *)dlsym(RTLD_DEFAULT, "allocation_begin");
    allocation_end_fn *end = (allocation_end_fn *)dlsym(RTLD_DEFAULT, "allocation_end");
    struct allocation_count count = {0};
    twill_gradients_options options;
    twill_gradients *set;
    twill_gradients_defaults(&options);
    options.bucket_bytes = 25000;
    options.factors = TWILL_FACTORS_GATHERED;
    options.late = late;
    if (begin == NULL || end == NULL || twill_gradients_create(&set, comm, &options) != TWILL_OK)
        return -1;
    twill_status status = fill_set(set, optimizer);
    begin();
    for (int step = 0; status == TWILL_OK && step < STEPS; step++)
        status = run_step(set);
    end(&count);
    if (status != TWILL_OK)
        fprintf(stderr, "steady_training: %s\n", twill_gradients_message(set));
    if (count.ours > 0)
        printf("steady_training: the first by %s\n", count.first);
    twill_gradients_destroy(set);
    return status == TWILL_OK ? (long)count.ours : -1;
}

int main(void)
{
    twill_comm *comm;
    twill_optimizer lamb;
    twill_optimizer_defaults(&lamb, TWILL_OPTIMIZER_LAMB);
    if (twill_init(&comm) != TWILL_OK)
        return 2;
    long updating = count_steps(comm, 0, &lamb), late = count_steps(comm, 1, NULL);
    printf("steady_training: %ld allocations with an optimizer, %ld late\n", updating, late);
    twill_finalize(comm);
    return updating == 0 && late == 0 ? 0 : 1;
}
