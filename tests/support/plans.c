/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/plans.h"
#include "algorithms/select/explain.h"
#include "lib/comm/comm.h"
#include "lib/engine/plan.h"
#include "lib/twill_plan.h"
#include "tests/support/payload.h"
#include "tests/support/ranks.h"

#include <stdio.h>
#include <string.h>

/* What is asked before a call. It is the `answer` of the call. */
struct asked_plan {
    bool heap;
    size_t bytes;
    twill_call_plan plan;
    twill_status status;
};

static void ask(const struct test_call *call, twill_comm *comm)
{
    struct asked_plan *q = call->answer;
    char name[32];
    snprintf(name, sizeof(name), "%s%s", twill_collective_name(call->collective),
             call->vector ? "v" : "");
    q->bytes = call->collective == TWILL_BARRIER ? 0
                                                 : test_call_elements(call, twill_comm_size(comm)) *
                                                       test_payload_element(call->type, call->op);
    int buffers = (q->heap ? TWILL_PLAN_SHARED : 0) | (call->in_place ? TWILL_PLAN_IN_PLACE : 0);
    q->plan = (twill_call_plan){.bytes = sizeof(q->plan)};
    q->status = twill_comm_plan_for(comm, name, q->bytes, call->type,
                                    call->op < TWILL_OP_COUNT ? call->op : call->made, call->root,
                                    buffers, &q->plan);
}

/* Return the plan that a call has taken. Return NULL if it has kept the plan of an equal call
 * before it. That one was compared then. A carrier may have taken one after it. */
static const struct twill_plan *taken(const struct test_call *call, const twill_comm *comm,
                                      size_t bytes)
{
    const struct twill_plan *plan = comm->plan_cache.last;
    if (call->form == TEST_BLOCKING && !call->vector)
        return comm->issue.blocking.plan;
    if (plan->key.vector != call->vector)
        plan = comm->plan_cache.before;
    const struct twill_select_request *key = &plan->key;
    bool same = key->collective == call->collective && (key->bytes == bytes || call->vector);
    return same && (!twill_collective_facts(call->collective)->rooted ||
                    key->root == (uint32_t)call->root)
               ? plan
               : NULL;
}

static bool same_segments(const struct test_call *call, const twill_comm *comm,
                          const twill_call_plan *plan)
{
    const struct twill_request *run = &comm->issue.blocking;
    if (call->form != TEST_BLOCKING || call->vector)
        return true;
    return plan->segment_bytes ==
           run->layout.segment_length * run->layout.element * run->plan->schedule.shards;
}

bool test_plan_check(const struct test_call *call, twill_comm *comm,
                     const struct test_buffers *buffers, bool heap)
{
    struct asked_plan q = {.heap = heap};
    struct test_call asking = *call;
    char name[TWILL_WHY_NAME], said[2 * TWILL_WHY_NAME], text[160];
    asking.ask = ask;
    asking.answer = &q;
    if (!test_call_check(&asking, comm, buffers))
        return false;
    test_call_name(call, text, sizeof(text));
    const struct twill_plan *plan = taken(call, comm, q.bytes);
    TWILL_REQUIRE(q.status == TWILL_OK, "%s: %s", text, twill_comm_message(comm));
    if (plan == NULL)
        return true;
    twill_why_name(&plan->choice, name);
    snprintf(said, sizeof(said), "%s%s%s", q.plan.algorithm, q.plan.protocol[0] != '\0' ? "@" : "",
             q.plan.protocol);
    return TWILL_NOTE(strcmp(said, name) == 0 && same_segments(call, comm, &q.plan),
                      "%s: takes %s, was to take %s in segments of %zu", text, name, said,
                      q.plan.segment_bytes) &&
           TWILL_NOTE(q.plan.seconds > 0 && q.plan.threads >= 1 && q.plan.reason[0] != '\0',
                      "%s: %g s, %d threads, \"%s\"", text, q.plan.seconds, q.plan.threads,
                      q.plan.reason);
}
