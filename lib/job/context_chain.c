/* SPDX-License-Identifier: Apache-2.0 */
/* When a job grows, its ranks get a new context. What a program has made in the old one goes on:
 * operations, registrations and the idle function are copied; memory of twill_alloc() stays where
 * it is, in the old context, which is kept for that. */
#include "lib/job/job_internal.h"
#include "lib/job/operation.h"

twill_status twill_context_inherit(struct twill_context *context, struct twill_context *from,
                                   struct twill_error *error)
{
    twill_context_lock(from);
    for (size_t i = 0; i < TWILL_OPERATIONS; i++) {
        context->operations->slot[i] = from->operations->slot[i];
        atomic_store(&context->operations->taken[i], atomic_load(&from->operations->taken[i]));
    }
    context->idle_hook = from->idle_hook;
    twill_status status = twill_persistent_inherit(context, from, error);
    twill_context_unlock(from);
    return status;
}

void twill_context_chain(struct twill_context *context, struct twill_context *older)
{
    context->older = older;
    older->newer = context;
}

void twill_context_unchain(struct twill_context *context)
{
    if (context->newer != NULL)
        context->newer->older = context->older;
    if (context->older != NULL)
        context->older->newer = context->newer;
    context->older = context->newer = NULL;
}

void twill_context_drop_older(struct twill_context *context)
{
    if (context->newer == NULL || context->comms.opened > 0 || twill_persistent_is_used(context))
        return;
    twill_context_unchain(context);
    twill_context_destroy(context);
}
