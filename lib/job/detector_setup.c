/* SPDX-License-Identifier: Apache-2.0 */
/* A context's failure detector, from the first record of set-up to the last: fabric/detector. */
#include "fabric/bootstrap/oob_batch.h"
#include "fabric/detector/detector.h"
#include "lib/job/job_internal.h"

#include <sys/resource.h>

#define MOST_HOSTS ((size_t)512) /* connections of the failure detector to other hosts */

/* Connections between hosts take at most a quarter of this process's descriptors. */
twill_status twill_context_offer_detector(struct twill_context *context,
                                          struct twill_oob_batch *batch)
{
    struct rlimit files;
    size_t most = MOST_HOSTS;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        most = twill_min(most, (size_t)files.rlim_cur / 4);
    return twill_detector_offer(&context->health.detector, context->job.oob, most, batch,
                                &context->error);
}

twill_status twill_context_connect_detector(struct twill_context *context,
                                            struct twill_oob_batch *batch)
{
    const struct twill_world *world = &context->job.world;
    if (world->nodes == 1)
        return TWILL_OK;
    return twill_detector_connect(context->health.detector, context->job.oob, world->node,
                                  context->job.threads, batch, &context->error);
}

twill_status twill_context_reopen_detector(struct twill_context *context)
{
    struct twill_oob_batch batch = {.oob = context->job.oob};
    twill_detector_close(context->health.detector);
    twill_status status = twill_context_offer_detector(context, &batch);
    TWILL_TRY(&context->error, twill_oob_batch_exchange(&batch, status, &context->error));
    status = twill_context_connect_detector(context, &batch);
    return twill_oob_batch_exchange(&batch, status, &context->error);
}

twill_status twill_context_conclude_detector(struct twill_context *context)
{
    struct twill_detector *detector = context->health.detector;
    char text[320];
    if (context->job.world.nodes == 1) {
        twill_detector_conclude_alone(detector);
        return TWILL_OK;
    }
    TWILL_TRY(&context->error, twill_detector_conclude(detector, &context->error));
    size_t missing = twill_detector_describe(detector, text, sizeof(text));
    twill_context_note(context, "failure detector: %s", text);
    if (missing > 0)
        twill_say(&context->log, TWILL_LOG_WARN,
                  "failure detector: %s: if a host that is not connected vanishes, that is "
                  "noticed only after TWILL_TIMEOUT",
                  text);
    return TWILL_OK;
}
