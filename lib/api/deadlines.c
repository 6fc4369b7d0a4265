/* SPDX-License-Identifier: Apache-2.0 */
/* Public calls for deadlines, except twill_request_set_timeout(), which is in requests.c. */
#include "fabric/detector/detector.h"
#include "lib/api/api_internal.h"
#include "lib/base/times.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/twill_recover.h"

twill_status twill_comm_check_timeout(struct twill_comm *comm, double seconds)
{
    if (seconds == 0 ||
        (seconds >= TWILL_TIMEOUT_LEAST_SECONDS && seconds <= TWILL_TIMEOUT_MOST_SECONDS))
        return TWILL_OK;
    return TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT,
                             "a timeout of %g seconds is neither 0 nor between %g and %g", seconds,
                             TWILL_TIMEOUT_LEAST_SECONDS, TWILL_TIMEOUT_MOST_SECONDS);
}

twill_status twill_comm_set_timeout(twill_comm *comm, double seconds)
{
    TWILL_TRY(NULL, twill_comm_acquire(comm, "twill_comm_set_timeout"));
    twill_status status = twill_comm_check_timeout(comm, seconds);
    if (status == TWILL_OK)
        comm->tuning.timeout_ns =
            seconds > 0 ? (uint64_t)(seconds * 1e9)
                        : (uint64_t)comm->context->config->number[TWILL_VARIABLE_TIMEOUT];
    twill_comm_release(comm);
    return status;
}

twill_status twill_comm_bounds(const twill_comm *comm, twill_bounds *bounds)
{
    if (!twill_comm_is_live(comm) || bounds == NULL)
        return TWILL_ERR_ARGUMENT;
    bool hosts = comm->context->job.world.nodes > 1;
    /* an error has to reach the ranks of all nodes */
    double explain = hosts ? (double)(TWILL_EXPLAIN_NS + TWILL_FAILURE_NOTIFY_NS) * 1e-9 : 0;
    bounds->silent = (double)(twill_silence_bound_ns(comm) + TWILL_AGREE_TICK_MOST_NS) * 1e-9;
    bounds->death = (double)twill_death_bound_ns() * 1e-9 + explain;
    bounds->host = hosts ? (double)twill_host_bound_ns() * 1e-9 + explain : 0;
    bounds->agree = (double)twill_agree_bound_ns(comm) * 1e-9;
    bounds->meet = (double)twill_rendezvous_bound_ns(comm) * 1e-9;
    bounds->grow = (double)twill_growth_bound_ns(comm) * 1e-9 + bounds->silent;
    return TWILL_OK;
}
