/* SPDX-License-Identifier: Apache-2.0 */
/* Makes plans and keeps them. Everything a run will need is sized and connected here, so that a
 * call of a known shape allocates nothing. */
#include "lib/comm.h"

#include <stdlib.h>

static bool sends(const struct twill_step *step)
{
    return step->op == TWILL_STEP_SEND || step->op == TWILL_STEP_RECV ||
           step->op == TWILL_STEP_RECV_REDUCE;
}

/* Slices must be the same on all ranks, whatever their own part is: so they depend on the world and
 * the choice, not on this rank's schedule. What is staged on a node should stay in the caches; what
 * crosses the network should not be cut too small; what is neither is one slice. */
static void size_slices(const struct twill_comm *comm, struct twill_plan *plan)
{
    const struct twill_choice *choice = &plan->choice;
    if (choice->algorithm->flavours != 0 && choice->shape.flavour == TWILL_FLAVOUR_IMM)
        plan->slice_bytes = TWILL_IMM_BYTES;
    else if (comm->world->nodes > 1 || choice->algorithm->flavours == 0)
        plan->slice_bytes = comm->segment_net;
    else if (choice->shape.flavour == TWILL_FLAVOUR_MAPPED)
        plan->slice_bytes = SIZE_MAX;
    else
        plan->slice_bytes = comm->segment;
    if (plan->slice_bytes != SIZE_MAX && plan->slice_bytes > TWILL_CACHE_LINE)
        plan->slice_bytes &= ~(size_t)(TWILL_CACHE_LINE - 1);
}

/* One copy of SHARED holds a slice for each part of it. */
static twill_status check_shared(struct twill_comm *comm, const struct twill_plan *plan)
{
    size_t parts = plan->schedule.shared_blocks / plan->schedule.blocks;
    if (parts <= comm->node->shared_bytes / plan->slice_bytes)
        return TWILL_OK;
    return TWILL_FAIL(&comm->error, TWILL_ERR_INTERNAL, "%s stages %zu slices of %zu bytes in %zu",
                      plan->choice.algorithm->name, parts, plan->slice_bytes,
                      comm->node->shared_bytes);
}

/* Largest message that must be received before it is folded, over the widest blocks there can be: a
 * block is at most a line longer than its share. */
static size_t largest_bounce(const struct twill_comm *comm, const struct twill_plan *plan)
{
    const struct twill_schedule *s = &plan->schedule;
    size_t share = plan->slice_bytes / s->blocks + 2 * TWILL_CACHE_LINE, most = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct twill_step *step = &s->steps[i];
        if (step->op == TWILL_STEP_RECV_REDUCE &&
            twill_comm_link(comm, step->peer[0])->ops->needs_bounce)
            most = twill_max(most, twill_min(step->blocks * share, plan->slice_bytes));
    }
    return twill_round_up(most, TWILL_CACHE_LINE);
}

static twill_status connect_peers(struct twill_comm *comm, struct twill_plan *plan)
{
    for (uint32_t i = 0; i < plan->schedule.count; i++) {
        const struct twill_step *step = &plan->schedule.steps[i];
        if (!sends(step))
            continue;
        uint32_t peer = step->peer[0];
        struct twill_transport *link = twill_comm_link(comm, peer);
        plan->polled |= !link->ops->sleeps_on_bell;
        TWILL_TRY(&comm->error, twill_comm_connect(comm, peer));
    }
    return TWILL_OK;
}

static twill_status grow_scratch(struct twill_comm *comm, const struct twill_plan *plan)
{
    size_t posted = (size_t)TWILL_WINDOW * TWILL_SCHEDULE_LANES * plan->schedule.most_posted;
    size_t bytes = TWILL_WINDOW * plan->tmp_bytes + posted * plan->bounce_bytes;
    TWILL_TRY(&comm->error, twill_comm_grow(comm, &comm->scratch, &comm->scratch_bytes, bytes));
    if (posted > comm->posted_count) {
        free(comm->posted);
        comm->posted_count = 0;
        comm->posted = aligned_alloc(
            TWILL_CACHE_LINE, twill_round_up(posted * sizeof(*comm->posted), TWILL_CACHE_LINE));
        if (comm->posted == NULL)
            return TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory for %zu requests",
                              posted);
        comm->posted_count = posted;
    }
    return TWILL_OK;
}

static twill_status bind(struct twill_comm *comm, struct twill_plan *plan)
{
    size_slices(comm, plan);
    TWILL_TRY(&comm->error, check_shared(comm, plan));
    TWILL_TRY(&comm->error, connect_peers(comm, plan));
    if (plan->schedule.tmp_blocks > 0)
        plan->tmp_bytes = plan->slice_bytes * (plan->schedule.tmp_blocks / plan->schedule.blocks);
    plan->bounce_bytes = largest_bounce(comm, plan);
    return grow_scratch(comm, plan);
}

#ifndef NDEBUG
/* Debug builds check all ranks' schedules before the first use, up to a size that takes no time. */
static twill_status verify(struct twill_comm *comm, const struct twill_choice *choice)
{
    const struct twill_world *world = comm->world;
    if (world->size > 32)
        return TWILL_OK;
    struct twill_schedule all[32] = {0};
    twill_status status = TWILL_OK;
    for (uint32_t r = 0; r < world->size && status == TWILL_OK; r++)
        status =
            twill_schedule_emit(&all[r], choice->algorithm, world, r, &choice->shape, &comm->error);
    if (status == TWILL_OK)
        status = twill_schedule_verify(all, world, &choice->shape, false, &comm->error);
    for (uint32_t r = 0; r < world->size; r++)
        twill_schedule_destroy(&all[r]);
    return status;
}
#endif

static twill_status make(struct twill_comm *comm, const struct twill_choice *choice,
                         struct twill_plan **made)
{
    struct twill_plan *plan = calloc(1, sizeof(*plan));
    if (plan == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory for a plan");
    plan->choice = *choice;
    twill_status status = TWILL_OK;
#ifndef NDEBUG
    TWILL_TRY_OR_FAIL(&comm->error, verify(comm, choice));
#endif
    TWILL_TRY_OR_FAIL(&comm->error,
                      twill_schedule_emit(&plan->schedule, choice->algorithm, comm->world,
                                          comm->rank, &choice->shape, &comm->error));
    TWILL_TRY_OR_FAIL(&comm->error, bind(comm, plan));
    plan->next = comm->plans;
    comm->plans = plan;
    *made = plan;
    return TWILL_OK;
fail:
    twill_schedule_destroy(&plan->schedule);
    free(plan);
    return status;
}

static bool same(const struct twill_choice *a, const struct twill_choice *b)
{
    return a->algorithm == b->algorithm && a->shape.collective == b->shape.collective &&
           a->shape.root == b->shape.root &&
           (a->algorithm->flavours == 0 || a->shape.flavour == b->shape.flavour);
}

twill_status twill_plan_get(struct twill_comm *comm, const struct twill_choice *choice,
                            const struct twill_plan **plan)
{
    for (struct twill_plan *p = comm->plans; p != NULL; p = p->next) {
        if (same(&p->choice, choice)) {
            *plan = p;
            return TWILL_OK;
        }
    }
    struct twill_plan *made = NULL;
    TWILL_TRY(&comm->error, make(comm, choice, &made));
    *plan = made;
    return TWILL_OK;
}

void twill_plans_destroy(struct twill_comm *comm)
{
    while (comm->plans != NULL) {
        struct twill_plan *plan = comm->plans;
        comm->plans = plan->next;
        twill_schedule_destroy(&plan->schedule);
        free(plan);
    }
}
