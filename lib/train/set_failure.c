/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of a set, and refused arguments. */
#include "lib/train/gradients.h"

#include <sched.h>
#include <stdio.h>

/* Break a communicator of the set, so that no rank waits on it. */
static void break_comm(struct twill_gradients *set, twill_comm *comm)
{
    if (comm == NULL || twill_comm_acquire(comm, "twill_gradients") != TWILL_OK)
        return;
    if (!comm->broken)
        (void)twill_comm_fail(
            comm, TWILL_COMM_FAIL(comm, set->error.status, "gradient set: %s", set->error.message));
    twill_comm_release(comm);
}

twill_status twill_gradients_fail(struct twill_gradients *set, twill_comm *comm,
                                  twill_status status)
{
    if (!set->broken)
        (void)TWILL_FAIL(&set->error, status, "%s", twill_comm_message(comm));
    set->broken = true;
    break_comm(set, set->lane.comm);
    break_comm(set, set->lane.order_comm);
    if (set->update != NULL)
        break_comm(set, set->update->comm);
    return status;
}

twill_status twill_gradients_refuse(struct twill_gradients *set, const char *file, int line,
                                    const char *format, ...)
{
    va_list arguments;
    char text[sizeof(set->refused.message)];
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    while (atomic_exchange(&set->refusing, true))
        sched_yield();
    twill_error_clear(&set->refused);
    (void)twill_error_set(&set->refused, TWILL_ERR_ARGUMENT, file, line, "rank %d: %s",
                          twill_comm_rank(set->parent), text);
    atomic_store(&set->refusing, false);
    return TWILL_ERR_ARGUMENT;
}

const char *twill_gradients_message(const twill_gradients *set)
{
    if (set == NULL)
        return "the gradient set is NULL";
    return set->error.status != TWILL_OK ? set->error.message : set->refused.message;
}
