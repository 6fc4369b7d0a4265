/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the pool of threads that share the work of a rank's kernels. */
#include "kernels/thread_pool.h"
#include "lib/job/config.h"
#include "lib/job/job_internal.h"

twill_status twill_context_open_threads(struct twill_context *context)
{
    const struct twill_thread_pool_options options = {
        .threads = (unsigned)context->config->number[TWILL_VARIABLE_THREADS],
        .shared = context->job.crowded};
    return twill_thread_pool_open(&context->machine.pool, &options, &context->error);
}
