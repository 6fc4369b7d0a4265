/* SPDX-License-Identifier: Apache-2.0 */
/* Splits the product of factors over threads. */
#include "kernels/training/factors.h"
#include "kernels/environment.h"
#include "kernels/thread_split.h"
#include "kernels/training/training.h"

struct factors_job {
    const struct twill_training_kernels *kernels;
    const struct twill_factors *factors;
    void *gradient;
    size_t first;
};

static void multiply_rows(const void *data, size_t first, size_t count)
{
    const struct factors_job *job = data;
    unsigned modes = twill_environment_enter(true);
    job->kernels->multiply(job->factors, job->gradient, job->first + first, count);
    twill_environment_leave(modes);
}

void twill_factors_multiply(const struct twill_kernels *kernels,
                            const struct twill_factors *factors, void *gradient, size_t first,
                            size_t count, int threads)
{
    const struct factors_job job = {kernels->training, factors, gradient, first};
    if (count > 0)
        twill_split_blocks(multiply_rows, &job, count, factors->columns * sizeof(float), threads);
}
