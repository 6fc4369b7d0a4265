/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of a set, and refused arguments. */
#include "lib/train/gradients.h"
#include "lib/wait/wait.h"

#include <sched.h>
#include <stdio.h>

/* Break a communicator of a set, so that no rank waits on it. The lane is locked, or no other
 * thread uses it. */
static void break_comm(const struct twill_error *cause, twill_comm *comm)
{
    if (comm == NULL || twill_comm_acquire(comm, "twill_gradients") != TWILL_OK)
        return;
    if (!comm->broken)
        (void)twill_comm_end(
            comm, TWILL_COMM_FAIL(comm, cause->status, "gradient set: %s", cause->message));
    twill_comm_release(comm);
}

static void break_lane(const struct twill_error *cause, struct twill_lane *lane)
{
    break_comm(cause, lane->comm);
    break_comm(cause, lane->order_comm);
    break_comm(cause, lane->update.comm);
}

/* Copy the failure that has broken the parent, unless another thread is in a call on it: that call
 * then reports it. Returns false if there is none. */
static bool copy_parent_failure(struct twill_error *cause, struct twill_comm *parent)
{
    const char *inside;
    if (!twill_comm_is_live(parent) || !twill_comm_hold(parent, twill_held_by_progress, &inside))
        return false;
    bool fails = parent->broken && parent->error.status != TWILL_OK;
    if (fails)
        *cause = parent->error;
    twill_comm_release(parent);
    return fails;
}

void twill_gradients_break(struct twill_gradients *set)
{
    struct twill_error failure, *cause = &set->error;
    if (!set->broken)
        cause = copy_parent_failure(&failure, set->parent) ? &failure : NULL;
    for (uint32_t l = 0; cause != NULL && l < set->lanes; l++)
        break_lane(cause, &set->lane[l]);
}

twill_status twill_gradients_leave(struct twill_lane *lane)
{
    break_lane(&lane->set->error, lane);
    twill_lane_note_end(lane);
    return TWILL_ERR_BROKEN;
}

static void lock_messages(struct twill_gradients *set)
{
    while (atomic_exchange(&set->refusing, true))
        sched_yield();
}

twill_status twill_gradients_fail(struct twill_lane *lane, twill_comm *comm, twill_status status)
{
    struct twill_gradients *set = lane->set;
    lock_messages(set);
    if (!set->broken)
        (void)TWILL_FAIL(&set->error, status, "%s", twill_comm_message(comm));
    atomic_store(&set->broken, true);
    atomic_store(&set->refusing, false);
    (void)twill_gradients_leave(lane);
    for (uint32_t l = 0; l < set->lanes; l++) {
        struct twill_lane *other = &set->lane[l];
        if (other == lane)
            continue;
        if (other->own.running)
            twill_lane_kick(other); /* its thread leaves */
        else if (twill_lane_try_lock(other)) {
            (void)twill_gradients_leave(other);
            atomic_store(&other->locked, false);
        }
    }
    return status;
}

twill_status twill_gradients_fail_with(struct twill_lane *lane, twill_comm *comm, const char *call,
                                       twill_status status, const char *message)
{
    if (twill_comm_acquire(comm, call) != TWILL_OK)
        return TWILL_ERR_ARGUMENT;
    status = twill_comm_fail(comm, TWILL_COMM_FAIL(comm, status, "%s", message));
    twill_comm_release(comm);
    return twill_gradients_fail(lane, comm, status);
}

twill_status twill_gradients_refuse(struct twill_gradients *set, const char *file, int line,
                                    const char *format, ...)
{
    char before[32];
    va_list arguments;
    snprintf(before, sizeof(before), "rank %d: ", twill_comm_rank(set->parent));
    va_start(arguments, format);
    lock_messages(set);
    twill_error_clear(&set->refused);
    (void)twill_error_set_list(&set->refused, TWILL_ERR_ARGUMENT, TWILL_NO_RANK, file, line, before,
                               format, arguments);
    atomic_store(&set->refusing, false);
    va_end(arguments);
    return TWILL_ERR_ARGUMENT;
}

const char *twill_gradients_message(const twill_gradients *set)
{
    if (set == NULL)
        return "the gradient set is NULL";
    return set->broken ? set->error.message : set->refused.message;
}
