/* SPDX-License-Identifier: Apache-2.0 */
/* Calls in the log. */
#include "lib/engine/log_calls.h"
#include "algorithms/select/explain.h"
#include "lib/engine/plan.h"

#include <stdio.h>

void twill_log_choice_once(struct twill_comm *comm, const struct twill_select_request *request,
                           const struct twill_choice *choice)
{
    char why[400];
    struct twill_plan *plan = comm->plan_cache.plans;
    unsigned class = request->bytes > 0 ? 64u - (unsigned)__builtin_clzll(request->bytes) : 0;
    uint64_t bit = UINT64_C(1) << twill_min(class, 63);
    while (plan != NULL && plan != comm->plan_cache.last)
        plan = plan->next;
    if (plan == NULL || (plan->logged & bit) != 0)
        return;
    plan->logged |= bit;
    twill_why_choice(why, sizeof(why), comm->plan_cache.chooser, comm->world,
                     comm->context->selection.tuning, request, choice);
    const char *type = twill_type_name(request->type);
    twill_say(&comm->context->log, twill_log_once(TWILL_LOG_INFO, comm->local == 0),
              "communicator %u: %s%s of %zu bytes, %s: %s", comm->number,
              twill_collective_name(request->collective), request->vector ? "v" : "",
              request->bytes, type != NULL ? type : "?", why);
}

static void describe_point(const struct twill_point *p, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    if (p->sends)
        used = (size_t)snprintf(text, bytes, "send of %zu %s to rank %d", p->src_count,
                                twill_type_name(p->type), p->to);
    if (p->receives && used < bytes)
        snprintf(text + used, bytes - used, "%srecv of %zu %s from rank %d", used > 0 ? ", " : "",
                 p->dst_count, twill_type_name(p->type), p->from);
}

static void describe_request(const struct twill_request *request, char *text, size_t bytes)
{
    if (request->is_point)
        describe_point(&request->point, text, bytes);
    else
        twill_call_describe(&request->run.call, request->run.sequence, text, bytes);
}

void twill_log_begin(const struct twill_request *request)
{
    const struct twill_comm *comm = request->comm;
    char call[200];
    describe_request(request, call, sizeof(call));
    const void *src = request->is_point ? request->point.src : request->run.call.src;
    const void *dst = request->is_point ? request->point.dst : request->run.call.dst;
    twill_say(&comm->context->log, TWILL_LOG_DEBUG, "communicator %u: %s begins: src %p, dst %p",
              comm->number, call, src, dst);
}

void twill_log_end(const struct twill_request *request, twill_status status)
{
    const struct twill_comm *comm = request->comm;
    char call[200], how[TWILL_WHY_NAME] = "point to point";
    describe_request(request, call, sizeof(call));
    if (!request->is_point && request->run.plan != NULL)
        twill_why_name(&request->run.plan->choice, how);
    twill_say(&comm->context->log, TWILL_LOG_DEBUG, "communicator %u: %s ends: %s, %s, %.1f us",
              comm->number, call, twill_strerror(status), how,
              1e6 * twill_comm_seconds(comm, twill_ticks() - request->ticks));
}
