/* SPDX-License-Identifier: Apache-2.0 */
/* Public calls for recovery, growth, stopping and deadlines (twill_recover.h), except
 * twill_comm_revoke(), which is in lib/comm/claim.c, twill_comm_join(), which is in lib/api/init.c,
 * twill_request_set_timeout(), in lib/api/requests.c, and twill_stop(), in lib/api/stop.c. */
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/detector/detector.h"
#include "fabric/shm/node_memory.h"
#include "lib/api/api_internal.h"
#include "lib/api/stop.h"
#include "lib/base/times.h"
#include "lib/comm/recovery.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/twill_recover.h"

#include <string.h>

_Static_assert(TWILL_HANDLE_BYTES >= TWILL_JOIN_HANDLE_TEXT, "a handle fits");

/* Store the error if `status` is one, and release the communicator. Returns `status`. */
static twill_status end_agreement(struct twill_comm *comm, twill_status status,
                                  const struct twill_error *error)
{
    (void)twill_recovery_conclude(comm, status, error);
    twill_comm_release(comm);
    return status;
}

/* Hold a communicator for the public function `call`, which stores its result at `result`. It may
 * be broken, but may have no pending request. On an error it is released. Returns the status. */
static twill_status begin_agreement(struct twill_comm *comm, const void *result, const char *call)
{
    TWILL_TRY(NULL, twill_comm_acquire(comm, call));
    twill_status status = TWILL_OK;
    struct twill_error error = {0};
    if (result == NULL)
        status = TWILL_FAIL(&error, TWILL_ERR_ARGUMENT, "the result's address is NULL");
    else if (atomic_load_explicit(&comm->pending, memory_order_acquire) > 0)
        status =
            TWILL_FAIL(&error, TWILL_ERR_ARGUMENT, "a request on the communicator is under way");
    return status == TWILL_OK ? status : end_agreement(comm, status, &error);
}

twill_status twill_comm_agree(twill_comm *comm, uint64_t *flags)
{
    TWILL_TRY(NULL, begin_agreement(comm, flags, "twill_comm_agree"));
    const struct twill_decision *decision;
    struct twill_error error = {0};
    twill_status status = twill_agree(comm, TWILL_AGREEING_ONLY, *flags, 0, &decision, &error);
    if (status == TWILL_OK && !twill_agreeing_alike(decision, TWILL_AGREEING_ONLY))
        status = TWILL_FAIL(&error, TWILL_ERR_MISMATCH,
                            "another rank makes a different call, such as twill_comm_shrink()");
    if (status == TWILL_OK)
        *flags = decision->flags;
    return end_agreement(comm, status, &error);
}

twill_status twill_comm_shrink(twill_comm **smaller, twill_comm *comm)
{
    if (smaller != NULL)
        *smaller = NULL;
    TWILL_TRY(NULL, begin_agreement(comm, smaller, "twill_comm_shrink"));
    struct twill_error error = {0};
    return end_agreement(comm, twill_shrink(smaller, comm, &error), &error);
}

twill_status twill_comm_handle(twill_comm *comm, int joining, char *handle)
{
    TWILL_TRY(NULL, begin_agreement(comm, handle, "twill_comm_handle"));
    twill_status status;
    struct twill_error error = {0};
    uint32_t size = comm->world->size;
    if (comm->rank != 0)
        status = TWILL_FAIL(&error, TWILL_ERR_ARGUMENT, "only rank 0 makes handles");
    else if (joining < 1 || (uint32_t)joining > TWILL_WORLD_MAX_RANKS - size)
        status = TWILL_FAIL(&error, TWILL_ERR_ARGUMENT, "joining = %d is outside 1 .. %u", joining,
                            TWILL_WORLD_MAX_RANKS - size);
    else
        status = twill_growth_open(comm, (uint32_t)joining, handle, &error);
    return end_agreement(comm, status, &error);
}

twill_status twill_comm_grow(twill_comm **larger, twill_comm *comm)
{
    if (larger != NULL)
        *larger = NULL;
    TWILL_TRY(NULL, begin_agreement(comm, larger, "twill_comm_grow"));
    struct twill_error error = {0};
    twill_status status =
        comm->broken ? TWILL_FAIL(&error, TWILL_ERR_BROKEN,
                                  "the communicator is broken: call twill_comm_shrink() first")
                     : twill_grow(larger, comm, NULL, &error);
    return end_agreement(comm, status, &error);
}

