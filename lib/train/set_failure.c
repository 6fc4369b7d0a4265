/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of a set, and refused arguments. */
#include "lib/train/gradients.h"

#include <sched.h>
#include <stdio.h>

/* Break the communicators of a lane, so that no rank waits on them. The lane is locked, or no other
 * thread uses it. */
static void break_lane(const struct twill_error *cause, struct twill_lane *lane)
{
    twill_comm *const comms[] = {lane->comm, lane->order_comm, lane->update.comm};
    for (size_t c = 0; c < TWILL_ARRAY_LENGTH(comms); c++)
        twill_extend_end(comms[c], "twill_gradients", "gradient set", cause);
}

void twill_gradients_break(struct twill_gradients *set)
{
    struct twill_error failure, *cause = &set->error;
    if (!set->broken)
        cause = twill_extend_failure(set->parent, &failure) ? &failure : NULL;
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
    return twill_gradients_fail(lane, comm, twill_extend_fail(comm, call, status, "%s", message));
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
