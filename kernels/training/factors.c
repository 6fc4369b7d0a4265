/* SPDX-License-Identifier: Apache-2.0 */
/* Splits the product of factors over threads. */
#include "kernels/training/factors.h"
#include "kernels/isa.h"
#include "kernels/training/training.h"

#include <stdlib.h>

/* The product that is timed, like the tiles of a large one. */
#define TIMED_ROWS     64u
#define TIMED_COLUMNS  512u
#define TIMED_SAMPLES  16u
#define TIMED_PRODUCTS 3u

/* A call of twill_factors_multiply(), for all of its ranges, on its stack. */
struct factors_job {
    const struct twill_training_kernels *kernels;
    const struct twill_factors *factors;
    void *gradient;
    size_t first;
};

/* Set `count` rows of job->gradient, from row job->first + first on, to the gradient that
 * job->factors give. `data` is the job, a struct factors_job. Threads of twill_factors_multiply()
 * call it, each for other rows. */
static void multiply_rows(const void *data, size_t first, size_t count)
{
    const struct factors_job *job = data;
    unsigned modes = twill_environment_enter(true);
    job->kernels->multiply(job->factors, job->gradient, job->first + first, count);
    twill_environment_leave(modes);
}

void twill_factors_multiply(const struct twill_kernels *kernels,
                            const struct twill_factors *factors, void *gradient, size_t first,
                            size_t count, struct twill_thread_pool *pool)
{
    const struct factors_job job = {kernels->training, factors, gradient, first};
    const size_t row = factors->columns * sizeof(float);
    if (count > 0)
        twill_split_blocks(multiply_rows, &job, count, row, row * factors->parts * factors->samples,
                           pool);
}

uint64_t twill_factors_time(const struct twill_kernels *kernels)
{
    size_t factors = TIMED_SAMPLES * (TIMED_ROWS + TIMED_COLUMNS);
    float *memory = calloc(factors + TIMED_ROWS * TIMED_COLUMNS, sizeof(*memory));
    if (memory == NULL)
        return 0;
    const struct twill_factors job = {.errors = memory,
                                      .activations = memory + TIMED_SAMPLES * TIMED_ROWS,
                                      .parts = 1,
                                      .samples = TIMED_SAMPLES,
                                      .rows = TIMED_ROWS,
                                      .columns = TIMED_COLUMNS,
                                      .scale = 1};
    uint64_t best = UINT64_MAX;
    for (unsigned i = 0; i < TIMED_PRODUCTS; i++) {
        uint64_t from = twill_now();
        twill_factors_multiply(kernels, &job, memory + factors, 0, TIMED_ROWS, NULL);
        best = twill_min(best, twill_now() - from);
    }
    free(memory);
    return twill_max(best, 1) * 1000 * 1000000 / (TIMED_ROWS * TIMED_COLUMNS * TIMED_SAMPLES);
}