twill_status twill_comm_admit(twill_comm **larger, twill_comm *comm)
{
    if (larger != NULL)
        *larger = NULL;
    TWILL_TRY(NULL, begin_agreement(comm, larger, "twill_comm_admit"));
    return twill_elastic_admit(larger, comm);
}

int twill_comm_epoch(const twill_comm *comm)
{
    return twill_comm_is_live(comm) ? (int)comm->context->job.oob->epoch : -1;
}

twill_status twill_comm_outcome(const twill_comm *comm, twill_outcome *outcome)
{
    if (!twill_comm_is_live(comm) || outcome == NULL)
        return TWILL_ERR_ARGUMENT;
    const struct twill_decision *decision = twill_agree_last(comm);
    if (decision == NULL)
        return TWILL_ERR_ARGUMENT;
    *outcome = (twill_outcome){.complete = decision->least, .complete_some = decision->most};
    for (uint32_t r = 0; r < comm->world->size; r++)
        outcome->failed += twill_rank_set_has(decision->set, r);
    outcome->survivors = (int)comm->world->size - outcome->failed;
    return TWILL_OK;
}

int twill_comm_failed_rank(const twill_comm *comm, int index)
{
    const struct twill_decision *decision =
        twill_comm_is_live(comm) && index >= 0 ? twill_agree_last(comm) : NULL;
    for (uint32_t r = 0; decision != NULL && r < comm->world->size; r++)
        if (twill_rank_set_has(decision->set, r) && index-- == 0)
            return (int)r;
    return -1;
}

/* --- deadlines -------------------------------------------------------------------------------- */

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

/* --- stopping together -----------------------------------------------------------------------
 * A rank that wishes to stop writes the number of its next call to the memory of its node. Messages
 * between nodes carry the wish (struct twill_last_entry). So it reaches all ranks no later than the
 * first call from that number on that depends on data of each rank. All ranks find the same call,
 * as they make the same calls, although they may hear of the wish under different numbers. */

/* Return the number of the last call such that the program knows of the end of it and of all before
 * it. That depends on its waits only, not on the progress of requests. */
static uint64_t last_known_end(const struct twill_engine *engine)
{
    uint64_t last = engine->issue.started;
    unsigned from = engine->issue.unused;
    for (struct twill_request_slab *slab = engine->issue.slab; slab != NULL; slab = slab->next) {
        for (unsigned i = from; i < TWILL_SLAB_REQUESTS; i++) {
            const struct twill_request *request = twill_slab_request(slab, i);
            bool runs =
                request->handle.given != NULL && !request->is_point &&
                atomic_load_explicit(&request->state, memory_order_acquire) != TWILL_REQUEST_IDLE;
            if (runs)
                last = twill_min(last, request->sequence - 1);
        }
        from = 0;
    }
    return last;
}

/* Return the number of the first call from number `from` on that joins all ranks and has ended, or
 * 0. Looks at the last TWILL_ENDS_KEPT calls. */
static uint64_t first_joining(const struct twill_engine *engine, uint64_t from)
{
    uint64_t last = last_known_end(engine), started = engine->issue.started;
    for (uint64_t i = twill_max(from, started - twill_min(started, TWILL_ENDS_KEPT - 1)); i <= last;
         i++)
        if (engine->issue.joined[i % TWILL_ENDS_KEPT])
            return i;
    return 0;
}

twill_status twill_comm_stop_requested(twill_comm *comm, uint64_t *after)
{
    if (after != NULL)
        *after = 0;
    twill_status status = twill_comm_acquire(comm, __func__);
    if (status != TWILL_OK)
        return status;
    status = twill_comm_usable(comm);
    if (status == TWILL_OK && after == NULL)
        status = TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT, "after is NULL");
    if (status == TWILL_OK) {
        struct twill_news_words *news = twill_node_news(comm->node);
        if (twill_wishes_to_stop())
            (void)twill_news_tell(news, TWILL_NEWS_STOP, comm->issue.started + 1);
        uint64_t from = twill_news_told(news, TWILL_NEWS_STOP);
        if (comm->stop == 0 && from != 0)
            comm->stop = first_joining(&comm->engine, from);
        *after = comm->stop;
    }
    twill_comm_release(comm);
    return status;
}
